"""The server: what it answers, to whom, and what it keeps, without a browser."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import faulty_disk, on
from tests.label.running import Labelling, labelling, made_up, meant_well
from tests.use.serve.running import SECRET, wait_until

TEXTS = made_up(120)


@pytest.fixture
def server(tmp_path: Path, tiny_base: str) -> Iterator[Labelling]:
    with labelling(tmp_path, TEXTS, base=[tiny_base]) as each:
        yield each


def label(server: Labelling, count: int, page: str = "page-1", by: str = "anna") -> list[dict[str, object]]:
    """Label some texts rightly, one after the other."""
    found = []
    for _ in range(count):
        text = server.next(page, by=by)
        number = 0 if meant_well(text["content"]) else 1
        server.call("/label", page, by, text=text["text"], labels=[number], how=text["why"])
        found.append(text)
    return found


def learnt(server: Labelling) -> None:
    wait_until(lambda: server.labels.learner.settled and server.labels.preparing.finished, 30)


def test_it_learns_and_says_how_good_it_is(server: Labelling) -> None:
    learnt(server)
    texts = label(server, 60)
    new = [text["text"] for text in texts if text["why"] != "doubted"]
    assert len(set(new)) == len(new) >= 55, "no text twice, but one that is doubted"
    learnt(server)
    state = server.call("/state")
    assert state["labelled"] == len(new)
    assert state["reads"] == ["lsa", "bag"]
    kinds = Counter(text["why"] for text in texts)
    assert kinds["random"] >= 12, kinds
    assert kinds["uncertain"] >= 15, kinds
    wait_until(lambda: server.call("/state")["estimate"].get("accuracy"))
    estimate = server.call("/state")["estimate"]
    assert estimate["random"] >= 12
    accuracy = estimate["accuracy"]
    assert accuracy["low"] < accuracy["value"] <= 1
    assert accuracy["value"] > 0.7, "words tell these texts apart"
    snapshot = server.labels.learner.snapshot
    assert snapshot is not None
    right = snapshot.probabilities.argmax(1) == [0 if meant_well(text) else 1 for text in TEXTS]
    assert right.mean() > 0.8
    wait_until(lambda: server.call("/state")["estimate"].get("curve"))
    assert server.call("/state")["estimate"]["curve"][-1]["labels"] == len(new)


def test_the_words_that_carried_a_guess_are_given(server: Labelling) -> None:
    label(server, 30)
    learnt(server)
    text = server.next()
    found = server.call("/words", text=text["text"])
    assert found["label"] == text["guess"][0][0]
    weights = {text["content"][begin:end]: weight for begin, end, weight in found["words"]}
    tone = [weight for word, weight in weights.items() if word in "fine warm bright lovely honest clever superb"]
    assert weights
    assert max(map(abs, weights.values())) > 0, tone


def test_two_pages_never_have_the_same_text(server: Labelling) -> None:
    first = server.call("/next", "page-1", count=3)["texts"]
    second = server.call("/next", "page-2", by="ben", count=3)["texts"]
    assert not {each["text"] for each in first} & {each["text"] for each in second}
    held = [each["text"] for each in first]
    again = server.call("/next", "page-1", count=1, holding=held)["texts"]
    assert again[0]["text"] not in held
    assert server.call("/state", "page-1", holding=held)["lost"] == []
    assert server.call("/state", "page-2", holding=held)["lost"] == held


def test_people_see_each_others_labels_and_conflicts_are_kept(server: Labelling) -> None:
    text = server.next()["text"]
    server.call("/label", text=text, labels=[0], how="random")
    server.call("/label", "page-2", "ben", text=text, labels=[1], how="review")
    assert server.call("/state")["conflicts"] == 1
    [row] = server.call("/review", show="conflicts")["rows"]
    assert sorted((each["by"], each["labels"]) for each in row["people"]) == [("anna", [0]), ("ben", [1])]
    server.call("/decide", text=text, labels=[1])
    assert server.call("/state")["conflicts"] == 0
    assert server.call("/review")["rows"][0]["labels"] == [1]


def test_undo_gives_the_text_back(server: Labelling) -> None:
    [text] = label(server, 1)
    answer = server.call("/undo")
    assert answer["shown"]["text"] == text["text"]
    assert answer["shown"]["labels"] is None
    assert answer["labelled"] == 0
    status, said = server.post("/undo", {"page": "page-1", "by": "anna"})
    assert (status, said) == (422, {"error": "there is nothing to undo."})


def test_the_user_chooses_what_comes_next(server: Labelling) -> None:
    learnt(server)
    found = server.next(want="search", query="Awful Film")
    assert {"awful", "film"} <= set(found["content"].split())
    label(server, 20)
    learnt(server)
    likely = server.next("page-2", want="class", number=1)
    assert likely["guess"][0][0] == 1
    order = server.labels.learner.pool.permutation
    dealt = {text for text, state in server.project.labels.texts.items() if state.looked_at}
    undealt = [int(place) for place in order if int(place) not in dealt]
    assert server.next("page-3", want="random")["text"] in undealt[:4], "the next of the permutation"


def test_words_of_one_class_leave_those_of_others(server: Labelling) -> None:
    server.call("/seeds", words={"0": ["fine"]})
    server.call("/seeds", "page-2", "ben", words={"1": ["awful"]})  # who has not heard of the words above
    assert server.project.labels.seeds == {0: ["fine"], 1: ["awful"]}
    server.call("/seeds", words={"0": []})
    assert server.project.labels.seeds == {1: ["awful"]}


def test_words_for_classes_come_first_and_suggest_others(server: Labelling) -> None:
    learnt(server)
    answer = server.call("/seeds", words={"0": ["fine", "warm"], "1": ["awful", "dull"]})
    assert answer["ready"]
    assert not set(answer["further"].get("0", [])) & {"fine", "warm", "awful", "dull"}
    learnt(server)
    texts = [server.next(f"page-{each}", by="x") for each in range(6)]
    sure = [each for each in texts if each["why"] == "varied"]
    assert sure
    assert all(set(each["content"].split()) & {"fine", "warm", "awful", "dull"} for each in sure)
    groups = server.call("/clusters")["clusters"]
    assert groups
    assert sum(group["share"] for group in groups) == pytest.approx(1, abs=0.01)


def test_many_are_accepted_after_some_were_looked_at(server: Labelling) -> None:
    label(server, 40)
    learnt(server)
    offer = server.call("/offer", label=0, count=30)
    assert len(offer["shown"]) == min(20, offer["count"])
    wrong = [offer["shown"][0]["text"]]
    answer = server.call("/accept", offer=offer["offer"], wrong=wrong)
    assert answer["accepted"] == offer["count"] - 1
    assert server.post("/accept", {"page": "p", "by": "a", "offer": offer["offer"]})[0] == 422, "once"
    rows = server.call("/review", show="bulk")["rows"]
    assert {row["how"] for row in rows} == {"bulk"}
    assert wrong[0] not in {row["text"] for row in rows}
    random = server.labels.learner.random_texts()
    assert all(server.project.labels.texts[text].looked_at for text in random), "bulk labels are not looked at"


def test_a_class_is_added_and_renamed(server: Labelling) -> None:
    number = server.call("/class", name="  so  <b>so</b> ")["number"]
    assert server.call("/state")["classes"][number]["name"] == "so <b>so</b>"
    server.call("/rename", number=number, name='"quoted"')
    assert server.call("/state")["classes"][number]["name"] == '"quoted"'
    for name, said in (("", "needs a name"), ("good", "already"), ("x" * 101, "at most 100")):
        status, answer = server.post("/class", {"page": "p", "by": "a", "name": name})
        assert status == 422
        assert said in answer["error"]


def test_the_same_command_goes_on(tmp_path: Path, tiny_base: str) -> None:
    with labelling(tmp_path, TEXTS, base=[tiny_base]) as server:
        before = label(server, 12)
        server.call("/note", text=before[0]["text"], note="odd")
        server.call("/class", name="so so")
    with labelling(tmp_path, TEXTS, base=[tiny_base]) as server:
        state = server.call("/state")
        assert state["labelled"] == 12
        assert [each["name"] for each in state["classes"]] == ["good", "bad", "so so"]
        assert server.call("/review", show="notes")["rows"][0]["note"] == "odd"
        assert server.next()["text"] not in {each["text"] for each in before}


def test_a_full_disk_is_said_and_costs_only_what_was_not_saved(tmp_path: Path, tiny_base: str) -> None:
    with labelling(tmp_path, TEXTS, base=[tiny_base]) as server:
        learnt(server)
        label(server, 3)
        text = server.next()["text"]
        body = {"page": "page-1", "by": "anna", "text": text, "labels": [0], "how": "random"}
        with faulty_disk(tmp_path / "project", on("journal.jsonl", "write"), "full"):
            status, answer = server.post("/label", body)
        assert status == 507
        assert "No space left" in answer["error"]
        assert server.call("/state")["labelled"] == 3
        assert server.post("/label", body)[0] == 200
    with labelling(tmp_path, TEXTS, base=[tiny_base]) as server:
        assert server.call("/state")["labelled"] == 4


def test_labels_that_exist_and_suggestions_are_kept_apart(tmp_path: Path, tiny_base: str) -> None:
    rows = [(text, "good" if number % 3 else "odd") for number, text in enumerate(TEXTS)]
    (tmp_path / "t.csv").write_text(
        "text,rule,sure\n" + "".join(f"{text},{rule},0.7\n" for text, rule in rows), encoding="utf-8"
    )
    (tmp_path / "known.csv").write_text(f"text,label\n{TEXTS[0]},good\nanother text,bad\n", encoding="utf-8")
    given = {
        "texts": [str(tmp_path / "t.csv")],
        "labelled": [str(tmp_path / "known.csv")],
        "suggested": "rule",
        "confidence": "sure",
    }
    with labelling(tmp_path, [], base=[tiny_base], **given) as server:
        state = server.call("/state")
        assert state["labelled"] == 2, "suggestions count for nothing"
        assert [each["name"] for each in state["classes"]] == ["good", "bad", "odd"]
        text = server.next()
        assert text["text"] != 0
        assert text["suggestion"]["confidence"] == 0.7
        assert text["suggestion"]["by"] == "rule"
        server.call("/label", text=text["text"], labels=text["suggestion"]["labels"], how=text["why"])
        other = server.next()
        wrong = next(each for each in (0, 1, 2) if [each] != other["suggestion"]["labels"])
        server.call("/label", text=other["text"], labels=[wrong], how=other["why"])
        assert server.call("/state")["agreement"]["of"] == 2
        assert server.call("/state")["agreement"]["agreed"] == 1


def test_blind_shows_neither_guess_nor_suggestion(tmp_path: Path, tiny_base: str) -> None:
    (tmp_path / "t.csv").write_text("text,rule\n" + "".join(f"{each},good\n" for each in TEXTS), encoding="utf-8")
    given = {"texts": [str(tmp_path / "t.csv")], "suggested": "rule"}
    with labelling(tmp_path, [], base=[tiny_base], blind=True, **given) as server:
        label(server, 10)
        learnt(server)
        text = server.next()
        assert (text["guess"], text["suggestion"]) == (None, None)
        assert server.call("/words", text=text["text"])["words"] == []
        assert server.call("/state")["agreement"]["of"] == 10, "and still it is known how often people agreed"


def test_several_labels_a_text(tmp_path: Path, tiny_base: str) -> None:
    with labelling(tmp_path, TEXTS, base=[tiny_base], multilabel=True, labels=("good", "film")) as server:
        for _ in range(40):
            text = server.next()
            words = text["content"].split()
            labels = [number for number, yes in enumerate((meant_well(text["content"]), "film" in words)) if yes]
            server.call("/label", text=text["text"], labels=labels, how=text["why"])
        learnt(server)
        assert server.call("/state")["labelled"] >= 36, "but for those that were asked again"
        assert server.labels.learner.snapshot is not None
        status, answer = server.post("/class", {"page": "p", "by": "a", "name": "a|b"})
        assert status == 422
        assert "separates" in answer["error"]


def test_what_is_exported_is_inert_and_what_is_trained_on_exact(tmp_path: Path, tiny_base: str) -> None:
    from rehead.label.finishing import write_labels

    texts = ["=HYPERLINK(1)", "<script>alert(1)</script>", '"quoted", with commas', *TEXTS]
    with labelling(tmp_path, texts, base=[tiny_base], labels=("=cmd", "a|b")) as server:
        for text in range(3):
            server.call("/label", text=text, labels=[text % 2], how="random")
        server.call("/note", text=0, note="+1+1")
        assert write_labels(server.project) == 3
    with (tmp_path / "project" / "labels.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == ["'=HYPERLINK(1)", *texts[1:3]]
    assert [row["label"] for row in rows] == ["'=cmd", "a|b", "'=cmd"]
    assert rows[0]["note"] == "'+1+1"
    exact = [json.loads(line) for line in (tmp_path / "project" / "labels.jsonl").read_text().splitlines()]
    assert [(row["text"], row["label"]) for row in exact] == list(zip(texts, ("=cmd", "a|b", "=cmd"), strict=False))


def test_the_guard_is_that_of_serve(tmp_path: Path, tiny_base: str) -> None:
    with labelling(tmp_path, TEXTS, base=[tiny_base], token=SECRET, body_bytes=5000) as server:
        body = {"page": "p", "by": "a"}
        own = {"Authorization": f"Bearer {SECRET}"}
        assert server.post("/state", body)[0] == 401
        assert server.post("/state", body, own)[0] == 200
        assert server.post("/state", body, {**own, "Host": "evil.example"})[0] == 421
        assert server.post("/state", body, {**own, "Origin": "https://evil.example"})[0] == 403
        assert server.post("/state", body, {**own, "Content-Type": "text/plain"})[0] == 415
        assert server.post("/state", {**body, "by": "x" * 6000}, own)[0] == 413
        assert server.post("/state", {**body, "more": 1}, own)[0] == 422
        assert server.post("/state", b"{", own)[0] == 400
        assert server.get("/state", own)[0] in (404, 405)
        assert server.get("/nothing", own)[0] == 404
        status, page, headers = server.ask("GET", "/")
        assert status == 200
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in page, "nothing comes from elsewhere"


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("/label", {"text": 10**6, "labels": [0], "how": "random"}),
        ("/label", {"text": 1, "labels": [7], "how": "random"}),
        ("/label", {"text": 1, "labels": [0, 1], "how": "random"}),
        ("/label", {"text": 1, "labels": [], "how": "random"}),
        ("/label", {"text": -1, "labels": [0], "how": "random"}),
        ("/label", {"text": 1, "labels": [0], "how": "bulk"}),
        ("/rename", {"number": 9, "name": "x"}),
        ("/seeds", {"words": {"9": ["x"]}}),
        ("/seeds", {"words": {"x": ["x"]}}),
        ("/offer", {"label": 9, "count": 10}),
        ("/accept", {"offer": "none"}),
        ("/next", {"want": "class", "number": 9}),
        ("/next", {"want": "search", "query": " "}),
        ("/text", {"text": 10**6}),
        ("/words", {"text": "1"}),
    ],
)
def test_what_cannot_be_is_refused(path: str, values: dict[str, object], shared: Labelling) -> None:
    before = len(shared.project.journal.events)
    status, answer = shared.post(path, {"page": "p", "by": "a", **values})
    assert status == 422, answer
    assert answer["error"]
    assert len(shared.project.journal.events) == before


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, tiny_base: str) -> Iterator[Labelling]:
    with labelling(tmp_path_factory.mktemp("shared"), TEXTS, base=[tiny_base]) as each:
        yield each
