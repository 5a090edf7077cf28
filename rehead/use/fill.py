"""`rehead fill`: predict the token at every `[MASK]` of a text, from the context on both sides.

A run trained with `masked` predicts a masked token at its own position; `hybrid`, whose head also generates, predicts
it one position earlier. Every mask is predicted independently, with the others still masked.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rehead.errors import UserError
from rehead.options import CommonOptions, flag, positional
from rehead.terminal import print_note, read_stdin, results_console
from rehead.text.tokenizer import MASK
from rehead.use.abilities import check_ability, predicts_one_before, training_length

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
    """A candidate for a mask."""

    word: str
    "Its text; a token that continues a word is shown as …ing."
    id: int
    probability: float


def fill(options: FillOptions) -> None:
    """Run the command: load, predict, print."""
    if options.top < 1:
        raise UserError(f"--top={options.top} is out of range. Choose 1 or more.")
    text = read_stdin() if options.text == "-" else options.text
    if MASK not in text:
        raise UserError(f'the text has no {MASK}. Put one in place of every word to predict: "a truly {MASK} film".')
    from rehead.runs.run import load

    run = load(options.run)
    tokenizer = check_ability(run, options.run, "fills", "predict masked words")
    ids = mask_ids(tokenizer, text)
    window = training_length(run)
    guesses = guess(run.model, tokenizer, ids, top=options.top, one_before=predicts_one_before(run), window=window)
    likeliest = iter([mask[0].id for mask in guesses])
    filled = tokenizer.decode(next(likeliest) if each == tokenizer.mask else each for each in ids)
    if options.json:
        masks = [[asdict(each) for each in mask] for mask in guesses]
        document = {"run": str(options.run), "text": text, "masks": masks, "filled": filled}
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        _print(guesses, filled)
    if len(ids) > window and not options.quiet:
        print_note(
            f"the context of this run is {window:,} tokens. The text has {len(ids):,}: every {MASK} was predicted from "
            "those around it."
        )


def mask_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """Tokenize a text with masks, after an end-of-text token as in training (so the first word has a predecessor)."""
    return [tokenizer.eos, *tokenizer.encode_with_masks(text, MASK)]


def guess(
    model: Model, tokenizer: Tokenizer, ids: Sequence[int], *, top: int = 5, one_before: bool, window: int | None = None
) -> list[list[Guess]]:
    """Return the most probable tokens for every mask, in order of the masks, most probable first.

    `one_before` says that the run predicts a token at the position before it. A text of more than `window` (default:
    maxlen) tokens is cropped for each mask, with the mask in the middle if possible.
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
        assert model.head is not None  # noqa: S101 (checked by the caller)
        probabilities = model.token_logits(asked).double().softmax(-1)  # (masks, V)
    # Special tokens are not shown, but keep their share: the model may well predict that the text ends.
    probabilities[:, tokenizer.special_ids()] = -1
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
    """Return the text of a token that follows these."""
    left = [] if before[-1] in (tokenizer.mask, tokenizer.eos) else [before[-1]]
    shown = tokenizer.decode([*left, token])[len(tokenizer.decode(left)) :]
    word = shown.strip()
    if "\ufffd" in word:
        return "(part of a character)"
    if not word or not word.isprintable():
        return repr(shown)  # mostly whitespace
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
