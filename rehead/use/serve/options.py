"""The options of `rehead serve`, and the checks of them that are made before anything is loaded."""

from __future__ import annotations

import ipaddress
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from rehead.errors import UserError
from rehead.options import CommonOptions, flag, positional

TOKEN_VARIABLE = "REHEAD_TOKEN"  # noqa: S105 (the name of the environment variable)
MIN_TOKEN_LENGTH = 16  # a shorter one can be guessed
MAX_TOKEN_LENGTH = 4096
EXPLAIN_CHARACTERS = 20_000  # default of --explain-characters
EMPTY_BODY_BYTES = 12  # of {"texts":[]}
EMPTY_TEXT_BYTES = 3  # of "", in that list


@dataclass(kw_only=True)
class ServerLimits:
    """Limits of any server here: on connections and bodies, and how long it waits."""

    GROUP = "limits"

    body_bytes: int = flag(2**20, metavar="N")
    "Maximum size of a request body in bytes; a larger one is rejected before it is read (413)."

    total_body_bytes: int = flag(64 * 2**20, metavar="N")
    "Maximum size of all request bodies and answers in memory, in bytes; beyond it, the answer is 503."

    seconds: float = flag(30.0, metavar="S")
    "Timeout for computing an answer after the request has been received; then the answer is 503."

    receive_seconds: float = flag(10.0, metavar="S")
    "Timeout for receiving a request (408), and for sending the answer."

    idle_seconds: float = flag(60.0, metavar="S")
    "Keep-alive timeout: how long a connection may be idle between requests."

    connections: int = flag(512, metavar="N")
    "Maximum number of open connections. At the limit the longest idle one is closed; without one, the answer is 503."

    client_connections: int | None = flag(None, metavar="N")
    """Maximum number of open connections per client address (default: half of --connections). Behind a proxy, which is
    one client, give as many as --connections."""

    def max_client_connections(self) -> int:
        """Return the maximum number of connections per client."""
        return (self.connections + 1) // 2 if self.client_connections is None else self.client_connections

    def check(self) -> None:
        """Raise an error for a value out of range, or values that contradict each other."""
        self._at_least_one("body_bytes", "total_body_bytes", "connections", "client_connections")
        for name in ("seconds", "receive_seconds", "idle_seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise UserError(f"{_flag(name)}={getattr(self, name)} is out of range. Choose more than 0.")
        if self.body_bytes > self.total_body_bytes:
            raise UserError(
                f"--body-bytes={self.body_bytes} exceeds --total-body-bytes={self.total_body_bytes}. Raise "
                f"--total-body-bytes, or lower --body-bytes."
            )
        if self.max_client_connections() > self.connections:
            raise UserError(
                f"--client-connections={self.client_connections} exceeds --connections={self.connections}. Choose the "
                f"same or less."
            )

    def _at_least_one(self, *names: str) -> None:
        for name in names:
            if (given := getattr(self, name)) is not None and given < 1:
                raise UserError(f"{_flag(name)}={given} is out of range. Choose 1 or more.")


@dataclass(kw_only=True)
class Limits(ServerLimits):
    """Limits on what clients can have a run compute."""

    GROUP = "limits"

    texts: int = flag(256, metavar="N")
    "Maximum number of texts per request (422)."

    characters: int = flag(100_000, metavar="N")
    "Maximum number of characters per text, checked before tokenization (422)."

    explain_characters: int | None = flag(None, metavar="N")
    "Maximum number of characters of a text to explain or to continue (422) (default: 20,000; at most --characters)."

    explain_tokens: int = flag(32_768, metavar="N")
    """Maximum number of tokens that layers read to explain one text; if all words take more, fewer words are explained,
    and the answer says so."""

    generate_tokens: int = flag(400, metavar="N")
    "Maximum number of generated tokens per request (422)."

    queue: int = flag(1024, metavar="N")
    "Maximum number of texts in the queue; when it is full, the answer is 429 with Retry-After."

    slow_queue: int = flag(64, metavar="N")
    "Maximum number of queued requests for explanations, attention or generated text; beyond it, the answer is 429."

    batch_characters: int = flag(200_000, metavar="N")
    "Dynamic batching: queued texts are computed together up to about this many characters."

    batch_wait_ms: float = flag(2.0, metavar="MS")
    "Dynamic batching: how long to wait for further requests while several clients are active; 0 disables waiting."

    def max_explain_characters(self) -> int:
        """Return the maximum length of a text to explain or continue."""
        default = min(EXPLAIN_CHARACTERS, self.characters)
        return default if self.explain_characters is None else self.explain_characters

    def check(self) -> None:
        """Raise an error for a value out of range, or values that contradict each other."""
        self._at_least_one(
            "texts", "characters", "explain_characters", "explain_tokens", "generate_tokens", "queue", "slow_queue",
            "batch_characters",
        )  # fmt: skip
        if not 0 <= self.batch_wait_ms < math.inf:
            raise UserError(f"--batch-wait-ms={self.batch_wait_ms} is out of range. Choose 0 or more.")
        super().check()
        self._check_consistency()

    def _check_consistency(self) -> None:
        if self.characters > self.body_bytes - EMPTY_BODY_BYTES:
            raise UserError(
                f"--characters={self.characters} does not fit into a body of --body-bytes={self.body_bytes}. Raise "
                f"--body-bytes, or lower --characters."
            )
        if EMPTY_BODY_BYTES + EMPTY_TEXT_BYTES * self.texts > self.body_bytes:
            raise UserError(
                f"--texts={self.texts} do not fit into a body of --body-bytes={self.body_bytes}. Raise --body-bytes, "
                f"or lower --texts."
            )
        if self.texts > self.queue:
            raise UserError(
                f"--queue={self.queue} is too small for a request of --texts={self.texts}. Raise --queue, or lower "
                f"--texts."
            )
        if self.explain_characters is not None and self.explain_characters > self.characters:
            raise UserError(
                f"--explain-characters={self.explain_characters} exceeds --characters={self.characters}. Choose the "
                f"same or less."
            )
        if self.batch_wait_ms >= 1000 * self.seconds:
            raise UserError(
                f"--batch-wait-ms={self.batch_wait_ms:g} is not below the timeout --seconds={self.seconds:g}. Choose a "
                f"few milliseconds."
            )


@dataclass(kw_only=True)
class ServerOptions(ServerLimits, CommonOptions):
    """Where a server listens, and whom it answers."""

    GROUP = "other"

    host: str = "127.0.0.1"
    "Address to listen on. An address that other machines can reach requires a token."

    port: int = 8000
    "Port to listen on; 0 picks a free one and prints it."

    token_file: Path | None = flag(None, metavar="FILE")
    """File with the token that clients must send (Authorization: Bearer …) (default: the environment variable
    REHEAD_TOKEN; without it, no token)."""

    insecure_no_token: bool = False
    "Allow an address that other machines can reach without a token."

    allow_host: list[str] | None = flag(None, metavar="NAME", group="limits")
    "Additional host names to accept in the Host header (default: the server's own address only)."

    allow_origin: list[str] | None = flag(None, metavar="ORIGIN", group="limits")
    "CORS: origins of web pages that may call the server, such as https://example.org (default: none)."

    log_requests: bool = False
    "Log each request to stderr: method, path, status and time, never any text."


@dataclass(kw_only=True)
class ServeOptions(Limits, ServerOptions):
    """Serve a run over HTTP, with a web page to try it."""

    GROUP = "other"
    MOST_USED = ("host", "port", "token_file", "insecure_no_token", "log_requests")

    run: Path = positional()
    "Classifier made by rehead finetune, or run pretrained with --objective causal or hybrid."


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def is_local(host: str) -> bool:
    """Tell whether an address is a loopback address, which only this machine can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_server(options: ServerOptions, token: str | None) -> None:
    """Raise an error for options that contradict each other, or are insecure."""
    options.check()
    if not 0 <= options.port <= 65_535:
        raise UserError(f"--port={options.port} is out of range. Choose 1 to 65535, or 0 for a free one.")
    if not is_local(options.host) and token is None and not options.insecure_no_token:
        raise UserError(
            f"--host={options.host} can be reached by other machines, which needs a token. Give --token-file, set "
            f"{TOKEN_VARIABLE}, or allow it with --insecure-no-token."
        )
    if token is not None and options.insecure_no_token:
        raise UserError(
            f"--insecure-no-token contradicts the token in --token-file or {TOKEN_VARIABLE}. Drop one of them."
        )
    for name in options.allow_host or ():
        if not re.fullmatch(r"[A-Za-z0-9._:\[\]-]+", name):
            raise UserError(f"--allow-host={name} is not a host name. Give a name such as example.org.")
    for origin in options.allow_origin or ():
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or not parts.netloc or origin != f"{parts.scheme}://{parts.netloc}":
            raise UserError(
                f"--allow-origin={origin} is not an origin. Give one such as https://example.org, with no path."
            )


def find_token(file: Path | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Read the token that clients must send from a file or the environment; None if neither is given."""
    variable = environment.get(TOKEN_VARIABLE)
    if file is not None and variable is not None:
        raise UserError(f"--token-file and {TOKEN_VARIABLE} are both given. Drop one of them.")
    if file is None:
        return None if variable is None else _checked(variable, TOKEN_VARIABLE)
    try:
        with file.open("rb") as stream:
            given = stream.read(MAX_TOKEN_LENGTH + 1)
    except OSError as error:
        raise UserError(f"{file}: the token cannot be read ({error.strerror}).") from None
    return _checked(given.decode("ascii", "replace"), str(file))


def _checked(token: str, where: str) -> str:
    token = token.strip()
    if not re.fullmatch(r"[A-Za-z0-9._~+/=-]+", token):
        raise UserError(
            f"{where}: a token may contain only letters, digits and . _ ~ + / = -, on one line. Create one with: "
            f"openssl rand -hex 32."
        )
    if not MIN_TOKEN_LENGTH <= len(token) <= MAX_TOKEN_LENGTH:
        raise UserError(
            f"{where}: the token has {len(token)} characters; {MIN_TOKEN_LENGTH} to {MAX_TOKEN_LENGTH} are allowed. "
            f"Create one with: openssl rand -hex 32."
        )
    return token
