"""Who may ask, and how much: everything that is checked before a request is looked into, and what goes out with it.

A server on this machine can be reached by every web page that its user opens. So it answers only under its own names
(a foreign name that was made to point here, "DNS rebinding", is refused), takes no request that a foreign page sends,
and reads only JSON that is declared to be JSON, which a foreign page cannot send without asking first.

Nothing of a request but its method and a path of our own is ever logged: a text may stand in a query or in a path, too.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from rehead.use.serve.answers import RefusedError, to_json
from rehead.use.serve.metrics import Metrics

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Endpoint = Callable[[bytes, dict[str, Any]], Awaitable[dict[str, Any]]]
"From a request's body to its answer; the second is the request's own dictionary."

LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
OPEN = {"/", "/docs", "/openapi.json", "/healthz", "/readyz"}  # asked for without a token: they tell nothing
PROBES = {"/healthz", "/readyz"}
GIVEN_UP = "the server is ending, and there is no time left for this request."
SAFE_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]

logger = logging.getLogger("rehead.serve")


class Guard:
    """An ASGI application around another: who is let in, what is let through, what is counted."""

    def __init__(
        self,
        app: App,
        *,
        metrics: Metrics,
        paths: Collection[str],
        posts: Mapping[str, Endpoint],
        body_bytes: int,
        token: str | None = None,
        names: Collection[str] | None = LOCAL_NAMES,
        origins: Collection[str] = (),
        log_requests: bool = False,
    ) -> None:
        """`paths` are all that there are; `names` None: any Host is served.

        A POST to one of `posts` goes to its endpoint directly: what FastAPI would do around it took a third of the
        time that a request costs (`bench/serve.py`).
        """
        self.app, self.metrics, self.paths, self.posts = app, metrics, set(paths), posts
        self.body_bytes, self.log_requests = body_bytes, log_requests
        self.token = None if token is None else token.encode()
        self.names = None if names is None else {name.lower() for name in names}
        self.origins = {origin.lower() for origin in origins}
        self.draining = False
        self.given_up = 0
        "Requests that were let in, and that the end left no time for."

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        began = time.perf_counter()
        scope.setdefault("state", {})
        path = scope["path"] if scope["path"] in self.paths else "(other)"
        headers: dict[bytes, bytes] = dict(scope["headers"])
        sending, let_in = _Sending(send), False
        try:
            sending.more = self._may_ask(scope, headers)
            let_in = True
            if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers and sending.more:
                await sending.answer(204, b"")
            elif scope["method"] == "POST" and path in self.posts:
                body = await self._body(headers, receive)
                await sending.answer(200, to_json(await self.posts[path](body, scope["state"])))
            else:
                if scope["method"] == "HEAD":  # uvicorn sends the head alone
                    scope = {**scope, "method": "GET"}
                await self.app(scope, receive, sending)
        except RefusedError as refused:
            self.given_up += let_in and self.draining and refused.status == 503
            if not sending.status:
                await sending.answer(refused.status, to_json({"error": refused.message}), refused.headers)
        except asyncio.CancelledError:  # the server ends, and does not wait
            self.given_up += 1
            if not sending.status:
                await sending.answer(503, to_json({"error": GIVEN_UP}), {"Connection": "close"})
        except Exception as error:
            log_failure(error)
            if not sending.status:
                await sending.answer(500, to_json({"error": "something went wrong in the server; its log says where."}))
        seconds = time.perf_counter() - began
        status = scope["state"].get("refused", sending.status)  # by the connection, or by us
        self.metrics.answered(path, status, seconds)
        if self.log_requests:
            logger.info("%s %s %d %.1f ms", _known(scope["method"]), path, status, 1000 * seconds)

    def _may_ask(self, scope: Scope, headers: dict[bytes, bytes]) -> list[tuple[bytes, bytes]]:
        """Refuse whoever may not ask; give the headers that allow a page of others to read the answer."""
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if self.names is not None and _name(host) not in self.names and scope["path"] not in PROBES:
            raise RefusedError(421, "this server is not asked for under that name. Start it with --allow-host NAME.")
        origin = headers.get(b"origin", b"").decode("latin-1").lower()
        foreign = bool(origin) and (origin == "null" or _netloc(origin) != host)
        if foreign and origin not in self.origins:
            raise RefusedError(
                403, "pages of other sites may not call this server. Start it with --allow-origin ORIGIN."
            )
        preflight = scope["method"] == "OPTIONS"
        if self.token is not None and scope["path"] not in OPEN and not preflight and not self._has_token(headers):
            raise RefusedError(
                401, "a token is needed: Authorization: Bearer TOKEN.", {"WWW-Authenticate": 'Bearer realm="rehead"'}
            )
        if self.draining and scope["path"] not in PROBES:
            raise RefusedError(503, "the server is ending, and takes nothing more.", {"Connection": "close"})
        if not foreign:
            return []
        return [
            (b"access-control-allow-origin", headers[b"origin"]),
            (b"access-control-allow-headers", b"authorization, content-type"),
            (b"access-control-allow-methods", b"GET, POST"),
            (b"access-control-expose-headers", b"retry-after"),
            (b"vary", b"origin"),
        ]

    def _has_token(self, headers: dict[bytes, bytes]) -> bool:
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        same = hmac.compare_digest(given.strip(), self.token or b"")
        return kind.lower() == b"bearer" and same

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        """Read a body, and no more of it than is taken."""
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if kind != b"application/json":
            raise RefusedError(415, "the body must be JSON, and say so: Content-Type: application/json.")
        if b"content-encoding" in headers:
            raise RefusedError(415, "the body must be plain: without Content-Encoding.")
        too_large = RefusedError(413, f"the body has more than {self.body_bytes:,} bytes. Send fewer texts at a time.")
        if int(headers.get(b"content-length", b"0")) > self.body_bytes:
            raise too_large
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RefusedError(499, "the client has left.")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.body_bytes:
                raise too_large
            if not message.get("more_body", False):
                return b"".join(parts)


class _Sending:
    """What goes out: noted, and with the headers that go with every answer."""

    def __init__(self, send: Send) -> None:
        self.send, self.status = send, 0
        self.more: list[tuple[bytes, bytes]] = []

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = {name for name, _ in message["headers"]}
            fixed = [each for each in SAFE_HEADERS if each[0] not in own]
            message = {**message, "headers": [*message["headers"], *fixed, *self.more]}
        await self.send(message)

    async def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        """Send a whole answer."""
        given = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
        kind = [(b"content-type", b"application/json")] if body else []
        length = [(b"content-length", b"%d" % len(body))] if status != 204 else []
        await self({"type": "http.response.start", "status": status, "headers": [*kind, *length, *given]})
        await self({"type": "http.response.body", "body": body})


def log_failure(error: BaseException) -> None:
    """Say where the program failed, and of what kind; what it said may hold a text, so that stays out."""
    places = traceback.extract_tb(error.__traceback__)
    trail = " > ".join(f"{each.filename.rsplit('/', 1)[-1]}:{each.lineno} {each.name}" for each in places)
    logger.error("internal error: %s at %s", type(error).__name__, trail)


def _netloc(origin: str) -> str:
    """Give the host and port of an origin; nothing, where it has none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _name(host: str) -> str:
    """Take the port off a Host header."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def _known(method: str) -> str:
    return method if method in ("GET", "POST", "HEAD", "OPTIONS") else "(other)"
