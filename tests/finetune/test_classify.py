"""The objective of fine-tuning: cheap ways to compute it give what the plain one gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rehead.finetune.classify import Classify, Documents
from rehead.finetune.copies import reheaded
from rehead.finetune.metrics import compute_metrics
from rehead.finetune.targets import targets
from rehead.model.config import Classifier
from rehead.model.reading import Reading, encode, score_ids
from rehead.runs.run import Run
from rehead.text.documents import LabelledData
from rehead.training.objective import Measures, ParameterSettings
from tests.finetune.conftest import MakeBase
from tests.finetune.sets import multilabel, reviews


def documents(run: Run, data: LabelledData) -> Documents:
    assert run.tokenizer is not None
    return Documents(encode(run.tokenizer, data.texts), targets(data, data.names, multilabel=data.multilabel))


def objective(run: Run, data: LabelledData | None = None, **changes: Any) -> Classify:
    data = reviews(40) if data is None else data
    torch.manual_seed(1)
    pooling = changes.pop("pooling", run.model.config.pooling)
    head = Classifier(
        classes=len(data.names), pooling=pooling, causal=run.model.config.causal, multilabel=data.multilabel
    )
    model = reheaded(run.model, head, 0.0)
    given = documents(run, data)
    changes = {"reading": Reading(512), "freeze": "none", **changes}
    return Classify(model, given, documents(run, multilabel(30, 1) if data.multilabel else reviews(30, 1)), **changes)


def step(made: Classify, batches: list[Any]) -> dict[str, Any]:
    """Losses of some batches, and the gradients of their sum."""
    made.train()
    made.zero_grad()
    loss = sum(made(batch.tensors).losses["classify"] for batch in batches)
    torch.as_tensor(loss).backward()
    grads = {name: each.grad for name, each in made.named_parameters() if each.grad is not None}
    return {"loss": loss, **{name: each.to_dense() for name, each in grads.items()}}


def same(one: dict[str, Any], other: dict[str, Any], names: set[str] | None = None) -> None:
    for name in names or one.keys() | other.keys():
        torch.testing.assert_close(
            one[name], other[name], rtol=1e-4, atol=1e-5, msg=lambda text, n=name: f"{n}: {text}"
        )


def every_document(made: Classify) -> list[Any]:
    """The batches of an epoch."""
    return [made.read(place) for place in range(int(np.ceil(made.steps_in_epoch())))]


def test_a_bag_is_what_padded_reading_gives(make_base: MakeBase) -> None:
    """Layers that are the identity change nothing, whether they are frozen and skipped, or read."""
    run = make_base("small", dropout=0.0)
    bag, padded = objective(run, freeze="layers"), objective(run, freeze="none", reading=Reading(512))
    assert (bag.mode, padded.mode) == ("bag", "padded")
    bag.per_step = 40
    tables = {"loss", "model.base.embedding.weight", "model.base.ngrams.weight", "model.head.linear.weight"}
    same(step(bag, [bag.read(0)]), step(padded, every_document(padded)), tables)


@pytest.mark.parametrize("name", ["bag", "small", "lab"])
def test_vectors_are_what_padded_reading_gives(name: str, make_base: MakeBase) -> None:
    run = make_base(name, learnt=True, dropout=0.0)
    fast, plain = objective(run, freeze="base"), objective(run, freeze="none")
    assert fast.mode == "vectors"
    plain.shift, plain.factor = fast.shift, fast.factor
    plain._head().load_state_dict(fast._head().state_dict())
    fast.per_step = 40
    head = {"loss", "model.head.linear.weight", "model.head.linear.bias"}
    same(step(fast, [fast.read(0)]), step(plain, every_document(plain)), head)


@pytest.mark.parametrize("freeze", ["base", "layers", "none"])
@pytest.mark.parametrize("data", [reviews(40, names=("bad", "good", "so")), multilabel(40)], ids=["one", "several"])
def test_parts_of_a_step_add_up(freeze: Any, data: LabelledData, make_base: MakeBase) -> None:
    """Also where there are more parts than documents."""
    weights = np.array([1.0, 2.0, 0.5])
    made = objective(make_base("small", dropout=0.0), data, freeze=freeze, class_weights=weights)
    whole = made.read(3)
    parts = [made.read(3, part, 12) for part in range(12)]
    assert any(not len(part.tensors["targets"]) for part in parts)
    assert sum(part.counts["classify"] for part in parts) == pytest.approx(whole.counts["classify"])
    assert sum(part.tokens for part in parts) == whole.tokens
    same(step(made, [whole]), step(made, parts))


@pytest.mark.parametrize("freeze", ["base", "layers", "none"])
def test_every_document_is_read_once_in_an_epoch(freeze: Any, make_base: MakeBase) -> None:
    made = objective(make_base("small"), freeze=freeze)
    steps = int(made.steps_in_epoch())
    assert steps == made.steps_in_epoch()
    assert 8 <= steps <= 10
    for epoch in range(2):
        batches = [made.read(steps * epoch + place) for place in range(steps)]
        assert sum(batch.tokens for batch in batches) == sum(map(len, made.train_documents.ids))
        assert sum(len(batch.tensors["targets"]) for batch in batches) == 40
    again = made.read(5)
    assert all(torch.equal(each, again.tensors[name]) for name, each in made.read(5).tensors.items())


@pytest.mark.parametrize("freeze", ["base", "layers", "none"])
@pytest.mark.parametrize("data", [reviews(40), multilabel(40)], ids=["one", "several"])
@pytest.mark.parametrize("parts", [1, 3])
def test_validation_is_what_reading_gives(freeze: Any, data: LabelledData, parts: int, make_base: MakeBase) -> None:
    """Windows and all: the loss, accuracy and macro-F1 of the scores that the finished classifier gives."""
    reading = Reading(10, "windows")
    run = make_base("small", learnt=freeze == "none")
    made = objective(run, data, freeze=freeze, reading=reading)
    made.eval()
    found = Measures()
    for part in range(parts):
        made.held = None
        for batch in made.held_out(part, parts):
            with torch.no_grad():
                sums = made(batch.tensors)
            for into, given in (
                (found.losses, sums.losses),
                (found.metrics, sums.metrics),
                (found.counts, batch.counts),
            ):
                for name, value in given.items():
                    into[name] = into.get(name, 0.0) + float(value)
    made.fold()
    scores = torch.from_numpy(score_ids(made.model.eval(), made.valid.ids, reading))
    shares = scores.sigmoid() if data.multilabel else scores.softmax(1)
    expected = compute_metrics(shares.numpy(), made.valid.targets, data.names)
    assert made.report(found) == pytest.approx(
        {"loss": expected.loss, "accuracy": expected.accuracy, "macro_f1": expected.macro_f1}, rel=1e-4
    )


def test_folding_the_standardising_changes_no_score(make_base: MakeBase) -> None:
    made = objective(make_base("bag"), freeze="none")
    assert made.factor.min() > 1
    made.eval()
    before = made(made.read(0).tensors).losses["classify"]
    made.fold()
    torch.testing.assert_close(made(made.read(0).tensors).losses["classify"], before)
    assert not made.shift.any()
    other = objective(make_base("bag"), freeze="none")
    raw = score_ids(other.model.eval(), other.valid.ids, Reading())
    other._take_up()
    other.fold()
    np.testing.assert_allclose(score_ids(other.model, other.valid.ids, Reading()), raw, rtol=1e-4, atol=1e-5)


def test_the_head_moves_first_and_fastest(make_base: MakeBase) -> None:
    made = objective(make_base("small", learnt=True), layer_decay=0.5)
    made.unfreeze = 0.1
    settings = made.parameter_settings()
    base = made.model.base
    assert base.ngrams is not None
    assert {settings[each] for each in base.layers[1].parameters()} == {ParameterSettings(0.5, 0.1)}
    assert {settings[each] for each in base.layers[0].parameters()} == {ParameterSettings(0.25, 0.2)}
    lowest = ParameterSettings(0.125, pytest.approx(0.3))  # type: ignore[arg-type]
    assert settings[base.embedding.weight] == settings[next(base.ngrams.parameters())] == lowest
    assert not any(each in settings for each in made._head().parameters())
    frozen = objective(make_base("small"), layer_decay=0.5, freeze="layers")
    assert frozen.parameter_settings()[frozen.model.base.embedding.weight] == ParameterSettings(0.5, 0.0)


def test_accuracy_decides_and_the_loss_breaks_ties(make_base: MakeBase) -> None:
    made = objective(make_base())
    assert made.selection_loss({"accuracy": 0.9, "loss": 0.9}) < made.selection_loss({"accuracy": 0.8999, "loss": 0.1})
    assert made.selection_loss({"accuracy": 0.9, "loss": 0.1}) < made.selection_loss({"accuracy": 0.9, "loss": 0.2})
    assert made.selection_loss({}) == float("inf")
    worse, better = {"accuracy": 0.9, "macro_f1": 0.5, "loss": 0.1}, {"accuracy": 0.8, "macro_f1": 0.6, "loss": 0.2}
    assert made.selection_loss(worse) < made.selection_loss(better)
    made.class_weights = torch.ones(2)
    assert made.selection_loss(better) < made.selection_loss(worse)
    tags = objective(make_base(), multilabel(30))
    assert tags.selection_loss({"accuracy": 0.1, "loss": 0.1}) < tags.selection_loss({"accuracy": 0.9, "loss": 0.2})
