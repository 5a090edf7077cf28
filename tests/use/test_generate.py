"""`rehead generate`, as a user calls it, on runs that have learnt four sentences."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rehead.model import Model
from rehead.runs.run import Run, save
from rehead.use.generate import Printer, generate_samples, prompt_ids
from rehead.use.sampling import Sampling
from tests.model.conftest import alive, miniature
from tests.use.conftest import SENTENCES, fruit_tokenizer, trained
from tests.use.tiny_runs import a_run, printed

Saved = Callable[..., str]


@pytest.mark.parametrize("objective", ["causal", "hybrid"])
def test_it_writes_what_it_learnt(objective: str, saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    for begin, whole in [("a red", SENTENCES[0]), ("a yellow lem", SENTENCES[2]), ("le café", SENTENCES[3])]:
        out, err = printed(capsys, "generate", saved(objective), "--prompt", begin, "--greedy")
        if begin != "a yellow lem":
            assert out == whole + "\n"
        assert out.startswith(begin)
        assert err == ""


def test_no_prompt_begins_a_text(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = printed(capsys, "generate", saved("causal"), "--n", "12", "--temperature", "1", "--top-p", "0.9")
    texts = [part.split("\n", 1)[1].strip("\n") for part in out.split("--- ")[1:]]
    assert len(texts) == 12
    assert set(texts) <= set(SENTENCES)
    assert len(set(texts)) > 2


def test_the_same_seed_gives_the_same_text(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    def text(seed: int, *more: str) -> str:
        arguments = ["--seed", str(seed), "--n", "3", "--temperature", "3", "--tokens", "20", *more]
        return printed(capsys, "generate", saved("causal"), *arguments)[0]

    assert text(1) == text(1) == text(1, "--no-cache")
    assert len({text(seed) for seed in range(5)}) == 5


def test_the_same_seed_gives_the_same_text_in_another_process(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["generate", saved("causal"), "--seed", "4", "--temperature", "3", "--top-k", "50", "--tokens", "20"]
    done = subprocess.run([sys.executable, "-m", "rehead", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == printed(capsys, *arguments)[0]


def test_json_is_one_document_with_the_same_text(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["generate", saved("causal"), "--prompt", "a", "--n", "2", "--temperature", "2", "--tokens", "6"]
    shown, _ = printed(capsys, *arguments)
    document = json.loads(printed(capsys, *arguments, "--json")[0])
    assert document["prompt"] == "a"
    assert document["prompt_tokens"] == 2
    assert document["sampling"] == {
        "temperature": 2.0,
        "top_k": None,
        "top_p": 0.95,
        "repetition_penalty": 1.0,
        "no_repeat_ngram": None,
    }
    first, second = (each["text"] for each in document["samples"])
    assert shown == f"--- 1 of 2\na{first}\n\n--- 2 of 2\na{second}\n"
    for each in document["samples"]:
        assert each["ended"] or each["tokens"] == 6


def test_a_text_is_cut_after_so_many_tokens(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = printed(capsys, "generate", saved("causal"), "--prompt", "a red", "--greedy", "--tokens", "1", "--json")
    assert json.loads(out)["samples"] == [{"text": " apple", "tokens": 1, "ended": False}]


def test_a_prompt_from_standard_input(
    saved: Saved, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in ("a green", "a green\n"):  # `echo` ends with a line break, which nobody means
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        assert printed(capsys, "generate", saved("causal"), "--prompt", "-", "--greedy")[0] == "a green pear fell.\n"


@pytest.mark.parametrize("arguments", [["generate", "causal", "--prompt"], ["fill", "masked"]])
def test_standard_input_that_is_no_text(
    arguments: list[str], saved: Saved, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9 [MASK]"), encoding="utf-8"))
    command, objective, *more = arguments
    err = printed(capsys, command, saved(objective), *more, "-", code=2)[1]
    assert err == "rehead: error: standard input is not UTF-8 (byte 3). Convert it.\n"


def test_marks_in_a_prompt_are_text() -> None:
    tokenizer = fruit_tokenizer()
    ids = prompt_ids(tokenizer, "a </s> [MASK]")
    assert ids[0] == tokenizer.eos
    assert not set(ids[1:]) & set(tokenizer.special_ids())
    assert tokenizer.decode(ids) == "a </s> [MASK]"
    assert prompt_ids(tokenizer, "") == [tokenizer.eos]


def wild(extra: int = 7) -> Model:
    """A model with more numbers than the tokenizer has tokens, which finds all marks and all of those likeliest."""
    tokenizer = fruit_tokenizer()
    config = miniature("lab", ntokens=tokenizer.vocab_size + extra)
    model = alive(config, config.language_model())
    with torch.no_grad():
        model.head.bias.zero_()  # type: ignore[union-attr,operator]
        model.head.bias[[*tokenizer.special_ids(), *range(tokenizer.vocab_size, config.ntokens)]] = 100.0  # type: ignore
        model.head.bias[tokenizer.eos] = 0.0  # type: ignore[union-attr,index,operator]
    return model


def test_marks_are_never_written() -> None:
    tokenizer = fruit_tokenizer()
    samples = generate_samples(wild(), tokenizer, [tokenizer.eos], Sampling(temperature=5.0), n=20, tokens=30)
    ids = {each for sample in samples for each in sample.ids}
    assert len(ids) > 100
    assert max(ids) < tokenizer.vocab_size
    assert not ids & set(tokenizer.special_ids())
    assert any(sample.ended for sample in samples)
    for sample in samples:
        assert sample.text == tokenizer.decode(sample.ids)


def test_text_is_shown_as_it_comes_in_whole_characters() -> None:
    """A run that writes bytes at random: what is shown, put together, is the text; nothing comes after the end."""
    tokenizer = fruit_tokenizer()
    shown: list[tuple[int, str, bool]] = []
    samples = generate_samples(
        wild(),
        tokenizer,
        [tokenizer.eos],
        Sampling(temperature=5.0),
        n=3,
        tokens=30,
        show=lambda *what: shown.append(what),
    )
    for number, sample in enumerate(samples):
        calls = [(text, over) for each, text, over in shown if each == number]
        assert "".join(text for text, _ in calls) == sample.text
        assert [over for _, over in calls] == [False] * (len(calls) - 1) + [True]
        assert len(calls) > 5


def test_samples_are_printed_one_behind_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer("P", 3)

    def prints(*what: tuple[int, str, bool]) -> str:
        for each in what:
            printer(*each)
        return capsys.readouterr().out

    assert prints() == "--- 1 of 3\nP"
    assert prints((0, " a", False)) == " a"
    assert prints((1, " b", False), (2, " c", True)) == ""
    assert prints((0, "!", True)) == "!\n\n--- 2 of 3\nP b"
    assert prints((1, "?", False)) == "?"
    assert prints((1, "", True)) == "\n\n--- 3 of 3\nP c\n"


def test_a_terminal_is_not_given_orders(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Printer("a\tb", 1)(0, "\x1b[2J\r\n", True)
    assert capsys.readouterr().out == "a\tb\x1b[2J\r\n\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    Printer("a\tb", 1)(0, "\x1b[2J\r\n", True)
    assert capsys.readouterr().out == "a\tb\ufffd[2J \n\n"


def test_nothing_waits_in_a_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was written when a step is over has been passed on, also to a pipe."""

    class Buffered(io.StringIO):
        passed_on = ""

        def flush(self) -> None:
            self.passed_on = self.getvalue()

    out = Buffered()
    monkeypatch.setattr(sys, "stdout", out)
    printer = Printer("a red", 1)
    assert out.passed_on == "a red"
    printer(0, " apple", False)
    assert out.passed_on == "a red apple"


