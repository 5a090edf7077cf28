"""How pictures look, and how they are saved: each as PNG to look at and SVG to print.

One scale of colours throughout (cividis: even to the eye, and the same to a colour-blind one), dark for little.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rehead.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = "cividis"
INK = "#22303c"

# Scripts that matplotlib's own font lacks are drawn from one of these, where the machine has it.
FALLBACK_FONTS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans Arabic", "Noto Sans Devanagari", "Arial Unicode MS",
    "Hiragino Sans", "Microsoft YaHei", "Segoe UI Emoji",
)  # fmt: skip


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Draw in the project's style, whatever the user's own is."""
    _matplotlib()
    import matplotlib.style
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    settings = {
        "font.family": ["DejaVu Sans", *(name for name in FALLBACK_FONTS if name in installed)],
        "font.size": 10,
        "axes.titlesize": 11,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "svg.fonttype": "none",  # words stay words, to be searched and copied
        "svg.hashsalt": "rehead",  # and two drawings of one figure are the same file
    }
    with matplotlib.style.context(["default", settings]):  # whatever the user's own style
        yield


class Saved(NamedTuple):
    """Where pictures went, and what there is to say about them."""

    paths: list[Path]
    notes: list[str]


@style()
def save_figures(figures: Mapping[str, Figure], directory: Path, *, overwrite: bool = False) -> Saved:
    """Write every figure as NAME.png and NAME.svg; the same figure gives the same bytes."""
    paths = [directory / f"{name}.{kind}" for name in figures for kind in ("png", "svg")]
    if not overwrite and (there := next((path for path in paths if path.exists()), None)):
        raise UserError(f"{there} exists already. Choose another directory, or add --overwrite.")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for name, figure in figures.items():
                figure.savefig(directory / f"{name}.png", dpi=160)
                figure.savefig(directory / f"{name}.svg", metadata={"Date": None})
    except OSError as error:
        raise UserError(f"{directory}: the pictures cannot be written there ({error.strerror}).") from None
    lacking = any("Glyph" in str(each.message) for each in caught)
    note = "no font on this machine has some of these characters: the PNG shows boxes for them, the SVG keeps the text"
    return Saved(paths, [note] if lacking else [])


def new_figure(width: float, height: float) -> Figure:
    """Begin a figure, in inches."""
    _matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def _matplotlib() -> None:
    """Say what to install where matplotlib is missing, or what is wrong where it cannot start."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UserError("pictures need matplotlib: pip install 'rehead[plots]'.") from None
    except ValueError as error:
        raise UserError(f"matplotlib cannot start: {error}. Check MPLBACKEND and matplotlibrc.") from None
