"""The report: statistics counted by hand, and duplicates planted inside parts and across them."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rehead.errors import UserError
from rehead.text.documents import ReadOptions
from rehead.text.labelled_files import detect_labels
from rehead.text.leaks import check_splits

LONG = [
    "the first review is about a ship that sails around the cape and never finds the island it was looking for",
    "in the second one a baker loses his sense of taste and has to trust the children of his street with the bread",
    "third comes a comedy of errors in a hotel where every room has the same number and no guest has the right key",
    "number four follows two brothers across the desert on a motorcycle older than both of them taken together once",
    "the fifth film shows nothing but a window for ninety minutes and still I could not look away from it at all",
]
CHANGED = LONG[0].replace("ship", "boat")


def csv_file(path: Path, rows: list[tuple[str, str]]) -> str:
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows), encoding="utf-8")
    return str(path)


def text_file(path: Path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def report(paths: list[str], against: list[str] | None = None, **more: Any) -> dict[str, Any]:
    made = check_splits(paths, against or [], ReadOptions(skip_empty=True), quiet=True, **more)
    return json.loads(json.dumps(made))  # type: ignore[no-any-return]


def test_statistics_counted_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("text,label\none,x\none two three,y\n,y\none two three four five,y\n a  b ,x\n", encoding="utf-8")
    (part,) = report([str(file)])["parts"]
    assert part["documents"] == part["labelled"] == 4
    assert part["words"] == 1 + 3 + 5 + 2
    assert part["characters"] == 3 + 13 + 23 + 6
    assert part["tokens_are_estimated"]
    assert 1 + 3 + 5 + 2 <= part["tokens"] <= part["characters"]
    assert part["classes"] == {"x": 2, "y": 2}
    assert part["skipped"] == {"empty text": 1}
    assert part["length"] == {"mean": 2.8, "min": 1, "q25": 1, "median": 2, "q75": 3, "p95": 3, "max": 5}
    assert sum(bar["documents"] for bar in part["histogram"]) == 4


@pytest.mark.parametrize("lengths", [[1], [1, 1, 1], [3, 10, 100], list(range(1, 200)), [7] * 50 + [5000]])
def test_the_histogram_has_every_document_once(tmp_path: Path, lengths: list[int]) -> None:
    lines = [" ".join(f"w{i}x{j}" for j in range(length)) for i, length in enumerate(lengths)]
    (part,) = report([text_file(tmp_path / "a.txt", lines)])["parts"]
    bars = part["histogram"]
    assert len(bars) <= 12
    for bar in bars:
        assert bar["documents"] == sum(bar["from"] <= length <= bar["to"] for length in lengths)
    assert sum(bar["documents"] for bar in bars) == len(lengths)
    assert all(low["to"] + 1 == high["from"] for low, high in pairwise(bars))


def test_labelled_text_in_an_unlabelled_test_file_is_a_leak(tmp_path: Path) -> None:
    """The classifier has learnt from it, whether its copy has a label or not."""
    train = csv_file(tmp_path / "train.csv", [(LONG[0], "x"), (LONG[1], "y")])
    test = text_file(tmp_path / "test.txt", [LONG[0], LONG[2]])
    made = report([train], [test], allow_unlabelled=True)
    assert (made["across"]["labelled"], made["across"]["unlabelled"], made["leak"]) == (1, 0, True)
    made = report([test], [train], allow_unlabelled=True)  # pretraining text that holds a labelled test document
    assert (made["across"]["labelled"], made["across"]["unlabelled"], made["leak"]) == (0, 1, False)
    assert report([test], [train])["leak"]


def test_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    train = csv_file(tmp_path / "train.csv", [(LONG[0], "x"), (LONG[1], "y")])
    plain = text_file(tmp_path / "plain.txt", [LONG[2]])
    (part,) = report([train, plain, str(tmp_path / "*.csv"), plain])["parts"]
    assert part["documents"] == 3
    assert part["exact_duplicates"] == 0
    assert part["skipped"] == {"file named twice": 2}


def test_what_no_classifier_can_learn_is_noted(tmp_path: Path) -> None:
    one = csv_file(tmp_path / "one.csv", [(LONG[0], "x"), (LONG[1], "x")])
    (part,) = report([one])["parts"]
    assert len(part["notes"]) == 1
    assert "the same label, 'x'" in part["notes"][0]
    lonely = csv_file(tmp_path / "lonely.csv", [(LONG[0], "x"), (LONG[1], "x"), (LONG[2], "y")])
    (part,) = report([lonely])["parts"]
    assert f"{lonely} line 4: the only example of the class 'y'" in part["notes"][0]
    assert report([one], [lonely])["parts"][1]["notes"] == []  # a test part is not learnt from


def test_folders_can_be_read_without_labels(tmp_path: Path) -> None:
    for year, text in (("2020", LONG[0]), ("2021", LONG[1])):
        (tmp_path / "archive" / year).mkdir(parents=True)
        text_file(tmp_path / "archive" / year / "a.txt", [text, text + " again"])
    (part,) = report([str(tmp_path / "archive")])["parts"]
    assert part["classes"] == {"2020": 1, "2021": 1}
    (part,) = report([str(tmp_path / "archive")], unlabelled=True)["parts"]
    assert (part["documents"], part["labelled"]) == (4, 0)


def test_tokens_are_counted_with_a_tokenizer(tmp_path: Path) -> None:
    class Letters:
        def encode_batch(self, texts: list[str]) -> list[list[int]]:
            return [[0] * len(text.replace(" ", "")) for text in texts]

    made = report(
        [text_file(tmp_path / "a.txt", ["ab c"] * 1500)], [text_file(tmp_path / "b.txt", ["d"])], tokenizer=Letters()
    )
    assert [part["tokens"] for part in made["parts"]] == [4500, 1]
    assert not made["parts"][0]["tokens_are_estimated"]


def test_duplicates_inside_a_part(tmp_path: Path) -> None:
    rows = [(LONG[0], "x"), (LONG[1], "y"), (LONG[0].upper(), "x"), (CHANGED, "y"), (LONG[0], "x"), (LONG[2], "x")]
    made = report([csv_file(tmp_path / "a.csv", rows)], examples=5)
    (part,) = made["parts"]
    assert part["exact_duplicates"] == 2  # rows 3 and 5 repeat row 1
    assert part["near_duplicates"] == 4  # those three and row 4
    assert part["contradictions"] == 4  # row 4 says y, its like say x
    assert made["leak"] is False
    assert made["across"] is None
    lines = [[document["line"] for document in example["documents"]] for example in part["examples"]]
    assert lines == [[2, 4], [2, 6], [2, 5]]
    assert [example["kind"] for example in part["examples"]] == ["exact", "exact", "near"]
    assert part["examples"][2]["documents"][1] == {
        "source": str(tmp_path / "a.csv"),
        "line": 5,
        "labels": ["y"],
        "text": CHANGED,
    }


def test_a_leak_is_a_test_document_in_the_training_part(tmp_path: Path) -> None:
    train = csv_file(tmp_path / "train.csv", [(LONG[0], "x"), (LONG[1], "y"), (LONG[2], "x")])
    test = csv_file(
        tmp_path / "test.csv", [(LONG[3], "x"), (CHANGED, "x"), (LONG[1], "x"), (LONG[1], "y"), (LONG[4], "y")]
    )
    made = report([train], [test])
    across = made["across"]
    assert made["leak"] is True
    assert {name: across[name] for name in ("exact", "near", "labelled", "unlabelled", "contradictions")} == {
        "exact": 2,
        "near": 1,
        "labelled": 3,
        "unlabelled": 0,
        "contradictions": 1,  # x in the test part, y in the training part
    }
    places = [[(Path(d["source"]).name, d["line"]) for d in example["documents"]] for example in across["examples"]]
    assert places == [
        [("train.csv", 3), ("test.csv", 4)],
        [("train.csv", 3), ("test.csv", 5)],
        [("train.csv", 2), ("test.csv", 3)],
    ]
    assert made["parts"][1]["exact_duplicates"] == 1
    assert made["parts"][1]["contradictions"] == 2


def test_clean_parts_do_not_leak(tmp_path: Path) -> None:
    train = csv_file(tmp_path / "train.csv", [(LONG[0], "x"), (LONG[0], "x"), (LONG[1], "y")])
    test = csv_file(tmp_path / "test.csv", [(LONG[2], "x"), (LONG[3], "y")])
    made = report([train], [test])
    assert made["leak"] is False
    assert made["across"] == {
        "exact": 0,
        "near": 0,
        "labelled": 0,
        "unlabelled": 0,
        "contradictions": 0,
        "examples": [],
    }


def test_unlabelled_overlap_leaks_unless_it_is_allowed(tmp_path: Path) -> None:
    texts = text_file(tmp_path / "texts.txt", [LONG[0], LONG[1], LONG[4]])
    test = csv_file(tmp_path / "test.csv", [(LONG[1], "x"), (CHANGED, "x"), (LONG[3], "y")])
    made = report([texts], [test])
    assert (made["across"]["labelled"], made["across"]["unlabelled"], made["leak"]) == (0, 2, True)
    assert report([texts], [test], allow_unlabelled=True)["leak"] is False
    # A labelled copy beside the unlabelled one is a leak whatever is allowed.
    train = csv_file(tmp_path / "train.csv", [(LONG[1], "x"), (LONG[2], "y")])
    made = report([texts, train], [test], allow_unlabelled=True)
    assert (made["across"]["labelled"], made["across"]["unlabelled"], made["leak"]) == (1, 1, True)


def test_the_order_of_several_labels_is_no_contradiction(tmp_path: Path) -> None:
    (part,) = report([csv_file(tmp_path / "a.csv", [(LONG[0], "x|y"), (LONG[0], "y|x"), (LONG[1], "x")])])["parts"]
    assert (part["exact_duplicates"], part["contradictions"]) == (1, 0)
    assert part["classes"] == {"x": 3, "y": 2}


def test_what_is_labelled(tmp_path: Path) -> None:
    options = ReadOptions()
    labelled = csv_file(tmp_path / "labelled.csv", [("a", "x")])
    bare = tmp_path / "bare.csv"
    bare.write_text("text,date\na,b\n", encoding="utf-8")
    classes = tmp_path / "classes"
    for name in ("pos", "neg"):
        (classes / name).mkdir(parents=True)
        (classes / name / "1.txt").write_text("a", encoding="utf-8")
    flat = tmp_path / "flat"
    flat.mkdir()
    (flat / "1.txt").write_text("a", encoding="utf-8")
    (tmp_path / "pair.review.spm").write_text("▁a\n", encoding="utf-8")
    (tmp_path / "pair.label").write_text("1\n", encoding="utf-8")
    (tmp_path / "alone.review.spm").write_text("▁a\n", encoding="utf-8")
    expected = {
        labelled: True,
        str(tmp_path / "lab*.csv"): True,
        str(bare): False,
        str(classes): True,
        str(flat): False,
        str(tmp_path / "pair.review.spm"): True,
        str(tmp_path / "pair.label"): True,
        str(tmp_path / "pair"): True,
        str(tmp_path / "alone.review.spm"): False,
        "-": False,
    }
    assert {given: detect_labels(given, options).labelled for given in expected} == expected
    assert detect_labels(str(bare), ReadOptions(label_column="date")).labelled
    with pytest.raises(UserError, match="no column 'mood'"):
        detect_labels(str(bare), ReadOptions(label_column="mood"))


def test_an_empty_label_is_counted_not_taken_for_no_label(tmp_path: Path) -> None:
    (part,) = report([csv_file(tmp_path / "a.csv", [(LONG[0], "x"), (LONG[1], ""), (LONG[2], "y")])])["parts"]
    assert (part["documents"], part["labelled"]) == (2, 2)
    assert part["skipped"] == {"empty label": 1}
