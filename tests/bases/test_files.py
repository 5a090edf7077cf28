"""What is refused before anything is loaded, and which files a base is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from rehead.bases.brought import open_encoder
from rehead.bases.files import list_files, recognise
from rehead.bases.sources import open_brought
from rehead.disk import sha256
from rehead.errors import UserError
from tests.bases.tiny import TEXTS, make_encoder, make_model2vec, make_sentence_encoder, write


def test_the_files_of_a_base_are_those_that_it_is_read_from(tmp_path: Path) -> None:
    root = make_sentence_encoder(tmp_path / "model", {"pooling_mode_mean_tokens": True}, dense=4, normalize=True)
    for name in ("README.md", "pytorch_model.bin", "model.onnx", "train_script.py"):
        (root / name).write_bytes(b"x")
    (root / "LICENSE").write_text("do what you like")
    found = list_files(root, "encoder")
    assert found["model.safetensors"] == sha256(root / "model.safetensors")
    assert set(found) == {
        "modules.json", "1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors", "config.json",
        "model.safetensors", "tokenizer.json", "tokenizer_config.json", "sentence_bert_config.json",
        "config_sentence_transformers.json", "LICENSE",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.pkl"])
def test_pickles_are_refused_with_the_command_that_converts_them(name: str, tmp_path: Path) -> None:
    root = make_encoder(tmp_path / "model")
    (root / "model.safetensors").rename(root / name)
    with pytest.raises(UserError, match=r"AutoModel\.from_pretrained.*save_pretrained"):
        open_brought(root)


def test_a_dense_module_as_a_pickle_is_refused(tmp_path: Path) -> None:
    root = make_sentence_encoder(tmp_path / "model", {}, dense=4)
    (root / "2_Dense" / "model.safetensors").rename(root / "2_Dense" / "pytorch_model.bin")
    with pytest.raises(UserError, match="SentenceTransformer"):
        open_brought(root)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_code_of_its_own_is_refused(name: str, tmp_path: Path) -> None:
    root = make_encoder(tmp_path / "model")
    fields = json.loads((root / name).read_text())
    write(root / name, fields | {"auto_map": {"AutoModel": "modeling_mine.MyModel"}})
    with pytest.raises(UserError, match="auto_map"):
        open_brought(root)


def test_modules_of_other_packages_are_refused(tmp_path: Path) -> None:
    root = make_sentence_encoder(tmp_path / "model", {})
    modules = json.loads((root / "modules.json").read_text())
    modules[1]["type"] = "my_package.Pooling"
    write(root / "modules.json", modules)
    with pytest.raises(UserError, match="my_package"):
        open_brought(root)


def test_adapters_and_missing_files_are_refused(tmp_path: Path) -> None:
    root = make_encoder(tmp_path / "model")
    write(root / "adapter_config.json", {})
    with pytest.raises(UserError, match="adapter"):
        open_brought(root)
    (root / "adapter_config.json").unlink()
    (root / "tokenizer.json").unlink()
    with pytest.raises(UserError, match="tokenizer"):
        open_brought(root)
    (root / "model.safetensors").unlink()
    with pytest.raises(UserError, match="no weights"):
        open_brought(root)


@pytest.mark.parametrize("path", ["../other", "/etc", "a/../../other"])
def test_modules_outside_the_directory_are_refused(path: str, tmp_path: Path) -> None:
    root = make_sentence_encoder(tmp_path / "model", {})
    write(tmp_path / "other" / "config.json", {"pooling_mode": "mean"})
    modules = json.loads((root / "modules.json").read_text())
    modules[1]["path"] = path
    write(root / "modules.json", modules)
    with pytest.raises(UserError, match="not a path inside"):
        open_brought(root)


def test_links_out_of_the_directory_are_refused_but_not_those_of_the_hubs_cache(tmp_path: Path) -> None:
    root = make_encoder(tmp_path / "model")
    (root / "model.safetensors").rename(tmp_path / "elsewhere")
    (root / "model.safetensors").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="leads outside"):
        open_brought(root)
    cached = make_encoder(tmp_path / "models--org--tiny" / "snapshots" / "0123abcd")
    blobs = cached.parent.parent / "blobs"
    blobs.mkdir()
    (cached / "model.safetensors").rename(blobs / "ffff")
    (cached / "model.safetensors").symlink_to(blobs / "ffff")
    assert open_brought(cached).name == "encoder:tiny"


def test_sharded_weights_give_the_same_vectors(tmp_path: Path) -> None:
    root = make_encoder(tmp_path / "model")
    whole = open_encoder(root).encode(TEXTS)
    tensors = load_file(root / "model.safetensors")
    names = sorted(tensors)
    parts = {"model-00001-of-00002.safetensors": names[:9], "model-00002-of-00002.safetensors": names[9:]}
    for file, some in parts.items():
        save_file({name: tensors[name] for name in some}, root / file, metadata={"format": "pt"})
    (root / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {name: file for file, some in parts.items() for name in some}}
    write(root / "model.safetensors.index.json", index)
    brought = open_brought(root)
    assert set(parts) < set(brought.files)
    assert (brought.engine.encode(TEXTS) == whole).all()
    index["weight_map"][names[0]] = "../model.safetensors"
    write(root / "model.safetensors.index.json", index)
    with pytest.raises(UserError, match="plain name"):
        open_brought(root)


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"config.json": {"model_type": "bert"}}, "encoder"),
        ({"config.json": {"model_type": "model2vec"}}, "model2vec"),
        ({"config.json": {"format": 3, "sha256": "…"}}, "run"),
        ({"config.json": {"something": 1}}, None),
        ({"config.json": []}, None),
        ({"weights/a_256.safetensors": 0, "tokenizers/a_tokenizer.json": 0}, "wordllama"),
        ({"vocab/key2row": 0}, "spacy"),
        ({"words.json": [], "vectors.safetensors": 0}, "words"),
        ({}, None),
    ],
)
def test_directories_are_told_apart_by_their_files(files: dict[str, Any], kind: str | None, tmp_path: Path) -> None:
    for name, value in files.items():
        write(tmp_path / name, value)
    assert recognise(tmp_path) == kind


def test_a_static_table_of_sentence_transformers_is_one(tmp_path: Path) -> None:
    make_model2vec(tmp_path / "0_Static")
    (tmp_path / "0_Static" / "config.json").unlink()
    step = {"idx": 0, "name": "0", "path": "0_Static", "type": "sentence_transformers.models.StaticEmbedding"}
    write(tmp_path / "modules.json", [step])
    assert recognise(tmp_path) == "sentence-static"
    assert open_brought(tmp_path).kind == "static"
