"""The objectives against direct computations, whole and in parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from rehead.bases.encoder import Encoder
from rehead.bases.heads import head_of, load_language_model
from rehead.errors import UserError
from rehead.pretrain.adapting import contrastive, neighbours
from rehead.pretrain.adapting.contrastive import Contrastive
from rehead.pretrain.adapting.language_modelling import Causal, LanguageModelling, Masked
from rehead.pretrain.adapting.network_objective import NetworkObjective, try_step
from rehead.pretrain.adapting.tokens import BroughtTokenizer
from rehead.text.readers import Texts
from rehead.text.store import build_store
from rehead.text.store_subset import StoreSubset, hold_out
from tests.bases.tiny import FAMILIES, make_encoder, make_sentence_encoder, transformers

SIZES: dict[str, Any] = {"batch": 200, "seed": 0, "weight_decay": 0.1}


def tokenizer_of(path: Path, **more: Any) -> BroughtTokenizer:
    return BroughtTokenizer(transformers.AutoTokenizer.from_pretrained(path), str(path), **more)


def stores(text: Path, tokenizer: BroughtTokenizer, folder: Path) -> tuple[StoreSubset, StoreSubset]:
    return hold_out(build_store(Texts(text), tokenizer, folder / "tokens", quiet=True), 0.1, 10_000, seed=0)


def contrastive_of(path: Path, text: Path, folder: Path, **changes: Any) -> Contrastive:
    tokenizer = tokenizer_of(path)
    settings = {**SIZES, "length": 24, **changes}
    return Contrastive(Encoder(path), tokenizer, *stores(text, tokenizer, folder), **settings)


def language_model(path: Path, text: Path, folder: Path) -> LanguageModelling:
    tokenizer = tokenizer_of(path)
    head = head_of(path)
    assert head is not None
    network, parts = load_language_model(path, head), stores(text, tokenizer, folder)
    if head == "causal":
        return Causal(network, *parts, time=16, **SIZES)
    return Masked(network, *parts, tokenizer, 0.3, time=16, **SIZES)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_the_loss_is_that_of_transformers(family: str, text: Path, tmp_path: Path) -> None:
    kind = "AutoModelForCausalLM" if family == "gpt2" else "AutoModelForMaskedLM"
    path = make_encoder(tmp_path / "base", family, head=kind)
    objective = language_model(path, text, tmp_path).eval()
    batch = objective.read(3)
    ids = batch.tensors["ids"]
    with torch.no_grad():
        sums = objective(batch.tensors)
        logits = getattr(transformers, kind).from_pretrained(path).eval()(ids).logits
    if family == "gpt2":
        logits, targets = logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()
    else:
        logits, targets = logits.flatten(0, 1)[batch.tensors["places"]], batch.tensors["targets"]
        assert ids.shape[1] == 16
        assert (ids[:, 0] == 0).all()
        assert (ids[:, -1] == 2).all()
    expected = F.cross_entropy(logits, targets, reduction="sum")
    torch.testing.assert_close(sums.losses[objective.name], expected, rtol=1e-4, atol=1e-4)
    assert int(sums.metrics[f"{objective.name}_hits"]) == int((logits.argmax(1) == targets).sum())
    assert batch.counts[objective.name] == len(targets)


def test_the_contrastive_loss_is_that_of_its_formula(
    text: Path, sentences: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each group by itself, with the vectors that the encoder gives the texts; what is alike is left out."""
    monkeypatch.setattr(contrastive, "MEMBERS", 5)
    objective = contrastive_of(sentences, text, tmp_path, batch=350).eval()
    batch = objective.read(2)
    alike = batch.tensors["alike"]
    assert objective.groups > 1
    assert alike.shape == (objective.groups, 5, 5)
    assert alike.any()
    with torch.no_grad():
        found = objective(batch.tensors).losses["contrastive"]
    ids = [
        row[: int(keep.sum())].tolist() for row, keep in zip(batch.tensors["ids"], batch.tensors["keep"], strict=True)
    ]
    vectors = F.normalize(torch.stack([Encoder(sentences).vectors_of([each])[0] for each in ids]), dim=1)
    expected = 0.0
    for texts, partners, same in zip(*(half.split(5) for half in vectors.chunk(2)), alike, strict=True):
        for one, other in ((texts, partners), (partners, texts)):
            for place in range(5):
                scores = one[place] @ other.T / contrastive.TEMPERATURE
                kept = [at for at in range(5) if at == place or not same[place, at]]
                expected += float(torch.logsumexp(scores[kept], 0) - scores[place]) / 2
    assert float(found) == pytest.approx(expected, rel=1e-4)


