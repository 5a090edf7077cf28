"""What each view is worth alone, beside what the chosen classifier reaches with those it reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from rehead.finetune.candidates.candidate import Candidate, Task
from rehead.finetune.metrics import accuracy
from rehead.finetune.selection import decide


def view_worth(task: Task, best: Candidate) -> dict[str, Any]:
    """Give the out-of-fold accuracy of each view that was tried alone, the best first, and of the chosen classifier."""
    alone: dict[str, Candidate] = {}
    for each in task.tried:
        used = [view.name for view in each.examples.views if each.settings[0].get(view.name)]
        if len(used) == 1 and (used[0] not in alone or each.loss < alone[used[0]].loss):
            alone[used[0]] = each
    scores = {name: _accuracy(task, each) for name, each in alone.items()}
    ranked = dict(sorted(scores.items(), key=lambda item: -item[1]))
    return {"alone": ranked, "together": _accuracy(task, best)} if ranked else {}


def _accuracy(task: Task, candidate: Candidate) -> float:
    known = ~np.isnan(candidate.logits[:, 0])
    truth = task.truth[known]
    return round(accuracy(truth, decide(candidate.logits[known], truth, task.options.metric)), 6)


def worth_rows(worth: dict[str, Any]) -> list[tuple[str, str]]:
    """Write the table: a view and its accuracy alone per row, then all that were chosen."""
    rows = [*worth["alone"].items(), ("chosen together", worth["together"])]
    return [(name, f"{100 * score:.1f} %") for name, score in rows]
