"""What a run does where the user says nothing, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rehead.errors import UserError
from rehead.model.config import preset
from rehead.model.model import Model
from rehead.model.objectives import parse_objective, specs_of
from rehead.pretrain.context import Prepared
from rehead.pretrain.directory import description
from rehead.pretrain.document import DEFAULT_DOCUMENTS, Document
from rehead.pretrain.options import PretrainOptions, check_pretraining, objective_of
from rehead.pretrain.phases import WARM_RATE, default_batch, default_epochs, make_phases
from rehead.training.loop import Phase
from rehead.training.objective import ParameterSettings
from rehead.training.optimizers import Optimizers
from tests.pretrain.conftest import Corpus

TINY: dict[str, Any] = {"nhid": 8, "nlayers": 1, "nhead": 2}


def phases(corpus: Corpus, objective: str, shape: str = "small", **given: Any) -> list[Phase]:
    options = PretrainOptions(texts=[str(corpus.file)], out=Path("unused"), objective=objective, length=16, **given)
    stages = parse_objective(objective)
    small_table = {"nbuckets": 64} if shape in ("small", "bag") else {}
    config = preset(shape, ntokens=corpus.tokenizer.vocab_size, **TINY, **small_table)
    with_head = any(spec.needs_language_model_head for spec in specs_of(stages))
    model = Model(config, config.language_model() if with_head else None)
    return make_phases(options, stages, model, Prepared(corpus.tokenizer, corpus.train, corpus.valid, ""))


def test_a_bag_leaves_the_layers_alone_and_the_next_stage_trains_them(corpus: Corpus) -> None:
    bag, document = (phase.objective for phase in phases(corpus, "bag,document"))
    assert isinstance(bag, Document)
    assert isinstance(document, Document)
    layers = set(bag.model.base.layers.parameters())
    assert layers
    assert layers <= set(bag.idle())
    assert not layers & set(document.idle())
    assert bag.model is document.model
    assert bag.output is document.output, "the second stage goes on with the first one's table"
    assert (bag.name, document.name) == ("bag", "document")


def test_two_that_read_documents_find_the_model_as_one_would(corpus: Corpus) -> None:
    """Frequent tokens start small, and no smaller."""
    found = []
    for objective in ("bag", "bag+document"):
        torch.manual_seed(0)
        (phase,) = phases(corpus, objective)
        found.append(phase.objective.model.base.embedding.weight.detach())
    assert torch.equal(*found)


@pytest.mark.parametrize("objective", ["bag", "causal,bag", "bag+causal,causal", "bag+document"])
def test_past_layers_that_are_not_the_identity_only_a_warm_start_goes(corpus: Corpus, objective: str) -> None:
    refused = PretrainOptions(texts=["x"], out=Path("unused"), objective=objective, preset="lab")
    with pytest.raises(UserError, match=r"--preset lab, bag trains the embeddings"):
        check_pretraining(refused)
    for allowed in ("bag,causal", "bag:0.9,masked:0.1", "bag,document", "document"):
        check_pretraining(PretrainOptions(texts=["x"], out=Path("unused"), objective=allowed, preset="lab"))
    assert phases(corpus, "document", "lab")


@pytest.mark.parametrize(
    ("objective", "name", "rate"),
    [
        ("bag,causal", "lab", WARM_RATE),
        ("bag,masked+document", "lab", WARM_RATE),
        ("causal", "lab", 1.0),
        ("document,causal", "lab", 1.0),
        ("bag,causal", "small", 1.0),
    ],
)
def test_warmed_embeddings_move_slowly(corpus: Corpus, objective: str, name: str, rate: float) -> None:
    last = phases(corpus, objective, name)[-1].objective
    table = last.model.base.embedding.weight
    assert last.parameter_settings().get(table, ParameterSettings()).lr_scale == rate
    others = {each for each in last.parameters() if each is not table}
    assert not any(last.parameter_settings().get(each, ParameterSettings()).lr_scale != 1 for each in others)


@pytest.mark.parametrize(
    ("given", "objective"),
    [
        ({}, "bag"),
        ({"preset": "bag"}, "bag"),
        ({"preset": "lab"}, "causal"),
        ({"preset": "small"}, "bag,causal"),
        ({"preset": "base"}, "bag,causal"),
        ({"preset": "small", "objective": "bag"}, "bag"),
    ],
)
def test_the_default_objective_is_the_presets(given: dict[str, Any], objective: str) -> None:
    options = PretrainOptions(texts=["x"], out=Path("unused"), **given)
    assert objective_of(options) == objective
    check_pretraining(options)
    assert description(options, "")["options"]["objective"] == objective, "what is saved says it"


@pytest.mark.parametrize(("given", "shares"), [({"tokens": 1000}, (800, 200)), ({"minutes": 5}, (4, 1))])
def test_a_budget_is_shared_out(corpus: Corpus, given: dict[str, Any], shares: tuple[float, float]) -> None:
    found = phases(corpus, "bag:0.8,masked:0.2", **given)
    assert [phase.budget.amount for phase in found] == pytest.approx(shares)
    assert {phase.budget.kind for phase in found} == set(given)


def test_epochs_are_steps(corpus: Corpus) -> None:
    (phase,) = phases(corpus, "causal", epochs=3, batch=64)
    assert phase.budget.kind == "steps"
    assert phase.budget.amount == round(3 * (int(corpus.train.offsets[-1]) // 16) / 4)


def test_every_objective_has_its_own_batch(corpus: Corpus) -> None:
    (rows,), (given,) = phases(corpus, "causal"), phases(corpus, "causal", batch=160)
    assert rows.objective.read(0).tokens == 1024
    assert given.objective.read(0).tokens == 160


@pytest.mark.parametrize(
    ("given", "share", "batch"),
    [
        ({"tokens": 300_000}, 1.0, 1024),
        ({"tokens": 8_000_000}, 1.0, 4000),
        ({"tokens": 8_000_000}, 0.3, 1200),
        ({"tokens": 1e9}, 1.0, 8192),
        ({"epochs": 2}, 1.0, 5000),
        ({}, 1.0, 5000),  # ten million tokens, as is usual
        ({"minutes": 5}, 1.0, 2048),
        ({"tokens": 300_000, "length": 1500}, 1.0, 1500),
    ],
)
def test_short_runs_take_small_steps(given: dict[str, Any], share: float, batch: int) -> None:
    assert default_batch(PretrainOptions(texts=["x"], out=Path("unused"), **given), share, 5_000_000) == batch


@pytest.mark.parametrize(
    ("objective", "tokens", "epochs"),
    [
        ("bag", 100_000, 12.0),
        ("bag", 5_000_000, 5.0),
        ("bag", 50_000_000, 4.0),
        ("bag", 200_000_000, 2.0),
        ("bag", 10**12, 1.0),
        ("causal", 100_000, 10.0),
        ("causal", 5_000_000, 2.0),
        ("causal", 10**9, 1.0),
        ("document", 5_000_000, 2.0),
    ],
)
def test_how_often_a_text_is_read(corpus: Corpus, objective: str, tokens: int, epochs: float) -> None:
    (phase,) = phases(corpus, objective)
    assert default_epochs(phase.objective, tokens) == epochs


def test_n_grams_get_their_rows_whatever_a_run_begins_with(corpus: Corpus) -> None:
    found = []
    for objective in ("bag", "causal", "masked"):
        (phase,) = phases(corpus, objective)
        ngrams = phase.objective.model.base.ngrams
        assert ngrams is not None
        found.append(ngrams.rows)
        assert int((ngrams.rows == 0).sum()) > len(ngrams.rows) // 2, "most slots have no row of their own"
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_wider_models_take_smaller_steps(corpus: Corpus) -> None:
    (phase,), (half,) = phases(corpus, "causal"), phases(corpus, "causal", lr_scale=0.5)
    assert phase.rates.adamw == pytest.approx(1e-3 * (256 / 8) ** 0.5)
    assert half.rates.adamw == pytest.approx(phase.rates.adamw / 2)
    assert half.rates.rows == pytest.approx(phase.rates.rows / 2)


def test_lr_is_the_learning_rate_of_adamw_and_the_others_keep_their_ratio_to_it(corpus: Corpus) -> None:
    (default,), (given,) = phases(corpus, "causal"), phases(corpus, "causal", lr=2e-5)
    assert given.rates.adamw == 2e-5, "at any width of the model"
    factor = 2e-5 / default.rates.adamw
    assert given.rates.rows == pytest.approx(default.rates.rows * factor)
    assert given.rates.muon == pytest.approx(default.rates.muon * factor)
    assert given.rates.weight_decay == default.rates.weight_decay
    made = {
        type(each).__name__: [group["lr"] for group in each.param_groups]
        for each in Optimizers(given.objective, given.rates, "muon", sharded=False).each
    }
    assert set(made["AdamW"]) == {2e-5}
    assert made["Muon"] == pytest.approx([0.02 * factor])
    assert made["RowAdagrad"] == pytest.approx([0.1 * factor])


def test_a_bag_stops_early_where_no_budget_is_given(corpus: Corpus) -> None:
    (phase,) = phases(corpus, "bag", "bag")
    assert phase.patience == 3, "of ten validations"
    (often,) = phases(corpus, "bag", "bag", validations=21)
    assert often.patience == 7
    (never,) = phases(corpus, "bag", "bag", validations=0)
    assert never.patience is None
    for given in ({"epochs": 2}, {"tokens": 1000}, {"minutes": 1}):
        assert phases(corpus, "bag", "bag", **given)[0].patience is None
    assert phases(corpus, "causal")[0].patience is None
    assert [phase.patience for phase in phases(corpus, "bag,causal")] == [None, None]


def test_the_default_batch_of_short_texts_is_counted_in_documents(corpus: Corpus) -> None:
    (phase,), (given,) = phases(corpus, "bag", "bag"), phases(corpus, "bag", "bag", batch=20_480)
    assert isinstance(phase.objective, Document)
    assert isinstance(given.objective, Document)
    assert phase.objective.documents == min(DEFAULT_DOCUMENTS, given.objective.documents)
    assert given.objective.documents == round(20_480 / corpus.train.lengths.mean())
