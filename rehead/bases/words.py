"""Word vectors of other formats, converted to a table of words: `words.json` and `vectors.safetensors`.

    .vec, .txt      a word and its numbers per line, as fastText and GloVe write them
    spaCy           the vectors of a pipeline: vocab/vectors, vocab/key2row, vocab/strings.json

The first 500,000 words are read: such files are sorted by frequency. `words.json` is a list, a word for each row, or an
object from words to rows: in spaCy's `_md` pipelines 500,000 words share 20,000 rows.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.bases.files import VECTORS, WORDS, fields_of, inside
from rehead.disk import read_json, write_json
from rehead.errors import UserError
from rehead.text.decoding import InputFile, line_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

SUFFIXES = (".vec", ".txt", ".vec.gz", ".txt.gz", ".vec.zst", ".txt.zst")
MAX_WORDS = 500_000
MAX_WIDTH = 4_096
MAX_VALUES = 2**28  # of a table: 1 GB of memory
MAX_LINE = 1 << 16  # characters
MASK = (1 << 64) - 1


def convert_words(source: Path) -> tempfile.TemporaryDirectory[str]:
    """Convert word vectors to a table in a temporary directory, which lasts as long as what is returned."""
    words: list[str] | dict[str, int]
    words, vectors = _read_spacy(source) if source.is_dir() else _read_text(source)
    if not np.isfinite(vectors).all():
        raise UserError(f"{source}: the vectors hold NaN or infinity.")
    from safetensors.numpy import save_file

    made = tempfile.TemporaryDirectory(prefix="rehead-words-", ignore_cleanup_errors=True)
    write_json(Path(made.name) / WORDS, words)
    save_file({"vectors": vectors}, Path(made.name) / VECTORS)
    return made


def _read_text(file: Path) -> tuple[list[str], Floats]:
    words: dict[str, None] = {}
    rows: list[Floats] = []
    width = 0
    with InputFile(file, str(file)) as opened:
        for first, lines in line_blocks(opened, MAX_LINE):
            for number, line in enumerate(lines, first):
                parts = line.rstrip().split(" ")
                if number == 1 and len(parts) == 2 and all(each.isdigit() for each in parts):
                    continue  # how many there are, and of how many values
                width = width or len(parts) - 1
                word = " ".join(parts[: len(parts) - width])
                try:
                    row = np.array(parts[len(parts) - width :], np.float32)
                except ValueError:
                    row = np.zeros(0, np.float32)
                if not 2 <= width <= MAX_WIDTH or len(row) != width or not word:
                    raise UserError(f"{file} line {number}: expected a word and {width} numbers, as in a .vec file.")
                if len(rows) * width > MAX_VALUES:
                    raise UserError(f"{file} line {number}: more than {MAX_VALUES:,} numbers. Give fewer words.")
                if word not in words:
                    words[word] = None
                    rows.append(row)
            if len(rows) >= MAX_WORDS:
                break
    if not rows:
        raise UserError(f"{file}: no word vectors.")
    return list(words)[:MAX_WORDS], np.stack(rows[:MAX_WORDS])


def _read_spacy(root: Path) -> tuple[dict[str, int], Floats]:
    """Read the vectors of a spaCy pipeline; its keys are hashes of the words in strings.json, which may share a row."""
    home = root / "vocab" if (root / "vocab" / "key2row").is_file() else root
    if (mode := fields_of(home, "vectors.cfg", required=False).get("mode", "default")) != "default":
        raise UserError(f"{home}: vectors of the mode {mode!r} are not known, only those with a row for each word.")
    try:
        # Mapped, so that a size that is stated is not believed.
        table: Any = np.load(inside(home, "vectors"), mmap_mode="r", allow_pickle=False)
        if table.dtype.kind not in "fiu":
            raise ValueError(f"of the type {table.dtype}")
    except (ValueError, EOFError, TypeError) as error:
        raise UserError(f"{home / 'vectors'}: not a table of numbers ({error}).") from None
    strings = read_json(inside(home, "strings.json"))
    if not isinstance(strings, list):
        raise UserError(f"{home / 'strings.json'}: expected a list of words.")
    rows = read_integer_map(inside(home, "key2row").read_bytes(), str(home / "key2row"))
    found = [(word, rows.get(hash_string(word), -1)) for word in strings if isinstance(word, str)]
    if table.ndim != 2 or any(row >= len(table) for row in rows.values()):
        raise UserError(f"{home}: key2row names rows that the table of vectors does not have.")
    kept = sorted(((row, word) for word, row in found if row >= 0), key=lambda each: each[0])[:MAX_WORDS]
    if not kept:
        raise UserError(f"{home}: no word vectors. Pipelines whose names end in _md or _lg have some.")
    used, places = np.unique([row for row, _ in kept], return_inverse=True)
    words = dict(zip((word for _, word in kept), places.tolist(), strict=True))
    return words, table[used].astype(np.float32)


def read_integer_map(data: bytes, name: str) -> dict[int, int]:
    """Read a MessagePack map from integers to integers, and nothing else."""
    place = 0

    def take(count: int, *, signed: bool = False) -> int:
        nonlocal place
        if place + count > len(data):
            raise UserError(f"{name}: it ends too early. Copy it again.")
        place += count
        return int.from_bytes(data[place - count : place], "big", signed=signed)

    def integer() -> int:
        kind = take(1)
        if kind < 0x80 or kind >= 0xE0:
            return kind if kind < 0x80 else kind - 0x100
        if 0xCC <= kind <= 0xD3:
            return take(1 << ((kind - 0xCC) % 4), signed=kind >= 0xD0)
        raise UserError(f"{name}: holds something else than whole numbers.")

    kind = take(1)
    if not 0x80 <= kind <= 0x8F and kind not in (0xDE, 0xDF):
        raise UserError(f"{name}: not a map.")
    size = kind - 0x80 if kind <= 0x8F else take(2 if kind == 0xDE else 4)
    return {integer(): integer() for _ in range(min(size, len(data)))}


def hash_string(word: str) -> int:
    """Hash a word as spaCy's `StringStore` does: MurmurHash64A of its UTF-8, with the seed 1."""
    data, factor = word.encode("utf-8", "surrogatepass"), 0xC6A4A7935BD1E995
    found = (1 ^ (len(data) * factor)) & MASK
    whole = len(data) - len(data) % 8
    for place in range(0, whole, 8):
        block = int.from_bytes(data[place : place + 8], "little") * factor & MASK
        found = (found ^ ((block ^ (block >> 47)) * factor & MASK)) * factor & MASK
    if whole < len(data):
        found = (found ^ int.from_bytes(data[whole:], "little")) * factor & MASK
    found = (found ^ (found >> 47)) * factor & MASK
    return found ^ (found >> 47)
