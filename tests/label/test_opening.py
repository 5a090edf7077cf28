"""Of many texts, the first are labelled while the others are read; nothing of that is lost or mistaken."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rehead.errors import UserError
from rehead.label import opening, preparing, texts
from rehead.label.opening import Reading, open_project
from tests.label.running import Labelling, labelling, made_up, meant_well, write_texts
from tests.label.test_project import options
from tests.use.serve.running import wait_until

TEXTS = made_up(150)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Forty texts are the first; the others are read when this is set."""
    event = threading.Event()
    real = Reading._run

    def run(self: Reading, *given: Any) -> None:
        while not (event.wait(0.01) or self._stopping):
            pass
        real(self, *given)

    monkeypatch.setattr(opening, "FIRST_TEXTS", 40)
    monkeypatch.setattr(texts, "STEP", 10)
    monkeypatch.setattr(preparing, "WAIT", 0.01)
    monkeypatch.setattr(Reading, "_run", run)
    yield event
    event.set()


def label(server: Labelling, count: int) -> None:
    for _ in range(count):
        text = server.next()
        server.call("/label", text=text["text"], labels=[int(not meant_well(text["content"]))], how=text["why"])


def test_the_first_texts_are_labelled_while_the_others_are_read(
    tmp_path: Path, tiny_base: str, gate: threading.Event
) -> None:
    with labelling(tmp_path, TEXTS, base=[tiny_base]) as server:
        learner = server.labels.learner
        wait_until(lambda: learner.block_names == ["lsa"], 30)
        label(server, 24)
        wait_until(lambda: learner.settled, 30)
        first = server.project.first
        assert 40 <= first < 60
        assert max(server.project.labels.texts) < first
        assert server.next("page-2")["guess"], "it learns from them already"
        assert learner.random_texts() == [], "the first texts are not a random sample"
        for path, values in (("/next", {"want": "random"}), ("/finish", {})):
            assert server.post(path, {"page": "p", "by": "b", **values})[0] == 422
        state = server.call("/state")
        assert (state["whole"], state["texts"] < len(TEXTS)) == (False, True)
        gate.set()
        wait_until(lambda: server.labels.preparing.finished and learner.settled, 30)
        state = server.call("/state")
        assert (state["whole"], state["texts"]) == (True, len(set(TEXTS)))
        assert len(learner.labelled().texts) == 24, "what was labelled before counts"
        label(server, 20)
        assert max(server.project.labels.texts) >= first
        assert len(learner.random_texts()) > 0


def test_labels_of_the_first_texts_outlast_a_stop(tmp_path: Path, tiny_base: str, gate: threading.Event) -> None:
    with labelling(tmp_path, TEXTS, base=[tiny_base]) as server:
        label(server, 5)
        given = {server.project.store[text].text: each.labels for text, each in server.project.labels.labelled()}
    assert not (tmp_path / "project" / "texts.jsonl").exists(), "not all were read"
    gate.set()
    with labelling(tmp_path, TEXTS, base=[tiny_base]) as server:
        wait_until(lambda: server.project.whole, 30)
        again = {server.project.store[text].text: each.labels for text, each in server.project.labels.labelled()}
    assert again == given
    with labelling(tmp_path, TEXTS, base=[tiny_base]) as server:
        assert server.project.reading is None
        assert dict(server.project.labels.labelled()).keys() <= set(server.project.working.tolist())


def test_other_first_texts_are_refused_once_one_is_labelled(tmp_path: Path, gate: threading.Event) -> None:
    write_texts(tmp_path, TEXTS)
    for labelled in (False, True):
        with open_project(options(tmp_path, labels=("a",)), lambda line: None) as project:
            if labelled:
                project.label(0, [0], "anna", "varied")
        write_texts(tmp_path, ["another one", *TEXTS])
        if not labelled:
            continue
        write_texts(tmp_path, ["yet another one", *TEXTS])
        with (
            pytest.raises(UserError, match="not those that were labelled"),
            open_project(options(tmp_path, labels=("a",)), lambda line: None),
        ):
            pass


def test_what_cannot_be_read_is_said_and_the_first_texts_stay(
    tmp_path: Path, tiny_base: str, gate: threading.Event
) -> None:
    rows = ["text,sure", *(f"{text},0.5" for text in TEXTS[:100]), "the last one,much"]
    (tmp_path / "texts.csv").write_text("\n".join(rows), encoding="utf-8")
    given = {"texts": [str(tmp_path / "texts.csv")], "base": [tiny_base], "suggested": "text", "confidence": "sure"}
    with labelling(tmp_path, [], **given) as server:
        label(server, 3)
        gate.set()
        wait_until(lambda: server.labels.preparing.finished, 30)
        [note] = server.call("/state")["preparing"]["notes"]
        assert "line 102" in note
        label(server, 3)
        assert server.call("/state")["labelled"] == 6


def test_few_texts_and_those_with_labels_are_read_before(tmp_path: Path, gate: threading.Event) -> None:
    write_texts(tmp_path, TEXTS)
    (tmp_path / "known.csv").write_text(f"text,label\n{TEXTS[0]},a\n", encoding="utf-8")
    with open_project(options(tmp_path, labelled=[str(tmp_path / "known.csv")]), lambda line: None) as project:
        assert (project.reading, len(project.store)) == (None, len(set(TEXTS)))
    write_texts(tmp_path, TEXTS[:30])
    with open_project(options(tmp_path, out=tmp_path / "q"), lambda line: None) as project:
        assert (project.reading, len(project.store)) == (None, len(set(TEXTS[:30])))
