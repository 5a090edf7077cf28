"""Command-line options that override the sizes of a model preset. Nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass

from rehead.options import flag

SIZES = ("nhid", "nlayers", "nhead")


@dataclass(kw_only=True)
class ModelSizeOptions:
    """Model sizes that override those of the preset."""

    GROUP = "model"

    nhid: int | None = flag(None, metavar="N")
    "Hidden size (default: the preset's)."

    nlayers: int | None = flag(None, metavar="N")
    "Number of Transformer layers (default: the preset's)."

    nhead: int | None = flag(None, metavar="N")
    "Number of attention heads; they must divide the hidden size (default: the preset's)."

    def changed_sizes(self) -> dict[str, int]:
        """Return the sizes that were set, as keyword arguments of `preset`."""
        return {name: value for name in SIZES if (value := getattr(self, name)) is not None}
