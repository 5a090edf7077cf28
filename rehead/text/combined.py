"""Texts in memory and texts of files as one corpus: what a base of a classifier's own is pretrained on.

    texts = CombinedTexts(train.texts, Texts(["reviews.txt"]), leave_out=valid.texts)

Every labelled text counts once: of the unlabelled texts, exact copies of labelled ones are skipped. So are copies of
texts that must not be seen: those of the validation set. Both are counted in `skipped`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence

from rehead.text.decoding import utf8_size
from rehead.text.documents import Document
from rehead.text.readers import Texts
from rehead.text.tables import check_surrogates

LABELLED, LEFT_OUT = "copy of a labelled text", "copy of a validation text"


class CombinedTexts(Texts):
    """Labelled texts, then unlabelled ones, from files or from memory. Empty texts are skipped."""

    def __init__(  # not that of `Texts`: there may be no files
        self, labelled: Sequence[str], unlabelled: Texts | Sequence[str] = (), *, leave_out: Sequence[str] = ()
    ) -> None:
        self.labelled = labelled
        self.on_disk = unlabelled if isinstance(unlabelled, Texts) else None
        self.more: Sequence[str] = () if isinstance(unlabelled, Texts) else unlabelled
        self.known = {**dict.fromkeys(leave_out, LEFT_OUT), **dict.fromkeys(labelled, LABELLED)}
        "Texts that are skipped where they are among the unlabelled ones, and why."
        self.skipped = Counter()
        for name, texts in (("labelled", labelled), ("unlabelled", self.more)):
            for place, text in enumerate(texts):
                check_surrogates(text, f"{name} text {place}")
        self.total_bytes = sum(map(utf8_size, (*labelled, *self.more)))
        self.total_bytes += 0 if self.on_disk is None else self.on_disk.total_bytes
        self._read = 0

    @property
    def bytes_read(self) -> int:
        """Number of bytes, out of `total_bytes`, that the current iteration has consumed."""
        return self._read + (0 if self.on_disk is None else self.on_disk.bytes_read)

    def __iter__(self) -> Iterator[Document]:
        self.skipped, self._read = Counter(), 0
        yield from self._in_memory(self.labelled, "labelled texts")
        for document in self.on_disk if self.on_disk is not None else self._in_memory(self.more, "unlabelled texts"):
            if (why := self.known.get(document.text)) is None:
                yield document
            else:
                self.skipped[why] += 1
        if self.on_disk is not None:
            self.skipped.update(self.on_disk.skipped)

    def fingerprint(self) -> str:
        """SHA-256 of all texts, and of those that are left out."""
        digest = hashlib.sha256(b"" if self.on_disk is None else self.on_disk.fingerprint().encode())
        left_out = [text for text, why in self.known.items() if why == LEFT_OUT]
        for texts in (self.labelled, self.more, left_out):
            digest.update(repr(len(texts)).encode())
            for text in texts:
                digest.update(repr(text).encode())
        return digest.hexdigest()

    def _in_memory(self, texts: Sequence[str], source: str) -> Iterator[Document]:
        for line, text in enumerate(texts, 1):
            self._read += utf8_size(text)
            if text and not text.isspace():
                yield Document(text, source, line)
            else:
                self.skipped["empty text"] += 1
