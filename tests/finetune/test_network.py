"""Training by gradient as a whole: it learns, keeps the best epoch, states what it did, and resumes bit-exactly."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

import rehead.disk
from rehead.errors import UserError
from rehead.finetune.fitted import Fitted
from rehead.finetune.metrics import DecisionRule, compute_metrics
from rehead.finetune.network import train_network
from rehead.finetune.options import FitOptions, check_base
from rehead.finetune.targets import subset, targets
from rehead.runs.run import Run, load, save
from rehead.runs.scoring import class_probabilities, classifier_head
from rehead.text.documents import LabelledData
from rehead.training import loop
from rehead.training.metrics_log import read
from rehead.training.optimizers import Optimizers
from tests.finetune.conftest import MakeBase
from tests.finetune.sets import multilabel, reviews
from tests.training.running import TIMES, Killed


@pytest.fixture(autouse=True)
def few_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose the regularisation of the first head among few values: test_linear_start.py is about that."""
    monkeypatch.setattr("rehead.finetune.linear_start.CS", (1e-3, 1e-1))


def options(**changes: Any) -> FitOptions:
    return FitOptions(**{"epochs": 4, "lr_scale": 3.0, "device": "cpu", **changes})


def weights(run: Run) -> dict[str, torch.Tensor]:
    return {name: each.clone() for name, each in run.model.state_dict().items()}


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("bag", {}),
        ("small", {}),
        ("small", {"freeze": "none", "lr_scale": 20.0}),
        ("small", {"freeze": "embeddings", "lr_scale": 20.0, "length": 16, "long": "windows"}),
        ("lab", {"lr_scale": 20.0, "dropout": 0.0}),
    ],
    ids=lambda given: "-".join(map(str, given.values())) or "plain" if isinstance(given, dict) else given,
)
def test_it_learns_from_any_base(name: str, given: dict[str, Any], make_base: MakeBase) -> None:
    base = make_base(name)
    before = weights(base)
    fitted = train_network(reviews(80), reviews(60, 1), base=base, options=options(**given))
    assert fitted.curve[0].step == 0
    assert fitted.curve[0].train_loss is None
    assert fitted.curve[-1].epoch == pytest.approx(given.get("epochs", 4))
    assert max(point.accuracy for point in fitted.curve) >= 0.85
    after = weights(base)
    assert all(torch.equal(after[key], before[key]) for key in before), "the base that was given has changed"
    check_kept(fitted, reviews(60, 1))
    assert fitted.run.model.config.nlayers == (0 if fitted.run.model.config.reads == "bag" else 2)
    frozen = given.get("freeze", "none")
    for key, tensor in weights(fitted.run).items():
        if key in dict(base.model.named_parameters()):
            moves = {"none": True, "layers": "layers" not in key, "embeddings": "layers" in key}[frozen]
            assert torch.equal(tensor, before[key]) == (not moves), key


def check_kept(fitted: Fitted, valid: LabelledData) -> None:
    """The run that came out is that of the best epoch, as anybody would use it."""
    run = fitted.run
    assert run.labels is not None
    shares = class_probabilities(run, valid.texts)
    truth = targets(valid, run.labels, multilabel=valid.multilabel)
    found = compute_metrics(shares, truth, run.labels, DecisionRule.of(run.details))
    assert fitted.valid is not None
    assert found.accuracy == pytest.approx(fitted.valid.accuracy)
    assert found.loss == pytest.approx(fitted.valid.loss, rel=1e-4)
    if not valid.multilabel:
        able = run.model.config.pooling == "mean"  # the head starts at the best linear one
        assert found.accuracy == pytest.approx(max(point.accuracy for point in fitted.curve[0 if able else 1 :]))
    assert found.calibration_error == pytest.approx(run.details["calibration"]["error_after"], abs=1e-4)


