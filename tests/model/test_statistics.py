"""What a base keeps of its unlabelled text, against numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rehead.disk import read_checksummed_json, sha256, write_checksummed_json
from rehead.model import Model, load, save
from rehead.runs.run import Run
from tests.model.conftest import PRESETS, alive, miniature


def documents(count: int = 30) -> list[np.ndarray]:
    chance = np.random.RandomState(0)
    return [chance.randint(3, 50, chance.randint(0, 20)).astype(np.int64) for _ in range(count)]


def learnt(name: str) -> Model:
    made = alive(miniature(name))
    learn_spread(made, documents())
    return made


@pytest.mark.parametrize("name", PRESETS)
def test_it_is_the_mean_the_covariance_and_the_counts(name: str) -> None:
    made = learnt(name)
    vectors = vectors_of_ids(made, documents()).astype(np.float64)
    spread = made.base.spread
    assert spread.known
    assert spread.documents.tolist() == [30]
    np.testing.assert_allclose(spread.centre, vectors.mean(0), atol=1e-6)
    np.testing.assert_allclose(spread.covariance, np.cov(vectors.T), atol=1e-5)
    counts = np.zeros(rows_in(made.config), int)
    for ids in documents():
        grams = find_grams([ids], made.config, rows_of(made.base))
        for row in set(grams.rows.tolist()):
            counts[row] += 1
    assert counts[: made.config.ntokens].max() > 5
    np.testing.assert_array_equal(spread.frequency, counts)


def test_a_gram_counts_once_in_a_document() -> None:
    made = alive(miniature("bag"))
    twice = [np.array([5, 6, 5, 6]), np.array([5]), np.array([], np.int64)]
    grams = each_once(find_grams(twice, made.config, rows_of(made.base)), made.config)
    tokens = grams.some(grams.size == 1)
    assert list(zip(tokens.document.tolist(), tokens.rows.tolist(), strict=True)) == [(0, 5), (0, 6), (1, 5)]
    pairs = set(zip(grams.document.tolist(), grams.rows.tolist(), strict=True))
    assert len(pairs) == len(grams.rows)


def test_nothing_is_known_before_and_little_of_one_document() -> None:
    made = alive(miniature("bag"))
    assert not made.base.spread.known
    learn_spread(made, documents(1))
    assert not made.base.spread.known
    learn_spread(made, documents(2))
    assert made.base.spread.known


def test_it_is_not_trained_and_is_saved(tmp_path: Path) -> None:
    made = learnt("bag")
    assert not [name for name, _ in made.named_parameters() if "spread" in name]
    save(Run(made), tmp_path / "run")
    again = load(tmp_path / "run").model.base.spread
    for name, tensor in made.base.spread.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


def test_a_run_that_keeps_nothing_of_what_lies_under_its_layers_is_read(tmp_path: Path) -> None:
    """As those of the first versions: nothing is known of it then."""
    made = learnt("small")
    assert made.base.spread.past_covariance.any()
    run = save(Run(made), tmp_path / "run")
    weights = run / "model.safetensors"
    kept = {name: each for name, each in load_file(weights).items() if "past" not in name}
    assert len(kept) == len(load_file(weights)) - 2
    save_file(kept, weights, metadata={"format": "pt"})
    config = read_checksummed_json(run / "config.json")
    config["files"][weights.name] = sha256(weights)
    write_checksummed_json(run / "config.json", config)
    again = load(run).model.base.spread
    assert not again.past_covariance.any()
    assert not again.past_centre.any()
    assert torch.equal(again.covariance, made.base.spread.covariance)
