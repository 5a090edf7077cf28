"""Dataset statistics, and leakage between splits: a report as plain data.

What counts as a leak, and what is only a note:

    a labelled document of the first split that is an exact or near duplicate of one in the other split
        a leak: a classifier trained on the first has seen the answer to the second
    an unlabelled document of the first split that is
        a leak too, unless unlabelled overlap is allowed. Pretraining on the test texts (without labels) is
        transductive learning, a method of its own, and scores are not comparable with those of other methods. So it
        counts as a leak until the user says that it is intended.
    duplicates within a split                                       a note
    duplicates with different labels                                a note: a label is wrong, or the classes overlap

Duplicates are searched over all splits at once; `rehead.text.duplicates` defines them.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.text.data_split import DataSplit, classify_paths, stream_texts
from rehead.text.documents import ReadOptions
from rehead.text.duplicates import Duplicates, find_duplicates
from rehead.text.sources import check_options_apply
from rehead.text.token_counts import TokenCounter, estimate_tokens

if TYPE_CHECKING:
    from rehead.text.tokenizer import Tokenizer

Report = dict[str, Any]
Labels = tuple[str, ...] | None
Pair = tuple[int, int, float]  # two documents and their similarity

QUANTILES = {"min": 0.0, "q25": 0.25, "median": 0.5, "q75": 0.75, "p95": 0.95, "max": 1.0}
MAX_BARS = 10  # of a histogram


def check_splits(
    paths: Sequence[str],
    against: Sequence[str],
    options: ReadOptions,
    *,
    tokenizer: Tokenizer | None = None,
    allow_unlabelled: bool = False,
    unlabelled: bool = False,
    examples: int = 3,
    quiet: bool = False,
) -> Report:
    """Read one split, or two to compare, and report on them; the module's docstring defines a leak."""
    given = [list(paths), list(against)] if against else [list(paths)]
    splits = [DataSplit(each, for_training=number == 0) for number, each in enumerate(given)]
    formats = set().union(*(classify_paths(split, options, unlabelled=unlabelled) for split in splits))
    check_options_apply(formats, options)
    counters = [TokenCounter(tokenizer) for _ in splits]
    texts = chain.from_iterable(
        counter.watch(stream_texts(split, options, quiet=quiet))
        for split, counter in zip(splits, counters, strict=True)
    )
    found = _Findings(find_duplicates(texts if quiet else _announced(texts)), splits, examples)
    if tokenizer is None:
        estimate_tokens(counters)
    report: Report = {
        "parts": [
            _statistics(split, counter) | found.within(number)
            for number, (split, counter) in enumerate(zip(splits, counters, strict=True))
        ],
        "across": found.across() if against else None,
        "limited": found.duplicates.limited,
        "allow_unlabelled": allow_unlabelled,
    }
    across = report["across"] or Counter()
    report["leak"] = bool(across["labelled"] or (across["unlabelled"] and not allow_unlabelled))
    return report


def _announced(texts: Iterator[str]) -> Iterator[str]:
    """Pass texts on; after the last of many, announce the search, which takes a while."""
    count = 0
    for count, text in enumerate(texts, 1):  # noqa: B007 (the last count is used)
        yield text
    if count >= 10_000:
        print(f"searching {count:,} documents for duplicates", file=sys.stderr)


def _statistics(split: DataSplit, counter: TokenCounter) -> Report:
    words = np.array(split.words)
    classes = Counter(chain.from_iterable(labels for labels in split.labels if labels is not None))
    return {
        "paths": split.paths,
        "documents": len(split),
        "labelled": sum(labels is not None for labels in split.labels),
        "classes": dict(sorted(classes.items(), key=lambda item: (-item[1], item[0]))),
        "words": int(words.sum()),
        "characters": sum(split.characters),
        "tokens": counter.tokens,
        "tokens_are_estimated": counter.tokenizer is None,
        "skipped": dict(split.skipped),
        "notes": split.notes,
        # In words; method "lower" gives lengths that occur, not means of two.
        "length": {"mean": round(float(words.mean()), 1)}
        | {name: int(np.quantile(words, share, method="lower")) for name, share in QUANTILES.items()},
        "histogram": _histogram(words),
    }


