"""A batch worker on its own: what is computed together, what is not computed at all, which errors are raised."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from rehead.use.serve.batching import (
    BatchWorker,
    ClientDisconnectedError,
    DeadlineExceededError,
    Job,
    QueueFullError,
)
from tests.use.serve.running import wait_until


class Slate:
    """A computation that can be held up, and notes what it was given."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.open = threading.Event()
        self.open.set()

    def __call__(self, jobs: Sequence[Job]) -> list[Any]:
        self.batches.append([job.payload for job in jobs])
        assert self.open.wait(10)
        if any(job.payload == "poison" for job in jobs):
            raise ValueError
        return [("done", job.payload) for job in jobs]


def asked(
    worker: BatchWorker, payload: Any, *, texts: int = 1, characters: int = 1, seconds: float = 10.0, **how: Any
) -> Any:
    return worker.submit(payload, texts=texts, cost=characters, seconds=seconds, state=how.get("state", {}))


async def behind(worker: BatchWorker, slate: Slate, *what: Any, **how: Any) -> list[asyncio.Task[Any]]:
    """Let these wait while another is being computed."""
    slate.open.clear()
    before = len(slate.batches)
    tasks = [asyncio.ensure_future(asked(worker, "first"))]
    await asyncio.sleep(0)
    while len(slate.batches) == before:
        await asyncio.sleep(0.001)
    tasks += [asyncio.ensure_future(asked(worker, each, **how)) for each in what]
    await asyncio.sleep(0)
    return tasks


def test_what_waits_together_is_computed_together_and_answers_find_their_askers() -> None:
    slate = Slate()
    worker = BatchWorker("x", slate, capacity=10, batch_cost=100)

    async def main() -> list[Any]:
        tasks = await behind(worker, slate, "a", "b", "c")
        assert worker.queued_texts == 3
        slate.open.set()
        return await asyncio.gather(*tasks)

    assert asyncio.run(main()) == [("done", each) for each in ("first", "a", "b", "c")]
    assert slate.batches == [["first"], ["a", "b", "c"]]
    assert worker.idle


def test_a_batch_holds_so_many_characters_but_one_job_at_least() -> None:
    slate = Slate()
    worker = BatchWorker("x", slate, capacity=10, batch_cost=10)

    async def main() -> None:
        tasks = await behind(worker, slate, "a", "b", "c", characters=5)
        tasks.append(asyncio.ensure_future(asked(worker, "long", characters=50)))
        await asyncio.sleep(0)
        slate.open.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert slate.batches == [["first"], ["a", "b"], ["c"], ["long"]]


def test_no_room_is_said_at_once_and_room_comes_back() -> None:
    slate = Slate()
    worker = BatchWorker("x", slate, capacity=4, batch_cost=100)

    async def main() -> None:
        tasks = await behind(worker, slate, "a", texts=3)
        with pytest.raises(QueueFullError) as full:
            await asked(worker, "b", texts=2)
        assert full.value.retry_after >= 1
        tasks.append(asyncio.ensure_future(asked(worker, "c", texts=1)))
        slate.open.set()
        await asyncio.gather(*tasks)
        await asked(worker, "d", texts=4)

    asyncio.run(main())
    assert [each for batch in slate.batches for each in batch] == ["first", "a", "c", "d"]


def test_what_is_late_is_not_computed_and_makes_room() -> None:
    slate = Slate()
    worker = BatchWorker("x", slate, capacity=2, batch_cost=100)

    async def main() -> None:
        tasks = await behind(worker, slate, "late", texts=2, seconds=0.05)
        with pytest.raises(DeadlineExceededError):
            await tasks.pop()
        assert worker.queued_texts == 0
        tasks.append(asyncio.ensure_future(asked(worker, "next", texts=2)))
        await asyncio.sleep(0)
        slate.open.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert slate.batches == [["first"], ["next"]]


