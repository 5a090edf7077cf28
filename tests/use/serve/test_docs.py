"""The commands of docs/serving.md, run as they stand, against a tiny classifier and on a free port."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from rehead.model import save
from rehead.use.serve.options import Limits
from tests.use.serve.running import classifier, wait_until

PAGE = Path(__file__).parents[3] / "docs" / "serving.md"
ROOT = Path(__file__).parents[3]


def commands() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def answers(port: int) -> bool:
    try:
        return bool(urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).status == 200)
    except OSError:
        return False


def started(command: str, folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start a server as the page says, but on a free port; wait until it answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = [sys.executable, "-m", *shlex.split(command), "--port", str(port)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen(arguments, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    wait_until(lambda: server.poll() is not None or answers(port), 120)
    assert server.poll() is None, command
    return server, port


def test_every_command_does_what_the_page_says(tmp_path: Path) -> None:
    if missing := [each for each in ("bash", "curl", "openssl") if shutil.which(each) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    save(classifier(), tmp_path / "runs" / "classifier")
    server: subprocess.Popen[bytes] | None = None
    port, asked = 0, 0
    try:
        for command in commands():
            if command.startswith("rehead serve"):
                if server is not None:
                    server.send_signal(signal.SIGTERM)
                    assert server.wait(20) == 0
                server, port = started(command, tmp_path)
                continue
            line = command.replace(":8000", f":{port}")
            done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, (command, done.stderr)
            if command.startswith("curl"):
                asked += 1
                assert "error" not in json.loads(done.stdout), (command, done.stdout)
    finally:
        if server is not None:
            server.kill()
            server.wait()
    assert asked == 4


def test_the_limits_on_the_page_are_those_of_the_program() -> None:
    page, limits = PAGE.read_text(encoding="utf-8"), Limits()
    said = dict(re.findall(r"^\| `--([a-z-]+)`[^|]*\| ([\d,.]+(?: MiB)?) \|", page, re.MULTILINE))
    assert len(said) == 11
    for name, usual in said.items():
        value = limits.explained() if name == "explain-characters" else getattr(limits, name.replace("-", "_"))
        number = float(usual.removesuffix(" MiB").replace(",", ""))
        assert value == (number * 2**20 if "MiB" in usual else number), name
    assert f"({limits.explained(layers=True):,} where layers read)" in page
