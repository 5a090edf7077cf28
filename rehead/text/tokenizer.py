"""The tokenizer: text to ids and back, with a uniform interface to the special tokens.

`Tokenizer` wraps a `tokenizers.Tokenizer`, that is, a `tokenizer.json` from any source: trained here
(`rehead.text.vocabulary`), brought by the user, or converted from SentencePiece (`rehead.text.sentencepiece`). What
comes from a file passes `rehead.text.tokenizer_gate` first.

Three rules hold for all of them:

- Text never encodes to special tokens. A review that contains `</s>` or `[MASK]` is split into ordinary tokens; special
  tokens are only inserted by code, as ids. `tokenizers` would match them in text, and a unigram model even finds them
  in its vocabulary: both are prevented when the tokenizer is created.
- Encoding adds nothing and drops nothing. Truncation, padding and the post-processor of a `tokenizer.json` are
  disabled: a file that says "truncate at 512" would silently lose text.
- `encode_batch` uses all cores (RAYON_NUM_THREADS and TOKENIZERS_PARALLELISM are respected) and releases the GIL, so
  reading and writing can run concurrently.
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
from rehead.text.tokenizer_gate import MAX_BYTES, check_tokenizer, read_limited

if TYPE_CHECKING:
    import tokenizers

    from rehead.text.documents import Document

BOS, PAD, EOS, UNK, MASK = "<s>", "<pad>", "</s>", "<unk>", "[MASK]"
SPECIALS = (BOS, PAD, EOS, UNK, MASK)
"The special tokens of the tokenizers made here, in the order of their ids. SentencePiece models have no mask."

# The names of the special tokens in other tokenizers; the first that exists is used.
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
    "Notes for the user on how it was created, one sentence each."

    def __init__(self, inner: tokenizers.Tokenizer, name: str = "tokenizer", notes: Iterable[str] = ()) -> None:
        """Wrap a tokenizer after checking that it is usable; `name` is for messages."""
        self.inner = inner
        self.name = name
        self.notes = list(notes)
        inner.no_truncation()
        inner.no_padding()
        self.vocab_size = max(inner.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        named = {role: _find(inner, names) for role, names in USUAL_NAMES.items()}
        self.bos, self.unk, self.mask = (_id(inner, named[role]) for role in ("bos", "unk", "mask"))
        self.pad, self.eos = (_required(inner, named[role], role, name) for role in ("pad", "eos"))
        _check_unknown_characters(inner, name)
        prevent_special_tokens_in_text(inner, [token for token in named.values() if token is not None])

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
        """Train a tokenizer on these documents: see `rehead.text.vocabulary`."""
        from rehead.text.vocabulary import DEFAULT_VOCAB, train_tokenizer

        vocab = DEFAULT_VOCAB if vocab is None else vocab
        return train_tokenizer(texts, vocab=vocab, lowercase=lowercase, seed=seed, quiet=quiet)

    @classmethod
    def from_sentencepiece(cls, model: str | Path, dict_txt: str | Path | None = None) -> Tokenizer:
        """Convert a SentencePiece model and its dictionary: see `rehead.text.sentencepiece`."""
        from rehead.text.sentencepiece import read_sentencepiece

        return read_sentencepiece(model, dict_txt)

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Load a `tokenizer.json`, or a SentencePiece `.model` with the `dict.txt` beside it, if there is one."""
        path = Path(path)
        if path.suffix == ".model":
            beside = path.with_name("dict.txt")
            return cls.from_sentencepiece(path, beside if beside.exists() else None)
        return cls.from_json(read_limited(path, MAX_BYTES, "tokenizer"), name=str(path))

    @classmethod
    def from_json(cls, content: str | bytes, name: str = "tokenizer.json", notes: Iterable[str] = ()) -> Tokenizer:
        """Create a tokenizer from the content of a `tokenizer.json`, once `check_tokenizer` has passed it.

        `name` is for messages.
        """
        import tokenizers

        checked = check_tokenizer(content, name)
        with _errors_as_user_error(f"{name} is not a readable tokenizer.json"), _no_panic_on_stderr():
            inner = tokenizers.Tokenizer.from_str(checked.text)
            return cls(inner, name, [*notes, *checked.notes])

    def with_mask(self) -> Tokenizer:
        """Return this tokenizer with a [MASK] token, for masked language modelling; add it if it is missing."""
        from tokenizers import AddedToken

        if self.mask is not None:
            return self
        other = Tokenizer.from_json(self.to_json(), self.name)
        other.inner.add_special_tokens([AddedToken(MASK, special=True, normalized=False)])
        note = f"{self.name} has no {MASK} token: one was added, with id {self.vocab_size}"
        return Tokenizer(other.inner, self.name, [*self.notes, note])

    def to_json(self) -> str:
        """Return the text of its `tokenizer.json`."""
        text: str = self.inner.to_str()
        return text

    def save(self, path: str | Path) -> None:
        """Write its `tokenizer.json`."""
        try:
            Path(path).write_text(self.to_json(), encoding="utf-8")
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror or error}.") from error

    def fingerprint(self) -> str:
        """SHA-256 of everything that determines the ids."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Encode a text to ids."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode many texts to ids, on all cores."""
        with _errors_as_user_error(f"{self.name} cannot encode this text"):
            # The fast version does not compute character offsets.
            encodings = self.inner.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_with_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Encode a text to ids, with the character span (start, end) of each token."""
        with _errors_as_user_error(f"{self.name} cannot encode this text"):
            encoding = self.inner.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def encode_with_masks(self, text: str, mark: str = MASK) -> list[int]:
        """Encode a text to ids, with the mask token wherever the text has `mark`.

        A space before the mark belongs to the masked word, so it is removed.
        """
        if self.mask is None:
            raise UserError(f"{self.name} has no mask token ({', '.join(USUAL_NAMES['mask'])}): nothing can be masked.")
        first, *rest = (between.removesuffix(" ") for between in text.split(mark))
        ids = self.encode(first)
        for between in rest:
            ids += [self.mask, *self.encode(between)]
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Decode ids to text, without special tokens."""
        text: str = self.inner.decode([int(each) for each in ids], skip_special_tokens=True)
        return text

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Convert ids to the tokens of the vocabulary; an unused id gives an empty string."""
        return [self.inner.id_to_token(int(each)) or "" for each in ids]

    def readable(self, ids: Iterable[int]) -> list[str]:
        """Convert ids to tokens for display; those of a byte-level vocabulary are decoded.

        A token that is only part of a character cannot be decoded and stays as it is.
        """
        tokens = self.tokens(ids)
        if type(self.inner.decoder).__name__ != "ByteLevel":
            return tokens
        texts = [self.inner.decoder.decode([token]) for token in tokens]
        return [token if "\ufffd" in text else text for token, text in zip(tokens, texts, strict=True)]

    def special_ids(self) -> list[int]:
        """List the ids below `vocab_size` that are not text: special tokens, and unused ids."""
        special = {number for number, added in self.inner.get_added_tokens_decoder().items() if added.special}
        return [each for each, token in enumerate(self.tokens(range(self.vocab_size))) if not token or each in special]

    def ids_of(self, tokens: Iterable[str]) -> list[int]:
        """Convert tokens to ids; those not in the vocabulary become the unknown token."""
        ids = []
        for token in tokens:
            found = self.inner.token_to_id(token)
            found = self.unk if found is None else found
            if found is None:
                raise UserError(f"{self.name} has neither the token {token!r} nor an unknown token ([UNK], <unk>).")
            ids.append(found)
        return ids


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


def prevent_special_tokens_in_text(inner: tokenizers.Tokenizer, specials: list[str]) -> None:
    """Ensure that no text encodes to a special token, one of these or another."""
    from tokenizers import Regex, pre_tokenizers

    inner.add_special_tokens(specials)
    inner.encode_special_tokens = True  # encode them as text: they are not matched
    produced = [
        added.content
        for number, added in sorted(inner.get_added_tokens_decoder().items())
        if added.special and added.content not in USUAL_NAMES["unk"]
        if number in inner.encode(f"a {added.content} b{added.content}", add_special_tokens=False).ids
    ]
    if produced:
        # The model has them in its vocabulary. It cannot produce one that is split before its last character.
        last = "|".join(f"(?<={re.escape(token[:-1])}){re.escape(token[-1])}" for token in produced)
        steps = [] if inner.pre_tokenizer is None else [inner.pre_tokenizer]
        steps.append(pre_tokenizers.Split(Regex(last), "merged_with_next"))
        inner.pre_tokenizer = pre_tokenizers.Sequence(steps)


def _check_unknown_characters(inner: tokenizers.Tokenizer, name: str) -> None:
    """Encode unknown characters now, to fail early rather than in the middle of a corpus."""
    with _errors_as_user_error(f"{name} cannot encode unknown characters"):
        inner.encode("a \u2603\U000f0000", add_special_tokens=False)


@contextmanager
def _errors_as_user_error(what: str) -> Iterator[None]:
    """Convert what `tokenizers` raises, including panics of its Rust code, to a UserError."""
    try:
        yield
    except UserError:
        raise
    except BaseException as error:
        # PanicException cannot be imported and does not derive from Exception; KeyboardInterrupt must pass.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise UserError(f"{what}: {error}") from error
        raise


@contextmanager
def _no_panic_on_stderr() -> Iterator[None]:
    """Suppress the backtrace that Rust prints on a panic; the error has the message."""
    saved = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)
