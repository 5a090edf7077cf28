"""The `rehead finetune` command. Heavy imports are deferred, so that --help does not load torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rehead.finetune.options import FinetuneOptions
from rehead.progress import duration
from rehead.training.resuming import report_stop

if TYPE_CHECKING:
    from rehead.finetune.fitted import Fitted

__all__ = ["FinetuneOptions", "command"]


def command(options: FinetuneOptions) -> int:
    """Run the command; if it is interrupted, print how to resume."""
    from rehead.finetune.directory import DESCRIPTION
    from rehead.finetune.run import run_finetuning
    from rehead.training.stopping import Stopped

    try:
        fitted = run_finetuning(options)
    except (Stopped, KeyboardInterrupt, SystemExit) as stop:  # the latter: outside a step, as in cross-validation
        return report_stop(stop, options.out, DESCRIPTION)
    if fitted is not None:
        print(_summary(options, fitted))
    return 0


def _summary(options: FinetuneOptions, fitted: Fitted) -> str:
    details = fitted.run.details
    lines = [f"{options.out}: {len(fitted.run.labels or [])} classes, {duration(fitted.seconds)}"]
    if pretraining := details.get("pretraining"):
        text = pretraining["text"]
        lines[0] += f", after {duration(pretraining['seconds'])} of pretraining"
        lines.append(f"its base was pretrained on {text['documents']:,} documents, {text['tokens']:,} tokens")
    if fitted.valid is not None:
        found = fitted.valid
        out_of_fold = details["calibration"]["origin"] == "out-of-fold"
        where = "out-of-fold, also used for model selection" if out_of_fold else "validation"
        scores = [("accuracy" if found.micro_f1 is None else "exact match", found.accuracy)]
        scores += [] if found.micro_f1 is None else [("micro-F1", found.micro_f1)]
        scores += [("macro-F1", found.macro_f1), ("calibration error", found.calibration_error)]
        lines.append(
            f"{where} ({found.count:,} texts): {', '.join(f'{name} {100 * score:.1f} %' for name, score in scores)}"
            + (f"; thresholds tuned for --metric {options.metric}" if "thresholds" in details else "")
        )
    if details.get("brought") and details.get("views"):
        from rehead.finetune.worth import worth_rows

        rows = worth_rows(details["views"])
        width = max(len(name) for name, _ in rows)
        lines += ["view, and its out-of-fold accuracy alone:", *(f"  {name:<{width}}  {score}" for name, score in rows)]
    if details.get("best_step") is not None and fitted.curve:
        best = min(fitted.curve, key=lambda point: abs(point.step - details["best_step"]))
        lines.append(f"best epoch: {best.epoch:.1f} of {fitted.curve[-1].epoch:.1f}")
    return "\n".join(lines)
