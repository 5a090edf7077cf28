"""A text is on one screen at a time."""

from __future__ import annotations

from rehead.label.leases import Leases


def test_a_leased_text_is_not_given_to_another_page() -> None:
    leases = Leases()
    assert leases.give(1, "a")
    assert leases.give(1, "a"), "the same page may ask again"
    assert not leases.give(1, "b")
    leases.release(1)
    assert leases.give(1, "b")


def test_a_page_gives_back_what_it_does_not_name() -> None:
    leases = Leases()
    for text in (1, 2):
        leases.give(text, "a")
    leases.keep("a", [2, 3])
    assert [leases.holds(text) for text in (1, 2, 3)] == [None, "a", "a"]


def test_a_page_that_falls_silent_loses_its_texts_and_another_keeps_them() -> None:
    now = [0.0]
    leases = Leases(60, lambda: now[0])
    leases.give(1, "a")
    now[0] = 61
    assert leases.give(1, "b")
    leases.keep("a", [1])
    assert leases.holds(1) == "b"
