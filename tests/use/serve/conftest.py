"""One server of each kind for all tests that do not change it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("fastapi", reason="needs the extra: pip install 'rehead[serve]'")
pytest.importorskip("uvicorn", reason="needs the extra: pip install 'rehead[serve]'")

from tests.browser import Browser, browser
from tests.use.serve.page import Page
from tests.use.serve.running import Running, classifier, running, writer


@pytest.fixture(scope="session")
def server() -> Iterator[Running]:
    with running(classifier(), texts=8, characters=1000, body_bytes=20_000) as each:
        yield each


@pytest.fixture(scope="session")
def layered() -> Iterator[Running]:
    with running(classifier("lab")) as each:
        yield each


@pytest.fixture(scope="session")
def writing() -> Iterator[Running]:
    with running(writer(), generate_tokens=30) as each:
        yield each


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as each:
        yield each


@pytest.fixture
def page(window: Browser, server: Running) -> Page:
    return Page(window, server)
