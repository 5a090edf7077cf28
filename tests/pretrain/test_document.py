from __future__ import annotations

import math
from collections import Counter
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rehead.model.config import ModelConfig, preset
from rehead.model.model import Model
from rehead.model.ngrams import ngram_slots
from rehead.pretrain import document as module
from rehead.pretrain import ngram_counts as grams_module
from rehead.pretrain.document import Document
from rehead.pretrain.ngram_counts import choose_ngrams, count_rows, keep_probabilities
from rehead.text.order import shuffled
from rehead.text.random_streams import Stream
from rehead.text.store_subset import Store
from rehead.training.row_optimizer import RowAdagrad, expect_sparse
from rehead.views.rows import RowFinder, index_rows

NTOKENS = 40


@pytest.fixture(autouse=True)
def _few_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """With forty words all are frequent: thin out less."""
    monkeypatch.setattr(grams_module, "SUBSAMPLE_THRESHOLD", 1e-2)


class Stored:
    """Documents in memory, with what the objective asks of a store."""

    def __init__(self, texts: list[list[int]]) -> None:
        self.texts = [np.array(each, np.uint16) for each in texts]
        self.lengths = np.array([len(each) for each in texts], np.int64)
        self.offsets = np.concatenate(([0], np.cumsum(self.lengths + 1)))

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, document: int) -> Any:
        return self.texts[document]


def stored(count: int, seed: int = 0) -> Store:
    """Documents of two kinds, each with words of its own beside common ones."""
    chance = np.random.RandomState(seed)
    texts = []
    for place in range(count):
        own = chance.randint(5, 20, 40) + 15 * (place % 2)
        text = np.where(chance.rand(40) < 0.5, own, chance.randint(0, 5, 40))
        texts.append(text[: chance.randint(1, 41)].tolist())
    return cast(Store, Stored(texts))


def config(**changes: Any) -> ModelConfig:
    return preset("bag", **{"ntokens": NTOKENS, "nhid": 8, "ngrams": 3, "nbuckets": 64, **changes})


def layered(**changes: Any) -> ModelConfig:
    return config(nlayers=1, nhead=2, positions="rotary", **changes)


def objective(shape: ModelConfig | None = None, *, documents: int = 6, seed: int = 3, count: int = 20) -> Document:
    torch.manual_seed(0)
    train = stored(count)
    made = Document(Model(shape or config()), train, stored(9, seed=1), time=8, batch=1, seed=seed, fresh=True)
    made.documents = documents
    return made


def stir(made: Document) -> None:
    """Give n-grams, which start at zero, vectors; row 0 is for those that have none."""
    assert made.model.base.ngrams is not None
    nn.init.normal_(made.model.base.ngrams.weight)
    made.model.base.ngrams.weight.data[0] = 0.0


def gradients(made: nn.Module) -> dict[str, Tensor]:
    return {
        name: each.grad.to_dense() if each.grad.is_sparse else each.grad
        for name, each in made.named_parameters()
        if each.grad is not None
    }


def test_a_sum_of_rows_is_what_the_base_pools() -> None:
    made = objective()
    base = made.model.base
    stir(made)
    text = np.array([3, 9, 9, 1, 30, 9, 9], np.int64)
    rows = made.finder.find([text])
    fields = index_rows(rows.row, rows.document, 1, NTOKENS)
    tensors = {name: torch.from_numpy(each) for name, each in fields.items()}
    hidden = base(torch.from_numpy(text)[None], causal=False)
    assert torch.allclose(made.pooled(tensors) / len(text), hidden.mean(1), atol=1e-5)


def test_n_grams_against_counting_by_hand() -> None:
    texts = [np.array(each, np.int64) for each in ([1, 2, 3], [4], [], [5, 6])]
    grams = RowFinder(Model(config()).base).find(texts)
    found = list(zip(grams.document.tolist(), grams.start.tolist(), grams.size.tolist(), strict=True))
    expected = [
        (document, start, size)
        for document, text in enumerate(texts)
        for size in (1, 2, 3)
        for start in range(len(text) - size + 1)
    ]
    assert found == expected
    counts = count_rows(stored(7), Model(config()).base, seed=0)
    by_hand = Counter(int(token) for place in range(7) for token in stored(7)[place])
    assert [by_hand[token] for token in range(NTOKENS)] == counts[:NTOKENS].tolist()


