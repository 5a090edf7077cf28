r"""Exact and near-duplicate detection, by an exact similarity join on word shingles.

Definition
    Documents are compared by their words; case, white space, punctuation and HTML line breaks are ignored. Two are
    *exact* duplicates if they have the same words in the same order.
    A shingle is three consecutive words (a word trigram, with padding at both ends), without accents of Latin letters.
    Two documents are *near* duplicates if the shorter one, which has fewer distinct shingles,
      - shares half of its distinct shingles with the other one;
      - has enough of its words covered by shared shingles, its `similarity`: 70 %, rising to 85 % if it has fewer than
        30 words (85 % at 20) or the other one is more than twice as long (85 % at 3.5 times);
      - and the other one is at most twice as long. From 25 words on, this factor doubles with every three words: 6 at
        30 words, 64 at 40. Twenty words in a long text are a quotation; a whole review pasted into it is a leak.
    Below 10 words only exact duplicates count: "a great film for children" and "a great film for adults" share a
    phrase, not an origin. In Chinese, Japanese, Thai, … each character is compared like a word and counts as half one.

Why coverage rather than Jaccard similarity
    One changed word removes three shingles, but uncovers only one word. So coverage separates a copy with one word
    changed (of 10 words, 90 % are covered) from two texts with a common phrase (70 to 80 %); the share of common
    shingles, as in Jaccard similarity, does not (about 60 % for both). Coverage is a containment: added text costs
    nothing, and 100 % does not mean equal. "I would recommend …" is contained in "I would not recommend …": a near
    duplicate by design, a copy with a word added. The report notes if the labels then contradict each other.
    Recall on 300 copies with this many words changed (bench/duplicates.py, which also deletes and inserts):

        words     1     2     3     5    10    20    40 changed
           10   .97   .01
           15  1.00   .79   .04
           20  1.00   .92   .56   .00
           30  1.00  1.00  1.00   .98
           50  1.00  1.00  1.00  1.00   .69
          100  1.00  1.00  1.00  1.00  1.00   .72
          200  1.00  1.00  1.00  1.00  1.00  1.00   .83

    False negatives: paraphrases, and truncated reviews: recall is 0 for the first 100 characters, 28 % for 150, 93 %
    for 200.
    Precision, judged by eye: 75,000 IMDb reviews have 99 near-duplicate pairs. The 14 least similar (71 to 86 %) are 7
    of one author's template for two films, 5 reviews that were reworded or quote one another, and 2 with the same
    boilerplate; none are independent reviews of one film. Between 60 and 70 % most pairs are templates.
    89,640 shorter French reviews have 404 pairs. A threshold of 70 % from 25 words on, for any length of the other
    document, would give 19 more: 11 quote the same line, synopsis or terms, 2 share a stock sentence or a template, 6
    were rewritten by their author. Comparing accents would miss 5: 4 copies and one stock sentence.

Algorithm
    An exact join instead of MinHash: no false negatives by chance, and no seed. If half of a document's shingles are in
    another one, so are four of its (half + 3) rarest, so only these are looked up (prefix filtering). Most rare
    shingles occur in one document only, so there are few candidates, and each is verified. A shingle is a 48-bit hash.
    A shingle in more than 500 documents (a template, a signature) would give quadratically many pairs: a document looks
    up at most two of these, and only 32 evenly spaced documents of each. `limited` counts such documents.

    100,000 reviews, 20 million words: 20 s on two cores, 3.8 times the time of splitting them into words, with 30 bytes
    of memory per word (bench/text.py).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rehead.text.word_hashes import CHARACTER_WORDS, IS_CHARACTER, SPELLING, WordHashes, split_words

SHINGLE_WORDS = 3  # words in a shingle
MIN_WORDS = 10  # of a document, to have near duplicates
MIN_SHARED = 0.5  # share of the shorter document's shingles
# Minimum coverage, interpolated: by the words of the shorter document, and by the ratio of the lengths.
COVERAGE_BY_WORDS = (20, 30), (0.85, 0.7)
COVERAGE_BY_RATIO = (2, 3.5), (0.7, 0.85)
# Maximum ratio of the lengths; it doubles with every RATIO_STEP words above RATIO_FROM.
MAX_RATIO, RATIO_FROM, RATIO_STEP = 2, 25, 3

MIN_HITS = 4  # rare shingles that a candidate must share
COMMON = 500  # a shingle in more documents than this is common: not all of these are compared
COMMON_SAMPLE, COMMON_LOOKUPS = 32, 2  # documents compared per common shingle; common shingles looked up per document
BLOCK = 1 << 21  # elements processed at once; bounds the memory of every step

# Padding before and after each text, so that its first and last words are in SHINGLE_WORDS shingles too.
PADDING = np.zeros(SHINGLE_WORDS - 1, dtype=np.uint64)

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass
class Duplicates:
    """Exact and near duplicates in a sequence of documents."""

    first: Ints
    "(documents,) Index of the first document with the same words; its own index if it is not a duplicate."
    pairs: Ints
    "(pairs, 2) Near duplicates, the shorter one first; of exact duplicates, only the first is listed."
    similarity: Floats
    "(pairs,) Share of the shorter document's words that are covered by shared shingles."
    limited: int
    "Number of documents with common shingles, which were compared with a sample of the others only."

    def groups(self) -> Ints:
        """(documents,) Index of the first document in each one's group of exact and near duplicates."""
        parent = self.first.tolist()

        def root(document: int) -> int:
            while parent[document] != document:
                parent[document] = document = parent[parent[document]]
            return document

        for left, right in self.pairs.tolist():
            low, high = sorted((root(left), root(right)))
            parent[high] = low
        return np.array([root(document) for document in range(len(parent))], dtype=np.int64)


