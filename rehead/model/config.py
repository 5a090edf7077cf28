"""The shape of a model: one dataclass, a few dials, four presets.

`ModelConfig` is the base (what is kept when the head is replaced) and the habits of the heads that go on it.
`LanguageModel` and `Classifier` describe the heads. All three say what is wrong, by field, when they are made, and
go to JSON and back without loss. Nothing here needs torch.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_type_hints

from rehead.errors import ConfigError, short_repr

Positions = Literal["sinusoidal", "learned", "rotary", "none"]
FeedForward = Literal["relu", "gelu", "swiglu"]
Norm = Literal["post", "pre"]
Pooling = Literal["last", "mean"]
NeuralView = Literal["bag", "layers"]

C = TypeVar("C")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The dials of a base. `nhid` alone scales every width."""

    ntokens: int
    "Size of the vocabulary."

    nhid: int = 200
    "Width of the hidden states."

    nlayers: int = 4
    "Transformer layers; 0 leaves the embeddings alone (a bag of n-grams)."

    nhead: int = 2
    "Attention heads; they share nhid between them, so their number changes no count."

    ffmult: float = 1.0
    "Width of the feed-forward part, in multiples of nhid."

    feedforward: FeedForward = "relu"
    "relu and gelu: two matrices; swiglu: three, the first two multiplied (gated)."

    positions: Positions = "sinusoidal"
    "How a layer knows the order: sinusoidal and learned are added to the embeddings, rotary turns queries and keys."

    maxlen: int = 512
    "The longest text trained on; the size of the learned table, where there is one."

    norm: Norm = "post"
    "post: after each residual sum. pre: before each part, whose output starts at zero, so a new layer is the identity."

    bias: bool = True
    "Biases in the layers and the language-model head, and shifts in the norms."

    scale_embedding: bool = True
    "Multiply the embeddings by the square root of nhid, so that positions do not drown them."

    ngrams: int = 1
    "Longest n-gram with an embedding of its own; 1: words (tokens) only."

    nbuckets: int = 0
    "Rows of the table of n-grams of two tokens and more: that many get a vector, the most frequent ones."

    dropout: float = 0.2
    "Share of values zeroed in training."

    tied: bool = False
    "The language-model head reads the embedding table instead of having a matrix of its own."

    reads: NeuralView | None = None
    """What a classifier on this base reads: bag (n-gram vectors, past the layers) or layers (hidden states). None: the
    layers, where there are any or positions are added. A base whose layers were never trained says bag."""

    pooling: Pooling = "last"
    "How a classifier that reads the layers makes one vector of the hidden states, unless told otherwise."

    causal: bool = True
    "Whether a classifier that reads the layers does so under the square mask, unless told otherwise."

    LIMITS: ClassVar[dict[str, tuple[float, float]]] = {
        "ntokens": (1, 2**31),
        "nhid": (1, 2**16),
        "nlayers": (0, 1024),
        "nhead": (1, 2**16),
        "ffmult": (2**-10, 64),
        "maxlen": (1, 2**24),
        "ngrams": (1, 8),
        "nbuckets": (0, 2**24),
        "dropout": (0, 0.99),
    }

    def __post_init__(self) -> None:
        check_fields(self)
        if self.nhid % self.nhead:
            step = {"sinusoidal": math.lcm(2, self.nhead), "rotary": 2 * self.nhead}.get(self.positions, self.nhead)
            below = max(step, self.nhid - self.nhid % step)
            raise ConfigError(
                f"nhid={self.nhid} is not divisible by nhead={self.nhead}: each head takes nhid / nhead of the width. "
                f"Choose a multiple of {step}, such as nhid={below} or {below + step}."
            )
        if self.positions == "sinusoidal" and self.nhid % 2:
            raise ConfigError(
                f"nhid={self.nhid} is odd, but positions='sinusoidal' needs a sine and a cosine for each frequency. "
                f"Choose an even nhid, such as {self.nhid + 1}, or other positions."
            )
        if self.positions == "rotary" and self.nlayers and (self.nhid // self.nhead) % 2:
            raise ConfigError(
                f"nhid={self.nhid} over nhead={self.nhead} gives heads of {self.nhid // self.nhead}, but "
                "positions='rotary' turns pairs of values. Choose nhid so that nhid / nhead is even."
            )
        if (self.ngrams > 1) != (self.nbuckets > 0):
            raise ConfigError(
                f"ngrams={self.ngrams} and nbuckets={self.nbuckets} contradict each other: n-grams need a table. "
                "Give both (such as ngrams=2, nbuckets=262144) or neither (ngrams=1, nbuckets=0)."
            )
        if self.nff < 1:
            raise ConfigError(f"ffmult={self.ffmult} of nhid={self.nhid} rounds to a feed-forward of no width.")
        if self.reads is None:
            object.__setattr__(self, "reads", self.views[-1])
        elif self.reads not in self.views:
            raise ConfigError(
                f"reads={self.reads!r}, but with nlayers={self.nlayers} and positions={self.positions!r} a classifier "
                f"can read: {', '.join(self.views)}."
            )

    @property
    def nff(self) -> int:
        """Width of the feed-forward part."""
        return math.floor(self.ffmult * self.nhid + 0.5)

    @property
    def views(self) -> tuple[NeuralView, ...]:
        """The neural views that this shape has: a bag, unless positions are added to the embeddings; its layers."""
        bag = self.positions in ("rotary", "none")
        return (*(("bag",) if bag else ()), *(("layers",) if self.nlayers or not bag else ()))

    @property
    def learning_part(self) -> str:
        """Say in a few words which part of a base of this shape learns, and is read."""
        if self.reads == "layers" and self.nlayers:
            return f"a Transformer of {self.nlayers} layer{'s' * (self.nlayers > 1)}"
        return f"{'n-gram' if self.ngrams > 1 else 'token'} vectors, no layers"

    def language_model(self) -> LanguageModel:
        """Describe the language-model head that goes with this base."""
        return LanguageModel(tied=self.tied)

    def classifier(self, classes: int, multilabel: bool = False) -> Classifier:
        """Describe the classifier that goes with this base: one linear layer on the view that it reads."""
        options = {"pooling": self.pooling, "causal": self.causal} if self.reads == "layers" else {}
        view = ViewConfig(name=str(self.reads), columns=self.nhid, options=options)
        return Classifier(classes=classes, views=(view,), multilabel=multilabel)


@dataclass(frozen=True, kw_only=True)
class LanguageModel:
    """A head that gives every token of the vocabulary a score, at every position."""

    kind: ClassVar[str] = "language-model"

    tied: bool
    "Read the embedding table instead of a matrix of its own."

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class ViewConfig:
    """One view that a classifier reads: its features, and what the view itself has to know (`rehead.views`)."""

    LIMITS: ClassVar[dict[str, tuple[float, float]]] = {"columns": (1, 2**31)}

    name: str
    "Which view: bag, layers, words, …"

    columns: int
    "Number of its features."

    sparse: bool = False
    "Whether the features are sparse; they then have a weight (idf) each and unit length."

    unit: bool = False
    "Dense features: read the direction from the mean document alone, at unit length."

    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    "What the view reads by, such as pooling or max_length; checked by the view."

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.name.isidentifier():
            raise ConfigError(f"view name {short_repr(self.name)} is not a name.")


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """A linear head: every view that it reads scores every class, for a whole document, and the scores add up."""

    kind: ClassVar[str] = "classifier"
    LIMITS: ClassVar[dict[str, tuple[float, float]]] = {"classes": (1, 2**24), "dropout": (0, 0.99)}

    classes: int
    "Number of classes."

    views: tuple[ViewConfig, ...]
    "What it reads."

    multilabel: bool = False
    "A document may have several labels, or none: each class is a yes-or-no question."

    dropout: float = 0.0
    "Dropout on the document's vector in training."

    def __post_init__(self) -> None:
        if isinstance(self.views, list | tuple):  # of objects, as JSON has them
            views = [each if isinstance(each, ViewConfig) else from_dict(ViewConfig, each) for each in self.views]
            object.__setattr__(self, "views", tuple(views))
        check_fields(self)
        if self.classes < 2 and not self.multilabel:
            raise ConfigError(
                f"classes={self.classes}: a classifier needs at least two to choose from (or multilabel=True)."
            )
        names = [view.name for view in self.views]
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"views={short_repr(names)}: a classifier reads at least one view, and each once.")

    def view(self, name: str) -> ViewConfig | None:
        """Find a view by its name."""
        return next((each for each in self.views if each.name == name), None)

    @property
    def neural(self) -> ViewConfig | None:
        """The view of the own base's vectors, if the classifier reads one."""
        return next((each for each in self.views if each.name in get_args(NeuralView)), None)


