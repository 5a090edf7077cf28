"""A run on disk: what training leaves behind and everything else starts from.

    RUN/
      config.json         format version, model, head with its views, details of how it was made, SHA-256 of all files
      model.safetensors   base + head
      tokenizer.json      where it has one
      labels.json         classifiers only: label names in order
      bases/NAME/         bases that others pretrained and a classifier reads (`rehead.runs.bases`)
      README.md           its card, for people (`rehead.runs.card`); never read back

Safetensors and JSON only: loading never runs code. Nothing is trusted before it is checked: names are plain and stay
inside the directory, digests match, shapes are what the config says, and every weight is finite. Each file is read
once, and what was checked is what is used: nothing is looked for on disk later (`rehead.runs.weights`). Whatever is
wrong is one line that names the file. Older formats are read too (`rehead.runs.format1`, `format2`; format 3 stored all
rows of sparse weights).
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

import rehead
from rehead.bases.brought import Brought
from rehead.bases.sources import is_brought, open_brought
from rehead.disk import (
    atomic_directory,
    file_inside,
    fsync,
    os_error_in,
    parse_checksummed_json,
    parse_json,
    read_whole,
    sha256,
    write_checksummed_json,
    write_json,
)
from rehead.errors import ConfigError, DamagedError, UserError, short_repr
from rehead.model.config import NO_BASE, Classifier, Head, ModelConfig, from_dict, head_from_dict, to_dict
from rehead.model.model import Model
from rehead.replacing import put_back, writing
from rehead.runs import format1, format2
from rehead.runs.bases import BASES, brought_digest, read_bases, write_bases
from rehead.runs.card import CARD, card
from rehead.runs.weights import Entry, Weights, dtype_of, pack, packed_names, packed_shapes, read_weights, unpack
from rehead.terminal import print_note
from rehead.text.tokenizer import Tokenizer
from rehead.text.tokenizer_gate import MAX_BYTES
from rehead.views import check_views, damaged_statistics

FORMAT = 4
CONFIG, WEIGHTS, TOKENIZER, LABELS = "config.json", "model.safetensors", "tokenizer.json", "labels.json"
FILES = (WEIGHTS, TOKENIZER, LABELS)
MAX_CONFIG, MAX_LABELS = 32 * 2**20, 32 * 2**20  # bytes
SECTIONS = {"format", "rehead", "model", "head", "files", "details"}
BROUGHT = "brought"  # one more section, of runs that read bases that others pretrained


@dataclass
class Run:
    """A model with what is needed to use it."""

    model: Model
    tokenizer: Tokenizer | None = None
    labels: list[str] | None = None
    "Names of the classes, in the order of the classifier's outputs."
    details: dict[str, Any] = field(default_factory=dict)
    "How it was made: objective, options, seed, fingerprints of the data. Anything JSON can hold."
    digest: str | None = None
    "SHA-256 of the config of a run that was loaded, which covers all its files: what cached features are kept under."


def save(run: Run, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write a run; it appears whole or not at all. An existing one is kept unless `overwrite`."""
    path = Path(path)
    tensors = _checked(run)
    replace = (CONFIG, *FILES, CARD, BASES) if overwrite else None
    with writing(path), atomic_directory(path, replace=replace) as directory:
        _write(run, tensors, directory, path.absolute().name)
    return path


def save_into(run: Run, path: Path, name: str) -> None:
    """Write a run into a directory that training has put other things into. It is a run once `config.json` is there.

    `name` is what its card calls it: the directory may yet take the place of another (`rehead.replacing`).
    """
    tensors = _checked(run)
    ready = path / ".run"
    shutil.rmtree(ready, ignore_errors=True)  # of a process that was killed
    with atomic_directory(ready) as directory:
        _write(run, tensors, directory, name)
    shutil.rmtree(path / BASES, ignore_errors=True)  # of a process that was killed
    for file in (*(each for each in (*FILES, BASES) if (ready / each).exists()), CARD, CONFIG):
        (ready / file).replace(path / file)
    ready.rmdir()
    fsync(path)


