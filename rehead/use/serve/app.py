"""The routes, as FastAPI serves and documents them. What is behind them is `service.py`'s, who may ask `guard.py`'s.

FastAPI's own pages of documentation load their scripts from elsewhere; ours (`/docs`) needs none. The schema is at
`/openapi.json`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

import rehead
from rehead.use.serve.answers import (
    About,
    Attended,
    Classified,
    Explained,
    Generated,
    Health,
    Refusal,
    SeveralClassified,
    to_json,
)
from rehead.use.serve.docs_page import docs_page
from rehead.use.serve.guard import LOCAL_NAMES, Endpoint, Guard
from rehead.use.serve.metrics import CONTENT_TYPE
from rehead.use.serve.options import ServeOptions, is_local
from rehead.use.serve.page import page
from rehead.use.serve.requests import read_request, schema_of
from rehead.use.serve.service import Service

JSON = "application/json"
REFUSALS = {
    400: "Not JSON, or not UTF-8.",
    401: "The token is missing or wrong.",
    403: "Sent by a page of another site.",
    408: "Did not arrive whole in time.",
    413: "The body is too large.",
    415: "Not declared to be JSON.",
    421: "Asked for under a foreign name.",
    422: "Not what is expected.",
    429: "Too many texts wait already; Retry-After says when to ask again.",
    503: "Took too long, or the server is ending.",
}
FOR_EVERYONE = (403, 421)


def build(service: Service, options: ServeOptions, token: str | None = None) -> Guard:
    """Make the application: the routes for what a run can do, behind the guard."""
    app = FastAPI(
        title="rehead",
        version=rehead.__version__,
        description="A finished run at work: labels for texts, and why. Everything is JSON, in UTF-8.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.add_exception_handler(HTTPException, _not_found)
    posts = _add_posts(app, service, secured=token is not None)
    guard = Guard(
        app,
        metrics=service.metrics,
        paths=(*posts, "/", "/docs", "/openapi.json", "/about", "/healthz", "/readyz", "/metrics"),
        posts=posts,
        body_bytes=options.body_bytes,
        token=token,
        names=_names(options),
        origins=options.allow_origin or (),
        log_requests=options.log_requests,
    )
    _add_gets(app, service, guard, secured=token is not None)
    return guard


def _names(options: ServeOptions) -> tuple[str, ...] | None:
    """Say under which names a server may be asked for; None: under any."""
    named = tuple(options.allow_host or ())
    if is_local(options.host):
        return (*LOCAL_NAMES, options.host, *named)
    own = f"[{options.host}]" if ":" in options.host else options.host
    return (own, *named) if named else None


def _add_posts(app: FastAPI, service: Service, *, secured: bool) -> dict[str, Endpoint]:
    """Add the routes that compute, for FastAPI to document; give what is behind them, for the guard to call."""
    kinds = service.kinds
    multilabel = service.labeller is not None and service.labeller.multilabel
    offers: dict[str, tuple[type[BaseModel], Callable[..., Awaitable[dict[str, Any]]], type[BaseModel], str, str]] = {
        "classify": (
            kinds.classify, service.classify, SeveralClassified if multilabel else Classified,
            "Label one text, or many", "Requests that arrive together are computed together.",
        ),
        "explain": (
            kinds.explain, service.explain, Explained,
            "Say which words carried the decision", "Of the label that the text gets, or of another.",
        ),
        "attention": (
            kinds.attention, service.attention, Attended,
            "Show which token looks at which", "In one layer, by one head or all of them, over the text's beginning.",
        ),
        "generate": (
            kinds.generate, service.generate, Generated,
            "Go on with a text", "The same seed, the same text.",
        ),
    }  # fmt: skip
    posts = {}
    for name in service.can:
        kind, work, answer, summary, description = offers[name]
        app.add_api_route(
            f"/{name}",
            _documented,
            methods=["POST"],
            name=name,
            summary=summary,
            description=description,
            response_model=answer,
            responses=_refusals(400, 408, 413, 415, 422, 429, 503, secured=secured),
            openapi_extra={
                "requestBody": {"required": True, "content": {JSON: {"schema": schema_of(kind)}}},
                **_security(secured),
            },
        )
        posts[f"/{name}"] = _endpoint(kind, work)
    return posts


def _endpoint(kind: type[BaseModel], work: Callable[..., Awaitable[dict[str, Any]]]) -> Endpoint:
    async def endpoint(body: bytes, state: dict[str, Any]) -> dict[str, Any]:
        return await work(read_request(kind, body), state)

    return endpoint


async def _documented(request: Request) -> Response:
    """Stand in the schema for what the guard calls by itself: no request comes here."""
    raise AssertionError(f"{request.url.path} came past the guard")


def _add_gets(app: FastAPI, service: Service, guard: Guard, *, secured: bool) -> None:
    """Add the routes that tell something."""
    html, policy = page()
    headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"}
    refused, said = _refusals(), _security(secured)

    @app.get("/", include_in_schema=False)
    async def root() -> Response:
        return Response(html, media_type="text/html", headers=headers)

    @app.get(
        "/about",
        summary="Say what this server can do, and what it takes",
        response_model=About,
        responses=_refusals(secured=secured),
        openapi_extra=said,
    )
    async def about() -> Response:
        return Response(to_json(service.about()), media_type=JSON)

    @app.get("/healthz", summary="Say that the server is there", response_model=Health, responses=refused)
    async def healthz() -> Response:
        return Response(to_json({"status": "ok"}), media_type=JSON)

    @app.get(
        "/readyz",
        summary="Say whether a request would be served now",
        response_model=Health,
        responses={**refused, 503: {"model": Health, "description": "The server is ending."}},
    )
    async def readyz() -> Response:
        fine = service.ready and not guard.draining
        return Response(to_json({"status": "ready" if fine else "ending"}), 200 if fine else 503, media_type=JSON)

    @app.get(
        "/metrics",
        summary="Give the counts, as Prometheus reads them",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}, **_refusals(secured=secured)},
        openapi_extra=said,
    )
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    schema = app.openapi()
    if secured:
        schema.setdefault("components", {})["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    written, documentation = to_json(schema), docs_page(schema)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return Response(written, media_type=JSON)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
        return Response(documentation, media_type="text/html", headers={"Content-Security-Policy": policy})


def _refusals(*statuses: int, secured: bool = False) -> dict[int | str, dict[str, Any]]:
    """Describe how a request may be refused."""
    given = sorted({*statuses, *FOR_EVERYONE, *((401,) if secured else ())})
    return {status: {"model": Refusal, "description": REFUSALS[status]} for status in given}


def _security(secured: bool) -> dict[str, Any]:
    return {"security": [{"bearer": []}]} if secured else {}


async def _not_found(request: Request, error: Exception) -> Response:
    """Answer for a path that there is not, or a method that it does not take, as for everything else."""
    assert isinstance(error, HTTPException)  # noqa: S101 (it is registered for these)
    said = {404: "there is nothing at this path. Look at /docs.", 405: "this path is not asked for like that."}
    message = said.get(error.status_code, "the request cannot be served.")
    headers = {name: "GET, HEAD" if value == "GET" else value for name, value in (error.headers or {}).items()}
    return Response(to_json({"error": message}), error.status_code, headers=headers, media_type=JSON)