def test_rows_go_to_the_most_frequent_n_grams() -> None:
    base = Model(config(nbuckets=30)).base
    assert base.ngrams is not None
    store = stored(50)
    choose_ngrams(base, store, seed=0)
    often = Counter(
        int(ngram_slots(torch.tensor([text[start : start + n].tolist()]), n, 240))
        for text in (store[place] for place in range(50))
        for n in (2, 3)
        for start in range(len(text) - n + 1)
    )
    rows = base.ngrams.rows.long()
    chosen = {slot for slot in range(240) if rows[slot]}
    assert sorted(rows[rows > 0].tolist()) == list(range(1, 30))
    assert min(often[slot] for slot in chosen) >= max(often[slot] for slot in range(240) if slot not in chosen)
    in_order = [often[int((rows == row).nonzero())] for row in range(1, 30)]
    assert in_order == sorted(in_order, reverse=True)
    assert (count_rows(store, base, seed=0)[NTOKENS + 1 :] == in_order).all()


def test_an_n_gram_met_once_gets_no_row() -> None:
    base = Model(config()).base
    assert base.ngrams is not None
    choose_ngrams(base, cast(Store, Stored([[1, 2, 3], [1, 2, 4]])), seed=0)
    found = RowFinder(base).find([np.array([1, 2, 3, 4], np.int64)])
    longer = found.take(found.size > 1)
    assert list(zip(longer.start.tolist(), longer.size.tolist(), longer.row.tolist(), strict=True)) == [(0, 2, 41)]


def test_frequent_rows_are_thinned_out() -> None:
    counts = np.array([1e6, 100.0, 1.0])
    share = counts / counts.sum()
    expected = [math.sqrt(1e-2 / share[0]) + 1e-2 / share[0], 1.0, 1.0]
    assert np.allclose(keep_probabilities(counts, 3), expected)


