"""What a server counts, for Prometheus: requests, texts, batches, what waits, what was dropped. Never any text."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """The counts of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = Counter(
            "rehead_requests", "Requests answered, by path and status.", ["path", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "rehead_request_seconds", "From a request's first line to its answer.", ["path"], buckets=SECONDS,
            registry=self.registry,
        )  # fmt: skip
        self.texts = Counter("rehead_texts", "Texts that labels were asked for.", registry=self.registry)
        self.batches = Histogram(
            "rehead_batch_texts", "Texts that were labelled together.", buckets=TEXTS, registry=self.registry
        )
        self.waiting = Gauge("rehead_waiting", "What waits in a lane's queue.", ["lane"], registry=self.registry)
        self.dropped = Counter(
            "rehead_dropped", "Requests not computed: no room (full), too slow (late), client left (gone).", ["why"],
            registry=self.registry,
        )  # fmt: skip

    def batch(self, jobs: int, texts: int) -> None:
        """Count what was computed together."""
        self.batches.observe(texts)

    def watch(self, lane: str, waiting: Callable[[], int]) -> None:
        """Show how much waits in a lane, whenever somebody looks."""
        self.waiting.labels(lane).set_function(waiting)

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests.labels(path, str(status)).inc()
        self.seconds.labels(path).observe(seconds)

    def refused(self, status: int) -> None:
        """Count what was refused before it was a request."""
        self.requests.labels("(none)", str(status)).inc()

    def text(self) -> bytes:
        """Write all of them as Prometheus reads them."""
        return generate_latest(self.registry)