def _checked(run: Run) -> dict[str, Tensor]:
    """Give the tensors of a run, after checking that it is one that could be loaded again."""
    model = run.model
    if run.labels is not None and not _good_names(run.labels):
        raise ConfigError(f"labels are {short_repr(run.labels)}. Expected a list of different, non-empty names.")
    _agree(model.config, model.head_config, run.tokenizer, run.labels)
    tensors = {name: each.detach().cpu().contiguous() for name, each in model.state_dict().items()}
    if odd := next((name for name, each in tensors.items() if each.dtype != torch.float32), None):
        raise ConfigError(f"{odd} is {tensors[odd].dtype}. Expected float32: save model.float().")
    if sick := next((name for name, each in tensors.items() if not each.isfinite().all()), None):
        raise ConfigError(f"{sick} holds NaN or infinity: this model cannot be saved as a good one.")
    return tensors


def _write(run: Run, tensors: dict[str, Tensor], directory: Path, name: str) -> None:
    model = run.model
    try:
        sparse = _sparse(model.head_config)
        packed = pack(tensors, [*_ngrams(model.config), *sparse], short=sparse)
        save_file(packed, directory / WEIGHTS, metadata={"format": "pt"})
    except SafetensorError as error:
        raise os_error_in(error) from error
    if run.tokenizer is not None:
        run.tokenizer.save(directory / TOKENIZER)
    if run.labels is not None:
        write_json(directory / LABELS, run.labels)
    config = {
        "format": FORMAT,
        "rehead": rehead.__version__,
        "model": to_dict(model.config),
        "head": None if model.head_config is None else to_dict(model.head_config),
        "files": {each.name: sha256(each) for each in sorted(directory.iterdir())},
        "details": run.details,
    }
    if model.brought:
        config[BROUGHT] = write_bases(model.brought, directory)
    write_checksummed_json(directory / CONFIG, config)
    (directory / CARD).write_text(card(run, name), encoding="utf-8")


def load(path: str | Path) -> Run:
    """Read a run back: the same model, in evaluation mode, on the CPU. Raises `DamagedError` for a bad one.

    A base that others pretrained (a directory, hf:NAME, package:NAME) gives a run with that base and none of its own.
    """
    if is_brought(path):
        return bring(path)
    root = Path(path)
    try:
        put_back(root)
        if not root.is_dir():
            hub = f" A model of the Hugging Face hub is named hf:{root}." if _like_hub_name(root) else ""
            raise DamagedError(f"{root}: no such run. Give the directory that pretraining or fine-tuning wrote.{hub}")
        if not (root / CONFIG).exists() and (root / "checkpoints").is_dir():
            raise DamagedError(f"{root}: its training has not finished. Go on with it: add --resume to its command.")
        if not (root / CONFIG).exists():
            raise DamagedError(f"{root}: not a run: {CONFIG} is missing. Give the directory that training wrote.")
        return _load(root)
    except ConfigError as error:
        raise DamagedError(f"{root / CONFIG}: {error}") from None
    except OSError as error:
        raise DamagedError(f"{root}: cannot be read ({error.strerror or error}).") from None


def _like_hub_name(path: Path) -> bool:
    """Tell whether a path that does not exist may be meant as OWNER/NAME of the hub."""
    return len(path.parts) == 2 and not path.is_absolute() and not path.parent.exists()


def bring(source: str | Path, *, link: bool = False) -> Run:
    """Open a base that others pretrained, as a run to start from; with `link`, classifiers will not carry its files."""
    brought = open_brought(source, link=link)
    model = Model(NO_BASE).eval()
    model.brought = {brought.name: brought}
    return Run(model, digest=brought_digest(model.brought))


