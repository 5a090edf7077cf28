"""One thread inside, as many as before outside, whoever leaves last."""

from __future__ import annotations

import threading

import pytest
import sklearn.linear_model  # noqa: F401 (loads what is limited)
from threadpoolctl import threadpool_info, threadpool_limits

from rehead.finetune.one_thread import one_thread


def threads() -> list[int]:
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]


@pytest.fixture(autouse=True)
def three() -> object:
    with threadpool_limits(3, user_api="blas"):
        if set(threads()) != {3}:
            pytest.skip("this BLAS does not take a number of threads")
        yield


def test_inside_and_outside() -> None:
    with one_thread(), one_thread():
        assert set(threads()) == {1}
    assert set(threads()) == {3}
    with pytest.raises(ValueError, match="x"), one_thread():
        raise ValueError("x")
    assert set(threads()) == {3}


def test_whoever_came_first_may_leave_first() -> None:
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with one_thread():
            entered.set()
            assert leave.wait(10)

    thread = threading.Thread(target=other)
    with one_thread():
        thread.start()
        assert entered.wait(10)
    assert set(threads()) == {1}
    leave.set()
    thread.join()
    assert set(threads()) == {3}
