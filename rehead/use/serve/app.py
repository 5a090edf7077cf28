"""The HTTP routes, as FastAPI serves and documents them. `service.py` computes, `guard.py` controls access.

FastAPI's own documentation pages load scripts from a CDN; `/docs` here loads nothing. The schema is at `/openapi.json`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

import rehead
from rehead.use.serve.docs_page import docs_page
from rehead.use.serve.guard import Endpoint, Guard, allowed_hosts
from rehead.use.serve.metrics import CONTENT_TYPE
from rehead.use.serve.options import ServeOptions
from rehead.use.serve.page import page
from rehead.use.serve.requests import parse_request, schema_of
from rehead.use.serve.responses import (
    AboutResponse,
    AttentionResponse,
    ClassifyResponse,
    ErrorResponse,
    ExplainResponse,
    GenerateResponse,
    HealthResponse,
    MultilabelClassifyResponse,
    refuse_route,
    to_json,
)
from rehead.use.serve.service import Service

JSON = "application/json"
ERRORS = {
    400: "Invalid JSON or UTF-8.",
    401: "Missing or wrong token.",
    403: "Cross-origin request from an origin that is not allowed.",
    408: "The request did not arrive completely in time.",
    413: "The body is too large, or would take too long to compute.",
    415: "The content type is not application/json.",
    421: "The Host header names a host that is not allowed.",
    422: "A field is missing, unknown or invalid.",
    429: "The queue is full; Retry-After says when to try again.",
    503: "The request timed out, the server is at a limit, or it is shutting down.",
}
ERRORS_OF_EVERY_ROUTE = (403, 421)


@dataclass
class Route:
    """A POST route, as it is computed and documented."""

    request: type[BaseModel]
    compute: Callable[..., Awaitable[dict[str, Any]]]
    response: type[BaseModel]
    summary: str
    description: str

    async def __call__(self, body: bytes, state: dict[str, Any]) -> dict[str, Any]:
        """Answer a request; `state` is its ASGI state."""
        return await self.compute(parse_request(self.request, body), state)


def build(service: Service, options: ServeOptions, token: str | None = None) -> Guard:
    """Build the ASGI application: the routes that a run supports, behind the guard."""
    app = FastAPI(
        title="rehead",
        version=rehead.__version__,
        description="Predictions of a trained run, and their explanations. Requests and responses are JSON in UTF-8.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.add_exception_handler(HTTPException, refuse_route)
    endpoints = _add_post_routes(app, service, secured=token is not None)
    guard = Guard(
        app,
        metrics=service.metrics,
        paths=(*endpoints, "/", "/docs", "/openapi.json", "/about", "/healthz", "/readyz", "/metrics"),
        endpoints=endpoints,
        body_bytes=options.body_bytes,
        total_body_bytes=options.total_body_bytes,
        token=token,
        allowed_hosts=allowed_hosts(options),
        allowed_origins=options.allow_origin or (),
        log_requests=options.log_requests,
    )
    _add_pages(app)
    _add_probes(app, service, guard)
    _add_about_and_metrics(app, service, secured=token is not None)
    _add_documentation(app, secured=token is not None)
    return guard


def _add_post_routes(app: FastAPI, service: Service, *, secured: bool) -> dict[str, Endpoint]:
    """Add the routes that compute, for FastAPI to document; return their endpoints by path, for the guard to call."""
    models = service.models
    multilabel = service.labeller is not None and service.labeller.multilabel
    routes = {
        "classify": Route(
            models.classify, service.classify, MultilabelClassifyResponse if multilabel else ClassifyResponse,
            "Classify one text or several", "Requests that arrive at the same time are computed as one batch.",
        ),
        "explain": Route(
            models.explain, service.explain, ExplainResponse,
            "Explain a prediction by its words",
            "For the predicted label, or another one. If all words would cost too much, fewer are explained.",
        ),
        "attention": Route(
            models.attention, service.attention, AttentionResponse,
            "Show attention weights", "Of one layer, for one head or the mean of all, over the first tokens of a text.",
        ),
        "generate": Route(
            models.generate, service.generate, GenerateResponse,
            "Continue a text", "The same seed gives the same text.",
        ),
    }  # fmt: skip
    endpoints: dict[str, Endpoint] = {}
    for name in service.can:
        route = endpoints[f"/{name}"] = routes[name]
        app.add_api_route(
            f"/{name}",
            _documented_only,
            methods=["POST"],
            name=name,
            summary=route.summary,
            description=route.description,
            response_model=route.response,
            responses=_errors(400, 408, 413, 415, 422, 429, 503, secured=secured),
            openapi_extra={
                "requestBody": {"required": True, "content": {JSON: {"schema": schema_of(route.request)}}},
                **_security(secured),
            },
        )
    return endpoints


async def _documented_only(request: Request) -> Response:
    """Stand in the schema for an endpoint that the guard calls directly: no request arrives here."""
    raise AssertionError(f"{request.url.path} bypassed the guard")


def _add_pages(app: FastAPI) -> None:
    html, policy = page()
    headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"}

    @app.get("/", include_in_schema=False)
    async def root() -> Response:
        return Response(html, media_type="text/html", headers=headers)


def _add_probes(app: FastAPI, service: Service, guard: Guard) -> None:
    @app.get("/healthz", summary="Liveness probe", response_model=HealthResponse, responses=_errors())
    async def healthz() -> Response:
        return Response(to_json({"status": "ok"}), media_type=JSON)

    @app.get(
        "/readyz",
        summary="Readiness probe",
        response_model=HealthResponse,
        responses={**_errors(), 503: {"model": HealthResponse, "description": "The server is shutting down."}},
    )
    async def readyz() -> Response:
        ready = service.ready and not guard.draining
        return Response(to_json({"status": "ready" if ready else "ending"}), 200 if ready else 503, media_type=JSON)


def _add_about_and_metrics(app: FastAPI, service: Service, *, secured: bool) -> None:
    errors, security = _errors(secured=secured), _security(secured)

    @app.get(
        "/about",
        summary="Describe the run, the routes it supports and the limits",
        response_model=AboutResponse,
        responses=errors,
        openapi_extra=security,
    )
    async def about() -> Response:
        return Response(to_json(service.about()), media_type=JSON)

    @app.get(
        "/metrics",
        summary="Metrics in the Prometheus text format",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}, **errors},
        openapi_extra=security,
    )
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)


def _add_documentation(app: FastAPI, *, secured: bool) -> None:
    """Add the schema of the routes so far, and a page that shows it."""
    schema = app.openapi()
    if secured:
        schema.setdefault("components", {})["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    schema_json, html = to_json(schema), docs_page(schema)
    policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return Response(schema_json, media_type=JSON)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return Response(html, media_type="text/html", headers={"Content-Security-Policy": policy})


def _errors(*statuses: int, secured: bool = False) -> dict[int | str, dict[str, Any]]:
    """Document the errors of a route."""
    all_statuses = sorted({*statuses, *ERRORS_OF_EVERY_ROUTE, *((401,) if secured else ())})
    return {status: {"model": ErrorResponse, "description": ERRORS[status]} for status in all_statuses}


def _security(secured: bool) -> dict[str, Any]:
    return {"security": [{"bearer": []}]} if secured else {}
