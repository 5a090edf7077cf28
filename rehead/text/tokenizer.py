"""A tokenizer: text to ids and back, with the special tokens where the rest of the house expects them.

`Tokenizer` wraps a `tokenizers.Tokenizer`, that is, a `tokenizer.json`, wherever it came from: trained here
(`rehead.text.vocabulary`), brought by the user, or made out of a SentencePiece model (`rehead.text.sentencepiece`).

Three rules hold for all of them:

- Text is only ever text. A review that contains `</s>` or `[MASK]` is cut into ordinary pieces; the marks come from
  the code that asks for them, as ids. `tokenizers` would match them in the text, and a unigram model even finds them
  as pieces of its vocabulary: both ways are closed when the tokenizer is made.
- Encoding adds nothing and drops nothing. What a `tokenizer.json` says about truncation, padding and marks round a
  sentence is switched off: a file that says "cut at 512" would lose text without a word.
- `encode_batch` uses all cores (RAYON_NUM_THREADS and TOKENIZERS_PARALLELISM are obeyed) and releases the interpreter
  lock, so reading and writing can go on beside it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rehead.errors import UserError

if TYPE_CHECKING:
    import tokenizers

    from rehead.text.documents import Document

BOS, PAD, EOS, UNK, MASK = "<s>", "<pad>", "</s>", "<unk>", "[MASK]"
SPECIALS = (BOS, PAD, EOS, UNK, MASK)
"The special tokens of the tokenizers made here, in the order of their ids. SentencePiece models have no mask."

# By what names the tokenizers of others call them; the first that is found counts.
USUAL_NAMES = {
    "bos": (BOS, "[CLS]", "<bos>", "<|startoftext|>", "<|begin_of_text|>"),
    "pad": (PAD, "[PAD]", "<|pad|>"),
    "eos": (EOS, "[SEP]", "<eos>", "<|endoftext|>", "<|end_of_text|>"),
    "unk": (UNK, "[UNK]"),
    "mask": (MASK, "<mask>", "<|mask|>"),
}


class Tokenizer:
    """Text to ids and back."""

    vocab_size: int
    "Ids run from 0 to here, exclusive."
    bos: int | None
    pad: int
    eos: int
    unk: int | None
    mask: int | None
    notes: list[str]
    "What the user should be told about how it came about, a sentence each."

    def __init__(self, inner: tokenizers.Tokenizer, name: str = "tokenizer", notes: Iterable[str] = ()) -> None:
        """Take a tokenizer over, after checking that it can serve; `name` is for messages."""
        self.inner = inner
        self.name = name
        self.notes = list(notes)
        inner.no_truncation()
        inner.no_padding()
        self.vocab_size = max(inner.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        named = {role: _find(inner, names) for role, names in USUAL_NAMES.items()}
        self.bos, self.unk, self.mask = (_id(inner, named[role]) for role in ("bos", "unk", "mask"))
        self.pad, self.eos = (_required(inner, named[role], role, name) for role in ("pad", "eos"))
        _try_out(inner, name)
        _keep_text_out_of(inner, [token for token in named.values() if token is not None])

    @classmethod
    def train(
        cls,
        texts: Iterable[Document],
        *,
        vocab: int | None = None,
        lowercase: bool = False,
        seed: int = 0,
        quiet: bool = False,
    ) -> Tokenizer:
        """Train one on these documents: see `rehead.text.vocabulary`."""
        from rehead.text.vocabulary import DEFAULT_VOCAB, train_tokenizer

        vocab = DEFAULT_VOCAB if vocab is None else vocab
        return train_tokenizer(texts, vocab=vocab, lowercase=lowercase, seed=seed, quiet=quiet)

    @classmethod
    def from_sentencepiece(cls, model: str | Path, dict_txt: str | Path | None = None) -> Tokenizer:
        """Make one out of a SentencePiece model and its dictionary: see `rehead.text.sentencepiece`."""
        from rehead.text.sentencepiece import read_sentencepiece

        return read_sentencepiece(model, dict_txt)

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read a `tokenizer.json`, or a SentencePiece `.model` with the `dict.txt` beside it, if there is one."""
        path = Path(path)
        if path.suffix == ".model":
            beside = path.with_name("dict.txt")
            return cls.from_sentencepiece(path, beside if beside.exists() else None)
        try:
            text = read_bytes(path, "tokenizer").decode()
        except UnicodeDecodeError as error:
            raise UserError(f"{path} is not UTF-8 (byte {error.start}), so it is no tokenizer.json.") from None
        return cls.from_json(text, name=str(path))

    @classmethod
    def from_json(cls, text: str, name: str = "tokenizer.json") -> Tokenizer:
        """Make one out of the text of a `tokenizer.json`; `name` is for messages."""
        import tokenizers

        with _failures_of(f"{name} is not a tokenizer.json that can be read"), _no_panic_on_stderr():
            inner = tokenizers.Tokenizer.from_str(text)
        return cls(inner, name)

    def with_mask(self) -> Tokenizer:
        """Give this tokenizer with a [MASK] token, for a model that learns by guessing hidden ones."""
        from tokenizers import AddedToken

        if self.mask is not None:
            return self
        other = Tokenizer.from_json(self.to_json(), self.name)
        other.inner.add_special_tokens([AddedToken(MASK, special=True, normalized=False)])
        note = f"{self.name} has no {MASK} token: one was added, as number {self.vocab_size}"
        return Tokenizer(other.inner, self.name, [*self.notes, note])

    def to_json(self) -> str:
        """Give the text of its `tokenizer.json`."""
        text: str = self.inner.to_str()
        return text

    def save(self, path: str | Path) -> None:
        """Write its `tokenizer.json`."""
        try:
            Path(path).write_text(self.to_json(), encoding="utf-8")
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror or error}.") from error

    def fingerprint(self) -> str:
        """Hash of everything that decides which ids come out."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Cut a text into ids."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Cut many texts into ids, on all cores."""
        with _failures_of(f"{self.name} cannot encode this text"):
            # The fast one leaves character offsets out.
            encodings = self.inner.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_with_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Cut a text into ids, and tell which characters of it each one stands for (begin, end)."""
        with _failures_of(f"{self.name} cannot encode this text"):
            encoding = self.inner.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def encode_with_masks(self, text: str, mark: str = MASK) -> list[int]:
        """Cut a text into ids, with the mask token wherever the text has `mark`.

        A space before the mark belongs to the word that is masked, so it goes with it.
        """
        if self.mask is None:
            raise UserError(f"{self.name} has no mask token ({', '.join(USUAL_NAMES['mask'])}): nothing can be masked.")
        first, *rest = (part.removesuffix(" ") for part in text.split(mark))
        ids = self.encode(first)
        for part in rest:
            ids += [self.mask, *self.encode(part)]
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Put the text together again; special tokens are left out."""
        text: str = self.inner.decode([int(each) for each in ids], skip_special_tokens=True)
        return text

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Name the vocabulary entries that stand behind ids; an id without one gives an empty name."""
        return [self.inner.id_to_token(int(each)) or "" for each in ids]

    def readable(self, ids: Iterable[int]) -> list[str]:
        """Show ids as people read them: the pieces, with those of a byte-level vocabulary as the text they stand for.

        A token that is a part of a character has no text; it stays the piece it is.
        """
        pieces = self.tokens(ids)
        if type(self.inner.decoder).__name__ != "ByteLevel":
            return pieces
        texts = [self.inner.decoder.decode([piece]) for piece in pieces]
        return [piece if "\ufffd" in text else text for piece, text in zip(pieces, texts, strict=True)]

    def special_ids(self) -> list[int]:
        """Give the ids below `vocab_size` that stand for no text: every special token, and numbers without a piece."""
        special = {number for number, added in self.inner.get_added_tokens_decoder().items() if added.special}
        return [each for each, piece in enumerate(self.tokens(range(self.vocab_size))) if not piece or each in special]

    def ids_of(self, pieces: Iterable[str]) -> list[int]:
        """Look vocabulary entries up; those that are not there become the unknown token."""
        ids = []
        for piece in pieces:
            found = self.inner.token_to_id(piece)
            found = self.unk if found is None else found
            if found is None:
                raise UserError(f"{self.name} has neither the piece {piece!r} nor an unknown token ([UNK], <unk>).")
            ids.append(found)
        return ids


def read_bytes(path: Path, what: str) -> bytes:
    """Read a file that the user named."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file. Give the path of a {what}.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read as a {what}: {error.strerror}.") from None


