"""The vectors of an encoder are those of transformers' own forward, pooled as sentence-transformers documents it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rehead.bases.brought import open_encoder
from rehead.bases.encoder import BATCH_TOKENS, Encoder, batches
from rehead.errors import UserError
from tests.bases.tiny import FAMILIES, POSITIONS, TEXTS, make_encoder, make_sentence_encoder, transformers, write


def hidden_states(root: Path, texts: list[str], length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Transformers' own computation, a text at a time: no padding at all."""
    model = transformers.AutoModel.from_pretrained(root).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(root)
    with torch.no_grad():
        for text in texts:
            given = tokenizer(text, truncation=True, max_length=length, return_tensors="pt")
            ids = given["input_ids"].long()
            if not ids.shape[1]:
                ids = torch.tensor([[model.config.pad_token_id or 0]])
            yield model(input_ids=ids).last_hidden_state[0], ids


@pytest.mark.parametrize("engine", [open_encoder, Encoder])
@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_are_the_mean_of_transformers_own_hidden_states(family: str, engine: Any, tmp_path: Path) -> None:
    root = make_encoder(tmp_path / "model", family)
    encoder = engine(root)
    given = encoder.encode(TEXTS)
    expected = np.stack([hidden.mean(0).numpy() for hidden, _ in hidden_states(root, TEXTS, POSITIONS)])
    assert given.dtype == np.float32
    assert encoder.width == given.shape[1] == 16
    np.testing.assert_allclose(given, expected, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_has_the_same_vector_alone_and_in_any_batch(family: str, tmp_path: Path) -> None:
    encoder = open_encoder(make_encoder(tmp_path / "model", family))
    together = encoder.encode(TEXTS)
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    np.testing.assert_allclose(encoder.encode(TEXTS[::-1])[::-1], together, atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "roberta", "mpnet", "gpt2"])
def test_no_more_tokens_are_read_than_there_are_positions(family: str, tmp_path: Path) -> None:
    """Also where the tokenizer states no maximum; those of RoBERTa begin after padding's."""
    encoder = open_encoder(make_encoder(tmp_path / "model", family, max_length=None))
    assert encoder.max_length == POSITIONS
    long = "the film was good " * 50
    np.testing.assert_allclose(encoder.encode([long]), encoder.encode([long + "bad"]), atol=1e-6)


def pooled(hidden: torch.Tensor, name: str) -> torch.Tensor:
    """The documented pooling of one text (T, H)."""
    weights = torch.arange(1.0, len(hidden) + 1)[:, None]
    return {
        "cls": hidden[0],
        "lasttoken": hidden[-1],
        "max": hidden.max(0).values,
        "mean": hidden.mean(0),
        "mean_sqrt_len_tokens": hidden.sum(0) / len(hidden) ** 0.5,
        "weightedmean": (hidden * weights).sum(0) / weights.sum(),
    }[name]


@pytest.mark.parametrize(
    ("stated", "names"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, ["cls"]),
        ({"pooling_mode_max_tokens": True}, ["max"]),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, ["cls", "mean"]),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, ["mean_sqrt_len_tokens"]),
        ({"pooling_mode_weightedmean_tokens": True}, ["weightedmean"]),
        ({"pooling_mode_lasttoken": True}, ["lasttoken"]),
        ({"pooling_mode": "lasttoken"}, ["lasttoken"]),
        ({"pooling_mode": ["max", "mean"]}, ["max", "mean"]),
    ],
)
def test_poolings_are_those_of_sentence_transformers(stated: dict[str, Any], names: list[str], tmp_path: Path) -> None:
    root = make_sentence_encoder(tmp_path / "model", stated)
    expected = [
        torch.cat([pooled(hidden, name) for name in names]).numpy() for hidden, _ in hidden_states(root, TEXTS, 24)
    ]
    np.testing.assert_allclose(open_encoder(root).encode(TEXTS), np.stack(expected), atol=1e-5)


