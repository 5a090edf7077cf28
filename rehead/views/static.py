"""A static table that others pretrained: a document is the mean of the vectors of its tokens or words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rehead.views.brought import BroughtView

if TYPE_CHECKING:
    from rehead.views.encoded import EncodedTexts
    from rehead.views.leave_out import Groups

LOOKED_UP = 16  # tokens that take no longer to look up than one to read through layers, at least


class StaticView(BroughtView):
    """Averaged vectors of a brought table."""

    name = "static"
    about = "the average of token vectors that others pretrained"

    def tokens_without(self, texts: EncodedTexts, groups: Groups) -> int:
        """Count tokens that are read again, which is only looking them up."""
        return super().tokens_without(texts, groups) // LOOKED_UP
