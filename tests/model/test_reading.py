"""What comes out of reading many texts is what comes out of reading each alone, and in full."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from rehead.model.reading import Reading, class_logits, class_probabilities, document_vectors, is_bag

from rehead.errors import ConfigError
from rehead.model.config import Classifier, preset
from rehead.model.model import Model
from rehead.model.ngrams import NO_ROW
from rehead.runs.run import Run
from rehead.text.documents import Document
from rehead.text.tokenizer import Tokenizer

TEXT = "a the film was not good bad long short and then it ended well with many people in one small room"


def texts() -> list[str]:
    chance = np.random.RandomState(0)
    made = [" ".join(chance.choice(TEXT.split(), size)) for size in (3, 40, 7, 1, 90, 12, 25)]
    return [*made, "", *made[:2]]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    documents = [Document(each, "x", 1) for each in texts() if each]
    return Tokenizer.train(documents, vocab=300, lowercase=True, quiet=True)


def model(
    name: str, tokenizer: Tokenizer, head: Classifier | None = None, *, learnt: bool = True, **dials: Any
) -> Model:
    torch.manual_seed(0)
    if preset(name).nbuckets:
        dials["nbuckets"] = 64
    if preset(name).nlayers:
        dials = {"nlayers": 2, "nhead": 2} | dials
    made = Model(preset(name, ntokens=tokenizer.vocab_size, nhid=16, **dials), head)
    with torch.no_grad():
        for layer in made.base.layers if learnt else []:
            layer.output.weight.normal_(std=0.3)
        if made.base.ngrams is not None:
            made.base.ngrams.weight[1:].normal_()
    return made.eval()


def hidden(made: Model, ids: list[int]) -> torch.Tensor:
    """The hidden states of one document, nothing beside it: (1, T, H)."""
    with torch.no_grad():
        return made.base(torch.tensor([ids]), causal=made.config.causal)


def distinct(made: Model, ids: list[int]) -> torch.Tensor:
    """The mean of the embeddings of a document's different tokens and n-grams: (H,)."""
    base, row = made.base, torch.tensor([ids], dtype=torch.int64)
    found = [base.embedding.weight[each] for each in sorted(set(ids))]
    assert base.ngrams is not None
    rows: set[int] = set()
    for n in range(2, min(base.ngrams.max_n, len(ids)) + 1):
        rows |= set(base.ngrams.find_rows(row, n)[0].tolist())
    found += [base.ngrams.weight[each] for each in sorted(rows - {NO_ROW})]
    return torch.stack(found).mean(0).detach() if found else torch.zeros(16)


@pytest.mark.parametrize(("name", "learnt"), [("bag", True), ("small", False), ("small", True), ("lab", True)], ids=str)
@pytest.mark.parametrize("budget", [64, 16_384])
def test_vectors_are_means_of_what_is_read(name: str, learnt: bool, budget: int, tokenizer: Tokenizer) -> None:
    made = model(name, tokenizer, learnt=learnt)
    assert is_bag(made.base) == (name == "bag" or not learnt)
    found = document_vectors(made, tokenizer, texts(), longest=512, batch_tokens=budget)
    assert found.dtype == np.float32
    for text, vector in zip(texts(), found, strict=True):
        ids = tokenizer.encode(text)
        expected = (
            distinct(made, ids) if is_bag(made.base) else hidden(made, ids).mean(1)[0] if ids else torch.zeros(16)
        )
        torch.testing.assert_close(torch.from_numpy(vector), expected, rtol=1e-4, atol=1e-5)


def test_long_texts_are_read_in_stretches_by_layers(tokenizer: Tokenizer) -> None:
    made = model("small", tokenizer)
    ids = tokenizer.encode(texts()[4])
    parts = [hidden(made, ids[begin : begin + 30]).sum(1) for begin in range(0, len(ids), 30)]
    expected = torch.cat(parts).sum(0) / len(ids)
    found = document_vectors(made, tokenizer, texts(), longest=30)[4]
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["bag", "small", "lab"])
@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_logits_are_those_of_each_text_alone(name: str, pooling: Any, tokenizer: Tokenizer) -> None:
    made = model(name, tokenizer, Classifier(classes=3, pooling=pooling, dropout=0.5))
    made.train()  # and must be so again afterwards
    found = class_logits(made, tokenizer, texts(), reading=Reading(512), batch_tokens=128)
    assert made.training
    assert made.base.dropout.training
    made.eval()
    for text, scores in zip(texts(), found, strict=True):
        ids = tokenizer.encode(text)
        keep = torch.ones(1, max(1, len(ids)), dtype=torch.bool) if ids else torch.zeros(1, 1, dtype=torch.bool)
        with torch.no_grad():
            expected = made(torch.tensor([ids or [0]]), keep)[0]
        torch.testing.assert_close(torch.from_numpy(scores), expected, rtol=1e-4, atol=1e-5)


def test_windows_are_averaged_and_other_rules_cut(tokenizer: Tokenizer) -> None:
    made = model("small", tokenizer, Classifier(classes=2))
    ids = tokenizer.encode(texts()[4])
    assert len(ids) > 60
    with torch.no_grad():
        count = -(-len(ids) // 30)
        starts = [place * (len(ids) - 30) // (count - 1) for place in range(count)]
        windows = torch.cat([made(torch.tensor([ids[at : at + 30]])) for at in starts]).mean(0)
        tail = made(torch.tensor([ids[-30:]]))[0]
    found = class_logits(made, tokenizer, texts(), reading=Reading(30, "windows"))[4]
    torch.testing.assert_close(torch.from_numpy(found), windows, rtol=1e-4, atol=1e-5)
    found = class_logits(made, tokenizer, texts(), reading=Reading(30, "tail"))[4]
    torch.testing.assert_close(torch.from_numpy(found), tail, rtol=1e-4, atol=1e-5)


def test_probabilities_by_kind_of_classifier(tokenizer: Tokenizer) -> None:
    one = Run(model("bag", tokenizer, Classifier(classes=3)), tokenizer)
    multilabel = Run(model("bag", tokenizer, Classifier(classes=3, multilabel=True)), tokenizer)
    np.testing.assert_allclose(class_probabilities(one, texts()).sum(1), 1, rtol=1e-5)
    logits = class_logits(multilabel, None, texts())
    np.testing.assert_allclose(class_probabilities(multilabel, texts()), 1 / (1 + np.exp(-logits)), rtol=1e-5)
    assert class_probabilities(one, []).shape == (0, 3)


def test_a_run_says_how_it_reads(tokenizer: Tokenizer) -> None:
    made = model("small", tokenizer, Classifier(classes=2))
    run = Run(made, tokenizer, None, {"reading": {"longest": 30, "long": "tail"}})
    expected = class_logits(made, tokenizer, texts(), reading=Reading(30, "tail"))
    np.testing.assert_array_equal(class_logits(run, None, texts()), expected)
    for wrong in ({"longest": 0}, {"longest": True}, {"long": "middle"}, {"short": 1}):
        run.details["reading"] = wrong
        with pytest.raises(ConfigError):
            class_logits(run, None, texts())


def test_what_cannot_be_read_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(ConfigError, match="no classifier head"):
        class_logits(model("bag", tokenizer), tokenizer, ["a"])
    with pytest.raises(ConfigError, match="no tokenizer"):
        document_vectors(Run(model("bag", tokenizer)), None, ["a"])
