"""Explain predictions by word occlusion: how the score of a label changes without each word.

    first = explain(labeller, ["What a dull film."])[0]
    first.label, first.probability                                        # negative, 0.93
    [(first.text[each.begin : each.end], each.weight) for each in first.words]   # … ("dull", 2.1) …

A word's weight is the drop of the label's log-odds when the word is removed: positive if it supports the label,
negative if it opposes it; 0.7 halves the odds. Weights do not add up to the log-odds, since words interact.

In views without word order, all occurrences of a word are removed together, and share the drop equally: such a view is
a bag of words, and the second "great" of two would not be missed. In layers each occurrence is removed by itself.

Evaluated by deletion: removing the words with the largest weights changes the prediction far sooner than removing
random ones. For the alternatives that were tried, see docs/experiments/explaining.md and bench/explain.py.
"""

from __future__ import annotations

import bisect
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.errors import UserError, short_repr
from rehead.runs.scoring import classifier_head, open_views
from rehead.text.spans import Span, align_tokens, word_spans
from rehead.use.labeller import Labeller
from rehead.views.encoded import EncodedTexts
from rehead.views.leave_out import Groups
from rehead.views.view import count_tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


MIN_PASSAGES = 8  # of a text, to tell which of its words to explain; of fewer it would not be worth what they cost


@dataclass(frozen=True)
class Word:
    """A word of a text, with its weight."""

    begin: int
    end: int
    "Span in the text, in characters; the end is exclusive."
    weight: float
    "Drop of the label's log-odds without it: positive if it supports the label, negative if it opposes it."


@dataclass(frozen=True)
class Explanation:
    """The explanation of a label of a text: its words, in order; all of them, unless its cost was limited."""

    text: str
    label: str
    probability: float
    words: list[Word]
    given: str | None = None
    "The predicted label, if another one is explained."
    left: int = 0
    "Words that were not explained, because all of them would have cost too much."

    def as_json(self) -> dict[str, Any]:
        """Convert to a JSON-compatible dict. Spans are in characters (code points); each word is included as text."""
        words = [{"word": self.text[each.begin : each.end], **asdict(each)} for each in self.words]
        return {"text": self.text, "label": self.label, "probability": self.probability, "words": words}


def explain(
    labeller: Labeller,
    texts: Sequence[str],
    *,
    label: str | None = None,
    progress: Callable[[], None] = lambda: None,
    max_tokens: int | None = None,
    max_seconds: float | None = None,
) -> list[Explanation]:
    """Explain the predicted label of each text, or the given `label`.

    Multilabel: the most probable of the predicted labels; of all labels, if none is predicted. `progress` is called
    repeatedly while layers run; an exception that it raises aborts. `max_tokens` limits how many tokens are read again
    for one text, and `max_seconds` about how long that takes, at the speed of reading the texts once: if that is too
    little for all words, the words of the passages that matter most are explained.
    """
    if label is not None and label not in labeller.names:
        raise UserError(f"there is no label {short_repr(label)}. Choose one of: {', '.join(labeller.names)}.")
    began = time.perf_counter()
    probabilities = labeller.probabilities(texts)
    spent = time.perf_counter() - began
    predicted = labeller.labels(probabilities)
    documents = [_Document(labeller, text) for text in texts]
    budget = math.inf if max_tokens is None else float(max_tokens)
    if max_seconds is not None:
        budget = min(budget, max_seconds * sum(count_tokens(each.encoded) for each in documents) / spent)
    explanations = []
    for document, row, labels in zip(documents, probabilities, predicted, strict=True):
        candidates = [label] if label is not None else [*(labels or labeller.names)]
        chosen = max((labeller.names.index(name) for name in candidates), key=lambda place: row[place])
        explained = document.choose(chosen, budget, progress)
        weights = document.weights(explained, chosen, progress)
        pairs = zip((document.spans[place] for place in explained), weights, strict=True)
        words = [Word(begin, end, float(weight)) for (begin, end), weight in pairs]
        left = len(document.spans) - len(words)
        explanations.append(Explanation(document.text, labeller.names[chosen], float(row[chosen]), words, left=left))
    return explanations


def word_weights(labeller: Labeller, text: str, label: int) -> tuple[list[Span], NDArray[np.float64]]:
    """Find the words of a text, and the weight of each for a label."""
    document = _Document(labeller, text)
    return document.spans, document.weights(document.everything, label, lambda: None)


