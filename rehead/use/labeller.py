"""A loaded classifier: texts in, probabilities and labels out. Shared by predict, evaluate, explain and serve.

    labeller = Labeller.open("runs/classifier")
    given = labeller.probabilities(["What a film!"])  # (1, K)
    labeller.labels(given)                            # [("positive",)]

Probabilities are calibrated, and decisions follow the rule tuned in fine-tuning (`rehead.finetune.thresholds`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.errors import UserError
from rehead.finetune.metrics import DecisionRule, predicted_labels
from rehead.model.config import Classifier
from rehead.runs.run import Run, load
from rehead.runs.scoring import class_probabilities, encode, encoded_probabilities
from rehead.views.encoded import EncodedTexts

if TYPE_CHECKING:
    from numpy.typing import NDArray

Labels = tuple[str, ...]


@dataclass
class Labeller:
    """A classifier run, ready to label texts."""

    run: Run
    names: list[str]
    "The labels, in the order of the probabilities."
    multilabel: bool
    "Whether a text may have any number of labels."
    rule: DecisionRule
    "How probabilities become labels."

    @classmethod
    def open(cls, path: str | Path) -> Labeller:
        """Load a run; raise if it is not a classifier."""
        run = load(path)
        if run.labels is None:
            raise UserError(
                f"{path} is not a classifier: it has no labels. Make one with rehead finetune --from {path}."
            )
        return cls.of(run)

    @classmethod
    def of(cls, run: Run) -> Labeller:
        """Wrap a loaded run, which has labels."""
        names, head = run.labels or [], run.model.head_config
        rule = DecisionRule.of(run.details)
        if rule.thresholds is not None and len(rule.thresholds) != len(names):
            raise UserError(
                f"details: thresholds has {len(rule.thresholds)} numbers for {len(names)} labels. Fine-tune the run "
                "again."
            )
        return cls(run, list(names), isinstance(head, Classifier) and head.multilabel, rule)

    def probabilities(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Predict the probability of each label for each text: (N, K). Rows sum to 1, unless multilabel."""
        return class_probabilities(self.run, texts)

    def encode(self, texts: Sequence[str]) -> EncodedTexts:
        """Tokenise texts on all cores: the first half of `probabilities`, which can run in its own thread."""
        return encode(self.run, texts)

    def probabilities_of(self, texts: EncodedTexts) -> NDArray[np.float32]:
        """Predict the probability of each label for tokenised texts: (N, K)."""
        return encoded_probabilities(self.run, texts)

    def labels(self, probabilities: NDArray[Any], min_confidence: float = 0.0) -> list[Labels | None]:
        """Decide labels by probabilities (N, K); None for a text below `min_confidence`.

        Confidence is the probability of the predicted class; multilabel: the minimum of max(p, 1 − p) over the labels.
        """
        chosen = predicted_labels(probabilities, multilabel=self.multilabel, rule=self.rule)
        if self.multilabel:
            found = [tuple(self.names[place] for place in np.flatnonzero(row)) for row in chosen]
            confidence = np.maximum(probabilities, 1 - probabilities).min(1, initial=1.0)
        else:
            found = [(self.names[place],) for place in chosen]
            confidence = probabilities[np.arange(len(chosen)), chosen]
        return [labels if each >= min_confidence else None for labels, each in zip(found, confidence, strict=True)]
