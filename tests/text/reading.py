"""What the tests of the readers share: write a file, read it, or get its one line of complaint."""

from __future__ import annotations

from pathlib import Path

import pytest

from rehead.errors import UserError
from rehead.text.documents import ReadOptions
from rehead.text.readers import Texts


def write(name: str, data: str | bytes) -> str:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return name


def read(*paths: str, **options: object) -> list[tuple[str, str, int]]:
    return [tuple(document) for document in Texts(paths, ReadOptions(**options))]  # type: ignore[misc, arg-type]


def error(*paths: str, **options: object) -> str:
    with pytest.raises(UserError) as caught:
        read(*paths, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)
