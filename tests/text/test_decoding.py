"""Bytes to lines: encodings, compression, line ends, and what cannot be text."""

from __future__ import annotations

import codecs
import gzip
import io
import sys
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from rehead.errors import UserError
from rehead.text import decoding
from rehead.text.decoding import InputFile, line_blocks

LIMIT = 1_000_000


def lines_of(path: Path, limit: int = LIMIT, keep_ends: bool = False) -> list[str]:
    """All lines; the numbers of the blocks must be those of their first lines."""
    found: list[str] = []
    with InputFile(path, path.name) as file:
        for number, lines in line_blocks(file, limit, keep_ends=keep_ends):
            assert number == len(found) + 1
            found += lines
    return found


def error_of(path: Path, limit: int = LIMIT) -> str:
    with pytest.raises(UserError) as caught:
        lines_of(path, limit)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def written(tmp_path: Path, data: bytes, name: str = "a.txt") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (b"", "utf-8"),
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    ],
)
def test_encodings_are_known_by_their_mark(tmp_path: Path, mark: bytes, encoding: str) -> None:
    # U+0A0D in UTF-16 is made of the bytes of \r and \n, in one order or the other.
    text = "déjà vu\nਊ਍ 漢字\n🙂"
    path = written(tmp_path, mark + text.encode(encoding))
    assert lines_of(path) == ["déjà vu", "ਊ਍ 漢字", "🙂"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\n\n", ["a", ""]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\r", ["a", "b"]),
        (b"a\n\rb", ["a", "", "b"]),
        (b"a\r", ["a"]),
        (codecs.BOM_UTF8, []),
        ("a\u2028b\x0bc\x0cd\x85e\x1cf".encode(), ["a\u2028b\x0bc\x0cd\x85e\x1cf"]),
    ],
)
def test_line_ends(tmp_path: Path, data: bytes, expected: list[str]) -> None:
    assert lines_of(written(tmp_path, data)) == expected


@settings(max_examples=150, deadline=None)
@given(
    text=st.text(st.sampled_from("ab\r\né漢🙂 "), max_size=60),
    chunk=st.integers(4, 20),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]),
    packed=st.sampled_from(["", ".gz", ".zst"]),
)
def test_chunks_may_end_anywhere(
    tmp_path_factory: pytest.TempPathFactory, text: str, chunk: int, encoding: str, packed: str
) -> None:
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}[packed]
    path = written(tmp_path_factory.mktemp("chunks"), pack(text.encode(encoding)), "a.txt" + packed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "CHUNK", chunk)
        assert lines_of(path, keep_ends=True) == list(io.StringIO(text, newline=""))
        assert lines_of(path) == [line.removesuffix("\n") for line in io.StringIO(text, newline=None)]


def test_compressed_files_in_several_pieces(tmp_path: Path) -> None:
    one, two = b"first\n" * 30_000, b"second\n" * 30_000
    expected = ["first"] * 30_000 + ["second"] * 30_000
    assert lines_of(written(tmp_path, gzip.compress(one) + gzip.compress(two), "a.txt.gz")) == expected
    pack = zstandard.ZstdCompressor().compress
    assert lines_of(written(tmp_path, pack(one) + pack(two), "a.txt.zst")) == expected


def test_compression_is_known_by_content(tmp_path: Path) -> None:
    assert lines_of(written(tmp_path, gzip.compress(b"a\nb\n"))) == ["a", "b"]