def test_from_scratch_is_the_same_shape_with_other_weights(make_base: MakeBase) -> None:
    base = make_base("bag")
    fitted = train_network(reviews(80), reviews(60, 1), like=base, options=options(epochs=8))
    assert fitted.run.model.config == base.model.config
    assert fitted.curve[-1].accuracy >= 0.85
    theirs, own = weights(base), weights(fitted.run)
    assert not torch.equal(own["base.embedding.weight"], theirs["base.embedding.weight"])
    assert fitted.run.details["base"] is None
    assert fitted.run.details["freeze"] == "none"


def test_several_labels(make_base: MakeBase) -> None:
    valid = multilabel(60, 1)
    fitted = train_network(multilabel(150), valid, base=make_base(), options=options(epochs=8))
    assert fitted.valid is not None
    assert fitted.valid.macro_f1 > 0.8
    assert len(fitted.run.details["thresholds"]) == 3
    check_kept(fitted, valid)


def rates_of(
    run: Run, monkeypatch: pytest.MonkeyPatch, *, scratch: bool = False, **given: Any
) -> dict[str, set[float]]:
    """The learning rates that the optimizers are made with, before the schedule."""
    made: dict[str, set[float]] = {}
    plain = Optimizers.__init__

    def init(self: Optimizers, *arguments: Any, **settings: Any) -> None:
        plain(self, *arguments, **settings)
        made.update({type(each).__name__: {group["lr"] for group in each.param_groups} for each in self.each})

    with monkeypatch.context() as patched:
        patched.setattr(Optimizers, "__init__", init)
        asked = FitOptions(epochs=0.1, device="cpu", **given)
        train_network(reviews(20), reviews(10, 1), base=None if scratch else run, like=run, options=asked)
    return made


