"""The sizes of a preset that commands let their users change. Nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass

from rehead.options import flag

DIALS = ("nhid", "nlayers", "nhead")


@dataclass(kw_only=True)
class DialOptions:
    """Sizes of a model that differ from its preset's."""

    GROUP = "model"

    nhid: int | None = flag(None, metavar="N")
    "Hidden size (default: the preset's)."

    nlayers: int | None = flag(None, metavar="N")
    "Number of Transformer layers (default: the preset's)."

    nhead: int | None = flag(None, metavar="N")
    "Number of attention heads; they must divide the hidden size (default: the preset's)."

    def turned(self) -> dict[str, int]:
        """Give the sizes that were set, as `preset` takes them."""
        return {name: value for name in DIALS if (value := getattr(self, name)) is not None}
