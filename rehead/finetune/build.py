"""Making classifiers: a copy of a base with a new head, the same shape with random weights, a linear head folded in.

A base that is given is never changed. A classifier that reads the bag of n-gram vectors does not carry layers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rehead.errors import UserError
from rehead.finetune.examples import Examples
from rehead.finetune.linear import LinearClassifier
from rehead.model.config import NO_BASE, Classifier, ModelConfig
from rehead.model.model import Model
from rehead.runs.run import Run
from rehead.runs.scoring import classifier_head
from rehead.text.documents import LabelledData
from rehead.views.rows import assign_ngram_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray


def with_head(model: Model, head: Classifier, dropout: float | None = None) -> Model:
    """Copy a model's base and put a fresh classifier on it; layers that the head does not read stay behind."""
    config, state = _shape(model.config, head, dropout), model.base.state_dict()
    if config.nlayers < model.config.nlayers:
        left = ("layers.", "statistics.views.layers.")
        state = {name: each for name, each in state.items() if not name.startswith(left)}
    with torch.device("meta"):
        made = Model(config)
    made.load_state_dict(_copied(state), assign=True)
    for parameter in made.parameters():
        parameter.requires_grad_(True)
    made.replace_head(head)
    return made


def with_random_weights(
    model: Model, head: Classifier, dropout: float | None, ids: Sequence[NDArray[np.int64]]
) -> Model:
    """Make a model of the same shape with random weights; n-gram rows go to the n-grams frequent in `ids`."""
    made = Model(_shape(model.config, head, dropout), head)
    if ids:
        assign_ngram_rows(made.base, [ids])
    return made


def build_linear(base: Run, examples: Examples, linear: LinearClassifier, train: LabelledData) -> Run:
    """Make the run of a linear classifier: the base, bit for bit, with a head that scores as the classifier does.

    A base that no view reads is left out, and so are brought ones.
    """
    views = [view for view in examples.views if linear.weights[view.name].any()]
    views = views or [examples.views[0]]  # nothing to tell apart: a head needs a view all the same
    head = Classifier(
        classes=len(train.names), views=tuple(view.config() for view in views), multilabel=train.multilabel
    )
    own = any(view.of_base for view in views)
    model = with_head(base.model if own else Model(NO_BASE), head).eval()
    model.brought = {view.name: base.model.brought[view.name] for view in views if view.name in base.model.brought}
    made = classifier_head(model)
    with torch.no_grad():
        made.bias.copy_(torch.from_numpy(linear.bias))
        for view in views:
            part, weight = made.of(view.name), torch.from_numpy(linear.weights[view.name])
            for name, values in view.statistics().items():
                part.get_buffer(name).copy_(torch.from_numpy(values))
            if view.sparse:
                part.weight.zero_()
                part.weight[torch.from_numpy(linear.columns[view.name])] = weight.T.to(part.weight.dtype)
            else:
                part.weight.copy_(weight)
    return Run(model, base.tokenizer, list(train.names))


def check_length(config: ModelConfig, length: int | None) -> None:
    """Refuse to read more tokens at once than there are positions."""
    if length is not None and config.positions == "learned" and length > config.maxlen:
        raise UserError(f"--length {length}: this base reads at most {config.maxlen} tokens.")


def _shape(config: ModelConfig, head: Classifier, dropout: float | None) -> ModelConfig:
    """The shape of a classifier's base: without layers, unless the head reads them."""
    if head.view("layers") is None and config.nlayers:
        config = dataclasses.replace(config, nlayers=0, reads=None)
    elif head.view("layers") is not None and config.reads != "layers":
        config = dataclasses.replace(config, reads="layers")
    return config if dropout is None else dataclasses.replace(config, dropout=dropout)


def _copied(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"base.{name}": each.detach().cpu().clone() for name, each in state.items()}
