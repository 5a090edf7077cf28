"""The model (tokens → hidden states → logits), its layers and heads, and its parameter count.

Names are imported on first use: `preset` and `accounting` do not load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rehead.model.base import Base
    from rehead.model.config import Classifier, LanguageModel, ModelConfig, preset, presets
    from rehead.model.masks import padding_mask, square_mask
    from rehead.model.model import HeadChange, Model

_HOME = {
    "Base": "base",
    "Classifier": "config",
    "HeadChange": "model",
    "LanguageModel": "config",
    "Model": "model",
    "ModelConfig": "config",
    "padding_mask": "masks",
    "preset": "config",
    "presets": "config",
    "square_mask": "masks",
}

__all__ = [  # noqa: RUF022 (from configuration to model)
    "ModelConfig", "LanguageModel", "Classifier", "preset", "presets", "square_mask", "padding_mask",
    "Base", "Model", "HeadChange",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(importlib.import_module(f"rehead.model.{_HOME[name]}"), name)
    raise AttributeError(f"module 'rehead.model' has no attribute {name!r}")
