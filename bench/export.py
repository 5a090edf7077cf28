"""What exporting does to a classifier: size, speed and accuracy, as float32 and as int8, beside torch.

    python bench/export.py runs/classifier valid.csv

Documents are labelled one at a time, from text, on one core, the sides taking turns; `torch` is what `Labeller` does.
`differs` is the largest difference from torch in any probability, `agrees` the share of texts that get the same label.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from sides import best

from rehead.finetune.targets import targets
from rehead.text.documents import ReadOptions
from rehead.text.labelled import read_examples
from rehead.use.export.folder import MODEL, export_run
from rehead.use.labeller import Labeller


def main() -> None:
    """Export, compare, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("labelled")
    parser.add_argument("--timed", type=int, default=50, help="texts whose time is taken")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    labeller = Labeller.open(given.run)
    data = read_examples([given.labelled], ReadOptions(), check=False)
    truth, tokenizer = targets(data, labeller.names, multilabel=False), labeller.run.tokenizer
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    files = [Path(given.run) / "model.safetensors"]
    sides: dict[str, Any] = {"torch": lambda text: labeller.probabilities([text])[0]}
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("onnx", "onnx-int8"):
            files.append(export_run(labeller.run, Path(folder) / kind, kind).path / MODEL)
            opened = onnxruntime.InferenceSession(files[-1], options, providers=["CPUExecutionProvider"])
            sides[kind] = lambda text, opened=opened: opened.run(
                ["probabilities"], {"ids": np.array(tokenizer.encode(text), np.int64)}
            )[0]
        some = data.texts[: given.timed]
        timed = {name: lambda side=side: [side(text) for text in some] for name, side in sides.items()}
        seconds = best(timed, given.rounds)
        expected = labeller.probabilities(data.texts)
        print(f"{len(data.texts)} texts{'':4}      size   a text   accuracy   differs    agrees")
        for (name, side), file in zip(sides.items(), files, strict=True):
            found = expected if name == "torch" else np.stack([side(text) for text in data.texts])
            right, same = (found.argmax(1) == truth).mean(), (found.argmax(1) == expected.argmax(1)).mean()
            print(
                f"{name:10} {file.stat().st_size / 1e6:9.1f} MB {1000 * seconds[name] / len(some):5.1f} ms "
                f"{100 * right:7.2f} % {np.abs(found - expected).max():11.0e} {100 * same:7.2f} %"
            )


if __name__ == "__main__":
    main()
