"""Writes that fail and kills at every operation: `--out` holds the old output or the new one, and the next start works.

Each case replaces an output in a forked child whose disk goes wrong at one operation (`tests/faults.py`).
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import time
from collections.abc import Callable

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from rehead.locks import locked
from tests.adversary.disk_commands import WRITERS, Prepared, check_after, finish, make_inputs, prepare
from tests.faults import FAULTS, NEEDS_ROOM, Fault
from tests.training.running import end_of, needs_fork

pytestmark = needs_fork
Prepare = Callable[[str], Prepared]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepare:
    """Prepare each command once, when it is first asked for."""
    folder = tmp_path_factory.mktemp("disk")
    make_inputs(folder / "inputs")
    found: dict[str, Prepared] = {}

    def get(name: str) -> Prepared:
        if name not in found:
            found[name] = prepare(WRITERS[name], folder / "inputs", folder / name.replace(" ", "-"))
        return found[name]

    return get


NUMBERS = itertools.count()


def suffer(prepared: Prepared, at: int, fault: Fault, *, resume: bool, swaps: bool = True) -> None:
    """Replace an output on a disk that goes wrong at one operation, and check what is left."""
    folder = prepared.copy(prepared.folder.with_name(f"case-{next(NUMBERS)}"))
    code = prepared.writer.run(folder, *prepared.writer.new, "--overwrite", at=at, fault=fault, swaps=swaps)
    try:
        check_after(prepared, folder, code, resume=resume, swaps=swaps)
    except AssertionError as error:
        raise AssertionError(f"{fault} at {at}, {prepared.operations[at]}, swaps={swaps}: {error}") from error
    shutil.rmtree(folder)


CASES = st.tuples(
    st.sampled_from(sorted(WRITERS)), st.floats(0, 1, exclude_max=True), st.sampled_from(FAULTS), st.booleans(),
    st.booleans(),
)  # fmt: skip

DRAWN = settings(deadline=None, phases=[Phase.generate], report_multiple_bugs=False)  # a case takes a second


def suffer_drawn(prepare: Prepare, case: tuple[str, float, Fault, bool, bool]) -> None:
    name, where, fault, resume, swaps = case
    found = prepare(name)
    suffer(found, int(where * len(found.operations)), fault, resume=resume, swaps=swaps)


@given(case=CASES)
@settings(DRAWN, max_examples=15, derandomize=True)
def test_faults_that_were_drawn(prepared: Prepare, case: tuple[str, float, Fault, bool, bool]) -> None:
    suffer_drawn(prepared, case)


@pytest.mark.slow
@given(case=CASES)
@settings(DRAWN, max_examples=200)
def test_many_faults_that_were_drawn(prepared: Prepare, case: tuple[str, float, Fault, bool, bool]) -> None:
    suffer_drawn(prepared, case)


@pytest.mark.parametrize("name", WRITERS)
def test_a_kill_around_the_moment_of_replacement(name: str, prepared: Prepare) -> None:
    """The last operations: the new output takes the old one's place, and the old one is cleared away."""
    found = prepared(name)
    steps = [place for place, (what, _) in enumerate(found.operations) if what in ("swap", "rename")]
    for at in (steps[-1], steps[-1] + 1, len(found.operations) - 1):
        suffer(found, at, "kill", resume=at != steps[-1])


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_a_kill_at_every_operation(name: str, prepared: Prepare) -> None:
    found = prepared(name)
    for at, (what, _) in enumerate(found.operations):
        if what != "sync":  # nothing has changed since the operation before
            suffer(found, at, "kill", resume=bool(at % 2))


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_at_every_write(name: str, prepared: Prepare) -> None:
    found = prepared(name)
    for at, (what, _) in enumerate(found.operations):
        if what in NEEDS_ROOM:
            suffer(found, at, "full", resume=bool(at % 2))


def kill_at_random(prepared: Prepared, kills: int, seed: int) -> None:
    """Kill the command at random moments, resuming or starting again, until it has been killed so many times."""
    writer, draw = prepared.writer, random.Random(seed)
    folder = prepared.copy(prepared.folder.with_name(f"case-{next(NUMBERS)}"))
    began = time.monotonic()
    assert writer.run(folder, *writer.new, "--overwrite") == 0
    seconds, seen = time.monotonic() - began, 0
    while seen < kills:
        more = "--resume" if writer.resumes and draw.random() < 0.5 else "--overwrite"
        child = writer.start(folder, *draw.choice((writer.old, writer.new)), more)
        time.sleep(draw.uniform(0, 1.2 * seconds))
        os.kill(child, signal.SIGKILL)
        code = end_of(child)
        assert code in (0, 2, -signal.SIGKILL)  # 2: there is nothing to resume, or with other options
        assert writer.identity(folder / writer.out) in (prepared.old, prepared.new)
        seen += code == -signal.SIGKILL
    finish(prepared, folder, "--overwrite")


@pytest.mark.parametrize("name", ["pretrain", "finetune"])
def test_kills_at_random_moments(name: str, prepared: Prepare) -> None:
    kill_at_random(prepared(name), 8, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_a_hundred_kills_at_random_moments(name: str, prepared: Prepare) -> None:
    kill_at_random(prepared(name), 100, seed=2)


@pytest.mark.parametrize("name", WRITERS)
def test_the_second_writer_is_told_who_has_it(name: str, prepared: Prepare, capsys: pytest.CaptureFixture[str]) -> None:
    found = prepared(name)
    capsys.readouterr()
    with locked(found.folder / found.writer.out):
        for more in ("--overwrite", *(["--resume"] if found.writer.resumes else [])):
            assert found.writer.job(found.folder, *found.writer.new, more)[0] == 2
            (line,) = capsys.readouterr().err.splitlines()
            assert f"{found.writer.out} is being written by process {os.getpid()} on " in line
    assert found.writer.identity(found.folder / found.writer.out) == found.old
