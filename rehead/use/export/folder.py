"""An exported model on disk: self-contained, and independent of this package.

    DIR/
      model.onnx        the network, from token ids to probabilities or logits
      tokenizer.json    from text to token ids
      model.json        metadata: labels, thresholds, inputs and outputs, configuration
      vocabulary.npz    hashes of the words and character n-grams that count, if the classifier reads the text itself
      text_ngrams.py    from text to such hashes
      bases/NAME.json   the tokenizer, or the words, of each base that others pretrained, if the classifier reads some
      base_tokens.py    from text to the tokens of these
      predict.py        a program of about fifty lines; needs numpy, tokenizers and onnxruntime
      README.md         how to use it

The folder is written atomically, and only after its model.onnx has been run and compared with torch. Weights beyond two
gigabytes, the limit of a protobuf file, are stored in model.onnx.data beside it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx
import torch

import rehead
from rehead.bases import tokens
from rehead.bases.tokens import open_finder
from rehead.disk import atomic_directory, write_json
from rehead.errors import UserError
from rehead.finetune.metrics import DecisionRule
from rehead.model.config import Classifier, to_dict
from rehead.model.objectives import last_specs
from rehead.replacing import writing
from rehead.runs.run import Run
from rehead.runs.scoring import encoded_probabilities, open_views
from rehead.text import text_ngrams
from rehead.use.abilities import training_length
from rehead.views.brought import BroughtView
from rehead.views.encoded import EncodedTexts
from rehead.views.onnx_bases import base_input, base_stated, exportable
from rehead.views.onnx_network import (
    Vocabulary,
    classifier_graph,
    language_model_graph,
    reads_own_tokens,
    text_vocabulary,
)
from rehead.views.vocabulary import count_ngrams

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

Format = Literal["onnx", "onnx-int8"]

MODEL, WEIGHTS, TOKENIZER, ABOUT, VOCABULARY, NGRAMS, PROGRAM, README, BASES, BASE_TOKENS = (
    "model.onnx",
    "model.onnx.data",
    "tokenizer.json",
    "model.json",
    "vocabulary.npz",
    "text_ngrams.py",
    "predict.py",
    "README.md",
    "bases",
    "base_tokens.py",
)
NAMES = (MODEL, WEIGHTS, TOKENIZER, ABOUT, VOCABULARY, NGRAMS, PROGRAM, README, BASES, BASE_TOKENS)
REPLACED = (*NAMES, "__pycache__")  # which Python leaves behind where the program has run
MAX_FILE_BYTES = 1_900_000_000  # of weights inside model.onnx
SOME_TOKENS = 1_000  # for random inputs, where no tokenizer says how many there are
TOLERANCE = 1e-4  # largest difference of a probability from torch, in float32
PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Exported:
    """The result of an export."""

    path: Path
    kind: str
    "classifier, next-token model or hidden-token model."
    size: int
    "Size of the network in bytes."
    difference: float
    "Largest difference of a probability from torch, on random inputs."


def export_run(run: Run, out: Path, kind: Format = "onnx", *, overwrite: bool = False) -> Exported:
    """Export a run to ONNX, into a self-contained folder."""
    what = _what(run)
    views = open_views(run.model) if what == "classifier" else []
    brought = [view for view in views if isinstance(view, BroughtView)]
    for view in brought:
        exportable(view)
    own = what != "classifier" or reads_own_tokens(views)
    if own and run.tokenizer is None:
        raise UserError("this run has no tokenizer, which an exported model needs. Save one with the run.")
    with writing(out), atomic_directory(out, replace=REPLACED if overwrite else None) as folder:
        _write_network(_graph(run, what, int8=kind == "onnx-int8"), folder)
        if own and run.tokenizer is not None:
            run.tokenizer.save(folder / TOKENIZER)
        shutil.copyfile(PROGRAMS / f"{_PROGRAM[what]}.py", folder / PROGRAM)
        if vocabulary := text_vocabulary(views):
            np.savez_compressed(folder / VOCABULARY, **vocabulary)  # type: ignore[arg-type] # mypy: takes it for a flag
            shutil.copyfile(text_ngrams.__file__, folder / NGRAMS)
        if brought:
            (folder / BASES).mkdir()
            shutil.copyfile(tokens.__file__, folder / BASE_TOKENS)
        for view in brought:
            (folder / BASES / f"{view.options.base}.json").write_text(exportable(view).tokens_file, encoding="utf-8")
        about = describe(run, what, kind)
        write_json(folder / ABOUT, about)
        (folder / README).write_text(_readme(about), encoding="utf-8")
        difference = _compare(run, what, folder)
        if kind == "onnx" and difference > TOLERANCE:
            raise UserError(
                f"the exported model differs from torch by {difference:.1e} in a probability, more than the tolerance "
                f"of {TOLERANCE:.0e}. Please report this run's config.json."
            )
        size = sum((folder / name).stat().st_size for name in (MODEL, WEIGHTS) if (folder / name).exists())
    return Exported(out, what, size, difference)


_PROGRAM = {
    "classifier": "classifier",
    "next-token model": "next_token",
    "hidden-token model": "hidden_token",
}


def _what(run: Run) -> str:
    """Name the kind of model that a run is exported as; raise an error if it has no usable head."""
    if isinstance(run.model.head_config, Classifier):
        if run.labels is None:
            raise UserError("this classifier has no names for its labels. Save them with the run (labels.json).")
        return "classifier"
    if run.model.head is None:
        raise UserError(
            "this run has neither labels nor a language-model head, so it predicts nothing. Fine-tune a classifier "
            "first: rehead finetune --from."
        )
    learnt = last_specs(run)
    if not any(each.generates or each.fills for each in learnt):
        last = "+".join(each.name for each in learnt)
        raise UserError(
            f"this run's last objective was {last}, which leaves no language model to export. "
            "Fine-tune a classifier first: rehead finetune --from."
        )
    return "next-token model" if any(each.generates for each in learnt) else "hidden-token model"


def _graph(run: Run, what: str, *, int8: bool) -> onnx.ModelProto:
    if what == "classifier":
        return classifier_graph(run.model, open_views(run.model), int8=int8)
    return language_model_graph(run.model, causal=what == "next-token model", int8=int8)


def _write_network(model: onnx.ModelProto, folder: Path) -> None:
    external = sum(len(each.raw_data) for each in model.graph.initializer) > MAX_FILE_BYTES
    onnx.save_model(model, folder / MODEL, save_as_external_data=external, location=WEIGHTS)
    onnx.checker.check_model(str(folder / MODEL))


def describe(run: Run, what: str, kind: Format) -> dict[str, Any]:
    """Return the content of model.json."""
    about: dict[str, Any] = {
        "what": what,
        "format": kind,
        "rehead": rehead.__version__,
        "objective": run.details.get("objective"),
        "model": to_dict(run.model.config),
    }
    if isinstance(run.model.head_config, Classifier):
        rule = DecisionRule.of(run.details)
        views = open_views(run.model)
        brought = [view for view in views if isinstance(view, BroughtView)]
        ids = {"ids": "int64 (tokens): one whole document, without special tokens"} if reads_own_tokens(views) else {}
        return about | {
            "inputs": ids
            | {
                view.name: f"int64 ({', '.join(str(each).split()[-1] for each in base_input(view))}): "
                f"the tokens of {BASES}/{view.options.base}.json"
                for view in brought
            }
            | {
                name: text
                for kind in text_vocabulary(views)
                for name, text in (
                    (kind, f"int64: which {kind} of {VOCABULARY} the text has"),
                    (f"{kind}_counts", "float32: 1 + log of how often each occurs"),
                )
            },
            "outputs": {"logits": "float32 (labels)", "probabilities": "float32 (labels)"},
            "labels": run.labels,
            "multilabel": run.model.head_config.multilabel,
            "thresholds": rule.thresholds or [0.5] * len(run.labels or []),
            "at_least_one": rule.at_least_one,
            "head": to_dict(run.model.head_config),
            "bases": {
                view.name: {"file": f"{BASES}/{view.options.base}.json", **base_stated(view)} for view in brought
            },
            "measured": run.details.get("validation"),
        }
    meaning = {
        "next-token model": "of the token after each position, given all tokens up to it",
        "hidden-token model": "of the token at each position, given all others",
    }
    return about | {
        "inputs": {"ids": "int64 (rows, tokens): rows of one length"},
        "outputs": {"logits": f"float32 (rows, tokens, vocabulary): {meaning[what]}"},
        "longest": training_length(run),
        "end": None if run.tokenizer is None else run.tokenizer.eos,
        "mask": None if run.tokenizer is None else run.tokenizer.mask,
    }


def _readme(about: dict[str, Any]) -> str:
    usage = {
        "classifier": '"a text to classify" "another"',
        "next-token model": '"a text to continue"',
        "hidden-token model": '"a text with a [MASK] in it"',
    }
    weights = "float32" if about["format"] == "onnx" else "int8"
    lines = [
        f"# A {about['what']}, {weights}, as ONNX",
        "",
        f"Exported by rehead {about['rehead']}. It needs neither rehead nor torch:",
        "",
        "    pip install numpy tokenizers onnxruntime",
        f"    python {PROGRAM} {usage[about['what']]}",
        "",
        f"- `{MODEL}`: the network. Its inputs and outputs are described in `{ABOUT}`.",
        f"- `{ABOUT}`: metadata and configuration.",
        f"- `{PROGRAM}`: an example program, to be read and changed.",
    ]
    if "ids" in about["inputs"]:
        lines += [
            f"- `{TOKENIZER}`: the tokenizer, for the library `tokenizers` (Python, Rust, Node). Encode without",
            "  special tokens and with `encode_special_tokens` on, so that text is never parsed as a special token.",
        ]
    if about.get("bases"):
        lines += [
            f"- `{BASES}/`: the tokenizers of bases that others pretrained; `bases` of `{ABOUT}` says how.",
            f"- `{BASE_TOKENS}`: does that; it needs tokenizers alone.",
        ]
    if any(name.endswith("_counts") for name in about["inputs"]):
        lines += [
            f"- `{VOCABULARY}`: hashes of the words and character n-grams that the network knows, ascending.",
            f"- `{NGRAMS}`: from a text to such hashes; it needs numpy alone.",
        ]
    lines.append("")
    if about["what"] == "classifier":
        lines += ["Labels, in the order of the probabilities:", ""]
        lines += [f"    {json.dumps(name, ensure_ascii=False)}" for name in about["labels"]]
        lines += [
            "",
            "A text may have several labels, or none." if about["multilabel"] else "A text has one label.",
            "",
        ]
    return "\n".join(lines)


def _compare(run: Run, what: str, folder: Path) -> float:
    """Compare the exported model with torch, on random inputs of many lengths; return the largest difference."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = onnxruntime.InferenceSession(folder / MODEL, options, providers=["CPUExecutionProvider"])
    worst = 0.0
    views = open_views(run.model) if what == "classifier" else []
    vocabulary, about = text_vocabulary(views), json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    finders = {name: open_finder(folder / each["file"], each) for name, each in about.get("bases", {}).items()}
    for ids in _random_inputs(run):
        if what == "classifier":
            text = _readable(run, folder, ids)
            document = EncodedTexts([text], ids=[ids])
            inputs: dict[str, Any] = {"ids": ids} if "ids" in about["inputs"] else {}
            inputs |= {name: np.array(find([text])[0], np.int64) for name, find in finders.items()}
            [given] = session.run(["probabilities"], inputs | text_inputs(document, vocabulary))
            expected = encoded_probabilities(run, document)[0]
        elif not len(ids) or len(ids) > training_length(run):
            continue
        else:
            [logits] = session.run(["logits"], {"ids": ids[None]})
            with torch.no_grad():
                scores = run.model(torch.from_numpy(ids)[None], causal=what == "next-token model")
            given, expected = (torch.as_tensor(each).softmax(-1).numpy() for each in (logits, scores))
        worst = max(worst, float(np.abs(given - expected).max()))
    return worst


