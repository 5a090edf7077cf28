"""Words that carry a decision: what a weight is, and the check on real reviews that it is worth something."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rehead.errors import UserError
from rehead.runs.run import Run
from rehead.runs.scoring import class_logits, classifier_head, open_views
from rehead.use.explain import Explanation, explain, log_odds, log_odds_drop
from rehead.use.labeller import Labeller
from rehead.views.encoded import EncodedTexts
from rehead.views.leave_out import Groups
from tests.use.classifiers import KINDS, TEXTS, WITHOUT_LAYERS, classifier
from tests.use.trained import layered_classifier, linear_classifier, split


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_classifier_is_explained(kind: str) -> None:
    labeller = Labeller.of(classifier(kind))
    found = explain(labeller, TEXTS)
    for text, each, row in zip(TEXTS, found, labeller.probabilities(TEXTS), strict=True):
        assert each.text == text
        assert each.probability == pytest.approx(row[labeller.names.index(each.label)])
        assert all(np.isfinite(word.weight) for word in each.words)
        assert any(word.weight for word in each.words) == bool(text)
    assert found[TEXTS.index("")].words == []


@pytest.mark.parametrize("kind", WITHOUT_LAYERS)
def test_without_layers_a_weight_is_what_the_log_odds_lose_without_the_word(kind: str) -> None:
    labeller = Labeller.of(classifier(kind))
    [found] = explain(labeller, ["awful"])
    label = labeller.names.index(found.label)
    left, whole = labeller.probabilities(["", "awful"])[:, label].astype(np.float64)
    assert found.words[0].weight == pytest.approx(np.log(whole / (1 - whole)) - np.log(left / (1 - left)), abs=1e-3)


def test_layers_weigh_a_word_by_its_place_and_tokens_by_all_its_places() -> None:
    labeller = Labeller.of(classifier("layers, tokens"))
    run, text, good = labeller.run, "good film, good", 2
    [found] = explain(labeller, [text], label="good")
    assert run.tokenizer is not None
    ids, tokens = run.tokenizer.encode_with_spans(text)
    scores = class_logits(run, [text]).astype(np.float64)
    views = {each.name: each for each in open_views(run.model)}

    def lost(words: list[int], view: str) -> float:
        touched = [
            place
            for place, (begin, end) in enumerate(tokens)
            if any(begin < found.words[word].end and found.words[word].begin < end for word in words)
        ]
        groups = Groups(np.array(touched), np.zeros(len(touched), np.int64), 1)
        weight = classifier_head(run.model).of(view).weight.detach().numpy()
        left = views[view].scores_without(weight, EncodedTexts(ids=[np.array(ids)]), groups, lambda: None)
        return float(log_odds_drop(scores + left - left[0], good, multilabel=False)[0])

    first, last = found.words[0], found.words[-1]
    assert first.weight == pytest.approx(lost([0], "layers") + lost([0, 3], "tokens") / 2, abs=1e-4)
    assert last.weight == pytest.approx(lost([3], "layers") + lost([0, 3], "tokens") / 2, abs=1e-4)
    assert first.weight != pytest.approx(last.weight, abs=1e-3)


def test_the_label_is_the_likeliest_unless_one_is_named() -> None:
    labeller = Labeller.of(classifier("distinct, tokens"))
    for each, row in zip(explain(labeller, TEXTS), labeller.probabilities(TEXTS), strict=True):
        assert each.label == labeller.names[int(row.argmax())]
    for each, row in zip(explain(labeller, TEXTS, label="fair"), labeller.probabilities(TEXTS), strict=True):
        assert (each.label, each.probability) == ("fair", pytest.approx(row[1]))
    with pytest.raises(UserError, match=r"there is no label 'best'. Choose one of: bad, fair, good."):
        explain(labeller, ["x"], label="best")


def test_of_several_labels_it_is_the_likeliest_that_is_given() -> None:
    labeller = Labeller.of(classifier("bag, multilabel"))
    probabilities = labeller.probabilities(TEXTS)
    given = labeller.labels(probabilities)
    assert any(given)
    for each, row, labels in zip(explain(labeller, TEXTS), probabilities, given, strict=True):
        among = labels or labeller.names
        assert each.label == max(among, key=lambda name: row[labeller.names.index(name)])


def test_repeated_words_share_what_they_do() -> None:
    labeller = Labeller.of(classifier("distinct, tokens"))
    [found] = explain(labeller, ["Great film, great story"])
    weights = {found.text[each.begin : each.end]: each.weight for each in found.words}
    assert weights["Great"] == weights["great"] != 0
    left = labeller.probabilities([found.text])
    assert left[0, labeller.names.index(found.label)] == pytest.approx(found.probability)


def test_words_are_places_in_the_text_as_it_was_given() -> None:
    labeller = Labeller.of(classifier("layers"))
    text = "Le CAFÉ était bon… 👍🏽 映画 don't"
    [found] = explain(labeller, [text])
    words = [text[each.begin : each.end] for each in found.words]
    assert words == ["Le", "CAFÉ", "était", "bon", "…", "👍🏽", "映", "画", "don't"]
    as_json = found.as_json()
    assert [each["word"] for each in as_json["words"]] == words
    assert as_json["words"][1]["begin"] == 3
    assert set(as_json) == {"text", "label", "probability", "words"}


def test_what_is_not_read_carries_nothing() -> None:
    run = classifier("layers, head")  # the first nine tokens alone
    [found] = explain(Labeller.of(run), [TEXTS[-1]])
    assert found.words[0].weight
    assert not any(each.weight for each in found.words[9:])


def test_log_odds_are_those_of_the_probabilities() -> None:
    scores = np.random.RandomState(0).randn(5, 4)
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    assert log_odds(scores, 2, multilabel=False) == pytest.approx(np.log(shares[:, 2] / (1 - shares[:, 2])))
    assert log_odds(scores, 2, multilabel=True) == pytest.approx(scores[:, 2])
    far = np.array([[0.0, 2000.0], [2000.0, 0.0]])
    assert log_odds(far, 0, multilabel=False).tolist() == [-2000.0, 2000.0]


def without(explained: Explanation, words: list[int]) -> str:
    """The text without some of its words."""
    parts, at = [], 0
    for word in sorted(words):
        parts.append(explained.text[at : explained.words[word].begin])
        at = explained.words[word].end
    return "".join([*parts, explained.text[at:]])


@pytest.mark.parametrize("train", [linear_classifier, layered_classifier])
def test_without_its_top_words_a_review_loses_its_label_and_without_random_ones_it_does_not(
    train: Callable[[], Run],
) -> None:
    labeller = Labeller.of(train())
    texts = [each for each in split().valid.texts if len(each.split()) >= 12][:120]
    explained = explain(labeller, texts)
    chance = np.random.RandomState(0)
    top, random, bottom = [], [], []
    for each in explained:
        order = np.argsort([-word.weight for word in each.words], kind="stable").tolist()
        top.append(without(each, order[:3]))
        bottom.append(without(each, order[-3:]))
        random.append(without(each, chance.permutation(len(order))[:3].tolist()))
    labels = [labeller.names.index(each.label) for each in explained]
    before = np.array([each.probability for each in explained])

    def loss(texts: list[str]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        found: np.ndarray[tuple[int], np.dtype[np.float64]] = (
            before - labeller.probabilities(texts)[np.arange(len(texts)), labels]
        )
        return found

    assert loss(top).mean() > 3 * abs(loss(random).mean())
    assert (loss(top) > loss(random)).mean() > 0.9
    assert loss(bottom).mean() < 0  # what spoke against the label is gone
