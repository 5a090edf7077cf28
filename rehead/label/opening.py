"""A project is begun, or goes on: its texts are copied once, and labelling begins when the first of them are there.

Of many texts the first two thousand are opened at once, and the rest is read meanwhile (`Reading`). Texts are numbered
in the order of the files, so the first ones keep their numbers. Until all are there, none is drawn at random.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rehead.disk import atomic_file, fsync, read_json, write_json
from rehead.errors import DamagedError, UserError
from rehead.label.journal import Journal
from rehead.label.options import LabelOptions
from rehead.label.project import TEXTS, Project
from rehead.label.texts import Copied, TextStore, copy_texts, describe_copied
from rehead.locks import locked
from rehead.options import read_options
from rehead.progress import progress
from rehead.text.documents import LabelledData, ReadOptions
from rehead.text.labelled import read_examples

PROJECT, JOURNAL = "project.json", "journal.jsonl"
FORMAT = 1
FIRST_TEXTS, FIRST_BYTES = 2_000, 1 << 24  # with so many texts, or bytes of them, labelling begins


class Reading:
    """The thread that reads the rest of the texts."""

    def __init__(
        self,
        options: LabelOptions,
        described: dict[str, Any],
        copying: Generator[Copied, None, None],
        found: Copied,
    ) -> None:
        self.options, self.described, self.copying = options, described, copying
        self.found = found
        "How far it is."
        self.error = ""
        self.ended = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    @property
    def whole(self) -> bool:
        """Whether all texts are there."""
        return self.ended.is_set() and not self.error

    def start(self, project: Project, say: Callable[[str], None]) -> None:
        """Begin."""
        project.reading = self
        self._thread = threading.Thread(target=self._run, args=(project, say), name="reading", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, and leave no half copy."""
        self._stopping = True
        if self._thread is not None:
            self._thread.join()
        self.copying.close()

    def _run(self, project: Project, say: Callable[[str], None]) -> None:
        try:
            for found in self.copying:
                self.found = found
                if self._stopping:
                    return
            project.use(_written(self.options.out, self.described))
            _add_classes(project, self.options)
            say(describe_copied(self.found))
        except OSError as error:
            self.error = f"{self.options.out} cannot be written: {error.strerror or error}."
        except UserError as error:
            self.error = str(error)
        finally:
            self.copying.close()  # what is not whole is removed
            if self.error:
                say(f"not all texts could be read: {self.error}")
            self.ended.set()


@contextmanager
def open_project(options: LabelOptions, say: Callable[[str], None]) -> Iterator[Project]:
    """Open a project, or begin it; nobody else has it meanwhile."""
    with locked(options.out), contextlib.ExitStack() as held:
        described = _described(options.out) if (options.out / PROJECT).exists() else None
        reading = None
        if described is not None and described["texts"] is not None:
            store = _begun(options, described, say)
        else:
            store, described, reading = _begin(options, described, say)
        held.callback(store.close)
        if reading is not None:
            held.callback(reading.stop)
        try:
            journal = Journal.open(options.out / JOURNAL)
        except OSError as error:
            raise UserError(f"{options.out} cannot be written: {error.strerror or error}.") from error
        held.callback(journal.close)
        project = Project(options.out, described, store, journal)
        _add_classes(project, options)
        if reading is not None:
            reading.start(project, say)
        try:
            yield project
        finally:
            if reading is not None:
                reading.stop()
            project.store.close()


def _begin(
    options: LabelOptions, before: dict[str, Any] | None, say: Callable[[str], None]
) -> tuple[TextStore, dict[str, Any], Reading | None]:
    """Copy the texts, or the first of many; `before`: what project.json says if not all were copied the last time."""
    out = options.out
    there = sorted(each.name for each in out.iterdir()) if out.is_dir() and before is None else []
    if any(name not in (TEXTS, f".{TEXTS}.partial") for name in there):
        raise UserError(f"{out} exists already and is not a labelling project. Choose another --out.")
    if before is not None:
        _check_same(options, before)
    try:
        out.mkdir(parents=True, exist_ok=True)
        reading = read_options(options, ReadOptions)
        labelled = _read_labelled(options, reading)
        described = {
            "format": FORMAT,
            "texts": None,
            "sources": [str(each) for each in options.texts],
            "multilabel": options.multilabel or (labelled is not None and labelled.multilabel),
            "suggested": options.suggested,
            "seed": options.seed,
        }
        copying = copy_texts(
            options.texts,
            reading,
            out / TEXTS,
            labelled=labelled,
            suggested=options.suggested,
            confidence=options.confidence,
        )
        # Labelled texts are numbered after all others; standard input cannot be read again after a kill.
        early = labelled is None and "-" not in options.texts and os.name != "nt"
        with contextlib.ExitStack() as unless_kept:
            unless_kept.callback(copying.close)
            found = Copied()
            with progress("reading", unit="texts", quiet=options.quiet) as bar:
                for found in copying:
                    bar.update(found.texts)
                    if early and found.file != out / TEXTS and _enough(found, before):
                        break
            if before is not None and _digest(found.file, before["first"]) != before["digest"] and _labelled(out):
                raise UserError(
                    f"{out}: the first texts are not those that were labelled. Restore the files that it was begun "
                    "with, or choose another --out."
                )
            if found.file == out / TEXTS:
                say(describe_copied(found))
                return _written(out, described), described, None
            unless_kept.pop_all()
            described |= {"first_texts": found.texts, "first": found.size, "digest": _digest(found.file, found.size)}
            _write(out, described)
            store = TextStore(found.file, found.size)
            say(f"{found.texts:,} texts so far; the others are read meanwhile")
            return store, described, Reading(options, described, copying, found)
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror or error}.") from error


