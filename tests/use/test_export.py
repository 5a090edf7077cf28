"""What is exported answers as torch does, needs nothing of us, and appears whole or not at all."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rehead.cli import main
from rehead.errors import UserError
from rehead.finetune.targets import targets
from rehead.model.config import NO_BASE, Classifier, preset
from rehead.model.model import Model
from rehead.runs.run import Run, load, save
from rehead.runs.scoring import (
    class_logits,
    class_probabilities,
    classifier_head,
    encoded_probabilities,
    open_views,
)
from rehead.use.fill import guess, mask_ids
from rehead.use.labeller import Labeller
from rehead.views.encoded import EncodedTexts
from rehead.views.lsa import LsaView
from rehead.views.text_view import NoOptions
from rehead.views.words import WordsView
from tests.model.conftest import miniature
from tests.use.classifiers import KINDS, TEXTS, classifier
from tests.use.conftest import trained
from tests.use.text_classifiers import KINDS as TEXT_KINDS
from tests.use.text_classifiers import TEXTS as SCRIPTS_AND_MORE
from tests.use.text_classifiers import text_classifier
from tests.use.trained import layered_classifier, linear_classifier, split

onnx = pytest.importorskip("onnx", reason="the extra `export` is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")

from rehead.use.export import folder  # noqa: E402 (needs onnx)
from rehead.use.export.folder import NAMES, export_run, text_inputs  # noqa: E402
from rehead.views.onnx_graph import MATRIX_MAX, Graph, quantize  # noqa: E402
from rehead.views.onnx_network import classifier_graph, language_model_graph, text_vocabulary  # noqa: E402

# A document for each length around the windows of the classifiers, and some that are far longer.
LENGTHS = [0, 1, 2, 3, 6, 7, 8, 9, 10, 13, 14, 15, 17, 18, 19, 27, 28, 60, 201]


def session(model: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def answers(run: Run, ids: list[Any], *, texts: list[str] | None = None, int8: bool = False) -> np.ndarray[Any, Any]:
    """Probabilities of documents, one by one, out of the graph; their texts, too, where views read these."""
    views = open_views(run.model)
    model = classifier_graph(run.model, views, int8=int8)
    onnx.checker.check_model(model, full_check=True)
    opened, vocabulary = session(model), text_vocabulary(views)
    inputs = [{"ids": each} for each in ids]
    for given, text in zip(inputs, texts or [], strict=False):
        given |= text_inputs(EncodedTexts([text]), vocabulary)
    return np.stack([opened.run(["probabilities"], given)[0] for given in inputs])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_classifier_answers_as_torch_does(kind: str) -> None:
    run = classifier(kind)
    chance = np.random.RandomState(0)
    ids = [chance.randint(0, run.model.config.ntokens, length) for length in LENGTHS]
    expected = encoded_probabilities(run, EncodedTexts(ids=ids))
    found = answers(run, ids)
    assert np.abs(found - expected).max() < 1e-5
    assert np.ptp(found, 0).max() > 0.1  # documents differ
    rough = answers(run, ids, int8=True)
    assert 0 < np.abs(rough - expected).max() < 0.1


def test_texts_are_read_as_we_read_them() -> None:
    run = classifier("distinct, tokens")
    assert run.tokenizer is not None
    found = answers(run, EncodedTexts(TEXTS, run.tokenizer).ids)
    assert found == pytest.approx(class_probabilities(run, TEXTS), abs=1e-6)


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("kind", TEXT_KINDS)
def test_views_of_the_text_answer_as_torch_does(kind: str, multilabel: bool) -> None:
    """Any script, an empty text, and one without any known n-gram among them."""
    run = text_classifier(kind, multilabel=multilabel)
    ids = EncodedTexts(SCRIPTS_AND_MORE, run.tokenizer).ids
    expected = class_probabilities(run, SCRIPTS_AND_MORE)
    found = answers(run, ids, texts=SCRIPTS_AND_MORE)
    assert np.abs(found - expected).max() < 1e-5
    assert np.ptp(found, 0).max() > 0.1
    rough = answers(run, ids, texts=SCRIPTS_AND_MORE, int8=True)
    assert 0 < np.abs(rough - expected).max() < 0.05


def test_inputs_are_those_ngrams_that_some_view_knows() -> None:
    """Words that two views count are looked up once."""
    views = open_views(text_classifier("all").model)
    vocabulary = text_vocabulary(views)
    assert list(vocabulary) == ["words", "characters"]
    for keys in vocabulary.values():
        assert (np.diff(keys) > 0).all()
    alone = text_vocabulary(open_views(text_classifier("words").model))
    assert list(alone) == ["words"]
    assert np.isin(alone["words"], vocabulary["words"]).all()
    assert text_vocabulary(open_views(classifier("distinct, tokens").model)) == {}
    empty = text_inputs(EncodedTexts(["XQ 0x7f"]), alone)
    assert [len(each) for each in empty.values()] == [0, 0]


@pytest.mark.parametrize("only", ["words", "characters"])
def test_lsa_with_one_kind_of_ngrams_alone(only: str) -> None:
    """Where texts share no words, or words but no other n-grams, one half of the table has no rows."""
    texts = {"words": [*"abcdefgh"] * 2, "characters": ["xab1", "yab2", "zab3"]}[only]
    run = text_classifier("lsa")
    model = Model(run.model.config)
    view = LsaView(model, NoOptions())
    words = WordsView(model, NoOptions())
    words.learn(EncodedTexts(texts))
    view.learn(EncodedTexts(texts), [words] if only == "words" else ())
    view.fit(view.read(EncodedTexts(texts)))
    assert [bool(kind.terms) for kind in view.kinds] == [only == "words", only == "characters"]
    model.replace_head(Classifier(classes=3, views=(view.config(),)))
    head = classifier_head(model)
    with torch.no_grad():
        head.of("lsa").weight.normal_()
        for name, values in view.statistics().items():
            head.of("lsa").get_buffer(name).copy_(torch.from_numpy(values))
    made, asked = Run(model.eval(), run.tokenizer, run.labels), [*texts, "", "qqq"]
    found = answers(made, EncodedTexts(asked, run.tokenizer).ids, texts=asked)
    assert found == pytest.approx(class_probabilities(made, asked), abs=1e-5)


@pytest.mark.parametrize(
    ("train", "name", "least"),
    [
        (linear_classifier, "rotten-tomatoes", 0.58),  # chance is 0.5
        (layered_classifier, "rotten-tomatoes", 0.58),
        pytest.param(lambda: linear_classifier("imdb"), "imdb", 0.8, marks=pytest.mark.slow),
    ],
)
def test_int8_is_as_good_on_real_reviews(train: Any, name: str, least: float) -> None:
    run, valid = train(), split(name).valid
    truth = targets(valid, run.labels, multilabel=False)
    ids = EncodedTexts(valid.texts, run.tokenizer).ids
    exact, rough = answers(run, ids), answers(run, ids, int8=True)
    assert np.abs(exact - class_probabilities(run, valid.texts)).max() < 1e-4
    right = (exact.argmax(1) == truth).mean()
    assert right > least  # of 400 reviews
    assert abs((rough.argmax(1) == truth).mean() - right) <= 0.005


@pytest.mark.parametrize("name", ["lab", "small", "base", "bag"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both ways"])
def test_language_models_give_the_logits_of_torch(name: str, causal: bool) -> None:
    torch.manual_seed(0)
    config = miniature(name)
    model = Model(config, config.language_model()).eval()
    with torch.no_grad():
        for layer in model.base.layers:
            layer.output.weight.normal_(std=0.2)
            layer.down.weight.normal_(std=0.2)
        if model.base.ngrams is not None:
            model.base.ngrams.weight[1:].normal_(std=0.3)
    for int8, most in ((False, 1e-4), (True, 1.0)):
        graph = language_model_graph(model, causal=causal, int8=int8)
        onnx.checker.check_model(graph, full_check=True)
        opened = session(graph)
        for shape in ((1, 1), (3, 2), (2, 17)):
            ids = torch.randint(0, config.ntokens, shape)
            with torch.no_grad():
                expected = model(ids, causal=causal).numpy()
            [found] = opened.run(["logits"], {"ids": ids.numpy()})
            assert found.shape == expected.shape
            assert np.abs(found - expected).max() < most * max(1.0, np.abs(expected).max() / 5)


def test_a_tied_table_stands_in_the_file_once() -> None:
    config = miniature("small", ntokens=3000)
    assert config.tied
    model = Model(config, config.language_model()).eval()
    size = len(language_model_graph(model, causal=True, int8=False).SerializeToString())
    values = sum(each.numel() for each in model.parameters()) + 8 * config.nbuckets
    assert size < 4 * values + 2 * config.ntokens * config.nhid


# Run as a program, in a process to which most of what is installed here is not to be had.
ALONE = """
import runpy, sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "rehead", "onnx", "sklearn", "scipy", "safetensors", "rich", "pandas"):
            raise ImportError(f"{name} is not to be had here")