def find_duplicates(texts: Iterable[str]) -> Duplicates:
    """Find exact and near duplicates (defined in the module's docstring), in one pass over the texts."""
    first, members, hashes, lengths, words = _hash_texts(texts)
    nothing = np.empty((0, 2), dtype=np.int64)
    if not len(members):
        return Duplicates(first, nothing, np.empty(0), 0)
    search = _Search(hashes, lengths, words)
    found = [search.verified(left, right) for left, right in search.candidates()]
    pairs = np.concatenate([nothing, *(members[pairs] for pairs, _ in found)])
    similarity = np.concatenate([np.empty(0), *(similarity for _, similarity in found)])
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    return Duplicates(first, pairs[order], similarity[order], search.limited)


def _hash_texts(texts: Iterable[str]) -> tuple[Ints, Ints, Hashes, Ints, Floats]:
    """Find exact duplicates, and hash the shingles of the rest.

    Returns, for every document, the index of the first one with the same words; and for the distinct documents that
    are long enough for near duplicates: their indices, their concatenated shingles, the number of shingles of each,
    and the number of words of each.
    """
    known = WordHashes()
    seen: dict[bytes, int] = {}
    first: list[int] = []
    members: list[int] = []
    lengths: list[int] = []
    words: list[float] = []
    blocks: list[Hashes] = []
    waiting: list[Hashes] = []
    for number, text in enumerate(texts):
        hashes = np.fromiter(map(known.__getitem__, split_words(text)), dtype=np.uint64)
        # Empty texts are not duplicates of each other.
        key = hashlib.blake2b(hashes.tobytes(), digest_size=16).digest() if len(hashes) else b"%d" % number
        first.append(seen.setdefault(key, number))
        if first[-1] != number or len(hashes) < MIN_WORDS:
            continue
        characters = np.count_nonzero(hashes & IS_CHARACTER)
        count = len(hashes) - (1 - CHARACTER_WORDS) * characters
        if count >= MIN_WORDS:
            members.append(number)
            words.append(count)
            lengths.append(len(hashes) + SHINGLE_WORDS - 1)
            waiting.append(np.concatenate([PADDING, hashes, PADDING]))
            if len(waiting) == 4096:
                blocks.append(_shingles(waiting))
                waiting = []
    if waiting:
        blocks.append(_shingles(waiting))
    hashes = np.concatenate(blocks) if blocks else np.empty(0, dtype=np.uint64)
    numbers = [np.array(each, dtype=np.int64) for each in (first, members, lengths)]
    return numbers[0], numbers[1], hashes, numbers[2], np.array(words)


