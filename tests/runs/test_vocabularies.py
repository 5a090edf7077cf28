"""Vocabularies in runs: hashes that could not be looked up are refused when a run is loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rehead.cli import main
from rehead.disk import read_checksummed_json, sha256, write_checksummed_json
from rehead.errors import DamagedError
from rehead.runs.run import FORMAT, load, save
from rehead.runs.scoring import class_logits
from tests.use.text_classifiers import TEXTS, text_classifier

Tensors = dict[str, torch.Tensor]


def forged(
    path: Path,
    tensors: Callable[[Tensors], object] = lambda _: None,
    config: Callable[[dict[str, Any]], object] = lambda _: None,
) -> Path:
    """Save a classifier that reads text, change it, and sign it again."""
    save(text_classifier("all"), path)
    weights = load_file(path / "model.safetensors")
    tensors(weights)
    save_file({name: each.contiguous() for name, each in weights.items()}, path / "model.safetensors")
    stated = read_checksummed_json(path / "config.json")
    stated["files"]["model.safetensors"] = sha256(path / "model.safetensors")
    config(stated)
    write_checksummed_json(path / "config.json", stated)
    return path


def put(name: str, *places: tuple[Any, float]) -> Callable[[Tensors], None]:
    """Change single values of a tensor."""

    def change(tensors: Tensors) -> None:
        for place, value in places:
            tensors[name][place] = value

    return change


def flip(name: str) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.update({name: tensors[name].flip(0)})


DAMAGE: dict[str, tuple[Callable[[Tensors], object], str]] = {
    f"{name}: {what}": (change(f"head.views.{name}.keys"), f"head.views.{name}.keys")
    for name in ("words", "characters", "lsa")
    for what, change in {
        "unsorted": flip,
        "twice the same": lambda key: lambda t: t[key][1].copy_(t[key][0]),
        "a fraction": lambda key: put(key, ((2, 0), 0.5)),
        "negative": lambda key: put(key, ((0, 0), -1)),
        "beyond 2^24": lambda key: put(key, ((-1, 1), 2.0**24)),
        "far beyond": lambda key: put(key, ((-1, 0), 3e38)),
        "NaN": lambda key: put(key, ((3, 1), float("nan"))),
        "infinite": lambda key: put(key, ((3, 1), float("inf"))),
    }.items()
} | {
    "lsa: characters before words": (flip("head.views.lsa.kind"), "head.views.lsa.kind"),
    "lsa: a third kind": (put("head.views.lsa.kind", (-1, 2)), "head.views.lsa.kind"),
    "lsa: half a kind": (put("head.views.lsa.kind", (0, 0.5)), "head.views.lsa.kind"),
    "lsa: no kinds": (lambda t: t.pop("head.views.lsa.kind"), "head.views.lsa.kind"),
    "lsa: a table of another width": (
        lambda t: t.update({"head.views.lsa.table": t["head.views.lsa.table"][:, 1:]}), "head.views.lsa.table",
    ),
    "lsa: a table that is not finite": (put("head.views.lsa.table", ((0, 0), float("inf"))), "head.views.lsa.table"),
    "words: fewer hashes": (
        lambda t: t.update({"head.views.words.keys": t["head.views.words.keys"][1:]}), "head.views.words.keys",
    ),
    "words: no idf": (lambda t: t.pop("head.views.words.scale"), "head.views.words.scale"),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_vocabulary_is_refused_in_one_line(what: str, tmp_path: Path) -> None:
    change, said = DAMAGE[what]
    path = forged(tmp_path / "run", change)
    with pytest.raises(DamagedError) as caught:
        load(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


VIEWS: dict[str, tuple[int, dict[str, Any], str]] = {
    # the view, by its place: bag, words, characters, lsa
    "more terms": (1, {"terms": 10**6}, "columns"),
    "no terms": (1, {"terms": 0}, "columns"),
    "negative terms": (1, {"terms": -1}, "terms=-1"),
    "too many terms": (1, {"terms": 2**24 + 1}, "terms"),
    "terms of a vector view": (0, {"terms": 3}, "terms"),
    "lsa without terms": (3, {"terms": 0}, "terms=0"),
    "lsa that is sparse": (3, {"sparse": True}, "sparse"),
    "lsa of more columns": (3, {"columns": 2**31}, "head.views.lsa"),
    "unknown options": (2, {"options": {"n": 3}}, "'n'"),
    "terms that are a text": (2, {"terms": "9"}, "terms='9'"),
}


@pytest.mark.parametrize("what", VIEWS)
def test_a_config_that_does_not_fit_is_refused_in_one_line(what: str, tmp_path: Path) -> None:
    place, fields, said = VIEWS[what]
    path = forged(tmp_path / "run", config=lambda config: config["head"]["views"][place].update(fields))
    with pytest.raises(DamagedError) as caught:
        load(path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_command_line_says_it_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = forged(tmp_path / "run", flip("head.views.words.keys"))
    (tmp_path / "new.csv").write_text("text\na film\n", encoding="utf-8")
    assert main(["predict", str(path), str(tmp_path / "new.csv"), "--out", str(tmp_path / "out.csv")]) == 2
    said = capsys.readouterr().err
    assert "head.views.words.keys is not in ascending order" in said
    assert said.count("\n") == 1


def test_what_is_only_signed_again_is_accepted(tmp_path: Path) -> None:
    back = load(forged(tmp_path / "run"))
    np.testing.assert_array_equal(class_logits(back, TEXTS), class_logits(text_classifier("all"), TEXTS))
    assert read_checksummed_json(tmp_path / "run" / "config.json")["format"] == FORMAT
