"""Parameter and FLOP counts by formula, from the configuration alone; parameters are checked against the module.

A formula is a sum of products of named sizes, so one object gives the symbols, the numbers substituted, and the count.
The check is exact in both directions: every row's tensors exist in the module with that many values, and every tensor
of the module has a row.

FLOPs are per token of training, two per multiply-add, with the backward pass as twice the forward pass. They cover
matrix products and attention (not norms, softmax, activations and look-ups, which are linear in the width), with the
full attention matrix although a causal kernel may skip half.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from rehead.model.config import Classifier, LanguageModel, ModelConfig
from rehead.model.objectives import OBJECTIVES

if TYPE_CHECKING:
    from torch import nn

BYTES = 4  # of a float32
Factor = int | float | str  # a number, a size by name, or "/name" to divide by it
Product = tuple[Factor, ...]
Level = Literal["part", "sum", "total"]
Sizes = Mapping[str, int | float]


@dataclass(frozen=True)
class Formula:
    """A sum of products of named sizes and numbers."""

    products: tuple[Product, ...]
    sizes: Sizes

    @property
    def symbols(self) -> str:
        """With names: `nhid·nhid + nhid`."""
        return self._format(substitute=False)

    @property
    def numbers(self) -> str:
        """With the sizes substituted: `200·200 + 200`."""
        return self._format(substitute=True)

    @property
    def value(self) -> float:
        """The result; an exact integer unless a product divides or holds a float."""
        return sum(self._product(each) for each in self.products)

    def _product(self, product: Product) -> float:
        numerator = math.prod(self._value(each) for each in product if not _divides(each))
        denominator = math.prod(self._value(each) for each in product if _divides(each))
        return numerator if denominator == 1 else numerator / denominator

    def _value(self, factor: Factor) -> int | float:
        return self.sizes[factor.lstrip("/")] if isinstance(factor, str) else factor

    def _format(self, *, substitute: bool) -> str:
        terms = []
        for product in self.products:
            text = ""
            for factor in product:
                shown = f"{self._value(factor):,}" if substitute or not isinstance(factor, str) else factor.lstrip("/")
                text += ("/" if _divides(factor) else "·" if text else "") + shown
            terms.append(text)
        return " + ".join(terms) or "0"


def _divides(factor: Factor) -> bool:
    return isinstance(factor, str) and factor.startswith("/")


class Component(NamedTuple):
    """Some tensors of a model, and the formula of their number of values."""

    name: str
    products: tuple[Product, ...]
    tensors: tuple[str, ...] = ()
    """Names in the module, with `*` for the layer's number. Components with the same names share these tensors."""
    symbol: str = ""
    """Its name in the formula of a sum."""


@dataclass(frozen=True)
class Row:
    """One line of the parameter table."""

    part: str
    formula: Formula
    level: Level
    """A part holds tensors; a sum adds parts up; a total is the base or a whole model."""
    tensors: tuple[str, ...]
    times: int
    """Number of occurrences in the model: nlayers inside a layer, else 1."""
    models: tuple[str, ...]
    """The models (`MODELS`) that contain it."""

    @property
    def count(self) -> int:
        """Number of parameters of one occurrence."""
        return int(self.formula.value)


@dataclass(frozen=True)
class Account:
    """The parameter table of a base with each of its two heads."""

    config: ModelConfig
    language_model: LanguageModel
    classifier: Classifier
    rows: tuple[Row, ...]

    def total(self, part: str) -> int:
        """Return the count of the row with this name, such as "base" or "language model"."""
        return next(row.count for row in self.rows if row.part == part)


