"""Warm starts: token embeddings that a language model begins with, learnt by a cheaper objective, or brought.

    --objective bag,causal      the embeddings are learnt by the document objective first, in seconds
    --embeddings vectors.vec    they start from word vectors or a static table that others pretrained

A small language model spends most of a short run on learning what words mean. Its shape and its parameters stay the
same: only the values that the embedding table starts with differ (docs/experiments/lab.md).

Shapes: V tokens, W values of a brought vector, H hidden width.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from rehead.bases.sources import is_brought, open_brought
from rehead.disk import sha256
from rehead.errors import UserError
from rehead.model.model import Model
from rehead.model.objectives import Stage
from rehead.text.order import random_bits
from rehead.text.random_streams import Stream
from rehead.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rehead.bases.brought import Brought

    Floats = NDArray[np.float32]


def start_embeddings(model: Model, tokenizer: Tokenizer, source: str, seed: int) -> str:
    """Start the token embeddings from a static table that others pretrained; say what was started and what was not."""
    brought = open_static(source)
    engine = brought.engine
    vectors = engine.encode([tokenizer.decode([token]).strip() for token in range(tokenizer.vocab_size)])
    known: NDArray[np.bool_] = np.asarray(vectors.any(1))
    known[tokenizer.special_ids()] = False
    if not known.any():
        raise UserError(f"--embeddings {source}: it knows none of the tokenizer's {len(known):,} tokens.")
    started = torch.from_numpy(np.flatnonzero(known))
    model.base.start_tokens(started, torch.from_numpy(project(vectors[known], model.config.nhid, seed)))
    places = "embeddings and head" if model.warm_up_head(tokens=started) else "embeddings"
    width = "" if engine.width == model.config.nhid else f", {engine.width} values projected to {model.config.nhid}"
    return f"{places}: {known.sum():,} of {len(known):,} tokens start from {source}{width}; all else is random"


def project(vectors: Floats, width: int, seed: int) -> Floats:
    """Project vectors (N, W) to (N, H) about their mean: on their principal axes, or into more dimensions at random."""
    centred = vectors - vectors.mean(0)
    wide = centred.shape[1]
    if width >= wide:  # inner products are kept
        generator = np.random.default_rng(int(random_bits(seed, Stream.PROJECTION)[0]))
        axes = np.linalg.qr(generator.standard_normal((width, wide)))[0].T
    else:
        _, vectors_of = np.linalg.eigh((centred.T @ centred).astype(np.float64))
        axes = vectors_of[:, ::-1][:, :width]
    projected: Floats = (centred @ axes).astype(np.float32)
    return projected


def open_static(source: str) -> Brought:
    """Open word vectors or a static table."""
    if not is_brought(source):
        raise UserError(
            f"--embeddings {source}: not a static table. Give word vectors (.vec), or a directory of model2vec, "
            "WordLlama or spaCy."
        )
    brought = open_brought(source)
    if brought.kind != "static":
        raise UserError(
            f"--embeddings {source} is an encoder, whose tokens have no vectors of their own. Give a static table, or "
            "adapt the encoder itself: --from."
        )
    return brought


@functools.lru_cache(maxsize=4)
def digest_of(source: str) -> str:
    """Give the SHA-256 of what --embeddings names, without converting it."""
    return sha256(Path(source)) if Path(source).is_file() else open_static(source).digest


def describe_warm_start(model: Model, stages: list[Stage]) -> str | None:
    """Say what a first stage that trains the embeddings alone warms up, and what it does not."""
    first, later = stages[0], stages[1:]
    if any(spec.trains_layers for spec in first.specs) or not any(s.trains_layers for e in later for s in e.specs):
        return None
    first_name, next_name = first.objectives[0], later[0].objectives[0]
    table = sum(each.numel() for each in model.base.parameters_by_depth()[-1])
    layers = sum(each.numel() for each in model.base.parameters()) - table
    head = 0 if model.head is None else sum(each.numel() for each in model.head.parameters())
    said = f"warm start: {first_name} trains the embeddings ({table:,} parameters)"
    if model.config.scale_embedding and head and not model.config.tied:
        said += f"; the head ({head:,}) starts as a copy of them, with token frequencies as biases"
    elif head:
        said += f"; the head ({head:,}{', tied' if model.config.tied else ''}) starts as usual"
    return f"{said}; the layers ({layers:,}) are random when {next_name} begins"
