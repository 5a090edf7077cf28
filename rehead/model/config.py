"""Model configuration: dataclasses for the base and its heads, and four presets.

`ModelConfig` describes the base (what is kept when the head is replaced) and the defaults of its heads; `LanguageModel`
and `Classifier` describe the heads. All three are validated field by field on construction, and round-trip through
JSON. Nothing here imports torch.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
import re
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
    """The architecture of a base. `nhid` alone scales every width."""

    ntokens: int
    "Vocabulary size; 0: there is no base, for a classifier whose views need none (`NO_BASE`)."

    nhid: int = 200
    "Hidden size."

    nlayers: int = 4
    "Number of Transformer layers; 0: embeddings only (a bag of n-grams)."

    nhead: int = 2
    "Number of attention heads, each of nhid / nhead; it does not change the parameter count."

    ffmult: float = 1.0
    "Width of the feed-forward network, as a multiple of nhid."

    feedforward: FeedForward = "relu"
    "relu and gelu: two matrices; swiglu: three, the first two multiplied (gated)."

    positions: Positions = "sinusoidal"
    """Positional encoding: sinusoidal and learned are added to the embeddings, rotary (RoPE) rotates queries and
    keys."""

    maxlen: int = 512
    "Maximum sequence length in training; with learned positions, the size of their table."

    norm: Norm = "post"
    """Placement of the layer norms. post: after each residual sum. pre: before attention and feed-forward network;
    their outputs start at zero, so that a new layer is the identity."""

    bias: bool = True
    "Biases in the layers, the layer norms and the language-model head."

    scale_embedding: bool = True
    "Multiply the embeddings by the square root of nhid, so that positions do not dominate them."

    ngrams: int = 1
    "Maximum length of n-grams with their own embedding; 1: tokens only."

    nbuckets: int = 0
    "Number of rows of the n-gram embedding table, for the most frequent n-grams of two or more tokens."

    dropout: float = 0.2
    "Dropout probability."

    tied: bool = False
    "Weight tying: the language-model head uses the embedding table instead of its own matrix."

    reads: NeuralView | None = None
    """The view of a classifier on this base: bag (n-gram vectors, bypassing the layers) or layers (hidden states).
    None: layers, if there are any or positions are added. A base whose layers were never trained has bag."""

    pooling: Pooling = "last"
    "Default pooling of the hidden states for a classifier with the view layers."

    causal: bool = True
    "Default for a classifier with the view layers: whether its attention is causal."

    LIMITS: ClassVar[dict[str, tuple[float, float]]] = {
        "ntokens": (0, 2**31),
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
        if not self.ntokens and (self.nlayers, self.nbuckets, self.positions, self.nhid) != (0, 0, "none", 1):
            raise ConfigError("ntokens=0 is for no base at all: nhid=1, no layers, no n-grams, positions='none'.")
        if self.nhid % self.nhead:
            step = {"sinusoidal": math.lcm(2, self.nhead), "rotary": 2 * self.nhead}.get(self.positions, self.nhead)
            below = max(step, self.nhid - self.nhid % step)
            raise ConfigError(
                f"nhid={self.nhid} is not divisible by nhead={self.nhead}: each head has the size nhid / nhead. "
                f"Choose a multiple of {step}, such as nhid={below} or {below + step}."
            )
        if self.positions == "sinusoidal" and self.nhid % 2:
            raise ConfigError(
                f"nhid={self.nhid} is odd, but positions='sinusoidal' needs a sine and a cosine for each frequency. "
                f"Choose an even nhid, such as {self.nhid + 1}, or other positions."
            )
        if self.positions == "rotary" and self.nlayers and (self.nhid // self.nhead) % 2:
            raise ConfigError(
                f"nhid={self.nhid} with nhead={self.nhead} gives a head size of {self.nhid // self.nhead}, but "
                "positions='rotary' rotates pairs of values. Choose nhid so that nhid / nhead is even."
            )
        if (self.ngrams > 1) != (self.nbuckets > 0):
            raise ConfigError(
                f"ngrams={self.ngrams} and nbuckets={self.nbuckets} contradict each other: n-grams need a table. "
                "Give both (such as ngrams=2, nbuckets=262144) or neither (ngrams=1, nbuckets=0)."
            )
        if self.nff < 1:
            raise ConfigError(
                f"ffmult={self.ffmult} of nhid={self.nhid} rounds to a feed-forward width of 0. Choose a larger ffmult."
            )
        if self.reads is None:
            object.__setattr__(self, "reads", self.views[-1])
        elif self.reads not in self.views:
            raise ConfigError(
                f"reads={self.reads!r} is not possible with nlayers={self.nlayers} and positions={self.positions!r}. "
                f"Choose from {', '.join(self.views)}."
            )

    @property
    def empty(self) -> bool:
        """Whether there is no base of its own: its views read the text itself, or bases that others pretrained."""
        return not self.ntokens

    @property
    def nff(self) -> int:
        """Width of the feed-forward network."""
        return math.floor(self.ffmult * self.nhid + 0.5)

    @property
    def views(self) -> tuple[NeuralView, ...]:
        """The neural views that are possible: bag, unless positions are added to the embeddings; layers, if any."""
        bag = self.positions in ("rotary", "none")
        return (*(("bag",) if bag else ()), *(("layers",) if self.nlayers or not bag else ()))

    @property
    def learning_part(self) -> str:
        """Name the part of the base that is trained and that a classifier uses, for messages."""
        if self.empty:
            return "no base of its own"
        if self.reads == "layers" and self.nlayers:
            return f"a Transformer of {self.nlayers} layer{'s' * (self.nlayers > 1)}"
        return f"{'n-gram' if self.ngrams > 1 else 'token'} vectors, no layers"

    def language_model(self) -> LanguageModel:
        """Make the configuration of this base's language-model head."""
        return LanguageModel(tied=self.tied)

    def classifier(self, classes: int, multilabel: bool = False) -> Classifier:
        """Make the configuration of this base's default classifier: one linear layer on the view `reads`."""
        options = {"pooling": self.pooling, "causal": self.causal} if self.reads == "layers" else {}
        view = ViewConfig(name=str(self.reads), columns=self.nhid, options=options)
        return Classifier(classes=classes, views=(view,), multilabel=multilabel)


