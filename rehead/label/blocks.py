"""What texts were read as: dense features of one kind. Light: the page is served before torch is imported.

Shapes: W texts, D features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rehead.text.tokenizer import Tokenizer
    from rehead.views.view import View

    Floats = NDArray[np.float32]


@dataclass
class Block:
    """Features of one kind."""

    view: View
    tokenizer: Tokenizer | None
    matrix: Floats
    "(W, D), of unit length; of a text that the view sees nothing in, nearly zero."

    @property
    def name(self) -> str:
        """What the page calls it."""
        return self.view.name


def side_by_side(blocks: Sequence[Block]) -> Floats:
    """Join blocks: (W, D). Their matrices become parts of it, so that memory holds them once."""
    if len(blocks) == 1:
        return blocks[0].matrix
    found = np.concatenate([each.matrix for each in blocks], 1)
    begin = 0
    for each in blocks:
        width = each.matrix.shape[1]
        each.matrix = found[:, begin : begin + width]
        begin += width
    return found
