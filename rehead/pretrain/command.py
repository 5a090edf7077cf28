"""`rehead pretrain`: run it, say what came out, or how to go on. Light: the help must not wait for torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rehead.pretrain.options import PretrainOptions
from rehead.progress import duration
from rehead.training.resuming import report_stop

if TYPE_CHECKING:
    from rehead.runs.run import Run

__all__ = ["PretrainOptions", "command"]


def command(options: PretrainOptions) -> int:
    """Run the command; tell how to go on if it was stopped."""
    from rehead.pretrain.directory import DESCRIPTION
    from rehead.pretrain.run import run_pretraining
    from rehead.training.stopping import Stopped

    try:
        run = run_pretraining(options)
    except (Stopped, KeyboardInterrupt, SystemExit) as stop:  # the latter: outside a step
        return report_stop(stop, options.out, DESCRIPTION)
    if run is not None:
        print(_summary(options, run))
    return 0


def _summary(options: PretrainOptions, run: Run) -> str:
    details = run.details
    trained = run.model.config.learning_part if options.base is None else f"{options.base}, adapted"
    found = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in details["held_out"].items())
    done = f"{details['tokens']:,} tokens in {details['steps']:,} steps, {duration(details['seconds'])}"
    held_out = found or "nothing that could be measured"
    return f"{options.out}: {trained}; objective {details['objective']}, {done}\nheld out: {held_out}"
