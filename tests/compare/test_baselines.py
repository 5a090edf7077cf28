"""The baselines against scikit-learn's own pipelines and a naive-Bayes ratio worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rehead.compare import baselines
from rehead.compare.baselines import Name, fit_baseline
from rehead.compare.ngrams import TOKEN
from rehead.finetune.metrics import predicted_labels
from rehead.finetune.splits import folds
from rehead.finetune.targets import targets
from tests.compare.conftest import reviews, tagged

ALL: tuple[Name, ...] = ("tfidf", "tfidf_chars", "nbsvm")


def test_tfidf_is_scikit_learns_pipeline_with_the_chosen_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    monkeypatch.setitem(baselines.C_GRID, "tfidf", (3.0,))
    train, test = reviews(60), reviews(40, seed=1)
    found = fit_baseline("tfidf", train, train.names)
    reference = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=TOKEN),
        LogisticRegression(C=3.0, solver="liblinear", dual=True, max_iter=1000, random_state=0),
    ).fit(train.texts, [label for (label,) in train.labels])
    ours = found.predict(test.texts)
    assert ours.argmax(1).tolist() == reference.predict_proba(test.texts).argmax(1).tolist()
    # The reference's probabilities, but for the steepness that cross-validation chose.
    scores = reference.decision_function(test.texts)
    steep = np.log(ours[:, 1] / ours[:, 0]) / scores
    assert steep == pytest.approx(np.full(40, steep[0]), rel=1e-4)
    assert np.log2(steep[0]) == pytest.approx(round(np.log2(steep[0])), abs=1e-3)


def test_words_and_characters_are_scikit_learns_pipeline_with_the_chosen_penalty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline, make_union

    monkeypatch.setattr(baselines, "RARE_FROM", 60)  # so min_df is 2
    monkeypatch.setattr(baselines, "BATCH", 7)
    train, test = reviews(60), reviews(40, seed=1)
    found = fit_baseline("tfidf_chars", train, train.names)
    chosen = float(found.notes[0].removeprefix("C = ").split()[0])
    assert chosen in baselines.C_GRID["tfidf_chars"]
    assert "min_df = 2" in found.notes[0]
    reference = make_pipeline(
        make_union(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=TOKEN, min_df=2),
            TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, min_df=2),
        ),
        LogisticRegression(C=chosen, solver="liblinear", dual=True, max_iter=1000, random_state=0),
    ).fit(train.texts, [label for (label,) in train.labels])
    ours = found.predict(test.texts)
    steep = np.log(ours[:, 1] / ours[:, 0]) / reference.decision_function(test.texts)
    assert steep == pytest.approx(np.full(40, steep[0]), rel=1e-3)


def test_words_of_a_single_text_may_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    monkeypatch.setitem(baselines.C_GRID, "tfidf", (3.0,))
    monkeypatch.setattr(baselines, "RARE_FROM", 60)
    train, test = reviews(60), reviews(40, seed=1)
    train.texts = [f"{text} once{number}" for number, text in enumerate(train.texts)]
    found = fit_baseline("tfidf", train, train.names)
    assert found.notes[0].startswith("C = 3 and min_df = 2")
    reference = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=TOKEN, min_df=2),
        LogisticRegression(C=3.0, solver="liblinear", dual=True, max_iter=1000, random_state=0),
    ).fit(train.texts, [label for (label,) in train.labels])
    ours = found.predict(test.texts)
    steep = np.log(ours[:, 1] / ours[:, 0]) / reference.decision_function(test.texts)
    assert steep == pytest.approx(np.full(40, steep[0]), rel=1e-4)


def test_nbsvm_without_a_machine_is_naive_bayes(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing left of the machine's own weights, what remains is the log-count ratio."""
    monkeypatch.setattr(baselines, "INTERPOLATION", 0.0)
    train = reviews(30)
    found = fit_baseline("nbsvm", train, train.names)

    def ratio(word: str) -> float:
        has = [word in text.replace(".", " ").split() for text in train.texts]
        good = sum(h and labels == ("good",) for h, labels in zip(has, train.labels, strict=True))
        return float(np.log(1 + good) - np.log(1 + sum(has) - good))

    one, two, three = (found.predict([word]) for word in ("wonderful", "boring", "film"))
    scores = [float(np.log(each[0, 1] / each[0, 0])) for each in (one, two, three)]
    ratios = [ratio(word) for word in ("wonderful", "boring", "film")]
    # The classes' sums of counts shift all words by the same, and the mean weight scales them.
    assert (scores[0] - scores[2]) / (scores[1] - scores[2]) == pytest.approx(
        (ratios[0] - ratios[2]) / (ratios[1] - ratios[2])
    )


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("kinds", [("bad", "good"), ("bad", "good", "odd")])
def test_they_learn_from_twenty_labels_up(name: Name, kinds: tuple[str, ...]) -> None:
    test = reviews(200, seed=9, kinds=kinds)
    truth = targets(test, test.names, multilabel=True) > 0
    right = []
    for count in (20, 300):
        train = reviews(count, kinds=kinds)
        found = fit_baseline(name, train, train.names).predict(test.texts)
        assert found.shape == truth.shape
        assert found.sum(1) == pytest.approx(np.ones(len(test)))
        right.append(truth[np.arange(len(truth)), found.argmax(1)].mean())
    assert right[0] > 1.2 / len(kinds)
    assert right[1] > 0.85
    assert right[1] >= right[0]


@pytest.mark.parametrize("name", ALL)
def test_several_labels_are_one_against_the_rest(name: Name) -> None:
    train, test = tagged(300), tagged(80, seed=1)
    baseline = fit_baseline(name, train, train.names)
    found = baseline.predict(test.texts)
    truth = targets(test, test.names, multilabel=True) > 0
    assert found.shape == (80, 2)
    assert (predicted_labels(found, multilabel=True, rule=baseline.rule) == truth).mean(0).min() > 0.85


