"""The rules of the house: no room imports upward, and help is light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rehead

PACKAGE = Path(rehead.__file__).parent

# Lowest first; rooms on one line do not import each other.
FLOORS = [
    {"errors"},
    {"options", "locks", "terminal", "figures"},
    {"progress"},
    {"disk"},
    {"replacing"},
    {"text"},
    {"bases"},
    {"model"},
    {"views"},
    {"runs"},
    {"training"},
    {"pretrain"},
    {"finetune"},
    {"compare", "use"},
    {"lab", "label"},
    {"cli"},
    {"__main__"},
]
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def imports(path: Path) -> set[str]:
    """Every module that a file imports, anywhere in it, as absolute dotted names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively: write the full name"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def upward(room: str, imported: str) -> bool:
    parts = imported.split(".")
    if parts[0] != "rehead" or len(parts) == 1:
        return False
    if parts[1] not in FLOOR:  # `from rehead import __version__`, a name of the package itself
        return False
    return FLOOR[parts[1]] > FLOOR[room] or (FLOOR[parts[1]] == FLOOR[room] and parts[1] != room)


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_every_file_has_a_room() -> None:
    rooms = {room_of(path) for path in PACKAGE.rglob("*.py")} - {"__init__"}
    assert rooms <= set(FLOOR), f"not in the plan of the house: {rooms - set(FLOOR)}"


def test_no_room_imports_upward() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in PACKAGE.rglob("*.py")
        if room_of(path) != "__init__"
        for name in imports(path)
        if upward(room_of(path), name)
    ]
    assert not wrong, wrong


@pytest.mark.parametrize(
    ("room", "imported", "forbidden"),
    [
        ("text", "rehead.model.config", True),
        ("model", "rehead.text.tokenizer", False),
        ("model", "rehead.cli", True),
        ("model", "rehead.views.bag", True),
        ("views", "rehead.model.base", False),
        ("views", "rehead.runs.run", True),
        ("runs", "rehead.views", False),
        ("runs", "rehead.training.loop", True),
        ("training", "rehead.runs.run", False),
        ("pretrain", "rehead.finetune.fit", True),
        ("finetune", "rehead.pretrain.run", False),
        ("use", "rehead.compare.results", True),
        ("use", "rehead.label.project", True),
        ("label", "rehead.use.serve.guard", False),
        ("errors", "rehead.options", True),
        ("cli", "rehead.__version__", False),
        ("text", "torch", False),
    ],
)
def test_the_check_would_see_it(room: str, imported: str, forbidden: bool) -> None:
    assert upward(room, imported) is forbidden


INSIDE = {"embedding", "ngrams", "layers", "statistics"}


def looks_inside(code: str) -> list[int]:
    """Lines that reach for the parts of a base: `base.embedding`, `….base.layers`, `getattr(base, "ngrams")`."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute):
            owner, name = node.value, node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr"):
            owner, given = node.args[:2]
            name = str(given.value) if isinstance(given, ast.Constant) else ""
        else:
            continue
        called = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
        if called == "base" and name in INSIDE:
            found.append(node.lineno)
    return found


def test_only_views_and_the_model_look_into_a_base() -> None:
    """Others ask the base (`row_tables`, `layer_modules`, …) or a view."""
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in PACKAGE.rglob("*.py")
        if room_of(path) not in ("model", "views")
        for line in looks_inside(path.read_text(encoding="utf-8"))
    ]
    assert not wrong, wrong


@pytest.mark.parametrize(
    ("code", "forbidden"),
    [
        ("base.embedding", True),
        ("x = model.base.layers[0]", True),
        ("self.model.base.ngrams.rows", True),
        ("base.statistics.known = 1", True),
        ("getattr(run.model.base, 'layers')", True),
        ("config.ngrams", False),
        ("base.config.ngrams", False),
        ("model.config.nlayers", False),
        ("cache.layers", False),
        ("view.statistics()", False),
        ("base.row_tables()", False),
        ("base.model.head", False),
        ("getattr(base, name)", False),
        ("'base.layers'", False),
    ],
)
def test_the_check_would_see_a_look_inside(code: str, forbidden: bool) -> None:
    assert bool(looks_inside(code)) is forbidden


def test_a_linear_classifier_does_not_wait_for_the_training_loop() -> None:
    code = """
import sys, rehead.finetune.candidates.linear
loaded = [name for name in sys.modules if name.startswith("rehead.training")]
assert "rehead.training.loop" not in loaded, loaded
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


HEAVY = (
    "torch",
    "numpy",
    "matplotlib",
    "sklearn",
    "tokenizers",
    "rich",
    "pyarrow",
    "pandas",
    "fastapi",
    "uvicorn",
    "pydantic",
    "onnx",
    "onnxruntime",
)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["compare", "--help"],
        ["demo", "--help"],
        ["lab", "--help"],
        ["inspect", "--help"],
        ["pretrain", "--help"],
        ["finetune", "--help"],
        ["evaluate", "--help"],
        ["predict", "--help"],
        ["generate", "--help"],
        ["fill", "--help"],
        ["export", "--help"],
        ["serve", "--help"],
        ["label", "--help"],
        ["data", "--help"],
        ["data", "check", "--help"],
        ["data", "export", "--help"],
    ],
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = f"""
import sys
from rehead.cli import main
try:
    main({arguments!r})
except SystemExit as stop:
    assert stop.code == 0, stop.code
heavy = [name for name in {HEAVY!r} if name in sys.modules]
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "rehead" in done.stdout


def test_import_rehead_is_light() -> None:
    code = f"import sys, rehead; assert not [n for n in {HEAVY!r} if n in sys.modules]"
    subprocess.run([sys.executable, "-c", code], check=True)