def by_hand(made: Document, step: int) -> tuple[float, int]:
    """The loss of a step, one target at a time."""
    prepared = made._prepare(*_choices(made, step))
    output = made.output.weight.tolist()
    loss, count = 0.0, 0
    base = made.model.base
    share = max(1, len(prepared.texts) // module.GROUP_DOCUMENTS)  # groups of documents, each with its candidates
    for place in range(len(prepared.texts)):
        group = next(each for each in range(share) if place < len(prepared.texts) * (each + 1) // share)
        rows = prepared.inputs.row[prepared.inputs.document == place]
        vector = torch.zeros(8)
        for row in rows:
            table, at = (base.embedding, row) if row < NTOKENS else (base.ngrams, row - NTOKENS)
            vector = vector + table.weight[int(at)].detach()  # type: ignore[union-attr]
        size = float(vector.norm())
        vector = vector * (made.logit_scale / size) if size else vector
        scores = {
            int(row): sum(a * b for a, b in zip(vector.tolist(), output[row], strict=True)) - float(chance)
            for row, chance in zip(prepared.candidates[group], prepared.log_probabilities[group], strict=True)
        }
        total = math.log(sum(math.exp(each) for each in scores.values()))
        for row in prepared.targets.row[prepared.targets.document == place]:
            loss, count = loss + total - scores[int(row)], count + 1
    return loss, count


def _choices(made: Document, step: int) -> Any:
    at = np.arange(step * made.documents, (step + 1) * made.documents)
    epochs, positions = np.divmod(at, len(made.train_store))
    documents = shuffled(positions, len(made.train_store), made.seed, Stream.DOCUMENT_ORDER, epochs)
    return made.train_store, documents, epochs, made.seed, step


@pytest.mark.parametrize("size", [64, 3, 2, 1])
def test_the_loss_against_one_target_at_a_time(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUP_DOCUMENTS", size)
    made = objective()
    stir(made)
    nn.init.normal_(made.output.weight)
    batch = made.read(2)
    expected, count = by_hand(made, 2)
    assert batch.counts["document"] == count > 20
    assert made(batch.tensors).losses["document"].item() == pytest.approx(expected, rel=1e-4)


def test_an_n_gram_is_read_or_predicted_never_both() -> None:
    for shape in (config(), layered()):
        made = objective(shape)
        prepared = made._prepare(*_choices(made, 1))
        read, predicted = (
            set(zip(*(each.tolist() for each in (some.document, some.start, some.size)), strict=True))
            for some in (prepared.inputs, prepared.targets)
        )
        assert read
        assert predicted
        assert not read & predicted


def test_layers_predict_only_what_lies_outside_what_they_read() -> None:
    made = objective(layered())
    prepared = made._prepare(*_choices(made, 0))
    targets = prepared.targets
    begin, end = prepared.spans[targets.document].T
    assert ((targets.start + targets.size <= begin) | (targets.start >= end)).all()
    lengths = np.array([len(each) for each in prepared.texts])
    assert ((prepared.spans[:, 1] - prepared.spans[:, 0]) == np.minimum(-(-lengths // 2), 8)).all()
    batch = made.read(0)
    for ids, length, text, (first, last) in zip(
        batch.tensors["ids"], batch.tensors["lengths"], prepared.texts, prepared.spans, strict=True
    ):
        assert ids[:length].tolist() == text[first:last].tolist()


@pytest.mark.parametrize("shape", [config(), config(ngrams=1, nbuckets=0), layered()], ids=["bag", "words", "layers"])
@pytest.mark.parametrize("parts", [2, 4, 7])  # 7 parts of 6 documents: one gets none
@pytest.mark.parametrize("size", [64, 2])
def test_parts_are_the_whole(shape: ModelConfig, parts: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUP_DOCUMENTS", size)  # documents that share candidates
    whole, cut = objective(shape), objective(shape)
    for made in (whole, cut):
        expect_sparse(made, made.row_tables())
        nn.init.normal_(made.output.weight)
    cut.output.weight.data.copy_(whole.output.weight.data)
    batch = whole.read(5)
    loss = whole(batch.tensors).losses["document"]
    loss.backward()
    count, tokens, summed = 0.0, 0, 0.0
    for part in range(parts):
        each = cut.read(5, part, parts)
        if size == 64:
            assert torch.equal(each.tensors["candidates"], batch.tensors["candidates"])
        piece = cut(each.tensors).losses["document"]
        piece.backward()
        count, tokens, summed = count + each.counts["document"], tokens + each.tokens, summed + piece.item()
    assert (count, tokens) == (batch.counts["document"], batch.tokens)
    assert summed == pytest.approx(loss.item(), rel=1e-5)
    expected, found = gradients(whole), gradients(cut)
    assert expected.keys() == found.keys()
    for name, each in expected.items():
        assert (each - found[name]).abs().max() <= 1e-4 * each.abs().max() + 1e-6, name


def test_small_steps_are_read_several_at_a_time_and_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [(step, part, parts) for step in (0, 1, 9, 2, 3) for part, parts in ((0, 1), (1, 2))]
    together, alone = objective(), objective()
    expected = [together.read(*each) for each in asked]
    monkeypatch.setattr(module, "BLOCK_TOKENS", 1)
    for each, one in zip(asked, expected, strict=True):
        other = alone.read(*each)
        assert (one.counts, one.tokens) == (other.counts, other.tokens)
        for name, tensor in one.tensors.items():
            assert torch.equal(tensor, other.tensors[name]), name
    assert together.block is not None
    assert alone.block is not None
    assert len(together.block[1].texts) > len(alone.block[1].texts) == alone.documents


@pytest.mark.parametrize(
    ("length", "batch", "most", "documents", "sampled"),
    [
        (10, 20_480, 192, 192, 40),  # short texts: three groups of 64 documents
        (10, 20_480, None, 2048, 40),  # as many tokens as the user has asked for
        (80, 20_480, 192, 192, 320),
        (256, 20_480, 192, 80, 1000),  # film reviews: as many as the batch has room for
        (1000, 20_480, 192, 64, 1000),  # long texts: at least so many
    ],
)
def test_documents_per_step(length: int, batch: int, most: int | None, documents: int, sampled: int) -> None:
    texts = cast(Store, Stored([[1] * length] * 5))
    made = Document(Model(config()), texts, texts, time=8, batch=batch, seed=0, max_documents=most)
    assert (made.documents, made.sampled) == (documents, sampled)
    assert made.logit_scale == (3 if length < 80 else 5)


def test_candidates_are_the_targets_of_a_group_and_rows_drawn_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUP_DOCUMENTS", 3)
    made = objective(documents=8)
    made.sampled = 5
    prepared = made._prepare(*_choices(made, 4))
    assert len(prepared.candidates) == 2
    for group, candidates in enumerate(prepared.candidates):
        inside = prepared.targets.document // 4 == group
        targets = set(prepared.targets.row[inside].tolist())
        assert targets <= set(candidates.tolist())
        assert len(set(candidates.tolist()) - targets) <= 5
        assert (np.diff(candidates) > 0).all()


def test_a_step_is_a_function_of_its_number() -> None:
    one, other = objective(), objective()
    other.read(8)
    for name, each in one.read(7).tensors.items():
        assert torch.equal(each, other.read(7).tensors[name]), name
    assert not torch.equal(one.read(7).tensors["targets"], objective(seed=4).read(7).tensors["targets"])


def test_an_epoch_shows_every_document_once_and_the_next_asks_something_else() -> None:
    made = objective(documents=5)
    assert made.steps_in_epoch() == 4
    seen = [int(each) for step in range(4) for each in _choices(made, step)[1]]
    assert sorted(seen) == list(range(20))
    only = objective(documents=1, count=1)
    assert not torch.equal(only.read(0).tensors["targets"], only.read(1).tensors["targets"])


def test_negatives_go_by_thinned_frequency_to_the_power_of_three_quarters() -> None:
    made = objective(config(ngrams=1, nbuckets=0), count=60)
    counts = Counter(token for place in range(60) for token in made.train_store[place].tolist())
    shares = {token: count / counts.total() for token, count in counts.items()}
    thinned = {token: share * min(1.0, math.sqrt(1e-2 / share) + 1e-2 / share) for token, share in shares.items()}
    total = sum(share**0.75 for share in thinned.values())
    assert made.sampling_distribution.tolist() == pytest.approx(
        [thinned.get(each, 0.0) ** 0.75 / total for each in range(NTOKENS)]
    )


def test_chances_are_how_often_a_row_is_a_candidate() -> None:
    made = objective(count=60)
    steps, rows = 300, len(made.keep)
    often, expected = np.zeros(rows), np.zeros(rows)
    for step in range(steps):
        prepared = made._prepare(*_choices(made, step))
        (candidates,), (log_probabilities,) = prepared.candidates, prepared.log_probabilities
        often[candidates] += 1
        targets = len(prepared.targets.row)
        chances = -np.expm1(-made.target_distribution * targets - made.sampling_distribution * made.sampled)
        expected += chances
        assert np.allclose(np.exp(log_probabilities), chances[candidates])
    assert abs(often.sum() - expected.sum()) < 0.05 * expected.sum()


def trained(shape: ModelConfig, steps: int) -> Document:
    made = objective(shape, documents=20, count=300)
    expect_sparse(made, made.row_tables())
    tables = made.row_tables()
    rows = RowAdagrad(tables, lr=0.1, rates=made.row_rates())
    others = [each for each in made.parameters() if all(each is not table for table in tables)]
    adam = torch.optim.AdamW(others, lr=3e-3) if others else None
    for step in range(steps):
        batch = made.read(step)
        (made(batch.tensors).losses["document"] / batch.counts["document"]).backward()
        for optimizer in (rows, adam):
            if optimizer is not None:
                optimizer.step()
                optimizer.zero_grad()
    return made


def held_out(made: Document) -> float:
    with torch.no_grad():
        batches = list(made.held_out())
        losses = sum(float(made(batch.tensors).losses["document"]) for batch in batches)
    return losses / sum(batch.counts["document"] for batch in batches)


@pytest.mark.parametrize("shape", [config(), layered()], ids=["bag", "layers"])
def test_training_helps_with_documents_never_seen(shape: ModelConfig) -> None:
    fresh = held_out(trained(shape, 0))
    assert held_out(trained(shape, 60)) < fresh - 0.1


def test_two_runs_are_equal_to_the_bit() -> None:
    for one, other in zip(trained(config(), 10).parameters(), trained(config(), 10).parameters(), strict=True):
        assert torch.equal(one, other)


def test_held_out_documents_come_once_and_always_alike() -> None:
    made = objective(documents=4)
    first, second = list(made.held_out()), list(made.held_out())
    assert [len(batch.tensors["counts"]) for batch in first] == [4, 4, 1]
    for one, other in zip(first, second, strict=True):
        assert all(torch.equal(one.tensors[name], other.tensors[name]) for name in one.tensors)
    parts = [list(made.held_out(part, 2)) for part in range(2)]
    assert len(parts[0]) == len(parts[1]) == len(first)
    assert sum(batch.counts["document"] for part in parts for batch in part) == sum(
        batch.counts["document"] for batch in first
    )


def test_fresh_layers_change_nothing() -> None:
    """What layers read is, at first, the sum of what a bag would read in the same stretch."""
    made = objective(layered())
    bare = objective(config(positions="none"))
    bare.model.base.load_state_dict(made.model.base.state_dict(), strict=False)
    batch = made.read(0)
    ids, lengths = batch.tensors["ids"], batch.tensors["lengths"]
    keep = torch.arange(ids.shape[1]) < lengths[:, None]
    expected = (bare.model.base(ids, keep, causal=False) * keep[..., None]).sum(1)
    assert torch.allclose(made.pooled(batch.tensors), expected, atol=1e-5)


def test_of_a_long_document_a_stretch_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TOKENS", 10)
    made = objective(documents=20)
    prepared = [made._prepare(*_choices(made, step)) for step in range(2)]
    assert max(len(text) for step in prepared for text in step.texts) == 10
    begins = [
        {int(document): text.tolist() for document, text in zip(_choices(made, step)[1], each.texts, strict=True)}
        for step, each in enumerate(prepared)
    ]
    assert begins[0] != begins[1]  # another stretch in the next epoch
    whole = made.train_store
    for document, text in begins[0].items():
        text_of = whole[document].tolist()
        assert any(text_of[at : at + len(text)] == text for at in range(len(text_of)))


def test_frequent_tokens_start_small_and_move_slowly() -> None:
    made = objective()
    torch.manual_seed(0)
    plain = Model(config()).base.embedding.weight
    kept = torch.from_numpy(made.keep[:NTOKENS]).float()
    assert kept.min() < 0.5
    assert torch.allclose(made.model.base.embedding.weight, plain * kept[:, None])
    rates = made.row_rates()
    assert torch.equal(rates[made.model.base.embedding.weight], kept)
    assert made.output.weight not in rates


def test_the_tables_of_a_bag_move_by_rows_and_those_under_layers_too() -> None:
    bag, layers = objective(), objective(layered())
    names = {id(each): name for made in (bag, layers) for name, each in made.named_parameters()}
    tables = {"output.weight", "model.base.ngrams.weight"}
    assert {names[id(each)] for each in bag.row_tables()} == tables | {"model.base.embedding.weight"}
    assert {names[id(each)] for each in layers.row_tables()} == tables


def test_reading_past_the_layers_is_reading_a_bag() -> None:
    layers = Document(
        Model(layered()), stored(20), stored(9, seed=1), time=8, batch=120, seed=3, fresh=True, layers=False
    )
    bag = Document(Model(config()), stored(20), stored(9, seed=1), time=8, batch=120, seed=3, fresh=True)
    bag.model.base.embedding.load_state_dict(layers.model.base.embedding.state_dict())
    one, other = layers.read(1), bag.read(1)
    assert one.tensors.keys() == other.tensors.keys()
    assert layers(one.tensors).losses["document"] == bag(other.tensors).losses["document"]
    resting = {id(each) for each in layers.idle()}
    assert resting == {id(each) for each in layers.model.base.layers.parameters()}
    assert not bag.idle()


def test_what_comes_after_goes_on_with_the_output_table() -> None:
    first, second = trained(layered(), 0), trained(layered(), 0)
    torch.nn.init.normal_(first.output.weight)
    assert not torch.equal(first.output.weight, second.output.weight)
    second.share_output(first)
    assert second.output is first.output
    assert second.row_tables()[0] is first.output.weight
    assert "output.weight" in second.state_dict()  # so that a checkpoint of either holds it


def test_documents_of_a_word_or_two_do_not_blow_up() -> None:
    """Often nothing is read, or an n-gram alone, whose vector is zero at first."""
    texts = cast(Store, Stored([[1, 2], [3], [1, 2], [], [4, 1]] * 20))
    made = Document(Model(config()), texts, texts, time=8, batch=1, seed=0, fresh=True)
    assert made.documents == module.MIN_DOCUMENTS
    expect_sparse(made, made.row_tables())
    nn.init.normal_(made.output.weight)
    batch = made.read(0)
    (made(batch.tensors).losses["document"] / batch.counts["document"]).backward()
    for name, gradient in gradients(made).items():
        assert gradient.isfinite().all()
        assert gradient.abs().max() < 100, name
