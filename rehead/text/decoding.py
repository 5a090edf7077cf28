r"""Bytes on disk → text, in chunks and lines of bounded size.

A chunk of about a megabyte is read, decompressed, decoded and split at once, so Python does no work per byte: a
plain UTF-8 file decodes and splits at RATE, gzip at what zlib gives.

    compression   gzip and zstd, known by their first bytes; a name in .gz or .zst that holds neither is an error
    encoding      UTF-8, or what a byte-order mark says (UTF-8, UTF-16, UTF-32); nothing is guessed
    line ends     \n, \r\n and \r

What cannot be text (bytes that are not UTF-8, a NUL, an archive cut short, a line without end) is a `UserError` that
names file and line; it comes before more than one line's limit of text is held in memory.
"""

from __future__ import annotations

import codecs
import gzip
import io
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO

from rehead.errors import UserError
from rehead.text.documents import place

CHUNK = 1 << 20

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
ZSTD_SKIPPABLE = tuple(bytes([0x50 + low, 0x2A, 0x4D, 0x18]) for low in range(16))
COMPRESSED = (".gz", ".zst", ".zstd")

# zstd may turn four bytes into 128 KB: taking little at a time keeps the worst it can do near 128 MB.
ZSTD_STEP = 4096

# The mark of UTF-32 begins with that of UTF-16, so it is tried first.
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class InputFile:
    """A file opened for reading, decompressed on the way, that knows how far it has been read on disk."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        try:
            self.raw: IO[bytes] = path.open("rb")
            self.size = path.stat().st_size
            magic = self.raw.read(4)
            self.raw.seek(0)
        except OSError as error:
            raise UserError(f"{name}: cannot be read: {error.strerror or error}.") from error
        self._gzip = magic[:2] == GZIP
        self._zstd = magic == ZSTD or magic in ZSTD_SKIPPABLE
        if name.lower().endswith(COMPRESSED) and not self._gzip and not self._zstd:
            kind = "gzip" if name.lower().endswith(".gz") else "zstd"
            raise UserError(f"{name}: is not a {kind} file, whatever its name says. Compress it, or rename it.")
        # Set by a reader that jumps about in the file (parquet); otherwise the place in the file says it.
        self.fraction: float | None = None

    def __enter__(self) -> InputFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.raw.close()

    @property
    def position(self) -> int:
        """How many bytes of the file on disk have been used."""
        return int(self.fraction * self.size) if self.fraction is not None else self.raw.tell()

    def chunks(self) -> Iterator[bytes]:
        """Read the file to its end, decompressed; every chunk but the last has at least `CHUNK` bytes."""
        try:
            if self._gzip:
                with gzip.GzipFile(fileobj=self.raw) as unzipped:
                    yield from iter(lambda: unzipped.read(CHUNK), b"")
            elif self._zstd:
                yield from self._zstd_chunks()
            else:
                yield from iter(lambda: self.raw.read(CHUNK), b"")
        except EOFError as error:
            raise self._cut_short() from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise UserError(f"{self.name}: damaged gzip file ({error}). Copy or download it again.") from error
        except OSError as error:
            raise UserError(f"{self.name}: cannot be read: {error.strerror or error}.") from error

    def seekable(self) -> IO[bytes]:
        """Return a binary file that can be read at any place: the file itself, or a decompressed temporary copy."""
        if not self._gzip and not self._zstd:
            return self.raw
        copy = tempfile.TemporaryFile()  # noqa: SIM115 (goes away with the last reference)
        for chunk in self.chunks():
            copy.write(chunk)
        copy.seek(0)
        return copy

    def _zstd_chunks(self) -> Iterator[bytes]:
        # Not zstandard's own stream reader: at a frame that is cut short it ends as if all were well.
        try:
            import zstandard
        except ImportError as error:
            raise UserError(f"{self.name}: zstd needs the zstandard package: pip install 'rehead[formats]'.") from error
        engine = zstandard.ZstdDecompressor()
        frame = None
        ready: list[bytes] = []
        size = 0
        try:
            while step := self.raw.read(ZSTD_STEP):
                while step:
                    frame = frame or engine.decompressobj()
                    ready.append(frame.decompress(step))
                    size += len(ready[-1])
                    step, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
                if size >= CHUNK:
                    yield b"".join(ready)
                    ready.clear()
                    size = 0
        except zstandard.ZstdError as error:
            raise UserError(f"{self.name}: damaged zstd file ({error}). Copy or download it again.") from error
        if size:
            yield b"".join(ready)
        if frame is not None:
            raise self._cut_short()

    def _cut_short(self) -> UserError:
        return UserError(f"{self.name}: the compressed file is cut short. Copy or download it again.")


def text_chunks(file: InputFile, *, translate: bool = True) -> Iterator[str]:
    r"""Decode a file; with `translate` every line end becomes `\n`. A `\r\n` is never cut in two."""
    newlines: io.IncrementalNewlineDecoder | None = None
    encoding = "utf-8"
    line = 1
    for data in _with_end(file.chunks()):
        if newlines is None:
            mark, encoding = next((each for each in MARKS if data.startswith(each[0])), (b"", "utf-8"))
            newlines = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)(), translate)
            data = data[len(mark) :]
        try:
            text = newlines.decode(data, final=not data)
        except UnicodeDecodeError as error:
            before = error.object[: error.start].decode(encoding, errors="replace")
            raise _not_text(file.name, line + line_ends(before), error) from error
        if "\0" in text:
            at = place(file.name, line + line_ends(text[: text.index("\0")]))
            raise UserError(f"{at}: a NUL character. The file is binary, or UTF-16 without its mark: save it as UTF-8.")
        yield text
        line += line_ends(text)


def line_blocks(file: InputFile, limit: int) -> Iterator[tuple[int, list[str]]]:
    """Split a file into lines without their ends; give them by the block, with the number of its first line."""
    pieces: list[str] = []  # of a line whose end is still to come
    held = 0
    number = 1
    for text in text_chunks(file):
        lines = text.split("\n")
        last = lines.pop()
        if lines:
            lines[0] = "".join([*pieces, lines[0]])
            if held + len(text) > limit:
                _check_lengths(file.name, number, lines, limit)
            yield number, lines
            number += len(lines)
            pieces, held = [], 0
        pieces.append(last)
        held += len(last)
        if held > limit:
            raise _too_long(file.name, number, limit)
    if held:
        yield number, ["".join(pieces)]


def raw_lines(file: InputFile, limit: int) -> Iterator[str]:
    r"""Split a file into lines with their ends as they are: what a csv reader needs, whose fields may hold any."""
    rest = ""
    number = 1
    for text in text_chunks(file, translate=False):
        lines = list(io.StringIO(rest + text, newline=""))
        rest = lines.pop() if lines and not lines[-1].endswith(("\n", "\r")) else ""
        yield from lines
        number += len(lines)
        if len(rest) > limit:
            raise _too_long(file.name, number, limit)
    if rest:
        yield rest


def line_ends(text: str) -> int:
    r"""Count the line ends: `\n`, `\r\n` and `\r`."""
    ends = text.count("\n")
    return ends + text.count("\r") - text.count("\r\n") if "\r" in text else ends


def _with_end(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Add an empty chunk, which tells a decoder that all has been said."""
    yield from chunks
    yield b""


