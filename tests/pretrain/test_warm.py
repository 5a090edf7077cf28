"""Warm starts: which weights they change, to what, and which they leave alone."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rehead.errors import UserError
from rehead.model.config import preset
from rehead.model.heads import LanguageModelHead
from rehead.model.model import Model
from rehead.model.objectives import parse_objective
from rehead.pretrain.document import Document
from rehead.pretrain.run import pretrain
from rehead.pretrain.warm import describe_warm_start, project, start_embeddings
from rehead.runs.run import load
from tests.pretrain.conftest import Corpus

TINY: dict[str, Any] = {"nhid": 16, "nlayers": 2, "nhead": 2, "vocab": 320, "length": 16, "quiet": True}


def lab(corpus: Corpus, **changes: Any) -> Model:
    torch.manual_seed(0)
    config = preset("lab", ntokens=corpus.tokenizer.vocab_size, nhid=16, nlayers=2, **changes)
    return Model(config, config.language_model())


def bag(model: Model, corpus: Corpus) -> Document:
    return Document(model, corpus.train, corpus.valid, time=16, batch=256, seed=0, fresh=True, layers=False)


def test_the_bag_of_the_lab_trains_the_embeddings_and_nothing_else(corpus: Corpus) -> None:
    model = lab(corpus)
    objective = bag(model, corpus)
    assert objective.bag
    idle = set(objective.idle())
    batch = objective.read(0)
    objective(batch.tensors).losses["document"].backward()
    moved = {name for name, each in model.named_parameters() if each.grad is not None and bool(each.grad.any())}
    assert moved == {"base.embedding.weight"}
    assert {name for name, each in model.named_parameters() if each not in idle} == moved


def test_warm_embeddings_have_the_size_of_fresh_ones(corpus: Corpus) -> None:
    model, fresh = lab(corpus), lab(corpus).base.embedding.weight
    with torch.no_grad():
        model.base.embedding.weight.copy_(torch.randn_like(fresh) * torch.rand(len(fresh), 1) * 7)
    objective = bag(model, corpus)
    before = model.base.embedding.weight.detach().clone()
    objective.conclude()
    after = model.base.embedding.weight.detach()
    torch.testing.assert_close(after.square().mean(), torch.tensor(0.1**2 / 3), rtol=1e-4, atol=0)
    torch.testing.assert_close(fresh.square().mean(), torch.tensor(0.1**2 / 3), rtol=0.05, atol=0)
    torch.testing.assert_close(after / after.norm(), before / before.norm())  # directions and proportions stay


def test_the_head_starts_as_the_embeddings_with_frequencies_as_biases(corpus: Corpus) -> None:
    model = lab(corpus)
    objective = bag(model, corpus)
    objective.conclude()
    assert isinstance(model.head, LanguageModelHead)
    assert model.head.weight is not None
    assert model.head.bias is not None
    assert model.head.weight is not model.base.embedding.weight
    assert torch.equal(model.head.weight, model.base.embedding.weight)
    ids = np.concatenate([np.asarray(corpus.train[each]) for each in range(len(corpus.train))])
    counted = np.bincount(ids, minlength=model.config.ntokens) + 1.0
    torch.testing.assert_close(model.head.bias.detach(), torch.from_numpy(np.log(counted / counted.sum())).float())


def test_a_bag_under_layers_that_start_as_the_identity_stays_as_it_is(corpus: Corpus) -> None:
    model = Model(preset("small", ntokens=corpus.tokenizer.vocab_size, nhid=16, nlayers=1, nbuckets=64))
    before = model.base.embedding.weight.detach().clone()
    objective = Document(model, corpus.train, corpus.valid, time=16, batch=256, seed=0, layers=False)
    objective.conclude()
    assert torch.equal(model.base.embedding.weight, before)


def test_bag_then_causal_has_the_parameters_of_the_lab(corpus: Corpus, tmp_path: Path) -> None:
    settings = {**TINY, "preset": "lab", "batch": 64, "tokens": 4000}
    warm = pretrain(corpus.file, out=tmp_path / "warm", objective="bag:0.9,causal:0.1", **settings)
    cold = pretrain(corpus.file, out=tmp_path / "cold", objective="causal", **settings)
    shapes = [{name: each.shape for name, each in run.model.named_parameters()} for run in (warm, cold)]
    assert shapes[0] == shapes[1]
    assert warm.model.config == cold.model.config
    lines = [json.loads(line) for line in (tmp_path / "warm" / "metrics.jsonl").read_text().splitlines()]
    assert lines, "both stages are logged"


def test_what_a_warm_start_warms_is_said_by_count(corpus: Corpus) -> None:
    model = lab(corpus)
    said = describe_warm_start(model, parse_objective("bag,causal"))
    table = corpus.tokenizer.vocab_size * 16
    head, layers = table + corpus.tokenizer.vocab_size, 2 * (4 * (16 * 16 + 16) + 2 * (16 * 16 + 16) + 4 * 16)
    assert said is not None
    assert f"({table:,} parameters)" in said
    assert f"head ({head:,})" in said
    assert f"layers ({layers:,})" in said
    assert describe_warm_start(model, parse_objective("causal")) is None
    assert describe_warm_start(model, parse_objective("bag")) is None
    assert describe_warm_start(model, parse_objective("document,causal")) is None


def write_vectors(path: Path, words: dict[str, list[float]]) -> Path:
    path.write_text("".join(f"{word} {' '.join(map(str, each))}\n" for word, each in words.items()))
    return path


def test_brought_vectors_start_their_tokens_and_leave_the_others(corpus: Corpus, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    words = {word: generator.normal(size=24).round(4).tolist() for word in ("film", "book", "good", "bad", "nowhere")}
    model = lab(corpus)
    before = model.base.embedding.weight.detach().clone()
    vectors = write_vectors(tmp_path / "words.vec", words)
    said = start_embeddings(model, corpus.tokenizer, str(vectors), seed=0)
    decoded = [corpus.tokenizer.decode([token]).strip() for token in range(corpus.tokenizer.vocab_size)]
    known = [token for token, word in enumerate(decoded) if word in words]
    assert known
    changed = (model.base.embedding.weight != before).any(1).nonzero()[:, 0].tolist()
    assert set(known) <= set(changed)
    assert all(decoded[token] for token in changed)
    assert f"{len(changed):,} of {len(decoded):,}" in said
    assert isinstance(model.head, LanguageModelHead)
    assert model.head.weight is not None
    assert torch.equal(model.head.weight[changed], model.base.embedding.weight[changed])
    assert "24 values projected to 16" in said
    started = model.base.embedding.weight.detach()[changed]
    torch.testing.assert_close(started.square().mean().sqrt(), torch.tensor(0.1 / 3**0.5))


def test_projecting_keeps_what_it_can() -> None:
    vectors = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32) + 5
    centred = vectors - vectors.mean(0)
    wider = project(vectors, 9, seed=0)
    np.testing.assert_allclose(wider @ wider.T, centred @ centred.T, atol=1e-4)
    narrower = project(vectors, 3, seed=0)
    expected = np.linalg.svd(centred)[1][:3]
    np.testing.assert_allclose(np.linalg.svd(narrower)[1], expected, rtol=1e-4)


def test_embeddings_that_are_no_table_are_refused(corpus: Corpus, tmp_path: Path) -> None:
    model = lab(corpus)
    with pytest.raises(UserError, match="not a static table"):
        start_embeddings(model, corpus.tokenizer, str(tmp_path), seed=0)
    unknown = write_vectors(tmp_path / "other.vec", {"zyx": [1.0, 2.0], "wvu": [2.0, 1.0]})
    with pytest.raises(UserError, match="knows none"):
        start_embeddings(model, corpus.tokenizer, str(unknown), seed=0)


def test_a_run_is_resumed_with_the_same_vectors_only(corpus: Corpus, tmp_path: Path) -> None:
    from rehead.pretrain.directory import description
    from rehead.pretrain.options import PretrainOptions

    first = write_vectors(tmp_path / "a.vec", {"film": [1.0, 2.0], "book": [2.0, 1.0]})
    second = write_vectors(tmp_path / "b.vec", {"film": [1.0, 3.0], "book": [2.0, 1.0]})
    options = PretrainOptions(texts=["x"], out=tmp_path / "run", preset="lab", embeddings=str(first))
    other = dataclasses.replace(options, embeddings=str(second))
    assert description(options, "")["embeddings"] != description(other, "")["embeddings"]
    assert "embeddings" not in description(dataclasses.replace(options, embeddings=None), "")
    run = pretrain(corpus.file, out=tmp_path / "run", preset="lab", embeddings=str(first), tokens=200, **TINY)
    assert load(tmp_path / "run").details["options"] == run.details["options"]
