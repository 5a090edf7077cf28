"""Access control: tokens, hosts, origins; and what is never logged."""

from __future__ import annotations

import logging

import pytest

from tests.use.serve.running import SECRET, Running, classifier, running

TEXT = {"text": "a good film"}


def test_with_a_token_only_its_bearers_are_served() -> None:
    with running(classifier(), SECRET) as server:
        for headers in (
            {},
            {"Authorization": SECRET},
            {"Authorization": f"Basic {SECRET}"},
            {"Authorization": f"Bearer {SECRET[:-1]}"},
            {"Authorization": f"Bearer {SECRET}x"},
            {"Authorization": "Bearer"},
            {"Authorization": "Bearer \xff\xfe"},
        ):
            status, body, given = server.ask("POST", "/classify", TEXT, headers)
            assert (status, list(body)) == (401, ["error"]), headers
            assert given["www-authenticate"] == 'Bearer realm="rehead"'
        for scheme in ("Bearer", "bearer", "BEARER"):
            assert server.post("/classify", TEXT, {"Authorization": f"{scheme} {SECRET}"})[0] == 200
        for path in ("/about", "/metrics"):
            assert server.get(path)[0] == 401
            assert server.get(path, {"Authorization": f"Bearer {SECRET}"})[0] == 200
        for path in ("/", "/docs", "/openapi.json", "/healthz", "/readyz"):
            assert server.get(path)[0] == 200
        assert server.get("/nothing")[0] == 401, "what there is, is not told to everybody"
        assert server.get("/openapi.json")[1]["components"]["securitySchemes"]


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []
    monkeypatch.setattr("hmac.compare_digest", lambda given, own: bool(compared.append(given)) or given == own)
    with running(classifier(), SECRET) as server:
        assert server.post("/classify", TEXT, {"Authorization": "Bearer wrong"})[0] == 401
        assert server.post("/classify", TEXT, {"Authorization": f"Bearer {SECRET}"})[0] == 200
    assert compared == [b"wrong", SECRET.encode()]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil", ""])
def test_foreign_names_that_point_here_are_refused(host: str, server: Running) -> None:
    request = f"GET /about HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    assert server.raw(request.encode()).startswith(b"HTTP/1.1 421")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]:8000"])
def test_own_names_are_served(host: str, server: Running) -> None:
    request = f"GET /about HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    assert server.raw(request.encode()).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://localhost/about", 200),
        ("HTTP://127.0.0.1:80/about?x=1", 200),
        ("https://[::1]:443/about", 200),
        ("http://localhost", 200),
        ("http://localhost?x=1", 200),
        ("http://evil.example/about", 421),
        ("http://localhost@evil.example/about", 421),
    ],
)
def test_a_whole_address_says_under_which_name_it_is_asked_for(target: str, status: int, server: Running) -> None:
    for host in ("localhost", "evil.example"):
        request = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        assert server.raw(request.encode()).startswith(b"HTTP/1.1 %d" % status)


def test_probes_are_answered_under_any_name(server: Running) -> None:
    assert server.get("/healthz", {"Host": "10.1.2.3:8000"})[0] == 200


def test_further_names_can_be_allowed() -> None:
    with running(classifier(), allow_host=["model.example"]) as server:
        assert server.get("/about", {"Host": "Model.example"})[0] == 200
        assert server.get("/about", {"Host": "other.example"})[0] == 421


def test_an_address_for_all_is_served_under_any_name_unless_they_are_named() -> None:
    with running(classifier(), host="0.0.0.0", insecure_no_token=True) as server:
        assert server.get("/about", {"Host": "whatever.example"})[0] == 200
    with running(classifier(), host="0.0.0.0", insecure_no_token=True, allow_host=["model.example"]) as server:
        assert server.get("/about", {"Host": "whatever.example"})[0] == 421
        assert server.get("/about", {"Host": "model.example"})[0] == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:1", "http://[", "file://", "http://localhost.evil"]
)
def test_pages_of_other_sites_are_refused(origin: str, server: Running) -> None:
    status, body = server.post("/classify", TEXT, {"Origin": origin})
    assert (status, "--allow-origin" in body["error"]) == (403, True)