def test_dense_and_normalize_follow(tmp_path: Path) -> None:
    root = make_sentence_encoder(tmp_path / "model", {"pooling_mode_mean_tokens": True}, dense=6, normalize=True)
    from safetensors.torch import load_file

    tensors = load_file(root / "2_Dense" / "model.safetensors")
    expected = []
    for hidden, _ in hidden_states(root, TEXTS, 24):
        vector = torch.tanh(tensors["linear.weight"] @ hidden.mean(0) + tensors["linear.bias"])
        expected.append((vector / vector.norm()).numpy())
    encoder = open_encoder(root)
    assert encoder.width == 6
    np.testing.assert_allclose(encoder.encode(TEXTS), np.stack(expected), atol=1e-5)


@pytest.mark.parametrize("include", [True, False])
def test_a_default_prompt_goes_before_every_text(include: bool, tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "what is ", "other": "bad "}, "default_prompt_name": "query"}
    stated = {"pooling_mode_mean_tokens": True, "include_prompt": include}
    root = make_sentence_encoder(tmp_path / "model", stated, prompts=prompts)
    texts = ["the city", "a river and a film"]
    expected = []
    for hidden, _ in hidden_states(root, ["what is " + text for text in texts], 24):
        expected.append((hidden if include else hidden[3:]).mean(0).numpy())  # <s> what is
    np.testing.assert_allclose(open_encoder(root).encode(texts), np.stack(expected), atol=1e-5)


def test_lower_case_is_done_if_it_is_stated(tmp_path: Path) -> None:
    root = make_sentence_encoder(tmp_path / "one", {}, sentence={"do_lower_case": True})
    np.testing.assert_array_equal(*(open_encoder(root).encode([text]) for text in ("The FILM", "the film")))


def test_against_sentence_transformers_itself(tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    root = make_sentence_encoder(tmp_path / "model", {"pooling_mode_mean_tokens": True}, dense=6, normalize=True)
    expected = library.SentenceTransformer(str(root), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(open_encoder(root).encode(TEXTS), expected, atol=1e-5)


def test_batches_hold_about_as_many_tokens_and_hardly_any_padding() -> None:
    lengths = [int(each) for each in np.random.RandomState(0).randint(1, 300, 2_000)]
    found = list(batches(lengths, BATCH_TOKENS))
    assert sorted(np.concatenate(found).tolist()) == list(range(len(lengths)))
    padded = sum(len(each) * max(lengths[place] for place in each) for each in found)
    assert padded < 1.1 * sum(lengths)
    assert all(len(each) * lengths[each[0]] <= BATCH_TOKENS for each in found)


def test_weights_that_are_missing_are_not_made_up(tmp_path: Path) -> None:
    root = make_encoder(tmp_path / "model")
    from safetensors.torch import load_file, save_file

    tensors = load_file(root / "model.safetensors")
    name = next(each for each in tensors if "attention.self.query.weight" in each)
    save_file({each: tensor for each, tensor in tensors.items() if each != name}, root / "model.safetensors")
    with pytest.raises(UserError, match="query"):
        open_encoder(root)
    save_file({**tensors, name: tensors[name] * float("nan")}, root / "model.safetensors")
    with pytest.raises(UserError, match="NaN"):
        open_encoder(root)


@pytest.mark.parametrize(
    ("file", "fields", "said"),
    [
        ("1_Pooling/config.json", {"pooling_mode": "sum"}, "sum"),
        ("2_Dense/config.json", {"activation_function": "os.system"}, "system"),
        ("2_Dense/config.json", {"module_input_name": "token_embeddings"}, "Dense"),
    ],
)
def test_modules_that_are_not_known_are_refused(file: str, fields: dict[str, Any], said: str, tmp_path: Path) -> None:
    root = make_sentence_encoder(tmp_path / "model", {"pooling_mode_mean_tokens": True}, dense=6)
    write(root / file, fields)
    with pytest.raises(UserError, match=said):
        open_encoder(root)
