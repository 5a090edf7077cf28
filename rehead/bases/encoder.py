"""A Transformer in Hugging Face's format: texts in, one vector each out, as sentence-transformers documents it.

    tokens → hidden states (transformers' AutoModel) → pooling → Dense and Normalize, where modules.json has them

Without a modules.json, hidden states are averaged. Texts are sorted by length and put into batches of about as many
tokens, so that hardly anything is padding; the order of the result is that of the texts. This module is the engine: all
that the rest of the package asks of it is `Engine` (`rehead.bases.brought`).

Shapes: N texts, B texts of a batch, T tokens, H hidden width, W values of a vector.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np
import tokenizers
import torch
import torch.nn.functional as F
from torch import Tensor

from rehead.bases.files import CONFIG, MODULES, SENTENCE, fields_of, inside, sentence_modules
from rehead.bases.pieces import HEAD, Cutting, TextCutter
from rehead.bases.pooling import POOLINGS, pool
from rehead.bases.staging import check_memory, staged
from rehead.bases.tensors import read_tensors
from rehead.bases.tokenizer_file import check_reads
from rehead.errors import UserError, short_repr
from rehead.terminal import print_note
from rehead.text.tokenizer_gate import check_tokenizer

if TYPE_CHECKING:
    from numpy.typing import NDArray

BATCH_TOKENS = 4_096  # of a batch: on a CPU the activations stay in its cache
MAX_PROMPT = 1_000  # characters: each text is read with it
UNLIMITED = 1_000_000  # tokens: what tokenizers say that state no maximum
Step = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, Step] = {
    "Tanh": torch.tanh, "Identity": lambda vectors: vectors, "ReLU": F.relu, "GELU": F.gelu,
    "Sigmoid": torch.sigmoid, "SiLU": F.silu,
}  # fmt: skip


class Sentence(NamedTuple):
    """What a directory states of the texts that its Transformer is given, and of what follows it."""

    home: Path
    "The directory of the Transformer."
    modules: list[tuple[str, str]]
    "What follows it: class and folder of each module."
    max_length: object
    lowercase: bool
    prompt: str


@dataclass(frozen=True)
class Dense:
    """A linear layer on the vector of a text, with its activation."""

    weight: Tensor
    bias: Tensor | None
    activation: str

    def __call__(self, vectors: Tensor) -> Tensor:
        """(B, V) → (B, W)."""
        there = vectors.device
        bias = None if self.bias is None else self.bias.to(there)
        return ACTIVATIONS[self.activation](F.linear(vectors, self.weight.to(there), bias))


class Steps(NamedTuple):
    """From hidden states to the vector of a text."""

    poolings: tuple[str, ...]
    prompt: bool
    "Whether tokens of a prompt are pooled."
    after: list[Step]
    "`Dense`, or what brings vectors to unit length."
    width: int

    def vectors(self, hidden: Tensor, keep: Tensor, skipped: int) -> Tensor:
        """Pool hidden states (B, T, H), of which `keep` (B, T) tells text from padding: (B, W).

        The first `skipped` tokens are not pooled, unless there are no others.
        """
        pooled = keep
        if skipped:
            pooled = keep & (torch.arange(keep.shape[1], device=keep.device) >= skipped)
            pooled = torch.where(pooled.any(1, keepdim=True), pooled, keep)
        vectors = pool(hidden, pooled, self.poolings)
        for step in self.after:
            vectors = step(vectors)
        return vectors


class Encoder:
    """An encoder that is loaded, and does not change."""

    precision = "float32"

    def __init__(self, root: Path) -> None:
        transformers = import_transformers()
        stated = read_sentence(root)
        self.root, self.prompt, self.lowercase = root, stated.prompt, stated.lowercase
        with quietly(transformers):
            self.model: Any = load_model(stated.home, transformers)
            self.tokenizer = load_tokenizer(stated.home, transformers)
        config = self.model.config
        self.max_length: int | None = max_length(stated.max_length, self.tokenizer, self.model)
        pad = self.tokenizer.pad_token_id
        embeddings = self.model.get_input_embeddings()
        weight = getattr(embeddings, "weight", None)
        self.ntokens: int | None = None if weight is None else len(weight)
        "Tokens that the model knows; None: it reads something else, such as bytes."
        known = range(self.ntokens or UNLIMITED)
        given = [each for each in (pad, getattr(config, "pad_token_id", None)) if isinstance(each, int)]
        self.pad = next((each for each in given if each in known), 0)
        self._lock = threading.Lock()  # a tokenizer without a Rust core may not be used by two threads
        self._inner = getattr(self.tokenizer, "backend_tokenizer", None)
        self.steps = read_steps(root, stated, int(config.hidden_size))
        self.skipped = self._prompt_length() if self.prompt and not self.steps.prompt else 0
        if self._inner is not None:  # after the prompt, for which transformers sets it back
            self._inner.no_padding()
            self._inner.no_truncation()
            check_room(root, self.max_length, self._inner, self.prompt)
            if self.max_length is not None:
                self._inner.enable_truncation(self.max_length)
        self.cutter = TextCutter(
            self.token_ids, self._inner, longest=self.max_length, prompt=self.prompt, lowercase=self.lowercase,
            root=root,
        )  # fmt: skip
        self.width = self.steps.width
        self.parameters = sum(each.numel() for each in self.model.parameters())
        self.work = self.parameters - (0 if weight is None else weight.numel())

    def encode(self, texts: Sequence[str], how: Cutting = HEAD) -> NDArray[np.float32]:
        """Encode texts, the vectors of the pieces of a long one averaged: (N, W)."""
        if not texts:
            return np.zeros((0, self.width), np.float32)
        return self.cutter.encode(texts, how, lambda lengths: batches(lengths, BATCH_TOKENS), self.vectors_of)

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize texts, special tokens included, cut to the maximum length."""
        given = [self.prompt + text.strip() for text in texts]
        if self.lowercase:
            given = [text.lower() for text in given]
        if self._inner is not None:
            return [each.ids for each in self._inner.encode_batch_fast(given, add_special_tokens=True)]
        with self._lock:
            cut = {} if self.max_length is None else {"truncation": True, "max_length": self.max_length}
            found: list[list[int]] = self.tokenizer(given, padding=False, **cut)["input_ids"]
            return found

    def vectors_of(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """Encode token ids of about the same length as one batch: (B, W)."""
        if self.ntokens is not None and max((max(each, default=0) for each in ids), default=0) >= self.ntokens:
            raise UserError(f"{self.root}: the tokenizer has tokens that the model does not know. Copy it again.")
        longest = max(1, *map(len, ids))
        rows = torch.full((len(ids), longest), self.pad, dtype=torch.int64)
        keep = torch.zeros(len(ids), longest, dtype=torch.bool)
        for row, each in enumerate(ids):
            rows[row, : len(each)] = torch.tensor(each, dtype=torch.int64)
            keep[row, : max(1, len(each))] = True  # a text without tokens is one of padding: there is always a vector
        try:
            with torch.inference_mode():
                return self.vectors(rows, keep).clone()
        except Exception as error:  # a config that could be loaded may fail in use
            raise UserError(f"{self.root}: transformers cannot read texts by it: {short_repr(str(error))}") from error

    def vectors(self, rows: Tensor, keep: Tensor) -> Tensor:
        """Encode padded token ids (B, T), of which `keep` tells text from padding: (B, W)."""
        hidden = self.model(input_ids=rows, attention_mask=keep.long()).last_hidden_state
        return self.steps.vectors(hidden.float(), keep, self.skipped)

    def _prompt_length(self) -> int:
        """Count the tokens of the prompt, the special one at its end left out."""
        ids = self.tokenizer(self.prompt)["input_ids"]
        return len(ids) - int(bool(ids) and ids[-1] in self.tokenizer.all_special_ids)


def batches(lengths: Sequence[int], tokens: int) -> Iterator[NDArray[np.int64]]:
    """Put texts of about the same length together, the longest first, so that a batch has about so many tokens."""
    order = np.argsort(-np.asarray(lengths, np.int64), kind="stable")
    begin = 0
    while begin < len(order):
        count = max(1, tokens // max(1, lengths[order[begin]]))
        yield order[begin : begin + count]
        begin += count


def read_sentence(root: Path) -> Sentence:
    """Read what stands around the Transformer of a directory."""
    modules = sentence_modules(root) if (root / MODULES).exists() else [("Transformer", "")]
    if modules[0][0] != "Transformer":
        raise UserError(f"{root / MODULES}: begins with {modules[0][0]}, not with a Transformer. It cannot be read.")
    home = root / modules[0][1]
    stated = next((fields_of(home, name) for name in SENTENCE[1:] if (home / name).exists()), {})
    lowercase = bool(stated.get("do_lower_case"))
    return Sentence(home, modules[1:], stated.get("max_seq_length"), lowercase, _default_prompt(root))


def read_steps(root: Path, stated: Sentence, width: int) -> Steps:
    """Read the modules that follow a Transformer of this width."""
    poolings: tuple[str, ...] = ("mean",)
    after: list[Step] = []
    include = True
    for name, folder in stated.modules:
        if name == "Pooling":
            poolings, include = _read_pooling(root, folder)
            width *= len(poolings)
        elif name == "Normalize":
            after.append(_normalize)
        elif name == "Dense":
            after.append(dense := _read_dense(root, folder, width))
            width = len(dense.weight)
        else:
            raise UserError(
                f"{root / MODULES}: the module {name} is not known. Known: Transformer, Pooling, Normalize, Dense."
            )
    return Steps(poolings, include, after, width)


def _normalize(vectors: Tensor) -> Tensor:
    return F.normalize(vectors, dim=1)


def import_transformers() -> Any:  # noqa: ANN401 (a module without types)
    """Import transformers, an optional package."""
    try:
        import transformers
    except ImportError:
        raise UserError("reading an encoder needs transformers: pip install 'rehead[hub]'.") from None
    return transformers


def load_model(home: Path, transformers: Any, kind: str = "AutoModel") -> Any:  # noqa: ANN401
    """Load a model of transformers, `kind` says with which head, and check that its weights are whole."""
    with staged(home) as (directory, _):
        try:
            check_memory(directory, transformers, kind)
            model, report = getattr(transformers, kind).from_pretrained(
                str(directory),
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                dtype=torch.float32,
                output_loading_info=True,
            )
        except UserError as error:
            raise UserError(f"{home}: {error}") from None
        except Exception as error:  # a config may fail anywhere in transformers
            raise UserError(f"{home}: transformers cannot load it: {short_repr(str(error))}") from error
        for each in (*model.parameters(), *model.buffers()):
            each.data = each.data.clone()  # what is mapped from the file would change with it
    if getattr(model.config, "is_encoder_decoder", False):
        model = model.get_encoder()
    # A pooler that the checkpoint does not have would be random; it is not read.
    missing = sorted(name for name in report["missing_keys"] if "pooler" not in name.split("."))
    wrong = missing or sorted(str(each) for each in report.get("mismatched_keys", ()))
    if wrong:
        raise UserError(
            f"{home}: {short_repr(wrong[0])} is missing from the weights, or of another shape than {CONFIG} says. "
            "Copy the whole directory again."
        )
    if sick := next((name for name, each in model.named_parameters() if not each.isfinite().all()), None):
        raise UserError(f"{home}: {sick} holds NaN or infinity.")
    if not isinstance(getattr(model.config, "hidden_size", None), int):
        raise UserError(f"{home / CONFIG}: no hidden_size: not a model of text.")
    return model.eval().requires_grad_(False)


def load_tokenizer(home: Path, transformers: Any) -> Any:  # noqa: ANN401
    """Load its tokenizer, which passes the gate: as a file or, if transformers makes it of others, once it is made."""
    with staged(home) as (directory, checked):
        try:
            made = transformers.AutoTokenizer.from_pretrained(
                str(directory), local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # files may fail anywhere in transformers
            raise UserError(f"{home}: transformers cannot load its tokenizer: {short_repr(str(error))}") from error
    if (inner := getattr(made, "backend_tokenizer", None)) is None:
        return made
    notes = check_tokenizer(inner.to_str(), str(home)).notes  # again: transformers may have put it together anew
    for note in notes or (checked.notes if checked else ()):
        print_note(note)
    if notes:
        inner.model.dropout = None  # what notes are about
    check_reads(inner, str(home))
    return made


def max_length(stated: object, tokenizer: Any, model: Any) -> int | None:  # noqa: ANN401
    """Find how many tokens are read: what is stated, but never more than there are positions."""
    config = model.config
    given = [stated if _is_number(stated) else tokenizer.model_max_length]
    given.append(getattr(config, "max_position_embeddings", None))
    with contextlib.suppress(AttributeError):
        table = model.get_submodule("embeddings.position_embeddings")
        if getattr(table, "padding_idx", None) is not None:  # positions begin after padding's, as in RoBERTa
            given.append(table.num_embeddings - table.padding_idx - 1)
    known = [int(each) for each in given if _is_number(each) and 1 <= each < UNLIMITED]
    return min(known, default=None)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_room(root: Path, longest: int | None, tokenizer: tokenizers.Tokenizer, prompt: str) -> None:
    """Refuse a maximum length that leaves no token for the text itself."""
    taken = tokenizer.num_special_tokens_to_add(False)
    if prompt:
        taken += len(tokenizer.encode(prompt, add_special_tokens=False).ids)
    if longest is not None and longest <= taken:
        raise UserError(f"{root}: it reads {longest} tokens at once, of which {taken} are not of the text.")


def _default_prompt(root: Path) -> str:
    fields = fields_of(root, SENTENCE[0], required=False)
    name, prompts = fields.get("default_prompt_name"), fields.get("prompts")
    found = prompts.get(name) if isinstance(prompts, dict) and isinstance(name, str) else None
    if not isinstance(found, str):
        return ""
    if len(found) > MAX_PROMPT or (not found.isascii() and any("\ud800" <= each <= "\udfff" for each in found)):
        raise UserError(f"{root / SENTENCE[0]}: the prompt {short_repr(found)} is no text of at most {MAX_PROMPT:,}.")
    return found


def _read_pooling(root: Path, folder: str) -> tuple[tuple[str, ...], bool]:
    """Read which poolings are put side by side, and whether tokens of a prompt are pooled."""
    fields = fields_of(root, f"{folder}/{CONFIG}")
    given = fields.get("pooling_mode")
    if given is None:
        names = tuple(name for name, (flag, _) in POOLINGS.items() if fields.get(flag)) or ("mean",)
    else:
        names = tuple(given) if isinstance(given, list) else (given,)
    if not names or not all(isinstance(each, str) for each in names) or len(set(names)) < len(names):
        raise UserError(f"{root / folder / CONFIG}: {short_repr(given)} where names of poolings are expected.")
    if odd := next((name for name in names if name not in POOLINGS), None):
        raise UserError(f"{root / folder / CONFIG}: pooling {short_repr(odd)} is not known.")
    return names, bool(fields.get("include_prompt", True))


def _read_dense(root: Path, folder: str, width: int) -> Dense:
    """Read a linear layer with its activation."""
    where = root / folder
    fields = fields_of(root, f"{folder}/{CONFIG}")
    if fields.get("use_residual") or fields.get("module_input_name", "sentence_embedding") != "sentence_embedding":
        raise UserError(
            f"{where / CONFIG}: this kind of Dense module is not known: it reads the vector of a text alone."
        )
    tensors = read_tensors(inside(root, f"{folder}/model.safetensors"))
    weight, bias = tensors.get("linear.weight"), tensors.get("linear.bias")
    if weight is None or weight.ndim != 2 or weight.shape[1] != width or not len(weight):
        raise UserError(f"{where}: linear.weight is missing, or does not take vectors of {width} values.")
    if not weight.is_floating_point() or (bias is not None and bias.shape != weight.shape[:1]):
        raise UserError(f"{where}: linear.bias has the shape {tuple(bias.shape if bias is not None else ())}.")
    activation = str(fields.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")[2]
    if activation not in ACTIVATIONS:
        raise UserError(
            f"{where / CONFIG}: activation {short_repr(activation)} is not known: {', '.join(ACTIVATIONS)}."
        )
    return Dense(weight, bias, activation)


@contextlib.contextmanager
def quietly(transformers: Any) -> Iterator[None]:  # noqa: ANN401
    """Load without the bars and warnings of transformers: what matters is checked here, and said in one line."""
    log = transformers.utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity(logging.CRITICAL)
    log.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()
