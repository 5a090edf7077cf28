"""Words and character n-grams of the text, against scikit-learn's TF-IDF; learnt, cached, saved and loaded."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer

from rehead.errors import ConfigError
from rehead.finetune.build import build_linear
from rehead.finetune.examples import Examples, read_examples, read_unlabelled
from rehead.finetune.linear import LinearClassifier, fit
from rehead.finetune.targets import targets
from rehead.model.config import ViewConfig
from rehead.model.model import Model
from rehead.runs.run import Run, load, save
from rehead.runs.scoring import class_logits, open_views
from rehead.text.text_ngrams import normalised
from rehead.views import VIEWS, check_views, make_view, text_view, views_beside
from rehead.views.cache import read_cached
from rehead.views.encoded import EncodedTexts
from rehead.views.neural import neural_view
from rehead.views.text_view import TextView
from rehead.views.vocabulary import from_floats
from tests.finetune.sets import reviews
from tests.model.conftest import miniature
from tests.text.test_text_ngrams import words_of
from tests.use.classifiers import tokenizer
from tests.use.text_classifiers import KINDS, SCRIPTS, TEXTS, learn_views, text_classifier

DIGEST = "ab" * 32
CORPUS = [*reviews(40).texts, *SCRIPTS * 2, "", ""]


def words(text: str) -> list[str]:
    """Words, and pairs of them; characters that no text has stand for its beginning and its end."""
    found = [word for word, _, _ in words_of(normalised(text))]
    return [*found, *map("\n".join, itertools.pairwise(["^^", *found, "$$"]))]


def characters(text: str) -> list[str]:
    marked = f"\x02{normalised(text)}\x03"
    return [marked[begin : begin + n] for n in range(2, 6) for begin in range(len(marked) - n + 1)]


ANALYZERS: dict[str, Callable[[str], list[str]]] = {"words": words, "characters": characters}


def learnt(name: str, texts: list[str] = CORPUS) -> TextView:
    [view] = learn_views(Model(miniature("bag")), [name], texts)
    assert isinstance(view, TextView)
    return view


def sorted_columns(matrix: np.ndarray) -> np.ndarray:
    """Columns in an order that depends on nothing but what is in them."""
    kept: np.ndarray = matrix[:, np.lexsort(matrix.round(5))]
    return kept


@pytest.mark.parametrize("name", ANALYZERS)
@pytest.mark.parametrize("size", [50, 1 << 18], ids=["in groups", "at once"])
def test_features_are_those_of_scikit_learn(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_view, "GROUP_CHARACTERS", size)
    view = learnt(name)
    reference = TfidfVectorizer(analyzer=ANALYZERS[name], min_df=2, sublinear_tf=True).fit(CORPUS)
    assert view.columns == view.terms == len(reference.vocabulary_)
    texts = [*CORPUS, *TEXTS]
    raw = view.read(EncodedTexts(texts))
    assert (raw.texts, raw.document.tolist()) == (len(texts), list(range(len(texts))))
    found, expected = view.transform(raw).toarray(), reference.transform(texts).toarray()
    np.testing.assert_allclose(sorted_columns(found), sorted_columns(expected), atol=1e-5)
    # The columns of the same n-grams, whichever these are, go together: inner products are the same.
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-5)


@pytest.mark.parametrize("name", ANALYZERS)
def test_the_most_frequent_ngrams_are_learnt(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = learnt(name)
    monkeypatch.setattr(VIEWS[name], "limit", 20)
    few = learnt(name)
    assert few.terms == 20
    assert np.isin(few.keys, whole.keys).all()
    assert few.scale.max() <= np.sort(whole.scale)[19] + 1e-12, "the idf of what is kept is the lowest"


@pytest.mark.parametrize("name", ANALYZERS)
def test_texts_without_any_known_ngram_have_no_features(name: str) -> None:
    view = learnt(name, reviews(20).texts)
    for texts in ([], [""], ["XQ", "ÄÖ", "\x02"]):
        found = view.transform(view.read(EncodedTexts(texts)))
        assert found.shape == (len(texts), view.columns)
        assert found.nnz == 0


@pytest.mark.parametrize("name", ANALYZERS)
def test_nothing_in_common_is_an_empty_vocabulary(name: str) -> None:
    view = learnt(name, ["xx", "yy"])
    assert view.columns == 0
    assert view.transform(view.read(EncodedTexts(["xx", ""]))).shape == (2, 0)
    assert learnt(name, ["xx"]).columns > 0, "of a single text, everything is kept"


@pytest.mark.parametrize("name", ["words", "characters", "lsa"])
def test_statistics_survive_float32(name: str) -> None:
    [view] = learn_views(Model(miniature("bag")), [name], CORPUS)
    again = make_view(view.model, view.config())
    again.load_statistics({key: torch.from_numpy(each).float() for key, each in view.statistics().items()})
    first, second = (each.transform(each.read(EncodedTexts(TEXTS))) for each in (view, again))
    np.testing.assert_allclose(np.asarray(abs(first - second).max()), 0, atol=1e-5)
    if isinstance(view, TextView) and isinstance(again, TextView):
        np.testing.assert_array_equal(again.keys, view.keys)
        np.testing.assert_array_equal(from_floats(view.statistics()["keys"].astype(np.float32)), view.keys)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_scores_after_loading_as_before(kind: str, tmp_path: Path) -> None:
    run = text_classifier(kind)
    back = load(save(run, tmp_path / "run"))
    assert back.model.head_config == run.model.head_config
    np.testing.assert_array_equal(class_logits(back, TEXTS), class_logits(run, TEXTS))
    for mine, theirs in zip(open_views(run.model), open_views(back.model), strict=True):
        assert mine.state() == theirs.state()


def fitted(names: tuple[str, ...], path: Path) -> tuple[Run, LinearClassifier, Examples, Run]:
    """Fit a linear classifier; give its base, itself, its examples, and the run that was made of it.

    The vocabulary is learnt from more text than has labels: n-grams of the unlabelled text alone have no weight.
    """
    train = reviews(40)
    base = Run(text_classifier("all").model, tokenizer())
    views = learn_views(base.model, [name for name in names if name != "bag"], [*train.texts, *SCRIPTS * 2])
    if "bag" in names:
        views.insert(0, neural_view(base.model))
    truth = targets(train, train.names, multilabel=False)
    examples = read_examples(base, views, train.texts, truth, 2, balanced=False)
    linear = fit(examples, {**dict.fromkeys(names, 1.0), "power": 2.0, "alpha": 0.1})
    return base, linear, examples, load(save(build_linear(base, examples, linear, train), path))


FITTED = [("bag", "words", "characters", "lsa"), ("words",), ("lsa",)]


@pytest.mark.parametrize("names", FITTED, ids="+".join)
def test_a_fitted_classifier_keeps_what_has_weight(names: tuple[str, ...], tmp_path: Path) -> None:
    _, linear, examples, run = fitted(names, tmp_path / "run")
    np.testing.assert_allclose(class_logits(run, reviews(40).texts), linear.scores(examples), atol=1e-4)
    kept = {view.name: view for view in open_views(run.model)}
    assert list(kept) == list(names)
    for view in examples.views:
        assert kept[view.name].columns == view.columns


@pytest.mark.parametrize("names", FITTED, ids="+".join)
def test_new_texts_are_scored_as_by_the_classifier_that_was_fitted(names: tuple[str, ...], tmp_path: Path) -> None:
    base, linear, examples, run = fitted(names, tmp_path / "run")
    new = read_unlabelled(base, examples, TEXTS)
    np.testing.assert_allclose(class_logits(run, TEXTS), linear.scores(new), atol=1e-4)


def test_scores_are_those_of_the_features() -> None:
    run = text_classifier("all")
    head = run.model.head
    total = head.bias.detach().double().numpy()  # type: ignore[union-attr]
    for view in open_views(run.model):
        weight = head.of(view.name).weight.detach().double().numpy()  # type: ignore[operator, union-attr]
        features = view.transform(view.read(EncodedTexts(TEXTS, run.tokenizer)))
        total = total + features @ (weight if view.sparse else weight.T)
    np.testing.assert_allclose(class_logits(run, TEXTS), total, atol=1e-4)
    for text, expected in zip(TEXTS, total, strict=True):
        np.testing.assert_allclose(class_logits(run, [text])[0], expected, atol=1e-4)


@pytest.mark.parametrize("name", ["words", "characters", "lsa"])
def test_the_cache_never_mixes_two_vocabularies(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REHEAD_CACHE", str(tmp_path / "features"))
    texts = EncodedTexts(TEXTS)
    model = Model(miniature("bag"))
    corpora = [CORPUS, CORPUS[:-5], CORPUS[::-1], CORPUS * 2]
    views = [learn_views(model, [name], corpus)[0] for corpus in corpora]
    for _ in range(2):
        for view in views:
            found, expected = read_cached(view, texts, DIGEST).matrix, view.read(texts).matrix
            assert found.shape == expected.shape
            np.testing.assert_array_equal(np.asarray(abs(found - expected).max()), 0)
    states = {view.state() for view in views}
    assert len(list((tmp_path / "features").iterdir())) == len(states)
    # The order of the texts does not matter; how often they occur matters to idf, and so to what lsa reads.
    assert len(states) == (4 if name == "lsa" else len({view.columns for view in views}))
    assert views[0].state() != views[1].state()


def test_a_view_of_text_needs_no_tokenizer() -> None:
    for name in ("words", "characters", "lsa"):
        [view] = learn_views(Model(miniature("bag")), [name], CORPUS)
        assert view.read(EncodedTexts(TEXTS)).texts == len(TEXTS)
        with pytest.raises(ConfigError, match="token ids"):
            view.read(EncodedTexts(ids=[np.arange(3)]))


def test_what_learns_stands_beside_the_vectors_of_a_base() -> None:
    found = views_beside(Model(miniature("small")))
    assert [view.name for view in found] == ["words", "characters", "lsa"]
    assert all(view.learns and view.columns == 0 for view in found)


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"name": "words", "columns": 5, "terms": 4, "sparse": True}, "columns"),
        ({"name": "words", "columns": 5, "sparse": True}, "columns"),
        ({"name": "words", "columns": 5, "terms": 5}, "sparse"),
        ({"name": "characters", "columns": 5, "terms": 5, "sparse": True, "options": {"n": 3}}, "'n'"),
        ({"name": "lsa", "columns": 5}, "terms"),
        ({"name": "lsa", "columns": 5, "terms": 9, "sparse": True}, "sparse"),
        ({"name": "lsa", "columns": 5, "terms": 9, "options": {"width": 5}}, "'width'"),
        ({"name": "bag", "columns": 16, "terms": 9}, "terms"),
    ],
)
def test_configs_that_mean_nothing_are_refused(stated: dict[str, object], said: str) -> None:
    config = miniature("bag")
    with torch.device("meta"):
        model = Model(config)
    head = config.classifier(2)
    object.__setattr__(head, "views", (ViewConfig(**stated),))  # type: ignore[arg-type]
    with torch.device("meta"):
        model = Model(config, head)
    with pytest.raises(ConfigError, match=said):
        check_views(model)
