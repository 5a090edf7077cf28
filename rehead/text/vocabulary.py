"""Train a byte-level BPE tokenizer on the user's own text.

The base alphabet is the 256 bytes, so any text in any script is encoded without unknown tokens and decoded exactly.
Training is deterministic: the same corpus and options give the same `tokenizer.json`.

Vocabulary size: trained on 20,000 IMDb reviews, encoding 5,000 others (`python bench/text.py vocabulary`), for a model
of width 256 with 3.0 M parameters in its blocks; work is in millions of multiply-adds per word in the forward pass:

    entries  tokens/word  entries seen  share of parameters  work, language model  work, classifier
      4,096         1.55          97 %                 26 %                   6.3               4.6
      8,192         1.40          98 %                 41 %                   7.1               4.2
     16,384         1.30          95 %                 58 %                   9.4               3.9
     32,768         1.24          85 %                 74 %                  14.1               3.7

The default is 8,192: from there on, doubling makes texts 5 to 7 % shorter and pretraining 33 to 50 % more expensive,
and more of the model's parameters belong to rare tokens that a small corpus has few examples of.

A large corpus is sampled: the tokens of a vocabulary are frequent by definition, so a sample contains them.
"""

from __future__ import annotations

import heapq
import random
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rehead.errors import UserError
from rehead.progress import progress
from rehead.text.documents import Document
from rehead.text.tokenizer import SPECIALS, Tokenizer

DEFAULT_VOCAB = 8192
BYTES = 256
SAMPLE_CHARACTERS = 50_000_000

# The trainer's time is quadratic in the length of a word, and a base64 blob is one word: split those.
LONG_WORD = re.compile(r"\S{200}")


def train_tokenizer(
    texts: Iterable[Document],
    *,
    vocab: int = DEFAULT_VOCAB,
    lowercase: bool = False,
    seed: int = 0,
    sample_characters: int = SAMPLE_CHARACTERS,
    quiet: bool = False,
) -> Tokenizer:
    """Train a tokenizer with at most `vocab` tokens on these documents, or on a sample of them.

    With `lowercase`, text is lowercased before encoding, so decoded text is lower case too.
    """
    import tokenizers
    from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers

    smallest = len(SPECIALS) + BYTES
    if vocab < smallest:
        raise UserError(
            f"--vocab {vocab} is too small: {BYTES} bytes and {len(SPECIALS)} special tokens need {smallest}."
        )
    with progress("reading a sample", unit="documents", quiet=quiet) as bar:
        sample = draw_sample(texts, sample_characters, seed, advance=bar.advance)
    if not sample.texts:
        raise UserError("There is no text to train a tokenizer on: all documents are empty.")

    # lstrip: in `fill`, the [MASK] of "a truly [MASK] film" replaces a word together with the space before it.
    specials = [AddedToken(each, special=True, lstrip=each == SPECIALS[-1]) for each in SPECIALS]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        min_frequency=2,
        special_tokens=specials,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    inner = tokenizers.Tokenizer(models.BPE())
    if lowercase:
        inner.normalizer = normalizers.Lowercase()
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    with progress("training the tokenizer", quiet=quiet):
        inner.train_from_iterator((LONG_WORD.sub(r"\g<0> ", text) for text in sample.texts), trainer)

    tokenizer = Tokenizer(inner, notes=[sample.describe()])
    if tokenizer.vocab_size < vocab:
        tokenizer.notes.append(
            f"The vocabulary has {tokenizer.vocab_size:,} tokens instead of {vocab:,}: the text is too small for more."
        )
    if not quiet:
        print("\n".join(tokenizer.notes), file=sys.stderr)
    return tokenizer


@dataclass
class Sample:
    """A sample of documents, and the size of the corpus it was drawn from."""

    texts: list[str]
    characters: int
    documents_seen: int
    characters_seen: int

    def describe(self) -> str:
        """Describe the size of the sample relative to the corpus."""
        if self.characters == self.characters_seen:
            return f"The tokenizer was trained on all {self.documents_seen:,} documents."
        return (
            f"The tokenizer was trained on a sample: {len(self.texts):,} of {self.documents_seen:,} documents, "
            f"{self.characters / 1e6:,.1f} of {self.characters_seen / 1e6:,.1f} million characters."
        )


def draw_sample(
    texts: Iterable[Document], characters: int, seed: int, advance: Callable[[], None] = lambda: None
) -> Sample:
    """Sample whole documents in one pass, holding at most `characters` in memory (or one document).

    Reservoir sampling: every document gets a random priority, and whenever the reservoir is too large, the documents
    with the highest values are dropped. The sample is uniform and depends only on the seed and the documents.
    """
    priorities = random.Random(seed)  # noqa: S311 (not for cryptography)
    held: list[tuple[float, int, str]] = []  # a heap of (-priority, position, text), the highest priority on top
    cutoff = 1.0
    taken = seen = count = 0
    for position, document in enumerate(texts):
        advance()
        if not isinstance(document, Document):
            raise UserError(
                f"a tokenizer is trained on Documents, as Texts yields them, not on {type(document).__name__}."
            )
        text = document.text
        count, seen = position + 1, seen + len(text)
        priority = priorities.random()
        if text and priority < cutoff:
            heapq.heappush(held, (-priority, position, text))
            taken += len(text)
            while taken > characters and len(held) > 1:
                highest, _, dropped = heapq.heappop(held)
                cutoff, taken = -highest, taken - len(dropped)
    held.sort(key=lambda each: each[1])
    return Sample([text for _, _, text in held], taken, count, seen)
