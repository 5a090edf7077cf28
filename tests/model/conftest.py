"""Small models of every preset, with weights that are all alive."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rehead.model import Model, ModelConfig, preset
from rehead.model.config import Classifier, Head, ViewConfig

# The presets in miniature: every dial that changes the computation as it is, only the sizes smaller.
SIZES: dict[str, dict[str, int]] = {
    "lab": {"ntokens": 50, "nhid": 16, "nlayers": 2},
    "small": {"ntokens": 50, "nhid": 16, "nlayers": 2, "nhead": 2, "nbuckets": 64},
    "base": {"ntokens": 50, "nhid": 16, "nlayers": 3, "nhead": 4},
    "bag": {"ntokens": 50, "nhid": 16, "nbuckets": 64},
}
PRESETS = list(SIZES)
POSITIONS = ["sinusoidal", "learned", "rotary", "none"]


def miniature(name: str, **changes: Any) -> ModelConfig:
    return preset(name, **{**SIZES[name], "maxlen": 32, **changes})


def alive(config: ModelConfig, head: Head | None = None, seed: int = 0) -> Model:
    """A model in evaluation mode whose every weight is random: fresh pre-norm layers would be the identity."""
    torch.manual_seed(seed)
    model = Model(config, head).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def classifier_of(
    config: ModelConfig,
    classes: int = 2,
    *,
    view: str | None = None,
    unit: bool = False,
    tokens: bool = False,
    multilabel: bool = False,
    dropout: float = 0.0,
    **options: Any,
) -> Classifier:
    """Describe a classifier on the view that the base reads, or the one named, with tokens beside it or not."""
    name = str(config.reads) if view is None else view
    views = [ViewConfig(name=name, columns=config.nhid, unit=unit, options=options)]
    if tokens:
        views.append(ViewConfig(name="tokens", columns=config.ntokens + config.nbuckets, sparse=True, unit=True))
    return Classifier(classes=classes, views=tuple(views), multilabel=multilabel, dropout=dropout)


@pytest.fixture(params=PRESETS)
def preset_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=POSITIONS)
def positions(request: pytest.FixtureRequest) -> str:
    return str(request.param)