def _enough(found: Copied, before: dict[str, Any] | None) -> bool:
    if before is not None and found.size < before["first"]:
        return False
    return found.texts >= FIRST_TEXTS or found.size >= FIRST_BYTES


def _digest(path: Path, size: int) -> str:
    """SHA-256 of the beginning of a file."""
    with path.open("rb") as file:
        return hashlib.sha256(file.read(size)).hexdigest()


def _written(out: Path, described: dict[str, Any]) -> TextStore:
    """Open the texts, all of which are copied, and say so in project.json."""
    store = TextStore(out / TEXTS)
    _write(out, {**described, "texts": store.fingerprint()})
    return store


def _write(out: Path, described: dict[str, Any]) -> None:
    with atomic_file(out / PROJECT) as partial:
        write_json(partial, described)
    fsync(out)


def _labelled(out: Path) -> bool:
    """Whether anything was done to a text already."""
    if not (out / JOURNAL).exists():
        return False
    journal = Journal.open(out / JOURNAL)
    journal.close()
    return any("text" in event or "texts" in event for event in journal.events)


def _read_labelled(options: LabelOptions, reading: ReadOptions) -> LabelledData | None:
    if options.labelled is None:
        return None
    data = read_examples(options.labelled, reading, check=False)
    if data.multilabel and not options.multilabel:
        raise UserError(
            f"{options.labelled[0]}: texts with several labels. Give --multilabel, or --single-label if | is part of a "
            "name."
        )
    return data


def _begun(options: LabelOptions, described: dict[str, Any], say: Callable[[str], None]) -> TextStore:
    """Open the texts of a project that exists."""
    _check_same(options, described)
    store = TextStore(options.out / TEXTS)
    if store.fingerprint() != described["texts"]:
        raise DamagedError(f"{options.out / TEXTS}: not the texts of this project. Restore the file from a copy.")
    say(f"{options.out} goes on: {len(store) - len(store.extra):,} texts")
    return store


def _check_same(options: LabelOptions, described: dict[str, Any]) -> None:
    """Check that the project was begun with what is given now."""
    for name, given in (("multilabel", options.multilabel), ("suggested", options.suggested), ("seed", options.seed)):
        if given != described[name]:
            raise UserError(
                f"{options.out} was begun with --{name} {described[name]}, not {given}. Give the same, or choose "
                "another --out."
            )
    if [str(each) for each in options.texts] != described["sources"]:
        raise UserError(
            f"{options.out} was begun with {', '.join(described['sources'])}. Give the same texts, or another --out."
        )


def _described(out: Path) -> dict[str, Any]:
    found = read_json(out / PROJECT)
    wanted = {"format": int, "sources": list, "multilabel": bool, "seed": int}
    wanted |= {"texts": str} if isinstance(found, dict) and found.get("texts") else {"first": int, "digest": str}
    if not isinstance(found, dict) or any(not isinstance(found.get(name), kind) for name, kind in wanted.items()):
        raise DamagedError(f"{out / PROJECT}: not the description of a labelling project. Restore it from a copy.")
    if found["format"] != FORMAT:
        raise UserError(f"{out / PROJECT}: format {found['format']} is of a newer version. Upgrade rehead.")
    found.setdefault("suggested", None)
    found.setdefault("texts", None)
    return found


def _add_classes(project: Project, options: LabelOptions) -> None:
    """Add the classes that are named on the command line, of labelled texts, and of suggestions."""
    names = [*(options.labels or ()), *sorted(project.store.suggested)]
    renamed = {event["name"] for event in project.journal.events if event["kind"] == "class"}
    for name in names:
        if name not in project.labels.classes and name not in renamed:
            project.add_class(name, "")