def text_inputs(text: EncodedTexts, vocabulary: Vocabulary) -> dict[str, Any]:
    """What the network takes of one text beside its token ids: n-grams of the vocabulary, and damped counts."""
    inputs: dict[str, Any] = {}
    ngrams = {"words": text.word_ngrams, "characters": text.character_ngrams} if vocabulary else {}
    for kind, keys in vocabulary.items():
        counts = count_ngrams(keys, ngrams[kind], 1)
        inputs |= {kind: counts.indices.astype(np.int64), f"{kind}_counts": counts.data}
    return inputs


def _random_inputs(run: Run) -> Sequence[Ints]:
    random = np.random.RandomState(0)
    ntokens = run.model.config.ntokens  # a classifier without a base of its own has none
    if not ntokens:
        ntokens = SOME_TOKENS if run.tokenizer is None else run.tokenizer.vocab_size
    return [random.randint(0, ntokens, length) for length in (0, 1, 2, 3, 30, 300, 700)]


def _readable(run: Run, folder: Path, ids: Ints) -> str:
    """Make a text of random tokens: of the run's tokenizer, else of what the first brought base knows."""
    if run.tokenizer is not None:
        return run.tokenizer.decode(ids.tolist())
    known = json.loads(next((folder / BASES).iterdir()).read_text(encoding="utf-8"))
    words = known if isinstance(known, list) else [str(each) for each in known["model"]["vocab"]]
    return " ".join(words[place % len(words)] for place in ids.tolist())
