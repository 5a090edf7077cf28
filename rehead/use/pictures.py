"""Figures of a model: its causal mask, position encodings and attention. `rehead.figures` saves them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from rehead.errors import UserError
from rehead.figures import COLOURS, INK, new_figure, style
from rehead.model.config import ModelConfig
from rehead.model.masks import square_mask
from rehead.model.model import Model
from rehead.model.positions import Learned, rotary_cos_sin, sinusoidal_table
from rehead.runs.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

HIDDEN = "#e4e8ec"
MASK_SIZE = 12  # positions in the figure of the mask: few enough to read the numbers
MAX_TOKENS = 40  # in a figure of attention, so that its labels are readable
MAX_PANELS, MAX_COLUMNS = 24, 8  # layers × heads in one figure, and side by side
MAX_POSITIONS = 128


@style()
def draw_mask(n: int = MASK_SIZE) -> Figure:
    """Draw the causal mask: row i shows what position i may attend to."""
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
    axes.set_title(f"square_mask({n}): 0 is visible, −∞ is masked", loc="left")
    axes.set_xlabel("key position")
    axes.set_ylabel("query position")
    axes.set_xticks(range(n))
    axes.set_yticks(range(n))
    _grid(axes, n)
    return figure


@style()
def draw_positions(config: ModelConfig, model: Model | None = None) -> Figure:
    """Draw position encodings as a heat map, and their cosine similarity by distance.

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
    right.plot(distances, mean, color=INK, linewidth=1.8, label="mean over pairs")
    if max(above - below for above, below in zip(high, low, strict=True)) > 0.01:
        right.fill_between(distances, low, high, color="#9fb3c8", linewidth=0, label="range over pairs")
        right.legend(frameon=False, loc="upper right")
    right.axhline(0, color="#8899a6", linewidth=0.8)
    right.set_title("similarity of two positions", loc="left")
    right.set_xlabel("distance")
    right.set_ylabel("cosine similarity")
    right.set_xlim(0, max(1, distances[-1]))
    right.set_ylim(min(-0.1, min(low) - 0.05), 1.05)
    for side in ("top", "right"):
        right.spines[side].set_visible(False)
    return figure


def similarity_by_distance(vectors: Tensor) -> tuple[list[int], list[float], list[float], list[float]]:
    """Cosine similarity by distance: vectors (positions, width) → distances; mean, minimum and maximum at each."""
    unit = vectors / vectors.norm(dim=1, keepdim=True).clamp_min(1e-12)
    cosine = unit @ unit.T
    pairs = [cosine.diagonal(distance) for distance in range(len(vectors))]
    return (
        list(range(len(vectors))),
        [float(each.mean()) for each in pairs],
        [float(each.min()) for each in pairs],
        [float(each.max()) for each in pairs],
    )


def draw_attention(run: Run, text: str, causal: bool) -> dict[str, Figure]:
    """Draw attention weights over the tokens of a text: one panel per layer and head.

    One figure with a row per layer or, for a model with many heads in total, one figure per layer.
    """
    config = run.model.config
    if not config.nlayers:
        raise UserError("this run has no layers, and so no attention to draw. Use a run with layers.")
    if run.tokenizer is None:
        raise UserError("this run has no tokenizer, so --text cannot be tokenized.")
    ids = run.tokenizer.encode(text)
    if not ids:
        raise UserError("--text has no tokens. Give a few words.")
    shown = ids[:MAX_TOKENS]
    with torch.no_grad():
        _, layers = run.model.base.attention(torch.tensor([shown]), causal=causal)
    return draw_weights([each[0] for each in layers], run.tokenizer.readable(shown), len(ids), causal=causal)


@style()
def draw_weights(layers: Sequence[Tensor], tokens: Sequence[str], total: int, *, causal: bool) -> dict[str, Figure]:
    """Draw attention weights (heads, T, T) of each layer over T tokens, the first of `total`."""
    words = [_label(word) for word in tokens]
    how = "each token attends to itself and earlier tokens (grey: masked)" if causal else "each token attends to all"
    more = f"; the first {len(words)} of {total} tokens" if total > len(words) else ""
    nhead = len(layers[0])
    panels = {(layer, head): weights[head] for layer, weights in enumerate(layers, 1) for head in range(nhead)}
    if len(panels) <= MAX_PANELS:
        return {"attention": _panels(panels, words, causal, f"attention: {how}{more}", min(nhead, MAX_COLUMNS))}
    return {
        f"attention-layer-{layer:02}": _panels(
            {place: weights for place, weights in panels.items() if place[0] == layer},
            words,
            causal,
            f"attention of layer {layer} of {len(layers)}: {how}{more}",
            min(nhead, MAX_COLUMNS),
        )
        for layer in range(1, len(layers) + 1)
    }


