"""The page: what it says, what it lets through, and how it stands in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rehead.compare.answer import answer
from rehead.compare.command import print_table
from rehead.compare.page import render
from rehead.compare.plots import PLACEHOLDERS, draw_plots
from rehead.compare.results import Method, Results
from tests.browser import Browser, browser
from tests.compare.made_results import MISCHIEF, made_results, paired, summary

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Reader(HTMLParser):
    """Check that what is opened is closed; collect tags, attributes and words."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture(scope="module")
def results() -> Results:
    return made_results()


@pytest.fixture(scope="module")
def page(results: Results) -> str:
    return render(results, draw_plots(results))


def test_the_answer_comes_first_and_in_plain_words(page: str) -> None:
    words = " ".join(Reader(page[page.index("<h1>") : page.index("</header>")]).words.split())
    assert words.startswith(
        "With 1,600 labels the pretrained model (default recipe) reaches 88.6 % test accuracy; from scratch 74.1 %; "
        "the best linear model (NB-SVM) 86.4 %. The pretrained model beats the linear model by 2.2 points (95 % "
        "interval 1.1 to 3.3); pretraining the same network gains 12.0 points over training it from scratch"
    )


def test_several_labels_have_exact_match_and_both_f1(capsys: pytest.CaptureFixture[str]) -> None:
    results = made_results()
    results.data.multilabel = True
    for number, score in enumerate(results.scores):
        score.micro_f1 = summary(0.4 + number / 1000)
    results.answer = answer(results)
    assert "88.6 % exact match" in results.answer[0]
    words = " ".join(Reader(render(results, {})).words.split())
    recipe = results.score("recipe")
    assert recipe is not None
    assert recipe.micro_f1 is not None
    for said in ("Exact match, F1 and cost", "micro-F1, %", "macro-F1, %", f"{100 * recipe.micro_f1.mean:.1f}"):
        assert said in words
    print_table(results)
    printed = capsys.readouterr().out
    for said in ("exact match", "micro-F1", "macro-F1", f"{100 * recipe.micro_f1.mean:.1f}"):
        assert said in printed


def test_macro_f1_is_beside_every_accuracy(results: Results) -> None:
    page = render(results, {})
    for score in results.scores:
        assert f"{100 * score.accuracy.mean:.1f} <small>{100 * score.macro_f1.mean:.1f}</small>" in page


@pytest.mark.parametrize(
    ("ahead", "said"),
    [
        (0.022, "The pretrained model beats the linear model by 2.2 points (95 % interval 1.1 to 3.3)"),
        (-0.031, "The linear model wins by 3.1 points (95 % interval 2.0 to 4.2): use it"),
        (0.004, "The pretrained model is ahead by 0.4 points, which is not significant on 2,000 test documents"),
        (-0.01, "The linear model is ahead by 1.0 point, which is not significant"),
        (0.0, "The pretrained model and the linear model are equally accurate"),
    ],
)
def test_it_says_plainly_who_wins(ahead: float, said: str) -> None:
    assert answer(made_results(ahead))[1].startswith(said)


def test_answers_of_smaller_comparisons() -> None:
    results = made_results()
    results.methods = [each for each in results.methods if each.kind in ("tfidf", "nbsvm")]
    results.paired = []
    assert answer(results) == ["With 1,600 labels the best linear model (NB-SVM) reaches 86.4 % test accuracy."]
    results = made_results()
    results.methods = [each for each in results.methods if each.kind in ("scratch", "tfidf")]
    results.paired = []
    assert answer(results) == [
        "With 1,600 labels a model from scratch reaches 74.1 % test accuracy; the best linear model (TF-IDF + logistic "
        "regression) 86.0 %."
    ]


def test_it_says_who_wins_with_fewer_labels() -> None:
    results = made_results()
    results.paired += [paired("tfidf", "recipe", -0.2, 3, labels=20), paired("nbsvm", "recipe", -0.1, 3, labels=100)]
    said = (
        "The pretrained model beats the linear model by 2.2 points (95 % interval 1.1 to 3.3); with 100 labels or fewer"
    )
    assert answer(results)[1].startswith(f"{said} the linear model wins; pretraining")
    results.paired[-2:-1] = []
    assert "; with 100 labels the linear model wins; " in answer(results)[1]
    results = made_results(ahead=-0.031)
    results.paired.append(paired("tfidf", "recipe", 0.1, 3, labels=20))
    assert "; with 20 labels or fewer the pretrained model wins; " in answer(results)[1]
    results.paired[-1] = paired("tfidf", "recipe", -0.1, 3, labels=20)
    assert "fewer" not in answer(results)[1]


def test_several_runs_are_named() -> None:
    results = made_results()
    for each in results.methods[:4]:
        each.name = "films"
    figures, verdict = answer(results)
    assert (
        "the pretrained model (default recipe, films) reaches 88.6 % test accuracy; from scratch (films) 74.1 %"
        in figures
    )
    assert "pretraining the same network (films) gains 12.0 points" in verdict


def test_pretraining_is_judged_by_the_run_of_the_headline() -> None:
    results = made_results()
    other = Method("pretrained:lab", "pretrained", "pretrained, fine-tuned (lab)", "", "runs/lab")
    results.methods.append(other)
    results.paired.insert(0, paired("scratch", other.key, -0.3, 3))
    assert "pretraining the same network gains 12.0 points" in answer(results)[1]
    results.paired[1] = paired("scratch", "pretrained", 0.001, 3)
    assert "pretraining makes no significant difference" in answer(results)[1]
    assert answer(results)[1].endswith("(p = 0.31).")


