"""The BERT family (BERT, DistilBERT, RoBERTa, XLM-R, CamemBERT, MPNet): weights, and a forward pass without padding.

The texts of a batch stand one after the other, (tokens, width); only attention sees them apart, those of one length at
a time. So no padding is computed, and no mask. Matrices are laid out once for oneDNN, which adds the bias and applies
GELU in the same pass. On a CPU that is 1.4 to 1.7 times as fast as transformers' own classes with padded batches, and
nothing of transformers is imported (`bench/encoders.py`).

A config that asks for anything else (another activation, relative keys, a decoder) has no `Shape` here:
`rehead.bases.encoder` reads it.

Shapes: n texts of t tokens each, M tokens of all texts, H width, A heads of width D.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from rehead.bases.files import CONFIG, INDEX, WEIGHTS, fields_of, inside
from rehead.bases.tensors import read_tensors
from rehead.errors import UserError

Precision = Literal["float32", "bfloat16"]
Matrix = Callable[[Tensor], Tensor]

LAYOUT_TOKENS = 2_048  # of the batches that matrices are laid out for; others are read, too
MPNET_PADDING = 1  # MPNet counts positions from there, whatever its config says
MAX_DISTANCES = 4_096  # positions of MPNet whose distances are held, each to each
MAX_DISTANCE = 128  # from which on MPNet does not tell distances apart


@dataclass(frozen=True)
class Names:
    """What a family calls its tensors, before `.weight` and `.bias`; those of a layer after its number."""

    layer: str
    query: str
    key: str
    value: str
    output: str
    norm1: str
    up: str = "intermediate.dense"
    down: str = "output.dense"
    norm2: str = "output.LayerNorm"


_ATTENTION = "attention.self."
_BERT = Names(
    "encoder.layer", f"{_ATTENTION}query", f"{_ATTENTION}key", f"{_ATTENTION}value",
    "attention.output.dense", "attention.output.LayerNorm",
)  # fmt: skip
_DISTILBERT = Names(
    "transformer.layer", "attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin",
    "sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm",
)  # fmt: skip
_MPNET = Names(
    "encoder.layer", "attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o",
    "attention.LayerNorm",
)  # fmt: skip
FAMILIES = {
    "bert": _BERT, "roberta": _BERT, "xlm-roberta": _BERT, "camembert": _BERT, "distilbert": _DISTILBERT,
    "mpnet": _MPNET,
}  # fmt: skip
WORDS, POSITIONS, TYPES, NORM = (
    f"embeddings.{name}" for name in ("word_embeddings", "position_embeddings", "token_type_embeddings", "LayerNorm")
)
RELATIVE = "encoder.relative_attention_bias"


@dataclass(frozen=True)
class Shape:
    """Sizes of a model of the family."""

    family: str
    ntokens: int
    nhid: int
    nlayers: int
    nhead: int
    nff: int
    npositions: int
    "Rows of the table of positions."
    padding: int | None
    "The token that is no position; positions are numbered from the next on. None: from 0, all of them."
    types: int
    "Rows of the table of token types; 0: there is none."
    eps: float
    pad: int
    "The token that stands for a text without any."
    buckets: int = 0
    "Distances that MPNet tells apart; 0 in other families."

    @property
    def longest(self) -> int:
        """Tokens of a text that have a position."""
        return self.npositions if self.padding is None else self.npositions - self.padding - 1

    @property
    def names(self) -> Names:
        """What the family calls its tensors."""
        return FAMILIES[self.family]


def shape_of(fields: Mapping[str, Any]) -> Shape | None:
    """Read the sizes from `config.json`; None where the model is none of the family, or one that differs from it."""
    family = fields.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        return None
    old = family == "distilbert"

    def number(name: str, default: int, distil: str | None = None) -> int:
        found = fields.get((distil or name) if old else name, default)
        return found if isinstance(found, int) and not isinstance(found, bool) else 0

    padding = {"bert": None, "distilbert": None, "mpnet": MPNET_PADDING}.get(family, number("pad_token_id", 1))
    eps = 1e-12 if old else fields.get("layer_norm_eps", 1e-12)
    shape = Shape(
        family=family,
        ntokens=number("vocab_size", 30_522),
        nhid=number("hidden_size", 768, "dim"),
        nlayers=number("num_hidden_layers", 12, "n_layers"),
        nhead=number("num_attention_heads", 12, "n_heads"),
        nff=number("intermediate_size", 3_072, "hidden_dim"),
        npositions=number("max_position_embeddings", 512),
        padding=padding,
        types=0 if family in ("distilbert", "mpnet") else number("type_vocab_size", 2),
        eps=float(eps) if isinstance(eps, int | float) else 0.0,
        pad=number("pad_token_id", 0 if family in ("bert", "distilbert") else 1),
        buckets=number("relative_attention_num_buckets", 32) if family == "mpnet" else 0,
    )
    usual = (
        fields.get("activation" if old else "hidden_act", "gelu") == "gelu"
        and fields.get("position_embedding_type", "absolute") == "absolute"
        and not any(fields.get(name) for name in ("is_decoder", "add_cross_attention", "pruned_heads"))
        and shape.buckets in (0, 32)  # transformers computes 32, whatever the config says
        and (not shape.buckets or shape.longest <= MAX_DISTANCES)
        and 0 < shape.eps < 1
        and min(shape.pad, shape.padding or 0) >= 0
    )
    sizes = (shape.ntokens, shape.nhid, shape.nlayers, shape.nhead, shape.nff, shape.longest)
    return shape if usual and min(sizes) > 0 and not shape.nhid % shape.nhead and shape.pad < shape.ntokens else None


def expected_tensors(shape: Shape) -> dict[str, tuple[int, ...]]:
    """List the tensors that are read, with their shapes."""
    wide, names = shape.nhid, shape.names
    found: dict[str, tuple[int, ...]] = {
        f"{WORDS}.weight": (shape.ntokens, wide),
        f"{POSITIONS}.weight": (shape.npositions, wide),
    }
    if shape.types:
        found[f"{TYPES}.weight"] = (shape.types, wide)
    norms = [NORM]
    if shape.buckets:
        found[f"{RELATIVE}.weight"] = (shape.buckets, shape.nhead)
    for layer in range(shape.nlayers):
        at = f"{names.layer}.{layer}."
        norms += [at + names.norm1, at + names.norm2]
        matrices = {at + each: (wide, wide) for each in (names.query, names.key, names.value, names.output)}
        matrices |= {at + names.up: (shape.nff, wide), at + names.down: (wide, shape.nff)}
        found |= {f"{name}.weight": sizes for name, sizes in matrices.items()}
        found |= {f"{name}.bias": sizes[:1] for name, sizes in matrices.items()}
    return found | {f"{name}.{part}": (wide,) for name in norms for part in ("weight", "bias")}


def read_checkpoint(home: Path) -> dict[str, Tensor]:
    """Read all tensors of a checkpoint, those of a head too, by their names without the family's prefix."""
    files = [WEIGHTS]
    if not (home / WEIGHTS).exists():
        files = sorted(set(fields_of(home, INDEX)["weight_map"].values()))
    found = {name: each for file in files for name, each in read_tensors(inside(home, file)).items()}
    prefix = next((name.removesuffix(f"{WORDS}.weight") for name in found if name.endswith(f"{WORDS}.weight")), "")
    old = {"gamma": "weight", "beta": "bias"}  # of LayerNorm, in checkpoints that were converted from TensorFlow
    tensors = {}
    for name, each in found.items():
        before, _, last = name.removeprefix(prefix).rpartition(".")
        tensors[f"{before}.{old.get(last, last)}"] = each
    return tensors