class _Document:
    """A text whose words are to be weighed."""

    def __init__(self, labeller: Labeller, text: str) -> None:
        run = labeller.run
        ids: list[int] = []
        tokens: list[Span] = []
        if run.tokenizer is not None:
            ids, tokens = run.tokenizer.encode_with_spans(text)
        elif not run.model.config.empty:
            raise UserError(
                "the classifier has no tokenizer, so it cannot read text. Save tokenizer.json with its weights."
            )
        self.text, self.spans, self.multilabel = text, word_spans(text), labeller.multilabel
        self.encoded = EncodedTexts([text], ids=[np.array(ids, np.int64)])
        self.everything = np.arange(len(self.spans))
        numbers: dict[str, int] = {}
        words = [numbers.setdefault(text[begin:end].casefold(), len(numbers)) for begin, end in self.spans]
        self.word = np.array(words, np.int64)
        "Which word, of all distinct ones, stands at each place."
        self.touch = align_tokens(tokens, self.spans)
        self.head, self.views = classifier_head(run.model), open_views(run.model)

    def choose(self, label: int, budget: float, progress: Callable[[], None]) -> Ints:
        """Choose the words that can be weighed within a number of tokens, by what leaving out passages changes.

        Half of the budget is for the passages: as many as it allows, of as many words each. The words of those that
        change the log-odds most are chosen. If it allows too few passages, the first words are.
        """
        whole = self._cost(*self._by_word(self.everything))
        if whole <= budget:
            return self.everything
        most, order = int(budget / whole * len(self.spans)), self.everything

        def passages(count: int) -> Groups:
            return self._groups(self.everything * count // len(self.spans), count)

        count = _largest(most, lambda count: self._cost(passages(count), passages(count)) <= budget / 2)
        if count >= MIN_PASSAGES:
            groups = passages(count)
            budget -= self._cost(groups, groups)
            by_word, by_place = self._scores(groups, groups, progress)
            drop = np.abs(log_odds_drop(by_word + by_place, label, multilabel=self.multilabel))
            order = np.lexsort((self.everything, -drop[self.everything * count // len(self.spans)]))
        return np.sort(order[: _largest(most, lambda count: self._cost(*self._by_word(order[:count])) <= budget)])

    def weights(self, places: Ints, label: int, progress: Callable[[], None]) -> NDArray[np.float64]:
        """Weigh the words at some places, in order."""
        if not len(places):
            return np.zeros(0)
        everywhere, in_place = self._by_word(places)
        by_word, by_place = self._scores(everywhere, in_place, progress)
        whole = by_word[0] + by_place[0]
        word = np.unique(self.word[places], return_inverse=True)[1]
        drops = log_odds_drop(by_word + by_place[0], label, multilabel=self.multilabel)
        share = np.maximum(np.bincount(self.word, minlength=1)[self.word[places]], 1)
        weights: NDArray[np.float64] = drops[word] / share
        if by_place.any():
            weights = weights + log_odds_drop(by_place - by_place[0] + whole, label, multilabel=self.multilabel)
        return weights

    def _by_word(self, places: Ints) -> tuple[Groups, Groups]:
        """Group by word. A view without word order loses all occurrences of it; one with word order a single one."""
        words = np.unique(self.word[places])
        number = np.searchsorted(words, self.word)
        number[~np.isin(self.word, words)] = -1
        place = np.full(len(self.spans), -1)
        place[places] = np.arange(len(places))
        return self._groups(number, len(words)), self._groups(place, len(places))

    def _groups(self, group: Ints, count: int) -> Groups:
        """Group the words, by a number for each; -1 is no group."""
        touched = group[self.touch.word]
        words = [(span, number) for span, number in zip(self.spans, group.tolist(), strict=True) if number >= 0]
        return Groups(self.touch.token[touched >= 0], touched[touched >= 0], count, words)

    def _cost(self, everywhere: Groups, in_place: Groups) -> int:
        """Count the tokens that are read to score without each group."""
        chosen = ((view, in_place if view.word_order else everywhere) for view in self.views)
        return sum(view.tokens_without(self.encoded, groups) for view, groups in chosen)

    def _scores(
        self, everywhere: Groups, in_place: Groups, progress: Callable[[], None]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Score without each group: by the views without word order, with the bias, and by the others: (1 + G, K)."""
        bias = self.head.bias.detach().cpu().double().numpy()
        by_word, by_place = np.tile(bias, (1 + everywhere.count, 1)), np.zeros((1 + in_place.count, len(bias)))
        for view in self.views:
            weight = self.head.of(view.name).weight.detach().cpu().numpy()
            groups = in_place if view.word_order else everywhere
            scores = view.scores_without(weight, self.encoded, groups, progress)  # (1 + G, K)
            if view.word_order:
                by_place += scores
            else:
                by_word += scores
        return by_word, by_place


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """Find the largest number up to `most` that fits, if smaller ones do: by bisection; 0 if none does."""
    return bisect.bisect_left(range(1, most + 1), True, key=lambda count: not fits(count))


def log_odds_drop(scores: NDArray[np.float64], label: int, *, multilabel: bool) -> NDArray[np.float64]:
    """Compute the drop of a label's log-odds from the first row of scores (1 + G, K) to each other row: (G,)."""
    odds = log_odds(scores, label, multilabel=multilabel)
    lost: NDArray[np.float64] = odds[0] - odds[1:]
    return lost


def log_odds(scores: NDArray[np.float64], label: int, *, multilabel: bool) -> NDArray[np.float64]:
    """Compute the log-odds log(p / (1 - p)) of a label from scores (N, K): (N,)."""
    if multilabel:
        return scores[:, label]
    others = np.delete(scores, label, axis=1)
    highest = others.max(1)
    given: NDArray[np.float64] = scores[:, label] - highest - np.log(np.exp(others - highest[:, None]).sum(1))
    return given
