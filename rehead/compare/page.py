"""`report.html`: one page that stands alone, made of `results.json` and nothing else.

No script, no outside resource (its own content policy forbids them), light or dark as the reader's system is, and
readable on a phone: wide tables scroll in their own frame. Every word that comes out of the data is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as escape_html
from pathlib import Path
from string import Template

from rehead.compare.answer import between, chance, percent, points, significant
from rehead.compare.results import Control, Method, Mistake, Reach, Results, Score
from rehead.compare.statistics import Interval, Summary
from rehead.progress import duration
from rehead.text.documents import location

TEMPLATE = Path(__file__).with_name("report.html")
SHOWN_CHARACTERS = 420  # of a text that was got wrong


def escape(text: str) -> str:
    """Make words safe to stand in a page, with a number and its sign kept on one line."""
    return escape_html(text).replace(" %", "&nbsp;%")


def render(results: Results, pictures: dict[str, str]) -> str:
    """Write the page. `pictures` are SVG by name, as `plots.pictures` draws them; a page without any is whole too."""
    sections = (
        _bars(results),
        _learning(results, pictures),
        _by_labels(results),
        _details(results),
        _pairs(results),
        _answers(results, pictures),
        _mistakes(results),
        _guards(results),
        _again(results),
    )
    verdict = " ".join(results.answer[1:])
    sizes = results.data.sizes
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=escape(f"rehead: {results.answer[0]}"),
        kicker=escape(
            f"rehead compare · {results.run.date} · {sizes['test']:,} test documents · "
            f"{results.seeds} seed{'s' * (results.seeds != 1)}"
        ),
        headline=escape(results.answer[0]),
        verdict=escape(verdict),
        body="\n".join(each for each in sections if each),
        foot="The same figures, and more of them, are in <code>results.json</code> beside this page.",
    )


def _bars(results: Results) -> str:
    """Show what each method reached with the most labels, the best first."""
    scores = sorted(_scores(results), key=lambda score: -score.accuracy.mean)
    rows = []
    for score in scores:
        method, mean = results.method(score.method), score.accuracy.mean
        interval = score.accuracy.over_documents
        line = "" if interval is None else _line(interval)
        rows.append(
            f"<dt>{_dot(method)}{escape(method.title)}</dt>"
            f"<dd><b>{escape(percent(mean))}</b> {_range(interval)}</dd>"
            f'<div class="bar" aria-hidden="true"><i style="width: {100 * mean:.2f}%; '
            f'background: var(--{method.kind})"></i>{line}</div>'
        )
    what = "all labels of a document right" if results.data.multilabel else "test documents labelled rightly"
    words = f"{what[:1].upper() + what[1:]}, with {results.counts[-1]:,} labels. In small: 95 % interval."
    return f'<section class="card"><h3>{words}</h3><dl class="bars">{"".join(rows)}</dl></section>'


def _line(interval: Interval) -> str:
    return f'<u style="left: {100 * interval.low:.2f}%; width: {100 * (interval.high - interval.low):.2f}%"></u>'


def _learning(results: Results, pictures: dict[str, str]) -> str:
    cards = []
    if "curves" in pictures:
        several = f", mean of {results.seeds} seeds; the band goes from the lowest to the highest" * (results.seeds > 1)
        words = f"Validation accuracy while training with {results.counts[-1]:,} labels{several}."
        cards.append(_figure(pictures["curves"], "From scratch and pretrained", words))
    if "labels" in pictures:
        words = "Test accuracy by number of labels; the band is the 95 % interval over test documents."
        cards.append(_figure(pictures["labels"], "What labels buy", words))
    told = "".join(f"<li>{escape(line)}</li>" for line in _reached(results))
    told = f"<ul>{told}</ul>" if told else ""
    if not cards and not told:
        return ""
    return f'<h2>Learning</h2>{told}<div class="grid">{"".join(cards)}</div>'


def _reached(results: Results) -> list[str]:
    """Say how soon scratch's best is reached, with the most labels."""
    found = [each for each in results.reaches if each.labels == results.counts[-1]]
    lines = []
    for reach in found:
        title = results.method(reach.method).title
        if results.method(reach.method).kind == "scratch":
            lines.append(
                f"{title[:1].upper() + title[1:]}, validation accuracy gets to {percent(reach.target)} at best, "
                f"after {_when(reach)}."
            )
        elif reach.reached == 0:
            lines.append(f"{title[:1].upper() + title[1:]} does not get to scratch's best in any seed.")
        else:
            some = "" if reach.reached == reach.seeds else f" (in {reach.reached} of {reach.seeds} seeds)"
            soon = "before its first step" if reach.epochs == 0 else f"after {_when(reach)}"
            lines.append(f"{title[:1].upper() + title[1:]} is there {soon}{some}.")
    return lines


