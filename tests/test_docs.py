"""What the documents say is what the program does."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from rehead import cli
from rehead.model.accounting import account
from rehead.model.config import preset

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def console_blocks(page: Path) -> list[list[tuple[str, str]]]:
    """The ```console blocks of a page: each a list of commands with the output shown ("" where none is)."""
    blocks = re.findall(r"^```console\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    found = []
    for block in blocks:
        parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
        found.append([(command, output) for command, _, output in (part.partition("\n") for part in parts)])
    return found


BLOCKS = [(page, block) for page in PAGES for block in console_blocks(page)]


def bare(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def files(page: Path) -> dict[str, str]:
    """The files a page shows, as ```csv NAME blocks."""
    return dict(re.findall(r"^```csv (\S+)\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))


def in_this_process(words: list[str]) -> tuple[int, str, str]:
    """Run a command of rehead without waiting for torch to be imported anew: exit code, output, messages."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = cli.main(words)
        except SystemExit as ended:
            code = int(ended.code or 0)
    texts = [each.buffer.getvalue().decode() for each in (out, err)]  # type: ignore[attr-defined]
    return code, texts[0], texts[1]


# What takes minutes, and what is run in its place in a block that shows no output. Of a flag that is given twice the
# last counts.
MINIATURE = {
    "rehead pretrain ": "rehead pretrain --nhid 16 ",
    "--unlabelled reviews/unlabelled.txt ": "--unlabelled reviews/valid.csv --nhid 16 ",
    "--tokens 60_000": "--tokens 4_000",
    "rehead data export rotten-tomatoes ": "rehead data export rotten-tomatoes --train 120 --valid 60 --test 60 ",
}


@pytest.mark.parametrize(("page", "block"), BLOCKS, ids=[f"{page.name}: {block[0][0]}" for page, block in BLOCKS])
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["quick", "as it stands"])
def test_commands_in_documents_print_what_is_shown(
    page: Path, block: list[tuple[str, str]], whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line `…` stands for the beginning of the output; a leak is a finding, and exit code 1."""
    monkeypatch.chdir(tmp_path)
    for name, content in files(page).items():
        Path(name).write_text(content, encoding="utf-8")
    in_miniature = not whole and not any(output for _, output in block)
    for command, output in block:
        line = command
        for long, short in MINIATURE.items() if in_miniature else ():
            line = line.replace(long, short)
        words = shlex.split(line)
        assert words[0] == "rehead", f"{page.name}: only rehead commands belong in a console block"
        code, out, err = in_this_process(words[1:])
        assert code == int("LEAK" in out), err
        shown, printed = bare(output), bare(out)
        if shown and shown[0] == "…":
            shown = shown[1:]
            printed = printed[-len(shown) :]
        assert shown in ([], printed)


# What a page writes in the place of a number or a name; of `a|b` it is the first.
STANDS_FOR = {
    "N": "2",
    "K": "2",
    "NAME": "small",
    "OBJECTIVE": "causal",
    "SHARE": "0.15",
    "TOKENS": "1e6",
    "BATCH": "2048",
}
COMMAND = re.compile(r"(?:rehead|torchrun|make) |python bench/")


def commands_in(page: str) -> dict[str, bool]:
    """Every command on a page, and whether it is whole: it stands in a block, of whatever kind, not in a sentence.

    Without its comment, its variables of the environment, and what goes into it and out of it.
    """
    page = page.replace("\\\n", " ")
    fenced = "".join(re.findall(r"^```.*?\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    rest = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    indented = "\n".join(re.findall(r"^ {4}(.*)", rest, re.MULTILINE))
    lines = {line.removeprefix("$ "): True for line in f"{fenced}\n{indented}".splitlines()}
    spans = dict.fromkeys(re.findall(r"`([^`]+)`", rest), False)
    found = {}
    for line, whole in {**spans, **lines}.items():
        command = " ".join(re.sub(r"^([A-Z_]+=\S+ )+|\s+#.*| [<>] \S+", "", line).split())
        if COMMAND.match(command):
            found[command] = whole
    return found


def understand(command: str, monkeypatch: pytest.MonkeyPatch, *, whole: bool = True) -> None:
    """Have a command read by its own parser, and go no further; of one that is not whole, look for its flags."""
    program, *words = [STANDS_FOR.get(word, word.split("|")[0]) for word in shlex.split(command)]
    if program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert words in [[target] for target in targets], command
    elif program == "torchrun":
        from torch.distributed.run import get_args_parser

        given = get_args_parser().parse_args(words)
        assert (given.module, given.training_script) == (True, "rehead"), command
        understand(shlex.join(["rehead", *given.training_script_args]), monkeypatch, whole=whole)
    elif program == "python":
        understand_program(words, monkeypatch)
    elif words not in (["--help"], ["--version"]):
        name = cli._asked_for(words)
        assert name is not None, f"there is no such command: {command}"
        parser = cli._parser(name, cli.COMMANDS[name].load()[0])
        if whole:
            parser.parse_args(words)
            return
        with pytest.raises(SystemExit), contextlib.redirect_stdout(io.StringIO()) as said:
            parser.parse_args([*name.split(), "--help"])
        assert {word for word in words if word.startswith("--")} <= set(re.findall(r"--[a-z-]+", said.getvalue()))


def understand_program(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a program of bench/ read its arguments; of one without a parser, look for them."""
    source = (ROOT / words[0]).read_text(encoding="utf-8")
    if "parse_args" not in source:
        assert all(f'"{word}"' in source for word in words[1:]), words
        return
    read = argparse.ArgumentParser.parse_args

    def stop(parser: argparse.ArgumentParser, *given: Any) -> None:
        read(parser, *given)
        raise Understood

    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", words)
        patch.setattr(sys, "path", [str(ROOT / "bench"), *sys.path])
        patch.setattr(argparse.ArgumentParser, "parse_args", stop)
        with pytest.raises(Understood):
            runpy.run_path(str(ROOT / words[0]), run_name="__main__")


class Understood(Exception):  # noqa: N818 (nothing is wrong)
    """A program has read its arguments, and found nothing wrong with them."""


COMMANDS = [
    (page.name, command, whole)
    for page in PAGES
    if page.name != "CHANGELOG.md"  # which tells of what was, too
    for command, whole in commands_in(page.read_text(encoding="utf-8")).items()
]


@pytest.mark.parametrize(
    ("page", "command", "whole"), COMMANDS, ids=[f"{page}: {command}" for page, command, _ in COMMANDS]
)
def test_every_command_in_documents_is_understood(
    page: str, command: str, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that take hours, several machines, or data that is not here: program, flags and choices exist."""
    understand(command, monkeypatch, whole=whole)


@pytest.mark.parametrize(
    "command",
    [
        "rehead predict RUN x.csv --no-such-flag",
        "rehead nothing x.csv",
        "rehead pretrain x.txt --out RUN --preset huge",
        "torchrun --no-such-flag 2 -m rehead pretrain x.txt --out RUN",
        "torchrun --nproc-per-node 2 -m rehead pretrain x.txt --out RUN --no-such-flag",
        "make tea",
        "python bench/predict.py RUN",
        "python bench/nothing.py",
    ],
)
def test_what_a_command_gets_wrong_is_seen(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises((SystemExit, AssertionError, FileNotFoundError)):
        understand(command, monkeypatch)


def test_a_flag_that_is_not_there_is_seen_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    understand("rehead predict … --resume", monkeypatch, whole=False)
    with pytest.raises(AssertionError):
        understand("rehead predict … --res", monkeypatch, whole=False)


def test_commands_are_found_wherever_they_stand() -> None:
    page = """Try `rehead data check
a.csv`, which `rehead` can.

    OMP_NUM_THREADS=1 python bench/a.py b > c
    torchrun --nproc-per-node 2 \\
      -m rehead pretrain a.txt

```
make test   # all
```

```console
$ rehead demo
some output
```
"""
    assert commands_in(page) == {
        "rehead data check a.csv": False,
        "make test": True,
        "rehead demo": True,
        "python bench/a.py b": True,
        "torchrun --nproc-per-node 2 -m rehead pretrain a.txt": True,
    }


SNIPPETS = [
    (page, snippet)
    for page in PAGES
    for snippet in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
]


@pytest.mark.parametrize(("page", "snippet"), SNIPPETS, ids=[page.name for page, _ in SNIPPETS])
def test_snippets_in_documents_print_what_their_comments_say(
    page: Path, snippet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(snippet, {"__name__": "__main__"})
    comments = [line.removeprefix("#") for line in snippet.splitlines() if line.startswith("#")]
    assert " ".join(comments).split() == printed.getvalue().split()


def test_there_are_commands_to_check() -> None:
    assert any("inspect --preset lab" in block[0][0] for _, block in BLOCKS)


def test_the_mistakes_cost_what_the_page_says() -> None:
    """Each mistake made on purpose, in code, and its cost compared with the table."""
    config = preset("lab")
    counted = account(config, config.classifier(2))
    parts = {row.part: row.count for row in counted.rows}
    nhid, layers, heads = config.nhid, config.nlayers, config.nhead
    linear_biases = layers * (4 * nhid + config.nff + nhid)
    shifts = layers * 2 * nhid
    mistakes = {
        "Forgetting the biases of the layers": -linear_biases,
        "… and the bias of the language-model head": -linear_biases - config.ntokens,
        "… and the shifts of the norms": -linear_biases - config.ntokens - shifts,
        "Forgetting the attention's output projection": -layers * parts["attention output"],
        "Multiplying Q, K and V by the number of heads": layers * 3 * parts["attention Q"] * (heads - 1),
        "Taking Q, K and V for the size of a single head": -layers
        * 3
        * (parts["attention Q"] - (nhid * (nhid // heads) + nhid // heads)),
        "Counting a norm as 2 · nhead": -layers * (parts["two norms"] - 2 * 2 * heads),
        "Leaving the language-model head out": -parts["language-model head"],
        "Counting the language-model head in the classifier": parts["language-model head"],
        "Taking the head's matrix for the embedding": -nhid * config.ntokens,
        "Counting a sinusoidal table": config.maxlen * nhid,
        "Making the feed-forward four times as wide": account(preset("lab", ffmult=4.0), config.classifier(2)).total(
            "language model"
        )
        - counted.total("language model"),
    }
    page = (ROOT / "docs" / "parameters.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and "off by" not in line]
    assert len(rows) == len(mistakes)
    for (mistake, cost), row in zip(mistakes.items(), rows, strict=True):
        assert mistake in row
        assert row.endswith(f"| {cost:+,} |".replace("-", "−")), (row, cost)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                other = page.parent / target if target else page
                assert other.exists(), f"{page.name} links to {target}"
                assert not anchor or anchor in anchors(other), f"{page.name} links to {target}#{anchor}"


def test_every_table_has_a_head() -> None:
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            assert re.match(r".*\n\|(?:-+\|)+\n", table), f"{page.name}: a table begins with {table.splitlines()[0]}"
