"""The files of a base that others pretrained: which are read, and what is refused before anything is loaded.

Safetensors, JSON and vocabularies only, none larger than it can honestly be. Weights as pickles (`.bin`, `.pt`) and
configs that name code of their own (`auto_map`) are refused with the command that converts them. Every path stays
inside the directory, links included; only the hub's cache, whose files are links to its `blobs`, is taken as it is.
"""

from __future__ import annotations

import math
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from rehead.disk import MAX_JSON_BYTES, machine_memory, read_json, sha256
from rehead.errors import UserError, short_repr
from rehead.text.tokenizer_gate import MAX_BYTES

Kind = Literal["run", "encoder", "model2vec", "sentence-static", "wordllama", "words", "spacy"]

CONFIG, MODULES, WEIGHTS, INDEX = "config.json", "modules.json", "model.safetensors", "model.safetensors.index.json"
TOKENIZER_JSON, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
VECTORS, WORDS = "vectors.safetensors", "words.json"
# What a tokenizer consists of, beside `*.model` of SentencePiece.
TOKENIZER = (
    TOKENIZER_JSON, TOKENIZER_CONFIG, "special_tokens_map.json", "added_tokens.json",
    "vocab.txt", "vocab.json", "merges.txt",
)  # fmt: skip
SENTENCE = ("config_sentence_transformers.json", "sentence_bert_config.json", "sentence_roberta_config.json",
            "sentence_distilbert_config.json", "sentence_xlm-roberta_config.json", "sentence_xlnet_config.json",
            "sentence_camembert_config.json", "sentence_albert_config.json")  # fmt: skip
PARTS, EXPERTS = re.compile("layer|block(?!_size)|stack|stage|repeat|depth|group"), re.compile("expert")
MAX_PARTS, MAX_MODULES = 4_096, 65_536  # of a model: layers, or experts of one; experts of all layers
MAX_STEPS = 16  # modules of sentence-transformers
MAX_NUMBER = 2**24  # of tokens, positions, values of a vector
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "tf_model.h5", "flax_model.msgpack")


def recognise(root: Path) -> Kind | None:
    """Tell by its files what a directory holds; None: nothing that is known."""
    if (root / WORDS).is_file() and (root / VECTORS).is_file():
        return "words"
    if any((root / "weights").glob("*.safetensors")) and any((root / "tokenizers").glob("*.json")):
        return "wordllama"
    if (root / "key2row").is_file() or (root / "vocab" / "key2row").is_file():
        return "spacy"
    config = _fields(root / CONFIG)
    if "sha256" in config and "format" in config:
        return "run"
    if config.get("model_type") == "model2vec" or config.get("architectures") == ["StaticModel"]:
        return "model2vec"
    if (root / MODULES).is_file():
        first = next(iter(sentence_modules(root)), ("", ""))[0]
        return "sentence-static" if first == "StaticEmbedding" else "encoder"
    return "encoder" if "model_type" in config or "auto_map" in config else None


def list_files(root: Path, kind: Kind) -> dict[str, str]:
    """List the files that a base is read from, after the checks, with the SHA-256 of each."""
    names = list(dict.fromkeys(_names(root, kind)))
    names += sorted(each.name for each in root.iterdir() if re.fullmatch(r"(LICENSE|NOTICE)(\.\w+)?", each.name))
    for name in names:
        _check_size(inside(root, name))
    return {name: sha256(root / name) for name in names}


def _check_size(path: Path) -> None:
    """Refuse a file that is too large to be read, before its digest is taken."""
    of_tokenizer = path.name in TOKENIZER or path.suffix == ".model"
    limit = machine_memory() if path.suffix == ".safetensors" else MAX_BYTES if of_tokenizer else MAX_JSON_BYTES
    if limit is not None and (size := path.stat().st_size) > limit:
        what = "the memory of this machine" if path.suffix == ".safetensors" else "the limit for such a file"
        raise UserError(f"{path}: {size:,} bytes, more than {limit:,}, {what}.")


def inside(root: Path, name: str) -> Path:
    """Resolve a relative path in a directory; refuse what leads out of it, and anything but a regular file."""
    path = root / name
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts or set(name) & set("\\:\0"):
        raise UserError(f"{root}: {short_repr(name)} is not a path inside the directory.")
    try:
        real = path.resolve(strict=True)
        mode = real.stat().st_mode
    except (OSError, RuntimeError, ValueError):
        raise UserError(f"{path}: the file is missing or cannot be opened. Copy the whole directory again.") from None
    homes = [root.resolve()]
    if root.parent.name == "snapshots":  # of the hub's cache
        homes.append((root.parent.parent / "blobs").resolve())
    if not any(real.is_relative_to(home) for home in homes):
        raise UserError(f"{path}: the link leads outside its directory. Put a copy there instead.")
    if not stat.S_ISREG(mode):
        raise UserError(f"{path}: not a regular file.")
    return path


