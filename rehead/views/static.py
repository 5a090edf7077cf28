"""A static table that others pretrained: a document is the mean of the vectors of its tokens or words."""

from __future__ import annotations

from rehead.views.brought import BroughtView


class StaticView(BroughtView):
    """Averaged vectors of a brought table."""

    name = "static"
    about = "the average of token vectors that others pretrained"