@pytest.mark.parametrize("name", ALL)
def test_a_class_with_one_example_or_none(name: Name) -> None:
    train = reviews(12)
    train.labels[1:] = [("bad",)] * 11
    train.labels[0] = ("good",)
    found = fit_baseline(name, train, ["bad", "good", "odd"])
    assert "one example" in found.notes[0]
    probabilities = found.predict(train.texts)
    assert probabilities.shape == (12, 3)
    assert probabilities[:, 2].max() < 0.2  # a class that was never seen is never named


@pytest.mark.parametrize("name", ALL)
def test_the_same_labels_give_the_same_model(name: Name) -> None:
    train, test = reviews(60), reviews(20, seed=1)
    one, two = (fit_baseline(name, train, train.names).predict(test.texts) for _ in range(2))
    assert np.array_equal(one, two)


def test_punctuation_and_scripts_without_spaces_are_read() -> None:
    import re

    assert re.findall(TOKEN, "Très bien!! 好電影") == ["Très", "bien", "!", "!", "好", "電", "影"]
    train = reviews(40)
    train.texts = ["很好看" if labels == ("good",) else "很难看" for labels in train.labels]
    found = fit_baseline("tfidf", train, train.names).predict(["好", "难"])
    assert found.argmax(1).tolist() == [1, 0]


def test_the_penalty_is_chosen_on_what_was_held_out() -> None:
    """Labels that have nothing to do with the text are not learnt by heart: the folds see through it."""
    train = reviews(80)
    train.labels = [("good",) if number // 2 % 2 else ("bad",) for number in range(80)]
    found = fit_baseline("nbsvm", train, train.names)
    right = float(found.notes[0].rpartition("(accuracy ")[2].partition(" ")[0])
    assert right < 66
    assert found.predict(reviews(60, seed=4).texts).max() < 0.8


def test_out_of_fold_scores_are_those_of_pipelines_that_never_saw_the_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The vocabulary of a fold is its own: words of held-out texts alone must not change their other features."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    train = reviews(60)
    train.texts = [f"{text} once{number} again{number}" for number, text in enumerate(train.texts)]
    seen = []
    real = baselines.calibrate
    monkeypatch.setattr(baselines, "calibrate", lambda scores, *a, **k: (seen.append(scores), real(scores, *a, **k))[1])
    monkeypatch.setitem(baselines.C_GRID, "tfidf", (3.0,))
    fit_baseline("tfidf", train, train.names)
    answers = np.array([label for (label,) in train.labels])
    expected = np.zeros(60)
    for rest, held_out in folds(train, 5, 0):
        pipeline = make_pipeline(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=TOKEN),
            LogisticRegression(C=3.0, solver="liblinear", dual=True, max_iter=1000, random_state=0),
        ).fit([train.texts[each] for each in rest], answers[rest])
        expected[held_out] = pipeline.decision_function([train.texts[each] for each in held_out])
    assert seen[0][:, 0] == pytest.approx(expected, abs=1e-3)  # the first that is tried has min_df = 1


def test_characters_recognise_words_that_were_never_seen() -> None:
    train = reviews(60)
    train.texts = ["refunding" if labels == ("good",) else "cancelling" for labels in train.labels]
    train.texts = [f"{text} order {number}" for number, text in enumerate(train.texts)]
    words, characters = (
        fit_baseline(name, train, train.names).predict(["refunds", "cancelled"])[:, 1]
        for name in ("tfidf", "tfidf_chars")
    )
    assert words[0] == pytest.approx(words[1])
    assert characters[0] > 0.6 > 0.4 > characters[1]


def test_characters_of_scripts_without_spaces() -> None:
    train = reviews(60)
    chance = np.random.default_rng(0)
    filling = [*"房间酒店服务员早餐位置附近地铁"]
    train.texts = [
        "".join(chance.choice(filling, 8))
        + ("很满意" if labels == ("good",) else "不满意")
        + "".join(chance.choice(filling, 8))
        for labels in train.labels
    ]
    found = fit_baseline("tfidf_chars", train, train.names).predict(["酒店很满意。", "早餐不满意！"])
    assert found.argmax(1).tolist() == [1, 0]


def test_many_texts_are_searched_in_part_and_fitted_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "SEARCHED", 40)
    seen = []
    real = baselines._fit
    monkeypatch.setattr(baselines, "_fit", lambda *a: (seen.append(a[1].shape[0]), real(*a))[1])
    train = reviews(90)
    found = fit_baseline("tfidf_chars", train, train.names)
    assert "on 40 of 90 examples" in found.notes[0]
    assert seen[-1] == 90
    assert max(seen[:-1]) == 32
    seen.clear()
    many = tagged(90)
    found = fit_baseline("tfidf_chars", many, many.names)
    assert seen[-4:] == [60, 60, 60, 90]  # thresholds are tuned on all of them


def test_no_feature_is_frequent_enough_in_a_fold() -> None:
    """In every fold of these, no word and no character n-gram occurs twice."""
    train = reviews(4)
    train.texts = ["ab", "cd", "ab", "ef"]
    train.labels = [("bad",), ("good",), ("bad",), ("good",)]
    for name in ALL:
        assert np.isfinite(fit_baseline(name, train, train.names).predict(["ab", "", "xyz"])).all()


def test_no_texts_have_no_predictions() -> None:
    train = reviews(20, kinds=("bad", "good", "odd"))
    assert fit_baseline("tfidf_chars", train, train.names).predict([]).shape == (0, 3)
