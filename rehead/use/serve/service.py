"""What a server can do with its run: give labels, explain them, show attention, go on with a text.

Here requests become answers; how they come and go over HTTP is `app.py`'s, who may ask is `guard.py`'s. Everything is
computed in the threads of two lanes: labels in one, what takes long in the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import rehead
from rehead.errors import UserError
from rehead.runs.run import Run, load
from rehead.use.explain import explain
from rehead.use.generate import prompt_ids, write
from rehead.use.labeller import Labeller, Labels
from rehead.use.learnt import check_it_learnt, longest_read
from rehead.use.sampling import Sampling
from rehead.use.serve.answers import RefusedError
from rehead.use.serve.lane import FullError, GoneError, Job, Lane, LateError
from rehead.use.serve.metrics import Metrics
from rehead.use.serve.options import Limits
from rehead.use.serve.requests import Attention, Classify, Explain, Generate, Kinds

MOST_TOKENS = 64  # of which attention is shown
EACH = 64  # characters that even an empty text counts for in a batch


class Service:
    """A run at work for many."""

    def __init__(self, run: Run, limits: Limits, *, name: str = "") -> None:
        self.run, self.limits, self.name = run, limits, name
        self.labeller = Labeller.of(run) if run.labels is not None else None
        config = run.model.config
        reads = self.labeller is not None and run.model.reads_layers
        self.layers, self.heads = (config.nlayers, config.nhead) if reads else (0, 0)
        self.writes = _writes(run)
        if self.labeller is None and not self.writes:
            check_it_learnt(run, Path(name), "generates", "continue a text, and it is no classifier")
        self.kinds = Kinds(limits, layers=self.layers, heads=self.heads)
        self.metrics = Metrics()
        self.labels_lane = Lane(
            "labels",
            self._label,
            room=limits.queue,
            characters=limits.batch_characters,
            wait=limits.batch_wait_ms / 1000,
            batch=self.metrics.batch,
        )
        self.slow_lane = Lane("slow", self._slow, room=limits.slow_queue, characters=0)
        self.metrics.watch("labels", lambda: self.labels_lane.waiting)
        self.metrics.watch("slow", lambda: self.slow_lane.waiting)

    @classmethod
    def open(cls, path: Path, limits: Limits) -> Service:
        """Load a run, and compute something once, so that the first asker does not wait for it."""
        service = cls(load(path), limits, name=path.resolve().name)
        if service.labeller is not None:
            service.labeller.probabilities(["a text", "another"])
        return service

    @property
    def can(self) -> list[str]:
        """What may be asked for."""
        offers = {
            "classify": self.labeller is not None,
            "explain": self.labeller is not None,
            "attention": self.layers > 0,
            "generate": self.writes,
        }
        return [name for name, offered in offers.items() if offered]

    @property
    def ready(self) -> bool:
        """Whether there is somebody to compute."""
        return self.labels_lane.alive and self.slow_lane.alive

    @property
    def idle(self) -> bool:
        """Whether everything is done that somebody waits for."""
        return self.labels_lane.empty and self.slow_lane.empty

    @property
    def ended(self) -> bool:
        """Whether nothing is being computed, and nothing will be."""
        return not self.labels_lane.alive and not self.slow_lane.alive

    def end(self, seconds: float) -> None:
        """Finish what is there, and take nothing more; do not wait longer than this."""
        until = time.monotonic() + seconds
        for lane in (self.labels_lane, self.slow_lane):
            lane.end(max(0.0, until - time.monotonic()))

    def about(self) -> dict[str, Any]:
        """Say what can be asked for, and what is taken."""
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
                "explain_characters": limits.explained(layers=self.layers > 0),
                "generate_tokens": limits.generate_tokens,
            },
        }

    # What is asked for, in the event loop.

    async def classify(self, asked: Classify, claim: dict[str, Any]) -> dict[str, Any]:
        """Give each text its label and the probabilities."""
        texts = asked.all_texts()
        self.metrics.texts.inc(len(texts))
        characters = sum(map(len, texts)) + EACH * len(texts)
        return {"results": await self._ask(self.labels_lane, (texts, asked.threshold), len(texts), characters, claim)}

    async def explain(self, asked: Explain, claim: dict[str, Any]) -> dict[str, Any]:
        """Say which words carried the decision."""
        assert self.labeller is not None  # noqa: S101 (there is no such route without)
        if asked.label is not None and asked.label not in self.labeller.names:
            raise RefusedError(422, "label: not one of this classifier's. They are in /about.")
        if not asked.text.strip():
            return {"label": None, "probability": None, "words": []}
        return await self._slowly(lambda job: self._explain(asked, job), claim)

    async def attention(self, asked: Attention, claim: dict[str, Any]) -> dict[str, Any]:
        """Show which token looks at which."""
        return await self._slowly(lambda job: self._attention(asked), claim)

    async def generate(self, asked: Generate, claim: dict[str, Any]) -> dict[str, Any]:
        """Go on with a text."""
        return await self._slowly(lambda job: self._generate(asked, job), claim)

    async def _slowly(self, work: Callable[[Job], dict[str, Any]], claim: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = await self._ask(self.slow_lane, work, 1, 1, claim)
        return found

    async def _ask(self, lane: Lane, what: object, texts: int, characters: int, claim: dict[str, Any]) -> Any:  # noqa: ANN401
        try:
            return await lane.ask(what, texts=texts, characters=characters, seconds=self.limits.seconds, claim=claim)
        except FullError as full:
            self.metrics.dropped.labels("full").inc()
            again = {"Retry-After": str(full.seconds)}
            raise RefusedError(429, f"too many texts wait already. Ask again in {full.seconds} s.", again) from None
        except LateError:
            self.metrics.dropped.labels("late").inc()
            late = f"the answer took longer than {self.limits.seconds:g} s, and was given up. Ask again, or for less."
            raise RefusedError(503, late, {"Retry-After": "1"}) from None
        except GoneError:
            self.metrics.dropped.labels("gone").inc()
            raise RefusedError(499, "the client has left.") from None

    # What is computed, in the lanes' threads.

    def _label(self, jobs: Sequence[Job]) -> list[list[dict[str, Any]]]:
        """Give each text of each job its label and probabilities, all of them read together; blank ones get none."""
        labeller = self.labeller
        assert labeller is not None  # noqa: S101 (there is no such route without)
        given = labeller.probabilities([text for job in jobs for text in job.what[0] if text.strip()])
        every, rows = labeller.labels(given), given.tolist()
        found, end = [], 0
        for job in jobs:
            texts, threshold = job.what
            begin, end = end, end + sum(1 for text in texts if text.strip())
            chosen = labeller.labels(given[begin:end], sure=threshold) if threshold else every[begin:end]
            said = zip(chosen, rows[begin:end], strict=True)
            found.append([self._described(*(next(said) if text.strip() else (None, None))) for text in texts])
        return found

    def _described(self, labels: Labels | None, row: list[float] | None) -> dict[str, Any]:
        assert self.labeller is not None  # noqa: S101 (there is no such route without)
        probabilities = None
        if row is not None:
            probabilities = {name: round(each, 6) for name, each in zip(self.labeller.names, row, strict=True)}
        if self.labeller.multilabel:
            return {"labels": labels, "probabilities": probabilities}
        return {"label": None if labels is None else labels[0], "probabilities": probabilities}

    def _slow(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        return [job.what(job) for job in jobs]

    def _explain(self, asked: Explain, job: Job) -> dict[str, Any]:
        assert self.labeller is not None  # noqa: S101 (there is no such route without)
        found = explain(self.labeller, [asked.text], label=asked.label, progress=job.look)[0]
        words = [{"begin": each.begin, "end": each.end, "weight": round(float(each.weight), 6)} for each in found.words]
        return {"label": found.label, "probability": round(float(found.probability), 6), "words": words}

    def _attention(self, asked: Attention) -> dict[str, Any]:
        tokenizer, model = self.run.tokenizer, self.run.model
        assert tokenizer is not None  # noqa: S101 (a classifier that reads has one)
        ids = tokenizer.encode(asked.text)
        shown = ids[: min(MOST_TOKENS, model.config.maxlen)]
        weights: list[list[float]] = []
        if shown:
            with torch.no_grad():
                _, layers = model.base.attention(torch.tensor([shown]), causal=model.reads_causally)
            heads = layers[asked.layer - 1][0]  # (heads, T, T)
            square = heads.mean(0) if asked.head is None else heads[asked.head - 1]
            weights = [[round(each, 4) for each in row] for row in square.tolist()]
        return {
            "tokens": tokenizer.readable(shown),
            "weights": weights,
            "total": len(ids),
            "causal": model.reads_causally,
        }

    def _generate(self, asked: Generate, job: Job) -> dict[str, Any]:
        tokenizer, model = self.run.tokenizer, self.run.model
        assert tokenizer is not None  # noqa: S101 (a run that writes has one)
        sampling = Sampling(
            temperature=asked.temperature,
            top_k=asked.top_k,
            top_p=asked.top_p,
            repetition_penalty=asked.repetition_penalty,
        )
        ids, window = prompt_ids(tokenizer, asked.prompt), longest_read(self.run)
        written = write(
            model, tokenizer, ids, sampling, tokens=asked.tokens, seed=asked.seed, window=window,
            show=lambda *_: job.look(),
        )[0]  # fmt: skip
        return {"text": written.text, "tokens": len(written.ids), "ended": written.ended}


def _writes(run: Run) -> bool:
    """Tell whether a run can go on with a text."""
    try:
        check_it_learnt(run, Path(), "generates", "continue a text")
    except UserError:
        return False
    return True