def _load(root: Path) -> Run:
    data = read_whole(file_inside(root, CONFIG), MAX_CONFIG)
    config = parse_checksummed_json(data, root / CONFIG)
    version = config.get("format")
    if type(version) is not int or version not in range(1, FORMAT + 1):
        newer = type(version) is int and version > FORMAT
        raise ConfigError(
            f"format {short_repr(version)} is not known to rehead {rehead.__version__}, which reads 1 to {FORMAT}. "
            + (f"The run was written by a newer version{_writer(config)}: upgrade rehead." if newer else "")
        )
    brought = read_bases(root, config.pop(BROUGHT, {}))
    if config.keys() != SECTIONS:
        raise ConfigError(f"the sections are {short_repr(sorted(config))}. Expected {', '.join(sorted(SECTIONS))}.")
    if not isinstance(config["details"], dict):
        raise ConfigError(f"details is {short_repr(config['details'])}. Expected an object.")
    files = _files(root, config["files"])
    weights = read_weights(files[WEIGHTS], config["files"][WEIGHTS])
    renamed: Mapping[str, str] = {}
    dropped: tuple[str, ...] = ()
    if version == 1:
        config, renamed, dropped = format1.upgrade(config, weights)
    elif version == 2:
        config, renamed = format2.upgrade(config)
    shape = from_dict(ModelConfig, config["model"], complete=True)
    head = None if config["head"] is None else head_from_dict(config["head"], complete=True)
    digests = config["files"]
    tokenizer = _tokenizer(files[TOKENIZER], digests[TOKENIZER]) if TOKENIZER in files else None
    labels = _labels(files[LABELS], digests[LABELS]) if LABELS in files else None
    _agree(shape, head, tokenizer, labels)
    _check_thresholds(config["details"], labels)
    model = _model(weights, shape, head, brought, renamed, dropped)
    return Run(model, tokenizer, labels, config["details"], hashlib.sha256(data).hexdigest())


def _writer(config: Mapping[str, Any]) -> str:
    name = config.get("rehead")
    return f" ({name})" if isinstance(name, str) and re.fullmatch(r"[\w.+-]{1,30}", name) else ""


def _files(root: Path, digests: object) -> dict[str, Path]:
    """Find the files a run consists of."""
    if not isinstance(digests, dict) or WEIGHTS not in digests:
        raise ConfigError(f"files is {short_repr(digests)}. Expected the digest of each file, {WEIGHTS} among them.")
    if odd := next((name for name in digests if name not in FILES), None):
        raise ConfigError(
            f"files names {short_repr(odd)}. Expected {', '.join(FILES)}: a run may only name its own files."
        )
    return {name: file_inside(root, name) for name in digests}


def _read(file: Path, digest: object, limit: int) -> bytes:
    """Read a file that has the digest that it had when it was written; what is used are these bytes."""
    data = read_whole(file, limit)
    if hashlib.sha256(data).hexdigest() != digest:
        raise DamagedError(f"{file}: not the file that was saved (its SHA-256 differs). Restore it from a copy.")
    return data


def _tokenizer(file: Path, digest: object) -> Tokenizer:
    data = _read(file, digest, MAX_BYTES)
    try:
        tokenizer = Tokenizer.from_json(data, str(file))
    except UserError as error:
        raise DamagedError(str(error)) from None
    for note in tokenizer.notes:
        print_note(note)
    return tokenizer


def _labels(file: Path, digest: object) -> list[str]:
    labels = parse_json(_read(file, digest, MAX_LABELS), file)
    if not _good_names(labels):
        raise DamagedError(f"{file}: {short_repr(labels)}. Expected a list of different, non-empty names.")
    return list(labels)


def _good_names(labels: object) -> bool:
    if not isinstance(labels, list) or not all(isinstance(each, str) and each and _encodes(each) for each in labels):
        return False
    return len(set(labels)) == len(labels)


def _encodes(name: str) -> bool:
    """Tell whether a text is all of characters: JSON can express half of a surrogate pair, which no file can hold."""
    return not any("\ud800" <= each <= "\udfff" for each in name)


def _check_thresholds(details: Mapping[str, Any], labels: Sequence[str] | None) -> None:
    """Check what decides about labels: a number above 0 for each, or nothing; and whether one is always given."""
    if not isinstance(always := details.get("at_least_one", False), bool):
        raise ConfigError(f"details.at_least_one is {short_repr(always)}. Expected true or false.")
    found = details.get("thresholds")
    if found is None:
        return
    numbers = isinstance(found, list) and all(type(each) in (int, float) and 0 < each <= 1 for each in found)
    if not numbers or len(found) != len(labels or ()):
        raise ConfigError(
            f"details.thresholds is {short_repr(found)}. Expected a number above 0, at most 1, for each of the "
            f"{len(labels or ())} labels. Fine-tune the run again."
        )


