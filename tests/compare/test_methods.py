"""Bases that others pretrained in a comparison: each by itself, and all together."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rehead.cli import main
from rehead.compare import methods
from rehead.compare.methods import TOGETHER, with_together
from rehead.compare.options import CompareOptions
from rehead.compare.results import Method, load_results
from rehead.finetune.fitted import Fitted
from rehead.finetune.options import FitOptions
from rehead.model.config import preset
from rehead.model.model import Model
from rehead.runs.run import Run, bring
from tests.bases.tiny import make_encoder, make_model2vec, make_vectors
from tests.compare.conftest import reviews
from tests.compare.test_compare import write_csv


@pytest.mark.usefixtures("quick")
def test_each_base_by_itself_and_all_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "data.csv", reviews(80))
    write_csv(tmp_path / "test.csv", reviews(40, seed=1))
    make_encoder(tmp_path / "tiny")
    make_vectors(tmp_path / "v.vec")
    given = ["compare", "data.csv", "--test", "test.csv", "--from", "tiny", "--from", "v.vec", "--out", "out"]
    main(
        [
            *given,
            "--methods",
            "scratch,frozen,recipe,tfidf",
            "--seeds",
            "1",
            "--no-control",
            "--quiet",
            "--minutes",
            "0",
        ]
    )
    results = load_results(tmp_path / "out" / "results.json")
    kinds = [(each.kind, each.run) for each in results.methods]
    assert kinds == [
        ("frozen", "tiny"), ("frozen", "v.vec"),
        ("recipe", TOGETHER), ("recipe", "tiny"), ("recipe", "v.vec"), ("tfidf", None),
    ]  # fmt: skip
    assert results.ours is not None
    assert results.ours.run == TOGETHER
    notes = next(each.notes for each in results.scores if each.method == results.ours.key)
    assert any("of each view alone" in note for note in notes)
    assert any("was not tried: --minutes 0" in note for note in notes)
    assert any("pretrained by others (encoder:tiny" in line for line in results.run.runs)


@pytest.mark.parametrize(("name", "precision"), [("lab", "bfloat16"), ("bag", "auto")])
def test_the_precision_is_that_of_layers(name: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Predictions are computed in it, too."""
    small = {"nlayers": 1, "nhead": 1} if name == "lab" else {"nbuckets": 8}
    run = Run(Model(preset(name, ntokens=20, nhid=4, **small)).eval())
    asked: list[FitOptions] = []
    narrow: list[bool] = []

    def fit(*_: object, options: FitOptions, **__: object) -> Fitted:
        asked.append(options)
        return Fitted(run, [], [], 0.0)

    def probabilities(*_: object) -> None:
        narrow.append(torch.is_autocast_enabled("cpu"))

    monkeypatch.setattr(methods, "fit_classifier", fit)
    monkeypatch.setattr(methods, "class_probabilities", probabilities)
    options = CompareOptions(labelled=[], base=["b"], out=Path("out"), precision="bfloat16")
    method = Method("scratch", "scratch", "scratch", "", "b")
    trained = methods.train_method(method, run, reviews(4), reviews(4), 0, options)
    trained.predict(["a film"])
    assert [each.precision for each in asked] == [precision]
    assert narrow == [precision == "bfloat16"]


def test_together_needs_brought_bases_and_one_own_base_at_most(tmp_path: Path) -> None:
    own, other = (Run(Model(preset("bag", ntokens=20, nhid=4, nbuckets=8)).eval()) for _ in range(2))
    brought = {"tiny": bring(make_encoder(tmp_path / "tiny")), "table": bring(make_model2vec(tmp_path / "table"))}
    assert list(with_together({"own": own, **brought})) == [TOGETHER, "own", "tiny", "table"]
    assert list(with_together({"own": own, "other": other})) == ["own", "other"]
    assert list(with_together({"own": own, "other": other, **brought})) == ["own", "other", "tiny", "table"]
    assert list(with_together({"tiny": brought["tiny"]})) == ["tiny"]
