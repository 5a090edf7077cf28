"""What a server computes with its run: labels, explanations, attention, generated text.

Here requests become responses; HTTP is in `app.py`, access control in `guard.py`. Everything is computed in the threads
of two batch workers: labels in one, slow requests in the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from starlette.exceptions import HTTPException

import rehead
from rehead.errors import UserError
from rehead.runs.run import Run, load
from rehead.runs.scoring import open_views
from rehead.text.lengths import written_out
from rehead.use.abilities import check_ability, training_length
from rehead.use.explain import explain
from rehead.use.generate import generate_samples, prompt_ids
from rehead.use.labeller import Labeller, Labels
from rehead.use.sampling import Sampling
from rehead.use.serve.batching import (
    BatchWorker,
    ClientDisconnectedError,
    DeadlineExceededError,
    Job,
    JobCancelledError,
    QueueFullError,
    TooMuchWorkError,
)
from rehead.use.serve.metrics import Metrics
from rehead.use.serve.options import Limits
from rehead.use.serve.requests import Attention, Classify, Explain, Generate, RequestModels

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_ATTENTION_TOKENS = 64  # of which attention is shown
TEXT_OVERHEAD = 64  # characters that every text counts for in a batch, even an empty one
WARM_UP = "Some words of a text, as long as most. " * 52
WARM_UP_CHARACTERS = len(WARM_UP)  # less work than that says little about speed
EXPLAIN_SHARE = 0.25  # of the time for an answer, that reading for an explanation may take at the speed of the text
GENERATED_TOKEN = 16  # tokens of a text that one generated token costs, about


class Service:
    """A loaded run that answers requests."""

    def __init__(self, run: Run, limits: Limits, *, name: str = "") -> None:
        self.run, self.limits, self.name = run, limits, name
        self.labeller = Labeller.of(run) if run.labels is not None else None
        config = run.model.config
        reads = self.labeller is not None and run.model.reads_layers
        self.layers, self.heads = (config.nlayers, config.nhead) if reads else (0, 0)
        self.reads_again = self.labeller is not None and any(view.word_order for view in open_views(run.model))
        "Whether an explanation reads the text again for its words."
        self.generates = _can_generate(run)
        if self.labeller is None and not self.generates:
            check_ability(run, Path(name), "generates", "continue a text, and is not a classifier")
        self.models = RequestModels(limits, layers=self.layers, heads=self.heads)
        self.metrics = Metrics()
        self.label_worker = BatchWorker(
            "labels",
            self._label,
            capacity=limits.queue,
            batch_cost=limits.batch_characters,
            rated_cost=WARM_UP_CHARACTERS,
            batch_wait=limits.batch_wait_ms / 1000,
            on_batch=self.metrics.batch,
        )
        self.slow_worker = BatchWorker(
            "slow", self._run_slow, capacity=limits.slow_queue, batch_cost=0, rated_cost=WARM_UP_CHARACTERS
        )
        for worker in (self.label_worker, self.slow_worker):
            self.metrics.watch_queue(worker.name, lambda worker=worker: worker.queued_texts)  # type: ignore[misc]

    @classmethod
    def open(cls, path: Path, limits: Limits) -> Service:
        """Load a run, warm it up, so that the first request is not slower than the others, and measure its speed."""
        service = cls(load(path), limits, name=path.resolve().name)
        if service.labeller is not None:
            service.labeller.probabilities(["a text", "another"])
            began = time.perf_counter()
            service.labeller.probabilities([WARM_UP])
            service.label_worker.rate(len(WARM_UP), time.perf_counter() - began)
        return service

    @property
    def can(self) -> list[str]:
        """The routes that this run supports."""
        supported = {
            "classify": self.labeller is not None,
            "explain": self.labeller is not None,
            "attention": self.layers > 0,
            "generate": self.generates,
        }
        return [name for name, yes in supported.items() if yes]

    @property
    def ready(self) -> bool:
        """Whether both worker threads are running."""
        return self.label_worker.alive and self.slow_worker.alive

    @property
    def idle(self) -> bool:
        """Whether no result is waited for."""
        return self.label_worker.idle and self.slow_worker.idle

    @property
    def closed(self) -> bool:
        """Whether both worker threads have ended."""
        return not self.label_worker.alive and not self.slow_worker.alive

    def close(self, seconds: float) -> None:
        """Accept no more jobs and finish those in the queues; wait at most this many seconds."""
        deadline = time.monotonic() + seconds
        for worker in (self.label_worker, self.slow_worker):
            worker.close(max(0.0, deadline - time.monotonic()))

    def about(self) -> dict[str, Any]:
        """Describe the run, the routes and the limits."""
        limits = self.limits
        return {
            "name": self.name,
            "version": rehead.__version__,
            "labels": [] if self.labeller is None else self.labeller.names,
            "multilabel": self.labeller is not None and self.labeller.multilabel,
            "can": self.can,
            "layers": self.layers,
            "heads": self.heads,
            "limits": {
                "body_bytes": limits.body_bytes,
                "texts": limits.texts,
                "characters": limits.characters,
                "explain_characters": limits.max_explain_characters(),
                "explain_tokens": limits.explain_tokens,
                "generate_tokens": limits.generate_tokens,
            },
        }

    # Run in the event loop. `state` is the request's ASGI state.

    async def classify(self, request: Classify, state: dict[str, Any]) -> dict[str, Any]:
        """Predict the label and the probabilities of each text."""
        texts = request.all_texts()
        self.metrics.texts.inc(len(texts))
        payload = (texts, request.threshold)
        return {"results": await self._submit(self.label_worker, payload, len(texts), _cost(texts), state)}

    async def explain(self, request: Explain, state: dict[str, Any]) -> dict[str, Any]:
        """Weigh the words of a text by their contribution to its label."""
        assert self.labeller is not None  # noqa: S101 (the route exists for classifiers only)
        if request.label is not None and request.label not in self.labeller.names:
            raise HTTPException(422, "label: unknown. GET /about lists the labels.")
        if not request.text.strip():
            return {"label": None, "probability": None, "words": [], "total": 0}
        length = written_out(request.text)
        cost = min(length**2, self.limits.explain_tokens) if self.reads_again else length
        return await self._submit_slow(lambda job: self._explain(request, job), cost, state)

    async def attention(self, request: Attention, state: dict[str, Any]) -> dict[str, Any]:
        """Compute the attention weights of one layer."""
        return await self._submit_slow(lambda job: self._attention(request), written_out(request.text), state)

    async def generate(self, request: Generate, state: dict[str, Any]) -> dict[str, Any]:
        """Continue a text."""
        cost = written_out(request.prompt) + GENERATED_TOKEN * request.tokens
        return await self._submit_slow(lambda job: self._generate(request, job), cost, state)

    async def _submit_slow(
        self, compute: Callable[[Job], dict[str, Any]], cost: int, state: dict[str, Any]
    ) -> dict[str, Any]:
        found: dict[str, Any] = await self._submit(self.slow_worker, compute, 1, cost, state)
        return found

    async def _submit(self, worker: BatchWorker, payload: object, texts: int, cost: int, state: dict[str, Any]) -> Any:  # noqa: ANN401
        seconds = self.limits.seconds
        try:
            return await worker.submit(payload, texts=texts, cost=cost, seconds=seconds, state=state)
        except QueueFullError as full:
            self.metrics.dropped.labels("full").inc()
            after = str(full.retry_after)
            raise HTTPException(429, f"the queue is full. Retry in {after} s.", {"Retry-After": after}) from None
        except TooMuchWorkError as work:
            self.metrics.dropped.labels("work").inc()
            raise HTTPException(
                413, f"this would take about {work.seconds:.0f} s; {seconds:g} s are allowed. Send less per request."
            ) from None
        except DeadlineExceededError:
            self.metrics.dropped.labels("late").inc()
            late = f"the request timed out after {seconds:g} s. Retry, or send less per request."
            raise HTTPException(503, late, {"Retry-After": "1"}) from None
        except ClientDisconnectedError:
            self.metrics.dropped.labels("gone").inc()
            raise HTTPException(499, "the client closed the connection.") from None

    # Run in the worker threads.

    def _label(self, jobs: Sequence[Job]) -> list[list[dict[str, Any]]]:
        """Predict all texts of all jobs as one batch; blank ones get no label."""
        labeller = self.labeller
        assert labeller is not None  # noqa: S101 (the route exists for classifiers only)
        probabilities = self._probabilities(jobs)
        labels, rows = labeller.labels(probabilities), probabilities.tolist()
        results, end = [], 0
        for job in jobs:
            texts, threshold = job.payload
            begin, end = end, end + sum(1 for text in texts if text.strip())
            chosen = (
                labeller.labels(probabilities[begin:end], min_confidence=threshold) if threshold else labels[begin:end]
            )
            found = zip(chosen, rows[begin:end], strict=True)
            results.append([self._result(*(next(found) if text.strip() else (None, None))) for text in texts])
        return results

    def _probabilities(self, jobs: Sequence[Job]) -> NDArray[np.float32]:
        """Predict all texts that are not blank; those of a large request a batch at a time, while it is waited for."""
        assert self.labeller is not None  # noqa: S101 (the route exists for classifiers only)
        texts = [text for job in jobs for text in job.payload[0] if text.strip()]
        found, begin, cost = [], 0, 0
        for place, text in enumerate(texts):
            cost += _cost([text])
            if cost > self.limits.batch_characters and place > begin:
                found.append(self.labeller.probabilities(texts[begin:place]))
                begin, cost = place, _cost([text])
                if all(job.cancelled for job in jobs):
                    raise JobCancelledError
        found.append(self.labeller.probabilities(texts[begin:]))
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _result(self, labels: Labels | None, row: list[float] | None) -> dict[str, Any]:
        assert self.labeller is not None  # noqa: S101 (the route exists for classifiers only)
        probabilities = None
        if row is not None:
            probabilities = {name: round(each, 6) for name, each in zip(self.labeller.names, row, strict=True)}
        if self.labeller.multilabel:
            return {"labels": labels, "probabilities": probabilities}
        return {"label": None if labels is None else labels[0], "probabilities": probabilities}

    def _run_slow(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        return [job.payload(job) for job in jobs]

    def _explain(self, request: Explain, job: Job) -> dict[str, Any]:
        assert self.labeller is not None  # noqa: S101 (the route exists for classifiers only)
        found = explain(
            self.labeller,
            [request.text],
            label=request.label,
            progress=job.raise_if_cancelled,
            max_tokens=self.limits.explain_tokens,
            max_seconds=EXPLAIN_SHARE * self.limits.seconds,
        )[0]
        words = [{"begin": each.begin, "end": each.end, "weight": round(float(each.weight), 6)} for each in found.words]
        return {
            "label": found.label,
            "probability": round(float(found.probability), 6),
            "words": words,
            "total": len(words) + found.left,
        }

    def _attention(self, request: Attention) -> dict[str, Any]:
        tokenizer, model = self.run.tokenizer, self.run.model
        assert tokenizer is not None  # noqa: S101 (every classifier with layers has one)
        ids = tokenizer.encode(request.text)
        shown = ids[: min(MAX_ATTENTION_TOKENS, model.config.maxlen)]
        weights: list[list[float]] = []
        if shown:
            with torch.no_grad():
                _, layers = model.base.attention(torch.tensor([shown]), causal=model.reads_causally)
            heads = layers[request.layer - 1][0]  # (heads, T, T)
            square = heads.mean(0) if request.head is None else heads[request.head - 1]  # (T, T)
            weights = [[round(each, 4) for each in row] for row in square.tolist()]
        return {
            "tokens": tokenizer.readable(shown),
            "weights": weights,
            "total": len(ids),
            "causal": model.reads_causally,
        }

    def _generate(self, request: Generate, job: Job) -> dict[str, Any]:
        tokenizer, model = self.run.tokenizer, self.run.model
        assert tokenizer is not None  # noqa: S101 (every run that generates has one)
        sampling = Sampling(
            temperature=request.temperature,
            top_k=request.top_k,
            top_p=request.top_p,
            repetition_penalty=request.repetition_penalty,
        )
        ids, window = prompt_ids(tokenizer, request.prompt), training_length(self.run)
        sample = generate_samples(
            model, tokenizer, ids, sampling, tokens=request.tokens, seed=request.seed, window=window,
            show=lambda *_: job.raise_if_cancelled(),
        )[0]  # fmt: skip
        return {"text": sample.text, "tokens": len(sample.ids), "ended": sample.ended}


def _cost(texts: Sequence[str]) -> int:
    """Count the characters of texts as they are read, and what every text adds to them."""
    return sum(map(written_out, texts)) + TEXT_OVERHEAD * len(texts)


def _can_generate(run: Run) -> bool:
    """Tell whether a run can continue a text."""
    try:
        check_ability(run, Path(), "generates", "continue a text")
    except UserError:
        return False
    return True