def _agree(config: ModelConfig, head: Head | None, tokenizer: Tokenizer | None, labels: Sequence[str] | None) -> None:
    """Check that the parts belong together."""
    if tokenizer is not None and tokenizer.vocab_size > config.ntokens and not config.empty:
        raise ConfigError(
            f"the tokenizer has {tokenizer.vocab_size:,} tokens, but the model knows ntokens={config.ntokens:,}."
        )
    if labels is not None:
        classes = head.classes if isinstance(head, Classifier) else 0
        if len(labels) != classes:
            raise ConfigError(f"there are {len(labels)} label names for a model with {classes} classes.")


def _model(
    weights: Weights,
    config: ModelConfig,
    head: Head | None,
    brought: dict[str, Brought],
    renamed: Mapping[str, str],
    dropped: tuple[str, ...],
) -> Model:
    """Compare the file's tensors with the model's, name by name and shape by shape, then take them.

    For an older format, `renamed` gives the names that the file has for tensors (an empty one: it has none), `dropped`
    the beginnings of the names of those that are no longer kept.
    """
    file = weights.path
    with torch.device("meta"):
        model = Model(config, head)
    model.brought = brought
    check_views(model)
    expected = {name: tuple(each.shape) for name, each in model.state_dict().items()}
    absent = {name for name, old in renamed.items() if not old and name in expected}
    packed = packed_names(weights, [*_ngrams(config), *_sparse(head)])
    names = {name: renamed.get(name, name) for name in expected if name not in absent and name not in packed}
    wanted = {names[name]: expected[name] for name in names}
    for name in packed:
        wanted |= packed_shapes(weights, name, expected[name])
    _compare(file, wanted, {n: each for n, each in weights.entries.items() if n in wanted or not n.startswith(dropped)})
    if sick := next((name for name in wanted if not weights.tensor(name).isfinite().all()), None):
        raise DamagedError(f"{file}: {sick} holds NaN or infinity. Go back to an earlier run or checkpoint.")
    state = {name: weights.tensor(old) for name, old in names.items()} | unpack(weights, packed, expected)
    state |= {name: torch.zeros(expected[name]) for name in absent}
    model.load_state_dict(state, assign=True)
    if not model.base.ngram_rows_fit():
        raise DamagedError(f"{file}: base.ngrams.rows names rows that do not exist. Restore it from a copy.")
    if wrong := damaged_statistics(model):
        raise DamagedError(f"{file}: {wrong}. Restore it from a copy.")
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    return model.eval()


def _ngrams(config: ModelConfig) -> list[str]:
    """Name the vectors of n-grams, of which rows that no n-gram has are zero."""
    return ["base.ngrams.weight"] if config.ngrams > 1 else []


def _sparse(head: Head | None) -> list[str]:
    """Name the weights of the sparse views of a classifier."""
    return (
        [f"head.views.{view.name}.weight" for view in head.views if view.sparse] if isinstance(head, Classifier) else []
    )


def _compare(file: Path, expected: Mapping[str, tuple[int, ...]], found: Mapping[str, Entry]) -> None:
    """Refuse tensors that are missing, too many, or of another shape or type."""
    if missing := sorted(expected.keys() - found.keys()):
        raise DamagedError(f"{file}: {missing[0]} is missing. The file is not of the model that {CONFIG} describes.")
    if extra := sorted(found.keys() - expected.keys()):
        raise DamagedError(f"{file}: {short_repr(extra[0])} is no part of the model that {CONFIG} describes.")
    for name, shape in expected.items():
        if (given := found[name].shape) != shape:
            raise DamagedError(f"{file}: {name} has the shape {given}, but {CONFIG} describes {shape}.")
        if (kind := found[name].dtype) != (right := dtype_of(name, found)):
            raise DamagedError(f"{file}: {name} is {short_repr(kind)}. Expected {right}.")
