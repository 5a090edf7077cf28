"""The linear classifier on a frozen base, as a run: against the numbers it was folded from."""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rehead.errors import UserError
from rehead.finetune import probe
from rehead.finetune import probe as probing
from rehead.finetune.calibration import probabilities
from rehead.finetune.copies import without_layers
from rehead.finetune.linear import Setting, fit_average
from rehead.finetune.options import FitOptions
from rehead.finetune.probe import find_probe, fit_probe, put_on, search_on
from rehead.finetune.targets import subset, targets
from rehead.model.heads import ClassifierHead
from rehead.model.reading import class_logits, class_probabilities, encode, learn_spread, vectors_of_ids
from rehead.runs.run import Run, load, save
from rehead.text.documents import LabelledData
from tests.finetune.conftest import MakeBase
from tests.finetune.sets import multilabel, reviews


def right(run: Run, data: LabelledData) -> float:
    guess = class_probabilities(run, data.texts).argmax(1)
    return float((guess == targets(data, data.names, multilabel=False)).mean())


@pytest.mark.parametrize(
    ("name", "learnt"), [("bag", False), ("small", False), ("small", True), ("lab", True)], ids=str
)
@pytest.mark.parametrize("words", [0.0, 4.0])
def test_the_run_scores_as_the_linear_classifier(
    make_base: MakeBase, name: str, learnt: bool, words: float, tmp_path: Path
) -> None:
    """With documents longer than layers read at once among them; and the base is the same to the bit."""
    base = make_base(name, learnt=learnt, maxlen=24)
    assert base.tokenizer is not None
    learn_spread(base.model, encode(base.tokenizer, reviews(40, 3).texts))
    data = reviews(30)
    data.texts[0] = " ".join(data.texts[:5])
    before = copy.deepcopy(base.model.state_dict())
    found = search_on(base, data, encode(base.tokenizer, data.texts), FitOptions(), words=False)
    settings = [Setting(2.0, words, 3.0), Setting(1.0, 0.0, 1.0)]
    found.linear = fit_average(found.examples, settings)
    run = put_on(found, data)
    np.testing.assert_allclose(
        class_logits(run, None, data.texts), found.linear.scores(found.examples.features), atol=1e-4
    )
    for state in (base.model.state_dict(), run.model.state_dict()):
        for key, tensor in before.items():
            assert torch.equal(state[key], tensor), key
    assert isinstance(run.model.head, ClassifierHead)
    assert (run.model.head.words is not None) == bool(words)
    save(run, tmp_path / "run")
    again = load(tmp_path / "run")
    np.testing.assert_array_equal(class_logits(again, None, data.texts), class_logits(run, None, data.texts))


@pytest.mark.parametrize("long", ["head", "tail", "head+tail", "windows"])
@pytest.mark.parametrize(("name", "learnt"), [("bag", False), ("small", True)], ids=str)
def test_documents_are_read_as_the_options_say(make_base: MakeBase, name: str, learnt: bool, long: Any) -> None:
    base, data = make_base(name, learnt=learnt), reviews(20)
    assert base.tokenizer is not None
    options, ids = FitOptions(length=12, long=long), encode(base.tokenizer, data.texts)
    found = search_on(base, data, ids, options, words=False)
    found.linear = fit_average(found.examples, [Setting(2.0, 4.0, 3.0)])
    run = put_on(found, data)
    expected = found.linear.scores(found.examples.features)
    np.testing.assert_allclose(class_logits(run, None, data.texts), expected, atol=1e-4)
    assert run.details["reading"] == {"longest": 12, "long": long}
    plain = search_on(base, data, ids, FitOptions(), words=False).examples.features.directions
    assert not np.allclose(found.examples.features.directions, plain, atol=1e-3)
    assert ("documents are longer than 12 tokens" in found.notes[0]) == (long != "windows")


