"""What to label next: uncertain texts, apart from each other, each once."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from rehead.cli import main
from rehead.runs.run import save
from rehead.runs.scoring import document_vectors
from rehead.text.records import Record
from rehead.use.labeller import Labeller
from rehead.use.uncertain import Candidate, MostUncertain, choose, select_diverse, uncertainty
from tests.use.tiny_classifier import some_texts, tiny_classifier


def test_doubt_is_how_close_the_two_likeliest_are() -> None:
    labeller = Labeller.of(tiny_classifier())
    given = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.6, 0.1, 0.3]])
    assert np.allclose(uncertainty(given, labeller), [1.0, 0.0, 0.7])


def test_thresholds_move_where_doubt_is() -> None:
    run = tiny_classifier()
    run.details["thresholds"] = [0.6, 0.3, 0.1]
    given = np.array([[0.6, 0.3, 0.1], [0.9, 0.1, 0.0]])  # by threshold: 1, 1, 1 and 1.5, 1/3, 0
    assert np.allclose(uncertainty(given, Labeller.of(run)), [1.0, 1 - (1.5 - 1 / 3) / (1.5 + 1 / 3)])


def test_of_several_labels_the_closest_to_its_threshold_counts() -> None:
    run = tiny_classifier(multilabel=True)
    given = np.array([[0.5, 0.0, 1.0], [0.2, 0.0, 1.0], [0.0, 0.0, 0.0]])
    assert np.allclose(uncertainty(given, Labeller.of(run)), [1.0, 0.4, 0.0])
    run.details["thresholds"] = [0.2, 0.5, 0.5]
    assert np.allclose(uncertainty(given, Labeller.of(run)), [0.625, 1.0, 0.0])


def record(text: str) -> Record:
    return Record(text, {"text": text}, "x.txt", 1)


def test_the_most_doubtful_are_kept_each_once() -> None:
    generator = np.random.default_rng(0)
    uncertainties = generator.random(300)
    texts = [f"text {place % 100}" for place in range(300)]  # each three times
    uncertainties[100:] = np.tile(uncertainties[:100], 2)
    kept = MostUncertain(20)
    for begin in range(0, 300, 70):
        some = slice(begin, begin + 70)
        kept.add([record(f" {text} \n") for text in texts[some]], np.zeros((len(texts[some]), 3)), uncertainties[some])
        assert len(kept.heap) <= 20
    best = sorted(range(100), key=lambda place: -uncertainties[place])[:20]
    assert [each.text for each in kept.found()] == [texts[place] for place in best]


def test_groups_of_texts_that_are_alike_give_one_each_first() -> None:
    generator = np.random.default_rng(0)
    middles = 10 * np.eye(5)
    vectors = np.concatenate([middle + 0.01 * generator.standard_normal((20, 5)) for middle in middles])
    chosen = select_diverse(vectors, np.ones(100), 5)
    assert sorted(place // 20 for place in chosen) == [0, 1, 2, 3, 4]
    assert sorted(select_diverse(vectors, np.ones(100), 1000)) == list(range(100))
    assert select_diverse(np.zeros((0, 5)), np.zeros(0), 3) == []


def test_the_most_doubtful_is_the_first() -> None:
    vectors = np.random.default_rng(0).standard_normal((30, 4))
    uncertainties = np.linspace(0, 1, 30)
    assert select_diverse(vectors, uncertainties, 3)[0] == 29


def spread(labeller: Labeller, texts: list[str]) -> float:
    """Mean distance of each text from the nearest other one, by the directions of their vectors."""
    vectors = document_vectors(labeller.run, texts)
    vectors = vectors - vectors.mean(0)
    directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    distances = 1 - directions @ directions.T + 9 * np.eye(len(texts))
    return float(distances.min(1).mean())


def test_picks_are_more_diverse_than_the_top_and_more_uncertain_than_chance() -> None:
    labeller = Labeller.of(tiny_classifier())
    texts = list(dict.fromkeys(some_texts(3_000)))
    shares = labeller.probabilities(texts)
    uncertainties = uncertainty(shares, labeller)
    kept = MostUncertain(500)
    kept.add([record(text) for text in texts], shares, uncertainties)
    found: list[Candidate] = kept.found()
    chosen = choose(found, labeller, 50)
    assert len({each.text for each in chosen}) == 50
    assert spread(labeller, [each.text for each in chosen]) > 1.5 * spread(labeller, [each.text for each in found[:50]])
    random = np.random.default_rng(0).permutation(len(texts))[:50]
    assert np.mean([each.uncertainty for each in chosen]) > uncertainties[random].mean() + 0.1


def test_the_command_gives_rows_with_all_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = str(save(tiny_classifier(), tmp_path / "clf"))
    texts = [*some_texts(200), "", *some_texts(200)]
    with Path("in.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerows([["id", "text"], *enumerate(texts)])
    command = ["predict", run, "in.csv", "--most-uncertain", "7", "--out", "o.csv", "--quiet"]
    assert main(command) == 0
    with Path("o.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert len({row["text"] for row in found}) == 7
    assert all(texts[int(row["id"])] == row["text"] for row in found)
    labeller = Labeller.open(run)
    expected = uncertainty(labeller.probabilities([row["text"] for row in found]), labeller)
    assert np.allclose([float(row["uncertainty"]) for row in found], expected, atol=1e-5)
    assert float(found[0]["uncertainty"]) == max(float(row["uncertainty"]) for row in found)
    assert main(command) == 2
    assert main([*command[:-3], "--resume"]) == 2
    assert main(["predict", run, "in.csv", "--most-uncertain", "0"]) == 2
    assert "--most-uncertain 0: must be 1 or more" in capsys.readouterr().err
    assert main([*command[:4], "1000", "--quiet"]) == 0  # more than there are
    assert len(list(csv.reader(capsys.readouterr().out.splitlines()))) == len({text for text in texts if text}) + 1