def _check_lengths(name: str, first: int, lines: list[str], limit: int) -> None:
    for number, line in enumerate(lines, first):
        if len(line) > limit:
            raise _too_long(name, number, limit)


def _too_long(name: str, line: int, limit: int) -> UserError:
    return UserError(
        f"{place(name, line)}: the line goes on for more than {limit:,} characters. "
        "Give every document a line of its own, or allow longer ones with --max-document-mb."
    )


def _not_text(name: str, line: int, error: UnicodeDecodeError) -> UserError:
    at, byte = place(name, line), error.object[error.start]
    if error.encoding != "utf-8":
        return UserError(f"{at}: not valid {error.encoding.upper()}, as its first bytes announce. Save it as UTF-8.")
    if error.reason == "unexpected end of data":
        return UserError(f"{at}: the file ends in the middle of a character (byte 0x{byte:02X}). Is it cut short?")
    around = error.object[max(0, error.start - 1000) : error.start + 1000]
    try:
        around.decode("cp1252")
        guess, encoding = " (it looks like Latin-1 or Windows-1252)", "cp1252"
    except UnicodeDecodeError:
        guess, encoding = "", "ITS-ENCODING"
    return UserError(
        f"{at}: byte 0x{byte:02X} is not UTF-8{guess}. "
        f"Save the file as UTF-8, for example with: iconv -f {encoding} -t utf-8 {name} > utf8-{Path(name).name}"
    )
