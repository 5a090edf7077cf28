"""Features kept on disk: nothing is read twice, nothing wrong is believed, and the cache may vanish at any time."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from scipy import sparse

from rehead.errors import UserError
from rehead.text.tokenizer import Tokenizer
from rehead.views.bag import BagOptions, BagView
from rehead.views.cache import cache_directory, read_cached
from rehead.views.encoded import EncodedTexts
from rehead.views.tokens import TokensOptions, TokensView
from rehead.views.view import Raw, View
from tests.faults import faulty_disk
from tests.model.conftest import alive, miniature

TEXTS = ["good film", "", "a bad film and a bad one", "good"]
DIGEST = "ab" * 32


def tokenizer() -> Tokenizer:
    words = ["<s>", "<pad>", "</s>", "<unk>", "[MASK]", *["a", "and", "bad", "film", "good", "one"]]
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: n for n, word in enumerate(words)}, "<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return Tokenizer(inner)


def view(kind: str = "bag", **options: Any) -> View:
    model = alive(miniature("bag"))
    return TokensView(model, TokensOptions()) if kind == "tokens" else BagView(model, BagOptions(**options))


class Reads:
    """Counts how often views read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for kind in (BagView, TokensView):
            monkeypatch.setattr(kind, "read", self._counted(kind.read))

    def _counted(self, read: Callable[[Any, EncodedTexts], Raw]) -> Callable[[Any, EncodedTexts], Raw]:
        def counted(view: View, texts: EncodedTexts) -> Raw:
            self.count += 1
            return read(view, texts)

        return counted


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REHEAD_CACHE", str(tmp_path / "kept" / "features"))
    monkeypatch.delenv("REHEAD_CACHE_MB", raising=False)
    return tmp_path / "kept" / "features"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


def get(view: View, texts: list[str] | None = None, digest: str | None = DIGEST) -> Raw:
    return read_cached(view, EncodedTexts(TEXTS if texts is None else texts, tokenizer()), digest)


def dense(raw: Raw) -> np.ndarray:
    return raw.matrix.toarray() if sparse.issparse(raw.matrix) else np.asarray(raw.matrix)


def entries(root: Path) -> list[Path]:
    return sorted(root.iterdir()) if root.exists() else []


@pytest.mark.parametrize("kind", ["bag", "tokens"])
def test_the_second_time_nothing_is_read(kind: str, root: Path, reads: Reads) -> None:
    first, second = get(view(kind)), get(view(kind))
    assert reads.count == 1
    np.testing.assert_array_equal(dense(second), dense(first))
    np.testing.assert_array_equal(second.document, first.document)
    assert second.texts == first.texts == len(TEXTS)
    assert dense(second).dtype == dense(first).dtype
    other = view(kind)
    for raw in (first, second):
        other.fit(raw)
        other.transform(raw)


def test_what_is_found_is_mapped_not_copied(root: Path) -> None:
    get(view())
    assert isinstance(get(view()).matrix, np.memmap)
    assert not get(view()).matrix.flags.writeable


def test_what_decides_the_features_decides_the_entry(root: Path, reads: Reads) -> None:
    changes: list[Callable[[], Raw]] = [
        lambda: get(view()),
        lambda: get(view(), TEXTS[:-1]),
        lambda: get(view(), TEXTS[::-1]),
        lambda: get(view(), ["good film" + TEXTS[1] + TEXTS[2], "", TEXTS[3]]),
        lambda: get(view(), [*TEXTS[:2], TEXTS[2] + TEXTS[3], ""]),  # the same characters, cut elsewhere
        lambda: get(view(), digest="cd" * 32),
        lambda: get(view(distinct=False)),
        lambda: get(view(max_length=2)),
        lambda: get(view(max_length=2, long="tail")),
        lambda: get(view("tokens")),
    ]
    for count, change in enumerate(changes, 1):
        change()
        assert reads.count == count
        assert len(entries(root)) == count
    for change in changes:
        change()
    assert reads.count == len(changes)


def test_pieces_come_back_as_pieces(root: Path, reads: Reads) -> None:
    first, second = get(view(max_length=2)), get(view(max_length=2))
    assert len(first.document) > len(TEXTS) == second.texts
    np.testing.assert_array_equal(second.document, first.document)
    assert reads.count == 1


