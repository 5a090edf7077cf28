"""Save and load: the same model back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch

import rehead
from rehead.errors import ConfigError, DamagedError, UserError
from rehead.locks import locked
from rehead.model import LanguageModel
from rehead.runs.run import Run, load, save
from rehead.runs.scoring import class_logits
from rehead.text.tokenizer import Tokenizer
from tests.model.conftest import POSITIONS, PRESETS, alive, miniature


def tiny_tokenizer() -> Tokenizer:
    words = ["<s>", "<pad>", "</s>", "<unk>", "[MASK]", "a", "truly", "good", "film"]
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: n for n, word in enumerate(words)}, "<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return Tokenizer(inner)


def a_run(name: str = "lab", **changes: Any) -> Run:
    config = miniature(name, nlayers=min(1, miniature(name).nlayers), nhid=8, ntokens=12, **changes)
    model = alive(config, config.classifier(2))
    return Run(model, tiny_tokenizer(), ["negative", "positive"], {"seed": 7, "options": {"lr": 0.1}})


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("positions", POSITIONS)
def test_save_load_gives_identical_logits(name: str, positions: str, tmp_path: Path) -> None:
    run = a_run(name, positions=positions)
    back = load(save(run, tmp_path / "run"))
    texts = ["a truly good film", "film", "", "good a good film a truly"]
    assert (class_logits(run, texts) == class_logits(back, texts)).all()
    assert back.model.config == run.model.config
    assert back.model.head_config == run.model.head_config
    assert (back.labels, back.details) == (run.labels, run.details)
    assert back.tokenizer is not None
    assert back.tokenizer.encode("a truly good film") == [5, 6, 7, 8]
    assert not back.model.training
    assert all(each.requires_grad for each in back.model.parameters())


@pytest.mark.parametrize("head", [None, LanguageModel(tied=True), LanguageModel(tied=False)])
def test_every_head_survives(head: LanguageModel | None, tmp_path: Path) -> None:
    model = alive(miniature("small"), head)
    back = rehead.load(save(Run(model), tmp_path / "run"))
    assert back.tokenizer is None
    assert back.labels is None
    for (name, ours), (other, theirs) in zip(model.state_dict().items(), back.model.state_dict().items(), strict=True):
        assert name == other
        assert torch.equal(ours, theirs)


def test_a_run_that_another_process_writes_is_not_replaced(tmp_path: Path) -> None:
    run = Run(alive(miniature("bag")))
    save(run, tmp_path / "run")
    with locked(tmp_path / "run"), pytest.raises(UserError, match="is being written by"):
        save(run, tmp_path / "run", overwrite=True)


def test_a_loaded_model_can_be_reheaded_and_trained(tmp_path: Path) -> None:
    back = load(save(Run(alive(miniature("lab"), LanguageModel(tied=False))), tmp_path / "run")).model
    back.replace_head(back.config.classifier(2))
    back(torch.zeros(1, 3, dtype=torch.long)).sum().backward()
    assert back.base.embedding.weight.grad is not None


def test_the_digest_names_what_was_loaded(tmp_path: Path) -> None:
    """What cached features are kept under: the same for the same files, another for other weights."""
    run = a_run()
    digests = []
    for name in ("one", "two", "three"):
        digests.append(load(save(run, tmp_path / name)).digest)
        with torch.no_grad():
            run.model.base.embedding.weight[0, 0] += name == "two"
    assert run.digest is None
    assert digests[0] == digests[1] != digests[2]


def test_the_same_run_is_the_same_bytes(tmp_path: Path) -> None:
    first, second = (save(a_run(), tmp_path / name) for name in ("one", "two"))
    for file in first.iterdir():
        assert file.read_text("latin-1").replace("# one", "# two") == (second / file.name).read_text("latin-1")
    assert sorted(each.name for each in first.iterdir()) == [
        "README.md",
        "config.json",
        "labels.json",
        "model.safetensors",
        "tokenizer.json",
    ]


def test_an_existing_run_is_kept_unless_told(tmp_path: Path) -> None:
    run = a_run()
    path = save(run, tmp_path / "run")
    before = (path / "config.json").read_bytes()
    with pytest.raises(UserError, match="exists already"):
        save(run, path)
    assert (path / "config.json").read_bytes() == before
    run.details["seed"] = 8
    save(run, path, overwrite=True)
    assert load(path).details["seed"] == 8
    assert [each.name for each in tmp_path.iterdir()] == ["run"]  # no left-overs


def test_a_failed_save_leaves_nothing(tmp_path: Path) -> None:
    run = a_run()
    run.details["not json"] = {1, 2}
    with pytest.raises(TypeError):
        save(run, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_sick_model_is_not_saved(tmp_path: Path) -> None:
    run = a_run()
    with torch.no_grad():
        run.model.base.embedding.weight[3, 1] = float("nan")
    with pytest.raises(ConfigError, match=r"base\.embedding\.weight holds NaN"):
        save(run, tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda run: setattr(run, "labels", ["same", "same"]), "different, non-empty names"),
        (lambda run: setattr(run, "labels", ["", "x"]), "different, non-empty names"),
        (lambda run: setattr(run, "labels", [0, 1]), "different, non-empty names"),
        (lambda run: run.model.to(torch.bfloat16), "bfloat16. Expected float32"),
        (lambda run: setattr(run, "labels", ["one"]), "1 label names for a model with 2 classes"),
        (lambda run: setattr(run, "model", alive(miniature("lab", ntokens=5))), "9 tokens.*ntokens=5"),
    ],
)
def test_parts_that_do_not_belong_together(change: Callable[[Run], None], said: str, tmp_path: Path) -> None:
    run = a_run()
    change(run)
    with pytest.raises(ConfigError, match=said):
        save(run, tmp_path / "run")


def test_the_rows_of_n_grams_survive_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    model = alive(miniature("bag"))
    assert model.base.ngrams is not None
    model.base.ngrams.choose_rows(torch.arange(len(model.base.ngrams.rows)))
    save(Run(model), tmp_path / "good")
    found = load(tmp_path / "good").model.base.ngrams
    assert found is not None
    assert torch.equal(found.rows, model.base.ngrams.rows)
    model.base.ngrams.rows[3] = 64
    save(Run(model), tmp_path / "bad")
    with pytest.raises(DamagedError, match=r"base\.ngrams\.rows"):
        load(tmp_path / "bad")
