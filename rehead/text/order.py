"""The order in which training sees its data: a pure function of seed, epoch and position.

`shuffled` says which of n things stands at a position of an epoch's shuffled order, without making that order: a keyed
permutation (a Feistel network over the next power of four, walked along its cycle until it falls below n). So

- resuming at step k is computing step k: no replay, no saved generator state, and nothing held in memory, where
  a shuffled order of a hundred million documents would take 800 MB;
- the order is ours: numpy may change what its generators give from one version to the next, and a run that is
  resumed after an upgrade must not see other data.

The epochs make one endless sequence: place p is position p mod n of epoch p // n. A step takes the next `batch` places,
across the end of an epoch if need be, so nothing is dropped there. Rank r of w takes the r-th part of every step's
places, in order: the ranks together see what one process would see, whatever their number.

Measured: 0.3 µs per position in bulk, 0.6 ms for a batch of 64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROUNDS = 6
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def shuffled(positions: NDArray[np.int64], n: int, *key: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """Say which of n things stand at these positions, in the order that the key (seed, epoch, …) gives.

    A part of the key may be an array, with one value per position. (positions,) → (positions,)
    """
    half = np.uint64(max(1, ((n - 1).bit_length() + 1) // 2))  # bits in each half of an index
    low = (np.uint64(1) << half) - np.uint64(1)
    each_round = np.arange(1, ROUNDS + 1, dtype=np.uint64)[:, None]
    keys = _mix(random_bits(*key) + each_round * GOLDEN)  # (rounds, 1 or positions)
    keys = np.broadcast_to(keys, (ROUNDS, len(positions)))

    found = positions.astype(np.uint64)
    walking = np.ones(positions.shape, bool)
    while walking.any():
        left, right = found[walking] >> half, found[walking] & low
        for each in keys:
            left, right = right, left ^ (_mix(right ^ each[walking]) & low)
        found[walking] = left << half | right
        walking = found >= n
    return found.astype(np.int64)


def random_bits(*key: int | NDArray[np.int64]) -> NDArray[np.uint64]:
    """Give a number of 64 bits that depends on the key and on nothing else."""
    mixed = np.zeros(np.broadcast_shapes(*(np.shape(part) for part in key)) or (1,), np.uint64)
    for part in key:
        # A seed may be any whole number: of one that is too large for numpy, the last 64 bits count.
        bits = np.uint64(part & (2**64 - 1)) if isinstance(part, int) else part.astype(np.uint64)
        mixed = _mix(mixed ^ bits)
    return mixed


def step_indices(step: int, batch: int, rank: int = 0, world: int = 1) -> NDArray[np.int64]:
    """Give the places in the endless sequence that a rank takes at a step."""
    if step < 0 or batch < 1:
        raise ValueError(f"step {step} of {batch} things: steps count from 0, and a batch has at least one")
    return np.arange(step * batch, (step + 1) * batch)[shard_slice(batch, rank, world)]


def shard_slice(size: int, rank: int, world: int) -> slice:
    """Give the part of `size` things that falls to a rank: in order, and as even as can be."""
    if not 0 <= rank < world:
        raise ValueError(f"rank {rank} of {world}")
    return slice(size * rank // world, size * (rank + 1) // world)


def _mix(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Turn numbers into numbers that look like chance, one to one (the finaliser of splitmix64)."""
    bits: NDArray[np.uint64] = numbers + GOLDEN
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return bits
