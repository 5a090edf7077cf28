"""Statistics of the parts of a data set, and what of one part occurs in another: a report, as plain data.

What is a leak, and what is only a note:

    a labelled document of the first part that occurs, exactly or nearly, in the part it is checked against
        a leak: a classifier trained on the one has seen the answer to the other
    an unlabelled document that does
        a leak too, unless unlabelled overlap is allowed. Pretraining on test texts (without their labels) is a method
        of its own, transductive learning; who does not mean to use it, and compares with somebody who does not, should
        know. So it counts until it is said to be intended.
    duplicates inside a part                                        a note
    the same text, or nearly, with other labels                     a note: one of the labels is wrong, or the classes
                                                                    overlap

Duplicates are found over all parts at once: see `rehead.text.duplicates` for what counts.
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
BARS = 10  # of a histogram, at most


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
    """Read one part, or one and another it is checked against, and report on them; see the module for what leaks."""
    given = [list(paths), list(against)] if against else [list(paths)]
    parts = [DataSplit(each, for_training=number == 0) for number, each in enumerate(given)]
    check_options_apply(set().union(*(classify_paths(part, options, unlabelled=unlabelled) for part in parts)), options)
    counts = [TokenCounter(tokenizer) for _ in parts]
    texts = chain.from_iterable(
        count.watch(stream_texts(part, options, quiet=quiet)) for part, count in zip(parts, counts, strict=True)
    )
    found = _Findings(find_duplicates(texts if quiet else _announced(texts)), parts, examples)
    if tokenizer is None:
        estimate_tokens(counts)
    report: Report = {
        "parts": [
            _statistics(part, count) | found.inside(number)
            for number, (part, count) in enumerate(zip(parts, counts, strict=True))
        ],
        "across": found.across() if against else None,
        "limited": found.duplicates.limited,
        "allow_unlabelled": allow_unlabelled,
    }
    across = report["across"] or Counter()
    report["leak"] = bool(across["labelled"] or (across["unlabelled"] and not allow_unlabelled))
    return report


def _announced(texts: Iterator[str]) -> Iterator[str]:
    """Pass texts on, and say so when there are so many that the search after them will take a while."""
    count = 0
    for count, text in enumerate(texts, 1):  # noqa: B007 (the last count is what is wanted)
        yield text
    if count >= 10_000:
        print(f"searching {count:,} documents for duplicates", file=sys.stderr)


def _statistics(part: DataSplit, count: TokenCounter) -> Report:
    words = np.array(part.words)
    classes = Counter(chain.from_iterable(labels for labels in part.labels if labels is not None))
    return {
        "paths": part.paths,
        "documents": len(part),
        "labelled": sum(labels is not None for labels in part.labels),
        "classes": dict(sorted(classes.items(), key=lambda item: (-item[1], item[0]))),
        "words": int(words.sum()),
        "characters": sum(part.characters),
        "tokens": count.tokens,
        "tokens_are_estimated": count.tokenizer is None,
        "skipped": dict(part.skipped),
        "notes": part.notes,
        # In words, and lengths that occur, not means of two: "lower".
        "length": {"mean": round(float(words.mean()), 1)}
        | {name: int(np.quantile(words, share, method="lower")) for name, share in QUANTILES.items()},
        "histogram": _histogram(words),
    }


def _histogram(words: np.ndarray[Any, np.dtype[np.int64]]) -> list[Report]:
    """Count documents by length, in steps of 1, 2, 5, 10, 20, … words up to the 95 % quantile, and the rest."""
    low, most, high = (int(np.quantile(words, share, method="lower")) for share in (0, 0.95, 1))
    step = next(size for power in range(20) for size in (10**power, 2 * 10**power, 5 * 10**power) if size * BARS > most)
    edges = list(range(low // step * step, most + step + 1, step))
    if edges[-1] <= high:
        edges.append(high + 1)
    counts = np.histogram(words, edges)[0].tolist()
    return [
        {"from": start, "to": stop - 1, "documents": count}
        for (start, stop), count in zip(pairwise(edges), counts, strict=True)
    ]


class _Findings:
    """Duplicates, told by part. Documents are numbered through all parts; a group is the exact copies of one."""

    def __init__(self, duplicates: Duplicates, parts: list[DataSplit], examples: int) -> None:
        self.duplicates, self.parts, self.examples = duplicates, parts, examples
        self.starts = np.cumsum([0, *map(len, parts)]).tolist()
        self.first: list[int] = duplicates.first.tolist()
        self.near: dict[int, list[tuple[int, float]]] = defaultdict(list)  # group → groups near it
        for (left, right), similarity in zip(duplicates.pairs.tolist(), duplicates.similarity.tolist(), strict=True):
            self.near[left].append((right, similarity))
            self.near[right].append((left, similarity))
        # For every part: group → {labels: the first document in this part with them}
        self.groups: list[dict[int, dict[Labels, int]]] = []
        for part, start in zip(parts, self.starts, strict=False):
            groups: dict[int, dict[Labels, int]] = defaultdict(dict)
            for place, labels in enumerate(part.labels):
                groups[self.first[start + place]].setdefault(_as_set(labels), start + place)
            self.groups.append(groups)

    def inside(self, number: int) -> Report:
        """Count documents of a part with a duplicate in it, and show some."""
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
            "examples": self._shown(exact, near),
        }

    def across(self) -> Report:
        """Count documents of the second part that occur in the first, and show some."""
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
            # What counts is whether a classifier has learnt from it, not whether its copy has a label.
            labelled = any(labels is not None for other, _ in others for labels in ours[other])
            counts["labelled" if labelled else "unlabelled"] += 1
            counts["contradictions"] += self._contradicted(document, [other for other, _ in others], ours)
            other, share = max(others, key=lambda each: each[1])
            (exact if kind == "exact" else near).append((min(ours[other].values()), document, share))
        names = ("exact", "near", "labelled", "unlabelled", "contradictions")
        return {name: counts[name] for name in names} | {"examples": self._shown(exact, near)}

    def _labels(self, document: int) -> Labels:
        number = self._part(document)
        return _as_set(self.parts[number].labels[document - self.starts[number]])

    def _contradicted(self, document: int, others: list[int], groups: dict[int, dict[Labels, int]]) -> bool:
        """Tell whether one of these groups has the document's text with other labels."""
        own = self._labels(document)
        return own is not None and any(labels not in (None, own) for other in others for labels in groups[other])

    def _part(self, document: int) -> int:
        return int(np.searchsorted(self.starts, document, side="right")) - 1

    def _shown(self, exact: list[Pair], near: list[Pair]) -> list[Report]:
        """Describe some pairs: exact ones, and the near ones that are least alike, to judge by."""
        near = sorted(near, key=lambda pair: (pair[2], pair))
        return [
            {
                "kind": kind,
                "similarity": round(share, 3),
                "documents": [self._described(document) for document in documents],
            }
            for kind, pairs in (("exact", exact), ("near", near))
            for *documents, share in pairs[: self.examples]
        ]

    def _described(self, document: int) -> Report:
        number = self._part(document)
        part, place = self.parts[number], document - self.starts[number]
        source, line = part.places[place]
        labels = part.labels[place]
        return {
            "source": source,
            "line": line,
            "labels": None if labels is None else list(labels),
            "text": part.beginnings[place],
        }


def _as_set(labels: Labels) -> Labels:
    """Labels in an order of their own: `a|b` does not contradict `b|a`."""
    return None if labels is None else tuple(sorted(labels))
