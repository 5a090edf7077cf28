"""The ways to a classifier that cross-validation chooses among. A new one is one file, and one line here."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rehead.finetune.candidates.candidate import Propose

CANDIDATES = ("linear", "self_training", "network", "encoder")
"Modules with a function `propose`, in the order in which they are tried: each is compared with the best so far."


def proposal(name: str) -> Propose:
    """Import a candidate when it is tried: a frozen linear classifier does not wait for the training loop."""
    propose: Propose = importlib.import_module(f"rehead.finetune.candidates.{name}").propose
    return propose