def _find(inner: tokenizers.Tokenizer, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if inner.token_to_id(name) is not None), None)


def _id(inner: tokenizers.Tokenizer, token: str | None) -> int | None:
    return None if token is None else inner.token_to_id(token)


def _required(inner: tokenizers.Tokenizer, token: str | None, role: str, name: str) -> int:
    found = _id(inner, token)
    if found is None:
        what = {"pad": "padding token", "eos": "end-of-text token"}[role]
        raise UserError(
            f"{name} has no {what} ({', '.join(USUAL_NAMES[role])}). Add one: "
            f"t = tokenizers.Tokenizer.from_file(…); t.add_special_tokens(['{USUAL_NAMES[role][0]}']); t.save(…)."
        )
    return found


def _keep_text_out_of(inner: tokenizers.Tokenizer, specials: list[str]) -> None:
    """See to it that no text, whatever it contains, is encoded as a special token: one of these or another."""
    from tokenizers import Regex, pre_tokenizers

    inner.add_special_tokens(specials)
    inner.encode_special_tokens = True  # as text, that is: they are not looked for
    reached = [
        added.content
        for number, added in sorted(inner.get_added_tokens_decoder().items())
        if added.special and added.content not in USUAL_NAMES["unk"]
        if number in inner.encode(f"a {added.content} b{added.content}", add_special_tokens=False).ids
    ]
    if reached:
        # The model has them among its pieces. It cannot find one that is cut before its last character.
        last = "|".join(f"(?<={re.escape(token[:-1])}){re.escape(token[-1])}" for token in reached)
        steps = [] if inner.pre_tokenizer is None else [inner.pre_tokenizer]
        steps.append(pre_tokenizers.Split(Regex(last), "merged_with_next"))
        inner.pre_tokenizer = pre_tokenizers.Sequence(steps)


def _try_out(inner: tokenizers.Tokenizer, name: str) -> None:
    """Meet an unknown character now rather than in the middle of a corpus."""
    with _failures_of(f"{name} cannot encode text with characters it does not know"):
        inner.encode("a \u2603\U000f0000", add_special_tokens=False)


@contextmanager
def _failures_of(what: str) -> Iterator[None]:
    """Turn what `tokenizers` raises, a panic of its Rust code included, into one line."""
    try:
        yield
    except UserError:
        raise
    except BaseException as error:
        # PanicException cannot be imported, and is no Exception. Ctrl-C is neither.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise UserError(f"{what}: {error}") from error
        raise


@contextmanager
def _no_panic_on_stderr() -> Iterator[None]:
    """Keep the backtrace that Rust prints at a panic off the user's screen; the error says what matters."""
    saved = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)
