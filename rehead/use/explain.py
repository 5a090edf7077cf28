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

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
    """The explanation of a label of a text: all its words, in order."""

    text: str
    label: str
    probability: float
    words: list[Word]
    given: str | None = None
    "The predicted label, if another one is explained."

    def as_json(self) -> dict[str, Any]:
        """Convert to a JSON-compatible dict. Spans are in characters (code points); each word is included as text."""
        words = [{"word": self.text[each.begin : each.end], **asdict(each)} for each in self.words]
        return {"text": self.text, "label": self.label, "probability": self.probability, "words": words}


def explain(
    labeller: Labeller, texts: Sequence[str], *, label: str | None = None, progress: Callable[[], None] = lambda: None
) -> list[Explanation]:
    """Explain the predicted label of each text, or the given `label`.

    Multilabel: the most probable of the predicted labels; of all labels, if none is predicted. `progress` is called
    repeatedly while layers run; an exception that it raises aborts.
    """
    if label is not None and label not in labeller.names:
        raise UserError(f"there is no label {short_repr(label)}. Choose one of: {', '.join(labeller.names)}.")
    probabilities = labeller.probabilities(texts)
    predicted = labeller.labels(probabilities)
    explanations = []
    for text, row, labels in zip(texts, probabilities, predicted, strict=True):
        candidates = [label] if label is not None else [*(labels or labeller.names)]
        chosen = max((labeller.names.index(name) for name in candidates), key=lambda place: row[place])
        spans, weights = word_weights(labeller, text, chosen, progress)
        words = [Word(*span, float(weight)) for span, weight in zip(spans, weights, strict=True)]
        explanations.append(Explanation(text, labeller.names[chosen], float(row[chosen]), words))
    return explanations


def word_weights(
    labeller: Labeller, text: str, label: int, progress: Callable[[], None] = lambda: None
) -> tuple[list[Span], NDArray[np.float64]]:
    """Find the words of a text, and the weight of each for a label."""
    run = labeller.run
    encoded: list[int] = []
    tokens: list[Span] = []
    if run.tokenizer is not None:
        encoded, tokens = run.tokenizer.encode_with_spans(text)
    elif not run.model.config.empty:
        raise UserError(
            "the classifier has no tokenizer, so it cannot read text. Save tokenizer.json with its weights."
        )
    spans = word_spans(text)
    document = EncodedTexts([text], ids=[np.array(encoded, np.int64)])
    numbers: dict[str, int] = {}
    word = np.array([numbers.setdefault(text[begin:end].casefold(), len(numbers)) for begin, end in spans], np.int64)
    touch = align_tokens(tokens, spans)
    # A view without word order loses all occurrences of a word; one with word order loses a single occurrence.
    everywhere = Groups(touch.token, word[touch.word], len(numbers), list(zip(spans, word.tolist(), strict=True)))
    in_place = Groups(touch.token, touch.word, len(spans), list(zip(spans, range(len(spans)), strict=True)))
    head, bias = classifier_head(run.model), classifier_head(run.model).bias.detach().cpu().double().numpy()
    by_word, by_place = np.tile(bias, (1 + len(numbers), 1)), np.zeros((1 + len(spans), len(bias)))
    for view in open_views(run.model):
        groups = in_place if view.word_order else everywhere
        weight = head.of(view.name).weight.detach().cpu().numpy()
        scores = view.scores_without(weight, document, groups, progress)  # (1 + G, K)
        if view.word_order:
            by_place += scores
        else:
            by_word += scores
    whole = by_word[0] + by_place[0]
    weights = _split_equally(log_odds_drop(by_word + by_place[0], label, multilabel=labeller.multilabel), word)
    if by_place.any():
        weights = weights + log_odds_drop(by_place - by_place[0] + whole, label, multilabel=labeller.multilabel)
    return spans, weights


def log_odds_drop(scores: NDArray[np.float64], label: int, *, multilabel: bool) -> NDArray[np.float64]:
    """Compute the drop of a label's log-odds from the first row of scores (1 + G, K) to each other row: (G,)."""
    odds = log_odds(scores, label, multilabel=multilabel)
    lost: NDArray[np.float64] = odds[0] - odds[1:]
    return lost


def _split_equally(weights: NDArray[np.float64], word: NDArray[np.int64]) -> NDArray[np.float64]:
    """Split the weight of each distinct word equally among its occurrences."""
    split: NDArray[np.float64] = (weights / np.maximum(np.bincount(word, minlength=len(weights)), 1))[word]
    return split


def log_odds(scores: NDArray[np.float64], label: int, *, multilabel: bool) -> NDArray[np.float64]:
    """Compute the log-odds log(p / (1 - p)) of a label from scores (N, K): (N,)."""
    if multilabel:
        return scores[:, label]
    others = np.delete(scores, label, axis=1)
    highest = others.max(1)
    given: NDArray[np.float64] = scores[:, label] - highest - np.log(np.exp(others - highest[:, None]).sum(1))
    return given