@dataclass(frozen=True, kw_only=True)
class LanguageModel:
    """A language-model head: logits over the vocabulary at every position."""

    kind: ClassVar[str] = "language-model"

    tied: bool
    "Weight tying: use the embedding table instead of its own matrix."

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class ViewConfig:
    """One view of a classifier: its number of features, and the options of the view (`rehead.views`)."""

    LIMITS: ClassVar[dict[str, tuple[float, float]]] = {"columns": (1, 2**31), "terms": (0, 2**24)}

    name: str
    """Which view: bag, layers, tokens, words, characters, lsa; encoder:NAME and static:NAME read the base of that name
    which others pretrained."""

    columns: int
    "Number of its features."

    sparse: bool = False
    "Whether the features are sparse; they are then weighted by idf and L2-normalised."

    unit: bool = False
    "Dense features: centre on the mean document and L2-normalise."

    terms: int = 0
    "Number of n-grams of the text itself whose hashes are kept with the weights; 0: it reads tokens of the base."

    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    "Options of the view, such as pooling or max_length; checked by the view."

    def __post_init__(self) -> None:
        check_fields(self)
        if not re.fullmatch(r"[a-z_]+(:[A-Za-z0-9_-]{1,60})?", self.name):
            raise ConfigError(
                f"view name {short_repr(self.name)} is not that of a view, such as words or encoder:NAME."
            )

    @property
    def kind(self) -> str:
        """Which view it is, whatever it reads by: encoder of encoder:NAME."""
        return self.name.partition(":")[0]


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """A linear classifier of documents: each of its views scores every class, and the scores are added."""

    kind: ClassVar[str] = "classifier"
    LIMITS: ClassVar[dict[str, tuple[float, float]]] = {"classes": (1, 2**24), "dropout": (0, 0.99)}

    classes: int
    "Number of classes."

    views: tuple[ViewConfig, ...]
    "Its inputs."

    multilabel: bool = False
    "Whether a document may have any number of labels; each class is then a binary decision."

    dropout: float = 0.0
    "Dropout probability of the document vector."

    def __post_init__(self) -> None:
        if isinstance(self.views, list | tuple):  # may hold dicts, from JSON
            views = [each if isinstance(each, ViewConfig) else from_dict(ViewConfig, each) for each in self.views]
            object.__setattr__(self, "views", tuple(views))
        check_fields(self)
        if self.classes < 2 and not self.multilabel:
            raise ConfigError(f"classes={self.classes}: must be 2 or more, unless multilabel=True.")
        names = [view.name for view in self.views]
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"views={short_repr(names)}: a classifier needs at least one view, and each only once.")

    def view(self, name: str) -> ViewConfig | None:
        """Find a view by its name."""
        return next((each for each in self.views if each.name == name), None)

    @property
    def neural(self) -> ViewConfig | None:
        """The neural view (bag or layers of its own base), if it has one."""
        return next((each for each in self.views if each.name in get_args(NeuralView)), None)


