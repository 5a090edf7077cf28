"""Reading runs of format 2, in which the view of the base's tokens was called `words`: now words are the text's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OLD, NEW = "words", "tokens"
TENSORS = ("weight", "scale")


def upgrade(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Describe a run of format 2 as this version does; give the names of tensors today → in the file."""
    head = config["head"]
    views = head.get("views") if isinstance(head, dict) else None
    if not isinstance(views, list):
        return dict(config), {}
    renamed = [{**each, "name": NEW} if isinstance(each, dict) and each.get("name") == OLD else each for each in views]
    return (
        {**config, "head": {**head, "views": renamed}},
        {f"head.views.{NEW}.{name}": f"head.views.{OLD}.{name}" for name in TENSORS},
    )