def _shingles(documents: list[Hashes]) -> Hashes:
    """Hash every shingle of every document: a polynomial rolling hash of its words' hashes."""
    flat = np.concatenate(documents) & ~SPELLING
    hashes = np.zeros(len(flat) - SHINGLE_WORDS + 1, dtype=np.uint64)
    for place in range(SHINGLE_WORDS):
        hashes *= np.uint64(0x9E3779B97F4A7C15)
        hashes += flat[place : place + len(hashes)]
    ends = np.cumsum([len(each) for each in documents])[:-1]
    across = np.concatenate([ends - back for back in range(1, SHINGLE_WORDS)])  # spanning two documents
    return np.delete(hashes, across)


def _ranges(starts: Ints, counts: Ints) -> Ints:
    """Concatenate `range(start, start + count)` for every start and count."""
    before = np.cumsum(counts) - counts
    ranges: Ints = np.arange(counts.sum()) + np.repeat(starts - before, counts)
    return ranges


class _Search:
    """The similarity join. Documents are numbered 0, 1, 2, …; so are repeated shingles, from rare to common.

    Shapes: D documents, S shingles in total, R distinct pairs of (document, repeated shingle).
    """

    def __init__(self, hashes: Hashes, lengths: Ints, words: Floats) -> None:
        self.lengths = lengths  # (D,) shingles
        self.offsets = np.cumsum(lengths) - lengths  # (D,) start of each document's shingles
        document = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)  # (S,)
        self.number, self.fresh, self.frequency = _number_shingles(hashes, document)
        self.sizes = np.bincount(document[self.fresh], minlength=len(lengths))  # (D,) distinct shingles
        self.needed = np.ceil(MIN_SHARED * self.sizes).astype(np.int64)  # (D,) shingles to share
        # (D,) Words, discounted by the share of repeated shingles: a refrain does not make a text long.
        self.words = words * ((self.sizes - (SHINGLE_WORDS - 1)) / (lengths - (SHINGLE_WORDS - 1)))
        doublings = np.clip((self.words - RATIO_FROM) / RATIO_STEP, 0, 40)
        self.longest = MAX_RATIO * np.exp2(doublings) * self.sizes  # (D,) maximum shingles of the longer document

        repeated = self.fresh & (self.number >= 0)
        by_document = document[repeated].astype(np.uint64) << np.uint64(32) | self.number[repeated].astype(np.uint64)
        by_shingle = by_document << np.uint64(32) | by_document >> np.uint64(32)
        by_document.sort()
        by_shingle.sort()
        self.by_document = by_document  # (R,) document << 32 | shingle
        self.by_shingle = by_shingle  # (R,) shingle << 32 | document
        self.repeated = np.bincount(document[repeated], minlength=len(lengths))  # (D,)
        self.crowds = np.cumsum(self.frequency) - self.frequency  # start of each shingle's documents in by_shingle
        self.limited = 0

    def candidates(self) -> Iterator[tuple[Ints, Ints]]:
        """Yield candidate pairs, the shorter document first: a superset of the near duplicates."""
        # Prefix filter: a document that shares t shingles shares `hits` of its (repeated - t + hits) rarest.
        hits = np.minimum(MIN_HITS, self.needed)
        lookups = self.repeated - self.needed + hits
        lookups[(self.repeated < self.needed) | (self.words < MIN_WORDS)] = 0
        rarest = _ranges(np.cumsum(self.repeated) - self.repeated, lookups)
        left = np.repeat(np.arange(len(lookups)), lookups)
        shingle = (self.by_document[rarest] & np.uint64(0xFFFFFFFF)).astype(np.int64)

        common = self.frequency[shingle] > COMMON
        common_counts = np.bincount(left[common], minlength=len(lookups))  # (D,)
        self.limited = int(np.count_nonzero(common_counts))
        hits = np.maximum(hits - common_counts, 1)  # common shingles are only sampled, so do not require their hits
        # Shingles are sorted by frequency, so a document's common ones are its last: keep the first few of these.
        many = np.cumsum(common)
        begin = np.searchsorted(left, left)
        keep = ~common | (many - (many - common)[begin] <= COMMON_LOOKUPS)
        left, shingle, common = left[keep], shingle[keep], common[keep]

        found = np.where(common, COMMON_SAMPLE, self.frequency[shingle])
        for chunk in _chunks(left, found):
            pairs = self._look_up(left[chunk], shingle[chunk], found[chunk], common[chunk], hits)
            yield (pairs >> np.uint64(32)).astype(np.int64), (pairs & np.uint64(0xFFFFFFFF)).astype(np.int64)

    def _look_up(self, left: Ints, shingle: Ints, found: Ints, common: Flags, hits: Ints) -> Hashes:
        """Look up shingles of documents; return the pairs that share enough of them, as left << 32 | right."""
        begin = self.crowds[shingle]
        place = _ranges(np.zeros(len(found), dtype=np.int64), found)
        if common.any():
            # Sample the documents of a common shingle in equal steps, starting after the document itself.
            frequency = np.repeat(np.where(common, self.frequency[shingle], 1), found)
            own = shingle[common].astype(np.uint64) << np.uint64(32) | left[common].astype(np.uint64)
            start = np.zeros(len(left), dtype=np.int64)
            start[common] = np.searchsorted(self.by_shingle, own) - begin[common] + 1
            sample = (np.repeat(start, found) + place * frequency // COMMON_SAMPLE) % frequency
            place = np.where(np.repeat(common, found), sample, place)
        right = self.by_shingle[np.repeat(begin, found) + place] & np.uint64(0xFFFFFFFF)
        pairs = np.repeat(left.astype(np.uint64), found) << np.uint64(32) | right
        fits = self._fits(np.repeat(left, found), right.astype(np.int64))
        sampled = np.repeat(common, found)
        counted, times = np.unique(pairs[fits & ~sampled], return_counts=True)
        counted = counted[times >= hits[(counted >> np.uint64(32)).astype(np.int64)]]
        return np.union1d(counted, pairs[fits & sampled])

    def _fits(self, left: Ints, right: Ints) -> Flags:
        """Whether `left` is the shorter document, and `right` is within the maximum length ratio."""
        small, large = self.sizes[left], self.sizes[right]
        shorter = (small < large) | ((small == large) & (left < right))
        fits: Flags = shorter & (large <= self.longest[left])
        return fits

    def verified(self, left: Ints, right: Ints) -> tuple[Ints, Floats]:
        """Verify candidates; return the near duplicates, (pairs, 2), and their similarity."""
        good = np.zeros(len(left), dtype=bool)
        similarity = np.zeros(len(left))
        for chunk in _chunks(np.arange(len(left)), self.lengths[left]):
            small, large = left[chunk], right[chunk]
            shared, covered = self._measure(small, large)
            similarity[chunk] = covered / (self.lengths[small] - (SHINGLE_WORDS - 1))
            by_words = np.interp(self.words[small], *COVERAGE_BY_WORDS)
            by_ratio = np.interp(self.sizes[large] / self.sizes[small], *COVERAGE_BY_RATIO)
            good[chunk] = (shared >= self.needed[small]) & (similarity[chunk] >= np.maximum(by_words, by_ratio))
        return np.stack([left, right], axis=1)[good], similarity[good]

    def _measure(self, left: Ints, right: Ints) -> tuple[Ints, Ints]:
        """For each pair, count the distinct shingles of `left` that `right` has, and the words that they cover."""
        lengths = self.lengths[left]
        places = _ranges(self.offsets[left], lengths)
        number = self.number[places]
        wanted = np.repeat(right, lengths).astype(np.uint64) << np.uint64(32) | number.astype(np.uint64)
        there = np.zeros(len(places), dtype=bool)
        known = np.flatnonzero(number >= 0)
        at = np.searchsorted(self.by_document, wanted[known])
        there[known] = self.by_document[np.minimum(at, len(self.by_document) - 1)] == wanted[known]

        starts = np.cumsum(lengths) - lengths
        pair = np.arange(len(left))
        shared = np.add.reduceat(there & self.fresh[places], starts, dtype=np.int64)
        # With padding, a document has SHINGLE_WORDS - 1 more words than shingles; each covers SHINGLE_WORDS of them.
        words = np.zeros(len(places) + (SHINGLE_WORDS - 1) * len(left), dtype=bool)
        word = np.flatnonzero(there) + (SHINGLE_WORDS - 1) * np.repeat(pair, lengths)[there]
        for step in range(SHINGLE_WORDS):
            words[word + step] = True
        begin = starts + (SHINGLE_WORDS - 1) * pair
        for step in range(SHINGLE_WORDS - 1):
            words[begin + step] = words[begin + lengths + step] = False  # padding
        covered = np.add.reduceat(words, begin, dtype=np.int64)
        return shared, covered


def _chunks(owner: Ints, costs: Ints) -> Iterator[slice]:
    """Cut a sequence into slices of about BLOCK cost, but not between elements of one owner; owners are sorted."""
    ends = np.cumsum(costs)
    start = 0
    while start < len(costs):
        limit = (ends[start - 1] if start else 0) + BLOCK
        last = max(int(np.searchsorted(ends, limit, side="right")) - 1, start)
        stop = int(np.searchsorted(owner, owner[last], side="right"))
        yield slice(start, stop)
        start = stop


def _number_shingles(hashes: Hashes, document: NDArray[np.int32]) -> tuple[NDArray[np.int32], Flags, Ints]:
    """Number the shingles that occur in more than one document, from rare to common.

    Returns the number of every shingle (-1: in one document only), whether it is its first occurrence in its document,
    and the document frequency of each number. Sorts by ranges of hashes, a block at a time, on all cores.
    """
    number = np.full(len(hashes), -1, dtype=np.int32)
    fresh = np.zeros(len(hashes), dtype=bool)
    bits = max(1, (len(hashes) // BLOCK).bit_length())
    high_bits = (hashes >> np.uint64(64 - bits)).astype(np.uint16)

    def number_range(part: int) -> Ints:
        places = np.flatnonzero(high_bits == part)
        places = places[np.argsort(hashes[places], kind="stable")]  # stable: equal hashes stay in document order
        here, owner = hashes[places], document[places]
        new_hash = np.ones(len(places), dtype=bool)
        new_hash[1:] = here[1:] != here[:-1]
        new_owner = new_hash.copy()
        new_owner[1:] |= owner[1:] != owner[:-1]
        fresh[places] = new_owner
        kind = np.cumsum(new_hash) - 1
        frequency = np.bincount(kind[new_owner])
        shared = frequency > 1
        number[places] = np.where(shared, np.cumsum(shared) - 1, -1)[kind]
        kept: Ints = frequency[shared]
        return kept

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        frequencies = list(threads.map(number_range, range(1 << bits)))
    before = np.cumsum([0, *map(len, frequencies)])
    frequency = np.concatenate(frequencies).astype(np.int64)
    order = np.argsort(frequency, kind="stable")
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    for start in range(0, len(number), BLOCK):
        shared = np.flatnonzero(number[start : start + BLOCK] >= 0) + start
        number[shared] = rank[number[shared] + before[high_bits[shared]]]
    return number, fresh, frequency[order]
