"""The dials of a preset that commands let their users turn. Nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass

from rehead.options import flag

DIALS = ("nhid", "nlayers", "nhead")


@dataclass(kw_only=True)
class DialOptions:
    """Sizes of a model, where they are not to be the preset's own."""

    nhid: int | None = flag(None, metavar="N")
    "Width of the hidden states (default: the preset's own)."

    nlayers: int | None = flag(None, metavar="N")
    "Number of layers (default: the preset's own)."

    nhead: int | None = flag(None, metavar="N")
    "Number of attention heads (default: the preset's own)."

    def turned(self) -> dict[str, int]:
        """Give the dials that were turned, as `preset` takes them."""
        return {name: value for name in DIALS if (value := getattr(self, name)) is not None}
