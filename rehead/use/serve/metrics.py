"""Prometheus metrics of a server: requests, texts, batch sizes, queue lengths, cancelled requests. Never any text."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = Counter(
            "rehead_requests", "Requests answered, by path and status.", ["path", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "rehead_request_seconds", "Time from a request's headers to the end of its response.", ["path"],
            buckets=SECONDS, registry=self.registry,
        )  # fmt: skip
        self.texts = Counter("rehead_texts", "Texts received for classification.", registry=self.registry)
        self.batches = Histogram("rehead_batch_texts", "Texts per batch.", buckets=TEXTS, registry=self.registry)
        self.waiting = Gauge("rehead_waiting", "Texts or requests in a queue.", ["lane"], registry=self.registry)
        self.dropped = Counter(
            "rehead_dropped",
            "Requests not computed: queue full (full), too much work (work), timed out (late), client gone (gone).",
            ["why"], registry=self.registry,
        )  # fmt: skip

    def batch(self, jobs: int, texts: int) -> None:
        """Count a batch."""
        self.batches.observe(texts)

    def watch_queue(self, name: str, length: Callable[[], int]) -> None:
        """Report a queue's length whenever the metrics are read."""
        self.waiting.labels(name).set_function(length)

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests.labels(path, str(status)).inc()
        self.seconds.labels(path).observe(seconds)

    def refused(self, status: int) -> None:
        """Count a request that was refused before its path was known."""
        self.requests.labels("(none)", str(status)).inc()

    def text(self) -> bytes:
        """Write all metrics in the Prometheus text format."""
        return generate_latest(self.registry)
