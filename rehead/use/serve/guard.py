"""Access control in front of the routes: hosts, origins, tokens, body size; and the counting and logging of requests.

Every web page that a user opens can send requests to a server on the user's machine. So this one answers only to its
own host names (against DNS rebinding), refuses cross-origin requests, and accepts only bodies declared as JSON, which
a foreign page cannot send without a CORS preflight.

If any origin is allowed, Starlette's `CORSMiddleware` answers preflights and adds the CORS headers; otherwise it is not
installed. What it leaves to the browser is done here: it only hides the response from a foreign page, which could still
make the server compute. `TrustedHostMiddleware` is not used: it answers
400 in plain text (a wrong host is 421 here, and all errors are JSON), cannot exempt health probes, whose Host header is
often an IP address, and in older versions of Starlette it cuts `[::1]:8000` at its first colon.

Nothing of a request but its method and a known path is ever logged, since a query or a path may hold a text, too.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import time
import traceback
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from rehead.use.serve.metrics import Metrics
from rehead.use.serve.options import ServerOptions, is_local
from rehead.use.serve.responses import error_json, to_json

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Endpoint = Callable[[bytes, dict[str, Any]], Awaitable[dict[str, Any]]]
"From a request's body and its ASGI state to the body of the response."

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:/?#@\s]+)(?::[0-9]*)?")
SINGLE = {  # headers that count once
    *(b"host", b"origin", b"authorization", b"content-type", b"content-encoding", b"transfer-encoding"),
}
PROBES = {"/healthz", "/readyz"}
PUBLIC = {"/", "/docs", "/openapi.json", *PROBES}  # served without a token: they reveal no text and no label

ANSWER_PIECE = 65_536  # bytes of an answer that are handed to the connection at once

logger = logging.getLogger("rehead.serve")


def allowed_hosts(options: ServerOptions) -> tuple[str, ...] | None:
    """List the allowed values of the Host header, without port; None allows any."""
    named = tuple(options.allow_host or ())
    if is_local(options.host):
        return (*LOCAL_HOSTS, options.host, *named)
    own = f"[{options.host}]" if ":" in options.host else options.host
    return (own, *named) if named else None


class Guard:
    """An ASGI application around another: checks requests, counts and logs them."""

    def __init__(
        self,
        app: App,
        *,
        metrics: Metrics,
        paths: Collection[str],
        endpoints: Mapping[str, Endpoint],
        body_bytes: int,
        total_body_bytes: int,
        token: str | None = None,
        allowed_hosts: Collection[str] | None = LOCAL_HOSTS,
        allowed_origins: Collection[str] = (),
        log_requests: bool = False,
    ) -> None:
        """`paths` are all that exist, for metrics and logs; `allowed_hosts` None allows any.

        A POST to one of `endpoints` is called directly: through FastAPI's routing, a request with one short text takes
        a third more processor time (343 against 259 µs, with the load of `bench/serve.py` from 16 clients).
        """
        self.routes, self.metrics, self.paths, self.endpoints = app, metrics, set(paths), endpoints
        self.body_bytes, self.total_body_bytes, self.log_requests = body_bytes, total_body_bytes, log_requests
        self.held_bytes = 0
        "Size of all bodies and answers in memory."
        self.token = None if token is None else token.encode()
        self.allowed_hosts = None if allowed_hosts is None else {name.lower() for name in allowed_hosts}
        self.allowed_origins = {origin.lower() for origin in allowed_origins}
        self.app: App = self._dispatch
        if self.allowed_origins:
            self.app = CORSMiddleware(
                self._dispatch,
                allow_origins=self.allowed_origins,
                allow_methods=("GET", "POST"),
                allow_headers=("Authorization",),
                expose_headers=("Retry-After",),
            )
        self.draining = False
        self.aborted = 0
        "Accepted requests that were still unanswered when the time to shut down was over."

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        began = time.perf_counter()
        state = scope.setdefault("state", {})
        recorder = _StatusRecorder(send)
        try:
            self._authorise(scope)
            await self.app(scope, receive, recorder)
        except (Exception, asyncio.CancelledError) as error:
            self.aborted += isinstance(error, asyncio.CancelledError)
            if not recorder.status:
                await _send_error(recorder, _http_error(error))
        status = state.get("refused", recorder.status)  # by the connection, or here
        seconds = time.perf_counter() - began
        path = scope["path"] if scope["path"] in self.paths else "(other)"
        self.metrics.answered(path, status, seconds)
        if self.log_requests:
            method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD", "OPTIONS") else "(other)"
            logger.info("%s %s %d %.1f ms", method, path, status, 1000 * seconds)

    def _authorise(self, scope: Scope) -> None:
        """Raise an error for a request from the wrong host, origin or client, or at the wrong time."""
        headers = _checked_headers(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if (
            self.allowed_hosts is not None
            and _host_name(host) not in self.allowed_hosts
            and scope["path"] not in PROBES
        ):
            raise HTTPException(421, "this host name is not allowed. Start the server with --allow-host NAME.")
        origin = headers.get(b"origin", b"").decode("latin-1").lower()
        own = bool(host) and _netloc(origin) == host
        if origin and origin not in self.allowed_origins and not own:
            raise HTTPException(
                403, "cross-origin requests are not allowed. Start the server with --allow-origin ORIGIN."
            )
        preflight = scope["method"] == "OPTIONS"  # which browsers send without credentials
        if self.token is not None and scope["path"] not in PUBLIC and not preflight and not self._has_token(headers):
            raise HTTPException(
                401,
                "a token is required: send the header Authorization: Bearer TOKEN.",
                {"WWW-Authenticate": 'Bearer realm="rehead"'},
            )
        if self.draining and scope["path"] not in PROBES:
            raise HTTPException(
                503, "the server is shutting down and accepts no new requests.", {"Connection": "close"}
            )

    def _has_token(self, headers: dict[bytes, bytes]) -> bool:
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        same = hmac.compare_digest(given.strip(), self.token or b"")
        return scheme.lower() == b"bearer" and same

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call an endpoint directly, or leave the request to FastAPI's routes.

        This runs inside `CORSMiddleware`, so that a page of an allowed origin can read errors as well.
        """
        endpoint = self.endpoints.get(scope["path"]) if scope["method"] == "POST" else None
        if endpoint is None:
            if scope["method"] == "HEAD":  # uvicorn sends the head alone
                scope = {**scope, "method": "GET"}
            await self.routes(scope, receive, send)
            return
        state = scope["state"]
        try:
            body = await self._read_body(dict(scope["headers"]), receive, state)
            answer = to_json(await endpoint(body, state))
            self._hold(state, len(answer))
        except (Exception, asyncio.CancelledError) as error:
            failed = _http_error(error)
            self.aborted += self.draining and failed.status_code == 503
            await _send_error(send, failed)
        else:
            await _send_json(send, 200, answer)
        finally:
            self.held_bytes -= state.pop("held_bytes", 0)

    def _hold(self, state: dict[str, Any], size: int) -> None:
        """Count what a request keeps in memory until it is answered."""
        state["held_bytes"] = state.get("held_bytes", 0) + size
        self.held_bytes += size

    async def _read_body(self, headers: dict[bytes, bytes], receive: Receive, state: dict[str, Any]) -> bytes:
        """Read a body, up to the limit of one, and of all together."""
        media_type = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if media_type != b"application/json":
            raise HTTPException(415, "the body must be JSON, sent with Content-Type: application/json.")
        coded = headers.get(b"transfer-encoding", b"chunked").strip().lower() != b"chunked"
        if coded or b"content-encoding" in headers:
            raise HTTPException(415, "compressed bodies are not supported. Send it without an encoding.")
        too_large = HTTPException(
            413, f"the body exceeds the limit of {self.body_bytes:,} bytes. Send fewer texts per request."
        )
        if int(headers.get(b"content-length", b"0")) > self.body_bytes:
            raise too_large
        chunks, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise HTTPException(499, "the client closed the connection.")
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            self._hold(state, len(chunks[-1]))
            if size > self.body_bytes:
                raise too_large
            if self.held_bytes > self.total_body_bytes:
                raise HTTPException(
                    503,
                    f"all requests together exceed the limit of {self.total_body_bytes:,} bytes. Try again later.",
                    {"Retry-After": "1"},
                )
            if not message.get("more_body", False):
                return b"".join(chunks)


