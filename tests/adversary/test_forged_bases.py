"""Brought bases that are forged: whatever their files say, they give finite vectors or are refused in one line."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from rehead.bases.sources import open_brought
from rehead.errors import UserError
from rehead.model.config import NO_BASE
from rehead.model.model import Model
from rehead.views import brought_views
from rehead.views.encoded import EncodedTexts
from tests.adversary.refusals import refusal
from tests.bases.tiny import TEXTS, make_encoder, make_model2vec, make_sentence_encoder

Change = Callable[[Path], object]
CONFIG, TOKENS, STATED = "config.json", "tokenizer.json", "tokenizer_config.json"
# bert and mpnet are read by our own forward pass, modernbert and gpt2 by transformers.
FAMILIES = ("bert", "mpnet", "modernbert", "gpt2")
GIVEN = [*TEXTS, "film " * 300]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One base of each kind."""
    folder = tmp_path_factory.mktemp("sound")
    for family in FAMILIES:
        make_encoder(folder / family, family)
    make_sentence_encoder(folder / "sentence", {"pooling_mode_mean_tokens": True}, dense=4, normalize=True)
    make_model2vec(folder / "static", quantized=True)
    return folder


def forge(sound: Path, kind: str, to: Path, *changes: Change) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(sound / kind, to)
    for change in changes:
        change(to)
    return to


def use(path: Path) -> str | None:
    """Read texts by a base; give the line by which it was refused, if it was."""

    def read() -> None:
        model = Model(NO_BASE).eval()
        brought = open_brought(path)
        model.brought = {brought.name: brought}
        (view,) = brought_views(model)
        assert torch.from_numpy(view.read(EncodedTexts(GIVEN)).matrix).isfinite().all()

    return refusal(read)


def fields(name: str, **changes: object) -> Change:
    """Change fields of a JSON file."""

    def change(path: Path) -> None:
        found = json.loads((path / name).read_text(encoding="utf-8")) if (path / name).exists() else {}
        (path / name).write_text(json.dumps(found | changes), encoding="utf-8")

    return change


def tensors(change: Callable[[dict[str, Any]], dict[str, Any]], name: str = "model.safetensors") -> Change:
    return lambda path: save_file(change(load_file(path / name)), path / name)


def every(number: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    return tensors(lambda found: {name: number(each) for name, each in found.items()})


def layers(count: int) -> Change:
    return fields(CONFIG, num_hidden_layers=count, n_layer=count)


ANYWHERE: list[tuple[Change, str]] = [
    (layers(10**9), r"is 1000000000\. No model"),
    (layers(-(10**400)), r"No model is read with more than 4,096"),
    (fields(CONFIG, vocab_size=10**9), r"'vocab_size' is 1000000000\. No model"),
    (fields(CONFIG, num_hidden_layers=4096, num_experts=4096), r"4,096 layers of 4,096 experts"),
    (fields(CONFIG, num_attention_heads=0, n_head=0), "cannot load"),
    (fields(CONFIG, model_type=["bert"]), "cannot load"),
    (lambda path: (path / "modules.json").write_text("[]"), "expected at most 16 modules"),
    (every(lambda each: each * 1e37), "are no numbers|NaN or infinity"),
    (every(lambda each: each.to(torch.complex64)), "complex numbers|is missing|^$"),
    (lambda path: (path / "model.safetensors").write_bytes(b""), "not a whole safetensors file"),
    (lambda path: os.truncate(path / TOKENS, 3 * 2**30), "more than 33,554,432"),
    (fields("config_sentence_transformers.json", prompts={"a": "x" * 10**6}, default_prompt_name="a"), "at most 1,000"),
    (fields("config_sentence_transformers.json", prompts={"a": "\ud800"}, default_prompt_name="a"), "at most 1,000"),
]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("change", "said"), ANYWHERE)
def test_what_no_model_has_is_refused_at_once(
    family: str, change: Change, said: str, sound: Path, tmp_path: Path
) -> None:
    began = time.perf_counter()
    assert re.search(said, use(forge(sound, family, tmp_path / "base", change)) or "")
    assert time.perf_counter() - began < 10


