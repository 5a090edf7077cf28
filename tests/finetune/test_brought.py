"""Fine-tuning from bases that others pretrained, end to end: the command, Python, the estimator."""

from __future__ import annotations

import dataclasses
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone

import rehead
from rehead.cli import main
from rehead.finetune.candidates import linear, self_training
from rehead.finetune.candidates.candidate import Task, affordable
from rehead.finetune.estimator import TextClassifier
from rehead.finetune.fit import fit_classifier
from rehead.finetune.options import FitOptions
from rehead.model.config import Classifier
from rehead.runs.run import bring, load, save
from rehead.runs.scoring import class_logits
from rehead.runs.starting import combine
from rehead.use.explain import explain
from rehead.use.labeller import Labeller
from rehead.views import brought_views
from tests.bases.tiny import make_encoder, make_model2vec, make_vectors, transformers
from tests.finetune.conftest import MakeBase
from tests.finetune.sets import BAD, FILL, GOOD, multilabel, reviews

pytestmark = pytest.mark.usefixtures("quick_search")


def make_knowing(path: Path, *, noise: float = 0.1) -> Path:
    """Word vectors that know good words from bad ones."""
    chance = np.random.RandomState(0)
    lines = []
    for words, sign in ((GOOD, 1.0), (BAD, -1.0), (FILL, 0.0)):
        for word in words:
            row = [sign, 0, *(noise * chance.randn(4))]
            lines.append(" ".join([word, *(f"{each:.5f}" for each in row)]))
    path.write_text("\n".join(lines) + "\n")
    return path


def write_csv(path: Path, count: int, seed: int = 0) -> Path:
    data = reviews(count, seed)
    rows = [f"{labels[0]},{text}" for text, labels in zip(data.texts, data.labels, strict=True)]
    path.write_text("\n".join(["label,text", *rows]) + "\n")
    return path


def views_of(run: rehead.Run) -> list[str]:
    assert isinstance(run.model.head_config, Classifier)
    return [view.name for view in run.model.head_config.views]


def test_a_base_that_knows_what_matters_is_chosen_and_worth_is_said(tmp_path: Path) -> None:
    base = combine([bring(make_knowing(tmp_path / "good.vec")), bring(make_encoder(tmp_path / "noise"))])
    data = reviews(24)
    fitted = fit_classifier(data, None, base=base)
    assert "static:good" in views_of(fitted.run)
    alone = fitted.run.details["views"]["alone"]
    assert set(alone) >= {"static:good", "encoder:noise", "words"}
    assert alone["static:good"] >= 0.95 > alone["encoder:noise"]
    assert any("of each view alone: static:good" in note for note in fitted.notes)
    assert [each["view"] for each in fitted.run.details["brought"]] == list(fitted.run.model.brought)
    new = reviews(60, 1)
    assert (class_logits(fitted.run, new.texts).argmax(1) == np.arange(60) % 2).mean() > 0.95


def test_own_and_brought_bases_together(make_base: MakeBase, tmp_path: Path) -> None:
    own = make_base()
    base = combine([own, bring(make_knowing(tmp_path / "good.vec"))])
    fitted = fit_classifier(reviews(40), None, base=base, options=FitOptions(freeze="base"))
    assert set(fitted.run.details["views"]["alone"]) == {"bag", "static:good"}
    path = save(fitted.run, tmp_path / "run")
    loaded = load(path)
    assert loaded.model.config.empty is ("bag" not in views_of(loaded))
    np.testing.assert_allclose(
        class_logits(loaded, ["a great film"]), class_logits(fitted.run, ["a great film"]), atol=1e-5
    )
    assert not own.model.brought


def test_multilabel(tmp_path: Path) -> None:
    data = multilabel(60)
    fitted = fit_classifier(data, None, base=bring(make_knowing(tmp_path / "good.vec")))
    assert fitted.valid is not None
    assert 0 < fitted.run.details["views"]["together"] <= 1


def test_many_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("candidate", "linear"):
        monkeypatch.setattr(f"rehead.finetune.candidates.{module}.SEARCHED", 100)
    base = combine([bring(make_knowing(tmp_path / "good.vec")), bring(make_encoder(tmp_path / "noise"))])
    fitted = fit_classifier(reviews(160), None, base=base)
    assert set(fitted.run.details["views"]["alone"]) >= {"static:good", "encoder:noise", "words", "characters"}
    assert fitted.valid is not None
    assert fitted.valid.accuracy > 0.9


def test_self_training_reads_unlabelled_text_through_all_views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = bring(make_knowing(tmp_path / "good.vec"))
    data, unlabelled = reviews(12), reviews(200, 5).texts
    task = Task.make(data, base, FitOptions(), unlabelled)
    best = linear.propose(task, None)
    found = self_training.propose(task, best)
    assert not isinstance(found, str)
    run = found.build()
    assert {"words", "characters"} <= set(views_of(run))
    new = reviews(60, 1)
    assert (class_logits(run, new.texts).argmax(1) == np.arange(60) % 2).mean() > 0.9
    monkeypatch.setattr(self_training, "affordable", lambda *_: 5)
    assert "too long" in str(self_training.propose(task, best))