def _when(reach: Reach) -> str:
    epochs, seconds = reach.epochs or 0.0, reach.seconds or 0.0
    return f"{epochs:.1f} epochs, {duration(seconds)} of training"


def _by_labels(results: Results) -> str:
    """Show accuracy by method and number of labels."""
    if len(results.counts) < 2:
        return ""
    best = {count: max((s.accuracy.mean for s in _scores(results, count)), default=0.0) for count in results.counts}
    rows = []
    for method in results.methods:
        cells = []
        for count in results.counts:
            score = results.score(method.key, count)
            if score is None:
                cells.append("<td>–</td>")
                continue
            mark = ' class="best"' if score.accuracy.mean == best[count] else ""
            cells.append(f"<td{mark}>{100 * score.accuracy.mean:.1f}</td>")
        rows.append(f'<tr><th scope="row">{_dot(method)}{escape(method.title)}</th>{"".join(cells)}</tr>')
    head = "".join(f'<th scope="col">{count:,}</th>' for count in results.counts)
    return _table(
        "Accuracy by number of labels",
        f'<tr><th scope="col">test accuracy, %</th>{head}</tr>',
        rows,
        "The larger numbers of labels contain the smaller ones. The best of each column is bold.",
    )


def _details(results: Results) -> str:
    rows = []
    for method in results.methods:
        score = results.score(method.key)
        if score is None:
            continue
        cells = [
            f"{100 * score.accuracy.mean:.1f}{_spread(score.accuracy)}",
            _range(score.accuracy.over_seeds) or "–",
            _range(score.accuracy.over_documents) or "–",
            f"{100 * score.macro_f1.mean:.1f}{_spread(score.macro_f1)}",
            _range(score.macro_f1.over_documents) or "–",
            f"{100 * score.calibration_error:.1f}",
            duration(score.train_seconds),
            f"{score.documents_per_second:,.0f}",
        ]
        cells = [f"<td>{cell}</td>" for cell in cells]
        rows.append(f'<tr><th scope="row">{_dot(method)}{escape(method.title)}</th>{"".join(cells)}</tr>')
    names = (
        f"{results.counts[-1]:,} labels", "accuracy, %", "95 %, seeds", "95 %, documents", "macro-F1, %",
        "95 %, documents", "calibration error", "training", "documents/s",
    )  # fmt: skip
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    return _table(
        "Accuracy, macro-F1 and cost",
        f"<tr>{head}</tr>",
        rows,
        "± is the standard deviation over the seeds. Intervals: over seeds by Student's t, over test documents by a "
        "bootstrap. Calibration error: by how many points confidence and accuracy differ. Training is the mean time "
        "for one seed, pretraining not included; documents per second is prediction, from text on.",
    )


