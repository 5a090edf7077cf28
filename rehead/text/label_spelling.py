"""Labels that may not mean what they say: two spellings of one name, and a `|` that makes a dataset multilabel.

Labels are taken as they are spelled, from every format alike, since `A` and `a`, or versions 1.0 and 1, may be two
classes. Most often they are one, spelled twice, and a classifier then learns a difference that there is not. So names
that differ only in how they are written are named to the user, with the place of the rarer spelling.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

from rehead.errors import short_repr
from rehead.text.documents import LabelledData, location

FEW = 0.1  # share of the examples up to which labels with | may be a mistake
SHOWN = 5  # pairs of spellings that are named


def spelling_notes(data: LabelledData) -> list[str]:
    """Name the classes of a dataset that are probably one class, spelled in several ways."""
    counts = Counter(label for labels in data.labels for label in labels)
    alike = [names for names in _groups(counts).values() if len(names) > 1]
    notes = []
    for names in sorted(alike)[:SHOWN]:
        common, *others = sorted(names, key=lambda name: (-counts[name], name))
        said = " and ".join(f"{_shown(name)} ({counts[name]:,})" for name in (common, *others))
        notes.append(
            f"{_place(data, others[-1])}: the labels {said} are {len(names)} classes, but {difference(names)}. If they "
            f"mean the same, write {_shown(common)} for all."
        )
    if len(alike) > SHOWN:
        notes.append(f"{len(alike) - SHOWN:,} more classes have several spellings.")
    return notes


def separator_notes(labels: Sequence[str | tuple[str, ...]], sources: Sequence[tuple[str, int]]) -> list[str]:
    """Say that a few labels with `|` make all examples multilabel, where most have none; lists are no accident."""
    places = [place for place, label in enumerate(labels) if isinstance(label, str) and "|" in label]
    if not places or len(places) > FEW * len(labels) or any(isinstance(label, tuple) for label in labels):
        return []
    first = places[0]
    has = "has a |" if len(places) == 1 else "have a |, as"
    said = "" if len(places) == 1 else f" {short_repr(labels[first])} has"
    return [
        f"{location(*sources[first])}: {len(places):,} of {len(labels):,} labels {has}{said}, so each example may have "
        "several labels or none, and every class is a decision of its own. If | is part of a name, give --single-label."
    ]


def same_label(label: str, names: Iterable[str]) -> str | None:
    """Find the name that a label is another spelling of."""
    return next((name for name in names if _key(name) == _key(label)), None)


def difference(names: Collection[str]) -> str:
    """Say how names differ that are alike."""
    visible = {_visible(name) for name in names}
    if len(visible) == 1:
        return "they differ in invisible characters or spaces"
    composed = {unicodedata.normalize("NFC", name) for name in visible}
    if len(composed) == 1:
        return "they look the same: their accents are encoded in two ways (composed and decomposed)"
    if len({unicodedata.normalize("NFKC", name).casefold() for name in composed}) == 1:
        return "they differ only in case or in variants of characters"
    return "they are spellings of one value"


def _groups(names: Iterable[str]) -> dict[object, list[str]]:
    groups: dict[object, list[str]] = defaultdict(list)
    for name in names:
        groups[_key(name)].append(name)
    return groups


def _key(name: str) -> str | float:
    """What spellings of one name have in common: case, accents, spaces, and the value of numbers and of true, false."""
    folded = unicodedata.normalize("NFKC", _visible(unicodedata.normalize("NFKC", name)).casefold())
    if folded in ("true", "false"):
        return float(folded == "true")
    try:
        value = float(folded)
    except ValueError:
        return folded
    return value if math.isfinite(value) else folded


def _visible(name: str) -> str:
    """Leave out what cannot be seen: format characters, such as zero-width spaces; and spaces beyond one."""
    return " ".join("".join(each for each in name if unicodedata.category(each) != "Cf").split())


def _shown(name: str) -> str:
    """Quote a name so that spellings can be told apart."""
    plain = name.isprintable() and unicodedata.is_normalized("NFC", name)
    return short_repr(name) if plain else short_repr(ascii(name).strip("'"))


def _place(data: LabelledData, name: str) -> str:
    return next(location(*source) for labels, source in zip(data.labels, data.sources, strict=True) if name in labels)
