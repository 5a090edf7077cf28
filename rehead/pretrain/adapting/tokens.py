"""The tokenizer of a brought base, in the interface that corpora are encoded by."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from rehead.bases.pieces import special_tokens
from rehead.errors import UserError
from rehead.text.tokenizer import Tokenizer, prevent_special_tokens_in_text


class BroughtTokenizer(Tokenizer):
    """Text → ids as the base reads it, but for the special tokens: those come from `prefix` and `suffix`.

    Unlike one of our own it need not have padding or an end mark; documents are separated by [SEP] if it has none.
    """

    prefix: list[int]
    "Ids before every text, such as [CLS]."
    suffix: list[int]
    "Ids after every text, such as [SEP]."

    def __init__(self, given: Any, name: str, *, prompt: str = "", lowercase: bool = False) -> None:  # noqa: ANN401
        """Wrap a tokenizer of transformers; `prompt` and `lowercase` are what the base does to a text before it."""
        import tokenizers

        core = getattr(given, "backend_tokenizer", None)
        if core is None:
            raise UserError(
                f"{name}: its tokenizer has no tokenizer.json, which adapting needs. Make one: "
                "AutoTokenizer.from_pretrained('DIR').save_pretrained('DIR')."
            )
        self.inner = tokenizers.Tokenizer.from_str(core.to_str())
        self.name, self.notes, self.prompt, self.lowercase = name, [], prompt, lowercase
        self.inner.no_truncation()
        self.inner.no_padding()
        self.prefix, self.suffix = special_tokens(self.inner)
        self.vocab_size = max(self.inner.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        ids = {role: getattr(given, f"{role}_token_id") for role in ("bos", "pad", "eos", "sep", "unk", "mask")}
        self.bos, self.unk, self.mask = ids["bos"], ids["unk"], ids["mask"]
        marks = [each for each in (ids["eos"], ids["sep"], ids["pad"]) if each is not None]
        self.eos, self.pad = marks[0] if marks else 0, marks[-1] if marks else 0
        prevent_special_tokens_in_text(self.inner, [each for each in given.all_special_tokens if each])

    @property
    def specials(self) -> int:
        """Number of special tokens around a text."""
        return len(self.prefix) + len(self.suffix)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode many texts to ids, with the prompt before each."""
        given = [self.prompt + text.strip() for text in texts]
        return super().encode_batch([text.lower() for text in given] if self.lowercase else given)

    def fingerprint(self) -> str:
        """SHA-256 of everything that determines the ids."""
        return hashlib.sha256(repr((super().fingerprint(), self.prompt, self.lowercase)).encode()).hexdigest()
