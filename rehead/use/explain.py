"""Which words carried a decision: what the classifier would say without each of them.

    first = explain(labeller, ["What a dull film."])[0]
    first.label, first.probability                                        # negative, 0.93
    [(first.text[each.begin : each.end], each.weight) for each in first.words]   # … ("dull", 2.1) …

A word's weight is by how much the label's log-odds fall when the word is taken out. So it is towards the label if it is
above 0, and against it if below; 0.7 halves the odds. Weights do not add up to the log-odds: words work together.

Where no layer reads, a word is taken out wherever it stands in the text, and its places share what that does: such a
classifier reads which words there are, and one "great" of two would not be missed. Layers read each where it stands.

Checked by deleting: without its heaviest words a text loses its label far sooner than without random ones. How other
ways fare that were tried: docs/experiments/explaining.md, bench/explain.py.
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
    """A word of a text, and what it did."""

    begin: int
    end: int
    "Where it stands in the text, in characters; the end is exclusive."
    weight: float
    "By how much the label's log-odds fall without it: towards the label (above 0), or against it."


@dataclass(frozen=True)
class Explanation:
    """A text, the label that is explained, and all its words in their order."""

    text: str
    label: str
    probability: float
    words: list[Word]
    given: str | None = None
    "What the text is given, where that is not the label that is explained."

    def as_json(self) -> dict[str, Any]:
        """Give it as JSON holds it. Places are in characters (code points), and each word stands there itself, too."""
        words = [{"word": self.text[each.begin : each.end], **asdict(each)} for each in self.words]
        return {"text": self.text, "label": self.label, "probability": self.probability, "words": words}


def explain(
    labeller: Labeller, texts: Sequence[str], *, label: str | None = None, progress: Callable[[], None] = lambda: None
) -> list[Explanation]:
    """Explain the label of each text, or what speaks for and against the one that is named.

    Where a text may have several labels, it is the likeliest of those it is given; of all, if it is given none.
    `progress` is called again and again while layers read; an exception it raises ends the work.
    """
    if label is not None and label not in labeller.names:
        raise UserError(f"there is no label {short_repr(label)}. Choose one of: {', '.join(labeller.names)}.")
    probabilities = labeller.probabilities(texts)
    given = labeller.labels(probabilities)
    explanations = []
    for text, row, labels in zip(texts, probabilities, given, strict=True):
        among = [label] if label is not None else [*(labels or labeller.names)]
        chosen = max((labeller.names.index(name) for name in among), key=lambda place: row[place])
        spans, weights = word_weights(labeller, text, chosen, progress)
        words = [Word(*span, float(weight)) for span, weight in zip(spans, weights, strict=True)]
        explanations.append(Explanation(text, labeller.names[chosen], float(row[chosen]), words))
    return explanations


def word_weights(
    labeller: Labeller, text: str, label: int, progress: Callable[[], None] = lambda: None
) -> tuple[list[Span], NDArray[np.float64]]:
    """Find the words of a text, and what each does to a label's log-odds."""
    run = labeller.run
    if run.tokenizer is None:
        raise UserError("this classifier has no tokenizer, so it cannot read a text. Save one beside its weights.")
    encoded, tokens = run.tokenizer.encode_with_spans(text)
    spans = word_spans(text)
    document = EncodedTexts([text], ids=[np.array(encoded, np.int64)])
    numbers: dict[str, int] = {}
    word = np.array([numbers.setdefault(text[begin:end].casefold(), len(numbers)) for begin, end in spans], np.int64)
    touch = align_tokens(tokens, spans)
    # A view that ignores order loses a word wherever it stands; one that does not loses it at one place.
    everywhere = Groups(touch.token, word[touch.word], len(numbers))
    in_place = Groups(touch.token, touch.word, len(spans))
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
    weights = _shared(fall(by_word + by_place[0], label, multilabel=labeller.multilabel), word)
    if by_place.any():
        weights = weights + fall(by_place - by_place[0] + whole, label, multilabel=labeller.multilabel)
    return spans, weights


def fall(scores: NDArray[np.float64], label: int, *, multilabel: bool) -> NDArray[np.float64]:
    """Say by how much a label's log-odds fall from the first row of scores (1 + G, K) to each of the others: (G,)."""
    odds = log_odds(scores, label, multilabel=multilabel)
    lost: NDArray[np.float64] = odds[0] - odds[1:]
    return lost


def _shared(together: NDArray[np.float64], word: NDArray[np.int64]) -> NDArray[np.float64]:
    """Share out what different words do among the places where they stand."""
    shares: NDArray[np.float64] = (together / np.maximum(np.bincount(word, minlength=len(together)), 1))[word]
    return shares


def log_odds(scores: NDArray[np.float64], label: int, *, multilabel: bool) -> NDArray[np.float64]:
    """Give log(p / (1 - p)) of a label, out of scores (N, K): (N,)."""
    if multilabel:
        return scores[:, label]
    others = np.delete(scores, label, axis=1)
    highest = others.max(1)
    given: NDArray[np.float64] = scores[:, label] - highest - np.log(np.exp(others - highest[:, None]).sum(1))
    return given
