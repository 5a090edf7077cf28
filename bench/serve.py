"""A server under load: how much of the bulk speed is left, how long askers wait, whether memory grows, any error.

    python bench/serve.py RUN LABELLED [--clients 64] [--seconds 60] [--texts 1]

`rehead serve RUN` in one process, its clients in another: each sends a request with so many texts, waits for the
answer, checks the label, and sends the next, all the time. Before, between and after the stretches of load, the same
texts go
through `Labeller.probabilities` in bulk, with the same number of threads, while the server idles.
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

STRETCHES = 12  # of load, with bulk between them
WARM_UP = 10.0  # seconds


def read(path: str) -> list[str]:
    """Take the texts of a labelled file."""
    from rehead.text.documents import ReadOptions
    from rehead.text.labelled import read_examples

    return list(read_examples([path], ReadOptions(), check=False).texts)[:4000]


async def ask(port: int, requests: list[tuple[bytes, list[str]]], first: int, until: float, waits: list[float]) -> int:
    """Be one client until the time is up; give the number of answers that were not right."""
    wrong, place = 0, first
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < until:
        request, labels = requests[place % len(requests)]
        place += 1
        began = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head).group(1))  # type: ignore[union-attr]
        body = await reader.readexactly(length)
        waits.append(time.perf_counter() - began)
        if not head.startswith(b"HTTP/1.1 200") or [each["label"] for each in json.loads(body)["results"]] != labels:
            wrong += 1
    writer.close()
    return wrong


async def load(port: int, texts: list[str], labels: list[str], clients: int, seconds: float, each: int) -> None:
    """Be many clients; print what came of it as JSON."""
    requests = []
    for begin in range(0, len(texts) - each + 1, each):
        body = json.dumps({"texts": texts[begin : begin + each]}).encode()
        head = ["POST /classify HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
        head += [f"Content-Length: {len(body)}", "", ""]
        requests.append(("\r\n".join(head).encode() + body, labels[begin : begin + each]))
    waits: list[float] = []
    began = time.perf_counter()
    apart = len(requests) // clients
    wrong = await asyncio.gather(
        *(ask(port, requests, number * apart, began + seconds, waits) for number in range(clients))
    )
    print(json.dumps({"seconds": time.perf_counter() - began, "waits": waits, "wrong": sum(wrong)}))


def memory(process: int) -> float:
    """Give a process's resident memory in MiB."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text()).group(1)) / 1024  # type: ignore[union-attr]


def processor(process: int | str) -> float:
    """Give the processor time that a process has had, in seconds."""
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
        asyncio.run(load(int(options.as_clients[0]), texts, labels, options.clients, options.seconds, options.texts))
        return

    from tempfile import TemporaryDirectory

    from rehead.use.labeller import Labeller

    labeller = Labeller.open(options.run)
    with TemporaryDirectory() as folder:
        labels = Path(folder) / "labels.json"
        labels.write_text(json.dumps([each[0] for each in labeller.labels(labeller.probabilities(texts)) if each]))

        def bulk() -> float:
            began, count, before = time.perf_counter(), 0, processor("self")
            while time.perf_counter() - began < min(3.0, options.seconds / STRETCHES):
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
            for _ in range(STRETCHES):
                before = processor(server.pid)
                found = clients(options.seconds / STRETCHES)
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
    print(f"waiting  p50 {p50:.0f} ms, p99 {p99:.0f} ms; requests {len(waits):,}; wrong or failed {wrong}")
    print(f"memory   {', '.join(f'{size:,.0f}' for size in sizes)} MiB after each stretch")
    print(f"ended with exit code {server.returncode}")


if __name__ == "__main__":
    main()