sys.meta_path.insert(0, Refused())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


OF_TEXT = {"vocabulary.npz", "text_ngrams.py"}  # only if the classifier reads the text itself
ALWAYS = set(NAMES) - {"model.onnx.data", "bases", "base_tokens.py", *OF_TEXT}


def names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


def alone(out: Path, *texts: str, given: str | None = None) -> list[Any]:
    command = [sys.executable, "-I", "-c", ALONE, str(out / "predict.py"), *texts]
    done = subprocess.run(command, capture_output=True, text=True, input=given, cwd=out.parent, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("kind", ["bag under layers", "bag, multilabel"])
def test_the_folder_needs_nothing_of_us(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(classifier(kind), tmp_path / "run")
    out = tmp_path / "out"
    assert main(["export", str(tmp_path / "run"), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "classifier as onnx" in said
    assert names(out) == ALWAYS
    texts = [*TEXTS, "a </s> [MASK] <pad> film", "café 👍🏽 映画 \u2028 x", "x" * 3000]
    labeller = Labeller.open(tmp_path / "run")
    expected = labeller.probabilities([text for text in texts if text])
    found = alone(out, *texts)
    blank = {"labels": None, "probabilities": None}  # as in rehead predict
    assert [place for place, each in enumerate(found) if each == blank] == [texts.index("")]
    found.remove(blank)
    assert [list(each["probabilities"]) for each in found] == [labeller.names] * len(found)
    assert np.array([list(each["probabilities"].values()) for each in found]) == pytest.approx(expected, abs=1e-4)
    assert [tuple(each["labels"]) for each in found] == labeller.labels(expected)
    assert alone(out, given="good film\n\n \t\nawful\n") == [found[0], blank, blank, found[2]]
    assert len((out / "predict.py").read_text(encoding="utf-8").splitlines()) <= 60
    about = json.loads((out / "model.json").read_text(encoding="utf-8"))
    assert about["labels"] == labeller.names
    assert about["what"] == "classifier"


@pytest.mark.parametrize("kind", ["onnx", "onnx-int8"])
def test_the_folder_of_a_classifier_that_reads_text_needs_nothing_of_us_either(kind: Any, tmp_path: Path) -> None:
    run, out = text_classifier("all"), tmp_path / "out"
    done = export_run(run, out, kind)
    assert done.difference < (1e-5 if kind == "onnx" else 0.1)
    assert names(out) == ALWAYS | OF_TEXT
    texts = [each for each in SCRIPTS_AND_MORE if each.strip()]
    found = alone(out, given="\n".join([*texts, "", " \t"]))
    assert found[-2:] == [{"labels": None, "probabilities": None}] * 2
    given = np.array([list(each["probabilities"].values()) for each in found[:-2]])
    assert given == pytest.approx(class_probabilities(run, texts), abs=1e-4 if kind == "onnx" else 0.05)
    about = json.loads((out / "model.json").read_text(encoding="utf-8"))
    assert list(about["inputs"]) == ["ids", "words", "words_counts", "characters", "characters_counts"]
    readme = (out / "README.md").read_text(encoding="utf-8")
    assert all(name in readme for name in OF_TEXT)
    kept = np.load(out / "vocabulary.npz", allow_pickle=False)
    assert {name: each.dtype for name, each in kept.items()} == {"words": np.int64, "characters": np.int64}
    # An export of another classifier in its place leaves nothing of it.
    save(classifier("bag"), tmp_path / "run")
    assert main(["export", str(tmp_path / "run"), "--out", str(out), "--overwrite"]) == 0
    assert names(out) == ALWAYS
    assert not any(name in (out / "README.md").read_text(encoding="utf-8") for name in OF_TEXT)


def test_a_classifier_without_a_base_is_exported(tmp_path: Path) -> None:
    """One that reads only the text itself carries no base, but the tokenizer that programs expect."""
    whole = text_classifier("lsa")
    model = Model(NO_BASE, whole.model.head_config)
    model.head = whole.model.head
    run = Run(model.eval(), whole.tokenizer, whole.labels)
    assert export_run(run, tmp_path / "out").difference < 1e-5
    given = [list(each["probabilities"].values()) for each in alone(tmp_path / "out", "a great film", "a dull one")]
    assert given == pytest.approx(class_probabilities(whole, ["a great film", "a dull one"]), abs=1e-4)


def test_the_program_can_be_imported_from_elsewhere(tmp_path: Path) -> None:
    run = text_classifier("words")
    export_run(run, tmp_path / "out")
    code = f"""
import importlib.util
found = importlib.util.spec_from_file_location("predict", {str(tmp_path / "out" / "predict.py")!r})
program = importlib.util.module_from_spec(found)
found.loader.exec_module(program)
print(*next(program.predict(["a great film"]))["probabilities"].values())
"""
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = class_probabilities(run, ["a great film"])[0]
    assert [float(each) for each in done.stdout.split()] == pytest.approx(expected, abs=1e-4)


def test_a_model_that_writes_says_how_a_text_goes_on(tmp_path: Path) -> None:
    run = trained("causal")
    export_run(run, tmp_path / "out")
    [found] = alone(tmp_path / "out", "a red")
    assert run.tokenizer is not None
    ids = torch.tensor([[run.tokenizer.eos, *run.tokenizer.encode("a red")]])
    with torch.no_grad():
        best = run.model(ids)[0, -1].softmax(-1).sort(descending=True)
    assert [word for word, _ in found[:2]] == [run.tokenizer.decode([each]) for each in best.indices[:2].tolist()]
    assert [share for _, share in found] == pytest.approx(best.values[:5].tolist(), abs=1e-4)
    long = alone(tmp_path / "out", "a red apple fell. " * 40)  # more than it has learnt to read
    assert len(long[0]) == 5


@pytest.mark.parametrize(("objective", "what"), [("hybrid", "next-token model"), ("masked", "hidden-token model")])
def test_what_a_language_model_is_exported_as_is_what_it_learnt(objective: str, what: str, tmp_path: Path) -> None:
    run = trained(objective)
    assert export_run(run, tmp_path / "out", "onnx-int8").kind == what
    about = json.loads((tmp_path / "out" / "model.json").read_text(encoding="utf-8"))
    assert about["what"] == what
    assert about["format"] == "onnx-int8"


def test_of_a_chain_the_last_stage_is_exported(tmp_path: Path) -> None:
    run = trained("masked")
    for objective, what in (("causal,masked", "hidden-token model"), ("masked,causal", "next-token model")):
        chained = dataclasses.replace(run, details={"objective": objective})
        assert export_run(chained, tmp_path / what).kind == what
    forgotten = dataclasses.replace(run, details={"objective": "masked,document"})
    with pytest.raises(UserError, match="last objective was document"):
        export_run(forgotten, tmp_path / "none")


def test_a_model_that_fills_guesses_what_we_guess(tmp_path: Path) -> None:
    run = trained("masked")
    export_run(run, tmp_path / "out")
    text = "a [MASK] apple fell. a [MASK] lemon rolled."
    [found] = alone(tmp_path / "out", text)
    assert run.tokenizer is not None
    expected = guess(run.model, run.tokenizer, mask_ids(run.tokenizer, text), top=1, one_before=False)
    assert [mask[0][1] for mask in found] == pytest.approx([mask[0].probability for mask in expected], abs=1e-4)
    assert [mask[0][0].strip() for mask in found] == ["red", "yellow"]
    [long] = alone(tmp_path / "out", "a red apple fell. " * 40 + text)  # more than it has learnt to read
    assert len(long) == 2


def test_weights_beyond_two_gigabytes_stand_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "MAX_FILE_BYTES", 1000)
    run = classifier("layers")
    export_run(run, tmp_path / "out")
    assert names(tmp_path / "out") == ALWAYS | {"model.onnx.data"}
    [found] = alone(tmp_path / "out", "good film")
    assert list(found["probabilities"].values()) == pytest.approx(class_probabilities(run, ["good film"])[0], abs=1e-4)


def test_it_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "TOLERANCE", -1.0)  # as if the graph were wrong
    with pytest.raises(UserError, match="differs from torch by"):
        export_run(classifier("bag"), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_stays_unless_it_is_to_be_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(classifier("bag"), tmp_path / "run")
    command = ["export", str(tmp_path / "run"), "--out", str(tmp_path / "out")]
    assert main(command) == 0
    before = (tmp_path / "out" / "model.onnx").read_bytes()
    assert main([*command, "--format", "onnx-int8"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "out" / "model.onnx").read_bytes() == before
    assert main([*command, "--format", "onnx-int8", "--overwrite"]) == 0
    assert len((tmp_path / "out" / "model.onnx").read_bytes()) < len(before)
    (tmp_path / "out" / "mine.txt").write_text("x")
    assert main([*command, "--overwrite"]) == 2
    assert "'mine.txt', which would be lost" in capsys.readouterr().err


def test_what_cannot_be_exported_is_refused_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = classifier("bag")
    bare = Run(Model(preset("bag", ntokens=320, nhid=4, nbuckets=8)).eval(), given.tokenizer)
    for run, message in [
        (bare, "neither labels nor a language-model head"),
        (Run(given.model, None, given.labels), "has no tokenizer"),
        (Run(given.model, given.tokenizer, None), "no names for its labels"),
    ]:
        save(run, tmp_path / "run", overwrite=True)
        assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 2
        said = capsys.readouterr().err
        assert message in said
        assert str(tmp_path / "run") in said
        assert said.count("\n") == 1
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_without_the_extra_it_says_what_to_install(missing: str, tmp_path: Path) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from rehead.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "export", str(tmp_path), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == f"rehead: error: exporting needs {missing}: pip install 'rehead[export]'.\n"


def test_whole_numbers_are_near_what_they_stand_for_and_never_overflow() -> None:
    rows = np.random.RandomState(0).randn(20, 8).astype(np.float32)
    rows[3] = 0
    for steps in (127, 63):
        whole, scale = quantize(rows, steps)
        assert np.abs(whole).max() == steps
        assert np.abs(whole * scale[:, None] - rows).max() <= scale.max() / 2 + 1e-6
    # Pairs of products are added up in 16 bits where there is nothing better.
    assert 2 * 255 * MATRIX_MAX < 2**15


def test_a_product_of_whole_numbers_is_near_that_of_others() -> None:
    chance = np.random.RandomState(0)
    weight, x = chance.randn(5, 40).astype(np.float32), chance.randn(3, 40).astype(np.float32)
    for int8, most in ((False, 1e-5), (True, 0.3)):
        g = Graph(int8=int8)
        out = g.linear("w", "x", weight, np.ones(5, np.float32))
        model = g.finish({"x": (np.float32, ["n", 40])}, {"y": (out, ["n", 5])}, "")
        [found] = session(model).run(None, {"x": x})
        assert np.abs(found - (x @ weight.T + 1)).max() < most


def test_exported_is_what_was_loaded(tmp_path: Path) -> None:
    """Through the disk and back: what counts is the run that users have."""
    save(classifier("layers, tokens"), tmp_path / "run")
    run = load(tmp_path / "run")
    done = export_run(run, tmp_path / "out")
    assert done.difference < 1e-5
    assert done.size == (tmp_path / "out" / "model.onnx").stat().st_size
    assert class_logits(run, TEXTS) == pytest.approx(class_logits(classifier("layers, tokens"), TEXTS))


def test_the_folder_decides_by_the_thresholds_of_a_single_label(tmp_path: Path) -> None:
    run = classifier("bag")
    names = run.labels or []
    texts = [text for text in TEXTS if text]
    plain = Labeller.of(run).labels(Labeller.of(run).probabilities(texts))
    thresholds = [0.01 if (name,) != plain[0] else 0.9 for name in names]
    run.details["thresholds"] = thresholds
    save(run, tmp_path / "run")
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 0
    expected = Labeller.open(tmp_path / "run").labels(Labeller.of(run).probabilities(texts))
    assert expected != plain
    assert [tuple(each["labels"]) for each in alone(tmp_path / "out", *texts)] == expected
    about = json.loads((tmp_path / "out" / "model.json").read_text(encoding="utf-8"))
    assert about["thresholds"] == thresholds


def test_the_folder_gives_the_most_probable_label_where_the_run_does(tmp_path: Path) -> None:
    run = text_classifier("words", multilabel=True)
    names = run.labels or []
    texts = [text for text in TEXTS if text]
    run.details["thresholds"] = [1.0] * len(names)
    assert set(Labeller.of(run).labels(Labeller.of(run).probabilities(texts))) == {()}
    run.details["at_least_one"] = True
    save(run, tmp_path / "run")
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 0
    expected = Labeller.open(tmp_path / "run").labels(Labeller.of(run).probabilities(texts))
    assert all(labels is not None and len(labels) == 1 for labels in expected)
    assert [tuple(each["labels"]) for each in alone(tmp_path / "out", *texts)] == expected
