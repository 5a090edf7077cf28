"""Requests that cost far more than they look: work is bounded before it starts, and explanations get shorter."""

from __future__ import annotations

import asyncio
import threading
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rehead.use.explain import Explanation, explain
from rehead.use.labeller import Labeller
from rehead.use.serve.batching import BatchWorker, QueueFullError, TooMuchWorkError
from rehead.use.serve.options import Limits
from rehead.use.serve.requests import Classify
from rehead.use.serve.service import Service
from rehead.views.encoded import EncodedTexts
from tests.adversary.wire import BODY, CLOSE, HOST, JSON, TOKEN, head, resident, statuses
from tests.use import classifiers, text_classifiers
from tests.use.serve.running import Gate, Running, classifier, running, until_closed, wait_until
from tests.use.trained import layered_classifier, split

WORDS = ["a", "good", "film", "bad", "book", "fair"]
LONG = " ".join(WORDS[number * 7 % 6] + str(number) for number in range(200))
LAYERED = [name for name in classifiers.KINDS if classifiers.classifier(name).model.reads_layers]


@contextmanager
def tokens_read(labeller: Labeller, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Count the tokens that the layers read, after the first, which gives the label."""
    base, read = labeller.run.model.base, []
    real = base.embed

    def counted(ids: Any, *arguments: Any, **options: Any) -> Any:
        read.append(ids.numel())
        return real(ids, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(base, "embed", counted)
        yield read


def weights(explanation: Explanation) -> dict[tuple[int, int], float]:
    return {(each.begin, each.end): each.weight for each in explanation.words}


def cost(labeller: Labeller, text: str, monkeypatch: pytest.MonkeyPatch, **limits: Any) -> tuple[int, Explanation]:
    """Explain; count the tokens that are read besides those for the label."""
    with tokens_read(labeller, monkeypatch) as once:
        labeller.probabilities([text])
    with tokens_read(labeller, monkeypatch) as read:
        [found] = explain(labeller, [text], **limits)
    return sum(read) - sum(once), found


@pytest.mark.parametrize("kind", LAYERED)
@pytest.mark.parametrize("share", [0, 0.01, 0.3, 0.7, 1])
def test_an_explanation_keeps_its_budget(kind: str, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A share of what all words take."""
    labeller = Labeller.of(classifiers.classifier(kind))
    needed, whole = cost(labeller, LONG, monkeypatch)
    read, found = cost(labeller, LONG, monkeypatch, max_tokens=int(share * needed))
    assert read <= share * needed
    assert len(found.words) + found.left == len(whole.words)
    for place, weight in weights(found).items():
        assert weight == pytest.approx(weights(whole)[place], abs=1e-4), "the same weights, of fewer words"
    assert (found.left == 0) == (share == 1)
    assert found.words or share < 0.7


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    budget=st.integers(0, 20_000),
    text=st.lists(st.sampled_from([*WORDS, "!", "🎬", "电影", "\n"]), max_size=150).map(" ".join),
)
def test_any_text_keeps_any_budget(budget: int, text: str) -> None:
    labeller = Labeller.of(classifiers.classifier("layers"))
    with pytest.MonkeyPatch.context() as patch, tokens_read(labeller, patch) as read:
        labeller.probabilities([text])
        once = sum(read)
        [found] = explain(labeller, [text], max_tokens=budget)
        assert sum(read) - 2 * once <= budget
    assert all(np.isfinite(each.weight) for each in found.words)