def read_weights(home: Path, shape: Shape) -> dict[str, Tensor]:
    """Read what the forward pass needs, checked: nothing is missing, and all has the shape that the config says."""
    tensors = read_checkpoint(home)
    for name, sizes in expected_tensors(shape).items():
        if name not in tensors or tuple(tensors[name].shape) != sizes or not tensors[name].is_floating_point():
            raise UserError(
                f"{home}: {name} is missing from the weights, or of another shape or type than {CONFIG} says. "
                "Copy the whole directory again."
            )
    return tensors


class Bert:
    """A model of the family that is loaded, and does not change."""

    def __init__(self, shape: Shape, tensors: Mapping[str, Tensor], precision: Precision = "float32") -> None:
        self.shape, self.names = shape, shape.names
        self.kind = torch.bfloat16 if precision == "bfloat16" else torch.float32
        self.words, self.positions = tensors[f"{WORDS}.weight"], tensors[f"{POSITIONS}.weight"]
        if shape.types:
            self.positions = self.positions + tensors[f"{TYPES}.weight"][0]
        self.norm = self._norm(tensors, NORM)
        self.layers = [self._layer(tensors, f"{self.names.layer}.{layer}.") for layer in range(shape.nlayers)]
        self.relative: Tensor | None = None
        if shape.buckets:
            every = distance_buckets(shape.longest, shape.buckets)
            self.relative = tensors[f"{RELATIVE}.weight"].to(self.kind)[every].permute(2, 0, 1)  # (A, t, t)

    def _norm(self, tensors: Mapping[str, Tensor], name: str) -> Matrix:
        weight, bias = (tensors[f"{name}.{part}"].to(self.kind) for part in ("weight", "bias"))
        return lambda x: F.layer_norm(x, weight.shape, weight, bias, self.shape.eps)

    def _layer(self, tensors: Mapping[str, Tensor], at: str) -> tuple[Matrix, Matrix, Matrix, Matrix, Matrix, Matrix]:
        names = self.names

        def matrix(*parts: str, gelu: bool = False) -> Matrix:
            weight, bias = (
                torch.cat([tensors[f"{at}{name}.{part}"] for name in parts]).to(self.kind)
                for part in ("weight", "bias")
            )
            return _matrix(weight, bias, gelu=gelu)

        return (
            matrix(names.query, names.key, names.value),
            matrix(names.output),
            self._norm(tensors, at + names.norm1),
            matrix(names.up, gelu=True),
            matrix(names.down),
            self._norm(tensors, at + names.norm2),
        )

    def __call__(self, texts: Sequence[Tensor], watched: list[Tensor] | None = None) -> list[Tensor]:
        """Compute the hidden states of texts: ids (n, t) of each length → (n, t, H) of each length, in float32.

        The attention weights of the first length are appended to `watched`, a layer each: (n, A, t, t).
        """
        with torch.inference_mode():
            sizes = [each.numel() for each in texts]
            x = self.norm(torch.cat([self._embed(each).flatten(0, 1) for each in texts]).to(self.kind))  # (M, H)
            biases = [
                None if self.relative is None else self.relative[:, : each.shape[1], : each.shape[1]] for each in texts
            ]
            for qkv, output, norm1, up, down, norm2 in self.layers:
                read = torch.empty_like(x)
                shown = watched
                parts = zip(texts, torch.split(qkv(x), sizes), torch.split(read, sizes), biases, strict=True)
                for ids, packed, room, bias in parts:
                    heads = packed.view(*ids.shape, 3, self.shape.nhead, -1).permute(2, 0, 3, 1, 4)  # (3, n, A, t, D)
                    found = _attend(heads, bias, shown).transpose(1, 2)
                    room.view(found.shape).copy_(found)
                    shown = None
                x = norm1(output(read).add_(x))
                x = norm2(down(up(x)).add_(x))
            states = zip(texts, torch.split(x.float(), sizes), strict=True)
            return [each.view(*ids.shape, -1) for ids, each in states]

    def _embed(self, ids: Tensor) -> Tensor:
        """Tokens and positions: (n, t) → (n, t, H)."""
        if self.shape.padding is None:
            places = self.positions[: ids.shape[1]]
        else:
            real = ids != self.shape.padding
            places = F.embedding(real.cumsum(1) * real + self.shape.padding, self.positions)
        return F.embedding(ids, self.words) + places


