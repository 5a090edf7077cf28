"""What a run says it has learnt, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rehead.errors import UserError
from rehead.model import LanguageModel, Model
from rehead.model.config import Head
from rehead.model.objectives import Ability, last_specs, stages_of_run
from rehead.runs.run import Run
from rehead.use.abilities import check_ability, predicts_one_before, training_length
from tests.model.conftest import miniature
from tests.use.tiny_runs import tiny_tokenizer

LM = LanguageModel(tied=True)


def a_run(objective: Any, head: Head | None = LM, tokenizer: bool = True) -> Run:
    details = {} if objective is None else {"objective": objective}
    return Run(Model(miniature("bag"), head), tiny_tokenizer() if tokenizer else None, details=details)


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ("causal", [("causal",)]),
        ("document,masked", [("document",), ("masked",)]),
        ("masked+document", [("masked", "document")]),
        ("document, masked+causal", [("document",), ("masked", "causal")]),
        ("document:0.8,masked+causal:0.2", [("document",), ("masked", "causal")]),
        (None, [("causal",)]),
        ("", [("causal",)]),
        (7, [("causal",)]),
    ],
)
def test_objectives_are_read(said: Any, names: list[tuple[str, ...]]) -> None:
    assert [stage.objectives for stage in stages_of_run(a_run(said))] == names
    assert tuple(spec.name for spec in last_specs(a_run(said))) == names[-1]


def test_a_bare_base_that_says_nothing_has_learnt_nothing_we_know_of() -> None:
    assert last_specs(a_run(None, head=None)) == ()


@pytest.mark.parametrize(
    ("said", "shifted"),
    [("masked", False), ("hybrid", True), ("masked,hybrid", True), ("hybrid,document,masked", False)],
)
def test_where_a_hidden_word_is_predicted(said: str, shifted: bool) -> None:
    assert predicts_one_before(a_run(said)) is shifted


@pytest.mark.parametrize(
    ("details", "length"),
    [
        ({"options": {"length": 20}}, 20),
        ({"options": {"length": 90}}, 32),
        ({"options": {"length": "20"}}, 32),
        ({"options": {"length": 0}}, 32),
        ({"options": 3}, 32),
        ({}, 32),
    ],
)
def test_how_much_was_read_at_once(details: dict[str, Any], length: int) -> None:
    assert training_length(Run(Model(miniature("bag")), details=details)) == length


@pytest.mark.parametrize("said", ["causal", "hybrid", "document,causal", "causal+document", None])
def test_who_can_write(said: Any) -> None:
    check_ability(a_run(said), Path("runs/x"), "generates", "continue a text")


@pytest.mark.parametrize("said", ["masked", "hybrid", "document,masked", "causal+masked"])
def test_who_can_fill(said: Any) -> None:
    check_ability(a_run(said), Path("runs/x"), "fills", "guess hidden words")


@pytest.mark.parametrize(
    ("run", "ability", "said"),
    [
        (a_run("masked"), "generates", "runs/x was not trained to do it: its objective was masked. Pretrain one with "),
        (
            a_run("document,masked"),
            "generates",
            "its objective was document,masked. Pretrain one",
        ),
        (a_run("causal,masked"), "generates", "runs/x can no longer do it: its objective was causal,masked, and the"),
        (a_run("causal,bag"), "generates", "runs/x can no longer do it: its objective was causal,bag, and the last"),
        (a_run("hybrid,masked"), "generates", "runs/x can no longer do it"),
        (a_run("masked,causal"), "fills", "can no longer do it: its objective was masked,causal, and the last"),
        (a_run("causal"), "fills", "its objective was causal. Pretrain one with --objective masked or hybrid."),
        (a_run(None), "fills", "its objective was causal"),
        (a_run("document", head=None), "fills", "its objective was document"),
        (a_run("document"), "generates", "its objective was document"),
        (a_run(None, head=None), "generates", "its objective was nothing"),
        (a_run("causal", head=None), "generates", "has no language-model head"),
        (
            a_run("causal", head=miniature("bag").classifier(2)),
            "generates",
            "is a classifier without a language-model head",
        ),
        (a_run("causal", tokenizer=False), "generates", "has no tokenizer"),
    ],
)
def test_who_cannot(run: Run, ability: Ability, said: str) -> None:
    with pytest.raises(UserError) as error:
        check_ability(run, Path("runs/x"), ability, "do it")
    assert said in str(error.value)
