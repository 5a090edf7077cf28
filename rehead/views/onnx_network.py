"""A model as an ONNX graph that does all that the views do: n-grams, windows, layers, pooling, sums of features.

A classifier's graph takes the token ids of one document, however long, and gives its probabilities. One document at a
time needs no padding, and so no rule for it that another program could get wrong. A language model's graph takes rows
of ids of one length, and gives logits at every position.

It is a second implementation of `rehead.model`, in the operations of ONNX, and tests compare the two for every kind of
model. Shapes: T tokens, P pieces of L tokens each, H hidden width, N heads of width D, K classes, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.errors import UserError
from rehead.model.base import Base
from rehead.model.heads import ClassifierHead, LanguageModelHead, ViewHead
from rehead.model.layers import Layer
from rehead.model.model import Model
from rehead.model.ngrams import FACTOR, NO_ROW, PRIME
from rehead.model.positions import WAVELENGTH, Learned
from rehead.text.long_documents import UNLIMITED
from rehead.views.bag import BagView
from rehead.views.brought import BroughtView
from rehead.views.layers import LayersView
from rehead.views.lsa import LsaView
from rehead.views.onnx_bases import base_input, brought_vector
from rehead.views.onnx_graph import Graph
from rehead.views.text_view import TextView
from rehead.views.tokens import TokensView
from rehead.views.view import View

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray
    from torch import Tensor

F32 = np.float32

Vocabulary = dict[str, "NDArray[np.int64]"]
"Hashes of n-grams by their kind, words or characters."


def text_vocabulary(views: Sequence[View]) -> Vocabulary:
    """The n-grams of the text that any view counts, by kind, ascending."""
    found: Vocabulary = {}
    for view in views:
        for each in view.kinds if isinstance(view, LsaView) else [view] if isinstance(view, TextView) else []:
            found[each.kind] = np.union1d(found.get(each.kind, np.zeros(0, np.int64)), each.keys)
    return found


def reads_own_tokens(views: Sequence[View]) -> bool:
    """Say whether a classifier takes tokens of its own: all but those that read brought bases and the text alone."""
    return any(view.of_base for view in views) or not any(isinstance(view, BroughtView) for view in views)


def classifier_graph(model: Model, views: Sequence[View], *, int8: bool) -> onnx.ModelProto:
    """Make the graph of a classifier, with the views that it reads: ids (T) → logits (K), probabilities (K).

    Views of the text itself take which n-grams of `text_vocabulary` it has, and their damped counts: (n), (n). Those of
    brought bases take the tokens of these, by the names of the views.
    """
    vocabulary = text_vocabulary(views)
    head = model.head
    assert isinstance(head, ClassifierHead)  # noqa: S101 (for the type checker)
    g = Graph(int8=int8)
    own = reads_own_tokens(views)
    length = there = ids = ""
    if own:
        length = g.op("Shape", "ids")  # (1,)
        there = g.cast(g.op("Greater", length, [0]), F32)  # (1,): whether there is any token; if not, one stands in
        length = g.op("Max", length, [1])
        ids = g.op("Slice", g.op("Concat", "ids", [0], axis=0), [0], length, [0])
    logits: str | NDArray[np.float32] = _array(head.bias)
    for view in views:
        if isinstance(view, TokensView):
            scores = g.op("Mul", _token_scores(g, model.base, head.of("tokens"), g.op("Unsqueeze", ids, [0])), there)
        elif isinstance(view, TextView):
            values = _ngram_values(g, view, vocabulary)
            aligned = _aligned(view, vocabulary, _array(head.of(view.name).weight))
            weight = g.lookup(f"{view.name}.weight", aligned, _found(g, view.kind)[0])  # (n, K)
            scores = g.op("Squeeze", g.op("MatMul", g.op("Unsqueeze", values, [0]), weight), [0])
        elif isinstance(view, LsaView):
            scores = _lsa_scores(g, head.of(view.name), view, vocabulary)
        elif isinstance(view, BroughtView):
            scores = _vector_scores(g, head.of(view.name), brought_vector(g, view))
        elif isinstance(view, BagView | LayersView):
            scores = _dense_scores(g, model, head.of(view.name), view, ids, length, there)
        else:
            raise UserError(f"the view {view.name!r} cannot be exported to ONNX yet.")
        logits = g.op("Add", scores, logits)
    probabilities = g.op("Sigmoid", logits) if head.config.multilabel else g.op("Softmax", logits, axis=-1)
    classes = head.config.classes
    inputs: dict[str, tuple[Any, list[str | int]]] = {"ids": (np.int64, ["tokens"])} if own else {}
    inputs |= {view.name: (np.int64, base_input(view)) for view in views if isinstance(view, BroughtView)}
    for kind in vocabulary:
        inputs |= {kind: (np.int64, [f"{kind}_found"]), f"{kind}_counts": (F32, [f"{kind}_found"])}
    return g.finish(
        inputs,
        {"logits": (str(logits), [classes]), "probabilities": (probabilities, [classes])},
        "The token ids of one document, without marks → its score and its probability for each label.",
    )


def _aligned(view: TextView, vocabulary: Vocabulary, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Bring values of a view's n-grams (V, …) into the order of the whole vocabulary, with zeros for all others."""
    found = np.zeros((max(1, len(vocabulary[view.kind])), *values.shape[1:]), F32)
    found[np.searchsorted(vocabulary[view.kind], view.keys)] = values
    return found


