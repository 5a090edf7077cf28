"""The language-model objectives against what they compute, spelt out with full logits."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from rehead.errors import ConfigError, UserError
from rehead.model.config import preset
from rehead.model.model import Model
from rehead.pretrain.causal import Causal
from rehead.pretrain.hybrid import Hybrid
from rehead.pretrain.masked import Masked
from rehead.pretrain.masking import Masking
from rehead.pretrain.mixed import Mixed
from rehead.pretrain.next_sentence import NextSentence
from rehead.text.order import step_indices
from rehead.training.objective import Batch, Measures, Objective, Sums
from tests.pretrain.conftest import Corpus

TIME, ROWS, SEED = 24, 7, 3
Make = Callable[[Corpus], Objective]


def model(corpus: Corpus, shape: str = "lab") -> Model:
    torch.manual_seed(0)
    config = preset(shape, ntokens=corpus.tokenizer.vocab_size, nhid=16, nlayers=2, nhead=2, dropout=0.0)
    return Model(config, config.language_model())


def causal(corpus: Corpus) -> Causal:
    return Causal(model(corpus), corpus.train, corpus.valid, time=TIME, batch=TIME * ROWS, seed=SEED)


def masked(corpus: Corpus) -> Masked:
    masking = Masking.of(corpus.tokenizer, 0.3)
    return Masked(model(corpus), corpus.train, corpus.valid, masking, time=TIME, batch=TIME * ROWS, seed=SEED)


def hybrid(corpus: Corpus) -> Hybrid:
    masking = Masking.of(corpus.tokenizer, 0.3)
    return Hybrid(model(corpus), corpus.train, corpus.valid, masking, time=TIME, batch=TIME * ROWS, seed=SEED)


def pairs(corpus: Corpus) -> NextSentence:
    masking = Masking.of(corpus.tokenizer, 0.3)
    return NextSentence(
        model(corpus), corpus.train, corpus.valid, masking, corpus.tokenizer, time=TIME, batch=TIME * ROWS, seed=SEED
    )


def mixed(corpus: Corpus) -> Mixed:
    shared = model(corpus)
    masking = Masking.of(corpus.tokenizer, 0.3)
    rows = {"time": TIME, "batch": TIME * ROWS, "seed": SEED}
    return Mixed(
        [
            Causal(shared, corpus.train, corpus.valid, **rows),
            Masked(shared, corpus.train, corpus.valid, masking, **rows),
        ]
    )


ALL = pytest.mark.parametrize("make", [causal, masked, hybrid, pairs, mixed])


def test_causal_is_the_cross_entropy_of_the_next_token(corpus: Corpus) -> None:
    objective = causal(corpus)
    batch = objective.read(5)
    ids = batch.tensors["ids"]
    assert ids.shape == (ROWS, TIME + 1)
    logits = objective.model(ids[:, :-1], causal=True)
    expected = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="sum")
    torch.testing.assert_close(objective(batch.tensors).losses["causal"], expected)
    assert batch.counts == {"causal": ROWS * TIME}
    assert batch.tokens == ROWS * TIME


def test_masked_is_the_cross_entropy_at_hidden_places(corpus: Corpus) -> None:
    objective = masked(corpus)
    batch = objective.read(5)
    original = torch.from_numpy(objective.rows.at(step_indices(5, ROWS)).ids[:, :-1])
    chosen = torch.zeros(ROWS * TIME, dtype=torch.bool)
    chosen[batch.tensors["places"]] = True
    logits = objective.model(batch.tensors["ids"], causal=False).flatten(0, 1)
    expected = F.cross_entropy(logits[chosen], original.flatten()[chosen], reduction="sum")
    torch.testing.assert_close(objective(batch.tensors).losses["masked"], expected)
    untouched = batch.tensors["ids"].flatten() == original.flatten()
    assert bool(untouched[~chosen].all())
    assert batch.counts["masked"] == chosen.sum()


def test_hybrid_predicts_hidden_tokens_one_position_early(corpus: Corpus) -> None:
    objective = hybrid(corpus)
    batch = objective.read(5)
    rows = torch.from_numpy(objective.rows.at(step_indices(5, ROWS)).ids)
    ahead, both = batch.tensors["causal"], batch.tensors["ids"]
    assert len(ahead) + len(both) == ROWS
    assert len(ahead)
    assert len(both)
    original = torch.stack([row for row in rows if not any(torch.equal(row, each) for each in ahead)])[:, :-1]
    logits = objective.model(both, causal=False)
    expected = torch.zeros(())
    for row, column in (original != both).nonzero():  # every changed token is a hidden one; unchanged ones are below
        assert column > 0
        expected = expected + F.cross_entropy(logits[row, column - 1], original[row, column], reduction="sum")
    kept = [
        place
        for place in batch.tensors["places"].tolist()
        if both.flatten()[place + 1] == original.flatten()[place + 1]
    ]
    for place in kept:
        expected = expected + F.cross_entropy(
            logits.flatten(0, 1)[place], original.flatten()[place + 1], reduction="sum"
        )
    sums = objective(batch.tensors)
    torch.testing.assert_close(sums.losses["masked"], expected)
    causal_logits = objective.model(ahead[:, :-1], causal=True)
    expected = F.cross_entropy(causal_logits.flatten(0, 1), ahead[:, 1:].flatten(), reduction="sum")
    torch.testing.assert_close(sums.losses["causal"], expected)


def test_pairs_are_halves_of_one_row_or_of_two(corpus: Corpus) -> None:
    objective = pairs(corpus)
    tokenizer = corpus.tokenizer
    seen = {True: 0, False: 0}
    for step in range(6):
        batch = objective.read(step)
        text = objective.rows.at(step_indices(step, objective.per_step)).ids[:, :-1]
        read = batch.tensors["ids"].clone()
        read.view(-1)[batch.tensors["places"]] = batch.tensors["targets"]  # as it was before hiding
        for row, original, follows in zip(read.numpy(), text, batch.tensors["follows"], strict=True):
            assert row[0] == tokenizer.bos
            assert row[-1] == tokenizer.eos
            assert len(row) == TIME
            cuts = [
                cut
                for cut in range(1, len(original))
                if row[cut + 1] == tokenizer.eos and np.array_equal(row[1 : cut + 1], original[:cut])
            ]
            assert cuts
            same = any(np.array_equal(row[cut + 2 : -1], original[cut:]) for cut in cuts)
            assert same == bool(follows)
            seen[same] += 1
    assert min(seen.values()) > 0.25 * sum(seen.values())


def test_of_a_single_row_the_second_half_always_follows(corpus: Corpus) -> None:
    """There is no other row to take it from."""
    masking, time = Masking.of(corpus.tokenizer, 0.3), int(corpus.valid.offsets[-1])
    for seed in range(8):
        objective = NextSentence(
            model(corpus), corpus.valid, corpus.valid, masking, corpus.tokenizer, time=time, batch=time, seed=seed
        )
        assert len(objective.rows) == 1
        assert objective.read(0).tensors["follows"].tolist() == [1.0]


def test_the_second_question_has_a_head_of_its_own(corpus: Corpus) -> None:
    objective = pairs(corpus)
    batch = objective.read(0)
    hidden = objective.model.base(batch.tensors["ids"], causal=False)[:, 0]
    answers = objective.answer(objective.norm(hidden))[:, 0]
    expected = F.binary_cross_entropy_with_logits(answers, batch.tensors["follows"], reduction="sum")
    torch.testing.assert_close(objective(batch.tensors).losses["next"], expected)
    assert not any(name.startswith(("answer", "norm")) for name in objective.model.state_dict())


@ALL
def test_parts_add_up_to_the_whole(corpus: Corpus, make: Make) -> None:
    objective = make(corpus)
    whole = objective.read(4)
    for parts in (2, 3, 10):  # 10: some parts have no rows
        pieces = [objective.read(4, part, parts) for part in range(parts)]
        assert sum(piece.tokens for piece in pieces) == whole.tokens
        for name, count in whole.counts.items():
            assert sum(piece.counts[name] for piece in pieces) == count
        expected, sums = objective(whole.tensors), [objective(piece.tensors) for piece in pieces]
        for name, loss in expected.losses.items():
            torch.testing.assert_close(sum(each.losses[name] for each in sums), loss)


@ALL
def test_an_empty_part_reaches_every_parameter(corpus: Corpus, make: Make) -> None:
    objective = make(corpus)
    empty = next(batch for part in range(40) if not (batch := objective.read(0, part, 40)).tokens)
    total = sum(objective(empty.tensors).losses.values())
    assert isinstance(total, torch.Tensor)
    assert float(total.detach()) == 0.0
    total.backward()
    assert all(each.grad is not None and not each.grad.any() for each in objective.parameters())


@ALL
def test_reading_is_pure(corpus: Corpus, make: Make) -> None:
    first, second = make(corpus), make(corpus)
    for step in (0, 17, 3):
        one, other = first.read(step, 1, 2), second.read(step, 1, 2)
        assert one.counts == other.counts
        for name, value in one.tensors.items():
            assert torch.equal(value, other.tensors[name])
    assert not all(
        torch.equal(value, first.read(1).tensors[name])
        for name, value in first.read(0).tensors.items()
        if value.shape == first.read(1).tensors[name].shape
    )


def validate(objective: Objective, parts: int = 1) -> Measures:
    measures = Measures()
    for part in range(parts):
        for batch in objective.held_out(part, parts):
            with torch.no_grad():
                add(measures, batch, objective(batch.tensors))
    return measures


def add(measures: Measures, batch: Batch, sums: Sums) -> None:
    for into, given in (
        (measures.losses, sums.losses),
        (measures.metrics, sums.metrics),
        (measures.counts, batch.counts),
    ):
        for name, value in given.items():
            into[name] = into.get(name, 0.0) + float(value)


@ALL
def test_validation_is_the_same_every_time_and_for_any_number_of_parts(corpus: Corpus, make: Make) -> None:
    objective = make(corpus)
    once, again, parted = validate(objective), validate(objective), validate(objective, 3)
    assert once == again
    assert once.counts == parted.counts
    for name, loss in once.losses.items():
        assert parted.losses[name] == pytest.approx(loss, rel=1e-5)
    counts = {len(list(objective.held_out(part, 3))) for part in range(3)}
    assert len(counts) == 1, "every part has as many batches as the others"


@ALL
def test_what_is_reported(corpus: Corpus, make: Make) -> None:
    said = make(corpus).report(validate(make(corpus)))
    vocab = corpus.tokenizer.vocab_size
    assert said["loss"] > 0
    for name, value in said.items():
        assert math.isfinite(value)
        if "accuracy" in name:
            assert 0 <= value <= 1
        if name.endswith("perplexity"):
            assert 1 < value < 5 * vocab  # an untrained model guesses about evenly


def test_where_nothing_was_hidden_nothing_is_reported(corpus: Corpus) -> None:
    said = masked(corpus).report(Measures({"masked": 0.0}, {"masked": 0.0}, {"masked_hits": 0.0}))
    assert all(map(math.isnan, said.values()))


def test_validation_hides_fifteen_per_cent_whatever_training_does(corpus: Corpus) -> None:
    objective = masked(corpus)
    tokens = sum(batch.tokens for batch in objective.held_out())
    hidden = sum(batch.counts["masked"] for batch in objective.held_out())
    assert 0.10 < hidden / tokens < 0.20
    trained = [objective.read(step) for step in range(20)]
    share = sum(each.counts["masked"] for each in trained) / sum(each.tokens for each in trained)
    assert 0.25 < share < 0.35


def test_held_out_rows_are_of_held_out_documents(corpus: Corpus) -> None:
    assert not set(corpus.train.documents.tolist()) & set(corpus.valid.documents.tolist())
    assert len(corpus.train) + len(corpus.valid) == len(corpus.train.store)
    text = np.concatenate([np.append(corpus.valid[i], corpus.valid.eos) for i in range(len(corpus.valid))])
    ring = np.concatenate([text, text]).tolist()
    held = {tuple(ring[i : i + TIME + 1]) for i in range(len(text))}
    for batch in causal(corpus).held_out():
        for row in batch.tensors["ids"].tolist():
            assert tuple(row) in held


def test_a_model_without_a_language_head_is_refused(corpus: Corpus) -> None:
    bare = Model(preset("lab", ntokens=320, nhid=16, nhead=2))
    with pytest.raises(ConfigError, match="needs a model with a language-model head"):
        Causal(bare, corpus.train, corpus.valid, time=TIME, batch=TIME, seed=0)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_shares_that_cannot_be(corpus: Corpus, share: float) -> None:
    with pytest.raises(UserError, match="mask-probability"):
        Masking.of(corpus.tokenizer, share)
    with pytest.raises(UserError, match="causal-rows"):
        Hybrid(
            model(corpus), corpus.train, corpus.valid, Masking.of(corpus.tokenizer, 0.15),
            time=TIME, batch=TIME, seed=0, causal_rows=share,
        )  # fmt: skip


def test_mixed_is_the_sum_of_its_parts(corpus: Corpus) -> None:
    objective = mixed(corpus)
    batch = objective.read(2)
    alone, other = causal(corpus), masked(corpus)
    expected = {
        "causal.causal": alone(alone.read(2).tensors).losses["causal"],
        "masked.masked": other(other.read(2).tensors).losses["masked"],
    }
    found = objective(batch.tensors).losses
    assert found.keys() == expected.keys() == set(objective.weights)
    for name, loss in expected.items():
        torch.testing.assert_close(found[name], loss)
    assert objective.name == "causal+masked"


@pytest.mark.parametrize("mixed", [False, True], ids=["alone", "mixed"])
def test_a_head_begins_evenly_on_rows_that_another_objective_has_made_long(corpus: Corpus, mixed: bool) -> None:
    shared = model(corpus, "small")
    assert shared.config.tied
    rows = {"time": TIME, "batch": TIME * ROWS, "seed": SEED}
    made: Objective = Causal(shared, corpus.train, corpus.valid, **rows)
    if mixed:
        made = Mixed([made])
    even = math.log(corpus.tokenizer.vocab_size)

    def loss() -> float:
        batch = made.read(0)
        (found,), (count,) = made(batch.tensors).losses.values(), batch.counts.values()
        return found.item() / count

    assert loss() == pytest.approx(even, abs=0.7)
    with torch.no_grad():
        shared.base.embedding.weight.mul_(20)
    assert loss() > even + 2
    made.adapt_trained_model()
    assert loss() == pytest.approx(even, abs=0.7)
    with torch.no_grad():
        shared.head.norm.weight.fill_(2.0)  # a head that has learnt something keeps it
    made.adapt_trained_model()
    assert bool((shared.head.norm.weight == 2.0).all())
