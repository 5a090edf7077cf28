"""The HTTP routes of `rehead label`: the page, its requests, and probes; behind the guard of `rehead serve`.

Whatever shows a text or changes anything is a POST with JSON, which no page of another origin can send.
"""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rehead.label.options import LabelOptions
from rehead.label.service import LabelService
from rehead.use.serve.guard import Guard, allowed_hosts
from rehead.use.serve.page import page
from rehead.use.serve.responses import refuse_route, to_json

JSON = "application/json"


def build(service: LabelService, options: LabelOptions, token: str | None = None) -> Guard:
    """Build the ASGI application."""
    html, policy = page("rehead.label")
    headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"}

    async def root(request: Request) -> Response:
        return Response(html, media_type="text/html", headers=headers)

    async def probe(request: Request) -> Response:
        ready = request.url.path == "/healthz" or not guard.draining
        return Response(to_json({"status": "ok" if ready else "ending"}), 200 if ready else 503, media_type=JSON)

    handlers: dict[Any, Any] = {HTTPException: refuse_route}
    routes = [Route("/", root), Route("/healthz", probe), Route("/readyz", probe)]
    endpoints = service.endpoints()
    guard = Guard(
        Starlette(routes=routes, exception_handlers=handlers),
        metrics=service.metrics,
        paths=(*endpoints, "/", "/healthz", "/readyz"),
        endpoints=endpoints,
        body_bytes=options.body_bytes,
        total_body_bytes=options.total_body_bytes,
        token=token,
        allowed_hosts=allowed_hosts(options),
        allowed_origins=options.allow_origin or (),
        log_requests=options.log_requests,
    )
    return guard
