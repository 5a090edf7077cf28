"""Check what a run was trained for before using it: without that training, its output would be noise."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rehead.errors import UserError
from rehead.model.config import Classifier
from rehead.model.objectives import Ability, last_specs, names_with, stages_of_run

if TYPE_CHECKING:
    from rehead.runs.run import Run
    from rehead.text.tokenizer import Tokenizer


def predicts_one_before(run: Run) -> bool:
    """Return whether a masked token is predicted one position before it (`hybrid`) or at its own (`masked`)."""
    return [each.fills_one_before for each in last_specs(run) if each.fills][-1:] == [True]


def training_length(run: Run) -> int:
    """Return the sequence length of a run's training; if it is not recorded, `maxlen`."""
    options = run.details.get("options")
    length = options.get("length") if isinstance(options, dict) else None
    maxlen = run.model.config.maxlen
    return min(length, maxlen) if type(length) is int and length > 0 else maxlen


def check_ability(run: Run, path: Path, ability: Ability, to: str) -> Tokenizer:
    """Raise if a run was not trained for an ability (`to` says it, such as "continue a text"); return its tokenizer."""
    again = f"Pretrain one with --objective {' or '.join(names_with(ability))}."
    if isinstance(run.model.head_config, Classifier):
        raise UserError(
            f"{path} is a classifier without a language-model head, so it cannot {to}. "
            f"Give the run it was fine-tuned from, or: {again}"
        )
    stages = stages_of_run(run)
    able = [any(getattr(spec, ability) for spec in stage.specs) for stage in stages]
    if not any(able[-1:]):
        objective = ",".join("+".join(stage.objectives) for stage in stages) or "nothing"
        if any(able):
            raise UserError(
                f"{path} can no longer {to}: its objective was {objective}, and the last stage counts. {again}"
            )
        raise UserError(f"{path} was not trained to {to}: its objective was {objective}. {again}")
    if run.model.head is None:
        raise UserError(f"{path} has no language-model head, so it cannot {to}. {again}")
    if run.tokenizer is None:
        raise UserError(f"{path} has no tokenizer, so it cannot read text. Save tokenizer.json with its weights.")
    return run.tokenizer