def test_lr_is_the_learning_rate(make_base: MakeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    layers, bag = make_base("lab"), make_base("bag")
    default = rates_of(layers, monkeypatch)
    assert default == {"AdamW": {3e-4 * (256 / 16) ** 0.5}}
    assert rates_of(layers, monkeypatch, lr=2e-5) == {"AdamW": {2e-5}}
    (doubled,) = rates_of(layers, monkeypatch, lr_scale=2)["AdamW"]
    assert doubled == pytest.approx(2 * max(default["AdamW"]))
    decayed = rates_of(layers, monkeypatch, lr=2e-5, layer_decay=0.5)["AdamW"]
    assert sorted(decayed) == pytest.approx([2e-5 / 8, 2e-5 / 4, 2e-5 / 2, 2e-5]), "embeddings, two layers, head"
    assert rates_of(bag, monkeypatch) == {"AdamW": {1e-3}, "RowAdagrad": {0.01}}
    given = rates_of(bag, monkeypatch, lr=1e-4)
    assert given["AdamW"] == {1e-4}
    assert max(given["RowAdagrad"]) == pytest.approx(1e-3), "ten times that of AdamW, as by default"


def test_pretrained_normed_layers_move_slowly_where_their_mean_is_standardised(
    make_base: MakeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    width = (256 / 16) ** 0.5
    layers = make_base("lab")
    assert rates_of(layers, monkeypatch, pooling="mean") == {"AdamW": {1e-5 * width}}
    assert rates_of(layers, monkeypatch, pooling="last") == {"AdamW": {3e-4 * width}}
    assert rates_of(layers, monkeypatch, scratch=True, pooling="mean") == {"AdamW": {3e-4 * width}}
    pre = rates_of(make_base("small", learnt=True), monkeypatch, freeze="none", pooling="mean")
    assert pre["AdamW"] == {3e-4 * width}
    assert rates_of(layers, monkeypatch, pooling="mean", lr=2e-5) == {"AdamW": {2e-5}}


def test_nothing_is_dropped_before_norms_whose_mean_is_standardised(make_base: MakeBase) -> None:
    run = make_base("lab", dropout=0.2)

    def dropout_of(base: Run | None, pooling: Literal["last", "mean"], dropout: float | None = None) -> float:
        asked = FitOptions(epochs=0.1, device="cpu", pooling=pooling, dropout=dropout)
        fitted = train_network(reviews(20), reviews(10, 1), base=base, like=run, options=asked)
        return fitted.run.model.config.dropout

    assert dropout_of(run, "mean") == 0.0
    assert dropout_of(run, "mean", 0.3) == 0.3
    assert dropout_of(run, "last") == 0.2
    assert dropout_of(None, "mean") == 0.2


def test_learning_rates_out_of_range_are_refused(make_base: MakeBase) -> None:
    for given, said in (
        ({"lr": 1.0}, "--lr 1: .* at most 0.1.*--lr-scale"),
        ({"lr": 0.5}, "--lr 0.5.*--lr-scale"),
        ({"lr": -1e-3}, "--lr -0.001"),
        ({"lr_scale": float("nan")}, "--lr-scale nan"),
        ({"lr": 1e-3, "lr_scale": 0.5}, "--lr 0.001 and --lr-scale 0.5"),
    ):
        with pytest.raises(UserError, match=said):
            train_network(reviews(20), None, base=make_base(), options=FitOptions(**given))


def test_balanced_classes_find_the_rare_one(make_base: MakeBase) -> None:
    data = reviews(200)
    rare = subset(data, [place for place in range(200) if place % 2 == 0 or place < 20])
    found = {}
    for name in (None, "balanced"):
        given = options(epochs=1, class_weight=name, lr_scale=1.0)
        fitted = train_network(rare, reviews(60, 1), base=make_base(), options=given)
        assert fitted.valid is not None
        found[name] = fitted.valid.classes[1].recall
    assert found["balanced"] > found[None]


def test_the_same_seed_gives_the_same_bytes(make_base: MakeBase) -> None:
    runs = [train_network(reviews(40), None, base=make_base(), options=options(seed=seed)).run for seed in (0, 0, 1)]
    first, again, other = map(weights, runs)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["head.views.bag.weight"], other["head.views.bag.weight"])


def test_without_a_validation_part_it_draws_one_and_says_so(make_base: MakeBase) -> None:
    fitted = train_network(reviews(50), None, base=make_base(), options=options())
    assert fitted.notes[0].startswith("no validation part was given: 10 of the 50 examples are set aside")
    known = fitted.run.details["examples"]
    assert (known["train"], known["valid"]) == (40, 10)
    assert known["train_fingerprint"] == reviews(50).fingerprint()  # of all that were given


def test_patience_ends_it_early_and_keeps_the_best(make_base: MakeBase) -> None:
    """Examples that were labelled by chance: what is learnt of them gets worse."""
    noise = reviews(80, 7)
    noise.labels = reviews(80).labels[1:] + reviews(80).labels[:1]
    noise.texts = [text.replace("great", "awful").replace("dull", "funny") for text in noise.texts]
    fitted = train_network(noise, reviews(60, 1), base=make_base(), options=options(epochs=40, patience=2))
    best = max(range(len(fitted.curve)), key=lambda place: (fitted.curve[place].accuracy, -fitted.curve[place].loss))
    assert len(fitted.curve) == best + 3
    assert fitted.curve[-1].epoch < 40
    check_kept(fitted, reviews(60, 1))


def test_patience_counts_epochs_however_often_validation_looks(
    make_base: MakeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    phases: list[Any] = []

    def train_phases(given: list[Any], settings: FitOptions, *_: Any, **__: Any) -> Any:
        phases.append((given[0].patience, settings.validations))
        raise Killed

    monkeypatch.setattr("rehead.finetune.network.train_phases", train_phases)
    for changes in ({}, {"validations": 20}, {"validations": 2}, {"patience": None}):
        with pytest.raises(Killed):
            train_network(reviews(40), reviews(20, 1), base=make_base(), options=options(**{"patience": 2, **changes}))
    assert phases == [(2, 4), (10, 20), (1, 2), (None, 4)]


def test_a_head_can_be_kept(make_base: MakeBase) -> None:
    first = train_network(reviews(80), reviews(60, 1), base=make_base(), options=options()).run
    again = train_network(reviews(80), reviews(60, 1), base=first, keep_head=True, options=options())
    assert first.labels is not None
    expected = compute_metrics(
        class_probabilities(first, reviews(60, 1).texts),
        targets(reviews(60, 1), first.labels, multilabel=False),
        first.labels,
    )
    assert again.curve[0].loss == pytest.approx(expected.loss, rel=1e-4, abs=1e-4)  # a loss near 0: rounding shows
    with pytest.raises(UserError, match="head can be kept only"):
        train_network(reviews(80, names=("no", "yes")), None, base=first, keep_head=True, options=options())


def test_gradual_unfreezing_begins_with_the_head(make_base: MakeBase) -> None:
    """And goes on with one more layer after every epoch, from the top; the embeddings come last."""
    base, data = make_base("small", learnt=True), reviews(16)
    before = weights(base)
    names = ("layers.1.", "layers.0.", "embedding.")
    for epochs, moved in ((1.5, 1), (2.5, 2), (3.5, 3)):
        given = options(freeze="none", unfreeze=1.0, epochs=epochs)
        after = weights(train_network(data, None, base=base, options=given, whole=True).run)
        for place, name in enumerate(names):
            keys = [key for key in before if f"base.{name}" in key and key.endswith("weight")]
            assert keys
            for key in keys:
                assert torch.equal(after[key], before[key]) == (place >= moved), (epochs, key)
    with pytest.raises(UserError, match="--unfreeze 2: of 2 epochs all would train the head alone"):
        train_network(data, None, base=base, options=options(unfreeze=2.0, epochs=2))


@pytest.mark.parametrize("given", [{}, {"freeze": "none", "accumulate": 2}], ids=str)
def test_it_resumes_to_the_bit(
    given: dict[str, Any], make_base: MakeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken off at any batch, of a step or of validation, and resumed."""
    base = make_base("small")
    given = {"epochs": 2, "checkpoint_steps": 3, "patience": 2, **given}

    def run(out: Path, *, resume: bool = False) -> Fitted:
        return train_network(
            reviews(16), reviews(10, 1), base=base, options=options(**given), directory=out, resume=resume
        )

    monkeypatch.setattr(rehead.disk, "fsync", lambda path: None)
    expected = run(tmp_path / "straight")
    plain = loop._Training._here
    for at in itertools.count(2, 8 * given.get("accumulate", 1)):
        out = tmp_path / str(at)
        seen = 0

        def here(training: Any, batch: Any, at: int = at) -> Any:
            nonlocal seen
            seen += 1
            if seen == at:
                raise Killed
            return plain(training, batch)

        with monkeypatch.context() as patched:
            patched.setattr(loop._Training, "_here", here)
            try:
                run(out)
            except Killed:
                pass
            else:
                break
        found = run(out, resume=True)
        assert all(torch.equal(weights(found.run)[key], each) for key, each in weights(expected.run).items()), at
        assert _lines(out) == _lines(tmp_path / "straight")
        assert [(each.step, each.loss) for each in found.curve] == [(each.step, each.loss) for each in expected.curve]
    assert at > 16 * given.get("accumulate", 1)


def _lines(out: Path) -> list[dict[str, Any]]:
    return [{key: line[key] for key in line if key not in TIMES} for line in read(out / "metrics.jsonl")]


def test_a_directory_changes_nothing(make_base: MakeBase, tmp_path: Path) -> None:
    """Nor does it hold what did not move."""
    base, given = make_base("small", learnt=True), options(freeze="layers", epochs=2)
    light = train_network(reviews(40), reviews(20, 1), base=base, options=given)
    heavy = train_network(reviews(40), reviews(20, 1), base=base, options=given, directory=tmp_path)
    assert all(torch.equal(weights(heavy.run)[key], each) for key, each in weights(light.run).items())
    assert [each.accuracy for each in light.curve] == [each.accuracy for each in heavy.curve]
    from safetensors import safe_open

    (file,) = (tmp_path / "checkpoints").glob("step-*/model.safetensors")
    with safe_open(file, framework="pt") as tensors:
        names = set(tensors.keys())
    assert "model.base.embedding.weight" in names
    assert not any("base.layers" in name for name in names)


def test_a_fitted_run_can_be_saved_and_loaded(make_base: MakeBase, tmp_path: Path) -> None:
    fitted = train_network(reviews(40), None, base=make_base(), options=options())
    save(fitted.run, tmp_path / "run")
    again = load(tmp_path / "run")
    assert again.labels == ["bad", "good"]
    texts = reviews(10, 3).texts
    np.testing.assert_array_equal(class_probabilities(again, texts), class_probabilities(fitted.run, texts))


def test_what_cannot_be_learnt_is_said(make_base: MakeBase) -> None:
    base = make_base()
    alike = subset(reviews(20), range(0, 20, 2))
    with pytest.raises(UserError, match="all 10 examples have the same label, 'bad'"):
        train_network(alike, None, base=base)
    lonely = subset(reviews(20), [*range(0, 20, 2), 1])
    fitted = train_network(lonely, None, base=base, options=options(epochs=1))
    assert fitted.notes[0] == "note: few examples of 1 of 2 classes ('good' 1): expect little of these"
    with pytest.raises(UserError, match=r"reviews.csv line 4: .*'so'"):
        train_network(reviews(20), reviews(9, 1, names=("bad", "good", "so")), base=base)
    fitted = train_network(reviews(8), None, base=base, options=options(epochs=1))
    assert fitted.notes[0] == "note: few examples of 2 of 2 classes ('bad' 4, 'good' 4): expect little of these"
    with pytest.raises(UserError, match="--layer-decay 2"):
        train_network(reviews(20), None, base=base, options=options(layer_decay=2.0))
    with pytest.raises(UserError, match="needs a run with a tokenizer"):
        train_network(reviews(20), None)


@pytest.mark.parametrize(
    ("given", "stated"),
    [
        ({}, {"pooling": "last", "causal": True}),
        ({"pooling": "mean"}, {"pooling": "mean", "causal": True}),
        ({"attention": "both"}, {"pooling": "last", "causal": False}),
        ({"pooling": "mean", "attention": "both"}, {"pooling": "mean", "causal": False}),
    ],
)
def test_the_run_states_how_its_layers_read(given: dict[str, Any], stated: dict[str, Any], make_base: MakeBase) -> None:
    """And what is scored later is scored in that way."""
    base = make_base("lab")
    for start in ({"base": base}, {"like": base}):
        run = train_network(reviews(20), reviews(20, 1), **start, options=options(epochs=1, **given)).run
        head = run.model.head_config
        assert head is not None
        (view,) = head.views
        assert view.name == "layers"
        assert {name: view.options[name] for name in stated} == stated
    text = ["good good film bad"]
    shown = class_probabilities(run, text)
    other = {**view.options, "pooling": "mean" if stated["pooling"] == "last" else "last"}
    read_otherwise = dataclasses.replace(view, options=other)
    classifier_head(run.model).config = dataclasses.replace(head, views=(read_otherwise,))
    assert not np.allclose(shown, class_probabilities(run, text), atol=1e-7)


def test_how_layers_read_is_not_for_an_encoder() -> None:
    for given in ({"pooling": "mean"}, {"attention": "causal"}):
        with pytest.raises(UserError, match="is for layers of rehead's own"):
            check_base(options(freeze="none", **given), scratch=False, own=False, brought=["encoder:x"])