@pytest.mark.parametrize("family", FAMILIES)
def test_no_code_or_kernel_is_fetched_for_a_config(family: str, sound: Path, tmp_path: Path) -> None:
    """transformers would download the code of an attention that a config names, where `kernels` is installed."""
    names = {"attn_implementation": "someone/kernel", "_attn_implementation": "someone/kernel", "use_kernels": True}
    path = forge(sound, family, tmp_path / "base", fields(CONFIG, **names, text_config=names))
    assert "`kernels`" not in (use(path) or "")
    assert use(forge(sound, family, tmp_path / "base", fields(CONFIG, **names))) is None


@pytest.mark.parametrize("family", ["modernbert", "gpt2"])
def test_transformers_is_given_no_other_files(family: str, sound: Path, tmp_path: Path) -> None:
    """`fast_tokenizer_files` names a `tokenizer.json` that was never checked, `vocab_file` a path anywhere."""
    path = forge(sound, family, tmp_path / "base")
    bomb = json.loads((path / TOKENS).read_text(encoding="utf-8"))
    step = {"type": "Replace", "pattern": {"String": "m"}, "content": "m" * 16}
    bomb["normalizer"] = {"type": "Sequence", "normalizers": [step] * 12}
    (path / "tokenizer.1.0.json").write_text(json.dumps(bomb), encoding="utf-8")
    fields(STATED, fast_tokenizer_files=["tokenizer.1.0.json"], vocab_file="/dev/zero", tokenizer_file="/dev/zero")(
        path
    )
    before = open_brought(sound / family).engine.encode(GIVEN)
    assert open_brought(path).engine.encode(GIVEN) == pytest.approx(before)


@pytest.mark.parametrize("family", ["modernbert", "gpt2"])
@pytest.mark.parametrize("names", [("quantization_config",), ("text_config", "quantization_config")])
def test_quantized_weights_are_refused(family: str, names: tuple[str, ...], sound: Path, tmp_path: Path) -> None:
    value: object = {"quant_method": "gptq", "bits": 4}
    for name in reversed(names[1:]):
        value = {name: value}
    path = forge(sound, family, tmp_path / "base", fields(CONFIG, **{names[0]: value}))
    assert "quantized weights are not read" in (use(path) or "")


@pytest.mark.parametrize("family", ["modernbert", "gpt2"])
def test_what_weights_lack_is_not_made(family: str, sound: Path, tmp_path: Path) -> None:
    """A config may ask for any number of values; transformers makes those that are missing."""
    sizes = {"hidden_size": 2**14, "intermediate_size": 2**14, "n_embd": 2**14, "num_hidden_layers": 1, "n_layer": 1}
    path = forge(sound, family, tmp_path / "base", fields(CONFIG, **sizes, layer_types=["full_attention"]))
    assert "numbers, but its weights are" in (use(path) or "")


@pytest.mark.parametrize("length", [1, 2, 0.5, 1.5, 2.5, True, "9", -1, 10**30, None])
@pytest.mark.parametrize("kind", [*FAMILIES, "sentence"])
def test_lengths_that_no_text_has(length: object, kind: str, sound: Path, tmp_path: Path) -> None:
    name, field = (
        ("sentence_bert_config.json", "max_seq_length") if kind == "sentence" else (STATED, "model_max_length")
    )
    said = use(forge(sound, kind, tmp_path / "base", fields(name, **{field: length})))
    assert said is None or "not of the text" in said


@pytest.mark.parametrize("modes", [5, [], ["mean"] * 9, [["mean"]], {"mean": 1}, ["x"], [None]])
def test_poolings_that_are_none(modes: object, sound: Path, tmp_path: Path) -> None:
    said = use(forge(sound, "sentence", tmp_path / "base", fields("1_Pooling/config.json", pooling_mode=modes)))
    assert "pooling" in (said or "")


