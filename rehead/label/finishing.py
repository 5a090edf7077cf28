"""Finish: labels as files, a classifier by the full recipe, and a page that says how it was made.

labels.csv      for people: cells that a spreadsheet would take for formulas are quoted
labels.jsonl    for programs, exactly as they are: what the classifier is trained on
classifier/     a run, with its card; trained in a process of its own, on the base, with all texts as unlabelled text
report.html     the curve, and where the labels come from
"""

from __future__ import annotations

import csv
import json
import threading
import traceback
from typing import TYPE_CHECKING, Any

from rehead.disk import atomic_file
from rehead.errors import UserError
from rehead.label.jobs import Job
from rehead.label.project import TEXTS, Project, RequestError
from rehead.label.report import report_page
from rehead.text.spreadsheet import neutralise

if TYPE_CHECKING:
    from rehead.label.learner import Learner
    from rehead.label.preparing import Preparing

CLASSIFIER, CSV, JSONL, REPORT = "classifier", "labels.csv", "labels.jsonl", "report.html"
COLUMNS = ("text", "label", "by", "how", "at", "note", "source")


class Finishing:
    """Writes what comes of a project, in the background."""

    def __init__(self, project: Project, learner: Learner, preparing: Preparing) -> None:
        self.project, self.learner, self.preparing = project, learner, preparing
        self.job: Job | None = None
        self.state = "none"
        self.error = ""
        self.labels = 0
        "Labels that the classifier is trained on."
        self._thread: threading.Thread | None = None
        if (project.path / CLASSIFIER / "config.json").exists():
            self.state = "done"

    def start(self) -> None:
        """Write the labels now, and begin to train."""
        if self._thread is not None and self._thread.is_alive():
            return
        if not self.project.whole:
            raise RequestError("the classifier is trained on all texts, and these are not read yet.")
        self.labels = write_labels(self.project)
        self.state, self.error = "training", ""
        self._thread = threading.Thread(target=self._run, name="finishing", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End what is running."""
        if self.job is not None:
            self.job.stop()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(5)

    def describe(self) -> dict[str, Any]:
        """For the page."""
        return {
            "state": self.state,
            "job": None if self.job is None else self.job.describe(),
            "error": self.error,
            "labels": self.labels,
            "classifier": str(self.project.path / CLASSIFIER),
            "csv": str(self.project.path / CSV),
            "report": str(self.project.path / REPORT),
            "predict": f"rehead predict {self.project.path / CLASSIFIER} FILE --out labelled.csv",
        }

    def _run(self) -> None:
        try:
            self.job = Job("training", self._arguments())
            if self.job.run():
                self.state = "done"
            else:
                self.state, self.error = "failed", self.job.error
            write_report(self.project, self.learner)
        except (OSError, UserError) as error:
            self.state, self.error = "failed", str(error)
        except Exception as error:
            self.state, self.error = "failed", f"this is a bug in rehead: {type(error).__name__}"
            traceback.print_exc()

    def _arguments(self) -> list[str]:
        out = self.project.path
        found = ["finetune", str(out / JSONL), "--out", str(out / CLASSIFIER), "--overwrite"]
        found += ["--unlabelled", str(out / TEXTS), "--seed", str(self.project.seed)]
        if not self.project.multilabel:
            found.append("--single-label")
        if self.preparing.bases:
            for each in self.preparing.bases:
                found += ["--from", each]
        elif self.preparing.base is not None:
            found += ["--from", str(self.preparing.base)]
        return found


def write_labels(project: Project) -> int:
    """Write all labels that count, as csv and as jsonl; give their number."""
    with project.lock:
        rows = []
        for text, given in project.labels.labelled():
            found = project.store[text]
            names = project.labels.names(given.labels)
            note = project.labels.texts[text].note
            rows.append((found, names, given, note))
    out = project.path
    try:
        with atomic_file(out / JSONL) as partial, partial.open("w", encoding="utf-8") as file:
            for found, names, given, _ in rows:
                label: Any = names if project.multilabel else names[0]
                file.write(json.dumps({"text": found.text, "label": label, "how": given.how}) + "\n")
        with atomic_file(out / CSV) as partial, partial.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            for found, names, given, note in rows:
                cells = (found.text, "|".join(names), given.by, given.how, given.at, note, found.source)
                writer.writerow([neutralise(_encodable(cell)) for cell in cells])
    except OSError as error:
        raise UserError(f"{out}: the labels cannot be written: {error.strerror or error}.") from error
    return len(rows)


def _encodable(cell: str) -> str:
    return cell.encode("utf-8", "replace").decode()


def write_report(project: Project, learner: Learner) -> None:
    """Write the report page."""
    with atomic_file(project.path / REPORT) as partial:
        partial.write_text(report_page(project, learner.estimate), encoding="utf-8")
