"""The account against live modules, against the lab's table, and against torch's own FLOP counter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from rehead.model import Classifier, LanguageModel, Model, ModelConfig, preset
from rehead.model.accounting import Workload, account, check, work
from rehead.model.config import PRESETS
from rehead.model.heads import ClassifierHead
from tests.model.conftest import classifier_of, miniature

LAB_TABLE = {  # part: (ntokens = 100, ntokens = 50,001), by hand
    "embedding": (20_000, 10_000_200),
    "positions (sinusoidal)": (0, 0),
    "attention Q": (40_200, 40_200),
    "attention K": (40_200, 40_200),
    "attention V": (40_200, 40_200),
    "attention output": (40_200, 40_200),
    "feed-forward in": (40_200, 40_200),
    "feed-forward out": (40_200, 40_200),
    "two norms": (800, 800),
    "one layer": (242_000, 242_000),
    "all layers": (968_000, 968_000),
    "base": (988_000, 10_968_200),
    "language-model head": (20_100, 10_050_201),
    "language model": (1_008_100, 21_018_401),
    "2-class head": (402, 402),
    "classifier": (988_402, 10_968_602),
}


@pytest.mark.parametrize(("column", "ntokens"), [(0, 100), (1, 50_001)])
def test_the_labs_table(column: int, ntokens: int) -> None:
    config = preset("lab", ntokens=ntokens)
    counted = account(config, config.classifier(2))
    assert {row.part: row.count for row in counted.rows} == {part: row[column] for part, row in LAB_TABLE.items()}


def live(config: ModelConfig, head: Any) -> Model:
    with torch.device("meta"):
        return Model(config, head)


def both_agree(config: ModelConfig, classifier: Classifier, language_model: LanguageModel) -> None:
    counted = account(config, classifier, language_model)
    for whole, head in (("language model", language_model), ("classifier", classifier)):
        model = live(config, head)
        check(counted, model, whole)
        assert counted.total(whole) == sum(each.numel() for each in model.parameters())
        assert counted.total("base") == sum(each.numel() for each in model.base.parameters())


@pytest.mark.parametrize("name", list(PRESETS))
@pytest.mark.parametrize(("ntokens", "classes"), [(1, 2), (100, 2), (50_001, 2), (250_000, 77)])
def test_presets_equal_their_live_modules(name: str, ntokens: int, classes: int) -> None:
    config = preset(name, ntokens=ntokens)
    both_agree(config, config.classifier(classes), config.language_model())


configs = st.builds(
    lambda heads, width, ngrams, nbuckets, **dials: ModelConfig(
        nhead=heads, nhid=2 * heads * width, ngrams=ngrams, nbuckets=nbuckets if ngrams > 1 else 0, **dials
    ),
    heads=st.integers(1, 4),
    width=st.integers(1, 8),
    ngrams=st.integers(1, 3),
    nbuckets=st.integers(1, 1000),
    ntokens=st.integers(1, 10**6),
    nlayers=st.integers(0, 5),
    ffmult=st.floats(0.5, 4),
    feedforward=st.sampled_from(["relu", "gelu", "swiglu"]),
    positions=st.sampled_from(["sinusoidal", "learned", "rotary", "none"]),
    maxlen=st.integers(1, 1000),
    norm=st.sampled_from(["pre", "post"]),
    bias=st.booleans(),
)
heads = st.fixed_dictionaries(
    {"classes": st.integers(2, 1000), "unit": st.booleans(), "tokens": st.booleans(), "multilabel": st.booleans()}
)


@settings(max_examples=100, deadline=None)
@given(configs, heads, st.booleans())
def test_any_configuration_equals_its_live_module(config: ModelConfig, head: dict[str, Any], tied: bool) -> None:
    both_agree(config, classifier_of(config, **head), LanguageModel(tied=tied))


@pytest.mark.parametrize("name", list(PRESETS))
def test_tokens_are_a_weight_for_each_row_and_class(name: str) -> None:
    config = miniature(name)
    with_tokens, without = (account(config, classifier_of(config, 3, tokens=tokens)) for tokens in (True, False))
    rows = config.ntokens + config.nbuckets
    assert with_tokens.total("classifier") - without.total("classifier") == 3 * rows


def test_the_check_sees_a_difference() -> None:
    config = miniature("lab")
    counted = account(config, config.classifier(2))
    with pytest.raises(AssertionError, match="differs"):
        check(counted, live(miniature("lab", nhid=18), config.language_model()), "language model")
    model = live(config, config.language_model())
    model.extra = torch.nn.Parameter(torch.empty(1, device="meta"))
    with pytest.raises(AssertionError, match="extra"):
        check(counted, model, "language model")


@pytest.mark.parametrize("name", list(PRESETS))
def test_the_number_of_heads_changes_no_count(name: str) -> None:
    totals = set()
    for nhead in (1, 2, 4, 8):
        config = preset(name, nhead=nhead, ntokens=100)
        counted = account(config, config.classifier(2))
        model = live(config, config.classifier(2))
        totals.add((counted.total("classifier"), sum(each.numel() for each in model.parameters())))
    assert len(totals) == 1


def test_formulas_are_seen_three_ways() -> None:
    config = preset("lab", ntokens=100)
    rows = {row.part: row.formula for row in account(config, config.classifier(2)).rows}
    assert (rows["attention Q"].symbols, rows["attention Q"].numbers) == ("nhid·nhid + nhid", "200·200 + 200")
    assert (rows["one layer"].numbers, rows["one layer"].value) == ("4·40,200 + 40,200 + 40,200 + 800", 242_000)
    assert (rows["base"].symbols, rows["base"].numbers) == ("embedding + layers", "20,000 + 968,000")
    head = {each.objective: each.head for each in work(config, config.classifier(2))}
    assert head["classify"].symbols == "6·nhid·classes/length"
    assert head["classify"].numbers == "6·200·2/256"


@pytest.mark.parametrize("name", ["lab", "small", "bag"])
def test_work_equals_what_torch_counts(name: str) -> None:
    """Forward and backward of a live model, counted by torch; attention spelt out, since it cannot count the kernel."""
    config = miniature(name, dropout=0.0)
    classifier = classifier_of(config, 3)
    length, batch = 8, 4
    counted = {each.objective: each for each in work(config, classifier, Workload(length=length))}
    ids = torch.randint(50, (batch, length))

    def flops(model: Model) -> float:
        with FlopCounterMode(display=False) as counter:
            hidden, _ = model.base.attention(ids, causal=False)
            if isinstance(model.head, ClassifierHead):
                model.head(hidden.mean(1)).sum().backward()
            else:
                model.token_logits(hidden).sum().backward()
        return counter.get_total_flops() / (batch * length)

    for objective, head in (("causal", config.language_model()), ("classify", classifier)):
        expected = counted[objective].body.value + counted[objective].head.value
        assert flops(Model(config, head)) == pytest.approx(expected, rel=1e-9)


def test_masked_hybrid_and_document_heads_by_hand() -> None:
    config = preset("lab")
    works = work(config, config.classifier(2))
    heads = {each.objective: each.head.value for each in works}
    full = 6 * 200 * 50_001
    assert heads["causal"] == full
    assert heads["masked"] == pytest.approx(0.15 * full)
    assert heads["hybrid"] == pytest.approx(0.5 * full + 0.5 * 0.15 * full)
    assert heads["document"] == heads["bag"] == pytest.approx(6 * 200 * 8192 / 256)
    bodies = {each.objective: each.body.value for each in works}
    assert bodies.pop("bag") == 0, "it skips the layers"
    assert len(set(bodies.values())) == 1
