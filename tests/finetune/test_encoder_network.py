"""Fine-tuning brought encoders by gradient: gradients, rates, what is frozen, resuming, and the run that comes out."""

from __future__ import annotations

import dataclasses
import json
import pickle
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import rehead.disk
from rehead.cli import main
from rehead.errors import UserError
from rehead.finetune import network as network_module
from rehead.finetune.candidates import encoder as candidate
from rehead.finetune.candidates.candidate import Task
from rehead.finetune.encoder_network import EncoderNetwork
from rehead.finetune.estimator import TextClassifier
from rehead.finetune.fit import fit_classifier
from rehead.finetune.fitted import Fitted
from rehead.finetune.network import NoTimeError, train_network
from rehead.finetune.options import FitOptions
from rehead.runs.run import Run, bring, load, save
from rehead.runs.scoring import class_logits
from rehead.runs.starting import combine
from rehead.text.documents import LabelledData
from rehead.training import loop
from rehead.training.optimizers import Optimizers
from rehead.views import brought_views
from rehead.views.encoder import EncoderView
from tests.bases.tiny import FAMILIES, POSITIONS, make_encoder, make_sentence_encoder, make_vectors, transformers
from tests.training.running import Killed, command, environment, torchrun

pytestmark = pytest.mark.usefixtures("quick_search")
BRIGHT, DULL, FILL = ("good", "bright"), ("bad", "dull"), ("the", "film", "was", "a", "city", "very", "and")


@pytest.fixture(autouse=True)
def one_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rehead.finetune.linear_start.CS", (1e-2,))


def films(count: int, seed: int = 0, length: int = 6) -> LabelledData:
    """Texts of words that the tiny tokenizer knows; one word decides about the label."""
    chance = np.random.RandomState(seed)
    texts = []
    for place in range(count):
        words = [*chance.choice(FILL, length), chance.choice((DULL, BRIGHT)[place % 2])]
        texts.append(" ".join(words[each] for each in chance.permutation(len(words))))
    labels = [(("bad", "good")[place % 2],) for place in range(count)]
    return LabelledData(texts, labels, ["bad", "good"], False, [("x", place + 1) for place in range(count)])


def tune(base: Run, data: LabelledData | None = None, **changes: Any) -> Fitted:
    settings = FitOptions(**{"freeze": "none", "epochs": 2, "lr": 1e-3, **changes})
    return train_network(films(24) if data is None else data, films(10, 1), base=base, options=settings)


def network_of(root: Path) -> EncoderNetwork:
    [view] = brought_views(bring(root).model)
    assert isinstance(view, EncoderView)
    return EncoderNetwork(view)


def weights_of(run: Run) -> dict[str, torch.Tensor]:
    [brought] = run.model.brought.values()
    return load_file(brought.root / "model.safetensors")


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_of_a_padded_batch_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    root = make_encoder(tmp_path / "tiny", family)
    network = network_of(root).eval()
    texts = ["the film was very good", "bad", "where is the river and what is the city"]
    _, parts = network.cut(network.tokenize(texts))
    torch.manual_seed(0)
    goal = torch.randn(len(texts), network.columns)
    (network.pool(network.collate(parts)) * goal).sum().backward()
    plain = transformers.AutoModel.from_pretrained(root).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(root)
    for text, direction in zip(texts, goal, strict=True):  # one at a time: without padding
        hidden = plain(input_ids=torch.tensor([tokenizer(text)["input_ids"]])).last_hidden_state
        (hidden.mean(1) * direction).sum().backward()
    expected = {name: each.grad for name, each in plain.named_parameters() if each.grad is not None}
    found = {name: each.grad for name, each in network.network.named_parameters() if each.grad is not None}
    assert found.keys() == expected.keys()
    assert network.unused == {name for name, _ in plain.named_parameters()} - expected.keys()
    for name, each in expected.items():
        torch.testing.assert_close(found[name], each, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_depths_are_the_layers_from_the_top_then_the_embeddings(family: str, tmp_path: Path) -> None:
    network = network_of(make_encoder(tmp_path / "tiny", family))
    first, second, below = network.depths()
    names = {id(each): name for name, each in network.network.named_parameters()}
    assert all(".0." not in f".{names[id(each)]}" for each in first)
    assert any(".1." in f".{names[id(each)]}" for each in first)
    assert all(".0." in f".{names[id(each)]}" for each in second)
    every = [id(each) for group in (first, second, below) for each in group]
    assert len(every) == len(set(every)) == len(names) - len(network.unused)
    embeddings = network.network.get_input_embeddings()
    assert any(each is embeddings.weight for each in below)


def test_each_layer_learns_at_its_rate_and_begins_at_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, tuple[float, float]]] = []
    plain = Optimizers.step

    def step(made: Optimizers, factor: float, fraction: float = 1.0) -> None:
        plain(made, factor, fraction)
        groups = [group for each in made.each for group in each.param_groups]
        seen.append(
            {made.names[each]: (group["lr"] / factor, fraction) for group in groups for each in group["params"]}
        )

    monkeypatch.setattr(Optimizers, "step", step)
    tune(bring(make_encoder(tmp_path / "tiny")), epochs=4, lr=1e-3, layer_decay=0.5, unfreeze=1)
    inner = "network.network."
    depth = {
        "model.head.bias": 0,
        f"{inner}encoder.layer.1.output.dense.weight": 1,
        f"{inner}encoder.layer.0.output.dense.weight": 2,
        f"{inner}embeddings.word_embeddings.weight": 3,
    }
    for rates in seen:
        for name, number in depth.items():
            rate, fraction = rates[name]
            assert rate == pytest.approx(1e-3 * 0.5**number if fraction >= number / 4 else 0.0), (name, fraction)
    assert all(rates[f"{inner}embeddings.word_embeddings.weight"][0] for rates in seen[-2:])


