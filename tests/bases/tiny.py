"""Tiny random checkpoints of each family, in the formats that others write."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

transformers = pytest.importorskip("transformers")

LINE = "the a film was very good bad dull bright where is what city river who wrote it and not"
WORDS = LINE.split()
TEXTS = [
    "the film was very good",
    "bad",
    "where is the river and what is the city",
    "",
    "who wrote it " * 30,
    "a dull film and not a good city",
]
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
POSITIONS = 40
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertConfig", SIZES | {"max_position_embeddings": POSITIONS}),
    "distilbert": (
        "DistilBertConfig",
        {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "max_position_embeddings": POSITIONS},
    ),
    "roberta": ("RobertaConfig", SIZES | {"max_position_embeddings": POSITIONS + 2, "pad_token_id": 1}),
    "xlm-roberta": ("XLMRobertaConfig", SIZES | {"max_position_embeddings": POSITIONS + 2, "pad_token_id": 1}),
    "mpnet": ("MPNetConfig", SIZES | {"max_position_embeddings": POSITIONS + 2, "pad_token_id": 1}),
    "modernbert": (
        "ModernBertConfig",
        SIZES | {"max_position_embeddings": POSITIONS, "pad_token_id": 1, "cls_token_id": 0, "sep_token_id": 2},
    ),
    "gpt2": ("GPT2Config", {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": POSITIONS}),
}


def inner_tokenizer(*, specials: bool = True) -> Any:
    """A tokenizer of whole words; it puts <s> and </s> around a text."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    names = ["<s>", "<pad>", "</s>", "<unk>", *WORDS]
    made = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    if specials:
        made.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
        )
    return made


def make_encoder(
    path: Path, family: str = "bert", *, max_length: int | None = POSITIONS, seed: int = 0, head: str = "AutoModel"
) -> Path:
    """Save a random model with its tokenizer, which has a mask; `head` is the class that makes the model."""
    name, sizes = FAMILIES[family]
    torch.manual_seed(seed)
    config = getattr(transformers, name)(vocab_size=len(WORDS) + 5, **sizes)
    getattr(transformers, head).from_config(config).save_pretrained(path)
    limit = {} if max_length is None else {"model_max_length": max_length}
    pad = {} if family == "gpt2" else {"pad_token": "<pad>"}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner_tokenizer(specials=family != "gpt2"),
        unk_token="<unk>", bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>", mask_token="<mask>",
        **pad, **limit,
    ).save_pretrained(path)  # fmt: skip
    return path


def make_sentence_encoder(
    path: Path,
    pooling: dict[str, Any],
    *,
    dense: int | None = None,
    normalize: bool = False,
    sentence: dict[str, Any] | None = None,
    prompts: dict[str, Any] | None = None,
) -> Path:
    """Save a random BERT as a directory of sentence-transformers."""
    make_encoder(path)
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    write(path / "1_Pooling" / "config.json", {"word_embedding_dimension": 16, **pooling})
    if dense is not None:
        width = 16 * max(1, sum(value is True for name, value in pooling.items() if name.startswith("pooling_mode")))
        modules.append(("2_Dense", "Dense"))
        activation = "torch.nn.modules.activation.Tanh"
        fields = {"in_features": width, "out_features": dense, "bias": True, "activation_function": activation}
        write(path / "2_Dense" / "config.json", fields)
        torch.manual_seed(1)
        tensors = {"linear.weight": torch.randn(dense, width), "linear.bias": torch.randn(dense)}
        save_file(tensors, path / "2_Dense" / "model.safetensors")
    if normalize:
        modules.append((f"{len(modules)}_Normalize", "Normalize"))
    listed = [
        {"idx": number, "name": str(number), "path": folder, "type": f"sentence_transformers.models.{name}"}
        for number, (folder, name) in enumerate(modules)
    ]
    write(path / "modules.json", listed)
    write(path / "sentence_bert_config.json", {"max_seq_length": 24, "do_lower_case": False, **(sentence or {})})
    write(path / "config_sentence_transformers.json", prompts or {})
    return path


def make_model2vec(path: Path, *, normalize: bool = True, quantized: bool = False) -> Path:
    """Save a random table as model2vec does."""
    path.mkdir()
    count = len(WORDS) + 4
    torch.manual_seed(2)
    tensors = {"embeddings": torch.randn(7 if quantized else count, 8)}
    if quantized:
        tensors |= {"mapping": torch.arange(count) % 7, "weights": torch.rand(count)}
    save_file(tensors, path / "model.safetensors")
    inner_tokenizer(specials=False).save(str(path / "tokenizer.json"))
    write(path / "config.json", {"model_type": "model2vec", "normalize": normalize, "hidden_dim": 8})
    return path


def make_vectors(path: Path, *, header: bool = False, width: int = 5) -> np.ndarray:
    """Write random word vectors as text."""
    table = np.random.RandomState(0).randn(len(WORDS), width).astype(np.float32)
    lines = [f"{len(WORDS)} {width}"] if header else []
    lines += [" ".join([word, *map(str, row.tolist())]) for word, row in zip(WORDS, table, strict=True)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return table


def needs_package(name: str) -> None:
    """Skip a test where a package that carries a base is not installed."""
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        pytest.skip(f"needs the package {name}")


def write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
