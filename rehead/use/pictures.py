"""Pictures of a model: its mask, its positions, its attention. They are saved by `rehead.figures`."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from rehead.errors import UserError
from rehead.figures import COLOURS, INK, new_figure, style
from rehead.model.config import ModelConfig
from rehead.model.masks import square_mask
from rehead.model.model import Model
from rehead.model.positions import Learned, rotary_turns, sinusoidal_table
from rehead.runs.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

HIDDEN = "#e4e8ec"
MASK_SIZE = 12  # positions in the picture of the mask: enough to see the stair, few enough to read the numbers
MOST_TOKENS = 40  # in a picture of attention, so that the words beside it can be read
MOST_SQUARES, MOST_ACROSS = 24, 8  # layers × heads in one picture, and side by side
MOST_POSITIONS = 128


@style()
def draw_mask(n: int = MASK_SIZE) -> Figure:
    """The square mask: row i is what position i may read."""
    mask = square_mask(n)
    figure = new_figure(5.6, 5.4)
    axes = figure.add_subplot()
    axes.imshow(mask.isinf().numpy(), cmap="cividis_r", vmin=-0.35, vmax=1.2)
    for row in range(n):
        for column in range(n):
            hidden = bool(mask[row, column].isinf())
            axes.text(
                column, row, "−∞" if hidden else "0", ha="center", va="center", fontsize=9,
                color="white" if hidden else INK,
            )  # fmt: skip
    axes.set_title(f"square_mask({n}): 0 may be read, −∞ may not", loc="left")
    axes.set_xlabel("position that is read")
    axes.set_ylabel("position that reads")
    axes.set_xticks(range(n))
    axes.set_yticks(range(n))
    _grid(axes, n)
    return figure


@style()
def draw_positions(config: ModelConfig, model: Model | None = None) -> Figure:
    """Positions as a heat map, and how alike two positions are by their distance.

    Learned positions are those of the model, which has to be given for them.
    """
    values, title, unit = _position_values(config, model)
    figure = new_figure(11.0, 4.6)
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    bound = float(values.abs().max()) or 1.0
    image = left.imshow(values.numpy(), aspect="auto", cmap=COLOURS, vmin=-bound, vmax=bound, interpolation="nearest")
    left.set_title(f"{title} (the first {len(values)})", loc="left")
    left.xaxis.get_major_locator().set_params(integer=True)
    left.set_xlabel(unit)
    left.set_ylabel("position")
    figure.colorbar(image, ax=left, pad=0.02, label="value")

    distances, mean, low, high = similarity_by_distance(_vectors(values, config))
    right.plot(distances, mean, color=INK, linewidth=1.8, label="mean of all pairs")
    if max(above - below for above, below in zip(high, low, strict=True)) > 0.01:
        right.fill_between(distances, low, high, color="#9fb3c8", linewidth=0, label="least and most of all pairs")
        right.legend(frameon=False, loc="upper right")
    right.axhline(0, color="#8899a6", linewidth=0.8)
    right.set_title("how alike two positions are", loc="left")
    right.set_xlabel("distance between them")
    right.set_ylabel("cosine")
    right.set_xlim(0, max(1, distances[-1]))
    right.set_ylim(min(-0.1, min(low) - 0.05), 1.05)
    for side in ("top", "right"):
        right.spines[side].set_visible(False)
    return figure


def similarity_by_distance(vectors: Tensor) -> tuple[list[int], list[float], list[float], list[float]]:
    """Cosine of positions d apart: vectors (positions, width) → distances, and the mean, least and most at each."""
    unit = vectors / vectors.norm(dim=1, keepdim=True).clamp_min(1e-12)
    cosine = unit @ unit.T
    pairs = [cosine.diagonal(distance) for distance in range(len(vectors))]
    return (
        list(range(len(vectors))),
        [float(each.mean()) for each in pairs],
        [float(each.min()) for each in pairs],
        [float(each.max()) for each in pairs],
    )


@style()
def draw_attention(run: Run, text: str, causal: bool) -> dict[str, Figure]:
    """Who looks at whom: a square for each layer and head, over the tokens of the text.

    One figure, a row per layer, or, for a model with many heads in all, one figure per layer.
    """
    config = run.model.config
    if not config.nlayers:
        raise UserError("this model has no layers, so there is no attention to draw. Use a run with layers.")
    if run.tokenizer is None:
        raise UserError("this run has no tokenizer, so --text cannot be read.")
    ids = run.tokenizer.encode(text)
    if not ids:
        raise UserError("--text has no tokens. Give a few words.")
    shown = ids[:MOST_TOKENS]
    with torch.no_grad():
        _, layers = run.model.base.attention(torch.tensor([shown]), causal=causal)
    words = [_label(word) for word in run.tokenizer.readable(shown)]
    how = "each token reads itself and those before it (grey: masked)" if causal else "each token reads all"
    more = f"; the first {MOST_TOKENS} of {len(ids)} tokens" if len(ids) > MOST_TOKENS else ""
    squares = {
        (layer, head): weights[0, head] for layer, weights in enumerate(layers, 1) for head in range(config.nhead)
    }
    if len(squares) <= MOST_SQUARES:
        return {
            "attention": _squares(squares, words, causal, f"attention: {how}{more}", min(config.nhead, MOST_ACROSS))
        }
    return {
        f"attention-layer-{layer:02}": _squares(
            {place: weights for place, weights in squares.items() if place[0] == layer},
            words,
            causal,
            f"attention of layer {layer} of {config.nlayers}: {how}{more}",
            min(config.nhead, MOST_ACROSS),
        )
        for layer in range(1, config.nlayers + 1)
    }


def _squares(
    squares: Mapping[tuple[int, int], Tensor], words: list[str], causal: bool, title: str, across: int
) -> Figure:
    """Draw attention squares (T, T) side by side, `across` in a row, with the words along the edges."""
    down = -(-len(squares) // across)
    side = max(2.3, 0.17 * len(words))
    edge = 0.085 * max(map(len, words))
    width, height = side * across + edge + 1.8, (side + 0.35) * down + edge + 1.2
    hidden = square_mask(len(words)).isinf() if causal else torch.tensor(False)
    highest = max(float(each.max()) for each in squares.values())
    figure = new_figure(width, height)
    grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    for axes in grid.flat[len(squares) :]:
        axes.set_visible(False)
    for axes, ((layer, head), weights) in zip(grid.flat, squares.items(), strict=False):
        visible = weights.masked_fill(hidden, torch.nan).numpy()
        image = axes.imshow(visible, cmap=COLOURS, vmin=0, vmax=highest, interpolation="nearest")
        axes.set_facecolor(HIDDEN)
        axes.set_title(f"layer {layer}, head {head + 1}", loc="left", fontsize=9)
        axes.tick_params(length=0)
        axes.set_xticks(range(len(words)), words, rotation=90, fontsize=8)
        axes.set_yticks(range(len(words)), words, fontsize=8)
        for tick in (*axes.get_xticklabels(), *axes.get_yticklabels()):
            tick.set_parse_math(False)  # "$" is a word here, not a formula
    figure.suptitle(textwrap.fill(title, int(10 * width)), x=0.01, ha="left", fontsize=11)
    figure.supxlabel("token that is read", fontsize=9)
    figure.supylabel("token that reads", fontsize=9)
    figure.colorbar(image, ax=grid, label="attention weight (each row adds up to 1)", pad=0.02, shrink=0.6, aspect=30)
    return figure


def _position_values(config: ModelConfig, model: Model | None) -> tuple[Tensor, str, str]:
    """What there is to see of the positions, (positions, columns), with a title and the name of the columns."""
    if config.positions == "sinusoidal":
        return sinusoidal_table(MOST_POSITIONS, config.nhid), "sinusoidal positions", "column of the hidden state"
    if config.positions == "rotary":
        width = config.nhid // config.nhead
        cosine, _ = rotary_turns(torch.arange(MOST_POSITIONS)[None], width)
        return cosine[0, 0, :, : width // 2], "rotary positions: cosine of the turn", "pair of columns of a head"
    learned = None if model is None else model.base.positions
    if not isinstance(learned, Learned):
        raise UserError("learned positions are drawn from a run: rehead inspect RUN --plots DIR.")
    return learned.weight.detach()[:MOST_POSITIONS], "learned positions", "column of the hidden state"


def _vectors(values: Tensor, config: ModelConfig) -> Tensor:
    """Vectors whose cosine is the likeness. A turn is a cosine and a sine; a rotary score depends on both."""
    if config.positions != "rotary":
        return values
    cosine, sine = rotary_turns(torch.arange(len(values))[None], config.nhid // config.nhead)
    return torch.cat((cosine[0, 0], sine[0, 0]), dim=1)


def _label(piece: str) -> str:
    """Show a token so that it can be told from its neighbours: spaces visible, line breaks named, not too long."""
    shown = "".join(each if each.isprintable() else repr(each)[1:-1] for each in piece.replace(" ", "▁"))
    return shown if len(shown) <= 16 else shown[:15] + "…"


def _grid(axes: Axes, n: int) -> None:
    axes.set_xticks([each - 0.5 for each in range(n + 1)], minor=True)
    axes.set_yticks([each - 0.5 for each in range(n + 1)], minor=True)
    axes.grid(which="minor", color="white", linewidth=1)
    axes.tick_params(which="both", length=0)
