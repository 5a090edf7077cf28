"""What tests of labelling share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the extra: pip install 'rehead[serve]'")
pytest.importorskip("uvicorn", reason="needs the extra: pip install 'rehead[serve]'")

from tests.browser import Browser, browser
from tests.label.running import base


@pytest.fixture(scope="session")
def tiny_base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(base(tmp_path_factory.mktemp("bases")))


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(Path(tmp_path_factory.mktemp("browser"))) as each:
        yield each
