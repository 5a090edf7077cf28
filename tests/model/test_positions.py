from __future__ import annotations

import math

import pytest
import torch

from rehead.errors import ConfigError
from rehead.model import Base
from rehead.model.positions import count_positions, rotary_cos_sin, rotate, sinusoidal_table
from tests.model.conftest import POSITIONS, alive, miniature


def test_sinusoidal_by_the_paper() -> None:
    table = sinusoidal_table(50, 16)
    for position in (0, 1, 7, 49):
        for pair in range(8):
            angle = position / 10_000 ** (2 * pair / 16)
            assert table[position, 2 * pair].item() == pytest.approx(math.sin(angle), abs=1e-5)
            assert table[position, 2 * pair + 1].item() == pytest.approx(math.cos(angle), abs=1e-5)


def test_rotary_scores_depend_on_the_distance_only() -> None:
    torch.manual_seed(0)
    q, k = torch.randn(8), torch.randn(8)
    turns = rotary_cos_sin(torch.arange(40)[None], 8)
    turned_q, turned_k = (rotate(each.expand(1, 1, 40, 8), turns)[0, 0] for each in (q, k))
    scores = turned_q @ turned_k.T
    for distance in range(-20, 21):
        diagonal = scores.diagonal(distance)
        assert torch.allclose(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-4)
    assert torch.allclose(turned_q.norm(dim=1), q.norm().expand(40), atol=1e-5)
    assert torch.allclose(scores[0, 0], q @ k, atol=1e-5)


def test_rotary_as_complex_numbers() -> None:
    """The reference: pairs as complex numbers, multiplied by e^(i·position·frequency)."""
    torch.manual_seed(0)
    x = torch.randn(1, 1, 6, 8)
    ours = rotate(x, rotary_cos_sin(torch.arange(6)[None], 8))
    frequency = torch.tensor([10_000 ** (-2 * pair / 8) for pair in range(4)])
    turn = torch.polar(torch.ones(6, 4), torch.arange(6)[:, None] * frequency)
    turned = torch.complex(x[..., :4], x[..., 4:]) * turn
    assert torch.allclose(ours, torch.cat((turned.real, turned.imag), -1), atol=1e-5)


def test_positions_skip_padding() -> None:
    ids = torch.zeros(2, 5, dtype=torch.long)
    assert count_positions(ids, None).tolist() == [[0, 1, 2, 3, 4]]
    keep = torch.tensor([[False, False, True, True, True], [True, True, True, False, False]])
    assert count_positions(ids, keep).tolist()[0][2:] == [0, 1, 2]
    assert count_positions(ids, keep).tolist()[1][:3] == [0, 1, 2]


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "none"])
def test_longer_than_trained_works(positions: str) -> None:
    base = alive(miniature("lab", positions=positions, maxlen=8)).base
    short = torch.randint(50, (1, 8))
    long = torch.cat((short, torch.randint(50, (1, 25))), 1)
    with torch.no_grad():
        assert torch.allclose(base(long, causal=True)[:, :8], base(short, causal=True), atol=1e-5)


def test_learned_positions_name_both_lengths() -> None:
    base = alive(miniature("lab", positions="learned", maxlen=8)).base
    base(torch.zeros(1, 8, dtype=torch.long), causal=True)
    with pytest.raises(ConfigError, match=r"9 tokens.*maxlen=8"):
        base(torch.zeros(1, 9, dtype=torch.long), causal=True)


def test_learned_positions_count_documents_not_padding() -> None:
    """A row wider than maxlen is fine while the document in it fits."""
    base = alive(miniature("lab", positions="learned", maxlen=8)).base
    ids = torch.randint(50, (1, 8))
    padded = torch.cat((ids, torch.ones(1, 4, dtype=torch.long)), 1)
    keep = torch.tensor([[True] * 8 + [False] * 4])
    with torch.no_grad():
        assert torch.allclose(base(padded, keep, causal=False)[:, :8], base(ids, causal=False), atol=1e-5)


@pytest.mark.parametrize("positions", POSITIONS)
def test_only_learned_positions_have_parameters(positions: str) -> None:
    base = Base(miniature("lab", positions=positions))
    named = {name for name, _ in base.named_parameters() if "position" in name}
    assert named == ({"positions.weight"} if positions == "learned" else set())
    assert not [name for name, _ in base.named_buffers() if not name.startswith("statistics.")]
