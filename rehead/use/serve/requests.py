"""What clients may send: one class for each kind of request, which reads it, checks it, and describes it in OpenAPI.

The classes are made for the limits of a server, so that what it documents is what it takes. Whatever is wrong is one
line that says where and what was expected, and never repeats the text.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from pydantic_core import ErrorDetails

from rehead.use.serve.answers import RefusedError
from rehead.use.serve.options import Limits

T = TypeVar("T", bound=BaseModel)

MOST_SEED = 2**53 - 1  # up to here every reader of JSON has the same whole numbers
HALF_A_CHARACTER = "an escape in it is no character: half of a surrogate pair, or not four hexadecimal digits"


def _whole(number: object) -> object:
    """Take 2.0 for 2: JSON knows one kind of number."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


class Asked(BaseModel):
    """A request: nothing but the fields that there are, each of its own type."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class Classify(Asked):
    """One text, or several."""

    text: str | None
    texts: list[str] | None
    threshold: float

    def all_texts(self) -> list[str]:
        """Give the texts, one or many."""
        return [self.text] if self.text is not None else self.texts or []


class Explain(Asked):
    """A text, and the label that is to be explained."""

    text: str
    label: str | None


class Attention(Asked):
    """A text, and which head of which layer is to be shown."""

    text: str
    layer: int
    head: int | None


class Generate(Asked):
    """A text to continue, and how."""

    prompt: str
    tokens: int
    temperature: float
    top_k: int | None
    top_p: float
    repetition_penalty: float
    seed: int


class Kinds:
    """The kinds of requests that a server with these limits takes."""

    def __init__(self, limits: Limits, *, layers: int, heads: int) -> None:
        text = Annotated[str, Field(max_length=limits.characters)]
        explained = Annotated[str, Field(max_length=limits.explained(layers=layers > 0))]
        prompt = Annotated[str, Field(max_length=limits.explained())]
        self.classify = create_model(
            "Classify",
            __base__=Classify,
            text=(text, _left_out("One text.")),
            texts=(
                Annotated[list[text], Field(min_length=1, max_length=limits.texts)],
                _left_out("Several; give these or the one."),
            ),
            threshold=(
                Annotated[float, Field(ge=0, le=1)],
                Field(0.0, description="Give no label to a text of which the classifier is less sure than this."),
            ),
        )
        self.explain = create_model(
            "Explain",
            __base__=Explain,
            text=(explained, ...),
            label=(str, _left_out("The label to explain, instead of the one that the text gets.")),
        )
        self.attention = create_model(
            "Attention",
            __base__=Attention,
            text=(text, ...),
            layer=(Annotated[int, Field(ge=1, le=max(1, layers)), BeforeValidator(_whole)], 1),
            head=(
                Annotated[int, Field(ge=1, le=max(1, heads)), BeforeValidator(_whole)],
                _left_out("Left out: the mean of all heads."),
            ),
        )
        self.generate = create_model(
            "Generate",
            __base__=Generate,
            prompt=(prompt, ""),
            tokens=(
                Annotated[int, Field(ge=1, le=limits.generate_tokens), BeforeValidator(_whole)],
                min(100, limits.generate_tokens),
            ),
            temperature=(Annotated[float, Field(ge=0, le=100)], 0.8),
            top_k=(
                Annotated[int, Field(ge=1), BeforeValidator(_whole)],
                _left_out("Choose among so many of the likeliest tokens."),
            ),
            top_p=(Annotated[float, Field(gt=0, le=1)], 0.95),
            repetition_penalty=(Annotated[float, Field(gt=0, le=100)], 1.0),
            seed=(Annotated[int, Field(ge=0, le=MOST_SEED), BeforeValidator(_whole)], 0),
        )


def schema_of(kind: type[BaseModel]) -> dict[str, Any]:
    """Describe a kind of request for OpenAPI."""
    schema = kind.model_json_schema()
    if issubclass(kind, Classify):
        schema["oneOf"] = [{"required": ["text"]}, {"required": ["texts"]}]
    return schema


def _left_out(description: str) -> Any:  # noqa: ANN401 (stands for any field)
    """Declare a field that may be left out, but not be null."""

    def without_default(schema: dict[str, Any]) -> None:
        del schema["default"]

    return Field(default=None, description=description, json_schema_extra=without_default)


def read_request(kind: type[T], body: bytes) -> T:
    """Read a request; refuse what is no JSON (400) or not what is expected (422)."""
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RefusedError(400, f"the body is not UTF-8 (byte {error.start + 1}).") from None
    try:
        asked = kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            said = first["msg"].removeprefix("Invalid JSON: ")
            said = HALF_A_CHARACTER if "hex escape" in said or "surrogate" in said else said
            raise RefusedError(400, f"the body is no JSON that can be read: {said}.") from None
        raise RefusedError(422, _described(first)) from None
    if isinstance(asked, Classify) and (asked.text is None) == (asked.texts is None):
        raise RefusedError(422, "give either text (one), or texts (a list).")
    return asked


def _described(error: ErrorDetails) -> str:
    """Say in one line what is wrong; a place in a list counts from 0, as it does in JSON."""
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":  # its name may be anything, a text for instance
        return "the body has a field that is not known. Look at /docs for those that are."
    where = "".join(f"[{each}]" if isinstance(each, int) else str(each) for each in error["loc"]) or "the body"
    if kind == "string_too_long":
        return f"{where}: longer than {context['max_length']:,} characters, which are the most that is taken."
    if kind == "too_long":
        return f"{where}: more than {context['max_length']:,}, which are the most that is taken at a time."
    if kind == "too_short":
        return f"{where}: empty. Give at least one."
    return f"{where}: {error['msg'][:1].lower()}{error['msg'][1:]}."
