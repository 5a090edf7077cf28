"""The options of `rehead serve`, and the contradictions among them that are refused before anything is loaded."""

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

TOKEN = "REHEAD_TOKEN"  # noqa: S105 (the name of the environment variable)
LEAST_TOKEN = 16  # characters below which a token can be guessed
MOST_TOKEN = 4096
# Characters of a text to explain, unless told. Where no layer reads, thousands of words are a tenth of a second's work.
# Layers read a piece again for each of its words: that is up to four seconds on one core, with the sizes of `lab`.
EXPLAINED, EXPLAINED_BY_LAYERS = 20_000, 2_000
BODY_AROUND = 12  # bytes of {"texts":[]} around the texts of a request
BODY_EACH = 3  # bytes of the smallest text in a list: "",


@dataclass(kw_only=True)
class Limits:
    """What a server takes, and how long it waits: everything that is bounded."""

    body_bytes: int = flag(2**20, metavar="N")
    "Bytes of a request's body, counted as they arrive; more is refused before it is read (413)."

    texts: int = flag(256, metavar="N")
    "Texts in one request (422)."

    characters: int = flag(100_000, metavar="N")
    "Characters of one text, counted before it is tokenized (422)."

    explain_characters: int | None = flag(None, metavar="N")
    """Characters of a text that is to be explained or continued (422); usual: 20,000, or 2,000 to be explained where
    layers read, or --characters if that is less."""

    generate_tokens: int = flag(400, metavar="N")
    "Tokens that one request may have written (422)."

    queue: int = flag(1024, metavar="N")
    "Texts that may wait; when there is no room, the answer is 429, with Retry-After."

    slow_queue: int = flag(64, metavar="N")
    "Requests that may wait for an explanation, attention or a generated text; beyond them 429 as well."

    seconds: float = flag(30.0, metavar="S")
    "Time for an answer, once the request has arrived whole; then 503, and its work is dropped."

    receive_seconds: float = flag(10.0, metavar="S")
    "Time for a request to arrive whole (408), and for an answer to be taken."

    idle_seconds: float = flag(60.0, metavar="S")
    "How long a connection may stay open between two requests."

    connections: int = flag(512, metavar="N")
    "Connections at a time; further ones get 503 and are closed."

    batch_characters: int = flag(200_000, metavar="N")
    "Texts that wait are computed together, up to about this many characters; a single request may be longer."

    batch_wait_ms: float = flag(2.0, metavar="MS")
    "How long a server with several askers waits for company; one asker alone never waits. 0: not at all."

    def explained(self, *, layers: bool = False) -> int:
        """How many characters a text may have that is to be explained (where layers read, or not) or continued."""
        usual = min(EXPLAINED_BY_LAYERS if layers else EXPLAINED, self.characters)
        return usual if self.explain_characters is None else self.explain_characters

    def check(self) -> None:
        """Refuse numbers that make no sense, alone or together."""
        for name in (
            "body_bytes", "texts", "characters", "explain_characters", "generate_tokens", "queue", "slow_queue",
            "connections", "batch_characters",
        ):  # fmt: skip
            if (given := getattr(self, name)) is not None and given < 1:
                raise UserError(f"{_flag(name)}={given} is out of range. Choose 1 or more.")
        for name in ("seconds", "receive_seconds", "idle_seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise UserError(f"{_flag(name)}={getattr(self, name)} is out of range. Choose more than 0.")
        if not 0 <= self.batch_wait_ms < math.inf:
            raise UserError(f"--batch-wait-ms={self.batch_wait_ms} is out of range. Choose 0 or more.")
        if self.characters > self.body_bytes - BODY_AROUND:
            raise UserError(
                f"--characters={self.characters} can never arrive: a body may have --body-bytes={self.body_bytes}, and "
                f"a character takes a byte or more. Raise --body-bytes, or lower --characters."
            )
        if BODY_AROUND + BODY_EACH * self.texts > self.body_bytes:
            raise UserError(
                f"--texts={self.texts} can never arrive: a body may have --body-bytes={self.body_bytes}. Raise "
                f"--body-bytes, or lower --texts."
            )
        if self.texts > self.queue:
            raise UserError(
                f"--queue={self.queue} has no room for one request of --texts={self.texts}. Raise --queue, or lower "
                f"--texts."
            )
        if self.explain_characters is not None and self.explain_characters > self.characters:
            raise UserError(
                f"--explain-characters={self.explain_characters} is more than --characters={self.characters}. Choose "
                f"the same or less."
            )
        if self.batch_wait_ms >= 1000 * self.seconds:
            raise UserError(
                f"--batch-wait-ms={self.batch_wait_ms:g} is as long as a request may take, --seconds={self.seconds:g}. "
                f"Choose a few milliseconds."
            )


@dataclass(kw_only=True)
class ServeOptions(Limits, CommonOptions):
    """Serve a run over HTTP, with a page to try it."""

    run: Path = positional()
    "A classifier that rehead finetune made, or a run that writes (for its generator)."

    host: str = "127.0.0.1"
    "The address to listen on. One that is not of this machine alone needs a token."

    port: int = 8000
    "The port to listen on; 0 takes a free one, and says which."

    token_file: Path | None = flag(None, metavar="FILE")
    "A file that holds a token, which clients must send (Authorization: Bearer …); or set REHEAD_TOKEN."

    insecure_no_token: bool = False
    "Listen on an address that others can reach without asking them for a token."

    allow_host: list[str] | None = flag(None, metavar="NAME")
    "Names under which the server may be asked for, besides its own address (the Host header)."

    allow_origin: list[str] | None = flag(None, metavar="ORIGIN")
    "Web pages of others that may call the server, such as https://example.org."

    log_requests: bool = False
    "Write a line for each request to stderr: method, path, status, time; never any text."


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def is_local(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_options(options: ServeOptions, token: str | None) -> None:
    """Refuse what cannot be, or should not be without being said."""
    options.check()
    if not 0 <= options.port <= 65_535:
        raise UserError(f"--port={options.port} is out of range. Choose 1 to 65535, or 0 for a free one.")
    if not is_local(options.host) and token is None and not options.insecure_no_token:
        raise UserError(
            f"--host={options.host} can be reached by others, and there is no token to ask them for. Give "
            f"--token-file, or set {TOKEN}, or say --insecure-no-token."
        )
    if token is not None and options.insecure_no_token:
        raise UserError("--insecure-no-token contradicts the token that is given. Drop one of them.")
    for name in options.allow_host or ():
        if not re.fullmatch(r"[A-Za-z0-9._:\[\]-]+", name):
            raise UserError(f"--allow-host={name} is no name of a host. Give it as in example.org.")
    for origin in options.allow_origin or ():
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or not parts.netloc or origin != f"{parts.scheme}://{parts.netloc}":
            raise UserError(f"--allow-origin={origin} is no origin. Give it as in https://example.org, with no path.")


def find_token(file: Path | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Read the token that clients must send, from a file or from the environment; None where there is none."""
    said = environment.get(TOKEN)
    if file is not None and said is not None:
        raise UserError(f"both --token-file and {TOKEN} are given. Drop one of them.")
    if file is None:
        return None if said is None else _checked(said, TOKEN)
    try:
        with file.open("rb") as stream:
            given = stream.read(MOST_TOKEN + 1)
    except OSError as error:
        raise UserError(f"{file}: the token cannot be read ({error.strerror}).") from None
    return _checked(given.decode("ascii", "replace"), str(file))


def _checked(token: str, where: str) -> str:
    token = token.strip()
    if not re.fullmatch(r"[A-Za-z0-9._~+/=-]+", token):
        raise UserError(
            f"{where}: a token has letters, digits and . _ ~ + / = - only, on one line. Make one: openssl rand -hex 32."
        )
    if not LEAST_TOKEN <= len(token) <= MOST_TOKEN:
        raise UserError(
            f"{where}: the token has {len(token)} characters; {LEAST_TOKEN} to {MOST_TOKEN} are taken. "
            f"Make one: openssl rand -hex 32."
        )
    return token
