"""Runs that carry bases of others, or refer to them; and several bases as one."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rehead.disk import read_checksummed_json, write_checksummed_json
from rehead.errors import DamagedError, UserError
from rehead.finetune.fit import fit_classifier
from rehead.finetune.options import FitOptions
from rehead.model.config import preset
from rehead.model.model import Model
from rehead.runs.run import Run, bring, load, save
from rehead.runs.scoring import class_logits, document_vectors
from rehead.runs.starting import combine, fingerprint, open_bases
from tests.bases.tiny import TEXTS, make_encoder, make_model2vec, make_vectors
from tests.finetune.sets import reviews


def classifier(base: Run) -> Run:
    """A classifier that reads the base's vectors alone."""
    return fit_classifier(reviews(40), None, base=base, options=FitOptions(freeze="base")).run


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    root = make_encoder(tmp_path / "tiny")
    path = save(classifier(bring(root)), tmp_path / "run")
    shutil.rmtree(root)
    return path


def test_a_run_carries_what_it_needs(tmp_path: Path) -> None:
    root = make_encoder(tmp_path / "tiny")
    (root / "LICENSE").write_text("as you like")
    made = classifier(bring(root))
    expected = class_logits(made, TEXTS)
    path = save(made, tmp_path / "run")
    shutil.rmtree(root)
    loaded = load(path)
    np.testing.assert_allclose(class_logits(loaded, TEXTS), expected, atol=1e-6)
    assert loaded.model.config.empty
    assert loaded.tokenizer is None
    assert (path / "bases" / "encoder-tiny" / "LICENSE").exists()
    assert "pretrained by others" in (path / "README.md").read_text()
    # Again from there, also over itself.
    again = load(save(loaded, path, overwrite=True))
    np.testing.assert_allclose(class_logits(again, TEXTS), expected, atol=1e-6)


def test_a_table_that_was_converted_is_carried(tmp_path: Path) -> None:
    make_vectors(tmp_path / "v.vec")
    made = classifier(bring(tmp_path / "v.vec", link=True))
    path = save(made, tmp_path / "run")
    (tmp_path / "v.vec").unlink()
    np.testing.assert_allclose(class_logits(load(path), TEXTS), class_logits(made, TEXTS), atol=1e-6)


def test_a_linked_base_is_not_copied_and_must_not_change(tmp_path: Path) -> None:
    root = make_encoder(tmp_path / "tiny")
    made = classifier(bring(root, link=True))
    path = save(made, tmp_path / "run")
    assert not (path / "bases").exists()
    np.testing.assert_allclose(class_logits(load(path), TEXTS), class_logits(made, TEXTS), atol=1e-6)
    assert load(path).model.brought["encoder:tiny"].linked
    make_encoder(root, seed=1)
    with pytest.raises(DamagedError, match="SHA-256 differs"):
        load(path)
    shutil.rmtree(root)
    with pytest.raises(DamagedError, match="linked"):
        load(path)


def test_changed_missing_and_additional_files_are_refused(saved: Path) -> None:
    home = saved / "bases" / "encoder-tiny"
    (home / "adapter_config.json").write_text("{}")
    with pytest.raises(DamagedError, match="adapter_config"):
        load(saved)
    (home / "adapter_config.json").unlink()
    load(saved)
    fields = json.loads((home / "config.json").read_text())
    (home / "config.json").write_text(json.dumps(fields | {"layer_norm_eps": 0.5}))
    with pytest.raises(DamagedError, match="SHA-256 differs"):
        load(saved)
    (home / "config.json").unlink()
    with pytest.raises(DamagedError, match=r"missing|not there"):
        load(saved)


