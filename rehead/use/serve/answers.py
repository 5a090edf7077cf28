"""What a server answers: one class for each kind, as OpenAPI describes it, and the one line of a refusal."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, Field


class RefusedError(Exception):
    """A request that is not served: the status, and one line that says why and what to do."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}


class Refusal(BaseModel):
    """Why a request was not served."""

    error: str = Field(description="One line: what is wrong, and what to do.")


class Labelled(BaseModel):
    """The label of a text."""

    label: str | None = Field(
        description="The likeliest label; null where the classifier is less sure than asked, and of a blank text."
    )
    probabilities: dict[str, float] | None = Field(description="By label; null of a blank text.")


class SeveralLabelled(BaseModel):
    """The labels of a text, of which it may have any number."""

    labels: list[str] | None = Field(
        description="Those above their thresholds; null where the classifier is less sure than asked, and of a blank "
        "text."
    )
    probabilities: dict[str, float] | None = Field(description="By label; null of a blank text.")


class Classified(BaseModel):
    """One result for each text, in their order."""

    results: list[Labelled]


class SeveralClassified(BaseModel):
    """One result for each text, in their order."""

    results: list[SeveralLabelled]


class Word(BaseModel):
    """A stretch of the text, and what it did to the label."""

    begin: int = Field(description="Its first character, counted in Unicode code points from 0.")
    end: int = Field(description="Where it ends, exclusive.")
    weight: float = Field(description="Towards the label (above 0), or against it (below).")


class Explained(BaseModel):
    """Which words carried the decision."""

    label: str | None = Field(description="The label that is explained; null of a blank text.")
    probability: float | None = Field(description="Of the label; null of a blank text.")
    words: list[Word]


class Attended(BaseModel):
    """Which token looks at which."""

    tokens: list[str]
    weights: list[list[float]] = Field(description="A row for each token that reads; it adds up to 1.")
    total: int = Field(description="How many tokens the text has; only its beginning is shown.")
    causal: bool = Field(description="Whether a token reads only itself and those before it.")


class Generated(BaseModel):
    """How a text goes on."""

    text: str = Field(description="What follows the prompt.")
    tokens: int
    ended: bool = Field(description="Whether the model ended it; if not, it was cut off.")


class Health(BaseModel):
    """Whether the server is there, or ready."""

    status: str


class About(BaseModel):
    """What this server can do, and what it takes."""

    name: str
    version: str
    labels: list[str]
    multilabel: bool = Field(description="Whether a text may have any number of labels.")
    can: list[str] = Field(description="Of classify, explain, attention, generate.")
    layers: int
    heads: int
    limits: dict[str, float]


def to_json(answer: Any) -> bytes:  # noqa: ANN401 (whatever JSON can hold)
    """Write an answer as JSON."""
    return json.dumps(answer, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