def account(config: ModelConfig, classifier: Classifier, language_model: LanguageModel | None = None) -> Account:
    """Count the parameters of a base and both heads by formula."""
    language_model = language_model or config.language_model()
    sizes: dict[str, int | float] = {
        "ntokens": config.ntokens,
        "nhid": config.nhid,
        "nff": config.nff,
        "nlayers": config.nlayers,
        "maxlen": config.maxlen,
        "nbuckets": config.nbuckets,
        "classes": classifier.classes,
    }
    rows: list[Row] = []

    def add(component: Component, level: Level, times: int = 1, models: Iterable[str] = MODELS) -> int:
        row = Row(
            component.name, Formula(component.products, dict(sizes)), level, component.tensors, times, tuple(models)
        )
        rows.append(row)
        return row.count

    for component in _below_the_layers(config):
        sizes[component.symbol] = add(component, "part")
    if config.nlayers:
        for component in _layer(config):
            sizes[component.symbol] = add(component, "part", config.nlayers)
        # Q, K, V and output have the same size, whatever the number of heads.
        layer = ((4, "Q"), ("ff-in",), ("ff-out",), ("norms",))
        sizes["layer"] = add(Component("one layer", layer), "sum", config.nlayers)
        sizes["layers"] = add(Component("all layers", (("nlayers", "layer"),)), "sum")
    summed = [name for name in ("embedding", "n-grams", "positions", "layers") if sizes.get(name)]
    sizes["base"] = add(Component("base", tuple((name,) for name in summed)), "total")

    for whole, components in zip(
        MODELS, (_language_model_head(config, language_model), _classifier_head(config, classifier)), strict=True
    ):
        sizes["head"] = sum(add(component, "part", models=[whole]) for component in components)
        add(Component(whole, (("base",), ("head",))), "total", models=[whole])
    return Account(config, language_model, classifier, tuple(rows))


MODELS = ("language model", "classifier")


def _below_the_layers(config: ModelConfig) -> list[Component]:
    components = [Component("embedding", (("ntokens", "nhid"),), ("base.embedding.weight",), "embedding")]
    if config.ngrams > 1:
        name = f"n-grams (up to {config.ngrams})"
        components.append(Component(name, (("nbuckets", "nhid"),), ("base.ngrams.weight",), "n-grams"))
    learned = config.positions == "learned"
    products, tensors = ((("maxlen", "nhid"),), ("base.positions.weight",)) if learned else ((), ())
    return [*components, Component(f"positions ({config.positions})", products, tensors, "positions")]


def _layer(config: ModelConfig) -> list[Component]:
    def component(name: str, symbol: str, module: str, product: Product, shift: Product) -> Component:
        kinds = ("weight", "bias") if config.bias else ("weight",)
        tensors = tuple(f"base.layers.*.{module}.{kind}" for kind in kinds)
        return Component(name, (product, shift) if config.bias else (product,), tensors, symbol)

    gated: Product = (2,) if config.feedforward == "swiglu" else ()
    norm1, norm2 = (component("", "", module, (), ()).tensors for module in ("norm1", "norm2"))
    return [
        *(component(f"attention {name}", name, "qkv", ("nhid", "nhid"), ("nhid",)) for name in "QKV"),
        component("attention output", "output", "output", ("nhid", "nhid"), ("nhid",)),
        component("feed-forward in", "ff-in", "up", (*gated, "nhid", "nff"), (*gated, "nff")),
        component("feed-forward out", "ff-out", "down", ("nff", "nhid"), ("nhid",)),
        Component("two norms", ((2, 2, "nhid") if config.bias else (2, "nhid"),), norm1 + norm2, "norms"),
    ]


def _language_model_head(config: ModelConfig, head: LanguageModel) -> list[Component]:
    components = []
    if config.norm == "pre":
        norm = ("head.norm.weight", "head.norm.bias") if config.bias else ("head.norm.weight",)
        components.append(Component("head norm", ((2, "nhid") if config.bias else ("nhid",),), norm))
    matrix: tuple[Product, ...] = () if head.tied else (("nhid", "ntokens"),)
    shift: tuple[Product, ...] = (("ntokens",),) if config.bias else ()
    tensors = (() if head.tied else ("head.weight",)) + (("head.bias",) if config.bias else ())
    name = "language-model head (tied)" if head.tied else "language-model head"
    return [*components, Component(name, matrix + shift, tensors)]