def test_the_words_that_decide_are_among_the_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of long texts, a quarter of the work finds more of the ten words that matter most than their number would."""
    labeller = Labeller.of(layered_classifier())
    reviews = split().valid.texts
    found, shares = [], []
    for begin in range(0, 100, 10):
        text = " ".join(reviews[begin : begin + 10])
        needed, whole = cost(labeller, text, monkeypatch)
        _, few = cost(labeller, text, monkeypatch, max_tokens=needed // 4)
        shares.append(len(few.words) / len(whole.words))
        by_weight = sorted(weights(whole), key=lambda place: -abs(weights(whole)[place]))
        found.append([place in weights(few) for place in by_weight[:10]])
    assert np.mean(shares) < 0.25
    assert np.mean(found) > 2 * np.mean(shares)


LIGATURE = "\ufdfa"  # which is read as 18 characters


def test_a_text_is_measured_as_it_is_read(guarded: Running) -> None:
    """A thousand characters are allowed, however few signs they are written with."""
    for path in ("/classify", "/explain"):
        assert guarded.post(path, {"text": LIGATURE * (1000 // 18)}, dict([TOKEN]))[0] == 200
        status, answer = guarded.post(path, {"text": LIGATURE * (1000 // 18 + 1)}, dict([TOKEN]))
        assert status == 422
        assert "limit of 1,000 characters" in answer["error"]
    assert guarded.post("/classify", {"texts": ["a", LIGATURE * 60]}, dict([TOKEN]))[0] == 422


def test_ligatures_do_not_swell_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of ligatures are read in as many groups as what they stand for."""
    short, long = [LIGATURE * 50] * 40, ["x" * 900] * 40
    groups = [list(map(len, EncodedTexts(each).groups_of_characters(9000))) for each in (short, long)]
    assert groups[0] == groups[1] == [10] * 4
    service, read = Service(classifier(), Limits(batch_characters=10_000)), []
    assert service.labeller is not None
    real = service.labeller.probabilities
    monkeypatch.setattr(service.labeller, "probabilities", lambda texts: read.append(len(texts)) or real(texts))
    try:
        for texts in (short, long):
            asyncio.run(service.classify(Classify(text=None, texts=texts, threshold=0), {}))
    finally:
        service.close(10)
    assert read[: len(read) // 2] == read[len(read) // 2 :] == [10] * 4


def test_a_body_of_errors_is_not_listed(guarded: Running) -> None:
    """Each unknown field would be an object of its own: seconds for a body of a megabyte, and nobody else is served."""
    bodies = ({f"field{each}": 0 for each in range(count)} for count in (20, 1200))
    few, many = (guarded.post("/classify", body, dict([TOKEN])) for body in bodies)
    assert few[0] == many[0] == 422
    assert "unknown field" in few[1]["error"]
    assert "1,000 errors" in many[1]["error"]


def test_views_that_subtract_have_no_need_of_a_budget() -> None:
    for run in (classifiers.classifier("distinct, tokens"), text_classifiers.text_classifier("all")):
        [found] = explain(Labeller.of(run), [LONG], max_tokens=0)
        assert found.left == 0
        assert found.words


def test_a_slow_model_explains_fewer_words(monkeypatch: pytest.MonkeyPatch) -> None:
    labeller = Labeller.of(classifiers.classifier("layers"))
    real = labeller.run.model.base.forward

    def slow(*arguments: Any, **options: Any) -> Any:
        time.sleep(0.05)
        return real(*arguments, **options)

    monkeypatch.setattr(labeller.run.model.base, "forward", slow)
    [found] = explain(labeller, [LONG], max_seconds=0.05)
    assert found.left > 0


def test_explaining_words_and_characters_takes_no_more_memory_than_the_text_is_long() -> None:
    labeller = Labeller.of(text_classifiers.text_classifier("all", corpus=400))
    text = " ".join(f"{word}{number}" for number in range(700) for word in WORDS)[:20_000]
    explain(labeller, ["once"])
    tracemalloc.start()
    try:
        explain(labeller, [text])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 100 * 2**20, "a matrix of words times n-grams has gigabytes"


def test_the_server_explains_fewer_words_and_says_so() -> None:
    with running(classifier("lab"), explain_tokens=8000) as server:
        status, answer = server.post("/explain", {"text": LONG})
        assert status == 200
        assert 0 < len(answer["words"]) < answer["total"] == 200
        status, answer = server.post("/explain", {"text": "a good film"})
        assert (status, len(answer["words"]), answer["total"]) == (200, 3, 3)
        assert server.get("/about")[1]["limits"]["explain_tokens"] == 8000


def test_what_cannot_be_done_in_time_is_refused_before_it_starts() -> None:
    """A worker that does 100 a second, with 10 seconds for an answer."""
    go, computed = threading.Event(), []

    def compute(jobs: Any) -> list[int]:
        assert go.wait(10)
        computed.extend(job.cost for job in jobs)
        return [0] * len(jobs)

    worker = BatchWorker("x", compute, capacity=100, batch_cost=0)
    worker.rate(100, 1.0)

    async def main() -> None:
        def ask(cost: int) -> asyncio.Task[Any]:
            return asyncio.create_task(worker.submit("", texts=1, cost=cost, seconds=10, state={}))

        with pytest.raises(TooMuchWorkError, match="25 s"):
            await ask(2500)
        first, second = ask(600), ask(300)
        await asyncio.sleep(0.1)
        with pytest.raises(QueueFullError):
            await ask(200)
        third = ask(100)
        await asyncio.sleep(0.05)
        go.set()
        await asyncio.gather(first, second, third)

    asyncio.run(main())
    worker.close(5)
    assert computed == [600, 300, 100]


def test_too_little_work_says_nothing_about_speed() -> None:
    worker = BatchWorker("x", lambda jobs: [0] * len(jobs), capacity=9, batch_cost=0, rated_cost=1000)

    async def main() -> None:
        for cost in (1, 10**9):
            await worker.submit("", texts=1, cost=cost, seconds=1, state={})

    worker.rate(1, 100.0)
    asyncio.run(main())
    worker.close(5)


def test_a_request_that_would_take_too_long_is_refused_with_its_time() -> None:
    with running(classifier(), seconds=1.0) as server:
        server.service.label_worker.rate(10_000, 10.0)
        status, body = server.post("/classify", {"texts": ["x" * 1000] * 8})
        assert (status, "9 s" in body["error"]) == (413, True)
        assert server.post("/classify", {"text": "a good film"})[0] == 200
        assert 'rehead_dropped_total{why="work"} 1.0' in server.get("/metrics")[1]


def test_a_large_request_stops_when_nobody_waits_for_it() -> None:
    with running(classifier(), batch_characters=200, seconds=0.3) as server:
        labeller, batches = server.service.labeller, []
        assert labeller is not None
        real = labeller.probabilities

        def slow(texts: Any) -> Any:
            batches.append(len(texts))
            time.sleep(0.1)
            return real(texts)

        labeller.probabilities = slow  # type: ignore[method-assign]
        assert server.post("/classify", {"texts": ["a good film"] * 100})[0] == 503
        wait_until(lambda: server.service.label_worker.idle)
        time.sleep(0.3)
        assert 1 < len(batches) < 10
        assert all(count <= 2 for count in batches)


def test_a_large_request_gets_the_answers_of_a_small_one(guarded: Running) -> None:
    texts = [f"{word} {number}" for number in range(40) for word in WORDS]
    with running(classifier(), batch_characters=500) as server, running(classifier()) as whole:
        assert server.post("/classify", {"texts": texts})[1] == whole.post("/classify", {"texts": texts})[1]


def test_all_bodies_together_are_limited() -> None:
    """Four clients offer 100 kB each, of which there is room for three; what is answered makes room again."""
    big = head(HOST, JSON, ("Content-Length", "120000")) + b" " * 100_000
    with running(classifier(), total_body_bytes=350_000, body_bytes=200_000) as server:
        held = [server.connect() for _ in range(3)]
        for each in held:
            each.sendall(big)
        wait_until(lambda: server.guard.held_bytes >= 300_000)
        answer = server.raw(big)
        assert statuses(answer) == [503]
        assert b"retry-after" in answer
        assert b"350,000 bytes" in answer
        for each in held:
            each.close()
        wait_until(lambda: server.guard.held_bytes == 0)
        assert server.post("/classify", {"text": "a good film"})[0] == 200
        assert server.guard.held_bytes == 0


def test_answers_count_until_they_are_read() -> None:
    """An answer of megabytes is handed over as it is read, and then forgotten."""
    with running(classifier(), receive_seconds=5.0) as server, server.connect() as connection:
        body = b'{"text": "' + b"a " * 9_999 + b'"}'
        request = head(HOST, JSON, CLOSE, ("Content-Length", str(len(body))), line="POST /explain HTTP/1.1") + body
        connection.setblocking(True)
        before = resident()
        connection.sendall(request)
        answer = until_closed(connection, 20.0)
        assert statuses(answer) == [200]
        assert answer.count(b'"begin"') == 9_999
        wait_until(lambda: server.guard.held_bytes == 0)
        assert resident() - before < 64


def test_labels_go_on_while_the_queue_is_full_of_work() -> None:
    with running(classifier(), seconds=2.0) as server, ThreadPoolExecutor(4) as pool:
        server.service.label_worker.rate(10_000, 10.0)
        gate = Gate(server)
        first = pool.submit(server.post, "/classify", {"text": "x" * 1500})
        wait_until(lambda: not server.service.label_worker.idle)
        status, _, headers = server.ask("POST", "/classify", BODY.replace(b"film", b"x" * 800))
        assert status == 429
        assert int(headers["retry-after"]) >= 1
        small = pool.submit(server.post, "/classify", {"text": "a"})
        wait_until(lambda: server.service.label_worker.queued_texts == 1)
        gate.open.set()
        assert [first.result()[0], small.result()[0]] == [200, 200]
