"""An adapted base has learnt from the text, is read as the original is, and can be interrupted at any time."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rehead
from rehead.bases.encoder import Encoder
from rehead.cli import main
from rehead.errors import UserError
from rehead.pretrain.options import PretrainOptions
from rehead.pretrain.run import run_pretraining
from rehead.runs.run import Run
from rehead.training.metrics_log import read
from tests.bases.tiny import TEXTS, make_encoder, make_model2vec, transformers
from tests.training.running import Killed, broken_off, environment, left, metrics, torchrun

pytestmark = pytest.mark.usefixtures("quick")

SMALL: dict[str, Any] = {"length": 20, "batch": 160, "epochs": 2, "validations": 3, "quiet": True}


def options(text: Path, base: Path, out: Path, **changes: Any) -> PretrainOptions:
    return PretrainOptions(texts=[str(text)], out=out, base=str(base), **{**SMALL, **changes})


def adapt(text: Path, base: Path, out: Path, **changes: Any) -> Run:
    run = run_pretraining(options(text, base, out, **changes))
    assert run is not None
    return run


def held_out(out: Path) -> list[float]:
    return [line["loss"] for line in read(out / "metrics.jsonl") if line["kind"] == "valid"]


def mean_vectors(path: Path) -> np.ndarray:
    """What transformers gives for the texts, averaged over their tokens."""
    model = transformers.AutoModel.from_pretrained(path).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    found = []
    for text in TEXTS:
        ids = tokenizer(text, return_tensors="pt", truncation=True)["input_ids"]
        with torch.no_grad():
            found.append(model(ids).last_hidden_state[0].mean(0).numpy() if ids.numel() else None)
    return found


@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta", "mpnet", "modernbert", "gpt2"])
def test_a_language_model_is_trained_on(family: str, text: Path, tmp_path: Path) -> None:
    objective, kind = ("causal", "AutoModelForCausalLM") if family == "gpt2" else ("masked", "AutoModelForMaskedLM")
    base = make_encoder(tmp_path / "base", family, head=kind)
    run = adapt(text, base, tmp_path / "out", lr=1e-2, epochs=6)
    assert run.details["objective"] == objective
    losses = held_out(tmp_path / "out")
    assert min(losses) < 0.95 * losses[0]
    _, report = getattr(transformers, kind).from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    found = Encoder(tmp_path / "out").encode(TEXTS)
    for vector, expected in zip(found, mean_vectors(tmp_path / "out"), strict=True):
        if expected is not None:
            np.testing.assert_allclose(vector, expected, atol=1e-5)
    assert not np.allclose(found[0], Encoder(base).encode(TEXTS)[0], atol=1e-3)


def test_a_sentence_encoder_keeps_all_but_its_weights(text: Path, sentences: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = adapt(text, sentences, out, lr=1e-3, epochs=6)
    assert run.details["objective"] == "contrastive"
    assert min(held_out(out)) < held_out(out)[0]
    assert not (out / "pretrain.json").exists()
    for name in ("modules.json", "1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors",
                 "sentence_bert_config.json", "tokenizer.json", "LICENSE"):  # fmt: skip
        assert (out / name).read_bytes() == (sentences / name).read_bytes()
    adapted, before = Encoder(out), Encoder(sentences)
    assert adapted.max_length == before.max_length
    assert not np.allclose(adapted.encode(TEXTS), before.encode(TEXTS), atol=1e-3)
    pooled = np.stack([each for each in mean_vectors(out) if each is not None])  # of short texts: nothing is cut
    dense = torch.tanh(before.steps.after[0](torch.from_numpy(pooled)).atanh())  # `steps` has its own tanh
    expected = torch.nn.functional.normalize(dense, dim=1).numpy()
    short = [place for place, each in enumerate(TEXTS) if len(each.split()) < 20]
    np.testing.assert_allclose(adapted.encode(TEXTS)[short], expected[short], atol=1e-5)
    assert "license: mit" in (out / "README.md").read_text()
    assert run.details["base"]["license"] == "mit"


def test_it_is_a_base_again(text: Path, sentences: Path, tmp_path: Path) -> None:
    """For classifiers, and for adapting it once more."""
    adapt(text, sentences, tmp_path / "first", epochs=1)
    adapt(text, tmp_path / "first", tmp_path / "second", epochs=1)
    run = rehead.load(tmp_path / "second")
    [(name, brought)] = run.model.brought.items()
    assert name == "encoder:second"
    assert brought.license == "mit"
    assert brought.engine.encode(["a good film"]).shape == (1, 8)


@pytest.mark.parametrize("objective", ["masked", "contrastive"])
def test_it_resumes_to_the_bit(objective: str, text: Path, bert: Path, tmp_path: Path) -> None:
    """Broken off twice, amid a step of two parts; dropout is on."""
    given = {"objective": objective, "accumulate": 2, "batch": 1_200, "checkpoint_steps": 2}
    given["epochs"] = 6
    adapt(text, bert, tmp_path / "straight", **given)
    expected = left(tmp_path / "straight")
    assert expected.metrics[-1]["step"] >= 4
    out = tmp_path / "broken"
    broken_off(options(text, bert, out, **given), 6)
    broken_off(options(text, bert, out, resume=True, **given), 5)
    adapt(text, bert, out, resume=True, **given)
    assert left(out) == expected


@pytest.mark.parametrize("objective", ["masked", "contrastive"])
def test_two_processes_do_what_one_does(objective: str, text: Path, bert: Path, tmp_path: Path) -> None:
    """The pooler of a BERT gets no gradient, which two processes could not average."""
    given = {"objective": objective, "batch": 1_200, "precision": "float32"}
    adapt(text, bert, tmp_path / "one", **given, accumulate=2)
    words = ["pretrain", str(text), "--from", str(bert), "--out", str(tmp_path / "two"), "--device", "cpu"]
    for name, value in {**SMALL, **given}.items():
        words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    done = subprocess.run(torchrun(words), capture_output=True, text=True, env=environment(), timeout=300)
    assert done.returncode == 0, done.stderr
    for one, two in zip(metrics(tmp_path / "one"), metrics(tmp_path / "two"), strict=True):
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-4)


def test_it_says_how_long_it_takes(text: Path, bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pretrain", str(text), "--from", str(bert), "--length", "20", "--batch", "160"]
    assert main([*words, "--out", str(tmp_path / "steps"), "--epochs", "1"]) == 0
    said = capsys.readouterr()
    assert "masked for 14 steps, about" in said.err
    assert f"{tmp_path / 'steps'}: {bert}, adapted; objective masked" in said.out
    assert main([*words, "--out", str(tmp_path / "minutes"), "--minutes", "0.02"]) == 0
    assert "about 1.2 s" in capsys.readouterr().err
    assert json.loads((tmp_path / "minutes" / "adapted.json").read_text())["details"]["steps"] > 1


def test_it_is_replaced_only_by_another_run(text: Path, sentences: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    adapt(text, sentences, out, epochs=1)
    with pytest.raises(UserError, match="exists already"):
        adapt(text, sentences, out, epochs=1)
    adapt(text, sentences, out, epochs=1, overwrite=True, seed=1)
    (out / "1_Pooling" / "..").resolve().joinpath("notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"notes\.txt"):
        adapt(text, sentences, out, epochs=1, overwrite=True)
    assert Encoder(out).width == 8


def test_what_cannot_be_adapted_is_refused(text: Path, bert: Path, sentences: Path, tmp_path: Path) -> None:
    bare = make_encoder(tmp_path / "bare")
    gpt2 = make_encoder(tmp_path / "gpt2", "gpt2")
    table = make_model2vec(tmp_path / "table")
    run = tmp_path / "run"
    rehead.pretrain(text, out=run, vocab=300, epochs=0.1, quiet=True)
    cases: list[tuple[Path, dict[str, Any], str]] = [
        (sentences, {"objective": "masked"}, "contrastive"),
        (bare, {"objective": "masked"}, "contrastive"),
        (bert, {"objective": "causal"}, "causal head"),
        (gpt2, {"objective": "masked"}, "masked head"),
        (table, {}, "static table"),
        (run, {}, str(run)),
        (tmp_path / "nowhere", {}, "no such base"),
        (bert, {"objective": "bag"}, "--objective bag"),
        (bert, {"preset": "small"}, "--preset"),
        (bert, {"nlayers": 2}, "--nlayers"),
        (bert, {"shard": True}, "--shard"),
        (bert, {"objective": "contrastive", "mask_probability": 0.2}, "--mask-probability"),
        (bert, {"length": 60}, "40 tokens"),
    ]
    for base, given, named in cases:
        with pytest.raises(UserError, match=named):
            adapt(text, base, tmp_path / "out", **given)
        assert not list((tmp_path / "out").glob("*"))


def test_a_run_is_resumed_with_the_same_base(text: Path, bert: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    broken_off(options(text, bert, out, checkpoint_steps=1), 5)
    other = make_encoder(tmp_path / "other", seed=3, head="AutoModelForMaskedLM")
    with pytest.raises(UserError, match="another base"):
        adapt(text, other, out, resume=True)
    moved = bert.rename(bert.with_name("moved"))
    try:
        assert adapt(text, moved, out, resume=True).details["steps"] > 1
    finally:
        moved.rename(bert)


def test_a_step_that_diverges_says_so(text: Path, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import rehead.pretrain.adapting.run as adapting

    plain = adapting.train

    def spoil(phases: Any, *given: Any, **more: Any) -> Any:
        state = plain(phases, *given, **more)
        with torch.no_grad():
            next(phases[0].objective.network.parameters())[0] = float("nan")
        return state

    monkeypatch.setattr(adapting, "train", spoil)
    with pytest.raises(UserError, match="diverged"):
        adapt(text, bert, tmp_path / "out", epochs=1)
    assert not (tmp_path / "out" / "config.json").exists()


def test_a_run_that_was_stopped_in_cleaning_up_is_finished(
    text: Path, sentences: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it replaces another one, which answers until then."""
    out = tmp_path / "out"
    adapt(text, sentences, out, epochs=1)
    before = (out / "model.safetensors").read_bytes()

    def stop(*given: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("rehead.pretrain.run.finish", stop)
        with pytest.raises(Killed):
            adapt(text, sentences, out, epochs=1, seed=1, overwrite=True)
    assert (out / "model.safetensors").read_bytes() == before
    run = adapt(text, sentences, out, epochs=1, seed=1, resume=True)
    assert (out / "model.safetensors").read_bytes() != before
    assert run.details["seed"] == 1
    assert run.model.brought["encoder:out"].engine.width == 8
