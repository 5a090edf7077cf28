"""Unlabelled text → a base: one file per objective, and the run that uses them.

The package can be called: `rehead.pretrain("reviews.txt", out="runs/base")` is `rehead.pretrain.run.pretrain(…)`.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rehead.runs.run import Run


class _Room(types.ModuleType):
    """A package that does what its name says when it is called."""

    def __call__(self, *arguments: Any, **options: Any) -> Run:  # noqa: ANN401 (those of `pretrain`)
        from rehead.pretrain.run import pretrain

        return pretrain(*arguments, **options)


sys.modules[__name__].__class__ = _Room