def _found(g: Graph, kind: str) -> tuple[str, str]:
    """Which n-grams a text has, and their counts, with one that counts nothing: (n + 1), (n + 1).

    A text may have none; but onnxruntime's sum over an empty axis has no element, where the specification has a zero.
    """
    places, counts = g.op("Concat", kind, [0], axis=0), g.op("Concat", f"{kind}_counts", np.zeros(1, F32), axis=0)
    return places, counts


def _ngram_values(g: Graph, view: TextView, vocabulary: Vocabulary, name: str = "") -> str:
    """Weight the n-grams that a text has by idf, and bring them to unit length: (n,)."""
    idf = g.constant(_aligned(view, vocabulary, np.asarray(view.scale, F32)), f"{name or view.name}.idf")
    places, counts = _found(g, view.kind)
    return g.unit(g.op("Mul", g.op("Gather", idf, places), counts))


def _lsa_scores(g: Graph, part: ViewHead, view: LsaView, vocabulary: Vocabulary) -> str:
    """Sum the rows of the table, of words and of characters; then as any dense view: (K,)."""
    vectors, begin = [], 0
    for kind in view.kinds:
        values = _ngram_values(g, kind, vocabulary, f"lsa.{kind.kind}")
        own = view.table[begin : begin + kind.terms]
        rows = g.lookup(f"lsa.{kind.kind}.table", _aligned(kind, vocabulary, own), _found(g, kind.kind)[0])  # (n, R)
        vectors.append(g.op("MatMul", g.op("Unsqueeze", values, [0]), rows))
        begin += kind.terms
    return _vector_scores(g, part, g.op("Add", *vectors))


def _vector_scores(g: Graph, part: ViewHead, vector: str) -> str:
    """Score a document by its vector: (1, W) → (K,)."""
    if part.shift is not None:
        vector = g.unit(g.op("Sub", vector, _array(part.shift)))
    return g.op("Squeeze", g.op("MatMul", vector, _array(part.weight).T), [0])