def test_partners_are_neighbours_and_neighbours_are_no_negatives(
    text: Path, sentences: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contrastive, "CLOSE", -1.0)
    objective = contrastive_of(sentences, text, tmp_path, batch=4_000)
    whole = list(objective.texts)
    vectors = F.normalize(torch.stack([Encoder(sentences).vectors_of([each])[0] for each in whole]), dim=1)
    order = (vectors @ vectors.T).fill_diagonal_(-2).argsort(dim=1, descending=True).numpy()
    batch = objective.read(0)
    count = len(batch.tensors["ids"]) // 2
    rows = [
        tuple(row[: int(keep.sum())].tolist())
        for row, keep in zip(batch.tensors["ids"], batch.tensors["keep"], strict=True)
    ]
    known = {tuple(row): place for place, row in enumerate(whole)}
    texts, partners = ([known[row] for row in half] for half in (rows[:count], rows[count:]))
    close = [{tuple(whole[each]) for each in order[place][:7]} for place in texts]  # some are equally near
    assert all(tuple(whole[partner]) in near for partner, near in zip(partners, close, strict=True))
    alike = batch.tensors["alike"][0]
    first, size = order[texts[0]][: len(whole) // 8 - 1], alike.shape[0]
    for at in range(1, size):
        if texts[at] in first or partners[at] in first:
            assert alike[0, at]
            assert alike[at, 0]
    assert not alike.diagonal().any()
    assert not alike.all()
    again = objective.read(0)
    assert all(torch.equal(again.tensors[name], each) for name, each in batch.tensors.items())


def test_a_text_without_a_close_neighbour_is_paired_with_a_copy(
    text: Path, sentences: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In which tokens are deleted, and their order stays."""
    monkeypatch.setattr(contrastive, "CLOSE", 2.0)
    objective = contrastive_of(sentences, text, tmp_path, batch=4_000)
    for batch in (objective.read(0), next(objective.held_out())):
        ids, lengths = batch.tensors["ids"], batch.tensors["keep"].sum(1)
        first, second = (lengths - 2).view(2, -1)
        if len(first) >= contrastive.MEMBERS:
            assert float(second.sum() / first.sum()) == pytest.approx(1 - contrastive.DELETED, abs=0.06)
        rows = [row[: int(length)].tolist() for row, length in zip(ids, lengths, strict=True)]
        for row, copy in zip(rows[: len(first)], rows[len(first) :], strict=True):
            whole = iter(row)
            assert all(each in whole for each in copy)
            assert (copy[0], copy[-1]) == (0, 2)
            assert len(copy) > 2


def test_of_a_long_corpus_a_sample_is_read(
    text: Path, sentences: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = contrastive_of(sentences, text, tmp_path)
    tokens = sum(map(len, everything.texts))
    monkeypatch.setattr(neighbours, "WORK", everything.encoder.work * tokens / 2)
    half = contrastive_of(sentences, text, tmp_path)
    assert len(half.texts) == pytest.approx(len(everything.texts) / 2, rel=0.25)
    assert half.nearest.max() < len(half.texts)


def test_few_texts_are_refused(sentences: Path, tmp_path: Path) -> None:
    text = tmp_path / "few.txt"
    text.write_text("the film was very good\n" * 40, encoding="utf-8")
    with pytest.raises(UserError, match="at least 64"):
        contrastive_of(sentences, text, tmp_path)


@pytest.mark.parametrize("kind", ["masked", "contrastive"])
@pytest.mark.parametrize("parts", [2, 5])
def test_parts_add_up_to_the_step(kind: str, parts: int, text: Path, bert: Path, tmp_path: Path) -> None:
    """Also where a part is empty: then it gives zeros, with a gradient for each parameter."""
    objective: NetworkObjective
    if kind == "masked":
        objective = language_model(bert, text, tmp_path)
    else:
        objective = contrastive_of(bert, text, tmp_path, batch=2_400)
    objective.eval()
    whole = objective.read(1)
    some = [objective.read(1, part, parts) for part in range(parts)]
    assert sum(each.tokens for each in some) == whole.tokens
    with torch.no_grad():
        total = sum(float(objective(each.tensors).losses[kind]) for each in some)
        assert total == pytest.approx(float(objective(whole.tensors).losses[kind]), rel=1e-4)


def test_what_gets_no_gradient_is_idle(text: Path, bert: Path, tmp_path: Path) -> None:
    objective = contrastive_of(bert, text, tmp_path)
    assert try_step(objective, 3, 3, torch.device("cpu")) > 0
    assert objective.unused == {"pooler.dense.weight", "pooler.dense.bias"}
    assert all(each.grad is None for each in objective.parameters())
    named = {id(each): name for name, each in objective.network.named_parameters()}
    decayed = {named[id(each)] for each in objective.parameter_settings()}
    assert "encoder.layer.0.attention.self.query.weight" in decayed
    assert not any("embeddings" in name or name.endswith("bias") for name in decayed)


def test_texts_are_tokenized_as_the_encoder_does(tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "the city "}, "default_prompt_name": "query"}
    path = make_sentence_encoder(
        tmp_path / "st", {"pooling_mode_mean_tokens": True}, sentence={"do_lower_case": True}, prompts=prompts
    )
    encoder = Encoder(path)
    tokenizer = tokenizer_of(path, prompt=encoder.prompt, lowercase=encoder.lowercase)
    texts = [" The Film was bad ", "RIVER", "what is it"]
    whole = [[*tokenizer.prefix, *ids, *tokenizer.suffix] for ids in tokenizer.encode_batch(texts)]
    assert whole == encoder.token_ids(texts)
    assert tokenizer.fingerprint() != tokenizer_of(path).fingerprint()
    assert tokenizer.mask not in tokenizer.encode("a <mask> film")


def test_the_head_is_told_by_the_architecture(tmp_path: Path) -> None:
    assert head_of(make_encoder(tmp_path / "bert")) == "masked"
    assert head_of(make_encoder(tmp_path / "gpt2", "gpt2")) == "causal"
    with pytest.raises(UserError, match="head"):
        load_language_model(tmp_path / "bert", "masked")  # saved without one
    assert np.isfinite(load_language_model(tmp_path / "gpt2", "causal").lm_head.weight.numpy()).all()
