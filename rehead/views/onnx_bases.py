"""Bases that others pretrained as parts of an ONNX graph: static tables, and encoders of the BERT family.

The tokens of one text are an input of the graph, named after the view, those of an encoder in pieces of one length; the
result is the text's vector. An encoder of another family, which transformers reads, has no graph here.

Shapes: P pieces, T tokens, H width, A heads of width D, W values of a vector.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.bases.bert import NORM, POSITIONS, RELATIVE, TYPES, WORDS, distance_buckets, read_weights
from rehead.bases.encoder import Dense
from rehead.bases.packed import PackedEncoder
from rehead.bases.static import StaticTable
from rehead.errors import UserError
from rehead.views.brought import BroughtView
from rehead.views.onnx_graph import Graph

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Weights = dict[str, NDArray[np.float32]]

F32 = np.float32


def exportable(view: BroughtView) -> PackedEncoder | StaticTable:
    """Give the engine of a base that can be exported; refuse others."""
    engine = view.brought.engine
    if not isinstance(engine, PackedEncoder | StaticTable):
        raise UserError(
            f"this classifier reads {view.name}, which cannot be exported: only static tables and encoders of the BERT "
            "family (BERT, DistilBERT, RoBERTa, XLM-R, MPNet) can. Serve it instead: rehead serve."
        )
    return engine


def brought_vector(g: Graph, view: BroughtView) -> str:
    """Encode the tokens of one text, an input of the view's name: (T,), or (P, T) of an encoder → (1, W)."""
    engine = exportable(view)
    if isinstance(engine, StaticTable):
        return _static_vector(g, view.name, engine)
    length = g.op("Slice", g.op("Shape", view.name), [1], [2], [0])  # (1,)
    hidden = _hidden_states(g, view.name, engine, length)
    return g.op("ReduceMean", _pooled(g, view.name, engine, hidden, length), axes=[0], keepdims=1)


def base_input(view: BroughtView) -> list[str | int]:
    """Name the dimensions of the input: tokens, of an encoder in pieces."""
    tokens = f"{view.name} tokens"
    return [tokens] if isinstance(exportable(view), StaticTable) else [f"{view.name} pieces", tokens]


def base_stated(view: BroughtView) -> dict[str, Any]:
    """State how the tokens of a text are found (`rehead.bases.tokens`)."""
    engine = exportable(view)
    cut = {} if isinstance(engine, StaticTable) else engine.cutter.stated(view.cutting)
    return {**engine.stated, **cut}


def _static_vector(g: Graph, name: str, engine: StaticTable) -> str:
    """Average the rows; a text without any gets zeros."""
    count = g.op("Shape", name)
    rows = g.lookup(f"{name}.table", engine.table.numpy(), g.op("Concat", name, [0], axis=0))  # (T + 1, W)
    counted = g.op("Concat", g.op("Expand", F32(1), count), np.zeros(1, F32), axis=0)  # all but the last
    total = g.op("MatMul", g.op("Unsqueeze", counted, [0]), rows)
    mean = g.op("Div", total, g.cast(g.op("Max", count, [1]), F32))
    return g.unit(mean) if engine.normalize else mean


def _hidden_states(g: Graph, name: str, engine: PackedEncoder, length: str) -> str:
    """Embeddings and layers: (P, T) → (P, T, H)."""
    shape = engine.shape
    weights = {key: each.numpy() for key, each in read_weights(engine.sentence.home, shape).items()}
    positions = weights[f"{POSITIONS}.weight"]
    if shape.types:
        positions = positions + weights[f"{TYPES}.weight"][0]
    table = g.constant(positions, f"{name}.positions")
    if shape.padding is None:
        places = g.op("Slice", table, [0], length, [0])
    else:
        real = g.cast(g.op("Not", g.op("Equal", name, shape.padding)), np.int64)
        places = g.op("Gather", table, g.op("Add", g.op("Mul", g.op("CumSum", real, 1), real), shape.padding), axis=0)
    x = g.op("Add", g.lookup(f"{name}.words", weights[f"{WORDS}.weight"], name), places)
    x = _norm(g, name, NORM, x, weights, shape.eps)
    bias = None
    if shape.buckets:
        every = g.constant(distance_buckets(shape.longest, shape.buckets).numpy().astype(np.int32), f"{name}.distances")
        near = g.op("Slice", every, [0, 0], g.op("Concat", length, length, axis=0), [0, 1])
        found = g.op("Gather", g.constant(weights[f"{RELATIVE}.weight"], f"{name}.relative"), near, axis=0)
        bias = g.op("Transpose", found, perm=[2, 0, 1])  # (A, T, T)
    for layer in range(shape.nlayers):
        x = _layer(g, name, engine, f"{shape.names.layer}.{layer}.", x, bias, weights)
    return x