def _dense_scores(
    g: Graph, model: Model, part: ViewHead, view: BagView | LayersView, ids: str, length: str, there: str
) -> str:
    """Score a document by its vector, or by the mean over its pieces: ids (T) → (K,)."""
    whole = isinstance(view, LayersView) and view.whole
    places, keep = _cut(g, length, view.max_length, "stretches" if whole else view.options.long)
    pieces = g.op("Gather", ids, places)  # (P, L)
    if isinstance(view, BagView):
        vectors = (
            _mean_of_distinct(g, model.base, pieces) if view.options.distinct else _mean_of_all(g, model.base, pieces)
        )
    else:
        hidden = _read(g, model.base, pieces, keep, causal=view.options.causal)
        if whole:
            real = g.op("Unsqueeze", g.cast(keep, F32), [2])
            total = g.op("ReduceSum", g.op("Mul", hidden, real), [0, 1], keepdims=0)  # (H,)
            vectors = g.op("Unsqueeze", g.op("Div", total, g.cast(length, F32)), [0])
        elif view.options.pooling == "last":
            vectors = g.op("Gather", hidden, -1, axis=1)  # (P, H): all tokens of a piece are real
        else:
            vectors = g.op("ReduceMean", hidden, axes=[1], keepdims=0)
    vectors = g.op("Mul", vectors, there)
    if part.shift is not None:
        vectors = g.unit(g.op("Sub", vectors, _array(part.shift)))
    # In float32 also as int8: it is small, and the last step.
    return g.op("ReduceMean", g.op("MatMul", vectors, _array(part.weight).T), axes=[0], keepdims=0)


def language_model_graph(model: Model, *, causal: bool, int8: bool) -> onnx.ModelProto:
    """Make the graph of a language model: ids (P, L) → logits (P, L, V)."""
    head, base = model.head, model.base
    assert isinstance(head, LanguageModelHead)  # noqa: S101 (for the type checker)
    g = Graph(int8=int8)
    hidden = _read(g, base, "ids", None, causal=causal)
    if head.norm is not None:
        hidden = _norm(g, "head.norm", hidden, head.norm)
    bias = None if head.bias is None else _array(head.bias)
    if head.weight is not None or int8:
        weight = base.embedding.weight if head.weight is None else head.weight
        logits = g.linear("head.weight", hidden, _array(weight), bias)
    else:  # the table that tokens were looked up in, once more
        flat = g.op("Reshape", hidden, [-1, base.config.nhid])
        product = g.op("Gemm", flat, "embedding", *([] if bias is None else [bias]), transB=1)
        shape = g.op("Concat", g.op("Shape", "ids"), [base.config.ntokens], axis=0)
        logits = g.op("Reshape", product, shape)
    means = "the token that follows, having read those before" if causal else "the token there, having read all others"
    return g.finish(
        {"ids": (np.int64, ["rows", "tokens"])},
        {"logits": (logits, ["rows", "tokens", base.config.ntokens])},
        f"Rows of token ids → at every position, a score of every token of the vocabulary for being {means}.",
    )