def sentence_modules(root: Path) -> list[tuple[str, str]]:
    """Read `modules.json` of sentence-transformers: the class and the folder of each step, in order."""
    steps = read_json(inside(root, MODULES))
    if (
        not isinstance(steps, list)
        or not 1 <= len(steps) <= MAX_STEPS
        or not all(
            isinstance(each, dict) and isinstance(each.get("type"), str) and isinstance(each.get("path", ""), str)
            for each in steps
        )
    ):
        raise UserError(f"{root / MODULES}: expected at most {MAX_STEPS} modules, each with a type and a path.")
    for each in steps:
        if not each["type"].startswith("sentence_transformers."):
            raise UserError(
                f"{root / MODULES}: {short_repr(each['type'])} is code of its own, which is not run. "
                "Use a base that is made of modules of sentence-transformers."
            )
    return [(each["type"].rpartition(".")[2], each.get("path", "")) for each in steps]


def transformer_folder(root: Path) -> str:
    """Name the folder of the Transformer inside a directory; empty: the directory itself."""
    modules = sentence_modules(root) if (root / MODULES).is_file() else []
    return next((path for name, path in modules if name == "Transformer"), "")


def head_in(root: Path) -> str | None:
    """Name the class of transformers with whose head a Transformer was saved; None if it was saved without one."""
    stated = fields_of(root / transformer_folder(root), CONFIG).get("architectures")
    names = [each for each in stated if isinstance(each, str)] if isinstance(stated, list) else []
    return next((short_repr(each).strip("'") for each in names if "For" in each or "LMHead" in each), None)


def fields_of(root: Path, name: str, *, required: bool = True) -> dict[str, Any]:
    """Read a JSON object of a directory; empty if it may be missing and is."""
    if not required and not (root / name).exists():
        return {}
    found = read_json(inside(root, name))
    if not isinstance(found, dict):
        raise UserError(f"{root / name}: expected a JSON object.")
    return found


def _fields(path: Path) -> dict[str, Any]:
    """Read a JSON object, for a guess at what a directory is; empty if there is none."""
    try:
        found = read_json(path) if path.is_file() else {}
    except UserError:
        found = {}
    return found if isinstance(found, dict) else {}


def _names(root: Path, kind: Kind) -> Iterator[str]:
    if kind == "words":
        yield from (WORDS, VECTORS)
    elif kind == "wordllama":
        yield from (each.relative_to(root).as_posix() for each in wordllama_files(root))
    elif kind == "model2vec":
        yield from (CONFIG, WEIGHTS, "tokenizer.json")
    elif kind == "sentence-static":
        yield MODULES
        for name, folder in sentence_modules(root):
            if name == "StaticEmbedding":
                yield from (_join(folder, WEIGHTS), _join(folder, "tokenizer.json"))
    else:
        yield from _encoder_names(root)


def wordllama_files(root: Path) -> tuple[Path, Path]:
    """Find the table and the tokenizer of WordLlama; the largest table that has a tokenizer."""
    pairs = [
        (table, tokenizer)
        for table in sorted((root / "weights").glob("*.safetensors"), key=lambda each: -each.stat().st_size)
        for tokenizer in sorted((root / "tokenizers").glob("*.json"))
        if tokenizer.name.startswith(table.stem.rpartition("_")[0])
    ]
    if not pairs:
        raise UserError(f"{root}: no table in weights/ has a tokenizer of its name in tokenizers/.")
    return pairs[0]


def _encoder_names(root: Path) -> Iterator[str]:
    folder = transformer_folder(root)
    if (root / MODULES).is_file():
        yield MODULES
        for name, path in sentence_modules(root):
            if name in ("Pooling", "Dense"):
                yield _join(path, CONFIG)
            if name == "Dense":
                yield from _weights(root, path)
    yield from (name for name in SENTENCE if (root / name).is_file())
    home = root / folder
    if folder:
        yield from (_join(folder, name) for name in SENTENCE if (home / name).is_file())
    for name in (CONFIG, TOKENIZER_CONFIG):
        _refuse_code(home, name)
    check_sizes(fields_of(home, CONFIG), home / CONFIG)
    if (home / "adapter_config.json").exists():
        raise UserError(
            f'{home}: an adapter, not a whole model. Merge it: python -c "from peft import AutoPeftModel; '
            f"AutoPeftModel.from_pretrained('{home}').merge_and_unload().save_pretrained('NEW')\"."
        )
    yield from (_join(folder, name) for name in transformer_files(home))


