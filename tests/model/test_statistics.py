"""What a base keeps of its unlabelled text, against numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rehead.model import Model
from rehead.runs.run import Run, load, save
from rehead.views.encoded import EncodedTexts
from rehead.views.neural import learn_statistics, neural_view
from tests.model.conftest import PRESETS, alive, miniature
from tests.views.by_hand import distinct, documents


def learnt(name: str, **changes: object) -> Model:
    made = alive(miniature(name, **changes))
    learn_statistics(made, documents())
    return made


@pytest.mark.parametrize("name", PRESETS)
def test_it_is_the_mean_the_covariance_and_the_counts(name: str) -> None:
    made = learnt(name)
    kept = made.base.statistics
    assert kept.known
    assert kept.documents.tolist() == [30]
    for view in made.config.views:
        vectors = neural_view(made, view).read(EncodedTexts(ids=documents())).matrix.astype(np.float64)
        found = kept.of(view)
        assert found is not None
        np.testing.assert_allclose(found[0], vectors.mean(0), atol=1e-6)
        np.testing.assert_allclose(found[1], np.cov(vectors.T), atol=1e-5)
    counts = np.zeros(made.config.ntokens + made.config.nbuckets, int)
    for ids in documents():
        counts[distinct(made, ids)] += 1
    assert counts[: made.config.ntokens].max() > 5
    np.testing.assert_array_equal(kept.frequency, counts)


def test_layers_that_are_not_read_have_no_statistics() -> None:
    made = learnt("small", reads="bag")
    assert made.base.statistics.of("bag") is not None
    assert made.base.statistics.of("layers") is None
    assert made.base.statistics.of("pixels") is None, "a view that the base does not know"


def test_layers_read_only_the_first_documents() -> None:
    made, other = learnt("small"), alive(miniature("small"))
    tokens = sum(map(len, documents()[:4]))
    learn_statistics(other, documents(), layers_tokens=tokens)
    assert torch.equal(other.base.statistics.frequency, made.base.statistics.frequency)
    vectors = neural_view(other).read(EncodedTexts(ids=documents()[:4])).matrix
    np.testing.assert_allclose(other.get_buffer("base.statistics.views.layers.mean"), vectors.mean(0), atol=1e-6)


def test_nothing_is_known_before_and_little_of_one_document() -> None:
    made = alive(miniature("bag"))
    assert not made.base.statistics.known
    learn_statistics(made, documents(1))
    assert not made.base.statistics.known
    learn_statistics(made, documents(2))
    assert made.base.statistics.known


def test_it_is_not_trained_and_is_saved(tmp_path: Path) -> None:
    made = learnt("small")
    assert not [name for name, _ in made.named_parameters() if "statistics" in name]
    save(Run(made), tmp_path / "run")
    again = load(tmp_path / "run").model.base.statistics
    for name, tensor in made.base.statistics.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