def _cut(g: Graph, length: str, longest: int, rule: str) -> tuple[str, str | None]:
    """Say which tokens of a document stand in which piece: (P, L), and, where pieces are filled up, which are real."""
    if longest == UNLIMITED:
        return g.op("Unsqueeze", _range(g, length), [0]), None
    size = g.op("Min", length, [longest])
    over, every = g.op("Sub", length, size), _range(g, size)
    if rule == "tail":
        every = g.op("Add", every, over)
    elif rule == "head+tail":
        every = g.op("Add", every, g.op("Mul", over, g.cast(g.op("GreaterOrEqual", every, [longest // 4]), np.int64)))
    if rule not in ("windows", "stretches"):
        return g.op("Unsqueeze", every, [0]), None
    count = g.op("Div", g.op("Add", length, [longest - 1]), [longest])
    window = _range(g, count)
    if rule == "windows":
        start = g.op("Div", g.op("Mul", window, over), g.op("Max", g.op("Sub", count, [1]), [1]))
    else:
        start = g.op("Mul", window, size)
    places = g.op("Add", g.op("Unsqueeze", start, [1]), g.op("Unsqueeze", every, [0]))
    if rule == "windows":
        return places, None
    return g.op("Min", places, g.op("Sub", length, [1])), g.op("Less", places, length)


def _read(g: Graph, base: Base, ids: str, keep: str | None, *, causal: bool) -> str:
    """Embeddings, positions, layers: (P, L) → (P, L, H)."""
    size = g.op("Gather", g.op("Shape", ids), [1])  # (1,)
    x = _embed(g, base, ids, keep, causal=causal)
    if base.positions is not None:
        x = g.op("Add", x, _positions(g, base, size))
    if not base.layers:
        return x
    cos_sin = None
    if base.config.positions == "rotary":
        angles = _angles(g, size, base.config.nhid // base.config.nhead)  # (L, D / 2)
        cos_sin = g.op("Cos", angles), g.op("Sin", angles)
    mask = _mask(g, size, keep, causal=causal)
    for number, layer in enumerate(base.layers):
        assert isinstance(layer, Layer)  # noqa: S101 (for the type checker)
        x = _layer(g, f"layers.{number}", layer, x, mask, cos_sin)
    return x


def _embed(g: Graph, base: Base, ids: str, keep: str | None, *, causal: bool) -> str:
    """Tokens and n-grams, without positions: (P, L) → (P, L, H)."""
    size = g.op("Gather", g.op("Shape", ids), [1])  # (1,)
    x = g.lookup("embedding", _array(base.embedding.weight), ids)
    if base.scale != 1:
        x = g.op("Mul", x, F32(base.scale))
    if base.ngrams is not None:
        for n in range(2, base.ngrams.max_n + 1):
            vectors = g.lookup("ngrams", _array(base.ngrams.weight), _ngram_rows(g, base, ids, size, n, keep))
            for later in [n - 1] if causal else range(n):
                felt = _later(g, vectors, size, later)
                x = g.op("Add", x, felt if causal else g.op("Mul", felt, F32(1 / n)))
    return x


def _ngram_rows(g: Graph, base: Base, ids: str, size: str, n: int, keep: str | None) -> str:
    """Find the row of the run of n tokens that begins at each place: (P, L), NO_ROW where it goes over the end."""
    assert base.ngrams is not None  # noqa: S101 (for the type checker)
    padded = g.op("Pad", ids, [0, 0, 0, n - 1])
    state: Any = np.int64(n)
    for place in range(n):
        token = _stretch(g, padded, size, place)
        state = g.op("Mod", g.op("Add", g.op("Mul", state, FACTOR), g.op("Add", token, 1)), PRIME)
    slots = _array(base.ngrams.rows).astype(np.int32)
    rows = g.cast(g.op("Gather", g.constant(slots, "ngrams.rows"), g.op("Mod", state, len(slots))), np.int64)
    if keep is None:
        fits = g.op("LessOrEqual", _range(g, size), g.op("Sub", size, [n]))  # (L,)
    else:
        ahead = g.op("Pad", g.cast(keep, np.int64), [0, 0, 0, n - 1])
        fits = g.op("Greater", _stretch(g, ahead, size, n - 1), 0)  # the last of the run is real, so all are
    return g.op("Where", fits, rows, NO_ROW)


def _stretch(g: Graph, padded: str, size: str, begin: int) -> str:
    """Take as many places as there are, from a later one on: (P, L + …) → (P, L)."""
    return g.op("Slice", padded, [begin], g.op("Add", size, [begin]), [1])


def _later(g: Graph, x: str, size: str, by: int) -> str:
    """Move what stands at each place to a later one: (P, L, H) → (P, L, H)."""
    return x if not by else g.op("Slice", g.op("Pad", x, [0, by, 0, 0, 0, 0]), [0], size, [1])


def _positions(g: Graph, base: Base, size: str) -> str:
    """Vectors that are added: (L, H)."""
    if isinstance(base.positions, Learned):
        return g.op("Slice", g.constant(_array(base.positions.weight), "positions"), [0], size, [0])
    angles = _angles(g, size, base.config.nhid)  # (L, H / 2)
    pairs = [g.op("Unsqueeze", g.op(wave, angles), [2]) for wave in ("Sin", "Cos")]
    return g.op("Reshape", g.op("Concat", *pairs, axis=2), [0, base.config.nhid])


def _angles(g: Graph, size: str, width: int) -> str:
    frequencies = (WAVELENGTH ** (-np.arange(0, width, 2, dtype=F32) / F32(width))).astype(F32)
    return g.op("Mul", g.op("Unsqueeze", g.cast(_range(g, size), F32), [1]), frequencies)


def _mask(g: Graph, size: str, keep: str | None, *, causal: bool) -> str | None:
    """Additive mask of what may not be looked at: (L, L), or (P, 1, 1, L), or both; None if everything may."""
    mask = None
    if causal:
        later = g.op("Less", g.op("Unsqueeze", _range(g, size), [1]), g.op("Unsqueeze", _range(g, size), [0]))
        mask = g.op("Where", later, F32("-inf"), F32(0))
    if keep is None:
        return mask
    padding = g.op("Where", g.op("Unsqueeze", keep, [1, 2]), F32(0), F32("-inf"))
    return padding if mask is None else g.op("Add", mask, padding)


def _layer(g: Graph, name: str, layer: Layer, x: str, mask: str | None, cos_sin: tuple[str, str] | None) -> str:
    if layer.pre:
        x = g.op("Add", x, _attend(g, name, layer, _norm(g, f"{name}.norm1", x, layer.norm1), mask, cos_sin))
        return g.op("Add", x, _feed(g, name, layer, _norm(g, f"{name}.norm2", x, layer.norm2)))
    x = _norm(g, f"{name}.norm1", g.op("Add", x, _attend(g, name, layer, x, mask, cos_sin)), layer.norm1)
    return _norm(g, f"{name}.norm2", g.op("Add", x, _feed(g, name, layer, x)), layer.norm2)


def _attend(g: Graph, name: str, layer: Layer, x: str, mask: str | None, cos_sin: tuple[str, str] | None) -> str:
    nhid = layer.output.in_features
    width = nhid // layer.nhead
    packed = _linear(g, f"{name}.qkv", x, layer.qkv)  # (P, L, 3H)
    heads = g.op("Reshape", packed, [0, 0, 3, layer.nhead, width])
    heads = g.op("Transpose", heads, perm=[2, 0, 3, 1, 4])  # (3, P, N, L, D)
    q, k, v = (g.op("Gather", heads, place, axis=0) for place in range(3))
    if cos_sin is not None:
        q, k = (_turned(g, each, cos_sin, width) for each in (q, k))
    q = g.op("Mul", q, F32(1 / math.sqrt(width)))
    scores = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2]))  # (P, N, L, L)
    if mask is not None:
        scores = g.op("Add", scores, mask)
    read = g.op("MatMul", g.op("Softmax", scores, axis=-1), v)
    read = g.op("Reshape", g.op("Transpose", read, perm=[0, 2, 1, 3]), [0, 0, nhid])
    return _linear(g, f"{name}.output", read, layer.output)


def _turned(g: Graph, x: str, cos_sin: tuple[str, str], width: int) -> str:
    """Turn each pair (i, i + D / 2) by its position's angle: (P, N, L, D)."""
    cosine, sine = cos_sin
    first, second = g.ops("Split", 2, x, [width // 2, width // 2], axis=3)
    left = g.op("Sub", g.op("Mul", first, cosine), g.op("Mul", second, sine))
    right = g.op("Add", g.op("Mul", second, cosine), g.op("Mul", first, sine))
    return g.op("Concat", left, right, axis=3)


def _feed(g: Graph, name: str, layer: Layer, x: str) -> str:
    x = _linear(g, f"{name}.up", x, layer.up)
    if layer.feedforward == "swiglu":
        half = layer.down.in_features
        gate, value = g.ops("Split", 2, x, [half, half], axis=2)
        x = g.op("Mul", g.op("Mul", gate, g.op("Sigmoid", gate)), value)
    elif layer.feedforward == "gelu":
        x = g.gelu(x)
    else:
        x = g.op("Relu", x)
    return _linear(g, f"{name}.down", x, layer.down)


def _different_rows(g: Graph, base: Base, pieces: str) -> tuple[str, str]:
    """Find the different rows of each piece: pieces (P, L) → rows (U), tokens first, and whose each is (U).

    The row of n-grams that have none is among them.
    """
    size = g.op("Gather", g.op("Shape", pieces), [1])
    rows = [pieces]
    if base.ngrams is not None:
        grams = (_ngram_rows(g, base, pieces, size, n, None) for n in range(2, base.ngrams.max_n + 1))
        rows += [g.op("Add", each, base.config.ntokens) for each in grams]
    number = _range(g, g.op("Gather", g.op("Shape", pieces), [0]))
    total = np.int64(base.config.ntokens + (base.config.nbuckets if base.ngrams is not None else 0))
    marked = g.op("Add", g.op("Concat", *rows, axis=1), g.op("Unsqueeze", g.op("Mul", number, total), [1]))
    different = g.op("Unique", marked)
    return g.op("Mod", different, total), g.op("Div", different, total)


def _counted(g: Graph, base: Base, rows: str) -> str:
    """Which of the rows count: all but that of n-grams that have none: (U)."""
    return g.cast(g.op("Not", g.op("Equal", rows, base.config.ntokens + NO_ROW)), F32)


def _mean_of_distinct(g: Graph, base: Base, pieces: str) -> str:
    """Average the embeddings of each piece's different tokens and n-grams: (P, L) → (P, H)."""
    rows, piece = _different_rows(g, base, pieces)
    table = _array(base.embedding.weight) * F32(base.scale)
    there: Any = F32(1)
    if base.ngrams is not None:
        table = np.concatenate((table, _array(base.ngrams.weight)))
        there = _counted(g, base, rows)
    vectors = g.lookup("rows", table, rows)  # (U, H); the row of those that have none is zero
    count = g.op("Gather", g.op("Shape", pieces), [0])
    whose = g.op("Unsqueeze", piece, [1])
    blank = g.op("Expand", F32(0), g.op("Concat", count, [base.config.nhid], axis=0))
    sums = g.op("ScatterND", blank, whose, vectors, reduction="add")
    ones = g.op("Expand", there, g.op("Shape", rows))
    counts = g.op("ScatterND", g.op("Expand", F32(0), count), whose, ones, reduction="add")
    return g.op("Div", sums, g.op("Unsqueeze", counts, [1]))


def _mean_of_all(g: Graph, base: Base, pieces: str) -> str:
    """Sum the embeddings of all tokens and n-grams of each piece, divided by its tokens: (P, L) → (P, H)."""
    return g.op("ReduceMean", _embed(g, base, pieces, None, causal=True), axes=[1], keepdims=0)


def _token_scores(g: Graph, base: Base, tokens: ViewHead, document: str) -> str:
    """Score a document by its different tokens and n-grams: (1, T) → (K)."""
    assert tokens.scale is not None  # noqa: S101 (for the type checker)
    rows, _ = _different_rows(g, base, document)
    share = g.op("Gather", g.constant(_array(tokens.scale), "tokens.idf"), rows)
    if base.ngrams is not None:
        share = g.op("Mul", share, _counted(g, base, rows))
    share = g.unit(g.op("Unsqueeze", share, [0]))  # (1, U)
    weight = g.op("Gather", g.constant(_array(tokens.weight), "tokens.weight"), rows)  # (U, K)
    return g.op("Squeeze", g.op("MatMul", share, weight), [0])


def _norm(g: Graph, name: str, x: str, norm: Any) -> str:  # noqa: ANN401 (a LayerNorm)
    return g.norm(name, x, _array(norm.weight), None if norm.bias is None else _array(norm.bias), norm.eps)


def _linear(g: Graph, name: str, x: str, linear: Any) -> str:  # noqa: ANN401 (a Linear)
    return g.linear(name, x, _array(linear.weight), None if linear.bias is None else _array(linear.bias))


def _range(g: Graph, count: str) -> str:
    """Whole numbers from 0 on, as many as the one number in (1,) says."""
    return g.op("Range", np.int64(0), g.op("Squeeze", count, [0]), np.int64(1))


def _array(tensor: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = tensor.detach().cpu().numpy()
    return array