def test_a_link_out_of_the_run_is_refused(saved: Path) -> None:
    home = saved / "bases" / "encoder-tiny"
    home.rename(saved.parent / "elsewhere")
    home.symlink_to(saved.parent / "elsewhere")
    with pytest.raises(DamagedError, match="outside"):
        load(saved)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ([], "an object of bases"),
        ({"encoder:../../x": {}}, "Expected encoder:NAME"),
        ({"encoder:tiny": {"files": {}}}, "Expected files"),
        ({"encoder:tiny": {"source": 1, "license": None, "link": None, "files": {"a": "b"}}}, "texts"),
        ({"encoder:tiny": {"source": "x", "license": None, "link": None, "files": {}}}, "digest of each"),
        (
            {"encoder:tiny": {"source": "x", "license": None, "link": None, "files": {"../a": "b"}}},
            "not a file of the run",
        ),
        ({}, "no such base"),
    ],
)
def test_a_config_that_lies_is_refused(saved: Path, change: Any, said: str) -> None:
    fields = read_checksummed_json(saved / "config.json")
    write_checksummed_json(saved / "config.json", fields | {"brought": change})
    with pytest.raises(DamagedError, match=said):
        load(saved)


def test_a_base_of_others_is_a_run_to_start_from(tmp_path: Path) -> None:
    run = load(make_encoder(tmp_path / "tiny"))
    assert (list(run.model.brought), run.model.config.empty, run.labels) == (["encoder:tiny"], True, None)
    np.testing.assert_array_equal(document_vectors(run, TEXTS), run.model.brought["encoder:tiny"].engine.encode(TEXTS))
    again = load(save(run, tmp_path / "run"))
    np.testing.assert_array_equal(document_vectors(again, TEXTS), document_vectors(run, TEXTS))


def test_several_bases_are_one_run_and_none_is_changed(tmp_path: Path) -> None:
    own = Run(Model(preset("bag", ntokens=50, nhid=8, nbuckets=16)).eval(), digest="own")
    one, two = (bring(make_encoder(tmp_path / name / "tiny", seed=number)) for number, name in enumerate("ab"))
    table = bring(make_model2vec(tmp_path / "table"))
    found = combine([one, own, two, table])
    assert list(found.model.brought) == ["encoder:tiny", "encoder:tiny-2", "static:table"]
    assert found.model.base is own.model.base
    assert found.digest == "own"
    assert not own.model.brought
    assert list(two.model.brought) == ["encoder:tiny"]
    assert fingerprint(found) == ["own", *(each.digest for each in found.model.brought.values())]
    with pytest.raises(UserError, match="given twice"):
        combine([one, own, one])
    with pytest.raises(UserError, match="2 bases of rehead's own"):
        combine([own, own])
    assert combine([own]) is own
    torch.testing.assert_close(combine([one, two]).model.base.embedding.weight, torch.zeros(0, 1))


def test_runs_without_a_base_cannot_be_started_from(tmp_path: Path) -> None:
    data = reviews(40)
    base = Run(Model(preset("bag", ntokens=50, nhid=8, nbuckets=16)).eval())
    with pytest.raises(UserError, match="tokenizer"):
        open_bases([save(base, tmp_path / "no-tokenizer")])
    made = fit_classifier(data, None, base=bring(make_encoder(tmp_path / "tiny")), options=FitOptions()).run
    views = tuple(view for view in made.model.head_config.views if view.kind != "encoder")
    assert views
    head = made.model.head
    made.model.head_config = head.config = type(head.config)(classes=2, views=views)
    for name in [name for name in head.views if name.startswith("encoder")]:
        del head.views[name]
    made.model.brought = {}
    with pytest.raises(UserError, match="no base"):
        open_bases([save(made, tmp_path / "words")])


@pytest.mark.parametrize(
    "link",
    ["/", "/dev", "/dev/zero", "..", "", "\0", "\ud800", "\x1b[2J", "x" * 5000, "/proc/self/fd", "fifo"],
    ids=["root", "devices", "a device", "above", "empty", "NUL", "half a pair", "escape", "long", "open files", "fifo"],
)
def test_a_link_to_anywhere_is_refused_in_one_line(saved: Path, link: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A linked base is the one path out of a run: where it leads, there must be a base with the digests of the run."""
    monkeypatch.chdir(saved.parent)
    (saved.parent / "fifo").mkdir()
    os.mkfifo(saved.parent / "fifo" / "config.json")
    fields = read_checksummed_json(saved / "config.json")
    fields["brought"]["encoder:tiny"]["link"] = link
    write_checksummed_json(saved / "config.json", fields)
    with pytest.raises(DamagedError) as refused:
        load(saved)
    assert "\n" not in str(refused.value)
