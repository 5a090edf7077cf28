"""The end of a comparison, with answers made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rehead.compare.data import Splits
from rehead.compare.experiment import Outcome, Trial
from rehead.compare.guards import SealedTestSet
from rehead.compare.kinds import BASELINES
from rehead.compare.results import Control, CurvePoint, DataFacts, LeakFacts, Method, Results, RunFacts
from rehead.compare.scoring import score
from rehead.finetune.metrics import DecisionRule
from rehead.text.documents import LabelledData

TRUTH = ["a", "a", "a", "b", "b", "c"]
FACTS = RunFacts("rehead compare", {}, {}, 1, 1.0, "2026-01-01", [])


def parts(labels: list[tuple[str, ...]], *, multilabel: bool = False, seen: list[int] | None = None) -> Splits:
    names = ["a", "b", "c"]
    texts = [f"text {number}" for number in range(len(labels))]
    data = LabelledData(texts, labels, names, multilabel, [("test.csv", number + 2) for number in range(len(labels))])
    facts = DataFacts("data.csv", "", "", {}, {"train": 9, "valid": 3, "test": len(labels)}, multilabel, 2)
    flags = np.isin(np.arange(len(labels)), seen or [])
    return Splits(data, data, SealedTestSet(data), facts, LeakFacts(9, 0, [], int(flags.sum())), flags)


def outcome(answers: str, sure: float = 0.8, curve: list[CurvePoint] | None = None) -> Outcome:
    """Answers as a word: `aab` says a, a, b, each with this probability."""
    table = np.full((len(answers), 3), (1 - sure) / 2, np.float32)
    table[np.arange(len(answers)), ["abc".index(each) for each in answers]] = sure
    return Outcome(table, 2.0, 0.5, curve or [], [], DecisionRule())


def method(key: str) -> Method:
    return Method(key, key, key, "", None)  # type: ignore[arg-type]


def scored(outcomes: dict[Trial, Outcome], keys: list[str], made: Splits | None = None) -> Results:
    made = parts([(each,) for each in TRUTH]) if made is None else made
    counts = sorted({trial.labels for trial in outcomes if not trial.shuffled})
    return score(outcomes, [method(key) for key in keys], counts, made, FACTS)


def moments(*accuracies: float) -> list[CurvePoint]:
    return [CurvePoint(float(epoch), 10.0 * epoch, value, value) for epoch, value in enumerate(accuracies)]


def test_accuracy_macro_f1_and_cost() -> None:
    results = scored({Trial("tfidf", 10, 0): outcome("aabbbb"), Trial("tfidf", 10, 1): outcome("aaabbc")}, ["tfidf"])
    found = results.score("tfidf")
    assert found is not None
    assert found.by_seed == pytest.approx([4 / 6, 1.0])
    # The first seed: a 2 of 3, never wrongly; b 2 of 2, and 4 named; c never named.
    first = (2 * 2 / 5 + 2 * 2 / 6 + 0) / 3
    assert found.macro_f1.mean == pytest.approx((first + 1) / 2)
    assert found.documents_per_second == pytest.approx(12)
    assert found.train_seconds == 2
    assert results.data.classes == {"a": 3, "b": 2, "c": 1}
    assert np.array(results.confusions[0].matrix).tolist() == [[2.5, 0.5, 0], [0, 2, 0], [0, 0.5, 0.5]]


def test_the_headline_is_against_the_best_of_all_baselines() -> None:
    """Whichever of them scored best on the test set, at each training set size."""
    answers = {"recipe": ("aaabbb", "aaabbb"), "tfidf": ("aabbba", "aaabbb"), "tfidf_chars": ("aaabba", "aaabbc")}
    answers |= {"nbsvm": ("aaabbc", "abbbba"), "fasttext": ("baabba", "bbabba")}
    outcomes = {
        Trial(key, count, 0): outcome(said)
        for key, each in answers.items()
        for count, said in zip((10, 20), each, strict=True)
    }
    results = scored(outcomes, list(answers))
    best = [results.best(BASELINES, count) for count in (10, 20)]
    assert [each and each.method for each in best] == ["nbsvm", "tfidf_chars"]
    assert "the best linear model (tfidf_chars) 100.0 %" in results.answer[0]
    assert "the linear model is ahead by 16.7 points" in results.answer[1].lower()
    compared = {pair.first for pair in results.paired if pair.second == "recipe"}
    assert compared == set(answers) - {"recipe"}


def test_exact_match_micro_and_macro_f1_of_several_labels() -> None:
    from sklearn.metrics import accuracy_score, f1_score

    chance = np.random.default_rng(0)
    truth = chance.random((60, 3)) < (0.5, 0.2, 0.1)
    said = np.where(chance.random((2, 60, 3)) < 0.8, truth, ~truth)
    labels = [tuple(name for name, there in zip("abc", row, strict=True) if there) for row in truth]
    outcomes = {
        Trial("tfidf", 10, seed): Outcome(each.astype(np.float32), 1.0, 1.0, [], [], DecisionRule())
        for seed, each in enumerate(said)
    }
    results = scored(outcomes, ["tfidf"], parts(labels, multilabel=True))
    (found,) = results.scores
    assert found.accuracy.mean == pytest.approx(np.mean([accuracy_score(truth, each) for each in said]))
    for summary, average in ((found.micro_f1, "micro"), (found.macro_f1, "macro")):
        assert summary is not None
        assert summary.mean == pytest.approx(np.mean([f1_score(truth, each, average=average) for each in said]))
        assert summary.over_documents is not None
        assert summary.over_documents.low < summary.mean < summary.over_documents.high
    assert "exact match" in results.answer[0]


def test_one_label_per_document_has_no_micro_f1() -> None:
    results = scored({Trial("tfidf", 10, 0): outcome("aabbbb")}, ["tfidf"])
    assert results.scores[0].micro_f1 is None


def test_how_soon_scratch_is_reached() -> None:
    outcomes = {
        Trial("scratch", 10, 0): outcome("aaabbc", curve=moments(0.5, 0.7, 0.6)),
        Trial("scratch", 10, 1): outcome("aaabbc", curve=moments(0.5, 0.6, 0.8)),
        Trial("pretrained", 10, 0): outcome("aaabbc", curve=moments(0.75, 0.8, 0.9)),
        Trial("pretrained", 10, 1): outcome("aaabbc", curve=moments(0.6, 0.7, 0.7)),
    }
    scratch, pretrained = scored(outcomes, ["scratch", "pretrained"]).reaches
    assert (scratch.target, scratch.epochs, scratch.seconds) == pytest.approx((0.75, 1.5, 15))
    assert (pretrained.reached, pretrained.seeds, pretrained.epochs, pretrained.seconds) == (1, 2, 0.0, 0.0)


def test_the_most_confident_errors_come_first() -> None:
    ours = outcome("babbba", sure=0.8)
    ours.probabilities[5] = [0.95, 0.03, 0.02]
    ours.probabilities[0] = [0.3, 0.36, 0.34]
    results = scored({Trial("recipe", 10, 0): ours, Trial("nbsvm", 10, 0): outcome("aaabbb")}, ["recipe", "nbsvm"])
    shown = [(each.text, each.truth, each.answer, each.baseline) for each in results.mistakes]
    assert shown == [("text 5", "c", "a", "b"), ("text 2", "a", "b", "a"), ("text 0", "a", "b", "a")]
    assert [each.confidence for each in results.mistakes] == pytest.approx([0.95, 0.8, 0.36])
    assert (results.mistakes[0].source, results.mistakes[0].line) == ("test.csv", 7)


def control_of(shuffled: list[str], truth: str) -> Control:
    """Judge what was answered after shuffled labels, once for each seed."""
    trials = {Trial("nbsvm", 10, 0): outcome(truth)}
    trials |= {Trial("nbsvm", 10, seed, True): outcome(answers) for seed, answers in enumerate(shuffled)}
    (control,) = scored(trials, ["nbsvm"], parts([(each,) for each in truth])).guards.controls
    return control


def test_controls_are_judged_by_their_mean() -> None:
    right, wrong = "".join(TRUTH), "cccaaa"
    control = control_of([wrong, right], right)
    assert (control.recall, control.chance) == (0.5, pytest.approx(1 / 3))
    assert control.passed
    control = control_of([50 * right] * 3, 50 * right)
    assert control.recall == 1
    assert not control.passed


def test_a_control_on_uneven_classes_can_fail() -> None:
    truth = "a" * 90 + "b" * 10
    control = control_of(["a" * 100], truth)  # always the commonest, as who knows nothing would
    assert (control.recall, control.chance) == (0.5, 0.5)
    assert control.passed
    control = control_of(["a" * 92 + "b" * 8], truth)  # it was told
    assert control.recall == pytest.approx(0.9)
    assert not control.passed


def test_a_control_with_several_labels_asks_for_each() -> None:
    truth: list[tuple[str, ...]] = [("a",), ("a", "b"), (), ("b",)] * 50
    told = np.array([[0.9, 0.1, 0.1], [0.9, 0.9, 0.1], [0.1, 0.1, 0.1], [0.1, 0.9, 0.1]] * 50, np.float32)
    for answers, recall in ((told, 1.0), (np.zeros_like(told), 0.5)):
        trials = {
            Trial("nbsvm", 10, 0, shuffled): Outcome(answers, 1.0, 1.0, [], [], DecisionRule())
            for shuffled in (False, True)
        }
        (control,) = scored(trials, ["nbsvm"], parts(truth, multilabel=True)).guards.controls
        assert (control.recall, control.chance, control.passed) == (recall, 0.5, recall == 0.5)


def test_reliability_has_bins_of_equally_many() -> None:
    made = parts([("a",)] * 100)
    answers = outcome("a" * 80 + "b" * 20)
    answers.probabilities[:50] = [0.9, 0.06, 0.04]
    (found,) = scored({Trial("nbsvm", 10, 0): answers}, ["nbsvm"], made).reliabilities
    assert [each.documents for each in found.bins] == [10] * 10
    assert [each.confidence for each in found.bins] == pytest.approx([0.8] * 5 + [0.9] * 5)
    assert sum(each.right * each.documents for each in found.bins) == pytest.approx(80)


def test_several_labels_are_given_from_their_thresholds_on() -> None:
    made = parts([("a",), ("a", "b"), (), ("b",)], multilabel=True)
    table = np.array([[0.9, 0.2, 0.1], [0.6, 0.4, 0.1], [0.1, 0.25, 0.2], [0.1, 0.35, 0.1]], np.float32)
    outcomes = {Trial("pretrained", 10, 0): Outcome(table, 1.0, 1.0, [], [], DecisionRule([0.5, 0.3, 0.5]))}
    results = scored(outcomes, ["pretrained"], made)
    assert results.scores[0].by_seed == [1.0]
    assert results.mistakes == []
    assert results.confusions == []
    outcomes[Trial("pretrained", 10, 0)].rule = DecisionRule()
    results = scored(outcomes, ["pretrained"], parts([("a",), ("a", "b"), (), ("b",)], multilabel=True))
    assert results.scores[0].by_seed == [0.5]
    assert [(each.truth, each.answer) for each in results.mistakes] == [("b", "nothing"), ("a, b", "a")]


def test_documents_that_were_pretrained_on_are_left_out_beside() -> None:
    made = parts([(each,) for each in TRUTH], seen=[0, 1, 5])
    results = scored({Trial("nbsvm", 10, 0): outcome("aabbba")}, ["nbsvm"], made)
    assert results.guards.leaks.unseen_accuracy == {"nbsvm": pytest.approx(2 / 3)}


def test_the_answers_are_opened_once() -> None:
    made = parts([(each,) for each in TRUTH])
    outcomes = {Trial("nbsvm", 10, 0): outcome("aaabbc")}
    assert scored(outcomes, ["nbsvm"], made).guards.opened == 1
    with pytest.raises(RuntimeError, match="already been revealed"):
        scored(outcomes, ["nbsvm"], made)
