"""Fine-tuning a classifier against Hugging Face, in one run: sides interleaved, best of several.

    pip install 'rehead[bench,demo]'
    python bench/finetune.py

Both sides go once through the same film reviews, cut at the same length, in as many steps; a step is what a training
loop does: make the batch, forward, backward, clip, fused AdamW on every parameter. Shape: that of `lab`, 200 wide, 4
layers, 2 heads, feed-forward 200, 50,001 tokens, dropout 0.2.

- rehead: documents of about the same length together, by a budget of tokens;
- the peer: `BertForSequenceClassification`, documents in random order, 32 in a batch, padded to the longest of them,
  as its default collator does;
- the peer, sorted: the same with batches of documents of about the same length (`group_by_length`): which part of the
  difference is padding, and which is the step itself.

Two more rows are ours: the same with `--precision bfloat16`, and what `rehead finetune` does unless told otherwise with
a base that pretraining left as a bag: the rows of the tables, no layers.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from sides import best
from torch import nn

from rehead.finetune.objective import Classify, Documents
from rehead.model import Model, preset
from rehead.text.datasets import load_dataset
from rehead.text.documents import Document
from rehead.text.tokenizer import Tokenizer
from rehead.training.optimizers import Optimizers, Rates, clip
from rehead.training.row_optimizer import expect_sparse
from rehead.views.encoded import EncodedTexts

WORDS, DROPOUT, BATCH = 50_001, 0.2, 32


def rehead_epoch(documents: Documents, longest: int, *, layers: bool, narrow: bool = False) -> Callable[[], object]:
    """Make ours: the objective, the optimizers and the clipping of the training loop."""
    name = "lab" if layers else "bag"
    config = preset(name, ntokens=WORDS, **({"dropout": DROPOUT} if layers else {}))
    head = config.classifier(2)
    pieces = {"max_length": longest, "long": "head", **({} if layers else {"distinct": False})}
    view = dataclasses.replace(head.views[0], options={**head.views[0].options, **pieces})
    model = Model(config, dataclasses.replace(head, views=(view,)))
    tokens = sum(min(len(each), longest) for each in documents.ids)
    objective = Classify(
        model,
        documents,
        Documents([], documents.targets[:0]),
        freeze="none",
        batch=BATCH * tokens // len(documents),
    )
    expect_sparse(objective, objective.row_tables())
    optimizers = Optimizers(objective, Rates(), "adamw", sharded=False)
    steps = max(1, round(objective.steps_in_epoch()))

    def epoch() -> None:
        objective.train()
        for step in range(steps):
            batch = objective.read(step)
            with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
                loss = objective(batch.tensors).losses["classify"] / batch.counts["classify"]
            loss.backward()
            clip(objective.parameters(), 1.0)
            optimizers.step(0.1)

    return epoch


def peer_epoch(documents: Documents, longest: int, *, alike: bool) -> Callable[[], object]:
    """Make the peer's. Raises ImportError where transformers is not installed."""
    import transformers

    width = preset("lab").nhid
    model = transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=WORDS,
            hidden_size=width,
            num_hidden_layers=4,
            num_attention_heads=2,
            intermediate_size=width,
            hidden_act="relu",
            max_position_embeddings=longest,
            hidden_dropout_prob=DROPOUT,
            attention_probs_dropout_prob=DROPOUT,
            num_labels=2,
        )
    ).train()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    chance = np.random.RandomState(0)
    lengths = np.array([min(len(each), longest) for each in documents.ids])
    order = np.argsort(lengths, kind="stable") if alike else chance.permutation(len(lengths))

    def epoch() -> None:
        for begin in range(0, len(order), BATCH):
            members = order[begin : begin + BATCH]
            ids = torch.zeros(len(members), int(lengths[members].max()), dtype=torch.int64)
            keep = torch.zeros_like(ids)
            for row, member in enumerate(members):
                ids[row, : lengths[member]] = torch.from_numpy(documents.ids[member][:longest])
                keep[row, : lengths[member]] = 1
            labels = torch.from_numpy(documents.targets[members])
            model(input_ids=ids, attention_mask=keep, labels=labels).loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return epoch


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--documents", type=int, default=128)
    parser.add_argument("--longest", type=int, default=512, help="tokens of a document that are read")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    data = load_dataset("imdb").train
    texts = data.texts[: given.documents]
    tokenizer = Tokenizer.train(
        [Document(each, "imdb", 0) for each in data.texts], vocab=32_768, lowercase=True, quiet=True
    )
    truth = np.array([label == ("positive",) for label in data.labels[: given.documents]], np.int64)
    documents = Documents(EncodedTexts(texts, tokenizer).ids, truth)
    sides: dict[str, Callable[[], object]] = {"rehead": rehead_epoch(documents, given.longest, layers=True)}
    sides["in bfloat16"] = rehead_epoch(documents, given.longest, layers=True, narrow=True)
    try:
        sides["peer"] = peer_epoch(documents, given.longest, alike=False)
        sides["peer, sorted"] = peer_epoch(documents, given.longest, alike=True)
    except ImportError:
        print("transformers is not installed: pip install 'rehead[bench]'")
    sides["rehead, bag"] = rehead_epoch(documents, given.longest, layers=False)
    times = best(sides, given.rounds)
    print(f"{given.documents} reviews, at most {given.longest} tokens, {given.threads} thread(s)")
    print(f"{'':<14}{'documents/s':>12}{'rehead is':>12}")
    for name, seconds in times.items():
        print(f"{name:<14}{given.documents / seconds:>12.1f}{seconds / times['rehead']:>11.2f}×")


if __name__ == "__main__":
    main()
