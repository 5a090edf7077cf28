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
    {"options", "disk", "progress", "terminal", "figures"},
    {"text"},
    {"model"},
    {"training"},
    {"pretrain", "finetune"},
    {"compare", "use"},
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
        ("pretrain", "rehead.finetune.recipe", True),
        ("errors", "rehead.options", True),
        ("cli", "rehead.__version__", False),
        ("text", "torch", False),
    ],
)
def test_the_check_would_see_it(room: str, imported: str, forbidden: bool) -> None:
    assert upward(room, imported) is forbidden


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
        ["inspect", "--help"],
        ["pretrain", "--help"],
        ["finetune", "--help"],
        ["evaluate", "--help"],
        ["predict", "--help"],
        ["generate", "--help"],
        ["fill", "--help"],
        ["export", "--help"],
        ["serve", "--help"],
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
