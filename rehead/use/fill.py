"""`rehead fill`: what a run would put in place of every `[MASK]`, having read the text on both sides of it.

A run trained with `masked` predicts a hidden token at its own position; `hybrid`, whose one head also writes, predicts
it one position before. Every mask is guessed for itself, with the others still hidden.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rehead.errors import UserError
from rehead.model.config import FILLS
from rehead.options import CommonOptions, flag, positional
from rehead.terminal import results_console, text_from_input
from rehead.text.tokenizer import MASK
from rehead.use.learnt import check_it_learnt, longest_read, predicts_the_next

if TYPE_CHECKING:
    from rehead.model.model import Model
    from rehead.text.tokenizer import Tokenizer


@dataclass
class FillOptions(CommonOptions):
    """Predict the masked words of a text with a run that was pretrained with --objective masked or hybrid."""

    GROUP = "writes"
    MOST_USED = ("top", "json")

    run: Path = positional()
    "Run pretrained with --objective masked or hybrid."

    text: str = positional()
    "Text with [MASK] in place of each word to predict; - reads it from standard input."

    top: int = flag(5, metavar="N")
    "Number of most likely words to show for each [MASK]."

    json: bool = False
    "Print a JSON document instead of a table."


@dataclass(frozen=True)
class Guess:
    """A token that may stand at a mask."""

    word: str
    "As people read it; a piece that goes on within a word is written …ing."
    id: int
    probability: float


def fill(options: FillOptions) -> None:
    """Run the command: load, guess, print."""
    if options.top < 1:
        raise UserError(f"--top={options.top} is out of range. Choose 1 or more.")
    text = text_from_input() if options.text == "-" else options.text
    if MASK not in text:
        raise UserError(f'the text has no {MASK}. Put one for each word to predict, such as: "a truly {MASK} film".')
    from rehead.model.run import load

    run = load(options.run)
    tokenizer = check_it_learnt(run, options.run, FILLS, "guess hidden words")
    ids = mask_ids(tokenizer, text)
    window = longest_read(run)
    guesses = guess(run.model, tokenizer, ids, top=options.top, one_before=predicts_the_next(run), window=window)
    likeliest = iter([mask[0].id for mask in guesses])
    filled = tokenizer.decode(next(likeliest) if each == tokenizer.mask else each for each in ids)
    if options.json:
        masks = [[asdict(each) for each in mask] for mask in guesses]
        document = {"run": str(options.run), "text": text, "masks": masks, "filled": filled}
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        _print(guesses, filled)
    if len(ids) > window and not options.quiet:
        sys.stdout.flush()
        print(
            f"note: this run was trained on sequences of {window:,} tokens. The text has {len(ids):,}: every {MASK} "
            "was predicted from the tokens around it.",
            file=sys.stderr,
        )


def mask_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """Cut a text with masks into tokens, behind an end mark: so in training, and the first word has one before it."""
    return [tokenizer.eos, *tokenizer.encode_with_masks(text, MASK)]


def guess(
    model: Model, tokenizer: Tokenizer, ids: Sequence[int], *, top: int = 5, one_before: bool, window: int | None = None
) -> list[list[Guess]]:
    """Give the likeliest tokens for every mask among these, in their order, likeliest first.

    `one_before` says that the run predicts a token at the position before it. Of more tokens than `window` (or maxlen)
    so many are read for each mask, with the mask in their middle where that can be.
    """
    import torch

    window = min(model.config.maxlen if window is None else window, len(ids))
    places = [place for place, each in enumerate(ids) if each == tokenizer.mask]
    begins = [min(max(0, place - window // 2), len(ids) - window) for place in places]
    with torch.no_grad():
        read = {
            begin: model.base(torch.tensor([list(ids[begin : begin + window])]), causal=False)[0]  # (T, H)
            for begin in dict.fromkeys(begins)
        }
        asked = torch.stack(
            [read[begin][place - one_before - begin] for begin, place in zip(begins, places, strict=True)]
        )
        assert model.head is not None  # noqa: S101 (the caller has looked)
        probabilities = model.head(asked, None, model.base.embedding.weight).double().softmax(-1)  # (masks, V)
    # Marks are no words. They keep the probability they have: the model may well think that the text ends.
    probabilities[:, tokenizer.marks()] = -1
    probabilities = probabilities[:, : tokenizer.vocab_size]
    best, likeliest = probabilities.sort(dim=-1, descending=True, stable=True)
    return [
        [
            Guess(_readable(tokenizer, ids[:place], token), token, probability)
            for token, probability in zip(tokens[:top], chances[:top], strict=True)
            if probability >= 0
        ]
        for place, tokens, chances in zip(places, likeliest.tolist(), best.tolist(), strict=True)
    ]


def _readable(tokenizer: Tokenizer, before: Sequence[int], token: int) -> str:
    """Write a token as people read it behind these."""
    left = [] if before[-1] in (tokenizer.mask, tokenizer.eos) else [before[-1]]
    shown = tokenizer.decode([*left, token])[len(tokenizer.decode(left)) :]
    word = shown.strip()
    if "\ufffd" in word:
        return "(part of a character)"
    if not word or not word.isprintable():
        return repr(shown)  # white space, mostly
    inside = bool(left) and shown[0].isalnum() and tokenizer.decode(left)[-1:].isalnum()
    return "…" + word if inside else word


def _print(guesses: list[list[Guess]], filled: str) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    if len(guesses) > 1:
        table.add_column(MASK, justify="right")
    table.add_column("word", overflow="fold")
    table.add_column("probability", justify="right")
    for number, mask in enumerate(guesses, 1):
        for place, each in enumerate(mask):
            first = [str(number) if place == 0 else ""] if len(guesses) > 1 else []
            table.add_row(*first, each.word, f"{100 * each.probability:.1f} %")
    console = results_console(120)
    console.print(table)
    console.print("\n" + filled)