Head = LanguageModel | Classifier

HEADS: dict[str, type[LanguageModel] | type[Classifier]] = {each.kind: each for each in (LanguageModel, Classifier)}

# Common to all presets but `lab`.
_MODERN: dict[str, Any] = {
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

# `lab` is the classic Transformer language model: the defaults of the fields, fixed. The sizes of `bag` were tuned
# (docs/experiments/pretraining.md): nhid=256, since the step from 128 gains 0.3 points with 100 labels and 1.1 with
# 17,000, at 1.5 times the cost; 32,768 tokens, which are mostly whole words: 0.5 to 0.7 points over 8,192 from 500
# labels on, and cheaper, since sequences are shorter; trigrams, 0.7 and 0.1 points over bigrams. `small` has the same
# embeddings under layers that start as the identity, so it starts as that bag. The sizes of its layers, and of `base`,
# are not tuned.
PRESETS: dict[str, dict[str, Any]] = {
    "lab": {"ntokens": 50_001},
    "small": _MODERN
    | _NGRAMS
    | {"ntokens": 32_768, "nhid": 256, "nlayers": 4, "nhead": 4, "ffmult": 2.5, "dropout": 0.1},
    "base": _MODERN | {"ntokens": 32_768, "nhid": 512, "nlayers": 8, "nhead": 8, "ffmult": 2.5, "dropout": 0.1},
    "bag": _MODERN
    | _NGRAMS
    | {"ntokens": 32_768, "nhid": 256, "nlayers": 0, "nhead": 1, "dropout": 0.0, "positions": "none"},
}


def preset(name: str, **changes: Any) -> ModelConfig:  # noqa: ANN401 (any field of ModelConfig)
    """Make a preset's configuration, with some fields changed: `preset("lab", ntokens=100)`."""
    if name not in PRESETS:
        raise ConfigError(f"preset={name!r} is not known. Choose one of: {', '.join(PRESETS)}.")
    return from_dict(ModelConfig, {**PRESETS[name], **changes})


def presets() -> dict[str, ModelConfig]:
    """Make every preset's configuration, by name."""
    return {name: preset(name) for name in PRESETS}


def to_dict(config: ModelConfig | Head) -> dict[str, Any]:
    """Convert a configuration to a JSON-compatible dict; that of a head contains its kind."""
    fields = dataclasses.asdict(config)
    return fields if isinstance(config, ModelConfig) else {"kind": config.kind, **fields}


def head_from_dict(fields: Any, *, complete: bool = False) -> Head:  # noqa: ANN401 (anything a JSON file may hold)
    """Make a head's configuration from a dict, by its kind."""
    kind = fields.get("kind") if isinstance(fields, dict) else fields
    if not isinstance(kind, str) or kind not in HEADS or kind is fields:
        raise ConfigError(f"head kind {short_repr(kind)} is not known. Expected one of: {', '.join(HEADS)}.")
    return from_dict(HEADS[kind], {name: value for name, value in fields.items() if name != "kind"}, complete=complete)


def from_dict(cls: type[C], fields: Any, *, complete: bool = False) -> C:  # noqa: ANN401 (anything JSON may hold)
    """Make a configuration from a dict; reject unknown or missing fields; `complete` requires all."""
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
        if typing.get_origin(hint) in (Union, types.UnionType):  # X | None
            if value is None:
                continue
            hint = get_args(hint)[0]
        choices = get_args(hint)
        if choices:
            if not isinstance(value, str) or value not in choices:
                raise ConfigError(f"{name}={short_repr(value)} is not known. Choose one of: {', '.join(choices)}.")
            continue
        if hint is not bool and not isinstance(value, bool) and isinstance(value, numbers.Integral):
            value = int(value)  # numpy's integers are allowed, but JSON cannot hold them
            object.__setattr__(config, name, value)
        # bool is a subclass of int, but not a valid number here; an int is valid where a float is expected.
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
    """Return the types of a dataclass's fields."""
    hints = get_type_hints(cls)
    return {each.name: hints[each.name] for each in dataclasses.fields(cls)}


NO_BASE = ModelConfig(ntokens=0, nhid=1, nlayers=0, nhead=1, positions="none", reads="bag")
