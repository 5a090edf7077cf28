"""The model card of a run: the `README.md` beside it, for whoever finds the directory later.

All of it comes from the run itself: its configuration, what its `details` say about data, options and measurements, and
the versions that wrote it. What is not known is left out. It contains no text of the data; names that users gave, of
labels and of directories, are escaped so that Markdown shows them literally. Loading a run never reads it.
"""

from __future__ import annotations

import importlib.metadata
import platform
import re
from typing import TYPE_CHECKING, Any

import torch

import rehead
from rehead.errors import UserError
from rehead.model.config import Classifier, LanguageModel, ViewConfig
from rehead.model.objectives import Ability, last_specs
from rehead.runs.bases import BASES
from rehead.views import VIEWS

if TYPE_CHECKING:
    from rehead.runs.run import Run

CARD = "README.md"
NAMES, LENGTH = 50, 80  # labels that are listed, and characters of each
PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")  # all of ASCII's: each may have a backslash before it


def card(run: Run, name: str) -> str:
    """Write the card of a run in the directory `name`."""
    parts = [
        _front(run),
        f"# {plain(name)}\n\n{_what_it_is(run)}",
        _section("Labels", _labels(run)),
        _section("Data", _data(run)),
        _section("How it was made", _making(run)),
        _section("What was measured", _measured(run)),
        _section("Limits", _limits(run)),
        _section("How to use it", [_use(run)]),
        _section("Versions", [_versions()]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def plain(text: object) -> str:
    """Escape a user's name for Markdown: one line, no markup, no tags."""
    line = " ".join(str(text).split())
    line = line if len(line) <= LENGTH else line[: LENGTH - 1] + "…"
    return PUNCTUATION.sub(r"\\\1", "".join(each if each.isprintable() else "\ufffd" for each in line))


def _front(run: Run) -> str:
    task = "text-classification" if isinstance(run.model.head_config, Classifier) else "feature-extraction"
    if _can(run, "generates"):
        task = "text-generation"
    return f"---\nlibrary_name: rehead\npipeline_tag: {task}\n---"


def _what_it_is(run: Run) -> str:
    config, head = run.model.config, run.model.head_config
    if isinstance(head, Classifier):
        each = "any number of its labels" if head.multilabel else "one of its labels"
        what = f"A text classifier: it gives a text {each}, with probabilities."
    elif isinstance(head, LanguageModel):
        what = "A language model, pretrained on unlabelled text, and a base for classifiers."
    else:
        what = "A base for text classifiers, pretrained on unlabelled text."
    count = sum(parameter.numel() for parameter in run.model.parameters())
    grams = f" and {config.nbuckets:,} n-grams of up to {config.ngrams} tokens" if config.ngrams > 1 else ""
    sizes = f"{count:,} parameters"
    if not config.empty:
        sizes += f": vectors of {config.nhid} values for {config.ntokens:,} tokens{grams}"
    if config.nlayers:
        sizes += f", {config.nlayers} layers with {config.nhead} attention heads each"
    learnt = "It has no base of its own." if config.empty else f"The part that learnt: **{config.learning_part}**."
    if isinstance(head, Classifier):
        learnt += f" Of a text, its linear head reads {_and([_about(view) for view in head.views])}."
    elif config.nlayers and config.reads == "bag":
        learnt += " Its layers are not trained, and a classifier does not use them."
    return f"{what} {sizes}.\n\n{learnt}"


def _about(view: ViewConfig) -> str:
    name = view.name.partition(":")[2]
    return VIEWS[view.kind].about + (f" ({plain(name)})" if name else "")


def _and(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _labels(run: Run) -> list[str]:
    if not run.labels:
        return []
    found = run.details.get("thresholds")
    thresholds = found if isinstance(found, list) and len(found) == len(run.labels) else [None] * len(run.labels)
    head, lines = run.model.head_config, []
    multilabel = isinstance(head, Classifier) and head.multilabel
    decided = "predicted from a probability of" if multilabel else "threshold"
    for name, least in zip(run.labels[:NAMES], thresholds, strict=False):
        given = f", {decided} {least:.3f}" if isinstance(least, float) else ""
        lines.append(f"- {plain(name)}{given}")
    if len(run.labels) > NAMES:
        lines.append(f"- and {len(run.labels) - NAMES} more, in `labels.json`")
    if multilabel and run.details.get("at_least_one"):
        lines += ["", "Every text is given its most probable label, also below its threshold."]
    if not multilabel and any(isinstance(each, float) for each in thresholds):
        lines += ["", "The label with the highest ratio of probability to threshold is predicted."]
    return ["\n".join(lines)]


def _data(run: Run) -> list[str]:
    lines = []
    text, examples, base = (_dict(run.details, name) for name in ("text", "examples", "base"))
    if (documents := _number(text, "documents")) is not None:
        held = _number(text, "held_out_documents")
        lines.append(
            f"- unlabelled text: {documents:,} documents, {_number(text, 'tokens') or 0:,} tokens"
            + ("" if held is None else f"; {held:,} of the documents were held out for validation")
        )
        lines.append(f"- its fingerprint (SHA-256): `{_hex(text.get('fingerprint'))}`")
    for part, what in (("train", "labelled examples"), ("valid", "examples for validation")):
        if (count := _number(examples, part)) is not None:
            lines.append(f"- {count:,} {what}, fingerprint (SHA-256) `{_hex(examples.get(f'{part}_fingerprint'))}`")
    pretraining = _dict(run.details, "pretraining")
    if (documents := _number(read := _dict(pretraining, "text"), "documents")) is not None:
        lines.append(
            f"- its base was pretrained in the same run, without labels, on {documents:,} documents, "
            f"{_number(read, 'tokens') or 0:,} tokens: the labelled texts, and the unlabelled ones if any were given; "
            f"fingerprint (SHA-256) `{_hex(read.get('fingerprint'))}`"
        )
    elif base:
        tokens = _number(base, "tokens")
        seen = "" if tokens is None else f", on {tokens:,} tokens"
        lines.append(f"- its base was pretrained with the objective {plain(base.get('objective'))}{seen}")
    for each in run.model.brought.values():
        where = "linked, not carried" if each.linked else f"in `{BASES}/`"
        stated = "" if each.license is None else f", licence as it states: {plain(each.license)}"
        lines.append(f"- {plain(each.name)}: pretrained by others, from {plain(each.source)}, {where}{stated}")
    if lines and run.tokenizer is not None:
        lines.append("- the texts are not stored here; `tokenizer.json` holds the subwords that are frequent in them")
    return ["\n".join(lines)] if lines else []


def _making(run: Run) -> list[str]:
    lines = _steps_made(run.details)
    if pretraining := _dict(run.details, "pretraining"):
        lines += ["- its base:", *(f"  {line}" for line in _steps_made(pretraining))]
    return ["\n".join(lines)] if lines else []


def _steps_made(details: dict[str, Any]) -> list[str]:
    lines = []
    for name, what in (
        ("objective", "objective"),
        ("method", "method"),
        ("candidate", "chosen by cross-validation"),
        ("freeze", "frozen"),
        ("seed", "seed"),
    ):
        if isinstance(details.get(name), str | int):
            lines.append(f"- {what}: {plain(details[name])}")
    steps, seconds = _number(details, "steps"), _number(details, "seconds")
    if steps is not None:
        best = _number(details, "best_step")
        lines.append(f"- {steps:,} steps" + ("" if best is None else f", of which the best, {best:,}, was kept"))
    if seconds is not None:
        lines.append(f"- {seconds:,.0f} seconds")
    options = _dict(details, "options")
    said = [
        f"{plain(name)} {plain(value)}"
        for name, value in sorted(options.items())
        if value is not None and value is not False and isinstance(value, str | int | float) and name not in details
    ]
    if said:
        lines.append("- options: " + ", ".join(said))
    return lines


def _measured(run: Run) -> list[str]:
    details, lines = run.details, []
    validation, calibration = _dict(details, "validation"), _dict(details, "calibration")
    count = _number(_dict(details, "examples"), "valid") or _number(calibration, "documents")
    origin = plain(calibration.get("origin", "validation"))
    if (accuracy := _number(validation, "accuracy")) is not None:
        on = "" if count is None else f", on {count:,} {origin} documents"
        scores = [f"accuracy {100 * accuracy:.1f} %"]
        for score, what in (("micro_f1", "micro-F1"), ("macro_f1", "macro-F1")):
            if (f1 := _number(validation, score)) is not None:
                scores.append(f"{what} {100 * f1:.1f} %")
        if (loss := _number(validation, "loss")) is not None:
            scores.append(f"log loss {loss:.3f}")
        lines.append(f"- {', '.join(scores)}{on}")
    steps = details.get("candidates")
    for step in steps if isinstance(steps, list) else []:
        share, number = (
            (_number(step, name) for name in ("accuracy", "examples")) if isinstance(step, dict) else (0, None)
        )
        if number is not None:
            kept = "kept" if step.get("kept") else "not kept"
            f1 = _number(step, "macro_f1")
            more = "" if f1 is None else f", {100 * f1:.1f} % macro-F1,"
            lines.append(
                f"- {plain(step.get('name'))}: {100 * share:.1f} % accuracy{more} out-of-fold ({number:,} examples), "
                f"{kept}"
            )
    alone = _dict(_dict(details, "views"), "alone")
    if run.model.brought and alone:
        scores = [f"{plain(name)} {100 * score:.1f} %" for name in alone if (score := _number(alone, name)) is not None]
        lines.append(f"- each view alone, out-of-fold accuracy: {', '.join(scores)}")
    figures = [_number(calibration, name) for name in ("temperature", "documents", "error_before", "error_after")]
    if None not in figures:
        temperature, documents, before, after = figures
        lines.append(
            f"- probabilities: temperature {temperature:.2f}, fitted on {documents:,} {origin} documents; expected "
            f"calibration error there {100 * before:.1f} % before, {100 * after:.1f} % after"
        )
    for name, value in sorted(_dict(details, "held_out").items()):
        if (number := _number({"": value}, "")) is not None:
            lines.append(f"- {plain(name)} on held-out text: {number:.4f}")
    return ["\n".join(lines)] if lines else []


def _limits(run: Run) -> list[str]:
    lines = ["- It was trained on one kind of text; expect lower accuracy on other languages and subjects."]
    details, head = run.details, run.model.head_config
    if _dict(details, "validation"):
        lines.append(
            "- The scores above are on documents that were also used to choose settings, epoch or temperature. "
            "Measure it on others: `rehead evaluate`."
        )
    if isinstance(head, Classifier):
        if not _dict(details, "calibration"):
            lines.append("- Its probabilities are not calibrated.")
        if details.get("collapsed"):
            lines.append("- It gave all validation documents the same label.")
        for view in head.views:
            if (limit := view.options.get("max_length")) is not None:
                rule = plain(view.options.get("long", ""))
                lines.append(f"- It reads {limit:,} tokens of a text at once; of a longer one: {rule}.")
        lines.append("- A text that fits none of the labels gets one all the same, unless `--threshold` is given.")
    return ["\n".join(lines)]


def _use(run: Run) -> str:
    if isinstance(run.model.head_config, Classifier):
        return (
            "In this directory (`.`):\n\n"
            "```sh\nrehead predict . texts.csv --out labelled.csv\nrehead evaluate . labelled-texts.csv\n```\n\n"
            '```python\nimport rehead\n\nrehead.TextClassifier.load(".").predict(["a text"])\n```'
        )
    lines = ["rehead finetune labelled.csv --from . --out ../classifier"]
    if _can(run, "generates"):
        lines.append('rehead generate . --prompt "…"')
    if _can(run, "fills"):
        lines.append('rehead fill . "a truly [MASK] film"')
    return "In this directory (`.`):\n\n```sh\n" + "\n".join(lines) + "\n```"


def _can(run: Run, ability: Ability) -> bool:
    """Tell whether a run is a language model whose last stage of pretraining taught it this."""
    if not isinstance(run.model.head_config, LanguageModel):
        return False
    try:
        return any(getattr(each, ability) for each in last_specs(run))
    except UserError:  # an objective that this version does not know
        return False


def _versions() -> str:
    found = {"rehead": rehead.__version__, "torch": torch.__version__, "Python": platform.python_version()}
    found["tokenizers"] = importlib.metadata.version("tokenizers")
    return ", ".join(f"{name} {version}" for name, version in found.items())


def _section(title: str, paragraphs: list[str]) -> str:
    return f"## {title}\n\n" + "\n\n".join(paragraphs) if paragraphs else ""


def _dict(fields: dict[str, Any], name: str) -> dict[str, Any]:
    found = fields.get(name)
    return found if isinstance(found, dict) else {}


def _number(fields: dict[str, Any], name: str) -> Any:  # noqa: ANN401 (int or float)
    """Give a number that is one; details may hold anything."""
    found = fields.get(name)
    return found if isinstance(found, int | float) and not isinstance(found, bool) and abs(found) < 2**63 else None


def _hex(digest: object) -> str:
    return digest if isinstance(digest, str) and re.fullmatch(r"[0-9a-f]{64}", digest) else "unknown"
