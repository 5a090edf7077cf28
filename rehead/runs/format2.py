"""Reading runs of format 2, in which the view of the base's tokens was called `words`; now words are the text's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehead.errors import ConfigError, short_repr

OLD, NEW = "words", "tokens"
VIEWS = ("bag", "layers", OLD)
TENSORS = ("weight", "scale")


def upgrade(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Describe a run of format 2 as this version does; give the names of tensors today → in the file."""
    head = config["head"]
    views = head.get("views") if isinstance(head, dict) else None
    if not isinstance(views, list):
        return dict(config), {}
    names = [each.get("name") for each in views if isinstance(each, dict)]
    if odd := next((name for name in names if name is not None and name not in VIEWS), None):
        raise ConfigError(f"view {short_repr(odd)} is not known to format 2, which has {', '.join(VIEWS)}.")
    renamed = [{**each, "name": NEW} if isinstance(each, dict) and each.get("name") == OLD else each for each in views]
    return (
        {**config, "head": {**head, "views": renamed}},
        {f"head.views.{NEW}.{name}": f"head.views.{OLD}.{name}" for name in TENSORS},
    )