def _pairs(results: Results) -> str:
    lines: list[str] = []
    others: list[str] = []
    for pair in results.paired:
        first, second = results.method(pair.first).title, results.method(pair.second).title
        ahead, behind = (second, first) if pair.difference.mean > 0 else (first, second)
        verdict = '<span class="yes">more than chance</span>' if significant(pair) else "may be chance"
        tests = ", ".join(f"{each.only_second}:{each.only_first} ({chance(each.p)})" for each in pair.by_seed)
        (lines if pair.labels == results.counts[-1] else others).append(
            f"<li>With {pair.labels:,} labels, <b>{escape(ahead)}</b> is {points(pair.difference.mean)} ahead of "
            f"<b>{escape(behind)}</b> ({between(pair)}; permutation test {chance(pair.p)}): {verdict}. "
            f'<span class="note">Documents that only {escape(second)}, and only {escape(first)}, got right, seed by '
            f"seed, with McNemar's exact test: {tests}.</span></li>"
        )
    more = f"<details><summary>With fewer labels</summary><ul>{''.join(others)}</ul></details>" if others else ""
    return f"<h2>Is it chance?</h2><ul>{''.join(lines)}</ul>{more}" if lines else ""


def _answers(results: Results, pictures: dict[str, str]) -> str:
    cards = []
    for number, confusion in enumerate(results.confusions):
        if svg := pictures.get(f"confusion-{number}"):
            method = results.method(confusion.method)
            words = f"{method.title}, {confusion.labels:,} labels: documents of each class, by the label that they got."
            cards.append(_figure(svg, "Who is taken for whom", words))
    others = "".join(cards[1:])
    if others:
        others = f'<details><summary>The same for other methods</summary><div class="grid">{others}</div></details>'
    cards = cards[:1]
    if "reliability" in pictures:
        words = "On the dotted line, a method is right as often as it says."
        cards.append(_figure(pictures["reliability"], "Can it be taken at its word?", words))
    return f'<h2>The answers</h2><div class="grid">{"".join(cards)}</div>{others}' if cards else ""


def _mistakes(results: Results) -> str:
    if not results.mistakes or results.ours is None:
        return ""
    shown = "".join(map(_mistake, results.mistakes))
    words = escape(
        f"What “{results.ours.title}” was most sure of, and got wrong. Some of these labels may be wrong themselves."
    )
    return f"<h2>The most confident errors</h2><p>{words}</p>{shown}"


def _mistake(mistake: Mistake) -> str:
    text = mistake.text if len(mistake.text) <= SHOWN_CHARACTERS else mistake.text[: SHOWN_CHARACTERS - 1] + "…"
    linear = f"; the linear model says {mistake.baseline}" if mistake.baseline is not None else ""
    said = f"says {mistake.answer} ({percent(mistake.confidence)}), is {mistake.truth}{linear}"
    return (
        f'<div class="mistake"><p><b>{escape(said)}</b> <span class="note">'
        f"{escape(location(mistake.source, mistake.line))}</span></p><p>{escape(text)}</p></div>"
    )


def _guards(results: Results) -> str:
    leaks = results.guards.leaks
    lines = []
    if leaks.dropped:
        lines.append(
            f'<span class="no">{leaks.dropped:,} labelled documents</span> are also in the test part, word for word or '
            "nearly. They were taken out of training and validation before anything was learnt."
        )
    else:
        lines.append(
            f'<span class="yes">No leak:</span> none of {leaks.checked:,} labelled documents is in the test part, word '
            "for word or nearly."
        )
    lines += [escape(each) for each in leaks.pretraining]
    if leaks.unlabelled:
        lines.append(
            f'<span class="no">{leaks.unlabelled:,} unlabelled documents</span> are also in the test part, word for '
            "word or nearly. They were taken out before the default recipe learnt from the unlabelled text."
        )
    elif leaks.unlabelled is not None:
        lines.append("None of the unlabelled documents for the default recipe is in the test part.")
    if leaks.unseen_accuracy:
        rest = ", ".join(f"{results.method(key).title} {percent(v)}" for key, v in leaks.unseen_accuracy.items())
        lines.append(escape(f"Accuracy on the test documents that are not in any pretraining text: {rest}."))
    lines += [_control(results, each) for each in results.guards.controls]
    taught = {each.method for each in results.guards.controls}
    others = ", ".join(f"“{each.title}”" for each in results.methods if each.key not in taught)
    if not taught:
        lines.append("The control with shuffled labels was not run.")
    elif others:
        lines.append(escape(f"Not taught with shuffled labels: {others}."))
    times = "once" if results.guards.opened == 1 else f"{results.guards.opened} times"
    lines.append(f"The answers of the test part were opened {times}, after the last model was trained.")
    return f"<h2>What keeps it honest</h2><ul>{''.join(f'<li>{line}</li>' for line in lines)}</ul>"


