"""Pretrain on the text you have, re-head it for the labels you need, on the machine in front of you.

The public names are imported on first use, so that `import rehead` and `rehead --help` stay light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rehead import finetune, pretrain
    from rehead.finetune.estimator import TextClassifier
    from rehead.model import preset, presets
    from rehead.runs.run import Run, load, save

__version__ = "0.1.0"

__all__ = ["Run", "TextClassifier", "__version__", "finetune", "load", "preset", "presets", "pretrain", "save"]


def __getattr__(name: str) -> object:
    if name in ("finetune", "pretrain"):
        import importlib

        return importlib.import_module(f"rehead.{name}")
    if name == "TextClassifier":
        from rehead.finetune.estimator import TextClassifier

        return TextClassifier
    if name in ("Run", "load", "save"):
        import rehead.runs.run

        return getattr(rehead.runs.run, name)
    if name in __all__:
        import rehead.model

        return getattr(rehead.model, name)
    raise AttributeError(f"module 'rehead' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
