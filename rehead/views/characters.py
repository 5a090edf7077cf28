"""Character n-grams, within words and across them: stems, endings, spelling mistakes, and any script.

On short texts they are the strongest single view that needs nothing but counts: they see that "transferred" and
"transfering" are alike, which words do not (docs/experiments/any-text.md).
"""

from __future__ import annotations

from rehead.text.text_ngrams import TextNgrams
from rehead.views.encoded import EncodedTexts
from rehead.views.text_view import TextView


class CharactersView(TextView):
    """Runs of 2 to 5 characters."""

    name = kind = "characters"
    about = "its character n-grams"
    limit = 100_000

    def ngrams(self, texts: EncodedTexts) -> TextNgrams:
        """Find runs of characters."""
        return texts.character_ngrams
