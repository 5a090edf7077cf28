"""What learns in the background: never in the way, and the same after a restart."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from rehead.label import learner as module
from rehead.label.choosing import varied
from rehead.label.learner import Learner
from tests.label.running import Labelling, labelling, made_up, meant_well
from tests.use.serve.running import wait_until

TEXTS = made_up(150)


def learnt(server: Labelling) -> None:
    wait_until(lambda: server.labels.learner.settled and server.labels.preparing.finished, 30)


def label(server: Labelling, count: int) -> None:
    for _ in range(count):
        text = server.next()
        server.call("/label", text=text["text"], labels=[int(not meant_well(text["content"]))], how=text["why"])


def test_a_slow_fit_blocks_nothing(tmp_path: Path, tiny_base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with labelling(tmp_path, TEXTS, base=[tiny_base]) as server:
        label(server, 12)
        learnt(server)
        real = Learner._fit

        def slow(*given: object) -> object:
            time.sleep(1.0)
            return real(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(Learner, "_fit", slow)
        began = time.monotonic()
        label(server, 10)
        assert time.monotonic() - began < 5, "ten labels take less than ten fits"
        assert not server.labels.learner.settled


def test_a_failure_is_said_and_labelling_goes_on(
    tmp_path: Path, tiny_base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with labelling(tmp_path, TEXTS, base=[tiny_base]) as server:
        learnt(server)

        def broken(*given: object) -> object:
            raise RuntimeError("broken on purpose")

        monkeypatch.setattr(Learner, "_fit", broken)
        label(server, 3)
        wait_until(lambda: "broken on purpose" in server.call("/state")["failure"])
        assert server.call("/state")["labelled"] == 3
        monkeypatch.undo()
        label(server, 1)
        wait_until(lambda: server.call("/state")["failure"] == "")


def test_random_texts_are_a_prefix_of_one_order_however_they_were_labelled(tmp_path: Path, tiny_base: str) -> None:
    with labelling(tmp_path, TEXTS, base=[tiny_base]) as server:
        learner = server.labels.learner
        order = [int(learner.pool.ids[place]) for place in learner.pool.permutation]
        for text in (order[1], order[4]):
            server.call("/label", text=text, labels=[0], how="search")
        assert learner.random_texts() == []
        server.call("/label", text=order[0], labels=[0], how="random")
        assert learner.random_texts() == order[:2]
        server.call("/skip", text=order[2])
        assert learner.random_texts() == order[:3]
        assert len(learner.labelled().random) == 2, "what was skipped has no label"
        server.call("/next", "other", want="random")  # the next one is on somebody's screen
        assert learner.random_texts() == [*order[:3], order[4]]


def test_a_restart_learns_the_same(tmp_path: Path, tiny_base: str) -> None:
    with labelling(tmp_path, TEXTS, base=[tiny_base]) as server:
        label(server, 30)
        learnt(server)
        first = server.labels.learner.snapshot
        features = sorted(each.name for each in (tmp_path / "project" / "features").iterdir())
    with labelling(tmp_path, TEXTS, base=[tiny_base]) as server:
        learnt(server)
        again = server.labels.learner.snapshot
        assert sorted(each.name for each in (tmp_path / "project" / "features").iterdir()) == features
    assert first is not None
    assert again is not None
    np.testing.assert_allclose(first.probabilities, again.probabilities, atol=1e-5)


def test_labels_outside_the_texts_teach_and_are_never_asked(tmp_path: Path, tiny_base: str) -> None:
    known = made_up(40, seed=5)
    rows = "".join(f"{text},{'good' if meant_well(text) else 'bad'}\n" for text in known)
    (tmp_path / "known.csv").write_text(f"text,label\n{rows}", encoding="utf-8")
    with labelling(tmp_path, TEXTS, base=[tiny_base], labelled=[str(tmp_path / "known.csv")]) as server:
        learnt(server)
        state = server.call("/state")
        assert state["labelled"] == len(set(known))
        assert state["texts"] == len(set(TEXTS))
        snapshot = server.labels.learner.snapshot
        assert snapshot is not None
        right = snapshot.probabilities[: len(TEXTS)].argmax(1) == [int(not meant_well(text)) for text in TEXTS]
        assert right.mean() > 0.75
        asked = [server.next(f"page-{number}")["text"] for number in range(30)]
        assert all(text not in server.project.store.extra for text in asked)


def test_without_classes_there_is_nothing_to_learn_and_no_failure(tmp_path: Path, tiny_base: str) -> None:
    with labelling(tmp_path, TEXTS, base=[tiny_base], labels=None) as server:
        learnt(server)
        state = server.call("/state")
        assert (state["failure"], state["classes"]) == ("", [])
        number = server.call("/class", name="good")["number"]
        server.call("/label", text=0, labels=[number], how="varied")
        learnt(server)
        assert server.call("/state")["failure"] == ""


def test_the_first_texts_are_chosen_from_some_of_many(
    tmp_path: Path, tiny_base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def counted(vectors: np.ndarray, asked: np.ndarray, wanted: int, seed: int = 0) -> np.ndarray:
        seen.append((len(vectors), asked.tolist()))
        return varied(vectors, asked, wanted, seed)

    monkeypatch.setattr(module, "VARIED_OF", 60)
    monkeypatch.setattr(module, "varied", counted)
    with labelling(tmp_path, TEXTS, base=[tiny_base]) as server:
        learnt(server)
        label(server, 6)
        learnt(server)
        snapshot = server.labels.learner.snapshot
        assert snapshot is not None
        assert seen[-1] == (66, [0, 1, 2, 3, 4, 5]), "far from what is labelled, among sixty"
        free = server.labels.learner.labelled().free
        assert all(free[place] for place in snapshot.lists["varied"])
        assert len(snapshot.lists["varied"]) > 20
