"""The weights of a run: what was checked is what answers, and rows without weight are not stored."""

from __future__ import annotations

import copy
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from rehead.disk import read_checksummed_json, sha256, write_checksummed_json
from rehead.errors import DamagedError
from rehead.model.model import Model
from rehead.runs import weights as weights_module
from rehead.runs.run import Run, load
from rehead.runs.run import save as save_run
from rehead.runs.scoring import class_logits
from rehead.runs.weights import LEVELS, STEPS, VALUES, pack, packed_names, read_weights, unpack
from tests.model.conftest import miniature
from tests.use.text_classifiers import TEXTS, text_classifier

WORDS = "head.views.words.weight"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return save_run(text_classifier("all"), tmp_path / "run")


def sign(path: Path) -> Path:
    config = read_checksummed_json(path / "config.json")
    config["files"] = {name: sha256(path / name) for name in config["files"]}
    write_checksummed_json(path / "config.json", config)
    return path


# What was checked is what answers -------------------------------------------------------------------------------------


def test_a_loaded_run_answers_as_it_was_whatever_becomes_of_its_files(path: Path) -> None:
    run = load(path)
    before = class_logits(run, TEXTS)
    with (path / "model.safetensors").open("r+b") as file:  # in place: the same file, as a mapping would see it
        file.seek(-2000, os.SEEK_END)
        file.write(os.urandom(2000))
    assert (class_logits(run, TEXTS) == before).all()
    for each in path.iterdir():
        each.unlink()
    assert (class_logits(run, TEXTS) == before).all()


def test_a_file_that_is_cut_does_not_end_the_process(path: Path) -> None:
    """Memory that is mapped from a file ends with SIGBUS where the file was cut."""
    code = """
import os, sys
from rehead.runs.run import load
run = load(sys.argv[1])
os.truncate(sys.argv[1] + "/model.safetensors", 0)
print(sum(float(each.sum()) for each in run.model.state_dict().values()))
"""
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)


def test_no_file_of_a_run_stays_open_or_mapped(path: Path) -> None:
    run = load(path)
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8")
    assert str(path) not in mapped
    assert not [each for each in Path("/proc/self/fd").iterdir() if str(path) in os.path.realpath(each)]
    assert run.model is not None


def test_tensors_are_those_of_the_reference(path: Path) -> None:
    weights = read_weights(path / "model.safetensors", sha256(path / "model.safetensors"))
    reference = load_file(path / "model.safetensors")
    assert weights.entries.keys() == reference.keys()
    for name, tensor in reference.items():
        assert torch.equal(weights.tensor(name), tensor), name
        assert weights.tensor(name).untyped_storage().nbytes() == 4 * tensor.numel(), "memory of its own"


def test_a_file_larger_than_the_memory_is_not_read(path: Path) -> None:
    os.truncate(path / "model.safetensors", 2**43)  # sparse
    with pytest.raises(DamagedError, match=f"{2**43:,} bytes"):
        load(path)