def test_what_the_teacher_gives_no_weight_does_not_read_unlabelled_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, unlabelled = reviews(12), reviews(200, 5).texts
    task = Task.make(data, bring(make_encoder(tmp_path / "tiny")), FitOptions(), unlabelled)
    best = linear.propose(task, None)
    [encoder] = task.brought_views
    encoded: list[str] = []
    monkeypatch.setattr(type(encoder), "read", lambda _, texts: encoded.extend(texts.texts))
    monkeypatch.setattr(self_training, "affordable", lambda texts, views: 5 if encoder in views else len(texts))
    with_weight = [{**each, encoder.name: 1.0} for each in best.settings]
    assert "too long" in str(self_training.propose(task, dataclasses.replace(best, settings=with_weight)))
    idle = [{**each, encoder.name: 0.0} for each in best.settings]
    teacher = dataclasses.replace(best, settings=idle, fit=lambda some: linear.fit_average(some, idle))
    found = self_training.propose(task, teacher)
    assert not isinstance(found, str)
    run = found.build()
    assert not encoded
    assert encoder.name not in views_of(run)
    new = reviews(60, 1)
    assert (class_logits(run, new.texts).argmax(1) == np.arange(60) % 2).mean() > 0.9


def test_the_text_that_an_encoder_reads_is_bounded_by_its_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    views = brought_views(bring(make_encoder(tmp_path / "tiny")).model)
    engine = views[0].brought.engine
    texts = ["the film was not very good "] * 1_000  # eight tokens each, with <s> and </s>
    assert affordable(texts, views) == 1_000
    monkeypatch.setattr("rehead.finetune.candidates.candidate.MAX_WORK", 8 * engine.work * 70 + 1)
    assert affordable(texts, views) == 70
    crowded = ["the " * 6 + " " * 4 * 6, "it " * 6 + " " * 30] * 500  # as many tokens, of more characters
    assert affordable(crowded, views) == 70
    long = ["the film " * 4_000] * 1_000  # of which only the first tokens are read
    assert affordable(long, views) == 560 // views[0].max_tokens
    table = brought_views(bring(make_vectors_at(tmp_path)).model)
    assert affordable(texts, table) == 1_000


def make_vectors_at(folder: Path) -> Path:
    make_vectors(folder / "v.vec")
    return folder / "v.vec"


