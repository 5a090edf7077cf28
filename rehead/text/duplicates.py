r"""Find documents that occur twice: word for word, or with some words changed, cut or added.

What counts
    Documents are compared by their words; case, white space, punctuation and HTML line breaks do not count. Two are
    *exact* duplicates if their words are the same in the same order.
    Else take every run of three words, the text's edges included (a shingle), without the accents of Latin letters.
    Two documents are *near* duplicates if the shorter one, that is the one with fewer different shingles,
      - has half of its shingles in the other, and
      - has enough of its words in a shingle that is in the other, its `similarity`: 70 %; more, up to 85 %, if it has
        less than 30 words (85 % at 20) or the other is more than twice as long (85 % at 3.5 times);
      - and the other is at most twice as long. From 25 words on, with every three more, twice that: 6 times at 30, 64
        times at 40. Twenty words in a long text are a quotation, a whole review pasted into it is a leak.
    Under 10 words only exact duplicates count: "a great film for children" and "a great film for adults" share a
    phrase, not an origin. In Chinese, Japanese, Thai, … a character is compared like a word, and two count one here.

Why
    One changed word takes three shingles away, but only one word out of those covered. So a share of words tells a
    copy with a word changed (of 10 words, 90 % are covered) from two texts with a phrase in common (70 to 80 %), which
    a share of shingles, like Jaccard's, does not (both about 60 %). It is a containment: text added costs nothing, and
    100 % does not mean equal. "I would recommend …" is all in "I would not recommend …": a near duplicate by design, a
    copy with a word added. That the labels then contradict each other, the report notes.
    Found, of 300 copies with so many words changed (bench/duplicates.py, which also cuts and adds):

        words     1     2     3     5    10    20    40 changed
           10   .97   .01
           15  1.00   .79   .04
           20  1.00   .92   .56   .00
           30  1.00  1.00  1.00   .98
           50  1.00  1.00  1.00  1.00   .69
          100  1.00  1.00  1.00  1.00  1.00   .72
          200  1.00  1.00  1.00  1.00  1.00  1.00   .83

    Not found: of reviews cut to their first 100 characters none, to 150 28 %, to 200 93 %; and what was reworded.
    The other side, by eye: 75,000 IMDb reviews have 99 near pairs. The 14 least alike (similarity 71 to 86 %) are 7
    of one author's forms filled in for two films, 5 reviews that were reworded or quote one another, and 2 with the
    same boilerplate in them; none is two people's reviews of one film. At 60 to 70 % forms are most of what there is.
    89,640 shorter French ones have 404. 70 % from 25 words on, however long the other one, would give 19 more: 11
    quote the same line, synopsis or terms, 2 share a stock sentence or a form, 6 were rewritten by their author.
    Accents, if they counted, would hide 5: 4 copies, and one stock sentence.

How
    Not MinHash but an exact join; nothing is missed by chance, nothing depends on a seed. If half of a document's
    shingles are in another one, so are four of its rarest (half + 3): only these are looked up (a prefix filter). One
    that occurs in a single document, as most rare ones do, finds nobody; so there are few candidates, and each is
    measured. Shingles are hashes of the words, of 48 bits.
    A shingle in more than 500 documents (a template, a signature) would make pairs by the square: a document looks up
    two such shingles at most, and 32 documents spread over those that have it. `limited` counts such documents.

    100,000 reviews, 20 million words: 20 s on two cores, 3.8 times what cutting them into words takes, with 30 bytes of
    memory per word (bench/text.py).
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
MIN_WORDS = 10  # words that a text must have for near duplicates
SHARED = 0.5  # of the shorter one's shingles
# Of the shorter one's words: what must be covered, by how many it has, and by how many times as long the other one is.
COVERED = (20, 30), (0.85, 0.7)
COVERED_WITHIN = (2, 3.5), (0.7, 0.85)
# The other one may be this many times as long; for every so many words above so many, twice that.
LONGER, LONGER_FROM, LONGER_STEP = 2, 25, 3

HITS = 4  # rare shingles that a candidate must share
CROWD = 500  # documents with one shingle, above which not all are compared
CROWD_SAMPLE, CROWD_LOOKUPS = 32, 2  # then this many of them, for this many such shingles of a document
BLOCK = 1 << 21  # elements handled at once; bounds the memory of every step

# Stands before and after every text, so that its ends are in RUN shingles too.
EDGE = np.zeros(SHINGLE_WORDS - 1, dtype=np.uint64)

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass
class Duplicates:
    """Which of the documents 0, 1, 2, … are duplicates."""

    first: Ints
    "(documents,) The first document with the same words; itself for most."
    pairs: Ints
    "(pairs, 2) Near duplicates, the shorter one on the left; a document with exact copies stands for all of them."
    similarity: Floats
    "(pairs,) The share of the shorter one's words that is in the other."
    limited: int
    "Documents that share a phrase with so many others that not all of them were compared."

    def groups(self) -> Ints:
        """(documents,) The first document of its group, exact and near duplicates put together."""
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
    """Find the exact and near duplicates among texts; see the module for what counts. Texts are read once."""
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

    Returns the first document with the same words, for every document; and of the different documents that are long
    enough for near duplicates: their numbers, their shingles one after the other, how many of these each has, and how
    many words.
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
        # Blank texts are empty, not copies of each other.
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
            waiting.append(np.concatenate([EDGE, hashes, EDGE]))
            if len(waiting) == 4096:
                blocks.append(_shingles(waiting))
                waiting = []
    if waiting:
        blocks.append(_shingles(waiting))
    hashes = np.concatenate(blocks) if blocks else np.empty(0, dtype=np.uint64)
    numbers = [np.array(each, dtype=np.int64) for each in (first, members, lengths)]
    return numbers[0], numbers[1], hashes, numbers[2], np.array(words)


def _shingles(documents: list[Hashes]) -> Hashes:
    """Hash every run of words of every document: a polynomial in the hashes of its words."""
    flat = np.concatenate(documents) & ~SPELLING
    hashes = np.zeros(len(flat) - SHINGLE_WORDS + 1, dtype=np.uint64)
    for place in range(SHINGLE_WORDS):
        hashes *= np.uint64(0x9E3779B97F4A7C15)
        hashes += flat[place : place + len(hashes)]
    ends = np.cumsum([len(each) for each in documents])[:-1]
    across = np.concatenate([ends - back for back in range(1, SHINGLE_WORDS)])  # begin in one document, end in the next
    return np.delete(hashes, across)


def _ranges(starts: Ints, counts: Ints) -> Ints:
    """Concatenate `range(start, start + count)` for every start and count."""
    before = np.cumsum(counts) - counts
    ranges: Ints = np.arange(counts.sum()) + np.repeat(starts - before, counts)
    return ranges


class _Search:
    """The join. Documents are numbered 0, 1, 2, …; so are repeated shingles, from rare to common.

    D documents, S shingles in all, R different (document, repeated shingle).
    """

    def __init__(self, hashes: Hashes, lengths: Ints, words: Floats) -> None:
        self.lengths = lengths  # (D,) shingles
        self.offsets = np.cumsum(lengths) - lengths  # (D,) where a document's shingles begin
        document = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)  # (S,)
        self.number, self.fresh, self.frequency = _number_shingles(hashes, document)
        self.sizes = np.bincount(document[self.fresh], minlength=len(lengths))  # (D,) different shingles
        self.needed = np.ceil(SHARED * self.sizes).astype(np.int64)  # (D,) shingles to share, as the shorter one
        # (D,) Words, those that only repeat others left out: a refrain makes no long text.
        self.words = words * ((self.sizes - (SHINGLE_WORDS - 1)) / (lengths - (SHINGLE_WORDS - 1)))
        doublings = np.clip((self.words - LONGER_FROM) / LONGER_STEP, 0, 40)
        self.longest = LONGER * np.exp2(doublings) * self.sizes  # (D,) shingles that one may have that contains it

        repeated = self.fresh & (self.number >= 0)
        by_document = document[repeated].astype(np.uint64) << np.uint64(32) | self.number[repeated].astype(np.uint64)
        by_shingle = by_document << np.uint64(32) | by_document >> np.uint64(32)
        by_document.sort()
        by_shingle.sort()
        self.by_document = by_document  # (R,) document << 32 | shingle
        self.by_shingle = by_shingle  # (R,) shingle << 32 | document
        self.repeated = np.bincount(document[repeated], minlength=len(lengths))  # (D,)
        self.crowds = np.cumsum(self.frequency) - self.frequency  # where a shingle's documents begin in by_shingle
        self.limited = 0

    def candidates(self) -> Iterator[tuple[Ints, Ints]]:
        """Yield pairs that may be near duplicates, the shorter one on the left; none that is one is missing."""
        # Of t shingles to share, all but t - hits can be among the rarest (repeated - t + hits): look these up.
        hits = np.minimum(HITS, self.needed)
        lookups = self.repeated - self.needed + hits
        lookups[(self.repeated < self.needed) | (self.words < MIN_WORDS)] = 0
        rarest = _ranges(np.cumsum(self.repeated) - self.repeated, lookups)
        left = np.repeat(np.arange(len(lookups)), lookups)
        shingle = (self.by_document[rarest] & np.uint64(0xFFFFFFFF)).astype(np.int64)

        crowded = self.frequency[shingle] > CROWD
        in_crowds = np.bincount(left[crowded], minlength=len(lookups))  # (D,)
        self.limited = int(np.count_nonzero(in_crowds))
        hits = np.maximum(hits - in_crowds, 1)  # a crowd is not looked up in full, so its hits cannot be asked for
        # Shingles come rarest first, so the crowded ones of a document are its last: keep the first few of these.
        many = np.cumsum(crowded)
        begin = np.searchsorted(left, left)
        keep = ~crowded | (many - (many - crowded)[begin] <= CROWD_LOOKUPS)
        left, shingle, crowded = left[keep], shingle[keep], crowded[keep]

        found = np.where(crowded, CROWD_SAMPLE, self.frequency[shingle])
        for chunk in _chunks(left, found):
            pairs = self._look_up(left[chunk], shingle[chunk], found[chunk], crowded[chunk], hits)
            yield (pairs >> np.uint64(32)).astype(np.int64), (pairs & np.uint64(0xFFFFFFFF)).astype(np.int64)

    def _look_up(self, left: Ints, shingle: Ints, found: Ints, crowded: Flags, hits: Ints) -> Hashes:
        """Look up shingles of documents: pairs, as left << 32 | right, that share enough of them."""
        begin = self.crowds[shingle]
        place = _ranges(np.zeros(len(found), dtype=np.int64), found)
        if crowded.any():
            # From its own place in the crowd a document looks around in equal steps.
            crowd = np.repeat(np.where(crowded, self.frequency[shingle], 1), found)
            own = shingle[crowded].astype(np.uint64) << np.uint64(32) | left[crowded].astype(np.uint64)
            start = np.zeros(len(left), dtype=np.int64)
            start[crowded] = np.searchsorted(self.by_shingle, own) - begin[crowded] + 1
            around = (np.repeat(start, found) + place * crowd // CROWD_SAMPLE) % crowd
            place = np.where(np.repeat(crowded, found), around, place)
        right = self.by_shingle[np.repeat(begin, found) + place] & np.uint64(0xFFFFFFFF)
        pairs = np.repeat(left.astype(np.uint64), found) << np.uint64(32) | right
        fits = self._fits(np.repeat(left, found), right.astype(np.int64))
        sampled = np.repeat(crowded, found)
        counted, times = np.unique(pairs[fits & ~sampled], return_counts=True)
        counted = counted[times >= hits[(counted >> np.uint64(32)).astype(np.int64)]]
        return np.union1d(counted, pairs[fits & sampled])

    def _fits(self, left: Ints, right: Ints) -> Flags:
        """Tell whether `left` is the shorter one, and not too short for `right`."""
        small, large = self.sizes[left], self.sizes[right]
        shorter = (small < large) | ((small == large) & (left < right))
        fits: Flags = shorter & (large <= self.longest[left])
        return fits

    def verified(self, left: Ints, right: Ints) -> tuple[Ints, Floats]:
        """Measure candidates; return those that are near duplicates, (pairs, 2), and their similarity."""
        good = np.zeros(len(left), dtype=bool)
        similarity = np.zeros(len(left))
        for chunk in _chunks(np.arange(len(left)), self.lengths[left]):
            small, large = left[chunk], right[chunk]
            shared, covered = self._measure(small, large)
            similarity[chunk] = covered / (self.lengths[small] - (SHINGLE_WORDS - 1))
            enough = np.interp(self.words[small], *COVERED)
            within = np.interp(self.sizes[large] / self.sizes[small], *COVERED_WITHIN)
            good[chunk] = (shared >= self.needed[small]) & (similarity[chunk] >= np.maximum(enough, within))
        return np.stack([left, right], axis=1)[good], similarity[good]

    def _measure(self, left: Ints, right: Ints) -> tuple[Ints, Ints]:
        """Count, for pairs, the different shingles of the left one that the right one has, and the words in them."""
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
        # With its edges a document has RUN - 1 more words than shingles; a shingle covers RUN of them.
        words = np.zeros(len(places) + (SHINGLE_WORDS - 1) * len(left), dtype=bool)
        word = np.flatnonzero(there) + (SHINGLE_WORDS - 1) * np.repeat(pair, lengths)[there]
        for step in range(SHINGLE_WORDS):
            words[word + step] = True
        begin = starts + (SHINGLE_WORDS - 1) * pair
        for step in range(SHINGLE_WORDS - 1):
            words[begin + step] = words[begin + lengths + step] = False  # the edges
        covered = np.add.reduceat(words, begin, dtype=np.int64)
        return shared, covered


def _chunks(owner: Ints, costs: Ints) -> Iterator[slice]:
    """Cut a sequence into slices of about BLOCK cost, never between elements of one owner; owners are sorted."""
    ends = np.cumsum(costs)
    start = 0
    while start < len(costs):
        limit = (ends[start - 1] if start else 0) + BLOCK
        last = max(int(np.searchsorted(ends, limit, side="right")) - 1, start)
        stop = int(np.searchsorted(owner, owner[last], side="right"))
        yield slice(start, stop)
        start = stop


def _number_shingles(hashes: Hashes, document: NDArray[np.int32]) -> tuple[NDArray[np.int32], Flags, Ints]:
    """Give numbers to the shingles that more than one document has, from rare to common.

    Returns the number of every shingle (-1: in one document only), whether it is the first of its kind in its
    document, and in how many documents the numbered ones are. Sorting is done by ranges of hashes, a block at a time,
    on all cores.
    """
    number = np.full(len(hashes), -1, dtype=np.int32)
    fresh = np.zeros(len(hashes), dtype=bool)
    bits = max(1, (len(hashes) // BLOCK).bit_length())
    high_bits = (hashes >> np.uint64(64 - bits)).astype(np.uint16)

    def number_range(part: int) -> Ints:
        places = np.flatnonzero(high_bits == part)
        places = places[np.argsort(hashes[places], kind="stable")]  # equal hashes stay in the order of documents
        here, owner = hashes[places], document[places]
        new_hash = np.ones(len(places), dtype=bool)
        new_hash[1:] = here[1:] != here[:-1]
        new_owner = new_hash.copy()
        new_owner[1:] |= owner[1:] != owner[:-1]
        fresh[places] = new_owner
        kind = np.cumsum(new_hash) - 1
        frequency = np.bincount(kind[new_owner])
        several = frequency > 1
        number[places] = np.where(several, np.cumsum(several) - 1, -1)[kind]
        kept: Ints = frequency[several]
        return kept

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        frequencies = list(threads.map(number_range, range(1 << bits)))
    before = np.cumsum([0, *map(len, frequencies)])
    frequency = np.concatenate(frequencies).astype(np.int64)
    order = np.argsort(frequency, kind="stable")
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    for start in range(0, len(number), BLOCK):
        several = np.flatnonzero(number[start : start + BLOCK] >= 0) + start
        number[several] = rank[number[several] + before[high_bits[several]]]
    return number, fresh, frequency[order]
