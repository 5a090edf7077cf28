"""The objective of fine-tuning: cheap ways to compute it give what the plain one gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rehead.finetune.build import with_head
from rehead.finetune.linear_start import solve_head
from rehead.finetune.metrics import compute_metrics
from rehead.finetune.objective import Classify, Documents
from rehead.finetune.targets import targets
from rehead.finetune.trainable import OwnNetwork
from rehead.model.config import Classifier
from rehead.runs.run import Run
from rehead.runs.scoring import classifier_head, score_texts
from rehead.text.documents import LabelledData
from rehead.training.objective import Measures, ParameterSettings
from rehead.views.bag import BagOptions, BagView
from rehead.views.encoded import EncodedTexts
from rehead.views.neural import neural_view
from rehead.views.view import DenseView
from tests.finetune.conftest import MakeBase
from tests.finetune.sets import multilabel, reviews


@pytest.fixture(autouse=True)
def one_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """How strongly the first head is regularised does not matter here (test_linear_start.py): choose nothing."""
    monkeypatch.setattr("rehead.finetune.linear_start.CS", (1e-2,))


def documents(run: Run, data: LabelledData) -> Documents:
    ids = EncodedTexts(data.texts, run.tokenizer).ids
    return Documents(ids, targets(data, data.names, multilabel=data.multilabel))


def make_view(run: Run, name: str, **options: Any) -> DenseView:
    if name == "bag":
        return BagView(run.model, BagOptions(**{"distinct": False, **options}), unit=False)
    return neural_view(run.model, "layers", unit=False, **{"pooling": run.model.config.pooling, **options})


def objective(run: Run, data: LabelledData | None = None, view: str | None = None, **changes: Any) -> Classify:
    data = reviews(40) if data is None else data
    torch.manual_seed(1)
    stated = make_view(run, view or str(run.model.config.reads), **changes.pop("options", {}))
    head = Classifier(classes=len(data.names), views=(stated.config(),), multilabel=data.multilabel)
    model = with_head(run.model, head, 0.0)
    valid = documents(run, multilabel(30, 1) if data.multilabel else reviews(30, 1))
    return Classify(model, documents(run, data), valid, **{"freeze": "none", **changes})


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


@pytest.mark.parametrize("distinct", [False, True])
def test_a_step_pools_as_the_view_reads(make_base: MakeBase, distinct: bool) -> None:
    """Of a bag with each row counted once or every time, and of layers."""
    run = make_base("small", learnt=True, dropout=0.0)
    for name, options in (("bag", {"distinct": distinct}), ("layers", {})):
        made = objective(run, view=name, options={**options, "max_length": 10, "long": "windows"})
        made.eval()
        pooled = made.network.pool(made.network.collate(made.parts)).detach()
        expected = made.network.view.read(EncodedTexts(ids=made.train_documents.ids)).matrix
        assert len(expected) > len(made.train_documents)
        np.testing.assert_allclose(pooled, expected, rtol=1e-4, atol=1e-5)


def test_a_bag_is_what_layers_that_are_the_identity_give(make_base: MakeBase) -> None:
    run = make_base("small", dropout=0.0)
    bag, padded = objective(run, view="bag"), objective(run, view="layers")
    assert (bag.layers, padded.layers) == (False, True)
    bag.per_step = 40
    one, two = step(bag, [bag.read(0)]), step(padded, every_document(padded))
    two["model.head.views.bag.weight"] = two["model.head.views.layers.weight"]
    tables = {"loss", "model.base.embedding.weight", "model.base.ngrams.weight", "model.head.bias"}
    same(one, two, {*tables, "model.head.views.bag.weight"})


@pytest.mark.parametrize("view", ["bag", "layers"])
@pytest.mark.parametrize("data", [reviews(40, names=("bad", "good", "so")), multilabel(40)], ids=["one", "several"])
def test_parts_of_a_step_add_up(view: str, data: LabelledData, make_base: MakeBase) -> None:
    """Also where there are more parts than documents."""
    weights = np.array([1.0, 2.0, 0.5])
    made = objective(make_base("small", dropout=0.0), data, view, class_weights=weights)
    whole = made.read(3)
    parts = [made.read(3, part, 12) for part in range(12)]
    assert any(not len(part.tensors["targets"]) for part in parts)
    assert sum(part.counts["classify"] for part in parts) == pytest.approx(whole.counts["classify"])
    assert sum(part.tokens for part in parts) == whole.tokens
    same(step(made, [whole]), step(made, parts))


@pytest.mark.parametrize("view", ["bag", "layers"])
def test_every_document_is_read_once_in_an_epoch(view: str, make_base: MakeBase) -> None:
    made = objective(make_base("small"), view=view)
    steps = int(made.steps_in_epoch())
    assert steps == made.steps_in_epoch()
    assert 8 <= steps <= 10
    for epoch in range(2):
        batches = [made.read(steps * epoch + place) for place in range(steps)]
        assert sum(batch.tokens for batch in batches) == sum(map(len, made.train_documents.ids))
        assert sum(len(batch.tensors["targets"]) for batch in batches) == 40
    again = made.read(5)
    assert all(torch.equal(each, again.tensors[name]) for name, each in made.read(5).tensors.items())


@pytest.mark.parametrize("view", ["bag", "layers"])
@pytest.mark.parametrize("data", [reviews(40), multilabel(40)], ids=["one", "several"])
@pytest.mark.parametrize("parts", [1, 3])
def test_validation_is_what_reading_gives(view: str, data: LabelledData, parts: int, make_base: MakeBase) -> None:
    """Windows and all: the loss, accuracy and macro-F1 of the scores that the finished classifier gives."""
    made = objective(make_base("small", learnt=True), data, view, options={"max_length": 10, "long": "windows"})
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
    scores = torch.from_numpy(score_texts(made.model.eval(), EncodedTexts(ids=made.valid.ids)))
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
    valid = EncodedTexts(ids=other.valid.ids)
    raw = score_texts(other.model.eval(), valid)
    other._take_up()
    other.fold()
    np.testing.assert_allclose(score_texts(other.model, valid), raw, rtol=1e-4, atol=1e-5)


def test_folding_is_exact_in_bfloat16(make_base: MakeBase) -> None:
    """Standardised vectors have large shifts: rounded products with them would move the decision."""
    folded = []
    for narrow in (False, True):
        made = objective(make_base("bag"), freeze="none")
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            made._take_up()
            made.fold()
            made.shift.fill_(3)
            made.fold()
        folded.append(classifier_head(made.model).bias.detach())
    assert torch.equal(*folded)


def test_the_head_of_averaged_normed_states_starts_as_the_best_linear_classifier(make_base: MakeBase) -> None:
    run = make_base("lab", learnt=True, dropout=0.0)
    made = objective(run, options={"pooling": "mean"})
    vectors = made.network.vectors(made.parts)
    np.testing.assert_allclose(made.shift, vectors.mean(0), rtol=1e-4, atol=1e-6)
    weight, bias = solve_head((vectors - made.shift.numpy()) * made.factor.numpy(), made.train_documents.targets, 2)
    head = classifier_head(made.model)
    np.testing.assert_allclose(head.of("layers").weight.detach(), weight, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(head.bias.detach(), bias, rtol=1e-3, atol=1e-5)
    last = objective(run, options={"pooling": "last"})
    assert not last.shift.any(), "a single state is not a mean"
    random = OwnNetwork(made.model, pretrained=False)
    assert not random.standardise, "random layers need a rate at which standardised states would jump"
    assert OwnNetwork(objective(make_base("small", learnt=True)).model, pretrained=False).standardise


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
    assert not any(each in settings for each in classifier_head(made.model).parameters())
    frozen = objective(make_base("small", learnt=True), layer_decay=0.5, freeze="layers")
    assert set(frozen.idle()) == {each for layer in frozen.model.base.layers for each in layer.parameters()}
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
    made.class_weights, made.metric = None, "macro-f1"
    assert made.selection_loss(better) < made.selection_loss(worse)
    tags = objective(make_base(), multilabel(30))
    assert tags.selection_loss({"accuracy": 0.1, "loss": 0.1}) < tags.selection_loss({"accuracy": 0.9, "loss": 0.2})
