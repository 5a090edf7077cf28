"""An encoder that others pretrained: a document is the vector that a Transformer in Hugging Face's format gives it."""

from __future__ import annotations

from rehead.views.brought import BroughtView


class EncoderView(BroughtView):
    """Vectors of a brought Transformer."""

    name = "encoder"
    about = "the vector of an encoder that others pretrained"
    word_order = True
