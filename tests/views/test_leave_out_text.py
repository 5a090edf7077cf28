"""What views of the text score without some of its words, against counting the n-grams that are left."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from rehead.runs.run import Run
from rehead.runs.scoring import class_logits, classifier_head, open_views
from rehead.text.spans import Span, normalised_places, word_spans
from rehead.text.text_ngrams import normalised
from rehead.use.explain import explain, log_odds_drop
from rehead.use.labeller import Labeller
from rehead.views.encoded import EncodedTexts
from rehead.views.leave_out import Groups
from rehead.views.lsa import LsaView
from rehead.views.text_view import TextView
from rehead.views.view import View
from tests.text.test_text_ngrams import WAYS, check
from tests.use.text_classifiers import KINDS, TEXTS, text_classifier

Array = np.ndarray[Any, Any]
EMPTY = np.zeros(0, np.int64)
TEXT_KINDS = [kind for kind in KINDS if kind != "all"]


def grouped(text: str) -> tuple[list[tuple[Span, int]], int]:
    """Words, all occurrences of one in one group; and the number of groups."""
    spans = word_spans(text)
    numbers: dict[str, int] = {}
    for begin, end in spans:
        numbers.setdefault(text[begin:end].casefold(), len(numbers))
    return [(span, numbers[text[span[0] : span[1]].casefold()]) for span in spans], len(numbers)


def tf_idf(view: TextView, text: str, gone: list[Span]) -> Array:
    """Count the n-grams that no span of the normalised text touches, as strings; then weight them: (V,)."""
    hashes = check(view.kind, [text])
    left = Counter(
        hashes[string]
        for string, start, end in WAYS[view.kind][1](text)
        if not any(start < stop and begin < end for begin, stop in gone)
    )
    place = {key: column for column, key in enumerate(view.keys.tolist())}
    features = np.zeros(view.terms)
    for key, count in left.items():
        if key in place:
            features[place[key]] = (1 + np.log(count)) * view.scale[place[key]]
    return features / max(1e-12, float(np.linalg.norm(features)))


def reference(run: Run, view: View, text: str, gone: list[Span]) -> Array:
    """Score what is left of a text: (K,)."""
    part = classifier_head(run.model).of(view.name)
    weight = part.weight.detach().double().numpy()
    if isinstance(view, TextView):
        found: Array = tf_idf(view, text, gone) @ weight
        return found
    assert isinstance(view, LsaView)
    assert part.shift is not None
    features = np.concatenate([tf_idf(kind, text, gone) for kind in view.kinds])
    apart = features @ view.table.astype(np.float64) - part.shift.double().numpy()
    scores: Array = weight @ (apart / np.linalg.norm(apart))
    return scores


def scores_without(run: Run, view: View, text: str, groups: Groups) -> Array:
    weight = classifier_head(run.model).of(view.name).weight.detach().numpy()
    return view.scores_without(weight, EncodedTexts([text]), groups, lambda: None)


@pytest.mark.parametrize("kind", TEXT_KINDS)
@pytest.mark.parametrize("text", TEXTS)
def test_scores_are_those_of_the_ngrams_that_are_left(kind: str, text: str) -> None:
    run = text_classifier(kind)
    [view] = open_views(run.model)
    words, count = grouped(text)
    found = scores_without(run, view, text, Groups(EMPTY, EMPTY, count, words))
    plain, places = normalised_places(text)
    assert plain == normalised(text)
    expected = [reference(run, view, text, [])]
    for number in range(count):
        spans = [(int(places[begin]), int(places[end])) for (begin, end), group in words if group == number]
        expected.append(reference(run, view, text, [(begin, end) for begin, end in spans if end > begin]))
    assert found.shape == (1 + count, 3)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    bias = classifier_head(run.model).bias.detach().numpy()
    np.testing.assert_allclose(found[0] + bias, class_logits(run, [text])[0], atol=1e-4)


@pytest.mark.parametrize("kind", TEXT_KINDS)
def test_without_all_words_only_what_no_word_touches_is_left(kind: str) -> None:
    run, text = text_classifier(kind), TEXTS[3]
    [view] = open_views(run.model)
    everything = Groups(EMPTY, EMPTY, 2, [(span, 1) for span in word_spans(text)])  # nothing is in group 0
    found = scores_without(run, view, text, everything)
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)
    [nothing] = [reference(run, view, text, [(-1, len(text) + 1)])]
    np.testing.assert_allclose(found[2], nothing, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("multilabel", [False, True])
def test_every_word_of_any_text_has_a_weight(kind: str, multilabel: bool) -> None:
    labeller = Labeller.of(text_classifier(kind, multilabel=multilabel))
    explained = explain(labeller, TEXTS)
    rows = labeller.probabilities(TEXTS)
    for text, each, row in zip(TEXTS, explained, rows, strict=True):
        assert [(word.begin, word.end) for word in each.words] == word_spans(text)
        assert all(np.isfinite(word.weight) for word in each.words)
        assert each.probability == pytest.approx(row[labeller.names.index(each.label)])
    known = explained[3]  # the words of the corpus
    assert sum(bool(word.weight) for word in known.words) > len(known.words) / 2


def test_weights_of_all_views_together_are_drops_of_the_log_odds() -> None:
    run, text = text_classifier("all"), "Great film, great <b>story</b>"
    labeller = Labeller.of(run)
    [found] = explain(labeller, [text], label="good")
    words, count = grouped(text)
    bias = classifier_head(run.model).bias.detach().double().numpy()
    assert run.tokenizer is not None
    ids, tokens = run.tokenizer.encode_with_spans(text)
    touched = [
        (place, group)
        for place, (begin, end) in enumerate(tokens)
        for (first, last), group in words
        if begin < last and first < end
    ]
    token, group = np.array(touched, np.int64).T
    groups = Groups(token, group, count, words)
    total = np.tile(bias, (1 + count, 1))
    for view in open_views(run.model):
        weight = classifier_head(run.model).of(view.name).weight.detach().numpy()
        total += view.scores_without(weight, EncodedTexts([text], ids=[np.array(ids)]), groups, lambda: None)
    lost = log_odds_drop(total, 2, multilabel=False)
    times = Counter(number for _, number in words)
    assert [word.weight for word in found.words] == pytest.approx(
        [lost[number] / times[number] for _, number in words], abs=1e-4
    )


def test_words_that_are_composed_with_the_word_before_are_not_missed() -> None:
    """A voicing mark is a word of its own to a reader of code points, but no character of the normalised text."""
    split, whole = "か\u3099ラス", "がラス"
    for kind in TEXT_KINDS:
        own = Labeller.of(text_classifier(kind))
        [first], [second] = explain(own, [split]), explain(own, [whole])
        weights = [word.weight for word in first.words]
        assert weights[1] == 0
        assert [weights[0], *weights[2:]] == pytest.approx([word.weight for word in second.words], abs=1e-5)
