"""The directory of an adapted base: the files of the one it came from, with other weights, and a card.

`--from`, transformers and sentence-transformers read it as they read the original: pooling, tokenizer and licence files
are copied byte for byte. `adapted.json` says how it was made.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from torch import nn

import rehead
from rehead.bases.brought import Brought
from rehead.bases.files import CONFIG, MODULES
from rehead.bases.saving import write_network
from rehead.disk import atomic_directory, fsync, read_checksummed_json, sha256, write_checksummed_json
from rehead.errors import UserError
from rehead.runs.card import CARD, plain
from rehead.training.directory import ADAPTED

READY = ".run"


def is_adapted(out: Path, brought: Brought) -> bool:
    """Tell whether the directory of a run holds the finished base: the file that it is recognised by comes last."""
    return (out / (MODULES if MODULES in brought.files else CONFIG)).exists()


def read_details(out: Path) -> dict[str, Any]:
    """Read how a finished base was made."""
    details: dict[str, Any] = read_checksummed_json(out / ADAPTED)["details"]
    return details


def save_adapted(brought: Brought, network: nn.Module, out: Path, name: str, details: dict[str, Any]) -> None:
    """Write the finished base into the directory of its run; `name` is what its card calls it."""
    if sick := next((name for name, each in network.named_parameters() if not each.isfinite().all()), None):
        raise UserError(
            f"{sick} holds NaN or infinity: training diverged. "
            "Start again (--overwrite) with a lower --lr or --lr-scale."
        )
    ready = out / READY
    shutil.rmtree(ready, ignore_errors=True)  # of a process that was killed
    try:
        with atomic_directory(ready) as directory:
            _write(brought, network, directory, details, name)
    except UserError as error:
        raise UserError(f"{error} Training is done and saved: free some space, and finish with --resume.") from error
    order = {ADAPTED: -1, CONFIG: 1, MODULES: 2}  # those that a base is recognised by come last
    for each in sorted(ready.iterdir(), key=lambda each: order.get(each.name, 0)):
        if (out / each.name).is_dir():  # of a process that was killed
            shutil.rmtree(out / each.name)
        each.replace(out / each.name)
    ready.rmdir()
    fsync(out)


def _write(brought: Brought, network: Any, directory: Path, details: dict[str, Any], name: str) -> None:  # noqa: ANN401
    write_network(brought, network, directory)
    (directory / CARD).write_text(_card(brought, details, name), encoding="utf-8")
    made = [each for each in sorted(directory.rglob("*")) if each.is_file()]
    files = {each.relative_to(directory).as_posix(): sha256(each) for each in made}
    write_checksummed_json(directory / ADAPTED, {"rehead": rehead.__version__, "files": files, "details": details})


def _card(brought: Brought, details: dict[str, Any], name: str) -> str:
    text, base = details["text"], details["base"]
    kind = "sentence-similarity" if (brought.root / MODULES).exists() else "feature-extraction"
    stated = "" if brought.license is None else f"license: {brought.license}\n"
    found = details["held_out"].items()
    measured = "\n".join(f"- {name.replace('_', ' ')} on held-out text: {value:.4f}" for name, value in found)
    return f"""---
{stated}library_name: {"sentence-transformers" if kind == "sentence-similarity" else "transformers"}
pipeline_tag: {kind}
---

# {plain(name)}

An encoder of text: {plain(base["source"])}, adapted to other text without labels.

## Data

- unlabelled text: {text["documents"]:,} documents, {text["tokens"]:,} tokens; {text["held_out_documents"]:,} of the \
documents were held out for validation
- its fingerprint (SHA-256): `{text["fingerprint"]}`
- the base that it started from (SHA-256 of its files): `{base["digest"]}`\
{"" if brought.license is None else f", licence as it states: {plain(brought.license)}"}

## How it was made

- objective: {details["objective"]}
- seed: {details["seed"]}
- {details["steps"]:,} steps, of which the best, {details["best_step"]:,}, was kept; {details["seconds"]:,.0f} seconds
- rehead {rehead.__version__}

## What was measured

{measured or "- nothing: there was no validation"}

## How to use it

In this directory (`.`):

```sh
rehead finetune labelled.csv --from . --out ../classifier
```

Compare it with the base that it started from before you rely on it: `rehead compare`.
"""
