"""`rehead export RUN --format onnx|onnx-int8 --out DIR`: export a run to ONNX, in a self-contained folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rehead.errors import UserError
from rehead.options import CommonOptions, flag, positional


@dataclass(kw_only=True)
class ExportOptions(CommonOptions):
    """Export a run to ONNX, with its tokenizer, its labels and a small program that uses them."""

    GROUP = "writes"
    MOST_USED = ("format", "out", "overwrite")

    run: Path = positional()
    "Classifier, or pretrained run with a language-model head."

    format: Literal["onnx", "onnx-int8"] = "onnx"
    "onnx: float32 weights; onnx-int8: quantized weights, a quarter of the size, with slightly different probabilities."

    out: Path = flag(metavar="DIR")
    "Output directory."

    overwrite: bool = False
    "Replace an existing export."


def command(options: ExportOptions) -> None:
    """Run the command."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401 (the exported model is run to verify it)
    except ImportError as error:
        raise UserError(f"exporting needs {error.name}: pip install 'rehead[export]'.") from None
    from rehead.disk import check_overwrite
    from rehead.progress import amount
    from rehead.runs.run import load
    from rehead.use.export.folder import REPLACED, export_run

    check_overwrite(options.out, REPLACED if options.overwrite else None)
    run = load(options.run)
    try:
        done = export_run(run, options.out, options.format, overwrite=options.overwrite)
    except UserError as error:
        raise UserError(f"{options.run}: {error}") from None
    print(
        f"{done.path}: {done.kind} as {options.format}, {amount(done.size, 'B')}; "
        f"largest difference from torch in a probability: {done.difference:.0e}"
    )
