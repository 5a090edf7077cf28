"""The state of a project is a fold over its events: the same, however it was reached."""

from __future__ import annotations

import random
from typing import Any

from rehead.label.labels import Labels


class Told:
    """Events as a journal would number them."""

    def __init__(self, imported: dict[int, tuple[str, ...]] | None = None) -> None:
        self.labels, self.events, self.imported = Labels((), imported), [], imported  # type: ignore[var-annotated]

    def tell(self, kind: str, **values: Any) -> int:
        event = {"seq": len(self.events) + 1, "at": "2026-01-01", "by": "anna", **values, "kind": kind}
        self.events.append(event)
        self.labels.apply(event)
        return int(event["seq"])

    def given(self, text: int) -> tuple[int, ...] | None:
        found = self.labels.texts[text].label
        return None if found is None else found.labels


def two_classes() -> Told:
    told = Told()
    told.tell("class", name="good")
    told.tell("class", name="bad")
    return told


def test_a_later_label_of_the_same_person_replaces_theirs() -> None:
    told = two_classes()
    told.tell("label", text=3, labels=[0])
    told.tell("label", text=3, labels=[1])
    assert told.given(3) == (1,)
    assert dict(told.labels.counts) == {0: 0, 1: 1}


def test_undo_brings_back_what_was_before() -> None:
    told = two_classes()
    told.tell("label", text=3, labels=[0])
    told.tell("label", text=3, labels=[1])
    last = told.labels.last_undoable("anna")
    assert last is not None
    told.tell("undo", of=last["seq"])
    assert told.given(3) == (0,)
    again = told.labels.last_undoable("anna")
    assert again is not None
    told.tell("undo", of=again["seq"])
    assert told.given(3) is None
    assert told.labels.last_undoable("anna") is None
    assert told.labels.last_undoable("ben") is None, "one undoes what is one's own"


def test_two_people_who_disagree_are_kept_until_somebody_decides() -> None:
    told = two_classes()
    told.tell("label", text=3, labels=[0])
    told.tell("label", text=3, labels=[1], by="ben")
    assert told.labels.conflicts() == [3]
    assert told.given(3) is None
    assert {by: each.labels for by, each in told.labels.texts[3].given.items()} == {"anna": (0,), "ben": (1,)}
    told.tell("decide", text=3, labels=[1], by="carla")
    assert told.labels.conflicts() == []
    assert told.given(3) == (1,)


def test_two_people_who_agree_are_no_conflict() -> None:
    told = two_classes()
    for by in ("anna", "ben"):
        told.tell("label", text=3, labels=[0], by=by)
    assert told.given(3) == (0,)
    assert dict(told.labels.counts) == {0: 1}


def test_a_class_is_renamed_with_all_its_labels() -> None:
    told = two_classes()
    told.tell("label", text=3, labels=[0])
    told.tell("rename", **{"class": 0, "name": "fine"})
    assert told.labels.names(told.given(3) or ()) == ["fine"]


def test_labels_in_bulk_give_way_to_those_who_look() -> None:
    told = two_classes()
    seq = told.tell("bulk", texts=[3, 4], labels=[0])
    assert not told.labels.texts[3].looked_at
    told.tell("label", text=3, labels=[1], by="ben")
    assert told.given(3) == (1,)
    assert told.labels.conflicts() == []
    assert told.given(4) == (0,)
    told.tell("undo", of=seq)
    assert (told.given(3), told.given(4)) == ((1,), None)


def test_imported_labels_give_way_to_people() -> None:
    told = Told({3: ("good",), 5: ("bad",)})
    assert told.labels.classes == ["good", "bad"]
    told.tell("label", text=3, labels=[1])
    assert told.given(3) == (1,)
    assert told.labels.conflicts() == []


def test_agreement_with_suggestions_is_counted() -> None:
    told = two_classes()
    told.tell("label", text=1, labels=[0], suggested=[0])
    told.tell("label", text=2, labels=[1], suggested=[0])
    told.tell("label", text=3, labels=[1])
    assert told.labels.agreement() == {"agreed": 1, "of": 2, "by_class": {"good": [1, 2]}}


def test_any_history_gives_the_same_state_when_it_is_read_again() -> None:
    chance = random.Random(0)
    for _ in range(30):
        told = two_classes()
        for _ in range(40):
            kind = chance.choice(["label", "label", "label", "skip", "note", "bulk", "decide", "undo"])
            by, text = chance.choice(["anna", "ben"]), chance.randrange(6)
            if kind == "undo":
                last = told.labels.last_undoable(by)
                if last is not None:
                    told.tell("undo", of=last["seq"], by=by)
            elif kind == "bulk":
                told.tell(kind, texts=[text, (text + 1) % 6], labels=[chance.randrange(2)], by=by)
            else:
                told.tell(kind, text=text, labels=[chance.randrange(2)], note="n", by=by)
        again = Labels(told.events)
        assert {text: state.label for text, state in again.texts.items()} == {
            text: state.label for text, state in told.labels.texts.items()
        }
        counts = [sum(number in given.labels for _, given in again.labelled()) for number in range(2)]
        assert [told.labels.counts[number] for number in range(2)] == counts
