"""Where every parameter is: counted by formula from the configuration, then checked against the live module.

A formula is a sum of products of named dials, so the symbols, the numbers put in and the count are one object seen
three ways. The check is exact in both directions: every row's tensors exist in the module with that many values,
and no tensor of the module is without a row.

Work is counted the same way: floating-point operations per token of training, two per multiply-add, the backward
pass taken as twice the forward pass. Matrix products and attention only (not norms, softmax, activations and look-ups,
which grow with the width and not with its square), the attention square in full although a causal kernel may skip half.
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
Factor = int | float | str  # a number, a dial by name, or "/dial" to divide by it
Product = tuple[Factor, ...]
Dials = Mapping[str, int | float]


@dataclass(frozen=True)
class Formula:
    """A sum of products of dials and numbers."""

    products: tuple[Product, ...]
    dials: Dials

    @property
    def symbols(self) -> str:
        """In names: `nhid·nhid + nhid`."""
        return self._written(put_in=False)

    @property
    def numbers(self) -> str:
        """With the dials put in: `200·200 + 200`."""
        return self._written(put_in=True)

    @property
    def value(self) -> float:
        """What it comes to; exact, however large, where no product divides or holds a fraction."""
        return sum(self._product(each) for each in self.products)

    def _product(self, product: Product) -> float:
        above = math.prod(self._value(each) for each in product if not _divides(each))
        below = math.prod(self._value(each) for each in product if _divides(each))
        return above if below == 1 else above / below

    def _value(self, factor: Factor) -> int | float:
        return self.dials[factor.lstrip("/")] if isinstance(factor, str) else factor

    def _written(self, put_in: bool) -> str:
        terms = []
        for product in self.products:
            text = ""
            for factor in product:
                shown = f"{self._value(factor):,}" if put_in or not isinstance(factor, str) else factor.lstrip("/")
                text += ("/" if _divides(factor) else "·" if text else "") + shown
            terms.append(text)
        return " + ".join(terms) or "0"


def _divides(factor: Factor) -> bool:
    return isinstance(factor, str) and factor.startswith("/")


class Part(NamedTuple):
    """Some tensors of a model, and how many values they hold by formula."""

    name: str
    products: tuple[Product, ...]
    tensors: tuple[str, ...] = ()
    """Names in the module, `*` standing for the layer's number. Parts with the same names hold them together."""
    symbol: str = ""
    """What it is called in the formula of a sum."""


@dataclass(frozen=True)
class Row:
    """One line of the account."""

    part: str
    formula: Formula
    level: Literal["part", "sum", "total"]
    """A part holds tensors; a sum adds parts up; a total is the base or a whole model."""
    tensors: tuple[str, ...]
    times: int
    """How often it stands in the model: nlayers for what is in a layer, else 1."""
    models: tuple[str, ...]
    """The whole models that it is a part of."""

    @property
    def count(self) -> int:
        """Parameters, one time."""
        return int(self.formula.value)


@dataclass(frozen=True)
class Account:
    """A base with each of the two heads it can carry, part by part."""

    config: ModelConfig
    language_model: LanguageModel
    classifier: Classifier
    rows: tuple[Row, ...]

    def total(self, part: str) -> int:
        """Count of the row with this name, such as "base" or "language model"."""
        return next(row.count for row in self.rows if row.part == part)


def account(config: ModelConfig, classifier: Classifier, language_model: LanguageModel | None = None) -> Account:
    """Count a base and both heads by formula."""
    language_model = language_model or config.language_model()
    dials: dict[str, int | float] = {
        "ntokens": config.ntokens,
        "nhid": config.nhid,
        "nff": config.nff,
        "nlayers": config.nlayers,
        "maxlen": config.maxlen,
        "nbuckets": config.nbuckets,
        "classes": classifier.classes,
    }
    rows: list[Row] = []

    def add(part: Part, level: Literal["part", "sum", "total"], times: int = 1, models: Iterable[str] = WHOLE) -> int:
        row = Row(part.name, Formula(part.products, dict(dials)), level, part.tensors, times, tuple(models))
        rows.append(row)
        return row.count

    for part in _below_the_layers(config):
        dials[part.symbol] = add(part, "part")
    if config.nlayers:
        for part in _layer(config):
            dials[part.symbol] = add(part, "part", config.nlayers)
        # Q, K, V and the output hold the same number, whatever the number of heads.
        layer = ((4, "Q"), ("ff-in",), ("ff-out",), ("norms",))
        dials["layer"] = add(Part("one layer", layer), "sum", config.nlayers)
        dials["layers"] = add(Part("all layers", (("nlayers", "layer"),)), "sum")
    summed = [name for name in ("embedding", "n-grams", "positions", "layers") if dials.get(name)]
    dials["base"] = add(Part("base", tuple((name,) for name in summed)), "total")

    for whole, parts in zip(
        WHOLE, (_language_model_head(config, language_model), _classifier_head(config, classifier)), strict=True
    ):
        dials["head"] = sum(add(part, "part", models=[whole]) for part in parts)
        add(Part(whole, (("base",), ("head",))), "total", models=[whole])
    return Account(config, language_model, classifier, tuple(rows))