def raw(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(begin: int, end: int, shape: object = None, dtype: object = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": [(end - begin) // 4] if shape is None else shape, "data_offsets": [begin, end]}


FORGED = {
    "nothing": b"",
    "seven bytes": b"1234567",
    "a header longer than the file": struct.pack("<Q", 100) + b"{}",
    "a header of exabytes": struct.pack("<Q", 2**62) + b"{}",
    "no JSON": raw(b"{"),
    "a list": raw([]),
    "a name twice": raw(b'{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"a":1}'),
    "no entry": raw({"a": 3}),
    "no offsets": raw({"a": {"dtype": "F32", "shape": [1]}}),
    "offsets that go back": raw({"a": entry(4, 0, [1])}, bytes(4)),
    "negative offsets": raw({"a": entry(-4, 0, [1])}),
    "offsets that are texts": raw({"a": {"dtype": "F32", "shape": [1], "data_offsets": ["0", "4"]}}, bytes(4)),
    "offsets that are true": raw({"a": {"dtype": "F32", "shape": [1], "data_offsets": [False, True]}}, bytes(1)),
    "an overlap": raw({"a": entry(0, 8), "b": entry(4, 12)}, bytes(12)),
    "the same bytes twice": raw({"a": entry(0, 4), "b": entry(0, 4)}, bytes(4)),
    "a gap": raw({"a": entry(0, 4), "b": entry(8, 12)}, bytes(12)),
    "bytes left over": raw({"a": entry(0, 4)}, bytes(8)),
    "bytes missing": raw({"a": entry(0, 400)}, bytes(8)),
    "another shape": raw({"a": entry(0, 8, [10**30])}, bytes(8)),
}


@pytest.mark.parametrize("name", list(FORGED))
def test_what_is_no_safetensors_file_is_refused(name: str, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(FORGED[name])
    with pytest.raises(DamagedError, match="not a whole safetensors file"):
        read_weights(file, sha256(file))
    with pytest.raises(DamagedError, match="SHA-256"):
        read_weights(file, "0" * 64)


# Rows without weight --------------------------------------------------------------------------------------------------


@given(
    rows=st.integers(1, 12),
    columns=st.integers(1, 5),
    kept=st.sets(st.integers(0, 11)),
)
@settings(max_examples=50, deadline=None)
def test_packed_rows_hold_all_that_is_not_zero(rows: int, columns: int, kept: set[int]) -> None:
    weight = torch.zeros(rows, columns)
    for row in kept & set(range(rows)):
        weight[row, row % columns] = row + 1
    packed = pack({"w": weight, "other": torch.ones(2)}, ["w"])
    assert torch.equal(packed["other"], torch.ones(2))
    if "w" in packed:
        assert torch.equal(packed["w"], weight)
    else:
        back = torch.zeros(rows, columns)
        back[packed["w.rows"].long()] = packed["w.values"]
        assert torch.equal(back, weight)
    assert sum(each.numel() for each in packed.values()) <= weight.numel() + 2


def sparse_run(rows: int = 3) -> Run:
    """A classifier of which only a few words have a weight."""
    run = copy.deepcopy(text_classifier("all"))
    run.model.state_dict()[WORDS][rows:] = 0
    return run


def test_a_run_stores_the_rows_that_have_a_weight(tmp_path: Path) -> None:
    run = sparse_run()
    path = save_run(run, tmp_path / "run")
    stored = load_file(path / "model.safetensors")
    assert WORDS not in stored
    assert len(stored[WORDS + ".rows"]) == len(stored[WORDS + ".values"]) <= 3
    back = load(path)
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(back.model.state_dict()[name], tensor), name
    np.testing.assert_array_equal(class_logits(back, TEXTS), class_logits(run, TEXTS))


ROWS: dict[str, tuple[list[float], str]] = {
    "out of range": ([0, 10**6], "ascending"),
    "negative": ([-1, 0], "ascending"),
    "twice": ([1, 1], "ascending"),
    "backward": ([1, 0], "ascending"),
    "between two": ([0, 0.5], "ascending"),
    "NaN": ([0, float("nan")], "NaN"),
    "too few": ([0], "shape"),
}


@pytest.mark.parametrize("name", list(ROWS))
def test_rows_that_do_not_fit_are_refused(name: str, tmp_path: Path) -> None:
    path = save_run(sparse_run(2), tmp_path / "run")
    tensors = load_file(path / "model.safetensors")
    rows, said = ROWS[name]
    tensors[WORDS + ".rows"] = torch.tensor(rows, dtype=torch.float32)
    save_file(tensors, path / "model.safetensors")
    with pytest.raises(DamagedError, match=said):
        load(sign(path))


def test_a_small_file_cannot_become_a_large_matrix(tmp_path: Path) -> None:
    """One row of 2^20 classes, of a matrix of 2^23 rows, would be 32 terabytes."""
    file, shape = tmp_path / "model.safetensors", (2**23, 2**20)
    save_file({"w.rows": torch.zeros(1), "w.values": torch.zeros(1, shape[1])}, file)
    weights = read_weights(file, sha256(file))
    assert packed_names(weights, ["w"]) == ["w"]
    with pytest.raises(DamagedError, match="64 times the file"):
        unpack(weights, ["w"], {"w": shape})
    before = resident()
    small = unpack(weights, ["w"], {"w": (60, shape[1])})["w"]
    assert small.shape == (60, shape[1])
    assert resident() - before < 4 * small.numel() / 4, "only what is written takes memory"
    assert not small.any()


def resident() -> int:
    line = next(each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmRSS"))
    return 1024 * int(line.split()[1])


def test_a_base_stores_the_n_grams_that_it_has(tmp_path: Path) -> None:
    model = Model(miniature("bag")).eval()
    assert model.base.ngrams is not None
    counts = torch.zeros(len(model.base.ngrams.rows), dtype=torch.int64)
    counts[:3] = 5
    assert model.base.ngrams.choose_rows(counts) == 3
    model.base.ngrams.weight.data[1:4] = torch.randn(3, model.config.nhid)
    path = save_run(Run(model), tmp_path / "run")
    assert len(load_file(path / "model.safetensors")["base.ngrams.weight.values"]) == 3
    back = load(path).model
    for name, tensor in model.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor), name


def test_what_could_not_be_loaded_is_stored_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix that is larger than the rest of the file allows is refused when it is loaded."""
    weight = torch.zeros(1000, 10)
    weight[3] = 1
    assert "w" not in pack({"w": weight}, ["w"])
    monkeypatch.setattr(weights_module, "FREE_GROWTH", 0)
    assert torch.equal(pack({"w": weight}, ["w"])["w"], weight)


# Many classes ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every matrix for a large one."""
    monkeypatch.setattr(weights_module, "LARGE", 0)


@pytest.mark.usefixtures("large")
def test_large_matrices_are_stored_in_half_the_bytes_and_answer_the_same(path: Path, tmp_path: Path) -> None:
    run = load(path)
    small = load(save_run(run, tmp_path / "small"))
    stored = load_file(tmp_path / "small" / "model.safetensors")
    assert stored[WORDS + VALUES].dtype == torch.int16
    weight, found = (each.model.state_dict()[WORDS] for each in (run, small))
    assert ((weight - found).abs() <= weight.abs().amax(1, keepdim=True) / (2 * LEVELS) * 1.001).all()
    assert torch.equal(found[~weight.any(1)], weight[~weight.any(1)]), "rows without weight stay so"
    assert np.abs(class_logits(small, TEXTS) - class_logits(run, TEXTS)).max() < 1e-3
    again = load(save_run(small, tmp_path / "again"))
    assert torch.allclose(again.model.state_dict()[WORDS], found, rtol=1e-6, atol=0), "saving twice loses nothing more"


@pytest.mark.usefixtures("large")
@given(exponents=st.lists(st.integers(-45, 38), min_size=1, max_size=6), seed=st.integers(0, 99))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_weights_of_any_size_keep_theirs(exponents: list[int], seed: int) -> None:
    draw = np.random.default_rng(seed)
    weight = torch.from_numpy((draw.uniform(-1, 1, (len(exponents), 7)).T * 10.0 ** np.array(exponents)).T).float()
    packed = pack({"w": weight.clone()}, ["w"], short=["w"])
    found = torch.zeros_like(weight)
    found[packed["w.rows"].long()] = packed["w" + VALUES] * packed["w" + STEPS][:, None]
    assert found.isfinite().all()
    # Half a step, and the rounding of a product in single precision, which is up to 0.4 % of that.
    bound = weight.abs().amax(1, keepdim=True) / (2 * LEVELS) * 1.01 + torch.finfo(torch.float32).tiny
    assert ((weight - found).abs() <= bound).all()


def forge_large(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> Path:
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors")
    return sign(path)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.pop(WORDS + STEPS), "Expected F32"),
        (lambda t: t.update({WORDS + VALUES: t[WORDS + VALUES].float()}), "Expected I16"),
        (lambda t: t.update({WORDS + STEPS: t[WORDS + STEPS][:-1]}), "has the shape"),
        (lambda t: t[WORDS + STEPS].fill_(1e37), "infinite weights"),
        (lambda t: t[WORDS + STEPS].fill_(float("nan")), "NaN or infinity"),
        (lambda t: t.update({"head.bias": t["head.bias"].short()}), "Expected F32"),
    ],
    ids=["no steps", "values in 32 bits", "a step too few", "huge steps", "steps that are no numbers", "a short bias"],
)
def test_forged_steps_are_refused(
    change: Callable[[dict[str, torch.Tensor]], object], said: str, path: Path, tmp_path: Path
) -> None:
    small = save_run(load(path), tmp_path / "small")
    with pytest.raises(DamagedError, match=said):
        load(forge_large(small, change))