def test_the_command_with_several_bases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vectors, encoder = make_knowing(tmp_path / "good.vec"), make_encoder(tmp_path / "tiny")
    table = make_model2vec(tmp_path / "table")
    train, out = write_csv(tmp_path / "train.csv", 40), tmp_path / "run"
    given = ["finetune", str(train), "--from", str(vectors), "--from", str(encoder), str(table), "--out", str(out)]
    assert main(given) == 0
    said = capsys.readouterr()
    assert "its out-of-fold accuracy alone" in said.out
    assert "static:good" in said.out
    assert "chosen together" in said.out
    assert "encoder:tiny: " in said.err
    for each in (vectors, encoder, table):  # self-contained
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    test = write_csv(tmp_path / "test.csv", 40, 1)
    assert main(["evaluate", str(out), str(test), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0.9
    assert main(["predict", str(out), str(test), "--explain", "--format", "jsonl", "--quiet"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert any(word["word"] in GOOD + BAD for word in first["explanation"]["words"])
    assert main(["predict", str(out), str(test), "--most-uncertain", "3", "--quiet"]) == 0
    assert main(["inspect", str(out)]) == 0
    capsys.readouterr()
    assert main(["export", str(out), "--out", str(tmp_path / "onnx")]) == 0
    assert (tmp_path / "onnx" / "bases" / "good.json").exists()


def test_a_classifier_with_an_encoder_explains(tmp_path: Path) -> None:
    fitted = fit_classifier(
        reviews(40), None, base=bring(make_encoder(tmp_path / "tiny")), options=FitOptions(freeze="base")
    )
    [found] = explain(Labeller.of(fitted.run), ["the film was very good and dull"])
    assert [found.text[each.begin : each.end] for each in found.words] == found.text.split()
    assert any(each.weight for each in found.words)


def test_links(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encoder, train, out = make_encoder(tmp_path / "tiny"), write_csv(tmp_path / "train.csv", 30), tmp_path / "run"
    given = ["finetune", str(train), "--from", str(encoder), "--freeze", "base", "--out", str(out), "--quiet"]
    assert main([*given, "--link"]) == 0
    assert not (out / "bases").exists()
    assert main(["evaluate", str(out), str(train)]) == 0
    make_encoder(encoder, seed=3)
    assert main(["evaluate", str(out), str(train)]) == 2
    assert "SHA-256 differs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--freeze", "none"], "--freeze none trains a network; a static table is only read"),
        (["--scratch"], "--scratch trains a network"),
        (["--vocab", "100"], "--vocab"),
        (["--length", "64"], "--length is for a base of rehead's own"),
        (["--long", "head"], "--long is for bases that read so many tokens at once"),
    ],
)
def test_what_a_brought_base_cannot_do_is_refused(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = write_csv(tmp_path / "train.csv", 30)
    given = ["finetune", str(train), "--from", str(make_vectors_at(tmp_path)), "--out", str(tmp_path / "run")]
    assert main([*given, *options]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_link_needs_a_brought_base(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = write_csv(tmp_path / "train.csv", 30)
    assert main(["finetune", str(train), "--link", "--out", str(tmp_path / "run")]) == 2
    assert "--link" in capsys.readouterr().err


def test_from_python(tmp_path: Path) -> None:
    train, vectors = write_csv(tmp_path / "train.csv", 30), make_knowing(tmp_path / "good.vec")
    made = rehead.finetune(train, out=tmp_path / "run", base=[vectors], quiet=True)
    assert "static:good" in views_of(made)
    again = rehead.finetune(train, out=tmp_path / "second", base=tmp_path / "run", quiet=True)  # a run that carries it
    assert "static:good" in views_of(again)


def test_the_estimator(tmp_path: Path) -> None:
    data, vectors, encoder = reviews(40), make_knowing(tmp_path / "good.vec"), make_encoder(tmp_path / "tiny")
    labels = [each[0] for each in data.labels]
    classifier = clone(TextClassifier([str(vectors), str(encoder)])).fit(data.texts, labels)
    new = reviews(40, 1)
    expected = classifier.predict_proba(new.texts)
    assert (classifier.predict(new.texts) == [each[0] for each in new.labels]).mean() > 0.9
    np.testing.assert_allclose(pickle.loads(pickle.dumps(classifier)).predict_proba(new.texts), expected, atol=1e-6)
    path = classifier.save(tmp_path / "run")
    shutil.rmtree(encoder)
    loaded = TextClassifier.load(path)
    assert loaded.base == [str(vectors), str(encoder)]
    np.testing.assert_allclose(loaded.predict_proba(new.texts), expected, atol=1e-5)
    with pytest.raises(ValueError, match="freeze none"):
        TextClassifier(str(vectors), freeze="none").fit(data.texts, labels)
    with pytest.raises(ValueError, match="base is"):
        TextClassifier([3]).fit(data.texts, labels)


@pytest.mark.usefixtures("through_layers")
def test_the_network_is_tuned_beside_brought_views(
    make_base: MakeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rehead.finetune.candidates.network.MIN_EXAMPLES", 30)
    monkeypatch.setattr("rehead.finetune.selection.is_better", lambda *_, **__: True)
    base = combine([make_base("small", learnt=True), bring(make_knowing(tmp_path / "good.vec", noise=0.01))])
    fitted = fit_classifier(reviews(40), None, base=base, options=FitOptions(epochs=1))
    assert fitted.run.details["freeze"] == "none"
    assert "layers" in views_of(fitted.run)
    loaded = load(save(fitted.run, tmp_path / "run"))
    np.testing.assert_allclose(
        class_logits(loaded, ["a great film"]), class_logits(fitted.run, ["a great film"]), atol=1e-5
    )


def test_without_transformers_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    family, root = make_encoder(tmp_path / "family"), make_encoder(tmp_path / "tiny", "gpt2")
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert bring(family).model.brought["encoder:family"].engine.width == 16
    with pytest.raises(rehead.errors.UserError, match=r"pip install 'rehead\[hub\]'"):
        bring(root).model.brought["encoder:tiny"].engine  # noqa: B018
    assert transformers
    assert torch.is_grad_enabled()


def test_the_usual_combination_of_own_views_is_among_the_settings(
    make_base: MakeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is judged without brought bases, on the same folds; and it is taken where it is the best."""
    own, data = make_base(), reviews(linear.HINGED)
    alone = Task.make(data, own, FitOptions(), None)
    linear.propose(alone, None)
    wanted = alone.tried[linear.USUAL]
    task = Task.make(data, combine([own, bring(make_encoder(tmp_path / "noise"))]), FitOptions(), None)
    linear.propose(task, None)
    [usual] = [each for each in task.tried if each.settings[0].get("hinge")]
    np.testing.assert_allclose(usual.logits, wanted.logits, atol=1e-6)
    wrong = dataclasses.replace(usual, logits=-usual.logits)
    monkeypatch.setattr(linear.Search, "run", lambda _: [wrong])
    chosen = linear.propose(task, None).build()
    expected = linear.average(alone, [wanted], []).build()
    assert views_of(chosen) == views_of(expected)
    new = reviews(40, 1).texts
    np.testing.assert_allclose(class_logits(chosen, new), class_logits(expected, new), atol=1e-5)