def test_our_own_page_is_served(server: Running) -> None:
    own = f"127.0.0.1:{server.port}"
    status, _, headers = server.ask("POST", "/classify", TEXT, {"Origin": f"http://{own}", "Host": own})
    assert status == 200
    assert "access-control-allow-origin" not in headers


def test_pages_that_are_allowed_may_ask_and_read() -> None:
    friend = {"Origin": "https://friend.example"}
    with running(classifier(), SECRET, allow_origin=["https://friend.example"]) as server:
        asking = {**friend, "Access-Control-Request-Method": "POST", "Content-Type": ""}
        status, _, headers = server.ask("OPTIONS", "/classify", headers=asking)
        assert status == 200
        assert headers["access-control-allow-origin"] == "https://friend.example"
        assert "authorization" in headers["access-control-allow-headers"].lower()
        assert headers["x-content-type-options"] == "nosniff"
        assert server.post("/classify", TEXT, friend)[0] == 401
        status, _, headers = server.ask("POST", "/classify", TEXT, {**friend, "Authorization": f"Bearer {SECRET}"})
        assert status == 200
        assert headers["access-control-allow-origin"] == "https://friend.example"
        assert server.ask("OPTIONS", "/classify", headers={**asking, "Origin": "https://evil.example"})[0] == 403
        assert server.ask("OPTIONS", "/classify", headers={**asking, "Host": "evil.example"})[0] == 421


def test_pages_that_are_allowed_may_read_errors() -> None:
    with running(classifier(), allow_origin=["https://Friend.example"]) as server:
        status, _, headers = server.ask("POST", "/classify", {}, {"Origin": "https://friend.example"})
        assert status == 422
        assert headers["access-control-allow-origin"] == "https://friend.example"
        assert headers["access-control-expose-headers"].lower() == "retry-after"
        assert "access-control-allow-origin" not in server.ask("POST", "/classify", {})[2]


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_what_a_foreign_form_can_send_is_not_read(kind: str, server: Running) -> None:
    assert server.post("/classify", TEXT, {"Content-Type": kind})[0] == 415


def test_json_may_name_its_charset(server: Running) -> None:
    assert server.post("/classify", TEXT, {"Content-Type": "Application/JSON; charset=utf-8"})[0] == 200


def test_packed_bodies_are_refused(server: Running) -> None:
    assert server.post("/classify", TEXT, {"Content-Encoding": "gzip"})[0] == 415


def test_every_answer_carries_the_safe_headers(server: Running) -> None:
    for method, path in (("GET", "/"), ("GET", "/healthz"), ("POST", "/classify"), ("GET", "/nothing"), ("PUT", "/x")):
        headers = server.ask(method, path, TEXT if method == "POST" else None)[2]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in headers


def test_no_text_is_ever_logged(caplog: pytest.LogCaptureFixture) -> None:
    secret = "unspeakable"
    with caplog.at_level(logging.DEBUG), running(classifier(), log_requests=True) as server:
        server.post("/classify", {"text": secret})
        server.post("/classify", {"text": secret * 50_000})
        server.post("/classify", {secret: secret})
        server.post("/classify", f'{{"text": "{secret}'.encode())
        server.post(f"/{secret}?text={secret}", {"text": secret})
        server.get(f"/classify?text={secret}")
        server.ask("PROPFIND", "/classify")
        server.ask(secret.upper(), "/classify")
        server.raw(f"{secret} is no HTTP\r\n\r\n".encode())
        server.raw(f"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{secret}".encode())
    lines = [each.getMessage() for each in caplog.records if each.name == "rehead.serve"]
    assert any(line.startswith("POST /classify 200 ") for line in lines)
    assert any(line.startswith("POST (other) 404 ") for line in lines)
    assert any(line.startswith("(other) /classify 405 ") for line in lines)
    assert secret not in caplog.text.lower()


def test_requests_are_not_logged_unless_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "rehead.serve"), running(classifier()) as server:
        server.post("/classify", TEXT)
    assert not [each for each in caplog.records if each.name in ("rehead.serve", "uvicorn.access")]