@pytest.mark.parametrize(("freeze", "stays"), [("embeddings", "embeddings."), ("layers", "encoder.layer.")])
def test_what_is_frozen_stays_bit_for_bit(freeze: str, stays: str, tmp_path: Path) -> None:
    root = make_encoder(tmp_path / "tiny")
    before = {path.name: path.read_bytes() for path in root.iterdir()}
    fitted = tune(bring(root), freeze=freeze)
    old, new = load_file(root / "model.safetensors"), weights_of(fitted.run)
    assert old.keys() == new.keys()
    same = {name for name in old if torch.equal(old[name], new[name])}
    assert {name for name in old if name.startswith(stays)} <= same
    moved = "encoder.layer.1.output.dense.weight" if freeze == "embeddings" else "embeddings.word_embeddings.weight"
    assert moved not in same
    assert {path.name: path.read_bytes() for path in root.iterdir()} == before
    assert fitted.run.details["freeze"] == freeze


def test_it_resumes_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = bring(make_encoder(tmp_path / "tiny"))
    monkeypatch.setattr(rehead.disk, "fsync", lambda path: None)

    def run(out: Path, *, resume: bool = False) -> Fitted:
        settings = FitOptions(freeze="none", epochs=2, lr=1e-3, checkpoint_steps=3)
        return train_network(films(24), films(8, 1), base=base, options=settings, directory=out, resume=resume)

    expected = run(tmp_path / "straight").run
    plain = loop._Training._here
    for at in (2, 9, 16):
        seen = 0

        def here(training: Any, batch: Any, at: int = at) -> Any:
            nonlocal seen
            seen += 1
            if seen == at:
                raise Killed
            return plain(training, batch)

        with monkeypatch.context() as patched:
            patched.setattr(loop._Training, "_here", here)
            with pytest.raises(Killed):
                run(tmp_path / str(at))
        found = run(tmp_path / str(at), resume=True).run
        assert [each.digest for each in found.model.brought.values()] == [
            each.digest for each in expected.model.brought.values()
        ]
        assert all(
            torch.equal(found.model.state_dict()[key], each) for key, each in expected.model.state_dict().items()
        )


def test_it_learns_and_windows_count_as_pieces(tmp_path: Path) -> None:
    root = make_sentence_encoder(tmp_path / "tiny", {"pooling_mode_mean_tokens": True}, normalize=True)
    data = films(40, length=60)  # three windows of 22 tokens each
    fitted = tune(bring(root), data, long="windows", epochs=3)
    assert fitted.run.model.head_config.views[0].options["long"] == "windows"
    loaded = load(save(fitted.run, tmp_path / "run"))
    np.testing.assert_allclose(class_logits(loaded, data.texts), class_logits(fitted.run, data.texts), atol=1e-5)
    right = class_logits(tune(bring(root), films(60), epochs=10, lr=3e-3).run, films(40, 2).texts).argmax(1)
    assert (right == np.arange(40) % 2).mean() > 0.9


def write_csv(path: Path, data: LabelledData) -> Path:
    rows = [f"{labels[0]},{text}" for text, labels in zip(data.texts, data.labels, strict=True)]
    path.write_text("\n".join(["label,text", *rows]) + "\n")
    return path


