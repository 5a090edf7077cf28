"""`rehead fill`, as a user calls it, on runs that have learnt four sentences."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
import torch

from rehead.model import Model
from rehead.runs.run import Run, save
from rehead.text.tokenizer import SPECIALS, Tokenizer
from rehead.use.fill import guess, mask_ids
from tests.model.conftest import alive, miniature
from tests.use.conftest import fruit_tokenizer, trained
from tests.use.tiny_runs import a_run, printed

Saved = Callable[..., str]


@pytest.mark.parametrize("objective", ["masked", "hybrid"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a [MASK] apple fell.", ["red"]),
        ("a [MASK] pear fell.", ["green"]),
        ("[MASK] café était bon.", ["le"]),
        ("[MASK] red [MASK] fell.", ["a", "apple"]),
        ("a yellow lemon rolled[MASK]", ["."]),
    ],
)
def test_it_reads_both_ways(
    objective: str, text: str, words: list[str], saved: Saved, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(printed(capsys, "fill", saved(objective), text, "--json")[0])
    assert [mask[0]["word"] for mask in document["masks"]] == words
    filled = text
    for word in words:
        filled = filled.replace("[MASK]", word, 1)
    assert document["filled"] == filled


@pytest.mark.parametrize("objective", ["masked", "hybrid"])
def test_probabilities_are_the_models(objective: str) -> None:
    """Against the head over every position: a masked run is asked at the mask, a hybrid run one place before."""
    run, tokenizer = trained(objective), fruit_tokenizer()
    ids = mask_ids(tokenizer, "a [MASK] apple [MASK].")
    assert ids[0] == tokenizer.eos
    places = [place for place, each in enumerate(ids) if each == tokenizer.mask]
    assert len(places) == 2
    with torch.no_grad():
        chances = run.model(torch.tensor([ids]), causal=False)[0].softmax(-1)
    for place, mask in zip(places, guess(run.model, tokenizer, ids, one_before=objective == "hybrid"), strict=True):
        row = chances[place - 1 if objective == "hybrid" else place]
        row[tokenizer.special_ids()] = 0.0
        best = row.topk(5)
        assert [each.id for each in mask] == best.indices.tolist()
        assert [each.probability for each in mask] == pytest.approx(best.values.tolist(), rel=1e-4)


@pytest.mark.parametrize("one_before", [False, True])
def test_of_a_long_text_a_mask_is_guessed_from_what_is_around_it(one_before: bool) -> None:
    """Learned positions end with the window: nothing beyond it can be read."""
    tokenizer, window = fruit_tokenizer(), 8
    config = miniature("lab", ntokens=tokenizer.vocab_size, positions="learned", maxlen=window)
    model = alive(config, config.language_model())
    ids = mask_ids(tokenizer, "[MASK] red apple fell. a green [MASK] pear fell. a yellow lemon [MASK]")
    places = [place for place, each in enumerate(ids) if each == tokenizer.mask]
    assert len(ids) > 2 * window
    begins = [0, places[1] - window // 2, len(ids) - window]
    found = guess(model, tokenizer, ids, one_before=one_before)
    for place, begin, mask in zip(places, begins, found, strict=True):
        with torch.no_grad():
            row = model(torch.tensor([ids[begin : begin + window]]), causal=False)[0, place - one_before - begin]
        expected = row.softmax(-1)[[each.id for each in mask]]
        assert [each.probability for each in mask] == pytest.approx(expected.tolist(), rel=1e-4)


def test_the_window_is_told_when_a_text_is_longer(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["fill", saved("masked"), "a red apple fell. " * 12 + "a [MASK] lemon rolled.", "--json"]
    out, err = printed(capsys, *arguments)
    assert json.loads(out)["masks"][0][0]["word"] == "yellow"
    assert err.startswith("note: ")
    assert " 48 tokens" in err
    assert err.count("\n") == 1
    assert printed(capsys, *arguments, "--quiet")[1] == ""


def test_the_table_shows_the_same(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["fill", saved("masked"), "a [MASK] lemon [MASK].", "--top", "3"]
    table, err = printed(capsys, *arguments)
    document = json.loads(printed(capsys, *arguments, "--json")[0])
    lines = table.splitlines()
    assert lines[0].split() == ["[MASK]", "word", "probability"]
    guesses = [each for mask in document["masks"] for each in mask]
    assert len(guesses) == 6
    for line, each in zip(lines[1:], guesses, strict=False):
        assert each["word"] in line
        assert f"{100 * each['probability']:.1f} %" in line
    assert lines[-1] == document["filled"]
    assert err == ""
    one, _ = printed(capsys, "fill", saved("masked"), "a [MASK] lemon")
    assert one.splitlines()[0].split() == ["word", "probability"]
    assert len(one.splitlines()) == 1 + 5 + 2


def test_marks_are_no_words() -> None:
    tokenizer = fruit_tokenizer()
    config = miniature("lab", ntokens=tokenizer.vocab_size + 4)
    model = alive(config, config.language_model())
    with torch.no_grad():
        model.head.bias[[*tokenizer.special_ids(), *range(tokenizer.vocab_size, config.ntokens)]] = 9.0  # type: ignore
    (mask,) = guess(model, tokenizer, mask_ids(tokenizer, "a [MASK]"), top=1000, one_before=False)
    assert {each.id for each in mask} == set(range(tokenizer.vocab_size)) - set(tokenizer.special_ids())
    assert sum(each.probability for each in mask) < 0.5
    assert all(each.word for each in mask)
    assert "(part of a character)" in {each.word for each in mask}


def metaspace_tokenizer() -> Tokenizer:
    words = [*SPECIALS, "▁film", "s", "▁", ","]
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: n for n, word in enumerate(words)}, "<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    inner.decoder = tokenizers.decoders.Metaspace()
    return Tokenizer(inner)


@pytest.mark.parametrize(
    ("before", "words"),
    [([2, 5], ["film", "…s", "' '", ","]), ([2, 5, 8], ["film", "s", "' '", ","]), ([2], ["film", "s", "''", ","])],
)
def test_words_as_people_read_them(before: list[int], words: list[str]) -> None:
    """A piece inside a word is marked; behind a comma or at the beginning it is a word."""
    config = miniature("bag", ntokens=9)
    model = Model(config, config.language_model()).eval()
    (mask,) = guess(model, metaspace_tokenizer(), [*before, 4], one_before=False)
    assert {each.id: each.word for each in mask} == dict(zip(range(5, 9), words, strict=True))


def test_a_text_from_standard_input(
    saved: Saved, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("a [MASK] pear fell.\n"))
    assert printed(capsys, "fill", saved("masked"), "-")[0].endswith("\na green pear fell.\n")


def test_what_is_wrong_is_one_line(saved: Saved, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    classifier = str(save(a_run(), tmp_path / "classifier"))
    bag = Run(Model(miniature("bag", ntokens=310)), fruit_tokenizer(), details={"objective": "document"})
    document = str(save(bag, tmp_path / "document"))
    text = "a [MASK] film"
    wrong = {
        "no run": ([str(tmp_path / "none"), text], "no such run"),
        "no mask": ([saved("masked"), "a film"], "no [MASK]"),
        "causal": ([saved("causal"), text], "its objective was causal"),
        "document": ([document, text], "its objective was document. Pretrain one with --objective masked or hybrid."),
        "a classifier": ([classifier, text], "is a classifier"),
        "none shown": ([saved("masked"), text, "--top", "0"], "--top=0"),
    }
    for name, (arguments, said) in wrong.items():
        out, err = printed(capsys, "fill", *arguments, code=2)
        assert err.startswith("rehead: error: "), name
        assert said in err, (name, err)
        assert err.count("\n") == 1, name
        assert out == "", name