def test_the_window_is_told_when_it_was_passed(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["generate", saved("causal"), "--prompt", "a red apple fell. " * 12, "--greedy", "--tokens", "3"]
    _, err = printed(capsys, *arguments)
    assert err.startswith("note: ")
    assert " 48 tokens" in err
    assert err.count("\n") == 1
    assert printed(capsys, *arguments, "--quiet")[1] == ""


def test_what_is_wrong_is_one_line(saved: Saved, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    classifier = str(save(a_run(), tmp_path / "classifier"))
    bag = Run(Model(miniature("bag", ntokens=310)), fruit_tokenizer(), details={"objective": "document"})
    document = str(save(bag, tmp_path / "document"))
    run = saved("causal")
    wrong = {
        "no run": ([str(tmp_path / "none")], "no such run"),
        "masked": ([saved("masked")], "not trained to continue a text: its objective was masked"),
        "document": ([document], "its objective was document. Pretrain one with --objective causal or hybrid."),
        "a classifier": ([classifier], "is a classifier without a language-model head"),
        "no tokens": ([run, "--tokens", "0"], "--tokens=0"),
        "no samples": ([run, "--n", "0"], "--n=0"),
        "cold": ([run, "--temperature", "-1"], "--temperature=-1"),
        "no top": ([run, "--top-k", "0"], "--top-k=0"),
        "no share": ([run, "--top-p", "0"], "--top-p=0"),
        "two temperatures": ([run, "--greedy", "--temperature", "0.5"], "--temperature=0.5"),
        "always the same": ([run, "--greedy", "--n", "2"], "--n=2"),
        "half a character": ([run, "--prompt", "a \udcff"], "cannot encode this text"),
    }
    for name, (arguments, said) in wrong.items():
        out, err = printed(capsys, "generate", *arguments, code=2)
        assert err.startswith("rehead: error: "), name
        assert said in err, (name, err)
        assert err.count("\n") == 1, name
        assert out == "", name


def test_repetition_can_be_held_back(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    """Behind "a red apple fell. a red", the run would go on as before."""
    arguments = [
        "generate",
        saved("causal"),
        "--prompt",
        "a red apple fell. a red",
        "--greedy",
        "--tokens",
        "1",
        "--json",
    ]
    assert json.loads(printed(capsys, *arguments)[0])["samples"][0]["text"] == " apple"
    for more in (["--no-repeat-ngram", "2"], ["--repetition-penalty", "50"]):
        assert json.loads(printed(capsys, *arguments, *more)[0])["samples"][0]["text"] != " apple"


def test_a_trained_run_writes_the_same_without_its_cache() -> None:
    run = trained("causal")
    tokenizer = fruit_tokenizer()
    how = Sampling(temperature=1.5, top_k=40, repetition_penalty=1.1)
    with_cache, without = (
        generate_samples(run.model, tokenizer, [tokenizer.eos], how, n=5, tokens=60, cached=cached)
        for cached in (True, False)
    )
    assert with_cache == without