def _classifier_head(config: ModelConfig, head: Classifier) -> list[Component]:
    """A weight for each feature and class of each view; the bias is counted with the neural view, or else the last."""
    components = []
    for view in head.views:
        products: tuple[Product, ...] = ((view.columns, "classes"),)
        if view.columns == config.ntokens + config.nbuckets:  # a column for each row of the tables
            products = tuple(
                (rows, "classes") for rows in ("ntokens", "nbuckets") if rows == "ntokens" or config.nbuckets
            )
        elif view == head.neural:
            products = (("nhid", "classes"),)
        components.append(Component(view.name, products, (f"head.views.{view.name}.weight",)))
    main = head.views.index(head.neural) if head.neural in head.views else -1
    _, products, tensors, _ = components.pop(main)
    return [*components, Component(f"{head.classes}-class head", (*products, ("classes",)), (*tensors, "head.bias"))]


def check(account: Account, model: nn.Module, whole: str) -> None:
    """Compare the formulas with a module, "language model" or "classifier"; raise if a count differs."""
    live = {name: each.numel() for name, each in model.named_parameters()}
    by_formula: dict[tuple[str, ...], int] = {}
    for row in account.rows:
        if row.level == "part" and whole in row.models and row.tensors:
            by_formula[row.tensors] = by_formula.get(row.tensors, 0) + row.count * row.times
    in_module = {
        tensors: sum(live.pop(each) for name in tensors for each in _layers_of(name, account.config.nlayers))
        for tensors in by_formula
    }
    if by_formula != in_module or live:
        raise AssertionError(f"formula {by_formula} differs from module {in_module}; without a row: {sorted(live)}")


def _layers_of(name: str, nlayers: int) -> list[str]:
    return [name.replace("*", str(layer)) for layer in range(nlayers)] if "*" in name else [name]


@dataclass(frozen=True)
class Workload:
    """What the FLOPs per token depend on besides the model."""

    length: int = 256
    "Sequence length, in tokens."
    masked: float = 0.15
    "Fraction of the positions that a masked language model predicts."
    causal_rows: float = 0.5
    "Fraction of the rows that the hybrid objective predicts causally; the others are masked."
    candidates: int = 8192
    "N-grams, positives and shared negatives, that a document's vector is scored against."


class Work(NamedTuple):
    """Training FLOPs per token of one objective."""

    objective: str
    body: Formula
    head: Formula


def work(config: ModelConfig, classifier: Classifier, workload: Workload | None = None) -> list[Work]:
    """Count the training FLOPs per token of each objective: forward 2, backward 4 per multiply-add."""
    workload = workload or Workload()
    sizes: dict[str, int | float] = {
        "ntokens": config.ntokens,
        "nhid": config.nhid,
        "nff": config.nff,
        "nlayers": config.nlayers,
        "classes": classifier.classes,
        "length": workload.length,
        "candidates": workload.candidates,
        "masked": workload.masked,
        "causal_rows": workload.causal_rows,
        "masked_rows": 1 - workload.causal_rows,
    }
    matrices = 3 if config.feedforward == "swiglu" else 2
    body: list[Product] = []
    if config.nlayers:
        body = [
            (6, "nlayers", 4, "nhid", "nhid"),  # Q, K, V and output
            (6, "nlayers", matrices, "nhid", "nff"),
            (6, "nlayers", 2, "length", "nhid"),  # attention scores, and the weighted sum of the values
        ]
    layers = Formula(tuple(body), sizes)
    objectives = [
        Work(spec.name, layers if spec.trains_layers else Formula((), sizes), Formula(spec.head_cost, sizes))
        for spec in OBJECTIVES.values()
    ]
    classify = Formula(((6, "nhid", "classes", "/length"),), sizes)
    return [*objectives, Work("classify", layers, classify)]