class _StatusRecorder:
    """An ASGI `send` that remembers the status; 0 until the response starts."""

    def __init__(self, send: Send) -> None:
        self.send, self.status = send, 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self.send(message)


async def _send_json(send: Send, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
    more = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    own = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": [*own, *more]})
    *pieces, last = [body[begin : begin + ANSWER_PIECE] for begin in range(0, max(1, len(body)), ANSWER_PIECE)]
    for piece in pieces:  # each is sent when the client has read most of those before
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": last})


async def _send_error(send: Send, error: HTTPException) -> None:
    await _send_json(send, error.status_code, error_json(error.detail), error.headers)


def _http_error(error: BaseException) -> HTTPException:
    """Map any exception of a request to the HTTP error that its client gets."""
    if isinstance(error, HTTPException):
        return error
    if isinstance(error, asyncio.CancelledError):  # by the shutdown, which waits no longer
        return HTTPException(503, "the server shut down before it could answer.", {"Connection": "close"})
    log_failure(error)
    return HTTPException(500, "internal server error: see the server's log.")


def log_failure(error: BaseException) -> None:
    """Log the type of an unexpected error and where it was raised; not its message, which may hold a text."""
    places = traceback.extract_tb(error.__traceback__)
    trail = " > ".join(f"{each.filename.rsplit('/', 1)[-1]}:{each.lineno} {each.name}" for each in places)
    logger.error("internal error: %s at %s", type(error).__name__, trail)


def _netloc(origin: str) -> str:
    """Return an origin's host and port; empty if it is malformed."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _host_name(host: str) -> str | None:
    """Strip the port from a Host header; None if it is malformed."""
    found = HOST.fullmatch(host)
    return found and found[1]


def _checked_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Collect headers by name; refuse two of a kind that the guard decides by, of which a proxy may believe another."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in found and name in SINGLE:
            raise HTTPException(400, f"the header {name.decode().title()} is given more than once.")
        found[name] = value
    return found
