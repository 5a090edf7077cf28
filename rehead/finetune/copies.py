"""A base with a new head, on a copy; or the same shape with random weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rehead.model.config import Classifier, ModelConfig
from rehead.model.grams import whole_runs
from rehead.model.model import Model
from rehead.model.ngrams import ngram_buckets
from rehead.model.reading import is_bag
from rehead.model.run import Run

if TYPE_CHECKING:
    from numpy.typing import NDArray


def reheaded(model: Model, head: Classifier, dropout: float | None = None) -> Model:
    """Copy a model's base and put a fresh classifier on it; the model itself stays as it is."""
    made = _bare(_with(model.config, dropout), model.base.state_dict())
    made.replace_head(head)
    return made


def without_layers(run: Run) -> Run | None:
    """Copy a run whose layers read, and leave them out; None where none of them does, or positions are added below.

    What was learnt under them stays as good as it was for telling documents apart, whatever they have learnt to do.
    """
    model = run.model
    if model.base.positions is not None or is_bag(model.base.eval()):
        return None
    state = {name: each for name, each in model.base.state_dict().items() if not name.startswith("layers.")}
    for name in ("centre", "covariance"):
        state[f"spread.{name}"] = state.pop(f"spread.past_{name}")
    if not state["spread.covariance"].any():
        state["spread.documents"] = torch.zeros(1)
    made = _bare(dataclasses.replace(model.config, nlayers=0), state)
    return Run(made.eval(), run.tokenizer, None, run.details)


def same_shape(model: Model, head: Classifier, dropout: float | None, ids: Sequence[NDArray[np.int64]]) -> Model:
    """Make a model of the same shape with random weights; rows of n-grams go to those that are frequent in `ids`."""
    made = Model(_with(model.config, dropout), head)
    ngrams = made.base.ngrams
    if ngrams is not None and ids:
        flat = np.concatenate(list(ids))
        lengths = np.array([len(each) for each in ids], np.int64)
        start = np.arange(len(flat)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        counts = np.zeros(len(ngrams.rows), np.int64)
        for n in range(2, min(made.config.ngrams, len(flat)) + 1):
            slots = ngram_buckets(torch.from_numpy(flat)[None], n, len(counts))[0].numpy()
            counts += np.bincount(slots[whole_runs(start, np.repeat(lengths, lengths), n)], minlength=len(counts))
        ngrams.choose_rows(torch.from_numpy(counts))
    return made


def _with(config: ModelConfig, dropout: float | None) -> ModelConfig:
    return config if dropout is None else dataclasses.replace(config, dropout=dropout)


def _bare(config: ModelConfig, state: Mapping[str, Tensor]) -> Model:
    """Make a model without a head out of copies of a base's tensors."""
    with torch.device("meta"):
        made = Model(config)
    made.load_state_dict({f"base.{name}": each.detach().cpu().clone() for name, each in state.items()}, assign=True)
    for parameter in made.parameters():
        parameter.requires_grad_(True)
    return made
