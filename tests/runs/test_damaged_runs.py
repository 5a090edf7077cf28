"""No damaged run directory is believed, and none is refused with more than a line."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from rehead.disk import read_checksummed_json, sha256, write_checksummed_json
from rehead.errors import DamagedError
from rehead.model.config import to_dict
from rehead.runs.run import Run, load, save
from tests.runs.test_run import a_run


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(a_run(), tmp_path_factory.mktemp("sound") / "run")


WATCHED = {
    "exec",
    "compile",
    "pickle.find_class",
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "socket.connect",
}
_seen: list[str] = []
_watching = False


def _watch(event: str, _: object) -> None:
    if _watching and event in WATCHED:
        _seen.append(event)


sys.addaudithook(_watch)  # the interpreter's own record of what it is asked to do


def refused(path: Path) -> str | None:
    """Load a run while watching for executed code; give the error's line, or None when it was accepted."""
    global _watching
    _seen.clear()
    _watching = True
    try:
        load(path)
        line = None
    except DamagedError as error:
        line = str(error)
    finally:
        _watching = False
    assert not _seen, f"loading ran code: {_seen}"
    if line is not None:
        assert line.strip(), "an empty message"
        assert "\n" not in line
        assert path.name in line, f"the message does not say where: {line}"
        assert len(line) < 600, line
    return line


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    load(sound)  # imports what loading imports, so that the watch sees only what a file causes
    return Path(shutil.copytree(sound, tmp_path / "run"))


def resign(path: Path) -> None:
    """Make the digests right again, so that the checks behind them are reached."""
    edit_config(path, lambda config: config.update(files={name: sha256(path / name) for name in config["files"]}))