def _panels(
    panels: Mapping[tuple[int, int], Tensor], words: list[str], causal: bool, title: str, across: int
) -> Figure:
    """Draw attention weights (T, T) as panels, `across` in a row, with the tokens along the edges."""
    down = -(-len(panels) // across)
    side = max(2.3, 0.17 * len(words))
    edge = 0.085 * max(map(len, words))
    width, height = side * across + edge + 1.8, (side + 0.35) * down + edge + 1.2
    hidden = square_mask(len(words)).isinf() if causal else torch.tensor(False)
    highest = max(float(each.max()) for each in panels.values())
    figure = new_figure(width, height)
    grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for place, (axes, ((layer, head), weights)) in enumerate(zip(grid.flat, panels.items(), strict=False)):
        visible = weights.masked_fill(hidden, torch.nan).numpy()
        image = axes.imshow(visible, cmap=COLOURS, vmin=0, vmax=highest, interpolation="nearest")
        axes.set_facecolor(HIDDEN)
        axes.set_title(f"layer {layer}, head {head + 1}", loc="left", fontsize=9)
        axes.tick_params(length=0, labelbottom=place + across >= len(panels))  # the lowest of its column
        axes.set_xticks(range(len(words)), words, rotation=90, fontsize=8)
        axes.set_yticks(range(len(words)), words, fontsize=8)
        for tick in (*axes.get_xticklabels(), *axes.get_yticklabels()):
            tick.set_parse_math(False)  # "$" is a word here, not a formula
    figure.suptitle(textwrap.fill(title, int(10 * width)), x=0.01, ha="left", fontsize=11)
    figure.supxlabel("token attended to (key)", fontsize=9)
    figure.supylabel("attending token (query)", fontsize=9)
    figure.colorbar(image, ax=grid, label="attention weight (each row sums to 1)", pad=0.02, shrink=0.6, aspect=30)
    return figure


def _position_values(config: ModelConfig, model: Model | None) -> tuple[Tensor, str, str]:
    """Return the position encodings, (positions, columns), with a title and the name of the columns."""
    if config.positions == "sinusoidal":
        return sinusoidal_table(MAX_POSITIONS, config.nhid), "sinusoidal positions", "hidden dimension"
    if config.positions == "rotary":
        width = config.nhid // config.nhead
        cosine, _ = rotary_cos_sin(torch.arange(MAX_POSITIONS)[None], width)
        return cosine[0, 0, :, : width // 2], "rotary positions: cosine of the angle", "pair of dimensions of a head"
    learned = None if model is None else model.base.positions
    if not isinstance(learned, Learned):
        raise UserError("learned positions can be drawn for a run only: rehead inspect RUN --plots DIR.")
    return learned.weight.detach()[:MAX_POSITIONS], "learned positions", "hidden dimension"


def _vectors(values: Tensor, config: ModelConfig) -> Tensor:
    """Return the vectors to compare; for rotary positions, the cosines and sines of the angles."""
    if config.positions != "rotary":
        return values
    cosine, sine = rotary_cos_sin(torch.arange(len(values))[None], config.nhid // config.nhead)
    return torch.cat((cosine[0, 0], sine[0, 0]), dim=1)


def _label(piece: str) -> str:
    """Format a token as an axis label: visible spaces, escaped line breaks, shortened."""
    shown = "".join(each if each.isprintable() else repr(each)[1:-1] for each in piece.replace(" ", "▁"))
    return shown if len(shown) <= 16 else shown[:15] + "…"


def _grid(axes: Axes, n: int) -> None:
    axes.set_xticks([each - 0.5 for each in range(n + 1)], minor=True)
    axes.set_yticks([each - 0.5 for each in range(n + 1)], minor=True)
    axes.grid(which="minor", color="white", linewidth=1)
    axes.tick_params(which="both", length=0)
