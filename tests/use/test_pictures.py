from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from rehead.errors import UserError
from rehead.figures import save_figures
from rehead.model import LanguageModel, square_mask
from rehead.model.positions import Learned, sinusoidal_table
from rehead.runs.run import Run
from rehead.use.pictures import (
    _label,
    draw_attention,
    draw_mask,
    draw_positions,
    similarity_by_distance,
)
from tests.model.conftest import alive, miniature
from tests.use.tiny_runs import tiny_tokenizer


def test_similarity_by_distance_by_hand() -> None:
    vectors = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    distances, mean, low, high = similarity_by_distance(vectors)
    assert distances == [0, 1, 2]
    assert mean == pytest.approx([1, 0, 1])
    assert low == pytest.approx([1, 0, 1])
    assert high == pytest.approx([1, 0, 1])


def test_sinusoidal_likeness_depends_on_the_distance_alone() -> None:
    _, mean, low, high = similarity_by_distance(sinusoidal_table(64, 32))
    assert low == pytest.approx(high, abs=1e-5)
    frequencies = 10_000 ** (-torch.arange(0, 32, 2) / 32)
    assert mean[5] == pytest.approx(float((5 * frequencies).cos().mean()), abs=1e-5)


def test_the_mask_that_is_drawn_is_the_mask() -> None:
    (image,) = draw_mask(5).axes[0].images
    assert np.array_equal(image.get_array(), square_mask(5).isinf().numpy())


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_the_positions_that_are_drawn_are_the_models(positions: str) -> None:
    model = alive(miniature("lab", positions=positions, maxlen=20))
    (image,) = draw_positions(model.config, model).axes[0].images
    learned = model.base.positions
    expected = learned.weight.detach() if isinstance(learned, Learned) else sinusoidal_table(128, 16)
    assert np.array_equal(image.get_array(), expected.numpy())


@pytest.mark.parametrize("causal", [True, False])
def test_the_attention_that_is_drawn_is_the_models(causal: bool) -> None:
    run = Run(alive(miniature("lab", nlayers=3), LanguageModel(tied=False)), tiny_tokenizer())
    (figure,) = draw_attention(run, "a truly good film", causal).values()
    with torch.no_grad():
        _, layers = run.model.base.attention(torch.tensor([[5, 6, 7, 8]]), causal=causal)
    squares = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title(loc="left") for axes in squares] == [
        f"layer {layer}, head {head}" for layer in (1, 2, 3) for head in (1, 2)
    ]
    for axes, (layer, head) in zip(squares, [(n, h) for n in range(3) for h in range(2)], strict=True):
        drawn = np.nan_to_num(np.ma.filled(axes.images[0].get_array(), 0.0))
        assert np.allclose(drawn, layers[layer][0, head].numpy(), atol=1e-6)
        words = [tick.get_text() for tick in axes.get_yticklabels()]
        assert words == (["a", "truly", "good", "film"] if head == 0 else [])  # at the edge of the grid


def test_many_heads_are_drawn_layer_by_layer() -> None:
    run = Run(alive(miniature("lab", nlayers=4, nhead=8, nhid=32), LanguageModel(tied=False)), tiny_tokenizer())
    figures = draw_attention(run, "a truly good film", causal=False)
    assert list(figures) == [f"attention-layer-0{layer}" for layer in (1, 2, 3, 4)]
    assert all(sum(bool(axes.images) for axes in figure.axes) == 8 for figure in figures.values())


def test_the_lowest_panel_of_every_column_has_labels() -> None:
    run = Run(alive(miniature("lab", nlayers=3, nhead=10, nhid=40), LanguageModel(tied=False)), tiny_tokenizer())
    figure = draw_attention(run, "a truly good film", causal=False)["attention-layer-01"]  # eight above two
    squares = [axes for axes in figure.axes if axes.images]
    labelled = [bool([tick for tick in axes.get_xticklabels() if tick.get_text()]) for axes in squares]
    assert labelled == [False, False, *[True] * 8]


def test_labels_can_be_told_apart() -> None:
    assert _label(" film") == "▁film"
    assert _label("\n") == "\\n"
    assert _label("x" * 40) == "x" * 15 + "…"


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"rehead\[plots\]"):
        draw_mask()


def test_a_script_without_a_font_is_said_once(tmp_path: Path) -> None:
    figure = draw_mask(2)
    figure.suptitle("\U00012000")  # a sign of cuneiform
    saved = save_figures({"mask": figure}, tmp_path)
    assert [path.name for path in saved.paths] == ["mask.png", "mask.svg"]
    assert len(saved.notes) == 1
    assert "\U00012000" in (tmp_path / "mask.svg").read_text()
    assert save_figures({"plain": draw_mask(2)}, tmp_path).notes == []