def transformer_files(home: Path) -> Iterator[str]:
    """Name the files of a Transformer and its tokenizer in their directory."""
    yield CONFIG
    yield from _weights(home, "")
    found = [name for name in TOKENIZER if (home / name).is_file()]
    found += sorted(each.name for each in home.glob("*.model"))
    if not set(found) & {"tokenizer.json", "vocab.txt", "vocab.json"} and not any(home.glob("*.model")):
        raise UserError(f"{home}: no tokenizer (tokenizer.json). Save one with AutoTokenizer(…).save_pretrained.")
    yield from found


def check_sizes(fields: Any, file: Path) -> None:  # noqa: ANN401 (anything JSON may hold)
    """Refuse numbers in a config that no model has: it would be built before its weights are looked at."""
    most = {PARTS: 1, EXPERTS: 1}
    for name, value in _numbers(fields):
        counted = next((each for each in most if each.search(name)), None)
        limit = MAX_PARTS if counted else MAX_NUMBER
        if abs(value) > limit and "theta" not in name:
            raise UserError(
                f"{file}: {short_repr(name)} is {short_repr(value)}. No model is read with more than {limit:,}."
            )
        if counted:
            most[counted] = max(most[counted], value)
    if math.prod(most.values()) > MAX_MODULES:
        raise UserError(f"{file}: {most[PARTS]:,} layers of {most[EXPERTS]:,} experts. No such model is read.")


def _numbers(fields: Any, name: str = "") -> Iterator[tuple[str, int]]:  # noqa: ANN401
    """List the whole numbers of a config, however nested, with the names of their fields."""
    if isinstance(fields, dict):
        for key, value in fields.items():
            yield from _numbers(value, key)
    elif isinstance(fields, list):
        for value in fields:
            yield from _numbers(value, name)
    elif isinstance(fields, int) and not isinstance(fields, bool):
        yield name, fields


def _weights(root: Path, folder: str) -> Iterator[str]:
    """Name the weights: one file, or the index and its shards."""
    home = root / folder
    if (home / WEIGHTS).exists():
        yield _join(folder, WEIGHTS)
    elif (home / INDEX).exists():
        yield _join(folder, INDEX)
        parts = fields_of(home, INDEX).get("weight_map")
        if not isinstance(parts, dict) or not parts:
            raise UserError(f"{home / INDEX}: expected a weight_map from tensors to files.")
        for name in sorted(set(map(str, parts.values()))):
            if not re.fullmatch(r"[\w-][\w.-]*\.safetensors", name):
                raise UserError(f"{home / INDEX}: {short_repr(name)} is not a plain name of a safetensors file.")
            yield _join(folder, name)
    elif any(next(home.glob(pattern), None) for pattern in PICKLES):
        raise UserError(pickle_refusal(home, folder))
    else:
        raise UserError(f"{home}: no weights ({WEIGHTS}). Copy the whole directory.")


def pickle_refusal(path: Path, folder: str = "") -> str:
    """Say that weights are pickles, and how they are converted; `folder`: of a module of sentence-transformers."""
    return (
        f"{path}: its weights are pickles, which can run code; only safetensors are read. Convert it where you "
        f'trust it: python -c "from {_converter(folder)}".'
    )


def _converter(folder: str) -> str:
    if folder:  # a module of sentence-transformers
        return "sentence_transformers import SentenceTransformer; SentenceTransformer('DIR').save('NEW')"
    return (
        "transformers import AutoModel, AutoTokenizer; AutoModel.from_pretrained('DIR').save_pretrained('NEW'); "
        "AutoTokenizer.from_pretrained('DIR').save_pretrained('NEW')"
    )


def _refuse_code(home: Path, name: str) -> None:
    fields = fields_of(home, name, required=name == CONFIG)
    if fields.get("auto_map"):
        raise UserError(
            f"{home / name}: auto_map names code of its own, which is never run (no trust_remote_code). Use a base "
            "whose architecture is part of transformers; if it is one, remove auto_map and check the vectors."
        )


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
