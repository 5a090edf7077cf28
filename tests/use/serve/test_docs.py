"""The limits that docs/serving.md names; its commands are run by tests/test_task_pages.py."""

from __future__ import annotations

import re
from pathlib import Path

from rehead.use.serve.options import Limits

PAGE = Path(__file__).parents[3] / "docs" / "serving.md"


def test_the_limits_on_the_page_are_those_of_the_program() -> None:
    page, limits = PAGE.read_text(encoding="utf-8"), Limits()
    said = dict(re.findall(r"^\| `--([a-z-]+)`[^|]*\| ([\d,.]+(?: MiB)?) \|", page, re.MULTILINE))
    assert len(said) == 13
    for name, usual in said.items():
        value = (
            limits.max_explain_characters() if name == "explain-characters" else getattr(limits, name.replace("-", "_"))
        )
        number = float(usual.removesuffix(" MiB").replace(",", ""))
        assert value == (number * 2**20 if "MiB" in usual else number), name
    assert limits.max_client_connections() == limits.connections / 2
    assert "| half of `--connections` |" in page