def test_layers_are_read_past_unless_left_out_examples_gain(
    make_base: MakeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, data = make_base("small", learnt=True), reviews(60)
    assert base.tokenizer is not None
    learn_spread(base.model, encode(base.tokenizer, reviews(40, 3).texts))
    with torch.no_grad():
        for layer in base.model.base.layers:
            layer.output.weight.normal_(std=20.0)  # noise, that nothing below is heard through
    found = find_probe(data, base, FitOptions(), words=False)
    assert found.base.model.config.nlayers == 0
    assert "documents are read past the layers: the loss of left-out examples is " in found.notes[-1]
    fitted = fit_probe(data, None, base=base)
    assert right(fitted.run, reviews(40, 1)) > 0.85
    assert fitted.run.model.config.nlayers == 0
    assert found.notes[-1] in fitted.notes

    def deaf(run: Run) -> Run | None:
        made = without_layers(run)
        assert made is not None
        with torch.no_grad():
            made.model.base.embedding.weight.fill_(0.01)
            made.model.base.ngrams.weight.zero_()
        return made

    monkeypatch.setattr(probe, "without_layers", deaf)
    base = make_base("small", learnt=True)
    found = find_probe(data, base, FitOptions(), words=False)
    assert found.base is base
    assert "documents are read through the layers" in found.notes[-1]


def test_what_is_left_of_a_base_without_its_layers(make_base: MakeBase) -> None:
    base, texts = make_base("small", learnt=True), reviews(40, 3).texts
    assert base.tokenizer is not None
    ids = encode(base.tokenizer, texts)
    unknown = without_layers(base)
    assert unknown is not None
    assert not unknown.model.base.spread.known
    learn_spread(base.model, ids, most=50)
    made = without_layers(base)
    assert made is not None
    alone = make_base("bag", ngrams=base.model.config.ngrams)
    alone.model.base.load_state_dict(made.model.base.state_dict())
    vectors = vectors_of_ids(alone.model, ids).astype(np.float64)
    spread = made.model.base.spread
    np.testing.assert_allclose(spread.centre, vectors.mean(0), atol=1e-6)
    np.testing.assert_allclose(spread.covariance, np.cov(vectors.T), atol=1e-6)
    assert float(spread.documents) == 40
    kept = base.model.base.spread
    few = vectors_of_ids(base.model, ids[: int(np.searchsorted(np.cumsum([*map(len, ids)]), 50)) + 1])
    np.testing.assert_allclose(kept.centre, few.mean(0), atol=1e-6)
    assert torch.equal(kept.frequency, spread.frequency)
    made.model.base.embedding.weight.data.zero_()  # a copy
    assert base.model.base.embedding.weight.any()
    for other in (make_base("bag"), make_base("small"), make_base("lab", learnt=True)):
        assert without_layers(other) is None


def test_more_than_there_are_positions_is_refused(make_base: MakeBase) -> None:
    base = make_base("lab", learnt=True, positions="learned", maxlen=24)
    with pytest.raises(UserError, match="--length 25: this base reads at most 24 tokens"):
        fit_probe(reviews(20), None, base=base, options=FitOptions(length=25))


@pytest.mark.parametrize("words", [False, True])
def test_it_learns_and_is_calibrated_on_what_was_left_out(make_base: MakeBase, words: bool) -> None:
    base, data = make_base(), reviews(60)
    fitted = fit_probe(data, None, base=base, words=words)
    assert right(fitted.run, reviews(40, 1)) > 0.85
    details = fitted.run.details
    assert details["method"] == "probe"
    assert details["freeze"] == "base"
    assert details["calibration"]["documents"] == 60
    assert "settings chosen by 5-fold cross-validation on 60 of 60 examples: power" in fitted.notes[0]
    assert bool(fitted.run.model.head_config.words) <= words  # type: ignore[union-attr]
    found = find_probe(data, base, FitOptions(), words=words)
    temperature = details["calibration"]["temperature"]
    expected = found.linear.scores(found.examples.features) / temperature
    np.testing.assert_allclose(class_logits(fitted.run, None, data.texts), expected, atol=1e-3)
    shares = probabilities(found.found.logits / temperature, multilabel=False)
    assert fitted.valid is not None
    assert fitted.valid.accuracy == pytest.approx((shares.argmax(1) == found.examples.truth).mean())
    assert fitted.valid.count == 60


def test_a_validation_part_calibrates_instead(make_base: MakeBase) -> None:
    fitted = fit_probe(reviews(40), reviews(30, 1), base=make_base())
    assert fitted.run.details["calibration"]["documents"] == 30
    known = fitted.run.details["examples"]
    assert (known["train_fingerprint"], known["valid_fingerprint"]) == (
        reviews(40).fingerprint(),
        reviews(30, 1).fingerprint(),
    )
    assert fitted.valid is not None
    assert fitted.valid.count == 30
    assert fitted.valid.accuracy == pytest.approx(right(fitted.run, reviews(30, 1)))


def test_several_labels(make_base: MakeBase) -> None:
    data = multilabel(80)
    fitted = fit_probe(data, None, base=make_base(), words=True)
    given = class_probabilities(fitted.run, data.texts)
    guess = given >= fitted.run.details["thresholds"]
    truth = targets(data, data.names, multilabel=True)
    assert (guess == truth).mean() > 0.85
    assert fitted.run.model.head_config.multilabel  # type: ignore[union-attr]


def test_everybody_is_left_out_once_and_copies_together(make_base: MakeBase) -> None:
    data = reviews(30)
    data.texts[4], data.labels[4] = data.texts[2], data.labels[2]
    found = find_probe(data, make_base(), FitOptions(), words=False)
    assert len(found.folds) == 5
    assert sorted(np.concatenate([outside for _, outside in found.folds]).tolist()) == list(range(30))
    for inside, outside in found.folds:
        assert not set(inside.tolist()) & set(outside.tolist())
        assert (2 in outside) == (4 in outside)
    assert not np.isnan(found.found.logits).any()


def test_of_many_examples_some_are_left_out_once(make_base: MakeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "MANY", 40)
    data = reviews(80)
    found = find_probe(data, make_base(), FitOptions(), words=True)
    (inside, outside), *rest = found.folds
    assert not rest
    assert len(outside) == 8
    assert "cross-validation on 40 of 80 examples" in found.notes[0]
    known = ~np.isnan(found.found.logits[:, 0])
    np.testing.assert_array_equal(np.flatnonzero(known), outside)
    linear = fit_average(found.examples.some(inside), found.found.settings)
    expected = linear.scores(found.examples.features.some(outside))
    np.testing.assert_allclose(found.found.logits[outside], expected, atol=0.3)  # from another start, not to the end
    fitted = fit_probe(data, None, base=make_base(), words=True)
    assert fitted.run.details["calibration"]["documents"] == 8
    assert right(fitted.run, reviews(40, 1)) > 0.85


def test_a_class_with_one_text(make_base: MakeBase) -> None:
    """It cannot be left out; of two classes nothing can be, of three the other two are."""
    lonely = subset(reviews(20), [*range(0, 20, 2), 1])
    fitted = fit_probe(lonely, None, base=make_base())
    assert "a class has one text only: nothing could be cross-validated" in fitted.notes
    assert "nothing was left out, so probabilities are not calibrated" in fitted.notes
    assert fitted.valid is None
    np.testing.assert_array_equal(class_probabilities(fitted.run, lonely.texts).argmax(1), [0] * 10 + [1])
    three = reviews(60, names=("bad", "good", "so"))
    data = subset(three, [each for each in range(60) if three.labels[each] != ("so",) or each < 3])
    assert Counter(data.labels)["so",] == 1
    fitted = fit_probe(data, None, base=make_base())
    assert "5-fold cross-validation" in fitted.notes[1]
    assert right(fitted.run, reviews(40, 1, names=("bad", "good", "so"))) > 0.5


def test_mixed_labels_give_chance(make_base: MakeBase) -> None:
    data = reviews(120)
    order = np.random.RandomState(1).permutation(120)
    mixed = dataclasses.replace(data, labels=[data.labels[each] for each in order])
    fitted = fit_probe(mixed, None, base=make_base(), words=True)
    assert fitted.valid is not None
    assert abs(fitted.valid.accuracy - 0.5) < 0.15
    shares = class_probabilities(fitted.run, reviews(60, 1).texts)
    assert abs(shares - 0.5).max() < 0.3  # and it knows
    assert "warning: the labels cannot be told from the text so far: what 120 left-out documents" in fitted.notes[-1]


def test_texts_that_are_all_the_same(make_base: MakeBase) -> None:
    data = subset(reviews(40), [*range(0, 40, 2), *range(1, 20, 2)])
    data.texts = [f"the film {'a ' * (place % 7)}" for place in range(len(data))]
    fitted = fit_probe(data, reviews(8), base=make_base())
    said = next(note for note in fitted.notes if note.startswith("warning: every validation document was taken for"))
    assert "--epochs" not in said
    assert "Give more examples" in said
    assert "--class-weight balanced" in said


def test_rare_classes_may_count_more(make_base: MakeBase) -> None:
    data = subset(reviews(100), [each for each in range(100) if each % 2 == 0 or each < 12])
    plain, balanced = (
        class_probabilities(
            fit_probe(data, None, base=make_base(), options=FitOptions(class_weight=kind)).run, reviews(30, 2).texts
        )[:, 1].mean()
        for kind in (None, "balanced")
    )
    assert balanced > plain


def test_a_base_without_a_tokenizer_is_refused(make_base: MakeBase) -> None:
    with pytest.raises(UserError, match="needs a run with a tokenizer"):
        fit_probe(reviews(20), None, base=Run(make_base().model))
