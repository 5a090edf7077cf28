"""An encoder that others pretrained: a document is the vector that a Transformer in Hugging Face's format gives it.

It reads so many tokens at once. Of a longer document it reads what `long` says; the vectors of several windows are
averaged (docs/experiments/finetuning-encoders.md has what that is worth).
"""

from __future__ import annotations

from dataclasses import dataclass

from rehead.bases.brought import Brought
from rehead.bases.pieces import MOST_WINDOWS, Cutting
from rehead.errors import ConfigError
from rehead.text.long_documents import LongRule, check_cutting
from rehead.views.brought import BroughtOptions, BroughtView


@dataclass(frozen=True, kw_only=True)
class EncoderOptions(BroughtOptions):
    """Which encoder reads, and what of long documents."""

    long: LongRule = "head"
    "What is read of a document that is longer than the encoder reads at once. Runs that do not state it have head."
    windows: int = MOST_WINDOWS
    "Windows of a document, at most."

    def __post_init__(self) -> None:
        check_cutting(None, self.long)
        if type(self.windows) is not int or not 1 <= self.windows <= 1 << 20:
            raise ConfigError(f"windows={self.windows!r}: must be a positive number.")


def usual_rule(brought: Brought, *, trained: bool = False) -> LongRule:
    """Say what of long documents an encoder reads unless the user says: windows, or both ends where it is trained.

    Windows are two points better than the beginning on film reviews, at 1.6 times the work.
    """
    cutter = getattr(brought.engine, "cutter", None)
    if cutter is None or cutter.tokenizer is None:
        return "head"
    return "head+tail" if trained else "windows"


class EncoderView(BroughtView):
    """Vectors of a brought Transformer."""

    name = "encoder"
    about = "the vector of an encoder that others pretrained"
    word_order = True
    Options = EncoderOptions
    options: EncoderOptions

    @property
    def cutting(self) -> Cutting:
        """What is read of a long document."""
        return Cutting(self.options.long, self.options.windows)

    @property
    def max_tokens(self) -> int | None:
        """Tokens of a document that are read, at most; None: all."""
        longest = self.brought.engine.max_length
        if longest is None or self.options.long != "windows":
            return longest
        return longest * self.options.windows

    def state(self) -> bytes:
        """What decides the vectors: also what is read of long documents, if it is not the beginning."""
        said = "" if self.options.long == "head" else f" {self.options.long} {self.options.windows}"
        return super().state() + said.encode()
