from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rehead.text.order import random_bits, shard_slice, shuffled, step_indices
from rehead.text.random_streams import Stream

SEEDS = st.integers(-(2**63), 2**63 - 1)


@given(n=st.integers(1, 700), seed=SEEDS, epoch=st.integers(0, 10**6))
def test_an_epoch_has_everything_once(n: int, seed: int, epoch: int) -> None:
    assert sorted(shuffled(np.arange(n), n, seed, epoch)) == list(range(n))


@given(n=st.integers(1, 10**12), seed=SEEDS, positions=st.lists(st.integers(0, 10**12), min_size=1, max_size=20))
def test_a_position_does_not_depend_on_what_else_is_asked_for(n: int, seed: int, positions: list[int]) -> None:
    wanted = np.array([each % n for each in positions])
    epochs = np.array([each // n for each in positions])
    together = shuffled(wanted, n, seed, epochs)
    alone = [int(shuffled(wanted[i : i + 1], n, seed, int(epochs[i]))[0]) for i in range(len(wanted))]
    assert together.tolist() == alone
    assert all(0 <= each < n for each in alone)


def test_the_order_never_changes_between_versions() -> None:
    """A run that is resumed after an upgrade sees the same data."""
    assert shuffled(np.arange(10), 10, 0, 0).tolist() == [0, 8, 6, 4, 9, 3, 1, 2, 5, 7]
    assert shuffled(np.arange(4), 10**9, 42, 7).tolist() == [795224053, 927534363, 693069645, 585689340]


@pytest.mark.parametrize("n", [2, 3, 10, 37])
def test_every_thing_comes_to_every_position_equally_often(n: int) -> None:
    turns = 4000
    counts = np.zeros((n, n))
    positions, epochs = np.tile(np.arange(n), turns), np.repeat(np.arange(turns), n)
    np.add.at(counts, (positions, shuffled(positions, n, 5, epochs)), 1)
    expected = turns / n
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    freedom = (n - 1) ** 2
    # Fixed seeds: this either always holds or never. Five standard deviations above the mean.
    assert chi_square < freedom + 5 * (2 * freedom) ** 0.5 + 5


def test_seeds_and_epochs_give_unrelated_orders() -> None:
    n = 10_000
    one = shuffled(np.arange(n), n, 1, 0)
    for other in (shuffled(np.arange(n), n, 2, 0), shuffled(np.arange(n), n, 1, 1), np.arange(n)):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.05
        assert int(np.sum(one == other)) < 10


@given(step=st.integers(0, 10**9), batch=st.integers(1, 64), world=st.sampled_from([1, 2, 3]))
def test_the_ranks_together_see_what_one_process_sees(step: int, batch: int, world: int) -> None:
    parts = [step_indices(step, batch, rank, world) for rank in range(world)]
    assert np.concatenate(parts).tolist() == list(range(step * batch, (step + 1) * batch))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_rank_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="rank 2 of 2"):
        shard_slice(10, 2, 2)


def test_a_seed_may_be_any_whole_number() -> None:
    positions = np.arange(50)
    orders = {tuple(shuffled(positions, 50, seed, 0).tolist()) for seed in (0, -1, 2**63, 2**64 - 2, 2**70 + 5)}
    assert len(orders) == 5
    assert all(sorted(order) == list(range(50)) for order in orders)


@pytest.mark.parametrize(("step", "batch"), [(-1, 4), (0, 0)])
def test_steps_and_batches_that_cannot_be(step: int, batch: int) -> None:
    with pytest.raises(ValueError, match=f"step={step}, batch={batch}"):
        step_indices(step, batch)


def test_streams_have_a_value_of_their_own_but_for_five_pairs() -> None:
    """Values that runs depend on and that were given twice: the two streams never meet (see the module)."""
    names: dict[int, list[str]] = {}
    for name, stream in Stream.__members__.items():
        names.setdefault(stream.value, []).append(name)
    assert {value: sorted(some) for value, some in names.items() if len(some) > 1} == {
        0: ["BATCH_ORDER", "ROW_ORDER"],
        1: ["BATCH_MEMBERS", "ROW_START"],
        7: ["GENERATION", "MASKED_TOKEN"],
        21: ["DOCUMENT_ORDER", "STATISTICS_SAMPLE"],
        71: ["SHUFFLED_LABELS", "UNLABELLED_TEXTS"],
    }


def test_a_stream_is_its_value_as_part_of_a_key() -> None:
    for stream in Stream:
        assert random_bits(3, stream, np.arange(4)).tolist() == random_bits(3, int(stream), np.arange(4)).tolist()