Head = LanguageModel | Classifier

HEADS: dict[str, type[LanguageModel] | type[Classifier]] = {each.kind: each for each in (LanguageModel, Classifier)}

# What the newer shapes have in common.
_NEWER: dict[str, Any] = {
    "feedforward": "swiglu",
    "positions": "rotary",
    "norm": "pre",
    "bias": False,
    "scale_embedding": False,
    "tied": True,
    "pooling": "mean",
    "causal": False,
}

_NGRAMS: dict[str, Any] = {"ngrams": 3, "nbuckets": 2**18}

# `lab` is the classic experiment and fixed: the defaults of the fields. `bag` is what measuring says
# (docs/experiments/pretraining.md): 256 wide, since the step from 128 is worth 0.3 points with 100 labels and 1.1 with
# 17,000, at 1.5 times the cost; 32,768 tokens, which are whole words mostly: 0.5 to 0.7 points over 8,192 from 500
# labels on, and cheaper, since texts are shorter; trigrams, 0.7 and 0.1 points over bigrams. `small` has the same under
# its layers, which start as the identity, so it begins as that bag. The sizes of its layers, and all of `base`, are not
# settled by accuracy.
PRESETS: dict[str, dict[str, Any]] = {
    "lab": {"ntokens": 50_001},
    "small": _NEWER
    | _NGRAMS
    | {"ntokens": 32_768, "nhid": 256, "nlayers": 4, "nhead": 4, "ffmult": 2.5, "dropout": 0.1},
    "base": _NEWER | {"ntokens": 32_768, "nhid": 512, "nlayers": 8, "nhead": 8, "ffmult": 2.5, "dropout": 0.1},
    "bag": _NEWER
    | _NGRAMS
    | {"ntokens": 32_768, "nhid": 256, "nlayers": 0, "nhead": 1, "dropout": 0.0, "positions": "none"},
}


