"""A part of a store against a store that was made of these documents alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rehead.errors import UserError
from rehead.text.document_batches import DocumentBatches
from rehead.text.order import step_indices
from rehead.text.packed_rows import PackedRows
from rehead.text.readers import Texts
from rehead.text.store import TokenStore, build_store
from rehead.text.store_subset import StoreSubset, hold_out
from rehead.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return [f"document {number} " + "word " * (number % 17) for number in range(200)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> Tokenizer:
    file = tmp_path_factory.mktemp("text") / "all.txt"
    file.write_text("\n".join(lines), encoding="utf-8")
    return Tokenizer.train(Texts(file), vocab=300, quiet=True)


def store_of(folder: Path, name: str, lines: list[str], tokenizer: Tokenizer) -> TokenStore:
    file = folder / f"{name}.txt"
    file.write_text("\n".join(lines), encoding="utf-8")
    return build_store(Texts(file), tokenizer, folder / name, quiet=True)


def test_a_part_is_as_a_store_of_its_documents(tmp_path: Path, lines: list[str], tokenizer: Tokenizer) -> None:
    chosen = np.array([3, 4, 50, 51, 52, 120, 199])
    part = StoreSubset(store_of(tmp_path, "all", lines, tokenizer), chosen)
    alone = store_of(tmp_path, "some", [lines[number] for number in chosen], tokenizer)
    assert len(part) == len(alone)
    assert (part.offsets == alone.offsets).all()
    assert (part.lengths == alone.lengths).all()
    for number in range(len(alone)):
        assert (part[number] == alone[number]).all()
    for step in range(5):
        mine, theirs = (PackedRows(each, 7, seed=1).at(step_indices(step, 4)) for each in (part, alone))
        assert (mine.ids == theirs.ids).all()
        assert (mine.segments == theirs.segments).all()
    settings = {"budget": 64, "longest": 32, "long": "head", "pad": 1}
    mine_batches, their_batches = (DocumentBatches(each, **settings) for each in (part, alone))  # type: ignore[arg-type]
    assert (mine_batches.read(1).ids == their_batches.read(1).ids).all()


def test_holding_out(tmp_path: Path, lines: list[str], tokenizer: Tokenizer) -> None:
    store = store_of(tmp_path, "all", lines, tokenizer)
    train, valid = hold_out(store, 0.1, 10**9, seed=0)
    assert sorted([*train.documents, *valid.documents]) == list(range(len(lines)))
    share = valid.offsets[-1] / len(store.ids)
    assert 0.08 < share <= 0.1
    assert (hold_out(store, 0.1, 10**9, seed=0)[1].documents == valid.documents).all()
    assert (hold_out(store, 0.1, 10**9, seed=1)[1].documents != valid.documents[0]).any()
    assert np.diff(valid.documents).max() > 1, "drawn from everywhere, not one stretch"
    assert hold_out(store, 0.1, 40, seed=0)[1].offsets[-1] <= 40


@pytest.mark.parametrize(("count", "held"), [(2, 1), (3, 1)])
def test_both_parts_have_a_document(
    tmp_path: Path, lines: list[str], tokenizer: Tokenizer, count: int, held: int
) -> None:
    store = store_of(tmp_path, "few", lines[:count], tokenizer)
    train, valid = hold_out(store, 1e-9, 1, seed=0)
    assert (len(train), len(valid)) == (count - held, held)
    train, valid = hold_out(store, 1.0, 10**9, seed=0)
    assert len(train) == 1


def test_a_single_document_cannot_be_held_out(tmp_path: Path, lines: list[str], tokenizer: Tokenizer) -> None:
    with pytest.raises(UserError, match="single document"):
        hold_out(store_of(tmp_path, "one", lines[:1], tokenizer), 0.1, 100, seed=0)
