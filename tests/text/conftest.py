"""What the tests of this room share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, so that files have short names in messages."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