def distance_buckets(length: int, buckets: int) -> Tensor:
    """Number the distances from each position to each other as MPNet does, far ones together: (t, t)."""
    place = torch.arange(length)
    back = place[:, None] - place[None, :]
    half, distance = buckets // 2, back.abs()
    exact = half // 2
    far = torch.log(distance.clamp_min(1).float() / exact) / math.log(MAX_DISTANCE / exact) * (half - exact)
    number = torch.where(distance < exact, distance, (exact + far.long()).clamp_max(half - 1))
    return number + (back < 0) * half


def _attend(heads: Tensor, bias: Tensor | None, watched: list[Tensor] | None) -> Tensor:
    """Attention of texts of one length: queries, keys and values (3, n, A, t, D) → (n, A, t, D)."""
    query, key, value = heads
    if watched is None:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    weights = (scores if bias is None else scores + bias).softmax(-1)
    watched.append(weights.float())
    return torch.matmul(weights, value)


def _matrix(weight: Tensor, bias: Tensor, *, gelu: bool) -> Matrix:
    """Make what multiplies (M, V) by a matrix (W, V), in oneDNN's own layout where there is oneDNN."""
    there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if there and hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        # What torch.compile makes of F.linear and F.gelu on a CPU.
        laid = torch.ops.mkldnn._reorder_linear_weight(weight, LAYOUT_TOKENS)
        how: tuple[str, list[float], str] = ("gelu", [], "none") if gelu else ("none", [], "")
        return lambda x: torch.ops.mkldnn._linear_pointwise(x, laid, bias, *how)
    return (lambda x: F.gelu(F.linear(x, weight, bias))) if gelu else (lambda x: F.linear(x, weight, bias))
