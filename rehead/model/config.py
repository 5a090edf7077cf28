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
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_type_hints

from rehead.errors import ConfigError, shown

Positions = Literal["sinusoidal", "learned", "rotary", "none"]
FeedForward = Literal["relu", "gelu", "swiglu"]
Norm = Literal["post", "pre"]
Pooling = Literal["last", "mean", "max+mean", "attention", "distinct"]

C = TypeVar("C")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The dials of a base. `nhid` alone scales every width."""

    ntokens: int
    "Size of the vocabulary."

    nhid: int = 200
    "Width of the hidden states."

    nlayers: int = 4
    "Transformer layers; 0 leaves the embeddings alone (a bag of words)."

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

    pooling: Pooling = "last"
    "What a classifier on this base reads, unless told otherwise."

    causal: bool = True
    "Whether a classifier on this base reads under the square mask, unless told otherwise."

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

    @property
    def nff(self) -> int:
        """Width of the feed-forward part."""
        return math.floor(self.ffmult * self.nhid + 0.5)

    def language_model(self) -> LanguageModel:
        """Describe the language-model head that goes with this base."""
        return LanguageModel(tied=self.tied)

    def classifier(self, classes: int, multilabel: bool = False) -> Classifier:
        """Describe the classifier that goes with this base: one linear layer on its usual reading and pooling."""
        return Classifier(classes=classes, pooling=self.pooling, causal=self.causal, multilabel=multilabel)


@dataclass(frozen=True, kw_only=True)
class LanguageModel:
    """A head that gives every token of the vocabulary a score, at every position."""

    kind: ClassVar[str] = "language-model"

    tied: bool
    "Read the embedding table instead of a matrix of its own."

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """A head that gives every class a score, for a whole document."""

    kind: ClassVar[str] = "classifier"
    LIMITS: ClassVar[dict[str, tuple[float, float]]] = {"classes": (1, 2**24), "dropout": (0, 0.99)}

    classes: int
    "Number of classes."

    pooling: Pooling = "mean"
    "How a document's hidden states become one vector."

    causal: bool = False
    "Read under the square mask (True) or both ways (False)."

    multilabel: bool = False
    "A document may have several labels, or none: each class is a question of its own."

    dropout: float = 0.0
    "Share of the pooled vector zeroed in training."

    unit: bool = False
    "Read the direction of the pooled vector alone: measured from the middle of documents, at the length one."

    words: bool = False
    "Let every token and n-gram score the classes by itself, too."

    def __post_init__(self) -> None:
        check_fields(self)
        if self.classes < 2 and not self.multilabel:
            raise ConfigError(
                f"classes={self.classes}: a classifier needs at least two to choose from (or multilabel=True)."
            )


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
# (docs/pretraining.md): 256 wide, since the step from 128 is worth 0.3 points with 100 labels and 1.1 with 17,000, at
# 1.5 times the cost; 32,768 tokens, which are whole words mostly: 0.5 to 0.7 points over 8,192 from 500 labels on, and
# cheaper, since texts are shorter; trigrams, 0.7 and 0.1 points over bigrams. `small` has the same under its layers,
# which start as the identity, so it begins as that bag. The sizes of its layers, and all of `base`, are not settled by
# accuracy.
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
        raise ConfigError(f"head kind {shown(kind)} is not known. Expected one of: {', '.join(HEADS)}.")
    return from_dict(HEADS[kind], {name: value for name, value in fields.items() if name != "kind"}, complete=complete)


def from_dict(cls: type[C], fields: Any, *, complete: bool = False) -> C:  # noqa: ANN401 (anything JSON may hold)
    """Read a configuration back, refusing unknown and missing fields by name; `complete` allows no default."""
    if not isinstance(fields, dict):
        raise ConfigError(f"{cls.__name__} is {shown(fields)}. Expected an object with named fields.")
    known = {each.name: each for each in dataclasses.fields(cls)}  # type: ignore[arg-type]
    if unknown := [name for name in fields if name not in known]:
        raise ConfigError(f"{cls.__name__} has no field {shown(unknown[0])}. It has: {', '.join(known)}.")
    needed = [name for name, each in known.items() if complete or each.default is dataclasses.MISSING]
    if missing := [name for name in needed if name not in fields]:
        raise ConfigError(f"{cls.__name__} lacks the field {missing[0]!r}.")
    return cls(**fields)


def check_fields(config: Any) -> None:  # noqa: ANN401 (any of the dataclasses above)
    """Check every field's type, choices and range against its annotation and `LIMITS`."""
    limits = getattr(config, "LIMITS", {})
    for name, hint in _hints(type(config)).items():  # type: ignore[arg-type] # mypy: types are no keys
        value = getattr(config, name)
        choices = get_args(hint)
        if choices:
            if not isinstance(value, str) or value not in choices:
                raise ConfigError(f"{name}={shown(value)} is not known. Choose one of: {', '.join(choices)}.")
            continue
        if hint is not bool and not isinstance(value, bool) and isinstance(value, numbers.Integral):
            value = int(value)  # numpy's whole numbers are fine, but JSON would not take them
            object.__setattr__(config, name, value)
        # bool is an int to Python, but True is no width; an int is a fine float.
        fits = isinstance(value, hint) or (hint is float and isinstance(value, int))
        if not fits or (hint is not bool and isinstance(value, bool)):
            wanted = {int: "a whole number", float: "a number", bool: "true or false"}[hint]
            raise ConfigError(f"{name}={shown(value)} is not {wanted}.")
        if name in limits:
            low, high = limits[name]
            if not low <= value <= high:
                raise ConfigError(f"{name}={shown(value)} is out of range. Choose from {low:,} to {high:,}.")


@functools.cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    """The types of a dataclass's fields."""
    hints = get_type_hints(cls)
    return {each.name: hints[each.name] for each in dataclasses.fields(cls)}
