"""Runs that are forged but signed: whatever stands in them, they load and answer, or are refused in one line."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from rehead import TextClassifier
from rehead.disk import read_checksummed_json, sha256, write_checksummed_json
from rehead.runs.card import card
from rehead.runs.run import load, save
from rehead.use.explain import explain
from rehead.use.labeller import Labeller
from tests.adversary.refusals import refusal
from tests.use.text_classifiers import text_classifier

TEXTS = ["good film", "", "a dull, dull film </s>"]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(text_classifier("words", multilabel=True), tmp_path_factory.mktemp("forged") / "sound")


def forge(sound: Path, to: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Copy a run, change its config, and sign it again."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(sound, to)
    config = read_checksummed_json(to / "config.json")
    change(config)
    write_checksummed_json(to / "config.json", config)
    return to


def use(path: Path) -> str | None:
    """Do all that can be done with a classifier; give the line by which it was refused, if it was."""

    def do_all() -> None:
        labeller = Labeller.open(path)
        found = labeller.labels(labeller.probabilities(TEXTS))
        assert all(labels is not None and set(labels) <= set(labeller.names) for labels in found)
        list(explain(labeller, TEXTS[:1]))
        TextClassifier.load(path).predict(TEXTS)
        card(load(path), "forged").encode()

    return refusal(do_all)


@pytest.mark.parametrize(
    "thresholds",
    [["a", "b", "c"], [1, 2, 3], [0, 0.5, 0.5], [0.5], [None] * 3, [True] * 3, [[0.5]] * 3, "0.5", 0.5, {}, [-1] * 3],
)
def test_thresholds_that_are_none(thresholds: object, sound: Path, tmp_path: Path) -> None:
    path = forge(sound, tmp_path / "run", lambda config: config["details"].update(thresholds=thresholds))
    assert "details.thresholds is" in (use(path) or "")


@pytest.mark.parametrize("always", ["yes", 1, [True], None])
def test_a_rule_that_is_neither_true_nor_false(always: object, sound: Path, tmp_path: Path) -> None:
    path = forge(sound, tmp_path / "run", lambda config: config["details"].update(at_least_one=always))
    assert "details.at_least_one is" in (use(path) or "")


@pytest.mark.parametrize("length", [10**30, 2**63, 2**41, 0, -1, 1.5, "9", [9]])
def test_lengths_that_no_text_has(length: object, tmp_path: Path) -> None:
    sound = save(text_classifier("all"), tmp_path / "sound")

    def change(config: dict[str, Any]) -> None:
        config["head"]["views"][0]["options"]["max_length"] = length

    assert "max_length" in (use(forge(sound, tmp_path / "run", change)) or "")


@pytest.mark.parametrize("labels", ['["a", "b", "\\ud800"]', '["a", "b", "\\udfffx"]', '["a", "b", 1e999]'])
def test_labels_that_cannot_be_written(labels: str, sound: Path, tmp_path: Path) -> None:
    path = replace(forge(sound, tmp_path / "run", lambda _: None), "labels.json", labels)
    assert "labels.json" in (use(path) or "")


def replace(path: Path, name: str, content: str) -> Path:
    """Replace a file of a run, and sign it again."""
    (path / name).write_text(content, encoding="utf-8")
    config = read_checksummed_json(path / "config.json")
    config["files"][name] = sha256(path / name)
    write_checksummed_json(path / "config.json", config)
    return path


@pytest.mark.parametrize("part", ["head.views", "base"])
@pytest.mark.parametrize("size", [3e38, -3e38])
def test_weights_whose_sums_are_no_numbers(part: str, size: float, tmp_path: Path) -> None:
    """Each is finite, as it must be; what they add up to is not."""
    path = save(text_classifier("all"), tmp_path / "run")
    weights = load_file(path / "model.safetensors")
    for name, each in weights.items():
        if name.startswith(part) and name.endswith((".weight", ".values")):
            each.fill_(size)
    save_file(weights, path / "model.safetensors")
    config = read_checksummed_json(path / "config.json")
    config["files"]["model.safetensors"] = sha256(path / "model.safetensors")
    write_checksummed_json(path / "config.json", config)
    assert "the scores of a text are no numbers" in (use(path) or "")


def test_a_tokenizer_with_dropout_answers_alike_and_says_so(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = json.loads((sound / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["model"]["dropout"] = 0.5
    path = replace(forge(sound, tmp_path / "run", lambda _: None), "tokenizer.json", json.dumps(tokenizer))
    run = load(path)
    assert "BPE dropout of 0.5 is switched off" in capsys.readouterr().err
    assert run.tokenizer is not None
    assert len({tuple(run.tokenizer.encode("a film of two people")) for _ in range(20)}) == 1


def test_a_tokenizer_bomb_is_refused_at_once(sound: Path, tmp_path: Path) -> None:
    tokenizer = json.loads((sound / "tokenizer.json").read_text(encoding="utf-8"))
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
    tokenizer["normalizer"] = {"type": "Sequence", "normalizers": [step] * 9}
    path = replace(forge(sound, tmp_path / "run", lambda _: None), "tokenizer.json", json.dumps(tokenizer))
    begin = time.perf_counter()
    assert "1,000,000,000 characters of one" in (use(path) or "")
    assert time.perf_counter() - begin < 5


def test_a_newer_format_says_to_upgrade(sound: Path, tmp_path: Path) -> None:
    """Also where everything else has changed, as it may in a later format."""

    def change(config: dict[str, Any]) -> None:
        config.clear()
        config.update({"format": 99, "rehead": "7.1", "parts": []})

    said = use(forge(sound, tmp_path / "run", change)) or ""
    assert "format 99" in said
    assert "(7.1): upgrade rehead" in said


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**30, -(10**30), 10**400, 1e300, 2**63])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
READ = [
    *("thresholds", "objective", "options", "estimator", "pretraining", "calibration", "validation", "candidates"),
    *("examples", "text", "base", "held_out", "seconds", "steps", "best_step", "collapsed", "seed", "method"),
]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(details=st.dictionaries(st.sampled_from(READ), VALUES, max_size=4))
def test_details_of_any_kind(details: dict[str, Any], sound: Path, tmp_path: Path) -> None:
    use(forge(sound, tmp_path / "run", lambda config: config.update(details=details)))


INSIDE = [
    *("accuracy", "macro_f1", "loss", "documents", "tokens", "train", "valid", "temperature", "error_before", "metric"),
    *("error_after", "origin", "classes", "dtype", "params", "length", "name", "kept", "examples", "fingerprint"),
]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(READ),
    inside=st.dictionaries(st.sampled_from(INSIDE), VALUES, max_size=4),
    listed=st.booleans(),
)
def test_details_with_the_names_that_are_read(
    name: str, inside: dict[str, Any], listed: bool, sound: Path, tmp_path: Path
) -> None:
    details = {name: [inside] if listed else inside}
    use(forge(sound, tmp_path / "run", lambda config: config.update(details=json.loads(json.dumps(details)))))