def test_the_command_and_all_that_reads_its_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, train = make_encoder(tmp_path / "tiny", head="AutoModelForMaskedLM"), write_csv(tmp_path / "t.csv", films(40))
    given = ["finetune", str(train), "--from", str(root), "--freeze", "none", "--lr", "3e-3", "--layer-decay", "0.9"]
    out = tmp_path / "run"
    assert main([*given, "--epochs", "10", "--out", str(out)]) == 0
    said = capsys.readouterr().err
    assert "replacing the BertForMaskedLM head of encoder:tiny by a new classifier head" in said
    assert "fine-tuning encoder:tiny: " in said
    assert "each layer at 0.9 of the rate above it" in said
    shutil.rmtree(root)  # self-contained
    assert "fine-tuned" in (out / "README.md").read_text().replace("\\", "")
    test = write_csv(tmp_path / "test.csv", films(40, 3))
    assert main(["evaluate", str(out), str(test), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0.8
    assert main(["predict", str(out), str(test), "--explain", "--format", "jsonl", "--quiet"]) == 0
    assert main(["inspect", str(out)]) == 0
    assert main(["export", str(out), "--out", str(tmp_path / "onnx")]) == 0
    capsys.readouterr()
    assert main([*given, "--link", "--out", str(tmp_path / "linked")]) == 2


@pytest.mark.slow
def test_two_processes_do_what_one_does(tmp_path: Path) -> None:
    root, train = make_encoder(tmp_path / "tiny"), write_csv(tmp_path / "t.csv", films(40))
    words = ["finetune", str(train), "--valid", str(write_csv(tmp_path / "v.csv", films(10, 1))), "--from", str(root)]
    words += ["--freeze", "none", "--epochs", "2", "--dropout", "0", "--quiet", "--out"]
    alone = command([*words, str(tmp_path / "one")])
    assert alone.returncode == 0, alone.stderr
    two = torchrun([*words, str(tmp_path / "two")])
    done = subprocess.run(two, capture_output=True, text=True, env=environment(), timeout=300)
    assert done.returncode == 0, done.stderr
    runs = [load(tmp_path / name) for name in ("one", "two")]
    for name, tensor in weights_of(runs[0]).items():
        torch.testing.assert_close(weights_of(runs[1])[name], tensor, atol=1e-4, rtol=1e-4)
    one, other = (class_logits(run, films(20, 3).texts) for run in runs)
    np.testing.assert_allclose(other, one, atol=1e-3)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--link"], "--link refers to a base as it is"),
        (["--scratch"], "--scratch"),
        (["--minutes", "1", "--epochs", "2"], "--epochs counts epochs"),
        (["--minutes", "0"], "--minutes 0"),
        (["--optimizer", "muon"], "--optimizer is for layers"),
        (["--unlabelled", "t.csv"], "--unlabelled"),
    ],
)
def test_what_does_not_fit_is_refused(
    more: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = write_csv(tmp_path / "t.csv", films(30))
    given = ["finetune", str(train), "--from", str(make_encoder(tmp_path / "tiny")), "--out", str(tmp_path / "run")]
    assert main([*given, "--freeze", "none", *more]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_one_base_is_trained_at_a_time(tmp_path: Path) -> None:
    make_vectors(tmp_path / "v.vec")
    sources = [str(make_encoder(tmp_path / "tiny")), str(tmp_path / "v.vec")]
    data = films(20)
    labels = [each for (each,) in data.labels]
    with pytest.raises(UserError, match="2 are given"):
        TextClassifier(sources, freeze="none").fit(data.texts, labels)


def test_the_estimator_saves_and_pickles_it(tmp_path: Path) -> None:
    data, root = films(30), make_encoder(tmp_path / "tiny")
    classifier = TextClassifier(str(root), freeze="none", epochs=1, lr=1e-3)
    classifier.fit(data.texts, [each for (each,) in data.labels])
    expected = classifier.predict_proba(data.texts)
    kept = pickle.dumps(classifier)
    path = classifier.save(tmp_path / "run")
    del classifier
    shutil.rmtree(root)
    np.testing.assert_allclose(TextClassifier.load(path).predict_proba(data.texts), expected, atol=1e-6)
    np.testing.assert_allclose(pickle.loads(kept).predict_proba(data.texts), expected, atol=1e-6)


# The recipe


def tuning_of(fitted: Fitted) -> list[str]:
    return [note for note in fitted.notes if "fine-tun" in note]


def test_unasked_it_is_tried_where_it_is_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, data = bring(make_encoder(tmp_path / "tiny")), films(60)
    [said] = tuning_of(fit_classifier(data, None, base=base))
    assert "fine-tuning encoder:tiny by gradient descent was not tried: " in said
    assert "--minutes N" in said
    monkeypatch.setattr(candidate, "UNASKED", 1e12)
    [said] = tuning_of(fit_classifier(data, None, base=base))
    assert said.startswith("fine-tuned encoder:tiny")
    [said] = tuning_of(fit_classifier(data, None, base=base, options=FitOptions(minutes=0)))
    assert said.endswith("was not tried: --minutes 0")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    [said] = tuning_of(fit_classifier(data, None, base=base))
    assert "pip install 'rehead[hub]'" in said


def test_the_work_of_training_is_counted(tmp_path: Path) -> None:
    base, data = bring(make_encoder(tmp_path / "tiny")), films(60)
    task = Task.make(data, base, FitOptions(), None)
    name, brought = next(iter(base.model.brought.items()))
    parts = candidate.held_out_parts(task.folds, 60)
    read = 10 * (60 + sum(len(inside) for inside, _ in parts))  # ten epochs
    tokens = np.mean([len(each) for each in brought.engine.token_ids(data.texts)])
    assert candidate.training_work(task, name, parts) == pytest.approx(3 * brought.engine.work * read * tokens)
    long = dataclasses.replace(data, texts=[text * 100 for text in data.texts])  # of which 40 tokens are read
    task = Task.make(long, base, FitOptions(epochs=2), None)
    assert candidate.training_work(task, name, parts) == pytest.approx(3 * brought.engine.work * read / 5 * POSITIONS)


@pytest.mark.parametrize("alone", [True, False])
def test_the_recipe_keeps_a_fine_tuned_encoder(alone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rehead.finetune.selection.is_better", lambda *_, **__: True)
    monkeypatch.setattr(candidate, "is_better", lambda *_, **__: not alone)
    make_vectors(tmp_path / "v.vec")
    base = combine([bring(make_encoder(tmp_path / "tiny"), link=True), bring(tmp_path / "v.vec")])
    fitted = fit_classifier(films(60), None, base=base, options=FitOptions(minutes=5, lr=1e-3))
    names = [view.name for view in fitted.run.model.head_config.views]
    if alone:
        assert names == ["encoder:tiny"]
    else:
        assert names[-1] == "encoder:tiny-tuned"
        assert len(names) > 1
    assert fitted.run.details["freeze"] == "none"
    texts = films(20, 3).texts
    expected = class_logits(fitted.run, texts)
    path = save(fitted.run, tmp_path / "run")
    tuned = json.loads((path / "config.json").read_text())["brought"][names[-1]]
    assert tuned["link"] is None  # carried, though its base was to be linked
    np.testing.assert_allclose(class_logits(load(path), texts), expected, atol=1e-4)


def test_scores_beside_the_best_add_up(tmp_path: Path) -> None:
    root = make_encoder(tmp_path / "tiny")
    frozen = fit_classifier(films(40), None, base=bring(root), options=FitOptions(freeze="base")).run
    tuned, texts = tune(bring(root)).run, films(20, 3).texts
    expected = 0.25 * class_logits(frozen, texts) + 0.75 * class_logits(tuned, texts) / 2
    found = candidate.beside(frozen, tuned, 0.75, 2.0)
    np.testing.assert_allclose(class_logits(found, texts), expected, atol=1e-5)


def test_the_time_is_kept_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = bring(make_encoder(tmp_path / "tiny"))
    monkeypatch.setattr(network_module, "time_step", lambda *_: 1.0)
    settings = FitOptions(freeze="none", epochs=5)
    whole = train_network(films(40), None, base=base, options=settings, whole=True).run.details
    epoch = whole["steps"] / 5
    short = train_network(films(40), None, base=base, options=settings, whole=True, most_seconds=2.5 * epoch)
    assert short.run.details["steps"] == int(2.5 * epoch)
    assert short.run.details["epochs"] == pytest.approx(int(2.5 * epoch) / epoch)
    with pytest.raises(NoTimeError, match="an epoch would take"):
        train_network(films(40), None, base=base, options=settings, whole=True, most_seconds=0.5 * epoch)
    fitted = fit_classifier(films(60), None, base=base, options=FitOptions(minutes=0.01))
    assert any("was not tried: an epoch would take" in note for note in fitted.notes)


def test_folds_are_put_together_to_parts() -> None:
    folds = [(np.setdiff1d(np.arange(100), held), held) for held in np.arange(100).reshape(10, 10)]
    for examples, number in ((100, 4), (500, 2), (1_500, 1)):
        parts = candidate.held_out_parts(folds, examples)
        assert [len(outside) for _, outside in parts] == [20] * number
        for inside, outside in parts:
            assert set(inside) == set(range(examples)) - set(outside)
    assert candidate.held_out_parts(folds[:1], 5_000) == folds[:1]
