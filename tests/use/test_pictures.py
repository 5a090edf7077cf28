from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from rehead.errors import UserError
from rehead.model.positions import sinusoidal_table
from rehead.use.pictures import _label, draw_mask, save_figures, similarity_by_distance


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