@pytest.mark.parametrize("packed", [".gz", ".zst"])
def test_a_compressed_file_cut_short(tmp_path: Path, packed: str) -> None:
    text = "".join(f"line {number}\n" for number in range(1000)).encode()
    data = gzip.compress(text) if packed == ".gz" else zstandard.ZstdCompressor().compress(text)
    for length in (len(data) - 1, len(data) // 2, 5):
        message = error_of(written(tmp_path, data[:length], "a.txt" + packed))
        assert message == f"a.txt{packed}: the compressed file is truncated. Copy or download it again."


@pytest.mark.parametrize(("packed", "kind"), [(".gz", "gzip"), (".zst", "zstd")])
def test_a_name_that_lies(tmp_path: Path, packed: str, kind: str) -> None:
    message = error_of(written(tmp_path, b"plain text\n", "a.txt" + packed))
    assert message == f"a.txt{packed}: is not a {kind} file, despite its extension. Compress it, or rename it."


def test_a_damaged_gzip_file(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(b"some text\n" * 1000))
    data[20] ^= 0xFF
    assert error_of(written(tmp_path, bytes(data), "a.txt.gz")).startswith("a.txt.gz: damaged gzip file (")


def test_a_damaged_zstd_file(tmp_path: Path) -> None:
    data = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(b"some text\n" * 1000))
    data[-1] ^= 0xFF
    assert error_of(written(tmp_path, bytes(data), "a.txt.zst")).startswith("a.txt.zst: damaged zstd file (")


def test_zstd_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, zstandard.ZstdCompressor().compress(b"a\n"), "a.txt.zst")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert error_of(path) == "a.txt.zst: zstd needs the zstandard package: pip install 'rehead[formats]'."


@pytest.mark.parametrize("lines_before", [0, 2, 50_000])
def test_bytes_that_are_not_utf8(tmp_path: Path, lines_before: int) -> None:
    data = "déjà vu\n".encode() * lines_before + "tr\xe8s caf\xe9\n".encode("latin-1") + b"more\n"
    assert error_of(written(tmp_path, data)) == (
        f"a.txt line {lines_before + 1}: byte 0xE8 is not UTF-8 (it looks like Latin-1 or Windows-1252). "
        "Save the file as UTF-8, for example with: iconv -f cp1252 -t utf-8 a.txt > utf8-a.txt"
    )


def test_bytes_that_are_not_even_latin1(tmp_path: Path) -> None:
    assert error_of(written(tmp_path, b"a\nb\x81\n")).startswith("a.txt line 2: byte 0x81 is not UTF-8. Save")


def test_utf8_cut_in_a_character(tmp_path: Path) -> None:
    assert error_of(written(tmp_path, b"a\n\xe6\xbc")).startswith("a.txt line 2: byte 0xE6 is not UTF-8")


def test_utf16_gone_wrong(tmp_path: Path) -> None:
    odd = codecs.BOM_UTF16_LE + "a\nb\nc".encode("utf-16-le") + b"x"
    assert error_of(written(tmp_path, odd)) == (
        "a.txt line 3: not valid utf-16-le, which the byte-order mark declares. Save it as UTF-8."
    )


def test_a_nul_byte(tmp_path: Path) -> None:
    assert error_of(written(tmp_path, b"a\nb\nc\0d\n")) == (
        "a.txt line 3: a NUL byte. The file is binary, or UTF-16 without a BOM: save it as UTF-8."
    )
    assert "line 1: a NUL byte" in error_of(written(tmp_path, "no mark\n".encode("utf-16-le")))


def test_a_long_line_is_refused_before_it_is_read_whole(tmp_path: Path) -> None:
    path = written(tmp_path, b"a\nb\n" + b"x" * 50_000_000 + b"\nc\n")
    tracemalloc.start()
    message = error_of(path, limit=4_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert message == (
        "a.txt line 3: the line is longer than 4 MB. "
        "Put every document on its own line, or raise the limit with --max-document-mb."
    )
    assert peak < 12_000_000


@pytest.mark.parametrize("size", [9, 10, 11])
def test_the_limit_is_exact(tmp_path: Path, size: int) -> None:
    path = written(tmp_path, b"a\n" + "é".encode() * (size // 2) + b"x" * (size % 2) + b"\nb\n")
    if size > 10:
        assert error_of(path, limit=10).startswith("a.txt line 2: the line is longer than 1e-05 MB")
    else:
        assert len(lines_of(path, limit=10)) == 3


def test_a_folder_or_nothing_where_a_file_should_be(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^x: cannot be read: Is a directory\.$"):
        InputFile(tmp_path, "x")
    with pytest.raises(UserError, match=r"^x: cannot be read: No such file or directory\.$"):
        InputFile(tmp_path / "none", "x")
