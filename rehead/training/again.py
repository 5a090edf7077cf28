"""How to go on with a run that was stopped: its command, as the user would type it. Light: commands import it."""

from __future__ import annotations

import os
import shlex


def again(words: list[str]) -> str:
    """Say the command that goes on with a run that these words began."""
    words = [word for word in words if word != "--overwrite"]
    begin = "torchrun … -m " if "TORCHELASTIC_RUN_ID" in os.environ else ""
    return begin + shlex.join(["rehead", *words, *([] if "--resume" in words else ["--resume"])])