WHOLE = ("language model", "classifier")


def _below_the_layers(config: ModelConfig) -> list[Part]:
    parts = [Part("embedding", (("ntokens", "nhid"),), ("base.embedding.weight",), "embedding")]
    if config.ngrams > 1:
        name = f"n-grams (up to {config.ngrams})"
        parts.append(Part(name, (("nbuckets", "nhid"),), ("base.ngrams.weight",), "n-grams"))
    learned = config.positions == "learned"
    products, tensors = ((("maxlen", "nhid"),), ("base.positions.weight",)) if learned else ((), ())
    return [*parts, Part(f"positions ({config.positions})", products, tensors, "positions")]


def _layer(config: ModelConfig) -> list[Part]:
    def part(name: str, symbol: str, module: str, product: Product, shift: Product) -> Part:
        kinds = ("weight", "bias") if config.bias else ("weight",)
        tensors = tuple(f"base.layers.*.{module}.{kind}" for kind in kinds)
        return Part(name, (product, shift) if config.bias else (product,), tensors, symbol)

    gated: Product = (2,) if config.feedforward == "swiglu" else ()
    norm1, norm2 = (part("", "", module, (), ()).tensors for module in ("norm1", "norm2"))
    return [
        *(part(f"attention {name}", name, "qkv", ("nhid", "nhid"), ("nhid",)) for name in "QKV"),
        part("attention output", "output", "output", ("nhid", "nhid"), ("nhid",)),
        part("feed-forward in", "ff-in", "up", (*gated, "nhid", "nff"), (*gated, "nff")),
        part("feed-forward out", "ff-out", "down", ("nff", "nhid"), ("nhid",)),
        Part("two norms", ((2, 2, "nhid") if config.bias else (2, "nhid"),), norm1 + norm2, "norms"),
    ]


def _language_model_head(config: ModelConfig, head: LanguageModel) -> list[Part]:
    parts = []
    if config.norm == "pre":
        norm = ("head.norm.weight", "head.norm.bias") if config.bias else ("head.norm.weight",)
        parts.append(Part("head norm", ((2, "nhid") if config.bias else ("nhid",),), norm))
    matrix: tuple[Product, ...] = () if head.tied else (("nhid", "ntokens"),)
    shift: tuple[Product, ...] = (("ntokens",),) if config.bias else ()
    tensors = (() if head.tied else ("head.weight",)) + (("head.bias",) if config.bias else ())
    name = "language-model head (tied)" if head.tied else "language-model head"
    return [*parts, Part(name, matrix + shift, tensors)]


def _classifier_head(config: ModelConfig, head: Classifier) -> list[Part]:
    """A weight for each column of each view and class; the bias counts with the base's vector, or the last view."""
    parts = []
    for view in head.views:
        products: tuple[Product, ...] = ((view.columns, "classes"),)
        if view.columns == config.ntokens + config.nbuckets:  # a column for each row of the tables
            products = tuple(
                (rows, "classes") for rows in ("ntokens", "nbuckets") if rows == "ntokens" or config.nbuckets
            )
        elif view == head.neural:
            products = (("nhid", "classes"),)
        parts.append(Part(view.name, products, (f"head.views.{view.name}.weight",)))
    main = head.views.index(head.neural) if head.neural in head.views else -1
    _, products, tensors, _ = parts.pop(main)
    return [*parts, Part(f"{head.classes}-class head", (*products, ("classes",)), (*tensors, "head.bias"))]


def check(account: Account, model: nn.Module, whole: str) -> None:
    """Compare the formulas with a live module, "language model" or "classifier"; raise if one value differs."""
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
    """What the work per token depends on beside the model."""

    length: int = 256
    "Tokens in a row or document."
    masked: float = 0.15
    "Share of the positions that a masked language model predicts."
    causal_rows: float = 0.5
    "Share of the rows that the hybrid objective predicts causally; the others are masked."
    candidates: int = 8192
    "N-grams, true ones and shared negatives, that a document's vector is scored against."


class Work(NamedTuple):
    """Training FLOPs per token of one objective."""

    objective: str
    body: Formula
    head: Formula


def work(config: ModelConfig, classifier: Classifier, workload: Workload | None = None) -> list[Work]:
    """Count the work of training on one token, for each objective: forward 2, backward 4 per multiply-add."""
    workload = workload or Workload()
    dials: dict[str, int | float] = {
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
            (6, "nlayers", 4, "nhid", "nhid"),  # Q, K, V and the output
            (6, "nlayers", matrices, "nhid", "nff"),
            (6, "nlayers", 2, "length", "nhid"),  # scores, and the sum they weigh
        ]
    layers = Formula(tuple(body), dials)
    objectives = [
        Work(spec.name, layers if spec.trains_layers else Formula((), dials), Formula(spec.head_cost, dials))
        for spec in OBJECTIVES.values()
    ]
    classify = Formula(((6, "nhid", "classes", "/length"),), dials)
    return [*objectives, Work("classify", layers, classify)]
