"""What the documents say is what the program does."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rehead.model.accounting import account
from rehead.model.config import preset

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


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


@pytest.mark.parametrize(("page", "block"), BLOCKS, ids=[f"{page.name}: {block[0][0]}" for page, block in BLOCKS])
def test_commands_in_documents_print_what_is_shown(page: Path, block: list[tuple[str, str]], tmp_path: Path) -> None:
    """A line `…` stands for the beginning of the output; a leak is a finding, and exit code 1."""
    for name, content in files(page).items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    for command, output in block:
        words = shlex.split(command)
        assert words[0] == "rehead", f"{page.name}: only rehead commands belong in a console block"
        done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == int("LEAK" in done.stdout), done.stderr
        shown, printed = bare(output), bare(done.stdout)
        if shown and shown[0] == "…":
            shown = shown[1:]
            printed = printed[-len(shown) :]
        assert shown in ([], printed)


SNIPPETS = [
    (page, snippet)
    for page in PAGES
    for snippet in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
]


@pytest.mark.parametrize(("page", "snippet"), SNIPPETS, ids=[page.name for page, _ in SNIPPETS])
def test_snippets_in_documents_print_what_their_comments_say(page: Path, snippet: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    comments = [line.removeprefix("#") for line in snippet.splitlines() if line.startswith("#")]
    assert " ".join(comments).split() == done.stdout.split()


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


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
