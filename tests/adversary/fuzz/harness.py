"""Coverage-guided fuzzing with atheris: a target is a module here with `INSTRUMENTED` and a function `prepare`.

    python -m tests.adversary.fuzz.harness http_guard --runs 20000
    python -m tests.adversary.fuzz.harness http_guard --replay FILE…

`INSTRUMENTED` names the modules whose coverage guides it. `prepare` imports them, so that atheris can instrument them,
and returns the function that takes an input and raises if a promise is broken. The input that broke it is written to a
file, which the output names. Inputs to start from are in `corpus/<target>/`, words to build
more of in `corpus/<target>.dict`; those that a run finds go to `--found`:
copy a few of them to the corpus if they reach code that the others do not.

A target has a process of its own, and so may change what it imports, such as limits.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import tempfile
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
MAX_BYTES = 4096  # of an input


def run_target(name: str, *arguments: str, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run a target in a process of its own."""
    command = [sys.executable, "-m", __name__, name, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("--runs", type=int, default=20_000, help="number of executions")
    parser.add_argument("--found", type=Path, help="directory for inputs that reach new code")
    parser.add_argument("--replay", type=Path, nargs="+", help="inputs to run once, without atheris")
    options = parser.parse_args()
    target = importlib.import_module(f"tests.adversary.fuzz.{options.target}")
    if options.replay:
        one = target.prepare()
        for each in options.replay:
            one(each.read_bytes())
        return

    import atheris

    with atheris.instrument_imports(include=target.INSTRUMENTED):
        one = target.prepare()
    found = options.found or Path(tempfile.mkdtemp())
    broken = f"-artifact_prefix={Path(tempfile.mkdtemp())}/"
    limits = [f"-runs={options.runs}", f"-max_len={MAX_BYTES}", "-timeout=10", "-seed=1"]
    if (words := CORPUS / f"{options.target}.dict").exists():
        limits.append(f"-dict={words}")
    atheris.Setup([sys.argv[0], *limits, broken, str(found), str(CORPUS / options.target)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