def test_what_is_late_while_it_is_computed_is_told_so() -> None:
    slate = Slate()
    worker = BatchWorker("x", slate, capacity=2, batch_cost=100)

    async def main() -> None:
        slate.open.clear()
        with pytest.raises(DeadlineExceededError):
            await asked(worker, "slow", seconds=0.05)
        slate.open.set()
        assert await asked(worker, "next") == ("done", "next")

    asyncio.run(main())


@pytest.mark.parametrize("how", ["dropped by the connection", "cancelled"])
def test_who_leaves_costs_nothing(how: str) -> None:
    slate = Slate()
    worker = BatchWorker("x", slate, capacity=9, batch_cost=100)

    async def main() -> None:
        state: dict[str, Any] = {}
        tasks = await behind(worker, slate, "stays")
        leaves = asyncio.ensure_future(asked(worker, "leaves", state=state))
        await asyncio.sleep(0)
        if how == "cancelled":
            leaves.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaves
        else:
            own, job = state["job"]
            own.cancel(job, ClientDisconnectedError())
            with pytest.raises(ClientDisconnectedError):
                await leaves
        assert worker.queued_texts == 1
        assert state == {}
        slate.open.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert slate.batches == [["first"], ["stays"]]


def test_only_the_one_to_blame_fails() -> None:
    slate = Slate()
    worker = BatchWorker("x", slate, capacity=9, batch_cost=100)

    async def main() -> list[Any]:
        tasks = await behind(worker, slate, "a", "poison", "b")
        slate.open.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, a, poison, b = asyncio.run(main())
    assert (first, a, b) == (("done", "first"), ("done", "a"), ("done", "b"))
    assert isinstance(poison, ValueError)


def test_one_asker_alone_never_waits_for_company() -> None:
    """The wait is far longer than the test: whoever waited would not be done."""
    slate = Slate()
    worker = BatchWorker("x", slate, capacity=9, batch_cost=100, batch_wait=60.0)

    async def main() -> None:
        for number in range(20):
            assert await asyncio.wait_for(asked(worker, number), 10) == ("done", number)

    asyncio.run(main())


def test_where_several_ask_all_the_time_they_are_computed_together() -> None:
    """Two askers, each of whom asks again when answered: without the wait, they would take turns for ever."""
    slate = Slate()
    worker = BatchWorker("x", slate, capacity=9, batch_cost=100, batch_wait=5.0)

    async def asker(name: str) -> None:
        for _ in range(10):
            await asked(worker, name)

    async def main() -> None:
        tasks = await behind(worker, slate, "a", "b")
        slate.open.set()
        await asyncio.gather(*tasks)
        await asyncio.gather(asker("a"), asker("b"))

    asyncio.run(main())
    assert [len(each) for each in slate.batches[2:]] == [2] * 10


def test_after_a_pause_there_is_no_company_to_wait_for() -> None:
    slate = Slate()
    worker = BatchWorker("x", slate, capacity=9, batch_cost=100, batch_wait=60.0)

    async def main() -> None:
        tasks = await behind(worker, slate, "a", "b")
        slate.open.set()
        await asyncio.gather(*tasks)
        await asyncio.sleep(0.2)
        await asyncio.wait_for(asked(worker, "alone"), 10)

    asyncio.run(main())


def test_ending_finishes_what_waits_and_takes_nothing_more() -> None:
    slate = Slate()
    worker = BatchWorker("x", slate, capacity=9, batch_cost=1)

    async def main() -> list[Any]:
        tasks = await behind(worker, slate, "a", "b")
        ending = asyncio.get_running_loop().run_in_executor(None, worker.close, 10)
        await asyncio.sleep(0.05)
        with pytest.raises(QueueFullError):
            await asked(worker, "c")
        slate.open.set()
        done = await asyncio.gather(*tasks)
        await ending
        return done

    assert asyncio.run(main()) == [("done", "first"), ("done", "a"), ("done", "b")]
    wait_until(lambda: not worker.alive)
