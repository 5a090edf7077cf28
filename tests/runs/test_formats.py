"""Runs of older formats: what they scored when they were written, they score now (tests/golden)."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import rehead
from rehead.disk import read_checksummed_json, sha256, write_checksummed_json
from rehead.errors import DamagedError
from rehead.model.config import Classifier
from rehead.runs.run import FORMAT, Run, load, save
from rehead.runs.scoring import class_logits, document_vectors
from rehead.use.explain import explain
from rehead.use.labeller import Labeller

GOLDEN = Path(__file__).parents[1] / "golden"
WITHIN = {1: 1e-5, 2: 2e-6, 3: 2e-6}  # by format: how near the scores are, which are stored to six digits
RECORDED: dict[int, dict[str, Any]] = {
    version: json.loads((GOLDEN / f"format{version}" / "scores.json").read_text(encoding="utf-8")) for version in WITHIN
}
TEXTS: list[str] = RECORDED[1]["texts"]
RUNS: list[tuple[int, str]] = [(version, name) for version in WITHIN for name in RECORDED[version]["runs"]]


def golden(version: int, name: str) -> Path:
    return GOLDEN / f"format{version}" / name


def scores(run: Run) -> dict[str, Any]:
    """What was recorded of a run: a vector for each text; or scores, and the explanation of the first text."""
    if not isinstance(run.model.head_config, Classifier):
        return {"vectors": document_vectors(run, TEXTS)}
    (first,) = explain(Labeller.of(run), TEXTS[:1])
    return {
        "logits": class_logits(run, TEXTS),
        "label": first.label,
        "weights": [each.weight for each in first.words],
    }


def check(found: dict[str, Any], expected: dict[str, Any], within: float) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if name == "label":
            assert found[name] == value
        else:
            np.testing.assert_allclose(found[name], value, atol=within, err_msg=name)


def test_every_golden_run_has_its_scores() -> None:
    assert set(WITHIN) == set(range(1, FORMAT))
    for version in WITHIN:
        names = {each.name for each in (GOLDEN / f"format{version}").iterdir() if each.is_dir()}
        assert names == set(RECORDED[version]["runs"])
        assert {read_checksummed_json(golden(version, name) / "config.json")["format"] for name in names} == {version}
        assert RECORDED[version]["texts"] == TEXTS


@pytest.mark.parametrize(("version", "name"), RUNS)
def test_a_run_of_an_older_format_scores_as_it_did(version: int, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is loaded as any other run is, and nothing is said about its age."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = rehead.load(golden(version, name))
    assert capsys.readouterr() == ("", "")
    assert not run.model.training
    assert all(each.requires_grad for each in run.model.parameters())
    check(scores(run), RECORDED[version]["runs"][name], WITHIN[version])


@pytest.mark.parametrize(("version", "name"), RUNS)
def test_saved_again_it_is_of_the_newest_format_and_scores_the_same(version: int, name: str, tmp_path: Path) -> None:
    old = load(golden(version, name))
    path = save(old, tmp_path / "run")
    assert read_checksummed_json(path / "config.json")["format"] == FORMAT == 4
    again = load(path)
    assert again.model.config == old.model.config
    assert again.model.head_config == old.model.head_config
    assert (again.labels, again.details) == (old.labels, old.details)
    check(scores(again), scores(old), 0)
    for key, tensor in old.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[key], tensor), key


LAYERS = {"causal": False, "pooling": "mean"}
# What was called `words` then, and read tokens of the base, is called `tokens` now.
STATED: dict[str, tuple[str, int, list[tuple[str, bool, dict[str, Any]]]]] = {
    # run: what its base reads, layers, and the views of its classifier: name, unit, options
    "base-bag": ("bag", 0, []),
    "base-untrained-layers": ("bag", 2, []),
    "base-layers": ("layers", 2, []),
    "base-lab": ("layers", 2, []),
    "recipe": ("bag", 0, [("bag", True, {"distinct": True, "max_length": None}), ("tokens", True, {})]),
    "recipe-multilabel": ("bag", 0, [("bag", True, {"distinct": True, "max_length": None}), ("tokens", True, {})]),
    "recipe-layers": ("bag", 0, [("bag", True, {"distinct": True, "max_length": None}), ("tokens", True, {})]),
    "gradient-bag": ("bag", 0, [("bag", False, {"distinct": False, "max_length": None, "long": "head+tail"})]),
    "gradient-layers": ("layers", 2, [("layers", False, {**LAYERS, "max_length": 64, "long": "head+tail"})]),
    "gradient-lab": ("layers", 2, [("layers", False, {"causal": True, "pooling": "last", "max_length": 32})]),
    "frozen-layers": ("layers", 2, [("layers", True, {**LAYERS, "max_length": None}), ("tokens", True, {})]),
}


TRAINED = [(2, "recipe"), (2, "recipe-layers")]  # the recipe chose training by gradient


@pytest.mark.parametrize(("version", "name"), [each for each in RUNS if each[0] < 3])
def test_the_converted_config_states_what_is_read(version: int, name: str) -> None:
    reads, layers, views = STATED[name]
    model = load(golden(version, name)).model
    assert (model.config.reads, model.config.nlayers) == (reads, layers)
    head = model.head_config
    found = head.views if isinstance(head, Classifier) else ()
    assert [(view.name, view.unit) for view in found] == [(view, unit) for view, unit, _ in views]
    for view, (_, _, options) in zip(found, views, strict=True):
        long = "head+tail" if (version, name) in TRAINED else "windows"
        whole = {"long": long} | options if view.name != "tokens" else {}
        assert view.options == whole
        assert view.columns == (model.config.ntokens + model.config.nbuckets if view.sparse else model.config.nhid)
        assert view.terms == 0
    assert "reading" not in load(golden(version, name)).details


VIEWS_OF_FORMAT_3 = {
    "recipe": ["bag", "words", "characters", "lsa"],
    "recipe-multilabel": ["words", "characters", "lsa"],
    "frozen-bag": ["bag"],
    "frozen-layers": ["bag"],
}


@pytest.mark.parametrize("name", list(VIEWS_OF_FORMAT_3))
def test_format_3_differs_by_the_rows_of_sparse_weights_alone(name: str, tmp_path: Path) -> None:
    old = load(golden(3, name))
    assert isinstance(old.model.head_config, Classifier)
    assert [view.name for view in old.model.head_config.views] == VIEWS_OF_FORMAT_3[name]
    again = read_checksummed_json(save(old, tmp_path / "run") / "config.json")
    before = read_checksummed_json(golden(3, name) / "config.json")
    assert (again["model"], again["head"]) == (before["model"], before["head"])


def test_a_base_keeps_the_statistics_of_both_views() -> None:
    """Format 1 had those of what is read, and `past_…` for what lies under the layers."""
    old = load_file(golden(1, "base-layers") / "model.safetensors")
    statistics = load(golden(1, "base-layers")).model.base.statistics
    for view, prefix in (("layers", ""), ("bag", "past_")):
        found = statistics.of(view)
        assert found is not None
        assert torch.equal(found[0], old[f"base.spread.{prefix}centre"])
        assert torch.equal(found[1], old[f"base.spread.{prefix}covariance"])
    assert torch.equal(statistics.frequency, old["base.spread.frequency"])
    untrained = load(golden(1, "base-untrained-layers")).model.base.statistics
    assert untrained.of("bag") is not None
    assert untrained.of("layers") is None


def altered(
    name: str,
    tmp_path: Path,
    config: Callable[[dict[str, Any]], object] = lambda _: None,
    tensors: Callable[[dict[str, torch.Tensor]], object] = lambda _: None,
    version: int = 1,
) -> Path:
    """Copy a golden run, change it, and sign it again."""
    path = Path(shutil.copytree(golden(version, name), tmp_path / "run"))
    weights = load_file(path / "model.safetensors")
    tensors(weights)
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    stated = read_checksummed_json(path / "config.json")
    stated["files"]["model.safetensors"] = sha256(path / "model.safetensors")
    config(stated)
    write_checksummed_json(path / "config.json", stated)
    return path


def test_the_oldest_runs_know_nothing_of_what_lies_under_their_layers(tmp_path: Path) -> None:
    def without(tensors: dict[str, torch.Tensor]) -> None:
        for name in [each for each in tensors if "past_" in each]:
            del tensors[name]

    statistics = load(altered("base-layers", tmp_path, tensors=without)).model.base.statistics
    assert statistics.of("bag") is None
    assert statistics.of("layers") is not None


@pytest.mark.parametrize(
    ("version", "newer"), [(FORMAT + 1, True), (2**40, True), (0, False), (-1, False), ("1", False), (None, False)]
)
def test_other_formats_are_refused(version: object, newer: bool, tmp_path: Path) -> None:
    path = altered("recipe", tmp_path, lambda config: config.update(format=version))
    with pytest.raises(DamagedError) as caught:
        load(path)
    assert f"format {version!r}" in str(caught.value)
    assert ("upgrade rehead" in str(caught.value)) == newer


DAMAGE: dict[str, tuple[str, dict[str, Any], str]] = {
    "no pooling": ("recipe", {"config": lambda c: c["head"].pop("pooling")}, "'pooling'"),
    "another pooling": ("recipe", {"config": lambda c: c["head"].update(pooling="sum")}, "'sum'"),
    "a pooling that is a list": ("recipe", {"config": lambda c: c["head"].update(pooling=["mean"])}, "['mean']"),
    "the last state of a bag": ("recipe", {"config": lambda c: c["head"].update(pooling="last")}, "'last'"),
    "distinct rows past trained layers": (
        "gradient-layers", {"config": lambda c: c["head"].update(pooling="distinct")}, "'distinct'",
    ),
    "views, as format 2 has them": ("recipe", {"config": lambda c: c["head"].update(views=[])}, "'views'"),
    "one more field": ("recipe", {"config": lambda c: c["head"].update(exec="x")}, "'exec'"),
    "a flag that is a number": ("recipe", {"config": lambda c: c["head"].update(unit=1)}, "unit=1"),
    "one class": ("recipe", {"config": lambda c: c["head"].update(classes=1)}, "classes=1"),
    "a head that is a list": ("recipe", {"config": lambda c: c.update(head=[])}, "[]"),
    "an unknown head": ("recipe", {"config": lambda c: c["head"].update(kind="x")}, "'x'"),
    "a base that states what is read": ("recipe", {"config": lambda c: c["model"].update(reads="bag")}, "model"),
    "a model that is none": ("recipe", {"config": lambda c: c.update(model=7)}, "7"),
    "pieces of no length": (
        "gradient-lab", {"config": lambda c: c["details"].update(reading={"longest": 0})}, "max_length=0",
    ),
    "a length that is a text": (
        "gradient-lab", {"config": lambda c: c["details"].update(reading={"longest": "9"})}, "max_length='9'",
    ),
    "another rule": ("gradient-lab", {"config": lambda c: c["details"].update(reading={"long": "middle"})}, "'middle'"),
    "an unknown name": ("gradient-lab", {"config": lambda c: c["details"].update(reading={"short": 1})}, "short"),
    "no weights": ("recipe", {"tensors": lambda t: t.pop("head.linear.weight")}, "head.linear.weight"),
    "no words": ("recipe", {"tensors": lambda t: t.pop("head.words.idf")}, "head.words.idf"),
    "words of another shape": ("recipe", {"tensors": lambda t: t.update({"head.words.idf": torch.ones(3)})}, "(3,)"),
    "no mean document": ("recipe", {"tensors": lambda t: t.pop("head.centre")}, "head.centre"),
    "an extra tensor": ("recipe", {"tensors": lambda t: t.update({"head.more": torch.ones(1)})}, "head.more"),
    "NaN": ("recipe", {"tensors": lambda t: t["head.linear.bias"].fill_(float("nan"))}, "NaN"),
    "statistics that are gone": ("base-bag", {"tensors": lambda t: t.pop("base.spread.frequency")}, "frequency"),
}  # fmt: skip


OLD_VIEWS: dict[str, tuple[dict[str, Any], str]] = {
    "today's name": ({"config": lambda c: c["head"]["views"][1].update(name="tokens")}, "'tokens'"),
    "a view that is new": ({"config": lambda c: c["head"]["views"][1].update(name="characters")}, "'characters'"),
    "words twice": ({"config": lambda c: c["head"]["views"].append(c["head"]["views"][1])}, "'tokens', 'tokens'"),
    "more columns": ({"config": lambda c: c["head"]["views"][1].update(columns=449)}, "449"),
    "a view that is a text": ({"config": lambda c: c["head"]["views"].append("words")}, "'words'"),
    "a view without a name": ({"config": lambda c: c["head"]["views"][1].pop("name")}, "'name'"),
    "no views": ({"config": lambda c: c["head"].update(views=[])}, "[]"),
    "views that are a number": ({"config": lambda c: c["head"].update(views=7)}, "7"),
    "a head that is a list": ({"config": lambda c: c.update(head=[])}, "[]"),
    "n-grams of the text": ({"config": lambda c: c["head"]["views"][1].update(terms=448)}, "terms=448"),
    "no idf": ({"tensors": lambda t: t.pop("head.views.words.scale")}, "head.views.words.scale"),
    "tokens in the file": (
        {"tensors": lambda t: t.update({"head.views.tokens.scale": t.pop("head.views.words.scale")})},
        "head.views.words.scale",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", list(OLD_VIEWS))
def test_damaged_runs_of_format_2_are_refused(what: str, tmp_path: Path) -> None:
    change, said = OLD_VIEWS[what]
    path = altered("recipe", tmp_path, **change, version=2)
    with pytest.raises(DamagedError) as caught:
        load(path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("what", list(DAMAGE))
def test_damaged_runs_of_format_1_are_refused(what: str, tmp_path: Path) -> None:
    name, change, said = DAMAGE[what]
    path = altered(name, tmp_path, **change)
    with pytest.raises(DamagedError) as caught:
        load(path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "run" in str(caught.value)


def test_a_truncated_file_of_format_1_is_refused(tmp_path: Path) -> None:
    path = Path(shutil.copytree(golden(1, "recipe"), tmp_path / "run"))
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    config = read_checksummed_json(path / "config.json")
    config["files"][file.name] = sha256(file)
    write_checksummed_json(path / "config.json", config)
    with pytest.raises(DamagedError, match=r"model\.safetensors"):
        load(path)
