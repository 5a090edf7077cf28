"""Static tables against direct computation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from rehead.bases.files import wordllama_files
from rehead.bases.sources import open_brought
from rehead.bases.static import StaticTable
from rehead.errors import UserError
from tests.bases.tiny import TEXTS, WORDS, inner_tokenizer, make_model2vec, needs_package, write


def rows_of(text: str) -> list[int]:
    return [4 + WORDS.index(word) for word in text.split() if word in WORDS]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("quantized", [True, False])
def test_model2vec_is_the_mean_of_the_known_tokens(normalize: bool, quantized: bool, tmp_path: Path) -> None:
    root = make_model2vec(tmp_path / "table", normalize=normalize, quantized=quantized)
    tensors = {name: each.numpy() for name, each in load_file(root / "model.safetensors").items()}
    texts = [*TEXTS, "unheard of", "the unheard film"]
    expected = np.zeros((len(texts), 8), np.float32)
    for place, text in enumerate(texts):
        rows = rows_of(text)
        if rows:
            found = tensors["embeddings"][tensors["mapping"][rows]] if quantized else tensors["embeddings"][rows]
            mean = (found * tensors["weights"][rows][:, None] if quantized else found).mean(0)
            expected[place] = mean / np.linalg.norm(mean) if normalize else mean
    np.testing.assert_allclose(open_brought(root).engine.encode(texts), expected, atol=1e-6)


def test_against_model2vec_itself(tmp_path: Path) -> None:
    library = pytest.importorskip("model2vec")
    root = make_model2vec(tmp_path / "table")
    expected = library.StaticModel.from_pretrained(root).encode(TEXTS)
    np.testing.assert_allclose(StaticTable(root).encode(TEXTS), expected, atol=1e-6)


def test_wordllama_is_the_mean_of_all_tokens(tmp_path: Path) -> None:
    torch.manual_seed(0)
    table = torch.randn(10, 6).half()  # shorter than the vocabulary: ids past its end are the last row
    (tmp_path / "weights").mkdir()
    (tmp_path / "tokenizers").mkdir()
    save_file({"embedding.weight": table}, tmp_path / "weights" / "tiny_6.safetensors")
    inner_tokenizer(specials=False).save(str(tmp_path / "tokenizers" / "tiny_tokenizer_config.json"))
    texts = ["the film unheard", "bad", ""]
    expected = np.stack([table.float()[ids].mean(0).numpy() for ids in ([4, 6, 3], [9])] + [np.zeros(6, np.float32)])
    np.testing.assert_allclose(open_brought(tmp_path).engine.encode(texts), expected, atol=1e-6)


def test_a_static_embedding_of_sentence_transformers_keeps_unknown_tokens(tmp_path: Path) -> None:
    torch.manual_seed(0)
    table = torch.randn(len(WORDS) + 4, 6)
    (tmp_path / "0_Static").mkdir()
    save_file({"embedding.weight": table}, tmp_path / "0_Static" / "model.safetensors")
    inner_tokenizer(specials=False).save(str(tmp_path / "0_Static" / "tokenizer.json"))
    kind = "sentence_transformers.models."
    steps = [("0_Static", "StaticEmbedding"), ("1_Normalize", "Normalize")]
    write(tmp_path / "modules.json", [{"path": path, "type": kind + name} for path, name in steps])
    mean = table[[4, 3]].mean(0)
    found = open_brought(tmp_path).engine.encode(["the unheard"])
    np.testing.assert_allclose(found[0], (mean / mean.norm()).numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"other": torch.zeros(2, 2)}, "no table"),
        ({"embeddings": torch.full((23, 4), float("inf"))}, "infinity"),
        ({"embeddings": torch.zeros(5, 4), "mapping": torch.full((23,), 7)}, "mapping"),
        ({"embeddings": torch.zeros(23, 4), "weights": torch.zeros(3)}, "weights"),
    ],
)
def test_damaged_tables_are_refused(tensors: dict[str, torch.Tensor], said: str, tmp_path: Path) -> None:
    root = make_model2vec(tmp_path / "table")
    save_file(tensors, root / "model.safetensors")
    with pytest.raises(UserError, match=said):
        StaticTable(root)
    (root / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(UserError, match="safetensors"):
        StaticTable(root)


@pytest.mark.slow
def test_the_installed_wordllama_against_its_own_code() -> None:
    needs_package("wordllama")
    inference = pytest.importorskip("wordllama.inference")
    brought = open_brought("package:wordllama")
    weights, tokenizer = wordllama_files(brought.root)
    table = load_file(weights)["embedding.weight"].numpy()
    made = inference.WordLlamaInference(embedding=table, tokenizer=Tokenizer.from_file(str(tokenizer)))
    np.testing.assert_allclose(brought.engine.encode(TEXTS), made.embed(TEXTS), atol=1e-5)
