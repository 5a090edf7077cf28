"""Reading runs of format 1, which did not state what a classifier reads: it is found out here, once, from the weights.

Format 1 described it by `pooling`, `unit`, `words` and `details["reading"]`, and read past layers that were still the
identity, as the bag objective leaves those of a pre-norm base. Later formats state the views. A classifier that reads
its bag loses the layers that nothing read; its scores stay the same (tests/golden/format1).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from rehead.errors import ConfigError, short_repr
from rehead.model.config import Classifier, ModelConfig, ViewConfig, check_fields, from_dict, to_dict
from rehead.runs.weights import Weights
from rehead.text.long_documents import LongRule


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Head:
    """A classifier's head, as format 1 has it."""

    classes: int
    pooling: Literal["last", "mean", "distinct"]
    causal: bool
    multilabel: bool
    dropout: float
    unit: bool
    words: bool

    def __post_init__(self) -> None:
        check_fields(self)


@dataclasses.dataclass(frozen=True)
class _Reading:
    """What `details["reading"]` held; the view's own options check the values."""

    longest: int | None = None
    long: LongRule = "windows"


class Upgrade(NamedTuple):
    """A run of format 1 as this version has it."""

    config: dict[str, Any]
    renamed: dict[str, str]
    "Names of tensors today → in the file; an empty name stands for one that the file does not hold."
    dropped: tuple[str, ...]
    "Beginnings of the names of tensors that are no longer kept."


def upgrade(config: Mapping[str, Any], weights: Weights) -> Upgrade:
    """Describe a run of format 1 as this version does."""
    model = config["model"]
    if not isinstance(model, dict) or "reads" in model:
        raise ConfigError(f"model is {short_repr(model)}. Expected the fields of a base of format 1.")
    shape = from_dict(ModelConfig, {**model, "reads": None}, complete=True)
    bag = "bag" in shape.views and (not shape.nlayers or _untrained(shape, weights))
    shape = dataclasses.replace(shape, reads="bag" if bag else "layers")
    renamed = {
        "base.statistics.frequency": "base.spread.frequency",
        "base.statistics.documents": "base.spread.documents",
    }
    known = weights.entries
    for view in shape.views:
        old = "" if view == shape.reads else "past_"
        for new, name in (("mean", "centre"), ("covariance", "covariance")):
            there = f"base.spread.{old}{name}"
            # Layers that nothing has trained have no statistics; the oldest runs have none past their layers either.
            fits = there in known and not (bag and view == "layers")
            renamed[f"base.statistics.views.{view}.{new}"] = there if fits else ""
    dropped = ["base.spread."]
    head, details = config["head"], dict(config["details"])
    if isinstance(head, dict) and head.get("kind") == Classifier.kind:
        if bag and shape.nlayers:
            shape = dataclasses.replace(shape, nlayers=0, reads="bag")
            dropped.append("base.layers.")
        new_head = _classifier(head, details.pop("reading", None), shape)
        dense = new_head.views[0]
        renamed |= {f"head.views.{dense.name}.weight": "head.linear.weight", "head.bias": "head.linear.bias"}
        renamed |= {f"head.views.{dense.name}.shift": "head.centre"} if dense.unit else {}
        renamed |= {"head.views.tokens.weight": "head.words.weight", "head.views.tokens.scale": "head.words.idf"}
        head = to_dict(new_head)
    return Upgrade({**config, "model": to_dict(shape), "head": head, "details": details}, renamed, tuple(dropped))


def _classifier(fields: Mapping[str, Any], reading: Any, shape: ModelConfig) -> Classifier:  # noqa: ANN401 (JSON)
    """State the views that a head of format 1 reads."""
    old = from_dict(_Head, {name: value for name, value in fields.items() if name != "kind"}, complete=True)
    try:
        pieces = _Reading(**reading) if isinstance(reading, dict) else _Reading()
    except TypeError:
        raise ConfigError(f"details: reading is {short_repr(reading)}. Expected longest and long.") from None
    options: dict[str, Any] = {"max_length": pieces.longest, "long": pieces.long}
    if shape.reads == "bag":
        if old.pooling == "last":
            raise ConfigError("pooling='last' reads the last hidden state, but this base has no layers.")
        options = {"distinct": old.pooling == "distinct", **options}
    else:
        if old.pooling == "distinct":
            raise ConfigError("pooling='distinct' reads past layers, but those of this run are trained.")
        options = {"pooling": old.pooling, "causal": old.causal, **options}
    views = [ViewConfig(name=str(shape.reads), columns=shape.nhid, unit=old.unit, options=options)]
    if old.words:
        views.append(ViewConfig(name="tokens", columns=shape.ntokens + shape.nbuckets, sparse=True, unit=True))
    return Classifier(classes=old.classes, views=tuple(views), multilabel=old.multilabel, dropout=old.dropout)


def _untrained(shape: ModelConfig, weights: Weights) -> bool:
    """Tell whether all layers are still the identity: pre-norm layers start with output projections of zero."""
    if shape.norm != "pre":
        return False
    projections = [f"base.layers.{layer}.{name}." for layer in range(shape.nlayers) for name in ("output", "down")]
    return not any(bool(weights.data[name].any()) for name in weights.data if name.startswith(tuple(projections)))