def test_text_out_of_the_data_is_only_ever_text(page: str) -> None:
    read = Reader(page)
    assert "script" not in read.tags
    assert "img" not in read.tags
    assert " ".join(MISCHIEF[:200].split()) in " ".join(read.words.split())


def test_names_are_escaped_everywhere() -> None:
    bad = "<b onclick=x>\"'&$9</b>"
    results = made_results(classes=(bad, "$a_b^c$"))
    for each in results.methods:
        each.title = each.name = bad
    results.answer = answer(results)
    results.data.labelled = results.run.command = bad
    read = Reader(render(results, draw_plots(results)))
    assert not [name for name, _ in read.attributes if name.startswith("on")]
    assert bad in read.words
    assert "$a_b^c$" in read.words


def test_nothing_is_fetched_from_anywhere(page: str) -> None:
    read = Reader(page)
    fetching = [value for name, value in read.attributes if name in ("src", "href", "xlink:href", "srcset", "action")]
    assert all(value is None or value.startswith(("#", "data:")) for value in fetching)
    assert not re.findall(r"@import|url\((?!#)", page)


def test_ids_are_unique_and_links_in_pictures_lead_somewhere(page: str) -> None:
    ids = [value for name, value in Reader(page).attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:xlink:href="#|url\(#)([^")]+)', page)) <= set(ids)


def test_colours_are_the_pages_own(page: str) -> None:
    assert not [name for name, colour in PLACEHOLDERS.items() if colour in page]
    svg = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert set(re.findall(r"#[0-9a-f]{6}\b", svg)) <= {"#000000"}  # clip paths and the like, which nobody sees
    assert {f"var(--{name})" for name in ("ink", "recipe", "scratch", "nbsvm")} <= set(re.findall(r"var\(--\w+\)", svg))


def test_a_page_without_pictures_or_with_few_things_is_whole() -> None:
    results = made_results(seeds=1)
    results.counts = results.counts[-1:]
    results.curves, results.reaches, results.confusions, results.reliabilities = [], [], [], []
    results.mistakes, results.paired, results.guards.controls = [], [], []
    for score in results.scores:
        score.accuracy = type(score.accuracy)(score.accuracy.mean, None, None, score.accuracy.over_documents)
    page = render(results, {})
    words = Reader(page).words
    assert "1 seed" in words
    assert "svg" not in Reader(page).tags


def test_failed_guards_are_not_hidden() -> None:
    results = made_results()
    results.guards.controls[0].recall = 0.81
    results.guards.leaks.dropped = 13
    words = Reader(render(results, {})).words
    assert "does NOT fall to chance: macro-averaged recall 81.0 %" in words.replace("\xa0", " ")
    assert "Do not trust this comparison." in words
    assert "13 labelled documents" in words


def test_what_was_not_controlled_is_named() -> None:
    results = made_results()
    words = Reader(render(results, {})).words
    assert "shuffled labels for: “from scratch”, “pretrained, fine-tuned”, “pretrained, frozen" in words
    results.guards.controls = []
    words = Reader(render(results, {})).words
    assert "The control with shuffled labels was not run." in words
    assert "shuffled labels for" not in words


def test_unlabelled_text_is_told() -> None:
    results = made_results()
    assert "unlabelled documents" not in Reader(render(results, {})).words
    results.guards.leaks.unlabelled = 0
    results.data.unlabelled = "reviews.txt (random sample of 10,000 of 20,875 documents)"
    words = Reader(render(results, {})).words
    assert "None of the unlabelled documents" in words
    assert "reviews.txt (random sample of 10,000 of 20,875 documents)." in words


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def saved(page: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_in_a_browser(window: Browser, saved: Path, width: int, dark: bool) -> None:
    window.resize(width, dark=dark, phone=width < 600)
    window.requests()
    window.open(saved.as_uri())
    assert window.requests() == [saved.as_uri()]
    assert window.complaints() == []
    assert window.run("return document.documentElement.scrollWidth") <= width
    seen: dict[str, Any] = window.run(
        """
        const light = colour => colour.match(/\\d+/g).slice(0, 3).reduce((sum, each) => sum + Number(each), 0) / 3;
        const of = (query, what) => getComputedStyle(document.querySelector(query))[what];
        const texts = [...document.querySelectorAll("svg text")];
        return {
          ground: light(of("body", "backgroundColor")),
          ink: light(of("body", "color")),
          picture: light(getComputedStyle(texts[0]).fill),
          smallest: Math.min(...texts.map(each => each.getBoundingClientRect().height)),
          outside: [...document.querySelectorAll("main > *, header > *, svg")]
            .filter(each => each.getBoundingClientRect().right > innerWidth + 1).length,
          columns: getComputedStyle(document.querySelector(".grid")).gridTemplateColumns.split(" ").length,
        };
        """
    )
    assert (seen["ground"] < 60, seen["ink"] > 180, seen["picture"] > 180) == (dark, dark, dark)
    assert round(seen["smallest"], 2) >= 9  # pixels: still to be read on a phone
    assert seen["outside"] == 0
    assert seen["columns"] == (1 if width < 600 else 2)
