"""Tokens per second of the default pretraining (`bag`) on short texts, beside film reviews.

    python bench/short_texts.py questions.txt …                   # one document a line, perhaps gzip
    python bench/short_texts.py questions.txt --batch 20480       # with so many tokens per step, not so many documents
    python bench/short_texts.py questions.txt --threads 1         # CPU time, for a busy machine

A step costs what its scores cost: documents × candidates, where candidates grow with documents. The texts take turns,
each with as many steps as make `--tokens`; a step is read in a thread, as in training, and is computed as there:
forward, backward, optimizer. The ratio is to the film reviews of the same round of turns.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import cast

import torch
from document import InMemory
from sides import best

from rehead.model import Model, preset
from rehead.pretrain.document import DEFAULT_DOCUMENTS, Document
from rehead.pretrain.phases import DOCUMENT_BATCH
from rehead.text.datasets import load_dataset
from rehead.text.documents import Document as Text
from rehead.text.store_subset import Store
from rehead.text.tokenizer import Tokenizer
from rehead.training.optimizers import Rates
from rehead.training.prefetch import prefetch
from rehead.training.row_optimizer import RowAdagrad, expect_sparse

FILMS = "film reviews"


def lines(path: Path) -> list[str]:
    """Read the documents of a file."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        return [line for line in file if line.strip()]


def objective(texts: list[str], batch: int | None) -> Document:
    """Make the objective as `rehead pretrain` does, on these texts."""
    tokenizer = Tokenizer.train(
        (Text(text, "-", 1) for text in texts), vocab=preset("bag").ntokens, lowercase=True, quiet=True
    )
    encoded = [each for at in range(0, len(texts), 1000) for each in tokenizer.encode_batch(texts[at : at + 1000])]
    store = cast(Store, InMemory(encoded))
    return Document(
        Model(preset("bag", ntokens=tokenizer.vocab_size)),
        store,
        store,
        time=256,
        batch=batch or DOCUMENT_BATCH,
        seed=0,
        fresh=True,
        max_documents=None if batch else DEFAULT_DOCUMENTS,
    )


def training(made: Document, steps: int) -> Callable[[], None]:
    """Give a function that trains for so many steps."""
    tables = made.row_tables()
    expect_sparse(made, tables)
    optimizer = RowAdagrad(tables, lr=Rates.rows, rates=made.row_rates())

    def run() -> None:
        with prefetch(made.read, 0) as batches:
            for _ in range(steps):
                batch = next(batches)
                (made(batch.tensors).losses["document"] / batch.counts["document"]).backward()
                optimizer.step()
                optimizer.zero_grad()

    return run


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--batch", type=int, help="tokens per step of the files (default: as rehead pretrain chooses)")
    parser.add_argument("--tokens", type=int, default=200_000, help="tokens per turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    made = {FILMS: objective(load_dataset("imdb").unlabelled, None)}
    made |= {str(path): objective(lines(path), given.batch) for path in given.files}
    steps = {name: max(1, round(given.tokens / (each.documents * each.mean_length))) for name, each in made.items()}
    tokens = {name: sum(each.read(step).tokens for step in range(steps[name])) for name, each in made.items()}
    times = best({name: training(each, steps[name]) for name, each in made.items()}, given.rounds)
    rates = {name: tokens[name] / times[name] for name in made}
    print(f"{given.threads} thread(s)\n| text | tokens per document | documents per step | tokens/s | ratio |")
    print("|---|---|---|---|---|")
    for name, each in made.items():
        ratio = rates[name] / rates[FILMS]
        print(f"| {name} | {each.mean_length:.0f} | {each.documents} | {rates[name]:,.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
