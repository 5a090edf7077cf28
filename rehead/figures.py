"""The style of all figures, and saving them as PNG and SVG.

All use the colour map cividis, which is perceptually uniform and safe for colour-blind readers; dark means low.
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

# Fallbacks for scripts that matplotlib's default font lacks; those that are installed are used.
FALLBACK_FONTS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans Arabic", "Noto Sans Devanagari", "Arial Unicode MS",
    "Hiragino Sans", "Microsoft YaHei", "Segoe UI Emoji",
)  # fmt: skip


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Use the project's matplotlib style, ignoring the user's matplotlibrc."""
    _require_matplotlib()
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
        "svg.fonttype": "none",  # keep text as text, so that it can be searched and copied
        "svg.hashsalt": "rehead",  # deterministic ids: the same figure gives the same file
    }
    with matplotlib.style.context(["default", settings]):
        yield


class SavedFigures(NamedTuple):
    """The files that were written, and notes for the user."""

    paths: list[Path]
    notes: list[str]


@style()
def save_figures(figures: Mapping[str, Figure], directory: Path, *, overwrite: bool = False) -> SavedFigures:
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
        raise UserError(f"{directory}: cannot write figures ({error.strerror}).") from None
    missing_glyphs = any("Glyph" in str(each.message) for each in caught)
    note = "no installed font has some of these characters: the PNG shows boxes for them, the SVG keeps the text"
    return SavedFigures(paths, [note] if missing_glyphs else [])


def new_figure(width: float, height: float) -> Figure:
    """Create an empty figure; sizes are in inches."""
    _require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def _require_matplotlib() -> None:
    """Import matplotlib, or say what to install or repair."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UserError("figures need matplotlib: pip install 'rehead[plots]'.") from None
    except ValueError as error:
        raise UserError(f"matplotlib cannot start: {error}. Check MPLBACKEND and matplotlibrc.") from None
