"""The weights of a run: what was checked is what answers, and rows without weight are not stored."""

from __future__ import annotations

import copy
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from rehead.disk import read_checksummed_json, sha256, write_checksummed_json
from rehead.errors import DamagedError
from rehead.runs.run import Run, load
from rehead.runs.run import save as save_run
from rehead.runs.scoring import class_logits
from rehead.runs.weights import pack, packed_names, read_weights, unpack
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
