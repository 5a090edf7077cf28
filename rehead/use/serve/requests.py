"""Request bodies: one pydantic model per route, which parses and validates it, and documents it in OpenAPI.

The models are created for a server's limits, so that the documented limits are the real ones. An error is one line that
names the field and what was expected; it never repeats the text.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from pydantic_core import ErrorDetails, PydanticCustomError
from starlette.exceptions import HTTPException

from rehead.text.lengths import written_out
from rehead.use.serve.options import Limits

T = TypeVar("T", bound=BaseModel)

MAX_SEED = 2**53 - 1  # the largest integer that every JSON parser reads exactly
MAX_ERRORS = 1000  # of a body that are looked at: a body of a megabyte has 100,000 unknown fields
BAD_ESCAPE = "an invalid \\u escape: a lone surrogate, or not four hexadecimal digits"


def _integer(number: object) -> object:
    """Accept 2.0 for 2: JSON has one type of number."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


class RequestModel(BaseModel):
    """A request body: strict types, no unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class Classify(RequestModel):
    """One text, or several."""

    text: str | None
    texts: list[str] | None
    threshold: float

    def all_texts(self) -> list[str]:
        """Return the texts, one or many."""
        return [self.text] if self.text is not None else self.texts or []


class Explain(RequestModel):
    """A text, and the label to explain."""

    text: str
    label: str | None


class Attention(RequestModel):
    """A text, and the layer and head to show."""

    text: str
    layer: int
    head: int | None


class Generate(RequestModel):
    """A prompt, and the sampling parameters."""

    prompt: str
    tokens: int
    temperature: float
    top_k: int | None
    top_p: float
    repetition_penalty: float
    seed: int


class RequestModels:
    """The request models of a server with these limits."""

    def __init__(self, limits: Limits, *, layers: int, heads: int) -> None:
        text = Annotated[str, Field(max_length=limits.characters), _read_within(limits.characters)]
        longest = limits.max_explain_characters()
        explained = Annotated[str, Field(max_length=longest), _read_within(longest)]
        self.classify = create_model(
            "Classify",
            __base__=Classify,
            text=(text, _optional("One text.")),
            texts=(
                Annotated[list[text], Field(min_length=1, max_length=limits.texts)],
                _optional("Several texts. Give either text or texts."),
            ),
            threshold=(
                Annotated[float, Field(ge=0, le=1)],
                Field(0.0, description="Give no label to a text whose prediction is less certain than this."),
            ),
        )
        self.explain = create_model(
            "Explain",
            __base__=Explain,
            text=(explained, ...),
            label=(str, _optional("The label to explain; default: the predicted one.")),
        )
        self.attention = create_model(
            "Attention",
            __base__=Attention,
            text=(text, ...),
            layer=(_integers(1, max(1, layers)), 1),
            head=(_integers(1, max(1, heads)), _optional("Default: the mean of all heads.")),
        )
        self.generate = create_model(
            "Generate",
            __base__=Generate,
            prompt=(explained, ""),
            tokens=(_integers(1, limits.generate_tokens), min(100, limits.generate_tokens)),
            temperature=(Annotated[float, Field(ge=0, le=100)], 0.8),
            top_k=(_integers(1, None), _optional("Sample from the k most probable tokens only.")),
            top_p=(Annotated[float, Field(gt=0, le=1)], 0.95),
            repetition_penalty=(Annotated[float, Field(gt=0, le=100)], 1.0),
            seed=(_integers(0, MAX_SEED), 0),
        )


def _integers(lowest: int, highest: int | None) -> Any:  # noqa: ANN401 (a type)
    return Annotated[int, Field(ge=lowest, le=highest), BeforeValidator(_integer)]


def _read_within(limit: int) -> AfterValidator:
    """Limit a text as it is read, too: with its characters of compatibility written out."""

    def check(text: str) -> str:
        if written_out(text) > limit:
            reason = f"exceeds the limit of {limit:,} characters once ligatures and the like are written out (NFKC)"
            raise PydanticCustomError("written_out_too_long", reason)
        return text

    return AfterValidator(check)


def _optional(description: str) -> Any:  # noqa: ANN401 (stands for any field)
    """Declare a field that may be omitted, but not be null."""

    def without_default(schema: dict[str, Any]) -> None:
        del schema["default"]

    return Field(default=None, description=description, json_schema_extra=without_default)


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a request, for OpenAPI."""
    schema = model.model_json_schema()
    if issubclass(model, Classify):
        schema["oneOf"] = [{"required": ["text"]}, {"required": ["texts"]}]
    return schema


def parse_request(model: type[T], body: bytes) -> T:
    """Parse a body; invalid JSON is an error 400, a wrong field 422."""
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise HTTPException(400, f"the body is not valid UTF-8 (byte {error.start + 1}).") from None
    try:
        request = model.model_validate_json(body)
    except ValidationError as error:
        if error.error_count() > MAX_ERRORS:  # which would take seconds to list
            raise HTTPException(422, f"the body has over {MAX_ERRORS:,} errors. See /docs for the fields.") from None
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            reason = first["msg"].removeprefix("Invalid JSON: ")
            reason = BAD_ESCAPE if "hex escape" in reason or "surrogate" in reason else reason
            raise HTTPException(400, f"the body is not valid JSON: {reason}.") from None
        raise HTTPException(422, _describe(first)) from None
    if isinstance(request, Classify) and (request.text is None) == (request.texts is None):
        raise HTTPException(422, "give either text (a string) or texts (a list of strings).")
    return request


def _describe(error: ErrorDetails) -> str:
    """Describe an error in one line; list indices count from 0, as in JSON."""
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":  # the field's name is not repeated: it may be anything, a text for instance
        return "the body has an unknown field. See /docs for the fields."
    where = "".join(f"[{each}]" if isinstance(each, int) else str(each) for each in error["loc"]) or "the body"
    if kind == "string_too_long":
        return f"{where}: exceeds the limit of {context['max_length']:,} characters."
    if kind == "too_long":
        return f"{where}: exceeds the limit of {context['max_length']:,} texts per request."
    if kind == "too_short":
        return f"{where}: empty. Give at least one."
    return f"{where}: {error['msg'][:1].lower()}{error['msg'][1:]}."
