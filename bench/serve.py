"""A server under load: throughput relative to bulk prediction, latency, memory growth, errors.

    python bench/serve.py RUN LABELLED [--clients 64] [--seconds 60] [--texts 1]

`rehead serve RUN` runs in one process, its clients in another: each sends a request with so many texts, waits for the
response and sends the next (a closed loop); afterwards every label is compared with that of bulk prediction. Before,
between and after the intervals of load, the same texts go through `Labeller.probabilities` in bulk, with the same
number of threads, while the server is idle.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import uvloop

INTERVALS = 12  # of load, with bulk between them
WARM_UP = 10.0  # seconds


def read(path: str) -> list[str]:
    """Take the texts of a labelled file."""
    from rehead.text.documents import ReadOptions
    from rehead.text.labelled import read_examples

    return list(read_examples([path], ReadOptions(), check=False).texts)[:4000]


class Client(asyncio.Protocol):
    """One client, which sends its next request as soon as it has a response; responses are checked afterwards."""

    def __init__(self, requests: list[bytes], first: int, until: float, done: asyncio.Future[None]) -> None:
        self.requests, self.place, self.until, self.done = requests, first, until, done
        self.answers: list[tuple[int, bytes]] = []
        self.waits: list[float] = []
        self.got = b""
        self.whole = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        """Send the next request, unless the time is up."""
        self.began = time.perf_counter()
        if self.began > self.until:
            self.transport.close()
        else:
            self.transport.write(self.requests[self.place % len(self.requests)])  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        """Receive a response; when it is complete, send the next request."""
        self.got += data
        if not self.whole and (end := self.got.find(b"\r\n\r\n")) >= 0:
            begin = self.got.index(b"content-length: ") + 16
            self.whole = end + 4 + int(self.got[begin : self.got.index(b"\r", begin)])
        if self.whole and len(self.got) >= self.whole:
            self.waits.append(time.perf_counter() - self.began)
            self.answers.append((self.place % len(self.requests), self.got))
            self.got, self.whole, self.place = b"", 0, self.place + 1
            self.ask()

    def connection_lost(self, exc: Exception | None) -> None:
        """Finish."""
        self.done.set_result(None)

    def wrong(self, labels: list[list[str]]) -> int:
        """Count wrong responses, and one more if the connection broke."""
        return int(bool(self.got)) + sum(
            not answer.startswith(b"HTTP/1.1 200")
            or [each["label"] for each in json.loads(answer.partition(b"\r\n\r\n")[2])["results"]] != labels[place]
            for place, answer in self.answers
        )


async def load(port: int, texts: list[str], labels: list[str], clients: int, seconds: float, each: int) -> None:
    """Run many clients; print the results as JSON."""
    requests, expected = [], []
    for begin in range(0, len(texts) - each + 1, each):
        body = json.dumps({"texts": texts[begin : begin + each]}).encode()
        head = ["POST /classify HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
        head += [f"Content-Length: {len(body)}", "", ""]
        requests.append("\r\n".join(head).encode() + body)
        expected.append(labels[begin : begin + each])
    loop, began = asyncio.get_running_loop(), time.perf_counter()
    apart = len(requests) // clients
    all_of_them = [Client(requests, at * apart, began + seconds, loop.create_future()) for at in range(clients)]
    for client in all_of_them:
        await loop.create_connection(lambda client=client: client, "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.gather(*(client.done for client in all_of_them))
    spent = time.perf_counter() - began
    waits = [wait for client in all_of_them for wait in client.waits]
    print(json.dumps({"seconds": spent, "waits": waits, "wrong": sum(each.wrong(expected) for each in all_of_them)}))


def memory(process: int) -> float:
    """Return a process's resident memory in MiB."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text()).group(1)) / 1024  # type: ignore[union-attr]


def processor(process: int | str) -> float:
    """Return the processor time of a process in seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("labelled")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--texts", type=int, default=1)
    parser.add_argument("--as-clients", nargs=2, metavar=("PORT", "LABELS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    texts = read(options.labelled)
    if options.as_clients:
        labels = json.loads(Path(options.as_clients[1]).read_text())
        asked = load(int(options.as_clients[0]), texts, labels, options.clients, options.seconds, options.texts)
        uvloop.run(asked)
        return

    from tempfile import TemporaryDirectory

    from rehead.use.labeller import Labeller

    labeller = Labeller.open(options.run)
    with TemporaryDirectory() as folder:
        labels = Path(folder) / "labels.json"
        labels.write_text(json.dumps([each[0] for each in labeller.labels(labeller.probabilities(texts)) if each]))

        def bulk() -> float:
            began, count, before = time.perf_counter(), 0, processor("self")
            while time.perf_counter() - began < min(3.0, options.seconds / INTERVALS):
                labeller.probabilities(texts)
                count += len(texts)
            costs["bulk"].append((processor("self") - before) / count)
            return count / (time.perf_counter() - began)

        costs: dict[str, list[float]] = {"bulk": [], "serve": []}
        command = [sys.executable, "-m", "rehead", "serve", options.run, "--port", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert server.stdout is not None
        port = server.stdout.readline().rsplit(":", 1)[1].strip()

        def clients(seconds: float) -> dict[str, object]:
            arguments = [__file__, options.run, options.labelled, "--clients", str(options.clients), "--texts"]
            arguments += [str(options.texts), "--seconds", str(seconds), "--as-clients", port, str(labels)]
            done = subprocess.run([sys.executable, *arguments], stdout=subprocess.PIPE, check=True)
            return dict(json.loads(done.stdout))

        try:
            clients(min(WARM_UP, options.seconds))
            sizes, bulks, rates, waits, wrong = [memory(server.pid)], [bulk()], [], [], 0
            for _ in range(INTERVALS):
                before = processor(server.pid)
                found = clients(options.seconds / INTERVALS)
                count = len(found["waits"]) * options.texts  # type: ignore[arg-type]
                costs["serve"].append((processor(server.pid) - before) / count)
                rates.append(len(found["waits"]) * options.texts / found["seconds"])  # type: ignore[arg-type,operator]
                waits += found["waits"]  # type: ignore[operator]
                wrong += found["wrong"]  # type: ignore[operator]
                sizes.append(memory(server.pid))
                bulks.append(bulk())
        finally:
            server.terminate()
            server.wait()
    waits.sort()
    p50, p99 = (1000 * waits[int(len(waits) * share)] for share in (0.5, 0.99))
    means = sum(rates) / len(rates) / (sum(bulks) / len(bulks))
    print(f"threads {os.environ.get('OMP_NUM_THREADS', 'all')}, clients {options.clients}, texts each {options.texts}")
    for name, each in (("bulk", bulks), ("serve", rates)):
        print(f"{name:<8} {max(each):8,.0f} texts/s at best  (each: {', '.join(f'{rate:,.0f}' for rate in each)})")
    print(f"ratio    {max(rates) / max(bulks):8.2f} of the best, {means:.2f} of the means")
    spent = {name: 1000 * min(each) for name, each in costs.items()}
    print(f"processor time of a text: bulk {spent['bulk']:.2f} ms, serve {spent['serve']:.2f} ms")
    print(f"latency  p50 {p50:.0f} ms, p99 {p99:.0f} ms; requests {len(waits):,}; wrong or failed {wrong}")
    print(f"memory   {', '.join(f'{size:,.0f}' for size in sizes)} MiB after each interval")
    print(f"ended with exit code {server.returncode}")


if __name__ == "__main__":
    main()