@pytest.mark.parametrize(
    "dense",
    [
        {"linear.weight": torch.zeros(0, 16)},
        {"linear.weight": torch.zeros(4, 16), "linear.bias": torch.zeros(3)},
        {"linear.weight": torch.zeros(4, 16), "linear.bias": torch.zeros(1)},
        {"linear.weight": torch.zeros(4, 16, dtype=torch.int32)},
    ],
)
def test_dense_modules_that_do_not_fit(dense: dict[str, Any], sound: Path, tmp_path: Path) -> None:
    change = tensors(lambda _: dense, "2_Dense/model.safetensors")
    assert "linear." in (use(forge(sound, "sentence", tmp_path / "base", change)) or "")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        # 4 MB that would become 800 GB
        ({"embeddings": torch.ones(1, 200_000), "mapping": torch.zeros(1_000_000, dtype=torch.uint8)}, "of memory"),
        ({"embeddings": torch.ones(1, 2), "mapping": torch.zeros(0, dtype=torch.uint8)}, "rows that do not exist"),
        ({"embeddings": torch.ones(1, 2), "mapping": torch.full((3,), -1)}, "rows that do not exist"),
        ({"embeddings": torch.ones(1, 2), "mapping": torch.ones(3, dtype=torch.complex64)}, "complex"),
        ({"embeddings": torch.full((9, 8), 3e38), "weights": torch.full((9,), 3e38)}, "infinity"),
        ({"embeddings": torch.full((9, 8), 3e38)}, "are no numbers"),
        ({"embeddings": torch.ones(9, 0)}, "no table"),
    ],
)
def test_tables_that_are_none(table: dict[str, Any], said: str, sound: Path, tmp_path: Path) -> None:
    assert said in (use(forge(sound, "static", tmp_path / "base", tensors(lambda _: table))) or "")


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_that_the_model_does_not_know(family: str, sound: Path, tmp_path: Path) -> None:
    def change(path: Path) -> None:
        spec = json.loads((path / TOKENS).read_text(encoding="utf-8"))
        spec["model"]["vocab"]["film"] = 99_999
        (path / TOKENS).write_text(json.dumps(spec), encoding="utf-8")

    assert "tokens that the model does not know" in (use(forge(sound, family, tmp_path / "base", change)) or "")


def test_a_table_of_spacy_that_states_more_than_it_holds(tmp_path: Path) -> None:
    import numpy as np

    (tmp_path / "key2row").write_bytes(b"\x80")
    (tmp_path / "strings.json").write_text('["a"]', encoding="utf-8")
    with (tmp_path / "vectors").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (2**40, 300)})
    with pytest.raises(UserError, match="not a table of numbers"):
        open_brought(tmp_path)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(-3, 40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=2),
    max_leaves=4,
)
FILES = [CONFIG, STATED, "config_sentence_transformers.json", "sentence_bert_config.json", "1_Pooling/config.json"]


def forge_any_field(kind: str, draw: st.DataObject, sound: Path, to: Path) -> None:
    """Put any value in the place of a field, or several."""
    path = forge(sound, kind, to)
    file = path / draw.draw(st.sampled_from([each for each in FILES if (path / each).is_file()]))
    found = json.loads(file.read_text(encoding="utf-8"))
    names = draw.draw(st.lists(st.sampled_from(sorted(found) or ["prompts"]), min_size=1, max_size=2))
    file.write_text(json.dumps(found | {name: draw.draw(VALUES) for name in names}), encoding="utf-8")
    use(path)


QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.mark.parametrize("kind", [*FAMILIES, "sentence", "static"])
@given(draw=st.data())
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=QUIET)
def test_fields_of_any_kind(kind: str, draw: st.DataObject, sound: Path, tmp_path: Path) -> None:
    forge_any_field(kind, draw, sound, tmp_path / "base")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*FAMILIES, "sentence", "static"])
@given(draw=st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=QUIET)
def test_many_fields_of_any_kind(kind: str, draw: st.DataObject, sound: Path, tmp_path: Path) -> None:
    forge_any_field(kind, draw, sound, tmp_path / "base")
