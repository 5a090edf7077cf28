"""Several small runs in one world of processes: `torchrun … -m tests.training.several_runs TEXT FOLDER CASES`.

CASES is a JSON file: by the name of a run its options, the dials of its model (`dials`) and, if it is to be broken off,
at which batch (`break_at`). The processes meet once and do one run after the other, which saves starting Python and
torch for each.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import rehead.pretrain.run
from rehead.pretrain.run import run_pretraining
from rehead.training import distributed
from tests.training.running import broken_off, shaped, small


def main(text: str, folder: str, cases: str) -> None:
    rehead.pretrain.run._draw = lambda out, say: None
    with distributed.join_processes("cpu") as world:

        @contextlib.contextmanager
        def joined(device: distributed.DeviceName = "auto") -> Iterator[distributed.World]:
            yield world

        rehead.pretrain.run.join_world = joined
        for name, options in json.loads(Path(cases).read_text()).items():
            at = options.pop("break_at", None)
            with shaped(**options.pop("dials")):
                given = small(Path(text), Path(folder) / name, **options)
                run_pretraining(given) if at is None else broken_off(given, at)
            world.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:])
