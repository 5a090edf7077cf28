"""The page: all five questions, nothing from outside, nothing unescaped; and its sentences follow the numbers."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser

import pytest

from rehead.compare.results import from_json
from rehead.lab.facts import LabFacts
from rehead.lab.grids import grid
from rehead.lab.page import render
from rehead.lab.plots import draw_plots
from rehead.lab.sentences import mask_and_positions, new_head, objectives, scratch_against_pretrained, summarise
from tests.lab.made_facts import made_facts

VOID = {"meta", "link", "br", "img", "input", "hr", "rect", "path", "use", "image"}


class Balanced(HTMLParser):
    """Notes tags that are not closed in order, and all references."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID and (not self.open or self.open.pop() != tag):
            self.wrong.append(tag)


def test_the_page_is_whole_and_needs_nothing_from_outside() -> None:
    facts = made_facts()
    page = render(facts, draw_plots(facts))
    found = Balanced()
    found.feed(page)
    assert not found.wrong
    assert not found.open
    assert all(each.startswith(("data:", "#")) for each in found.references), found.references
    assert "<script" not in page
    assert 'src="http' not in page
    for number in range(1, 6):
        assert f'id="q{number}"' in page
    assert page.count("layer 1, head 1") >= 1
    assert "1 seed instead of 3" in page
    assert not re.search(r"#00c0[de]\d", page), "a placeholder colour was left"


def test_without_plots_the_page_has_its_tables() -> None:
    page = render(made_facts(), {})
    assert page.count("<table>") == 5


def test_facts_survive_a_file() -> None:
    facts = made_facts()
    assert from_json(LabFacts, json.loads(json.dumps(dataclasses.asdict(facts)))) == facts


@pytest.mark.parametrize(
    ("gain", "low", "p", "said"),
    [
        (0.06, 0.03, 0.001, "6.0 points more"),
        (0.06, -0.02, 0.2, "did not come out"),
        (-0.06, -0.09, 0.001, "it did harm"),
    ],
)
def test_the_sentence_says_what_came_out(gain: float, low: float, p: float, said: str) -> None:
    assert said in scratch_against_pretrained(made_facts(gain, low, p))


def test_a_mask_that_leaks_is_said_to() -> None:
    facts = made_facts()
    assert "none of them before it" in mask_and_positions(facts)
    facts.causality.moved[2][0] = True
    assert "leaked" in mask_and_positions(facts)


def test_order_that_counts_without_positions_is_said_to() -> None:
    facts = made_facts()
    assert "changed nothing else" in mask_and_positions(facts)
    facts.causality.shuffled = 0.3
    assert "did not come out" in mask_and_positions(facts)


def test_a_base_that_changed_is_said_to() -> None:
    facts = made_facts()
    assert "the same as before" in new_head(facts)
    facts.head.changed_bytes = 3
    assert "3 of its 400 bytes differ" in new_head(facts)


def test_objectives_are_compared_by_their_tests() -> None:
    facts = made_facts()
    assert "by more than chance" in objectives(facts)
    pair = facts.comparison.paired[1]
    pair.p = 0.001
    assert "masked is 1.0 point" in objectives(facts)
    facts.pretraining = facts.pretraining[:1]
    assert "not compared" in objectives(facts)


def test_there_is_a_line_for_every_question() -> None:
    assert [line[:2] for line in summarise(made_facts())] == ["1.", "2.", "3.", "4.", "5."]


def test_a_grid_draws_what_is_there() -> None:
    drawn = grid([[1.0, 0.0], [-0.5, 0.25]], colour="recipe", negative="pretrained", rows=["<a>", "b"], label="x")
    assert drawn.count('fill="var(--recipe)"') == 2
    assert drawn.count('fill="var(--pretrained)"') == 1
    assert "&lt;a&gt;" in drawn
    assert 'fill-opacity="0.50"' in drawn