def _control(results: Results, control: Control) -> str:
    kind, verdict = ("yes", "falls to chance") if control.passed else ("no", "does NOT fall to chance")
    more = "." if control.passed else ": something tells it the answers. Do not trust this comparison."
    return (
        f"Taught with {control.labels:,} shuffled labels, “{escape(results.method(control.method).title)}” "
        f'<span class="{kind}">{verdict}</span>: it gets {escape(percent(control.recall))} of a class right (mean '
        f"over the classes), where knowing nothing gives {escape(percent(control.chance))} (limit "
        f"{escape(percent(control.limit))}){more}"
    )


def _again(results: Results) -> str:
    data, run = results.data, results.run
    methods = "".join(
        f"<li>{_dot(each)}<b>{escape(each.title)}</b>: {escape(each.about)}{_size(each)}</li>"
        for each in results.methods
    )
    facts = [
        f"Learnt from: {data.labelled} ({data.sizes['train']:,} documents). Validation: {data.valid} "
        f"({data.sizes['valid']:,}). Test: {data.test} ({data.sizes['test']:,}, median {data.words:,} words).",
        *([f"Unlabelled text for the default recipe: {data.unlabelled}."] if data.unlabelled else []),
        "Classes of the test part: " + ", ".join(f"{name} {count:,}" for name, count in data.classes.items()) + ".",
        f"Took {duration(run.seconds)} on {run.cores} core{'s' * (run.cores != 1)}, with "
        + ", ".join(f"{name} {version}" for name, version in run.versions.items())
        + ".",
    ]
    listed = "".join(f"<li>{escape(fact)}</li>" for fact in (*run.runs, *facts))
    notes = _notes(_scores(results), results)
    return (
        f"<h2>What was run</h2><ul>{methods}</ul><ul>{listed}</ul>{notes}"
        f"<p>To run it again:</p><pre>{escape(run.command)}</pre>"
    )


def _notes(scores: Iterable[Score], results: Results) -> str:
    rows = [
        f"<li>{escape(results.method(score.method).title)}: {escape(note)}</li>"
        for score in scores
        for note in score.notes
    ]
    if not rows:
        return ""
    return f"<details><summary>What the methods had to say</summary><ul>{''.join(rows)}</ul></details>"


def _scores(results: Results, labels: int | None = None) -> list[Score]:
    found = (results.score(each.key, labels) for each in results.methods)
    return [score for score in found if score is not None]


def _size(method: Method) -> str:
    return "" if method.parameters is None else f' <span class="note">{method.parameters:,} parameters.</span>'


def _figure(svg: str, title: str, words: str) -> str:
    return f'<figure class="card"><h3>{escape(title)}</h3>{svg}<figcaption>{escape(words)}</figcaption></figure>'


def _table(title: str, head: str, rows: Sequence[str], note: str) -> str:
    body = f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"
    return (
        f"<h2>{escape(title)}</h2>"
        f'<div class="card wide" tabindex="0" role="region" aria-label="{escape(title)}">{body}</div>'
        f'<p class="note">{escape(note)}</p>'
    )


def _dot(method: Method) -> str:
    return f'<span class="dot" style="background: var(--{method.kind})" aria-hidden="true"></span>'


def _spread(summary: Summary) -> str:
    return "" if summary.spread is None else f" <small>± {100 * summary.spread:.1f}</small>"


def _range(interval: Interval | None) -> str:
    if interval is None:
        return ""
    # Student's interval does not know that there is nothing above 100 %.
    low, high = max(0.0, 100 * interval.low), min(100.0, 100 * interval.high)
    return f"<small>{low:.1f}–{high:.1f}</small>"
