"""`rehead inspect` of bases that others pretrained: exact counts, attention as transformers computes it, scripts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from rehead.bases.bert import FAMILIES
from rehead.bases.brought import open_encoder
from rehead.bases.sources import open_brought
from rehead.cli import main
from rehead.model.config import Classifier
from rehead.runs.run import bring, save
from rehead.use.inspect_base import attention_weights, count_parts, describe_text
from rehead.views.encoder import EncoderOptions, EncoderView
from tests.bases.tiny import FAMILIES as TINY
from tests.bases.tiny import WORDS, make_encoder, make_model2vec, make_vectors, transformers

TEXT = "the film was very good"


@pytest.mark.parametrize("family", TINY)
def test_parts_add_up_to_all_parameters_of_transformers(family: str, tmp_path: Path) -> None:
    root = make_encoder(tmp_path / "model", family)
    parts = {each.part: each.count for each in count_parts(open_brought(root))}
    model = transformers.AutoModel.from_pretrained(root)
    assert sum(parts.values()) == sum(each.numel() for each in model.parameters())
    if family in FAMILIES:
        assert parts["token embeddings"] == model.get_input_embeddings().weight.numel()
        pooler = sum(each.numel() for name, each in model.named_parameters() if "pooler" in name)
        assert parts.get("pooler (not read)", 0) == pooler


@pytest.mark.parametrize("family", TINY)
def test_attention_weights_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    """Of any family; and texts are read as before they were asked for."""
    root = make_encoder(tmp_path / "model", family)
    encoder = open_encoder(root)
    vectors = encoder.encode([TEXT])
    ids = torch.tensor(encoder.token_ids([TEXT]))
    given, causal = attention_weights(encoder, ids)
    model = transformers.AutoModel.from_pretrained(root, attn_implementation="eager").eval()
    with torch.no_grad():
        expected = model(input_ids=ids, output_attentions=True).attentions
    assert len(given) == len(expected) == 2
    for weights, wanted in zip(given, expected, strict=True):
        np.testing.assert_allclose(weights.numpy(), wanted.numpy(), atol=1e-6)
        assert bool((weights[0].triu(1) == 0).all()) == causal == (family == "gpt2")
    assert (encoder.encode([TEXT]) == vectors).all()


def test_the_command_prints_parts_and_what_it_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = make_encoder(tmp_path / "model")
    assert main(["inspect", str(root), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["view"] == "encoder:model"
    assert sum(each["count"] for each in found["parts"]) == found["parameters"]
    assert found["reads"]["max_length"] == 40
    assert found["reads"]["scripts"] == {"Latin": len(WORDS)}  # special tokens are no words
    assert found["reads"]["unknown_characters"] == "become the unknown token"
    assert main(["inspect", str(root)]) == 0
    said = capsys.readouterr().out
    assert f"{found['parameters']:,}" in said
    assert "40 tokens of a text at once" in said


def test_attention_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    for family in ("bert", "modernbert", "gpt2"):
        root, out = make_encoder(tmp_path / family, family), tmp_path / f"plots-{family}"
        assert main(["inspect", str(root), "--text", TEXT, "--plots", str(out)]) == 0
        assert {each.name for each in out.iterdir()} == {"attention.png", "attention.svg"}
        seen = "itself and earlier tokens" if family == "gpt2" else "attends to all"
        assert seen in (out / "attention.svg").read_text()
    capsys.readouterr()
    for wrong in (["--text", TEXT], ["--plots", str(out)], ["--preset", "lab"], ["--classes", "3"]):
        assert main(["inspect", str(root), *wrong]) == 2
    table = make_model2vec(tmp_path / "table")
    assert main(["inspect", str(table), "--text", TEXT, "--plots", str(tmp_path / "no")]) == 2
    assert "no attention" in capsys.readouterr().err


def test_static_tables_and_words(tmp_path: Path) -> None:
    make_vectors(tmp_path / "some.vec")
    for source, rows, width in (
        (make_model2vec(tmp_path / "table"), len(WORDS) + 4, 8),
        (tmp_path / "some.vec", len(WORDS), 5),
    ):
        brought = open_brought(source)
        [part] = count_parts(brought)
        assert part.count == rows * width
        reads = describe_text(brought)
        assert reads["max_length"] is None
        assert reads["scripts"] == {"Latin": rows}


def test_a_classifier_without_a_base_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its table is that of the head, with what it reads of others beside it; no training work of a base it has not."""
    brought = open_brought(make_encoder(tmp_path / "tiny"))
    run = bring(make_encoder(tmp_path / "tiny"))
    view = EncoderView(run.model, EncoderOptions(base="tiny"))
    run.model.replace_head(Classifier(classes=3, views=(view.config(),)))
    run.labels = ["a", "b", "c"]
    save(run, tmp_path / "run")
    assert main(["inspect", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["brought"] == [brought.describe() | {"source": str(tmp_path / "tiny")}]
    assert main(["inspect", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert f"encoder:tiny, {brought.engine.parameters:,} parameters" in said
    assert "exactly 51 (classifier) parameters" in said  # 16 · 3 + 3
    for idle in ("language model", "n-grams", "Training work"):
        assert idle not in said
