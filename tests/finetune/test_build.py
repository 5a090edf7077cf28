"""Building classifiers: a linear head as a run, against the numbers it was folded from; what a copied base keeps."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rehead.finetune.build import build_linear, with_head, with_random_weights
from rehead.finetune.candidates.linear import fit_average
from rehead.finetune.examples import Examples, read_examples
from rehead.finetune.targets import targets
from rehead.model.config import Classifier
from rehead.runs.run import Run, load, save
from rehead.runs.scoring import class_logits, classifier_head, document_vectors
from rehead.text.documents import LabelledData
from rehead.views import views_beside
from rehead.views.bag import BagOptions, BagView
from rehead.views.encoded import EncodedTexts
from rehead.views.neural import learn_statistics, neural_view
from rehead.views.tokens import TokensOptions, TokensView
from rehead.views.view import View
from tests.finetune.conftest import MakeBase
from tests.finetune.sets import reviews


def read(base: Run, data: LabelledData, **options: Any) -> Examples:
    """Read through all views that a classifier can have."""
    views: list[View] = [neural_view(base.model, **options), TokensView(base.model, TokensOptions())]
    for view in (beside := views_beside(base.model)):
        view.learn(EncodedTexts(data.texts))
    views += beside
    truth = targets(data, data.names, multilabel=False)
    return read_examples(base, views, data.texts, truth, len(data.names), balanced=False)


def encode(base: Run, texts: list[str]) -> list[np.ndarray]:
    return EncodedTexts(texts, base.tokenizer).ids


@pytest.mark.parametrize(
    ("name", "learnt"), [("bag", False), ("small", False), ("small", True), ("lab", True)], ids=str
)
@pytest.mark.parametrize(
    "beside", [(), ("tokens",), ("words", "characters"), ("words", "characters", "lsa")], ids="+".join
)
def test_the_run_scores_as_the_linear_classifier(
    make_base: MakeBase, name: str, learnt: bool, beside: tuple[str, ...], tmp_path: Path
) -> None:
    """With documents longer than layers read at once among them; and the base is the same to the bit."""
    base, data = make_base(name, learnt=learnt, maxlen=24), reviews(30)
    learn_statistics(base.model, encode(base, reviews(40, 3).texts))
    data.texts[0] = " ".join(data.texts[:5])
    before = copy.deepcopy(base.model.state_dict())
    examples = read(base, data)
    neural = str(base.model.config.reads)
    settings = [
        {"power": 2.0, "alpha": 0.3, "temperature": 0.5, neural: 1.0, **dict.fromkeys(beside, 2.0)},
        {"power": 1.0, "alpha": 1.0, neural: 1.0},
    ]
    linear = fit_average(examples, settings)
    run = build_linear(base, examples, linear, data)
    np.testing.assert_allclose(class_logits(run, data.texts), linear.scores(examples), atol=1e-4)
    for key, tensor in before.items():
        assert torch.equal(base.model.state_dict()[key], tensor), key
        if learnt or "layers." not in key:  # layers that are not read stay behind
            assert torch.equal(run.model.state_dict()[key], tensor), key
    assert run.model.config.nlayers == (2 if learnt else 0)
    names = [view.name for view in classifier_head(run.model).config.views]
    assert names == [neural, *beside]
    save(run, tmp_path / "run")
    np.testing.assert_array_equal(class_logits(load(tmp_path / "run"), data.texts), class_logits(run, data.texts))


@pytest.mark.parametrize("long", ["head", "tail", "head+tail", "windows"])
@pytest.mark.parametrize(("name", "learnt"), [("bag", False), ("small", True)], ids=str)
def test_long_documents_are_read_as_the_options_say(make_base: MakeBase, name: str, learnt: bool, long: Any) -> None:
    base, data = make_base(name, learnt=learnt), reviews(20)
    examples = read(base, data, max_length=12, long=long)
    view = str(base.model.config.reads)
    linear = fit_average(examples, [{"power": 2.0, "alpha": 0.3, view: 1.0, "words": 1.0}])
    run = build_linear(base, examples, linear, data)
    np.testing.assert_allclose(class_logits(run, data.texts), linear.scores(examples), atol=1e-4)
    stated = classifier_head(run.model).config.view(view)
    assert stated is not None
    assert (stated.options["max_length"], stated.options["long"]) == (12, long)
    assert not np.allclose(examples.features[view], read(base, data).features[view], atol=1e-3)


def test_a_classifier_of_words_alone_reads_no_vectors(make_base: MakeBase, tmp_path: Path) -> None:
    """It keeps all n-grams, with weights or without: a text is measured by all that are known."""
    base, data = make_base(), reviews(30)
    examples = read(base, data)
    part = examples.take(np.arange(6))
    linear = fit_average(part, [{"power": 2.0, "alpha": 0.3, "words": 1.0}])
    run = build_linear(base, examples, linear, data)
    (stated,) = classifier_head(run.model).config.views
    words = next(view for view in examples.views if view.name == "words")
    assert (stated.name, stated.terms, stated.columns) == ("words", words.terms, words.terms)
    assert len(linear.columns["words"]) < words.terms  # n-grams without weight stay: they are part of a text's length
    np.testing.assert_allclose(class_logits(run, data.texts), linear.scores(examples), atol=1e-5)
    save(run, tmp_path / "run")
    np.testing.assert_array_equal(class_logits(load(tmp_path / "run"), data.texts), class_logits(run, data.texts))


def test_a_classifier_that_tells_nothing_apart(make_base: MakeBase) -> None:
    """A head needs a view all the same."""
    base, data = make_base(), reviews(20)
    examples = read(base, data)
    linear = fit_average(examples, [{"power": 2.0, "alpha": 1.0, "words": 1.0}])
    for weight in linear.weights.values():
        weight[:] = 0
    run = build_linear(base, examples, linear, data)
    assert [view.name for view in classifier_head(run.model).config.views] == ["bag"]
    np.testing.assert_allclose(class_logits(run, data.texts), np.tile(linear.bias, (20, 1)), atol=1e-6)


def test_a_head_on_the_bag_leaves_the_layers_behind(make_base: MakeBase) -> None:
    base, texts = make_base("small", learnt=True), reviews(40, 3).texts
    ids = encode(base, texts)
    bag = BagView(base.model, BagOptions())
    head = Classifier(classes=2, views=(bag.config(),))
    assert not with_head(base.model, head).base.statistics.known
    learn_statistics(base.model, ids, layers_tokens=50)
    made = with_head(base.model, head)
    assert (made.config.nlayers, made.config.reads) == (0, "bag")
    assert set(made.base.statistics.views) == {"bag"}
    vectors = document_vectors(Run(made, base.tokenizer), texts).astype(np.float64)
    np.testing.assert_allclose(vectors, bag.read(EncodedTexts(ids=ids)).matrix, atol=1e-6)
    mean, covariance = made.base.statistics.of("bag") or (None, None)
    np.testing.assert_allclose(mean, vectors.mean(0), atol=1e-6)
    np.testing.assert_allclose(covariance, np.cov(vectors.T), atol=1e-6)
    assert float(made.base.statistics.documents) == 40
    few = int(np.searchsorted(np.cumsum([len(each) for each in ids]), 50)) + 1  # documents that the layers have read
    mean, _ = base.model.base.statistics.of("layers") or (None, None)
    np.testing.assert_allclose(mean, document_vectors(base, texts[:few]).mean(0), atol=1e-6)
    assert torch.equal(base.model.base.statistics.frequency, made.base.statistics.frequency)
    made.base.embedding.weight.data.zero_()  # a copy
    assert base.model.base.embedding.weight.any()


def test_random_weights_have_the_shape_and_rows_for_frequent_ngrams(make_base: MakeBase) -> None:
    base = make_base("small", learnt=True)
    head = base.model.config.classifier(3)
    ids = encode(base, reviews(40).texts)
    made = with_random_weights(base.model, head, None, ids)
    assert made.config == base.model.config
    assert classifier_head(made).config.classes == 3
    assert not torch.equal(made.base.embedding.weight, base.model.base.embedding.weight)
    assert made.base.ngrams is not None
    found = BagView(made, BagOptions()).finder.find(ids)
    assert (found.size > 1).any()