def test_counts_come_back_as_counts(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sparse view need not be one of ones."""
    made, calls = view("tokens"), []
    counts = sparse.csr_matrix(np.array([[0, 2, 0.5], [0, 0, 0], [1, 0, 0], [0, 0, 3]], np.float32))
    monkeypatch.setattr(TokensView, "columns", 3)
    monkeypatch.setattr(TokensView, "read", lambda *_: calls.append(1) or Raw(counts, np.arange(4), 4))
    for _ in range(2):
        np.testing.assert_array_equal(dense(get(made)), counts.toarray())
    assert len(calls) == 1


def test_what_cannot_be_named_is_not_kept(root: Path, reads: Reads) -> None:
    get(view(), digest=None)
    get(view(), [])
    assert reads.count == 2
    assert not root.exists()


@pytest.mark.parametrize("off", ["off", "OFF", "0", "none", ""])
def test_it_can_be_switched_off(off: str, root: Path, reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REHEAD_CACHE", off)
    assert cache_directory() is None
    get(view())
    get(view())
    assert reads.count == 2
    assert not root.exists()


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("REHEAD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "rehead" / "features"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_directory() == tmp_path / "home" / ".cache" / "rehead" / "features"


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-8])


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a truncated file": lambda entry: [truncate(file) for file in entry.glob("*.npy")],
    "empty files": lambda entry: [file.write_bytes(b"") for file in entry.glob("*.npy")],
    "text": lambda entry: [file.write_bytes(b"not numpy") for file in entry.glob("*.npy")],
    "a pickle": lambda entry: [np.save(file, np.array([{}], object)) for file in entry.glob("*.npy")],
    "other shapes": lambda entry: [np.save(file, np.zeros(0, np.int64)) for file in entry.glob("*.npy")],
    "a missing file": lambda entry: (entry / "document.npy").unlink(),
    "another missing file": lambda entry: [file.unlink() for file in entry.glob("[mi]*.npy")],
    "nothing": shutil.rmtree,
    "a file in its place": lambda entry: (shutil.rmtree(entry), entry.write_text("x")),
}


@pytest.mark.parametrize("kind", ["bag", "tokens"])
@pytest.mark.parametrize("damage", list(DAMAGE))
def test_a_damaged_entry_is_read_anew(kind: str, damage: str, root: Path, reads: Reads) -> None:
    expected = dense(get(view(kind)))
    expected = np.array(expected)
    [entry] = entries(root)
    DAMAGE[damage](entry)
    np.testing.assert_array_equal(dense(get(view(kind))), expected)
    assert reads.count == 2
    if damage != "a file in its place":
        np.testing.assert_array_equal(dense(get(view(kind))), expected)
        assert reads.count == 2, "and kept again"


def test_the_least_recently_used_go_first(root: Path, reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    long = [["film " * n] * 40 for n in range(1, 6)]

    def size() -> int:
        return sum(file.stat().st_size for file in root.rglob("*") if file.is_file())

    names = []
    for age, texts in enumerate(long[:4]):
        get(view(), texts)
        [new] = set(entries(root)) - set(names)
        names.append(new)
        os.utime(new / "used", (1000 + age, 1000 + age))
    get(view(), long[0])  # used again, so that the second is now the oldest
    monkeypatch.setenv("REHEAD_CACHE_MB", str(size() / 2**20))
    get(view(), long[4])
    left = set(entries(root))
    assert names[1] not in left
    assert {names[0], names[2], names[3]} < left
    monkeypatch.setenv("REHEAD_CACHE_MB", "0.000001")
    get(view(), [*long[4], "good"])
    assert len(entries(root)) <= 1


def test_only_what_is_its_own_is_removed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "photos").mkdir(parents=True)
    (root / "photos" / "one.jpg").write_bytes(b"x" * 5000)
    (root / "notes.txt").write_text("mine")
    monkeypatch.setenv("REHEAD_CACHE_MB", "0.000001")
    get(view())
    assert (root / "photos" / "one.jpg").exists()
    assert (root / "notes.txt").exists()


def test_a_limit_that_is_no_number_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REHEAD_CACHE_MB", "lots")
    with pytest.raises(UserError, match=r"REHEAD_CACHE_MB.*lots"):
        get(view())


def test_without_a_place_to_write_it_only_takes_longer(
    tmp_path: Path, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file where the directory should be, which stops the superuser too; and a disk that refuses."""
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("REHEAD_CACHE", str(tmp_path / "file" / "features"))
    expected = view().read(EncodedTexts(TEXTS, tokenizer()))
    np.testing.assert_array_equal(dense(get(view())), dense(expected))
    monkeypatch.setenv("REHEAD_CACHE", str(tmp_path / "full"))
    with faulty_disk(tmp_path / "full", lambda what, name: what == "write", "full"):
        np.testing.assert_array_equal(dense(get(view())), dense(expected))
    assert entries(tmp_path / "full") == [], "nothing half-written stays"


@pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")
def test_only_the_owner_may_look(root: Path) -> None:
    before = os.umask(0)
    try:
        get(view())
    finally:
        os.umask(before)
    [entry] = entries(root)
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry.stat().st_mode) == 0o700


def _write_often(place: str, results: Any) -> None:
    os.environ["REHEAD_CACHE"] = place
    given, total = view(), 0.0
    for turn in range(15):
        shutil.rmtree(next(iter(Path(place).glob("[0-9a-f]*")), Path(place) / "none"), ignore_errors=True)
        total = float(dense(get(given, TEXTS if turn % 2 else TEXTS[::-1])).sum())
    results.put(total)


def test_several_processes_write_at_once(root: Path) -> None:
    """Each removes and writes the same entries again and again; all get what is right, and nothing is left over."""
    expected = float(dense(get(view())).sum())
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    workers = [context.Process(target=_write_often, args=(str(root), results)) for _ in range(3)]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(60)
    assert found == pytest.approx([expected] * 3, rel=1e-5)
    assert all(len(entry.name) == 64 for entry in entries(root))
    np.testing.assert_allclose(dense(get(view())).sum(), expected, rtol=1e-5)
