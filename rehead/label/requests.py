"""What the page asks: one pydantic model per route, parsed and checked as those of `rehead serve` are."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rehead.use.serve.requests import RequestModel

Name = Annotated[str, Field(max_length=60)]
Page = Annotated[str, Field(min_length=1, max_length=60)]
Number = Annotated[int, Field(ge=0, le=2**53)]
Numbers = Annotated[list[Number], Field(max_length=2_000)]
Word = Annotated[str, Field(max_length=100)]


class FromPage(RequestModel):
    """Who asks."""

    page: Page
    "Of one tab; texts are leased to it."
    by: Name = ""
    "The person."


class State(FromPage):
    """What there is; and the texts that the page has, which stay leased to it."""

    holding: Numbers | None = None


class Next(FromPage):
    """Texts to label."""

    holding: Numbers = Field([])
    "Texts that the page still has."
    count: Annotated[int, Field(ge=1, le=5)] = 1
    want: Literal["mixture", "random", "class", "search"] = "mixture"
    number: Number | None = None
    query: Annotated[str, Field(max_length=200)] = ""


class LabelText(FromPage):
    """The labels of a text."""

    text: Number
    labels: Numbers
    how: Literal["random", "uncertain", "rare", "doubted", "varied", "search", "class", "review"]
    guess: Numbers | None = None
    "What was shown as the classifier's guess."


class OneText(FromPage):
    """A text."""

    text: Number


class Explained(FromPage):
    """A text and a class."""

    text: Number
    label: Number | None = None


class Note(FromPage):
    """A note about a text."""

    text: Number
    note: Annotated[str, Field(max_length=2_000)]


class Decide(FromPage):
    """The labels of a text that people disagree about."""

    text: Number
    labels: Numbers


class AddClass(FromPage):
    """A class."""

    name: Annotated[str, Field(max_length=400)]


class RenameClass(FromPage):
    """A class with another name."""

    number: Number
    name: Annotated[str, Field(max_length=400)]


class SetSeeds(FromPage):
    """Words for each class, by its number."""

    words: Annotated[dict[str, Annotated[list[Word], Field(max_length=100)]], Field(max_length=2_000)]


class Rows(FromPage):
    """A page of the table."""

    show: Literal["all", "doubted", "conflicts", "bulk", "imported", "notes", "skipped"] = "all"
    label: Number | None = None
    query: Annotated[str, Field(max_length=200)] = ""
    offset: Number = 0


class Offer(FromPage):
    """Texts to accept at once."""

    label: Number
    count: Annotated[int, Field(ge=1, le=1_000)]


class Accept(FromPage):
    """An offer that was looked at."""

    offer: Annotated[str, Field(max_length=40)]
    wrong: Numbers = Field([])
