"""One server for all tests that do not change it, with a token."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.use.serve.running import SECRET, Running, classifier, running


@pytest.fixture(scope="session")
def guarded() -> Iterator[Running]:
    with running(classifier(), SECRET, body_bytes=20_000, characters=1000, texts=8, receive_seconds=2.0) as each:
        yield each
