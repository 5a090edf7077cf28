"""What tests of several rooms share."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

# The models of the tests are tiny: a second thread would only wait, and for long when the machine is busy. Said here,
# before torch is imported, it holds for the processes that tests start, too.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Features are cached by content: tests must neither read what earlier ones left nor fill the user's own cache.
os.environ["REHEAD_CACHE"] = "off"
# Programs that tests start inherit an ignored SIGHUP, as under nohup, and would not see the one that a test sends.
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Find the folder of real data, which is not part of the project; without it the test is skipped."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("REHEAD_SHARED_DATA", beside))
    if not folder.is_dir():
        pytest.skip("needs real data: set REHEAD_SHARED_DATA to the folder that holds it")
    return folder
