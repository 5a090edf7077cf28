"""A classifier small enough for tests, whose probabilities differ from text to text."""

from __future__ import annotations

import functools

import torch

from rehead.model.config import preset
from rehead.model.model import Model
from rehead.runs.run import Run
from rehead.runs.scoring import classifier_head
from rehead.text.documents import Document
from rehead.text.tokenizer import Tokenizer

WORDS = [
    "good",
    "bad",
    "film",
    "book",
    "a",
    "the",
    "what",
    "dull",
    "bright",
    "story",
    "never",
    "again",
    "ending",
    "of",
    "slow",
]


@functools.cache
def tiny_tokenizer() -> Tokenizer:
    return Tokenizer.train([Document(" ".join(WORDS), "x", 1)] * 5, vocab=290, quiet=True)


def tiny_classifier(
    *, multilabel: bool = False, shape: str = "bag", names: tuple[str, ...] = ("bad", "fair", "good"), seed: int = 1
) -> Run:
    """Make one with random weights, large enough to be sure of some texts and not of others."""
    tokenizer = tiny_tokenizer()
    torch.manual_seed(seed)
    sizes = {"nbuckets": 64} if shape == "bag" else {"nlayers": 1}
    config = preset(shape, ntokens=tokenizer.vocab_size, nhid=16, **sizes)
    model = Model(config, config.classifier(len(names), multilabel)).eval()
    with torch.no_grad():
        model.base.embedding.weight.normal_()
        classifier_head(model).of(str(config.reads)).weight.normal_(std=1.5)
    return Run(model, tokenizer, list(names))


def some_texts(count: int, seed: int = 0) -> list[str]:
    """Make texts of one to twelve words."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 13, (count,), generator=generator).tolist()
    return [
        " ".join(WORDS[each] for each in torch.randint(len(WORDS), (length,), generator=generator).tolist())
        for length in lengths
    ]
