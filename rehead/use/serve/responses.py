"""Response bodies: one model per route, as OpenAPI documents them. Errors are `{"error": "one line"}`."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response


class ErrorResponse(BaseModel):
    """Why a request failed."""

    error: str = Field(description="One line: what is wrong, and what to do about it.")


class LabelResult(BaseModel):
    """The label of one text."""

    label: str | None = Field(
        description="The most probable label; null if its probability is below the threshold, or the text is blank."
    )
    probabilities: dict[str, float] | None = Field(description="By label; null if the text is blank.")


class MultilabelResult(BaseModel):
    """The labels of one text, any number of them."""

    labels: list[str] | None = Field(
        description="Labels above their thresholds, or the most probable one; null if the classifier is less certain "
        "than the threshold of the request, or the text is blank."
    )
    probabilities: dict[str, float] | None = Field(description="By label; null if the text is blank.")


class ClassifyResponse(BaseModel):
    """One result per text, in the order of the request."""

    results: list[LabelResult]


class MultilabelClassifyResponse(BaseModel):
    """One result per text, in the order of the request."""

    results: list[MultilabelResult]


class WordWeight(BaseModel):
    """A span of the text and its contribution to the label."""

    begin: int = Field(description="Start offset in Unicode code points, from 0.")
    end: int = Field(description="End offset, exclusive.")
    weight: float = Field(description="Positive: for the label; negative: against it.")


class ExplainResponse(BaseModel):
    """Which words the prediction depends on."""

    label: str | None = Field(description="The label that is explained; null if the text is blank.")
    probability: float | None = Field(description="Of that label; null if the text is blank.")
    words: list[WordWeight]
    total: int = Field(
        description="Words in the text. If all of them would cost too much, those of the passages that matter most are "
        "explained: then there are fewer in words."
    )


class AttentionResponse(BaseModel):
    """Attention weights of one layer."""

    tokens: list[str]
    weights: list[list[float]] = Field(description="One row per attending token; each row sums to 1.")
    total: int = Field(description="Tokens in the text; only the first ones are shown.")
    causal: bool = Field(description="Whether a token attends only to itself and earlier tokens.")


class GenerateResponse(BaseModel):
    """A continuation of the prompt."""

    text: str = Field(description="What follows the prompt.")
    tokens: int
    ended: bool = Field(description="Whether the model ended the text; if not, it reached the token limit.")


class HealthResponse(BaseModel):
    """State of the server."""

    status: str


class AboutResponse(BaseModel):
    """What this server can do, and its limits."""

    name: str
    version: str
    labels: list[str]
    multilabel: bool = Field(description="Whether a text may have any number of labels.")
    can: list[str] = Field(description="Of classify, explain, attention, generate.")
    layers: int
    heads: int
    limits: dict[str, float]


def to_json(body: Any) -> bytes:  # noqa: ANN401 (whatever JSON can hold)
    """Encode a response body as JSON."""
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def error_json(message: str) -> bytes:
    """Encode the body of an error."""
    return to_json({"error": message})


async def refuse_route(request: Request, error: Exception) -> Response:
    """Answer an unknown path or a wrong method with JSON, like every other error."""
    assert isinstance(error, HTTPException)  # noqa: S101 (it is registered for these)
    messages = {404: "not found. See /docs for the routes.", 405: "method not allowed. See /docs for the routes."}
    message = messages.get(error.status_code, "the request cannot be answered.")
    headers = {name: "GET, HEAD" if value == "GET" else value for name, value in (error.headers or {}).items()}
    return Response(error_json(message), error.status_code, headers=headers, media_type="application/json")
