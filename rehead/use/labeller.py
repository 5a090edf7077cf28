"""A classifier at work: texts in, probabilities and labels out. What predicting, explaining and serving share.

    labeller = Labeller.open("runs/classifier")
    given = labeller.probabilities(["What a film!"])  # (1, K)
    labeller.labels(given)                            # [("positive",)]

Everything is chosen as fine-tuning has settled it: calibrated probabilities, and of several labels their thresholds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.errors import UserError
from rehead.finetune.metrics import predicted_labels
from rehead.model.config import Classifier
from rehead.runs.run import Run, load
from rehead.runs.scoring import class_probabilities, encode, encoded_probabilities
from rehead.views.encoded import EncodedTexts

if TYPE_CHECKING:
    from numpy.typing import NDArray

Labels = tuple[str, ...]


@dataclass
class Labeller:
    """A run that gives texts labels."""

    run: Run
    names: list[str]
    "The labels, in the order of the probabilities."
    multilabel: bool
    "Whether a text may have any number of labels."
    thresholds: NDArray[np.float64] | None
    "Of several labels: the probability from which on each is given; None: one half."

    @classmethod
    def open(cls, path: str | Path) -> Labeller:
        """Load the run; say what it is, if it is no classifier."""
        run = load(path)
        if run.labels is None:
            raise UserError(f"{path} is no classifier: it has no labels. Make one of it with rehead finetune --from.")
        return cls.of(run)

    @classmethod
    def of(cls, run: Run) -> Labeller:
        """Take a run that is loaded already, and has labels."""
        names, head = run.labels or [], run.model.head_config
        thresholds = run.details.get("thresholds")
        given = None if thresholds is None else np.array(thresholds, np.float64)
        if given is not None and given.shape != (len(names),):
            raise UserError(
                f"details: thresholds has {given.size} numbers for {len(names)} labels. Fine-tune the run again."
            )
        return cls(run, list(names), isinstance(head, Classifier) and head.multilabel, given)

    def probabilities(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Give the probability of each label for each text: (N, K). They sum to 1, unless there may be several."""
        return class_probabilities(self.run, texts)

    def encode(self, texts: Sequence[str]) -> EncodedTexts:
        """Tokenize texts on all cores: the first half of `probabilities`, for a thread of its own."""
        return encode(self.run, texts)

    def probabilities_of(self, texts: EncodedTexts) -> NDArray[np.float32]:
        """Give the probability of each label for texts that are tokenized already: (N, K)."""
        return encoded_probabilities(self.run, texts)

    def labels(self, probabilities: NDArray[Any], sure: float = 0.0) -> list[Labels | None]:
        """Choose labels by their probabilities (N, K); None for a text of which the classifier is less than `sure`.

        Of one label each, it is as sure as the probability of the likeliest one. Of several, as sure as it is of the
        one it doubts most: the larger of the probabilities that it is there and that it is not.
        """
        chosen = predicted_labels(probabilities, multilabel=self.multilabel, thresholds=self.thresholds)
        if self.multilabel:
            found = [tuple(self.names[place] for place in np.flatnonzero(row)) for row in chosen]
            confidence = np.maximum(probabilities, 1 - probabilities).min(1, initial=1.0)
        else:
            found = [(self.names[place],) for place in chosen]
            confidence = probabilities.max(1, initial=0.0)
        return [labels if each >= sure else None for labels, each in zip(found, confidence, strict=True)]
