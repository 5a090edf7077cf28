r"""Decompress and decode files into lines of bounded length.

A chunk is read, decompressed, split and decoded as a whole, so that no Python code runs per byte. Splitting bytes and
decoding each line is 1.5 times as fast as decoding the chunk and splitting the string (a single `’` makes the whole
string two bytes per character). Chunks of 64 KB fit into the CPU cache and are up to twice as fast as those of 1 MB.

    compression   gzip and zstd, detected by their magic bytes; a .gz or .zst file that is neither is an error
    encoding      UTF-8, or what a byte-order mark says (UTF-8, UTF-16, UTF-32); never guessed
    line ends     \n, \r\n and \r

Invalid input (bytes that are not UTF-8, a NUL byte, a truncated archive, a line that is too long) raises a `UserError`
with file and line, before more than the maximum line length is held in memory.
"""

from __future__ import annotations

import codecs
import gzip
import itertools
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO

from rehead.errors import UserError
from rehead.text.documents import COMPRESSED, location

CHUNK = 1 << 16

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
ZSTD_SKIPPABLE = tuple(bytes([0x50 + low, 0x2A, 0x4D, 0x18]) for low in range(16))

# zstd can expand four bytes to 128 KB; small steps bound the memory at about 128 MB.
ZSTD_STEP = 4096

# The byte-order mark of UTF-32 starts with that of UTF-16, so it is tried first.
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class InputFile:
    """A file opened for reading, decompressed on the fly; `position` tells how many bytes on disk were consumed."""

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
            self.raw.close()
            kind = "gzip" if name.lower().endswith(".gz") else "zstd"
            raise UserError(f"{name}: is not a {kind} file, despite its extension. Compress it, or rename it.")
        # Fraction consumed, where the file position does not tell: parquet seeks, and a closed file has no position.
        self.fraction: float | None = None
        self._copy: IO[bytes] | None = None

    def __enter__(self) -> InputFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.fraction = self.position / max(1, self.size)
        self.raw.close()
        if self._copy:
            self._copy.close()

    @property
    def position(self) -> int:
        """Number of bytes of the file on disk that were consumed."""
        return int(self.fraction * self.size) if self.fraction is not None else self.raw.tell()

    def chunks(self) -> Iterator[bytes]:
        """Yield the decompressed contents in chunks; all but the last have at least `CHUNK` bytes."""
        try:
            if self._gzip:
                with gzip.GzipFile(fileobj=self.raw) as unzipped:
                    yield from iter(lambda: unzipped.read(CHUNK), b"")
            elif self._zstd:
                yield from self._zstd_chunks()
            else:
                yield from iter(lambda: self.raw.read(CHUNK), b"")
        except EOFError as error:
            raise self._truncated() from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise UserError(f"{self.name}: damaged gzip file ({error}). Copy or download it again.") from error
        except OSError as error:
            raise UserError(f"{self.name}: cannot be read: {error.strerror or error}.") from error

    def seekable(self) -> IO[bytes]:
        """Return a seekable binary file: the file itself, or a decompressed temporary copy."""
        if not self._gzip and not self._zstd:
            return self.raw
        if self._copy is not None:
            return self._copy
        self._copy = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the file)
        for chunk in self.chunks():
            self._copy.write(chunk)
        self._copy.seek(0)
        return self._copy

    def _zstd_chunks(self) -> Iterator[bytes]:
        # zstandard's own stream reader does not report a truncated frame.
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
            raise self._truncated()

    def _truncated(self) -> UserError:
        return UserError(f"{self.name}: the compressed file is truncated. Copy or download it again.")


def line_blocks(file: InputFile, limit: int, *, keep_ends: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of a file in blocks, each with the number of its first line.

    `limit` is the maximum length of a line, in bytes of UTF-8. With `keep_ends`, lines keep their line ends.
    """
    number = 1
    held = bytearray()  # the beginning of an incomplete line
    for data in _utf8_chunks(file):
        unseen = max(0, len(held) - 1)
        held += data
        # A \r at the very end may be the first half of \r\n: keep it for the next chunk.
        end = max(held.rfind(b"\n", unseen), held.rfind(b"\r", unseen, len(held) - 1)) + 1
        if end:
            lines = _decoded(file.name, number, bytes(memoryview(held)[:end]), limit, keep_ends)
            yield number, lines
            number += len(lines)
            del held[:end]
        if len(held) > limit:
            raise _too_long(file.name, number, limit)
    if held:
        yield number, _decoded(file.name, number, bytes(held), limit, keep_ends)


def utf8_size(text: str) -> int:
    """Count the bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def line_ends(text: str) -> int:
    r"""Count the line ends: `\n`, `\r\n` and `\r`."""
    return text.count("\n") + text.count("\r") - text.count("\r\n")


def _utf8_chunks(file: InputFile) -> Iterator[bytes]:
    """Yield the contents as UTF-8 without byte-order mark, transcoding other encodings."""
    chunks = file.chunks()
    first = next(chunks, b"")
    mark, encoding = next((each for each in BYTE_ORDER_MARKS if first.startswith(each[0])), (b"", "utf-8"))
    chunks = itertools.chain([first[len(mark) :]], chunks)
    if encoding == "utf-8":
        yield from chunks
        return
    decoder = codecs.getincrementaldecoder(encoding)()
    line = 1
    for data, final in itertools.chain(((chunk, False) for chunk in chunks), [(b"", True)]):
        try:
            text = decoder.decode(data, final)
        except UnicodeDecodeError as error:
            at = location(file.name, line + line_ends(error.object[: error.start].decode(encoding, errors="replace")))
            raise UserError(
                f"{at}: not valid {encoding}, which the byte-order mark declares. Save it as UTF-8."
            ) from error
        yield text.encode()
        line += line_ends(text)


def _decoded(name: str, first: int, data: bytes, limit: int, keep_ends: bool) -> list[str]:
    lines = data.splitlines(keep_ends)  # bytes are split at \n, \r\n and \r only, unlike str
    if len(data) > limit:
        for number, line in enumerate(lines, first):
            if len(line) > limit:
                raise _too_long(name, number, limit)
    if b"\0" in data:
        number = next(number for number, line in enumerate(lines, first) if b"\0" in line)
        raise UserError(
            f"{location(name, number)}: a NUL byte. The file is binary, or UTF-16 without a BOM: save it as UTF-8."
        )
    try:
        return list(map(bytes.decode, lines))
    except UnicodeDecodeError as error:
        raise _not_utf8(name, first + lines.index(error.object), error) from error


def _too_long(name: str, line: int, limit: int) -> UserError:
    return UserError(
        f"{location(name, line)}: the line is longer than {limit / 1e6:g} MB. "
        "Put every document on its own line, or raise the limit with --max-document-mb."
    )


def _not_utf8(name: str, line: int, error: UnicodeDecodeError) -> UserError:
    at, byte = location(name, line), error.object[error.start]
    try:
        error.object.decode("cp1252")
        guess, encoding = " (it looks like Latin-1 or Windows-1252)", "cp1252"
    except UnicodeDecodeError:
        guess, encoding = "", "ITS-ENCODING"
    return UserError(
        f"{at}: byte 0x{byte:02X} is not UTF-8{guess}. "
        f"Save the file as UTF-8, for example with: iconv -f {encoding} -t utf-8 {name} > utf8-{Path(name).name}"
    )