def _layer(g: Graph, name: str, engine: PackedEncoder, at: str, x: str, bias: str | None, weights: Weights) -> str:
    shape, names = engine.shape, engine.shape.names

    def linear(value: str, *parts: str) -> str:
        both = [np.concatenate([weights[f"{at}{part}.{kind}"] for part in parts]) for kind in ("weight", "bias")]
        return g.linear(f"{name}.{at}{parts[0]}", value, *both)

    width = shape.nhid // shape.nhead
    packed = g.op("Reshape", linear(x, names.query, names.key, names.value), [0, 0, 3, shape.nhead, width])
    heads = g.op("Transpose", packed, perm=[2, 0, 3, 1, 4])  # (3, P, A, T, D)
    query, key, value = (g.op("Gather", heads, place, axis=0) for place in range(3))
    query = g.op("Mul", query, F32(1 / math.sqrt(width)))
    scores = g.op("MatMul", query, g.op("Transpose", key, perm=[0, 1, 3, 2]))  # (P, A, T, T)
    if bias is not None:
        scores = g.op("Add", scores, bias)
    read = g.op("Transpose", g.op("MatMul", g.op("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
    read = linear(g.op("Reshape", read, [0, 0, shape.nhid]), names.output)
    x = _norm(g, name, at + names.norm1, g.op("Add", read, x), weights, shape.eps)
    fed = linear(g.gelu(linear(x, names.up)), names.down)
    return _norm(g, name, at + names.norm2, g.op("Add", fed, x), weights, shape.eps)


def _norm(g: Graph, name: str, norm: str, x: str, weights: Weights, eps: float) -> str:
    return g.norm(f"{name}.{norm}", x, weights[f"{norm}.weight"], weights[f"{norm}.bias"], eps)


def _pooled(g: Graph, name: str, engine: PackedEncoder, hidden: str, length: str) -> str:
    """Pool hidden states (P, T, H), and do what follows: (P, W)."""
    # The tokens of a prompt may not count, unless there are no others.
    begin = g.op("Where", g.op("Greater", length, [engine.skipped]), [engine.skipped], [0])
    pooled = g.op("Slice", hidden, begin, length, [1])
    vector = g.op("Concat", *(_pool(g, each, pooled, begin, length) for each in engine.steps.poolings), axis=1)
    for number, step in enumerate(engine.steps.after):
        if isinstance(step, Dense):
            bias = None if step.bias is None else step.bias.numpy()
            product = g.linear(f"{name}.dense{number}", vector, step.weight.numpy(), bias)
            vector = _activate(g, step.activation, product)
        else:
            vector = g.unit(vector)
    return vector


def _pool(g: Graph, how: str, pooled: str, begin: str, length: str) -> str:
    """Pool in one way: (P, T, H) → (P, H)."""
    if how in ("cls", "lasttoken"):
        return g.op("Squeeze", g.op("Gather", pooled, [0 if how == "cls" else -1], axis=1), [1])
    if how in ("max", "mean"):
        return g.op("ReduceMax" if how == "max" else "ReduceMean", pooled, axes=[1], keepdims=0)
    if how == "mean_sqrt_len_tokens":
        count = g.op("Sqrt", g.cast(g.op("Sub", length, begin), F32))
        return g.op("Div", g.op("ReduceSum", pooled, [1], keepdims=0), count)
    first, last = (g.op("Squeeze", g.op("Add", each, [1]), [0]) for each in (begin, length))
    weights = g.op("Unsqueeze", g.cast(g.op("Range", first, last, np.int64(1)), F32), [0])  # (1, T)
    total = g.op("Squeeze", g.op("MatMul", weights, pooled), [1])
    return g.op("Div", total, g.op("ReduceSum", weights, [1], keepdims=1))


def _activate(g: Graph, name: str, x: str) -> str:
    made: dict[str, Any] = {
        "Identity": lambda: x, "GELU": lambda: g.gelu(x), "SiLU": lambda: g.op("Mul", x, g.op("Sigmoid", x)),
        "ReLU": lambda: g.op("Relu", x),
    }  # fmt: skip
    found: str = made.get(name, lambda: g.op(name, x))()  # Tanh, Sigmoid
    return found
