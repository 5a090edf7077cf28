from __future__ import annotations

import io

import pytest

from rehead.progress import Lines, amount, duration, progress


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_a_line_per_tenth() -> None:
    clock, out = Clock(), io.StringIO()
    lines = Lines("encoding", 1_000_000, "B", out, clock)
    for _ in range(100):
        clock.now += 1
        lines.advance(10_000)
    lines.finish()
    written = out.getvalue().splitlines()
    assert len(written) == 11
    assert written[0] == "encoding: 10 %, 100.0 kB of 1.0 MB, 10.0 kB/s, 1 min 30 s left"
    assert written[-1] == "encoding: 1.0 MB in 1 min 40 s"


def test_a_fast_job_does_not_flood() -> None:
    clock, out = Clock(), io.StringIO()
    lines = Lines("sorting", 1000, "steps", out, clock)
    for _ in range(1000):
        clock.now += 0.001
        lines.advance()
    assert out.getvalue() == ""
    lines.finish()
    assert out.getvalue() == "sorting: 1,000 steps in 1.0 s\n"


def test_a_slow_job_shows_that_it_lives_even_without_a_total() -> None:
    clock, out = Clock(), io.StringIO()
    lines = Lines("reading", None, "documents", out, clock)
    for _ in range(61):
        clock.now += 1
        lines.advance(3)
    assert out.getvalue().splitlines() == [
        "reading: 90 documents, 3 documents/s",
        "reading: 180 documents, 3 documents/s",
    ]


def test_what_was_done_before_counts_for_no_rate() -> None:
    clock, out = Clock(), io.StringIO()
    lines = Lines("causal", 1000, "steps", out, clock)
    lines.resume(500)
    for _ in range(50):
        clock.now += 1
        lines.advance(10)
    lines.finish()
    written = out.getvalue().splitlines()
    assert written[0] == "causal: 60 %, 600 steps of 1,000 steps, 10 steps/s, 40 s left"
    assert written[-1] == "causal: 500 steps in 50 s"


def test_quiet_writes_nothing_and_still_counts() -> None:
    out = io.StringIO()
    with progress("encoding", 10, quiet=True, stream=out) as bar:
        bar.advance(4)
        bar.update(10)
    assert bar.done == 10
    assert out.getvalue() == ""


def test_a_failed_job_does_not_claim_to_have_finished() -> None:
    out = io.StringIO()
    with pytest.raises(ZeroDivisionError), progress("encoding", 10, stream=out):
        raise ZeroDivisionError
    assert out.getvalue() == ""


def test_a_terminal_gets_a_bar_and_stdout_stays_clean(capsys: pytest.CaptureFixture[str]) -> None:
    out = Terminal()
    with progress("encoding", 2_000_000, unit="B", stream=out) as bar:
        bar.advance(2_000_000)
        print("a result")
    assert capsys.readouterr().out == "a result\n"
    assert "encoding" in out.getvalue()
    assert "2.0 MB of 2.0 MB" in out.getvalue()
    assert "a result" not in out.getvalue()


def test_a_name_gives_a_bar_no_orders() -> None:
    """Neither the terminal's nor those of rich, whose markup would be an error here."""
    terminal = Terminal()
    with progress("reading a[/x].txt \x1b]0;owned\x07", 10, stream=terminal) as bar:
        bar.note = "[bold]b[/y] \x1b[2J"
        bar.update(5)
    shown = terminal.getvalue()
    assert "reading a[/x].txt \ufffd]0;owned\ufffd" in shown
    assert "[bold]b[/y] \ufffd[2J" in shown
    assert "\x1b]0;" not in shown
    assert "\x1b[2J" not in shown


def test_default_stream_is_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("encoding", 3, unit="steps") as bar:
        bar.advance(3)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("encoding: 3 steps in")


@pytest.mark.parametrize(
    ("number", "unit", "expected"),
    [
        (0, "B", "0 B"),
        (999, "B", "999 B"),
        (1500, "B", "1.5 kB"),
        (2e9, "B", "2.0 GB"),
        (1e16, "B", "10000.0 TB"),
        (1234.4, "steps", "1,234 steps"),
        (7, "", "7"),
    ],
)
def test_amount(number: float, unit: str, expected: str) -> None:
    assert amount(number, unit) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.44, "0.4 s"), (59.2, "59 s"), (125, "2 min 5 s"), (11400, "3 h 10 min")]
)
def test_duration(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected
