"""Questions 1 to 3, computed on the model of the run: the mask and the positions, the new head, every parameter.

Shapes: B batch, T tokens, H hidden width, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math

import torch
from torch import Tensor

from rehead.lab.facts import Attention, Causality, CountedPart, Counting, HeadReplacement, HeadTensor, Mistake
from rehead.model.accounting import account, check
from rehead.model.config import ModelConfig
from rehead.model.model import Model, Shapes
from rehead.model.positions import sinusoidal_table
from rehead.runs.run import Run
from rehead.text.tokenizer import Tokenizer

MOVED = 1e-5  # an output that changes by less has not moved: rounding
SHOWN_TOKENS = 14  # of the sentence, in the matrix of what moves what
SHOWN_POSITIONS, POSITION_STEP = 32, 4
ATTENTION_TOKENS = 24
DIGITS = 4


def measure_causality(run: Run, sentence: str) -> Causality:
    """Change every token of the sentence in turn, and see which outputs move; shuffle it without positions."""
    model, tokenizer = run.model, _tokenizer(run)
    ids = tokenizer.encode(sentence)[:SHOWN_TOKENS]
    other = _another(ids, tokenizer)
    with model.evaluating():
        moves = _moves(model, ids, other, causal=True)  # (changed, position)
        place = len(ids) // 2
        both = _moves(model, ids, other, causal=False)[place]
        shuffled, with_positions = _shuffle(model, ids)
    values = sinusoidal_table(SHOWN_POSITIONS * POSITION_STEP, model.config.nhid)[::POSITION_STEP]
    columns = list(range(0, model.config.nhid, max(1, model.config.nhid // 40)))
    return Causality(
        tokens=_readable(tokenizer, ids),
        changed=place,
        replacement=_readable(tokenizer, [other])[0],
        moved=(moves > MOVED).tolist(),
        distances=[round(each, 6) for each in moves[place].tolist()],
        moved_without_mask=int((both > MOVED).sum()),
        shuffled=shuffled,
        shuffled_with_positions=with_positions,
        positions=[[round(value, 2) for value in row] for row in values[:, columns].tolist()],
        every=POSITION_STEP,
        columns=columns,
    )


def _another(ids: list[int], tokenizer: Tokenizer) -> int:
    """Choose a token that the sentence does not have."""
    special = set(tokenizer.special_ids())
    return next(each for each in range(tokenizer.vocab_size - 1, -1, -1) if each not in special and each not in ids)


def _moves(model: Model, ids: list[int], other: int, *, causal: bool) -> Tensor:
    """Say how far each output moves, (changed, position), if one token after the other is replaced."""
    rows = torch.tensor([ids] * (len(ids) + 1))
    for place in range(len(ids)):
        rows[place + 1, place] = other
    hidden = model.base(rows, causal=causal)  # (1 + T, T, H)
    moved: Tensor = (hidden[1:] - hidden[:1]).abs().amax(-1)
    return moved


def _shuffle(model: Model, ids: list[int]) -> tuple[float, float]:
    """Shuffle the tokens: how far the outputs are from the shuffled outputs, without and with positions."""
    bare = Model(dataclasses.replace(model.config, positions="none", reads="layers"))
    bare.load_state_dict(model.state_dict(), strict=False)
    order = torch.tensor([*range(1, len(ids), 2), *range(0, len(ids), 2)])
    row = torch.tensor([ids])
    found = []
    for each in (bare, model):
        with each.evaluating():
            straight, shuffled = each.base(row, causal=False), each.base(row[:, order], causal=False)
        found.append(float((straight[:, order] - shuffled).abs().max()))
    return found[0], found[1]


def replace_the_head(run: Run, classes: int) -> HeadReplacement:
    """Replace the language-model head by a classifier, and compare the base byte for byte."""
    model = run.model
    before, digest_before = _bytes(model)
    change = model.replace_head(model.config.classifier(classes))
    after, digest_after = _bytes(model)
    differing = sum(
        sum(one != two for one, two in zip(before[name], after[name], strict=True))
        if before[name] != after[name]
        else 0
        for name in before
    )
    return HeadReplacement(
        dropped=_tensors(change.dropped),
        added=_tensors(change.added),
        kept_tensors=len(before),
        kept_parameters=change.kept,
        kept_bytes=sum(map(len, before.values())),
        changed_bytes=differing,
        digest_before=digest_before,
        digest_after=digest_after,
    )


def _bytes(model: Model) -> tuple[dict[str, bytes], str]:
    """Give the bytes of every trained tensor of the base, and the digest of all."""
    found = {name: each.detach().numpy().tobytes() for name, each in model.base.named_parameters()}
    return found, hashlib.sha256(b"".join(found[name] for name in sorted(found))).hexdigest()


def _tensors(shapes: Shapes) -> list[HeadTensor]:
    return [HeadTensor(name, list(shape), math.prod(shape)) for name, shape in shapes.items()]


def count_parameters(config: ModelConfig, classes: int) -> Counting:
    """Count every parameter by formula, check the count against live modules, and list the usual mistakes."""
    head = config.classifier(classes)
    table = account(config, head)
    with torch.device("meta"):
        check(table, Model(config, table.language_model), "language model")
        check(table, Model(config, head), "classifier")
    parts = [
        CountedPart(
            row.part,
            row.formula.symbols,
            row.formula.numbers,
            row.count,
            row.level,
            "language model" in row.models,
            "classifier" in row.models,
        )
        for row in table.rows
    ]
    whole, classifier = table.total("language model"), table.total("classifier")
    return Counting(parts, usual_mistakes(config), whole, classifier, checked=True)


def usual_mistakes(config: ModelConfig) -> list[Mistake]:
    """Say by how much each usual mistake is off, for this shape of the lab."""
    n, h, layers, heads, ff, maxlen = (
        config.ntokens, config.nhid, config.nlayers, config.nhead, config.nff, config.maxlen,
    )  # fmt: skip
    square, head = h * h + h, h * n + n
    lm, classifier = "language model", "classifier"
    biases = 4 * h + ff + h
    wide = 4 * h
    return [
        Mistake("Forgetting the biases of the layers", f"{layers} layers · (4·{h} + {ff} + {h})", -layers * biases, lm),
        Mistake(
            "Forgetting the attention's output projection: “Q, K and V, that is attention”",
            f"{layers} layers · {square:,}", -layers * square, lm,
        ),
        Mistake(
            "Multiplying Q, K and V by the number of heads",
            f"{layers} layers · 3 · {square:,} · ({heads} − 1)", layers * 3 * square * (heads - 1), lm,
        ),
        Mistake(
            f"Taking Q, K and V for the size of a single head ({h} × {h // heads})",
            f"{layers} layers · 3 · ({h}·{h // heads} + {h // heads} − {square:,})",
            layers * 3 * (h * (h // heads) + h // heads - square), lm,
        ),
        Mistake(
            "Counting a norm as 2 · nhead instead of 2 · nhid",
            f"{layers} layers · 2 norms · ({2 * heads} − {2 * h})", -layers * 2 * (2 * h - 2 * heads), lm,
        ),
        Mistake("Leaving the language-model head out of the language model", f"{h}·{n:,} + {n:,}", -head, lm),
        Mistake("Counting the language-model head in the classifier", f"{h}·{n:,} + {n:,}", head, classifier),
        Mistake("Taking the head's matrix for the embedding (tied) when it is not", f"{h}·{n:,}", -h * n, lm),
        Mistake(
            f"Counting a sinusoidal table of {maxlen} positions as parameters", f"{maxlen}·{h}", maxlen * h, lm
        ),
        Mistake(
            "Making the feed-forward four times as wide, as other models are",
            f"{layers} layers · (2·{h}·({wide} − {ff}) + {wide} − {ff})",
            layers * (2 * h * (wide - ff) + wide - ff), lm,
        ),
    ]  # fmt: skip


def read_attention(run: Run, name: str, sentence: str, *, causal: bool) -> Attention:
    """Compute the attention weights of every layer and head on the sentence."""
    tokenizer = _tokenizer(run)
    ids = tokenizer.encode(sentence)[:ATTENTION_TOKENS]
    with run.model.evaluating():
        _, layers = run.model.base.attention(torch.tensor([ids]), causal=causal)
    weights = [
        [[[round(value, DIGITS) for value in row] for row in head] for head in each[0].tolist()] for each in layers
    ]
    return Attention(name, _readable(tokenizer, ids), causal, weights)


def _readable(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    return [each.strip() or "␣" for each in tokenizer.readable(ids)]


def _tokenizer(run: Run) -> Tokenizer:
    assert run.tokenizer is not None  # noqa: S101 (a pretraining run has one)
    return run.tokenizer