def preset(name: str, **changes: Any) -> ModelConfig:  # noqa: ANN401 (any field of ModelConfig)
    """Make a preset's configuration, with some dials turned: `preset("lab", ntokens=100)`."""
    if name not in PRESETS:
        raise ConfigError(f"preset={name!r} is not known. Choose one of: {', '.join(PRESETS)}.")
    return from_dict(ModelConfig, {**PRESETS[name], **changes})


def presets() -> dict[str, ModelConfig]:
    """Make every preset's configuration, by name."""
    return {name: preset(name) for name in PRESETS}


def to_dict(config: ModelConfig | Head) -> dict[str, Any]:
    """Turn a configuration into what JSON can hold; a head carries its kind."""
    fields = dataclasses.asdict(config)
    return fields if isinstance(config, ModelConfig) else {"kind": config.kind, **fields}


def head_from_dict(fields: Any, *, complete: bool = False) -> Head:  # noqa: ANN401 (anything a JSON file may hold)
    """Read a head's configuration back; the kind says which."""
    kind = fields.get("kind") if isinstance(fields, dict) else fields
    if not isinstance(kind, str) or kind not in HEADS or kind is fields:
        raise ConfigError(f"head kind {short_repr(kind)} is not known. Expected one of: {', '.join(HEADS)}.")
    return from_dict(HEADS[kind], {name: value for name, value in fields.items() if name != "kind"}, complete=complete)


def from_dict(cls: type[C], fields: Any, *, complete: bool = False) -> C:  # noqa: ANN401 (anything JSON may hold)
    """Read a configuration back, refusing unknown and missing fields by name; `complete` allows no default."""
    if not isinstance(fields, dict):
        raise ConfigError(f"{cls.__name__} is {short_repr(fields)}. Expected an object with named fields.")
    known = {each.name: each for each in dataclasses.fields(cls)}  # type: ignore[arg-type]
    if unknown := [name for name in fields if name not in known]:
        raise ConfigError(f"{cls.__name__} has no field {short_repr(unknown[0])}. It has: {', '.join(known)}.")
    needed = [name for name, each in known.items() if complete or each.default is dataclasses.MISSING]
    if missing := [name for name in needed if name not in fields]:
        raise ConfigError(f"{cls.__name__} lacks the field {missing[0]!r}.")
    return cls(**fields)


def check_fields(config: Any) -> None:  # noqa: ANN401 (any of the dataclasses above)
    """Check every field's type, choices and range against its annotation and `LIMITS`."""
    limits = getattr(config, "LIMITS", {})
    for name, hint in _hints(type(config)).items():  # type: ignore[arg-type] # mypy: types are no keys
        value = getattr(config, name)
        if hint in _OBJECTS:
            if not isinstance(value, _OBJECTS[hint]):
                raise ConfigError(f"{name}={short_repr(value)} is not {_KINDS[_OBJECTS[hint]]}.")
            continue
        if typing.get_origin(hint) in (Union, types.UnionType):  # a choice that may be left open
            if value is None:
                continue
            hint = get_args(hint)[0]
        choices = get_args(hint)
        if choices:
            if not isinstance(value, str) or value not in choices:
                raise ConfigError(f"{name}={short_repr(value)} is not known. Choose one of: {', '.join(choices)}.")
            continue
        if hint is not bool and not isinstance(value, bool) and isinstance(value, numbers.Integral):
            value = int(value)  # numpy's whole numbers are fine, but JSON would not take them
            object.__setattr__(config, name, value)
        # bool is an int to Python, but True is no width; an int is a fine float.
        fits = isinstance(value, hint) or (hint is float and isinstance(value, int))
        if not fits or (hint is not bool and isinstance(value, bool)):
            raise ConfigError(f"{name}={short_repr(value)} is not {_KINDS[hint]}.")
        if name in limits:
            low, high = limits[name]
            if not low <= value <= high:
                raise ConfigError(f"{name}={short_repr(value)} is out of range. Choose from {low:,} to {high:,}.")


_OBJECTS: dict[Any, type] = {Mapping[str, Any]: dict, tuple[ViewConfig, ...]: tuple}
_KINDS: dict[type, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    dict: "an object",
    tuple: "a list of views",
}


@functools.cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    """The types of a dataclass's fields."""
    hints = get_type_hints(cls)
    return {each.name: hints[each.name] for each in dataclasses.fields(cls)}
