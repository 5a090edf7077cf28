"""Questions 1 to 3 on a small model: against what torch, the bytes and the documentation say."""

from __future__ import annotations

import pytest
import torch

from rehead.lab.structure import count_parameters, measure_causality, read_attention, replace_the_head, usual_mistakes
from rehead.model.config import preset
from rehead.model.model import Model
from rehead.runs.run import Run
from rehead.text.documents import Document
from rehead.text.tokenizer import Tokenizer

SENTENCE = "the film was not as good as the book they say"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([Document(SENTENCE, "x", 1)] * 9, vocab=300, lowercase=True, quiet=True)


@pytest.fixture
def run(tokenizer: Tokenizer) -> Run:
    torch.manual_seed(0)
    config = preset("lab", ntokens=tokenizer.vocab_size, nhid=16, nlayers=2)
    return Run(Model(config, config.language_model()).eval(), tokenizer)


def test_only_later_outputs_move(run: Run) -> None:
    found = measure_causality(run, SENTENCE)
    for changed, row in enumerate(found.moved):
        assert row == [position >= changed for position in range(len(row))]
    assert found.moved_without_mask == len(found.tokens)
    assert max(found.distances[: found.changed]) == 0
    assert found.replacement not in found.tokens


def test_a_leaking_mask_is_seen(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = run.model.base.forward
    monkeypatch.setattr(run.model.base, "forward", lambda ids, keep=None, *, causal: forward(ids, keep, causal=False))
    found = measure_causality(run, SENTENCE)
    assert any(row[column] for changed, row in enumerate(found.moved) for column in range(changed))


def test_order_counts_by_the_positions_alone(run: Run) -> None:
    found = measure_causality(run, SENTENCE)
    assert found.shuffled < 1e-5
    assert found.shuffled_with_positions > 1e-2


def test_replacing_the_head_keeps_every_byte(run: Run) -> None:
    config = run.model.config
    before = {name: each.clone() for name, each in run.model.base.state_dict().items()}
    found = replace_the_head(run, 3)
    assert all(torch.equal(each, before[name]) for name, each in run.model.base.state_dict().items())
    assert found.changed_bytes == 0
    assert found.digest_before == found.digest_after
    assert found.kept_bytes == 4 * found.kept_parameters
    assert sum(each.count for each in found.dropped) == 16 * config.ntokens + config.ntokens
    assert sum(each.count for each in found.added) == 16 * 3 + 3


def test_a_byte_that_changes_is_counted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = run.model.replace_head

    def careless(head: object) -> object:
        with torch.no_grad():
            run.model.base.embedding.weight[0, 0] += 1
        return replace(head)  # type: ignore[arg-type]

    monkeypatch.setattr(run.model, "replace_head", careless)
    found = replace_the_head(run, 2)
    assert 1 <= found.changed_bytes <= 4
    assert found.digest_before != found.digest_after


def test_the_counts_are_those_of_the_documentation() -> None:
    found = count_parameters(preset("lab"), 2)
    assert (found.language_model, found.classifier) == (21_018_401, 10_968_602)
    # docs/parameters.md
    stated = [-4_800, -160_800, 482_400, -241_200, -3_168, -10_050_201, 10_050_201, -10_000_200, 102_400, 962_400]
    assert [each.off_by for each in usual_mistakes(preset("lab"))] == stated


def test_attention_rows_add_up(run: Run) -> None:
    found = read_attention(run, "causal", SENTENCE, causal=True)
    weights = torch.tensor(found.layers)  # (layers, heads, T, T)
    assert weights.shape[:2] == (2, 2)
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-2, rtol=0)
    assert not weights.triu(1).any()
