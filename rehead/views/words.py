"""Words as people write them, and pairs of neighbouring words: what TF-IDF classifiers are made of.

No tokenizer cuts them, so a rare word is one feature, and the first and last words of a text are marked
(`rehead.text.text_ngrams`). In scripts written without spaces, characters take the place of words.
"""

from __future__ import annotations

from rehead.text.text_ngrams import TextNgrams
from rehead.views.encoded import EncodedTexts
from rehead.views.text_view import TextView


class WordsView(TextView):
    """Words and pairs of words."""

    name = kind = "words"
    about = "its words and pairs of words"
    limit = 400_000

    def ngrams(self, texts: EncodedTexts) -> TextNgrams:
        """Find words and pairs."""
        return texts.word_ngrams