def _histogram(words: np.ndarray[Any, np.dtype[np.int64]]) -> list[Report]:
    """Histogram of lengths, with bins of 1, 2, 5, 10, 20, … words up to the 95 % quantile, and one for the rest."""
    low, most, high = (int(np.quantile(words, share, method="lower")) for share in (0, 0.95, 1))
    step = next(
        size for power in range(20) for size in (10**power, 2 * 10**power, 5 * 10**power) if size * MAX_BARS > most
    )
    edges = list(range(low // step * step, most + step + 1, step))
    if edges[-1] <= high:
        edges.append(high + 1)
    counts = np.histogram(words, edges)[0].tolist()
    return [
        {"from": start, "to": stop - 1, "documents": count}
        for (start, stop), count in zip(pairwise(edges), counts, strict=True)
    ]


class _Findings:
    """Duplicates by split. Documents are numbered across all splits; a group is a set of exact duplicates."""

    def __init__(self, duplicates: Duplicates, splits: list[DataSplit], examples: int) -> None:
        self.duplicates, self.splits, self.examples = duplicates, splits, examples
        self.starts = np.cumsum([0, *map(len, splits)]).tolist()
        self.first: list[int] = duplicates.first.tolist()
        self.near: dict[int, list[tuple[int, float]]] = defaultdict(list)  # group → groups near it
        for (left, right), similarity in zip(duplicates.pairs.tolist(), duplicates.similarity.tolist(), strict=True):
            self.near[left].append((right, similarity))
            self.near[right].append((left, similarity))
        # For every split: group → {labels: the first document of the split with them}
        self.groups: list[dict[int, dict[Labels, int]]] = []
        for split, start in zip(splits, self.starts, strict=False):
            groups: dict[int, dict[Labels, int]] = defaultdict(dict)
            for place, labels in enumerate(split.labels):
                groups[self.first[start + place]].setdefault(_as_set(labels), start + place)
            self.groups.append(groups)

    def within(self, number: int) -> Report:
        """Count the documents of a split that have a duplicate in the same split, with examples."""
        groups = self.groups[number]
        seen: dict[int, int] = {}
        exact: list[Pair] = []
        near: list[Pair] = []
        counts: Counter[str] = Counter()
        for document in range(self.starts[number], self.starts[number + 1]):
            group = self.first[document]
            others = [(other, share) for other, share in self.near.get(group, []) if other in groups]
            if group in seen:
                exact.append((seen[group], document, 1.0))
            else:
                seen[group] = document
                near += [(document, min(groups[other].values()), share) for other, share in others if other > group]
            counts["near"] += bool(others)
            counts["contradictions"] += self._contradicted(document, [group, *(other for other, _ in others)], groups)
        return {
            "exact_duplicates": len(exact),
            "near_duplicates": counts["near"],
            "contradictions": counts["contradictions"],
            "examples": self._examples(exact, near),
        }

    def across(self) -> Report:
        """Count the documents of the second split that occur in the first, with examples."""
        ours = self.groups[0]
        exact: list[Pair] = []
        near: list[Pair] = []
        counts: Counter[str] = Counter()
        for document in range(self.starts[1], self.starts[2]):
            group = self.first[document]
            others = [(group, 1.0)] if group in ours else []
            others += [(other, share) for other, share in self.near.get(group, []) if other in ours]
            if not others:
                continue
            kind = "exact" if others[0][0] == group else "near"
            counts[kind] += 1
            # Labelled or not refers to the copy in the first split, which a classifier is trained on.
            labelled = any(labels is not None for other, _ in others for labels in ours[other])
            counts["labelled" if labelled else "unlabelled"] += 1
            counts["contradictions"] += self._contradicted(document, [other for other, _ in others], ours)
            other, share = max(others, key=lambda each: each[1])
            (exact if kind == "exact" else near).append((min(ours[other].values()), document, share))
        names = ("exact", "near", "labelled", "unlabelled", "contradictions")
        return {name: counts[name] for name in names} | {"examples": self._examples(exact, near)}

    def _labels(self, document: int) -> Labels:
        number = self._split_of(document)
        return _as_set(self.splits[number].labels[document - self.starts[number]])

    def _contradicted(self, document: int, others: list[int], groups: dict[int, dict[Labels, int]]) -> bool:
        """Whether one of these groups has other labels than the document."""
        own = self._labels(document)
        return own is not None and any(labels not in (None, own) for other in others for labels in groups[other])

    def _split_of(self, document: int) -> int:
        return int(np.searchsorted(self.starts, document, side="right")) - 1

    def _examples(self, exact: list[Pair], near: list[Pair]) -> list[Report]:
        """Describe some pairs: exact ones, and the least similar near duplicates, since these need judgement."""
        near = sorted(near, key=lambda pair: (pair[2], pair))
        return [
            {
                "kind": kind,
                "similarity": round(share, 3),
                "documents": [self._describe(document) for document in documents],
            }
            for kind, pairs in (("exact", exact), ("near", near))
            for *documents, share in pairs[: self.examples]
        ]

    def _describe(self, document: int) -> Report:
        number = self._split_of(document)
        split, place = self.splits[number], document - self.starts[number]
        source, line = split.places[place]
        labels = split.labels[place]
        return {
            "source": source,
            "line": line,
            "labels": None if labels is None else list(labels),
            "text": split.beginnings[place],
        }


def _as_set(labels: Labels) -> Labels:
    """Sort labels: `a|b` does not contradict `b|a`."""
    return None if labels is None else tuple(sorted(labels))