def edit_config(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change config.json and sign it again."""
    config = read_checksummed_json(path / "config.json")
    change(config)
    write_checksummed_json(path / "config.json", config)


def edit_view(path: Path, **changes: Any) -> None:
    """Change what the config states about the only view of the classifier."""
    edit_config(path, lambda config: config["head"]["views"][0].update(changes))


def edit_tensors(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors")
    resign(path)


def truncate(path: Path) -> None:
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    resign(path)


def link_out(path: Path) -> None:
    outside = path.parent / "elsewhere.safetensors"
    shutil.move(path / "model.safetensors", outside)
    (path / "model.safetensors").symlink_to(outside)


def link_round(path: Path) -> None:
    (path / "labels.json").unlink()
    (path / "labels.json").symlink_to(path / "labels.json")


def a_pipe(path: Path) -> None:
    (path / "labels.json").unlink()
    os.mkfifo(path / "labels.json")


def a_pickle(path: Path) -> None:
    import pickle

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.system, (f"touch {path.parent / 'exploded'}",))

    (path / "model.safetensors").write_bytes(pickle.dumps(Bomb()))
    resign(path)


def rename_file(name: str) -> Callable[[Path], None]:
    return lambda path: edit_config(path, lambda config: config["files"].update({name: "0" * 64}))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda path: (path / "config.json").unlink(), "not a run: config.json is missing"),
    "one changed value": (
        lambda path: (path / "config.json").write_text(
            (path / "config.json").read_text().replace('"sinusoidal"', '"none"')
        ),
        "SHA-256",
    ),
    "an unsigned config": (lambda path: (path / "config.json").write_text('{"format": 1}'), "SHA-256"),
    "config that is not JSON": (lambda path: (path / "config.json").write_text("{not json"), "not valid JSON"),
    "config of bytes": (lambda path: (path / "config.json").write_bytes(b"\xff\xfe\x00"), "not valid JSON"),
    "config with NaN": (lambda path: (path / "config.json").write_text('{"format": NaN}'), "NaN is not JSON"),
    "a name twice": (lambda path: (path / "config.json").write_text('{"format": 1, "format": 1}'), "'format'"),
    "nested without end": (lambda path: (path / "config.json").write_text("[" * 100_000), "not valid JSON"),
    "a list": (lambda path: (path / "config.json").write_text("[]"), "SHA-256"),
    "a format of the future": (lambda path: edit_config(path, lambda c: c.update(format=5)), "upgrade rehead"),
    "a format that is not a number": (lambda path: edit_config(path, lambda c: c.update(format=True)), "format True"),
    "no model": (lambda path: edit_config(path, lambda c: c.pop("model")), "sections"),
    "one more section": (lambda path: edit_config(path, lambda c: c.update(more=1)), "sections"),
    "a dial that is left out": (
        lambda path: edit_config(path, lambda c: c["model"].pop("positions")),
        "lacks the field 'positions'",
    ),
    "views that are left out": (
        lambda path: edit_config(path, lambda c: c["head"].pop("views")),
        "lacks the field 'views'",
    ),
    "no view": (lambda path: edit_config(path, lambda c: c["head"].update(views=[])), "views=[]"),
    "views that are a number": (lambda path: edit_config(path, lambda c: c["head"].update(views=3)), "views=3"),
    "a view that there is not": (lambda path: edit_view(path, name="pixels"), "'pixels'"),
    "a view of a path": (lambda path: edit_view(path, name="../layers"), "'../layers'"),
    "a view of another width": (lambda path: edit_view(path, columns=9), "9"),
    "a view of no options": (lambda path: edit_view(path, options=None), "options=None"),
    "an option that there is not": (lambda path: edit_view(path, options={"exec": "x"}), "'exec'"),
    "a pooling that there is not": (lambda path: edit_view(path, options={"pooling": "sum"}), "'sum'"),
    "pieces of no length": (lambda path: edit_view(path, options={"max_length": 0}), "max_length=0"),
    "pieces of a length true": (lambda path: edit_view(path, options={"max_length": True}), "max_length=True"),
    "another rule for long texts": (lambda path: edit_view(path, options={"long": "middle"}), "'middle'"),
    "a rule that is a list": (lambda path: edit_view(path, options={"long": ["head"]}), "['head']"),
    "a pooling that is a list": (lambda path: edit_view(path, options={"pooling": ["mean"]}), "['mean']"),
    "a base that reads what it has not": (
        lambda path: edit_config(path, lambda c: c["model"].update(reads="bag")),
        "reads='bag'",
    ),
    "a width that does not divide": (lambda path: edit_config(path, lambda c: c["model"].update(nhid=9)), "nhid=9"),
    "a width of terabytes": (lambda path: edit_config(path, lambda c: c["model"].update(ntokens=2**31)), "shape"),
    "an unknown dial": (lambda path: edit_config(path, lambda c: c["model"].update(exec="x")), "'exec'"),
    "an unknown head": (lambda path: edit_config(path, lambda c: c["head"].update(kind="x")), "'x'"),
    "other classes": (lambda path: edit_config(path, lambda c: c["head"].update(classes=3)), "2 label names"),
    "no files": (lambda path: edit_config(path, lambda c: c.pop("files")), "files"),
    "up and out": (rename_file("../elsewhere.safetensors"), "'../elsewhere.safetensors'"),
    "an absolute path": (rename_file("/etc/passwd"), "its own files"),
    "half a character": (rename_file("\ud800"), "its own files"),
    "a strange file": (lambda path: (rename_file("metrics.jsonl")(path), (path / "metrics.jsonl").touch()), "its own"),
    "a truncated tensor file": (truncate, "not a whole safetensors file"),
    "an empty tensor file": (
        lambda path: ((path / "model.safetensors").write_bytes(b""), resign(path)),
        "not a whole safetensors file",
    ),
    "one flipped bit": (
        lambda path: (path / "model.safetensors").write_bytes(
            (data := (path / "model.safetensors").read_bytes())[:-1] + bytes([data[-1] ^ 1])
        ),
        "SHA-256",
    ),
    "a missing tensor": (
        lambda path: edit_tensors(path, lambda t: t.pop("base.embedding.weight")),
        "base.embedding.weight is missing",
    ),
    "an extra tensor": (lambda path: edit_tensors(path, lambda t: t.update(more=torch.ones(1))), "'more'"),
    "a wrong shape": (
        lambda path: edit_tensors(path, lambda t: t.update({"head.bias": torch.ones(3)})),
        "head.bias has the shape (3,)",
    ),
    "a transposed tensor": (
        lambda path: edit_tensors(path, lambda t: t.update({"head.views.layers.weight": torch.ones(8, 2)})),
        "(8, 2)",
    ),
    "another type": (
        lambda path: edit_tensors(path, lambda t: t.update({"head.bias": torch.ones(2).half()})),
        "F16",
    ),
    "NaN weights": (
        lambda path: edit_tensors(path, lambda t: t["head.views.layers.weight"].fill_(float("nan"))),
        "head.views.layers.weight holds NaN",
    ),
    "infinite weights": (
        lambda path: edit_tensors(path, lambda t: t["head.views.layers.weight"][0].fill_(float("inf"))),
        "infinity",
    ),
    "a pickle": (a_pickle, "not a whole safetensors file"),
    "a link out": (link_out, "leads out"),
    "a link in a circle": (link_round, "missing or cannot be opened"),
    "a pipe": (a_pipe, "not a regular file"),
    "a directory": (
        lambda path: ((path / "labels.json").unlink(), (path / "labels.json").mkdir()),
        "not a regular file",
    ),
    "labels that are numbers": (
        lambda path: ((path / "labels.json").write_text("[0, 1]"), resign(path)),
        "different, non-empty names",
    ),
    "labels twice": (lambda path: ((path / "labels.json").write_text('["a", "a"]'), resign(path)), "different"),
    "no tokenizer at all": (lambda path: (path / "tokenizer.json").unlink(), "missing"),
    "half a tokenizer": (
        lambda path: ((path / "tokenizer.json").write_text('{"version": "1.0"'), resign(path)),
        "tokenizer.json",
    ),
}


@pytest.mark.parametrize("name", list(DAMAGE))
def test_damage_is_refused_and_named(name: str, copy: Path) -> None:
    damage, said = DAMAGE[name]
    damage(copy)
    line = refused(copy)
    assert line is not None
    assert said in line, line
    assert not (copy.parent / "exploded").exists()


def test_no_such_run(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path / "file"):
        (tmp_path / "file").touch()
        assert "no such run" in (refused(path) or "")


def test_a_run_may_itself_be_a_link(sound: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(sound)
    assert refused(tmp_path / "latest") is None


def test_strangers_in_the_directory_are_let_be(copy: Path) -> None:
    (copy / "notes.md").write_text("my notes")
    (copy / "checkpoints").mkdir()
    assert refused(copy) is None


# Mutations: property-based, well over 500 inputs ----------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
mutating = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
FILES = ["config.json", "labels.json", "model.safetensors", "tokenizer.json"]


@pytest.fixture
def fresh(sound: Path, tmp_path: Path) -> Callable[[], Path]:
    load(sound)
    made = iter(range(10**6))
    return lambda: Path(shutil.copytree(sound, tmp_path / f"run{next(made)}"))


def weights_of(run: Run) -> list[bytes]:
    return [each.numpy().tobytes() for each in run.model.state_dict().values()]


@mutating
@given(data=st.data())
def test_mutated_bytes_are_refused(data: st.DataObject, fresh: Callable[[], Path], sound: Path) -> None:
    """Cut, flip, insert or replace bytes anywhere, with the digests made right again or not."""
    path = fresh()
    name = data.draw(st.sampled_from(FILES))
    file = path / name
    content = bytearray(file.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    how = data.draw(st.sampled_from(["cut", "flip", "insert", "replace"]))
    if how == "cut":
        content = content[:place]
    elif how == "flip":
        content[place] ^= data.draw(st.integers(1, 255))
    elif how == "insert":
        content[place:place] = data.draw(st.binary(min_size=1, max_size=16))
    else:
        content = bytearray(data.draw(st.binary(max_size=200)))
    file.write_bytes(bytes(content))
    signed = name != "config.json" and data.draw(st.booleans())
    if signed:
        resign(path)
    line = refused(path)
    if name == "config.json":
        assert line is not None or json.loads(bytes(content)) == json.loads((sound / name).read_bytes())
    elif not signed:
        assert line is not None
    elif line is None:  # what was let through is still a model, whole and finite
        run = load(path)
        assert all(each.isfinite().all() for each in run.model.state_dict().values())
        if name != "model.safetensors":
            assert weights_of(run) == weights_of(load(sound))
    shutil.rmtree(path)


@mutating
@given(data=st.data())
def test_mutated_configurations_are_refused(data: st.DataObject, fresh: Callable[[], Path], sound: Path) -> None:
    """Put any JSON value, a name with `..`, or nothing, in any place of config.json.

    Unsigned, nothing passes. Signed again, only another allowed value for a field does, and then it is obeyed.
    """
    path = fresh()
    config = read_checksummed_json(path / "config.json")
    place = config
    if data.draw(st.booleans()):
        place = config[data.draw(st.sampled_from(["model", "head", "files"]))]
    key = data.draw(st.sampled_from(sorted(place)))
    how = data.draw(st.sampled_from(["value", "drop", "rename", "add"]))
    before = json.dumps(config, sort_keys=True)
    if how == "value":
        place[key] = data.draw(json_values)
    elif how == "drop":
        del place[key]
    elif how == "rename":
        new = data.draw(st.sampled_from(["../" + key, "/" + key, key + "\0", key.upper(), "", "\ud800"]))
        place[new] = place.pop(key)
    else:
        place[data.draw(st.text(max_size=8).filter(lambda name: name not in place))] = data.draw(json_values)
    signed = data.draw(st.booleans())
    try:
        if signed:
            write_checksummed_json(path / "config.json", config)
        else:
            digest = json.loads((sound / "config.json").read_text())["sha256"]
            (path / "config.json").write_text(json.dumps({**config, "sha256": digest}))
    except ValueError:  # NaN, which is not JSON
        shutil.rmtree(path)
        return
    line = refused(path)
    optional = place is config.get("files") and key != "model.safetensors" and how == "drop"
    if not signed:
        assert line is not None or json.dumps(config, sort_keys=True) == before
    elif how != "value" and not optional:
        assert line is not None
    if line is None and signed:
        run = load(path)
        assert to_dict(run.model.config) == config["model"]
        assert weights_of(run) == weights_of(load(sound))
    shutil.rmtree(path)


@mutating
@given(data=st.data())
def test_mutated_tensors_are_refused(data: st.DataObject, fresh: Callable[[], Path]) -> None:
    """Drop, add, rename, reshape, cast or poison a tensor in an otherwise sound, correctly signed file."""
    path = fresh()
    tensors = load_file(path / "model.safetensors")
    name = data.draw(st.sampled_from(sorted(tensors)))
    how = data.draw(st.sampled_from(["drop", "add", "rename", "longer", "flat", "cast", "poison"]))
    tensor = tensors[name]
    if how == "drop":
        del tensors[name]
    elif how == "add":
        tensors[data.draw(st.text(min_size=1, max_size=8).filter(lambda new: new not in tensors))] = torch.ones(1)
    elif how == "rename":
        tensors[name + data.draw(st.sampled_from([".", "_", "x", "/../"]))] = tensors.pop(name)
    elif how == "longer":
        tensors[name] = torch.cat((tensor, tensor[:1]))
    elif how == "flat":
        tensors[name] = tensor.reshape(1, *tensor.shape)
    elif how == "cast":
        tensors[name] = tensor.to(data.draw(st.sampled_from([torch.float16, torch.float64, torch.int32, torch.bool])))
    else:
        poison = data.draw(st.sampled_from([float("nan"), float("inf"), float("-inf")]))
        tensor.view(-1)[data.draw(st.integers(0, tensor.numel() - 1))] = poison
    save_file(tensors, path / "model.safetensors")
    resign(path)
    assert refused(path) is not None
    shutil.rmtree(path)
