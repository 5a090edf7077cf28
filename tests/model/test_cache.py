"""Reading on from a cache gives what reading all from the beginning gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rehead.errors import ConfigError
from rehead.model.cache import KeyValueCache
from tests.model.conftest import PRESETS, alive, miniature

LENGTH = 20
SHAPES: dict[str, dict[str, Any]] = {
    **{name: {"name": name} for name in PRESETS},
    **{f"lab, {each}": {"name": "lab", "positions": each} for each in ("learned", "rotary", "none")},
    **{f"small, {each}": {"name": "small", "positions": each} for each in ("sinusoidal", "learned", "none")},
    "small with n-grams": {"name": "small", "ngrams": 3, "nbuckets": 64},
    "lab with n-grams": {"name": "lab", "ngrams": 4, "nbuckets": 64},
    "no layers, learned": {"name": "lab", "nlayers": 0, "positions": "learned"},
    "no layers, sinusoidal": {"name": "lab", "nlayers": 0},
}


@pytest.fixture
def ids() -> torch.Tensor:
    return torch.randint(50, (3, LENGTH), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("parts", [[1] * LENGTH, [LENGTH], [7] + [1] * 13, [1, 2, 3, 5, 9], [3, 16, 1]])
@torch.no_grad()
def test_read_in_parts_or_at_once(shape: str, parts: list[int], ids: torch.Tensor) -> None:
    assert sum(parts) == LENGTH
    base = alive(miniature(**SHAPES[shape])).base
    cache = KeyValueCache()
    read = torch.cat([base.forward_cached(part, cache) for part in ids.split(parts, dim=1)], dim=1)
    assert cache.length == LENGTH
    assert torch.allclose(read, base(ids, causal=True), atol=1e-5)


@torch.no_grad()
def test_rows_are_repeated_and_dropped(ids: torch.Tensor) -> None:
    base = alive(miniature("small", ngrams=3, nbuckets=64)).base
    cache = KeyValueCache()
    base.forward_cached(ids[:1, :8], cache)
    cache.take_rows(torch.tensor([0, 0, 0]))
    base.forward_cached(ids[:, 8:12], cache)
    cache.take_rows(torch.tensor([2, 0]))
    read = base.forward_cached(ids[[2, 0], 12:], cache)
    whole = torch.cat((ids[:1, :8].expand(3, -1), ids[:, 8:]), dim=1)
    assert torch.allclose(read, base(whole, causal=True)[[2, 0], 12:], atol=1e-5)


@torch.no_grad()
def test_every_token_passes_the_layers_once(ids: torch.Tensor) -> None:
    base = alive(miniature("small")).base
    passed: list[int] = []
    for layer in base.layers:
        layer.register_forward_hook(lambda module, given, out: passed.append(out.shape[0] * out.shape[1]))
    cache = KeyValueCache()
    for part in ids.split([8] + [1] * 12, dim=1):
        base.forward_cached(part, cache)
    assert sum(passed) == len(base.layers) * ids.numel()


@torch.no_grad()
def test_room_is_made_now_and_then(ids: torch.Tensor) -> None:
    """Not at every token: that would copy all there is each time."""
    base = alive(miniature("small")).base
    cache, rooms = KeyValueCache(), []
    for token in ids.split(1, dim=1):
        base.forward_cached(token, cache)
        keys = cache.layers[0].keys
        assert keys is not None
        rooms.append(keys.shape[2])
    assert rooms == sorted(rooms)
    assert len(set(rooms)) <= 5


@torch.no_grad()
def test_learned_positions_end() -> None:
    base = alive(miniature("lab", positions="learned", maxlen=4)).base
    cache = KeyValueCache()
    base.forward_cached(torch.zeros(1, 4, dtype=torch.long), cache)
    with pytest.raises(ConfigError, match=r"5 tokens.*maxlen=4"):
        base.forward_cached(torch.zeros(1, 1, dtype=torch.long), cache)
