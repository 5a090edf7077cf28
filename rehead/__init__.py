"""Pretrain on the text you have, re-head it for the labels you need, on the machine in front of you.

The public names are imported on first use, so that `import rehead` and `rehead --help` stay light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rehead.model import load, preset, presets

__version__ = "0.1.0"

__all__ = ["__version__", "load", "preset", "presets"]


def __getattr__(name: str) -> object:
    if name in ("load", "preset", "presets"):
        import rehead.model

        return getattr(rehead.model, name)
    raise AttributeError(f"module 'rehead' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
