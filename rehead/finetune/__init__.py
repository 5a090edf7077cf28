"""Base + labels → a classifier. Without a base, one is pretrained first.

The package can be called: `rehead.finetune("labelled.csv", base="runs/base", out="runs/classifier")` is
`rehead.finetune.run.finetune(…)`.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rehead.runs.run import Run


class _Room(types.ModuleType):
    """A package that does what its name says when it is called."""

    def __call__(self, *arguments: Any, **options: Any) -> Run:  # noqa: ANN401 (those of `finetune`)
        from rehead.finetune.run import finetune

        return finetune(*arguments, **options)


sys.modules[__name__].__class__ = _Room
