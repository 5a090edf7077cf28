"""Render `report.html`: a self-contained page, made from `results.json` alone.

It has no scripts and no external resources (its content security policy forbids them), follows the system's light or
dark mode, and is readable on a phone: wide tables scroll in their own frame. All text from the data is escaped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from html import escape as escape_html
from pathlib import Path
from string import Template

from rehead.compare.answer import confidence_interval, p_value, percent, points, significant
from rehead.compare.plots import colour_of
from rehead.compare.results import Control, Method, Mistake, Reach, Results, Score
from rehead.compare.statistics import Interval, Summary
from rehead.disk import atomic_file, write_json
from rehead.errors import UserError
from rehead.progress import duration
from rehead.text.documents import location

Fill = Callable[[dict[str, str]], str]
"Makes a page, given its plots as SVG by name."

TEMPLATE = Path(__file__).with_name("report.html")
SHOWN_CHARACTERS = 420  # of a misclassified text


def escape(text: str) -> str:
    """Escape text for HTML, with a no-break space before %."""
    return escape_html(text).replace(" %", "&nbsp;%")


def write_page(
    page: Path, facts: Path, draw: Callable[[], dict[str, str]], fill: Fill, data: object, *, quiet: bool
) -> None:
    """Write a page with its plots, or without where matplotlib is missing; then the facts it is made of.

    These come last: their presence marks the output as complete.
    """
    plots: dict[str, str] = {}
    try:
        plots = draw()
    except UserError as error:
        if not quiet:
            print(f"note: {page.name} has no plots: {error}", file=sys.stderr)
    with atomic_file(page) as partial:
        partial.write_text(fill(plots), encoding="utf-8", errors="replace")
    with atomic_file(facts) as partial:
        write_json(partial, data)


def render(results: Results, plots: dict[str, str]) -> str:
    """Render the page. `plots` are SVG by name, as `plots.draw_plots` gives them, and may be empty."""
    sections = (
        _accuracy_bars(results),
        learning_curves(results, plots),
        _by_labels(results),
        _details(results),
        significance(results),
        _predictions(results, plots),
        _mistakes(results),
        _checks(results),
        _setup(results),
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
        foot="<code>results.json</code>, in the same directory, holds these figures and more.",
    )


def _accuracy_bars(results: Results) -> str:
    """Show the accuracy of each method on the largest training set, best first."""
    scores = sorted(_scores(results), key=lambda score: -score.accuracy.mean)
    rows = []
    for score in scores:
        method, mean = results.method(score.method), score.accuracy.mean
        interval = score.accuracy.over_documents
        line = "" if interval is None else _line(interval)
        rows.append(
            f"<dt>{dot(results, method)}{escape(method.title)}</dt>"
            f"<dd><b>{escape(percent(mean))}</b> {_range(interval)}</dd>"
            f'<div class="bar" aria-hidden="true"><i style="width: {100 * mean:.2f}%; '
            f'background: var(--{colour_of(results, method)})"></i>{line}</div>'
        )
    metric = "Exact match (all labels of a test document correct)" if results.data.multilabel else "Test accuracy"
    title = f"{metric} with {results.counts[-1]:,} training labels. In small type: 95 % confidence interval."
    return f'<section class="card"><h3>{title}</h3><dl class="bars">{"".join(rows)}</dl></section>'


def _line(interval: Interval) -> str:
    return f'<u style="left: {100 * interval.low:.2f}%; width: {100 * (interval.high - interval.low):.2f}%"></u>'


def learning_curves(results: Results, plots: dict[str, str], heading: str = "<h2>Learning curves</h2>") -> str:
    """Show accuracy by epoch and by labels, and say how soon the best of scratch is reached."""
    cards = []
    if "curves" in plots:
        seeds = f", mean of {results.seeds} seeds; the band is the range from minimum to maximum" * (results.seeds > 1)
        caption = f"Validation accuracy by epoch, with {results.counts[-1]:,} training labels{seeds}."
        cards.append(figure(plots["curves"], "Training from scratch and from the pretrained base", caption))
    if "labels" in plots:
        caption = "Test accuracy by number of training labels; the band is the 95 % interval over test documents."
        cards.append(figure(plots["labels"], "Learning curve", caption))
    sentences = "".join(f"<li>{escape(line)}</li>" for line in _time_to_scratch_best(results))
    sentences = f"<ul>{sentences}</ul>" if sentences else ""
    if not cards and not sentences:
        return ""
    return f'{heading}{sentences}<div class="grid">{"".join(cards)}</div>'


def _time_to_scratch_best(results: Results) -> list[str]:
    """Describe how soon each method reaches the best validation accuracy of scratch, on the largest training set."""
    found = [each for each in results.reaches if each.labels == results.counts[-1]]
    lines = []
    for reach in found:
        title = results.method(reach.method).title
        if results.method(reach.method).kind == "scratch":
            lines.append(
                f"{title[:1].upper() + title[1:]}: the best validation accuracy is {percent(reach.target)}, "
                f"after {_training_time(reach)}."
            )
        elif reach.reached == 0:
            lines.append(f"{title[:1].upper() + title[1:]}: never reaches the best accuracy of scratch.")
        else:
            seeds = "" if reach.reached == reach.seeds else f" (in {reach.reached} of {reach.seeds} seeds)"
            soon = "before its first step" if reach.epochs == 0 else f"after {_training_time(reach)}"
            lines.append(f"{title[:1].upper() + title[1:]}: reaches that accuracy {soon}{seeds}.")
    return lines


def _training_time(reach: Reach) -> str:
    epochs, seconds = reach.epochs or 0.0, reach.seconds or 0.0
    return f"{epochs:.1f} epochs, {duration(seconds)} of training"


def _by_labels(results: Results) -> str:
    """Tabulate accuracy by method and training set size."""
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
            cells.append(
                f"<td{mark}>{100 * score.accuracy.mean:.1f} <small>{100 * score.macro_f1.mean:.1f}</small></td>"
            )
        rows.append(f'<tr><th scope="row">{dot(results, method)}{escape(method.title)}</th>{"".join(cells)}</tr>')
    head = "".join(f'<th scope="col">{count:,}</th>' for count in results.counts)
    return table(
        f"{'Exact match' if results.data.multilabel else 'Accuracy'} by number of training labels",
        f'<tr><th scope="col">{_metric(results)} <small>macro-F1</small>, %</th>{head}</tr>',
        rows,
        "Training sets are nested: each contains the smaller ones. The best of each column is bold. In small type: "
        "macro-F1.",
    )


def _details(results: Results) -> str:
    rows = []
    multilabel = results.data.multilabel
    for method in results.methods:
        score = results.score(method.key)
        if score is None:
            continue
        cells = [
            f"{100 * score.accuracy.mean:.1f}{_spread(score.accuracy)}",
            _range(score.accuracy.over_seeds) or "–",
            _range(score.accuracy.over_documents) or "–",
            *(
                cell
                for summary in (score.micro_f1, score.macro_f1)
                if summary is not None
                for cell in (f"{100 * summary.mean:.1f}{_spread(summary)}", _range(summary.over_documents) or "–")
            ),
            f"{100 * score.calibration_error:.1f}",
            duration(score.train_seconds),
            f"{score.documents_per_second:,.0f}",
        ]
        cells = [f"<td>{cell}</td>" for cell in cells]
        rows.append(f'<tr><th scope="row">{dot(results, method)}{escape(method.title)}</th>{"".join(cells)}</tr>')
    names = (
        f"{results.counts[-1]:,} labels", f"{'exact match' if multilabel else 'accuracy'}, %", "95 %, seeds",
        "95 %, documents", *(("micro-F1, %", "95 %, documents") if multilabel else ()), "macro-F1, %",
        "95 %, documents", "calibration error", "training", "documents/s",
    )  # fmt: skip
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    return table(
        "Exact match, F1 and cost" if multilabel else "Accuracy, macro-F1 and cost",
        f"<tr>{head}</tr>",
        rows,
        "± is the standard deviation over seeds. 95 % confidence intervals: over seeds by Student's t, over test "
        "documents by bootstrap. Calibration error: expected calibration error (ECE), in percentage points. Training: "
        "mean time per seed, without pretraining. Documents/s: prediction, including tokenisation.",
    )


def significance(results: Results, heading: str = "<h2>Statistical significance</h2>") -> str:
    """List the paired tests."""
    lines: list[str] = []
    others: list[str] = []
    for pair in results.paired:
        first, second = results.method(pair.first).title, results.method(pair.second).title
        ahead, behind = (second, first) if pair.difference.mean > 0 else (first, second)
        verdict = '<span class="yes">significant</span>' if significant(pair) else "not significant"
        tests = ", ".join(f"{each.only_second}:{each.only_first} ({p_value(each.p)})" for each in pair.by_seed)
        (lines if pair.labels == results.counts[-1] else others).append(
            f"<li>With {pair.labels:,} labels, <b>{escape(ahead)}</b> is {points(pair.difference.mean)} ahead of "
            f"<b>{escape(behind)}</b> ({confidence_interval(pair)}; permutation test {p_value(pair.p)}): {verdict}. "
            f'<span class="note">McNemar\'s exact test by seed, with the number of documents classified correctly only '
            f"by {escape(second)} : only by {escape(first)}: {tests}.</span></li>"
        )
    more = f"<details><summary>With fewer labels</summary><ul>{''.join(others)}</ul></details>" if others else ""
    return f"{heading}<ul>{''.join(lines)}</ul>{more}" if lines else ""


def _predictions(results: Results, plots: dict[str, str]) -> str:
    cards = []
    for number, confusion in enumerate(results.confusions):
        if svg := plots.get(f"confusion-{number}"):
            method = results.method(confusion.method)
            caption = f"{method.title}, {confusion.labels:,} labels: true class (rows) by predicted class (columns)."
            cards.append(figure(svg, "Confusion matrix", caption))
    others = "".join(cards[1:])
    if others:
        others = f'<details><summary>Other methods</summary><div class="grid">{others}</div></details>'
    cards = cards[:1]
    if "reliability" in plots:
        caption = "Accuracy by predicted probability. A perfectly calibrated method lies on the dotted line."
        cards.append(figure(plots["reliability"], "Calibration", caption))
    return f'<h2>Predictions</h2><div class="grid">{"".join(cards)}</div>{others}' if cards else ""


def _mistakes(results: Results) -> str:
    if not results.mistakes or results.ours is None:
        return ""
    shown = "".join(map(_mistake, results.mistakes))
    caption = escape(
        f"The errors of “{results.ours.title}” with the highest predicted probability. Some may be labelling errors."
    )
    return f"<h2>Most confident errors</h2><p>{caption}</p>{shown}"


def _mistake(mistake: Mistake) -> str:
    text = mistake.text if len(mistake.text) <= SHOWN_CHARACTERS else mistake.text[: SHOWN_CHARACTERS - 1] + "…"
    linear = f"; the linear model predicts {mistake.baseline}" if mistake.baseline is not None else ""
    labels = f"predicted {mistake.answer} ({percent(mistake.confidence)}), label {mistake.truth}{linear}"
    return (
        f'<div class="mistake"><p><b>{escape(labels)}</b> <span class="note">'
        f"{escape(location(mistake.source, mistake.line))}</span></p><p>{escape(text)}</p></div>"
    )


def _checks(results: Results) -> str:
    leaks = results.guards.leaks
    lines = []
    if leaks.dropped:
        lines.append(
            f'<span class="no">{leaks.dropped:,} labelled documents</span> are exact or near duplicates of test '
            "documents. They were removed from training and validation set before training."
        )
    else:
        lines.append(
            f'<span class="yes">No leak:</span> none of {leaks.checked:,} labelled documents is an exact or near '
            "duplicate of a test document."
        )
    lines += [escape(each) for each in leaks.pretraining]
    if leaks.unlabelled:
        lines.append(
            f'<span class="no">{leaks.unlabelled:,} unlabelled documents</span> are exact or near duplicates of test '
            "documents. They were removed before self-training."
        )
    elif leaks.unlabelled is not None:
        lines.append("None of the unlabelled documents for self-training is in the test set.")
    if leaks.unseen_accuracy:
        rest = ", ".join(f"{results.method(key).title} {percent(v)}" for key, v in leaks.unseen_accuracy.items())
        lines.append(escape(f"Accuracy on the test documents that are in no pretraining text: {rest}."))
    lines += [_control(results, each) for each in results.guards.controls]
    controlled = {each.method for each in results.guards.controls}
    others = ", ".join(f"“{each.title}”" for each in results.methods if each.key not in controlled)
    if not controlled:
        lines.append("The control with shuffled labels was not run.")
    elif others:
        lines.append(escape(f"No control with shuffled labels for: {others}."))
    times = "once" if results.guards.opened == 1 else f"{results.guards.opened} times"
    lines.append(f"The test labels were read {times}, after the last model was trained.")
    return f"<h2>Validity checks</h2><ul>{''.join(f'<li>{line}</li>' for line in lines)}</ul>"


def _control(results: Results, control: Control) -> str:
    kind, verdict = ("yes", "falls to chance") if control.passed else ("no", "does NOT fall to chance")
    more = "." if control.passed else ": the test labels leak. Do not trust this comparison."
    return (
        f"Trained on {control.labels:,} shuffled labels, “{escape(results.method(control.method).title)}” "
        f'<span class="{kind}">{verdict}</span>: macro-averaged recall {escape(percent(control.recall))}, chance '
        f"{escape(percent(control.chance))} (limit {escape(percent(control.limit))}){more}"
    )


def _setup(results: Results) -> str:
    data, run = results.data, results.run
    methods = "".join(
        f"<li>{dot(results, each)}<b>{escape(each.title)}</b>: {escape(each.about)}{_size(each)}</li>"
        for each in results.methods
    )
    facts = [
        f"Training set: {data.labelled} ({data.sizes['train']:,} documents). Validation set: {data.valid} "
        f"({data.sizes['valid']:,}). Test set: {data.test} ({data.sizes['test']:,}, median {data.words:,} words).",
        *([f"Unlabelled text for self-training: {data.unlabelled}."] if data.unlabelled else []),
        "Classes of the test set: " + ", ".join(f"{name} {count:,}" for name, count in data.classes.items()) + ".",
        f"Run time: {duration(run.seconds)} on {run.cores} core{'s' * (run.cores != 1)}, with "
        + ", ".join(f"{name} {version}" for name, version in run.versions.items())
        + ".",
    ]
    listed = "".join(f"<li>{escape(fact)}</li>" for fact in (*run.runs, *facts))
    notes = _notes(_scores(results), results)
    return f"<h2>Setup</h2><ul>{methods}</ul><ul>{listed}</ul>{notes}<p>Command:</p><pre>{escape(run.command)}</pre>"


def _notes(scores: Iterable[Score], results: Results) -> str:
    rows = [
        f"<li>{escape(results.method(score.method).title)}: {escape(note)}</li>"
        for score in scores
        for note in score.notes
    ]
    if not rows:
        return ""
    return f"<details><summary>Notes of the methods</summary><ul>{''.join(rows)}</ul></details>"


def _metric(results: Results) -> str:
    return "exact match" if results.data.multilabel else "test accuracy"


def _scores(results: Results, labels: int | None = None) -> list[Score]:
    found = (results.score(each.key, labels) for each in results.methods)
    return [score for score in found if score is not None]


def _size(method: Method) -> str:
    return "" if method.parameters is None else f' <span class="note">{method.parameters:,} parameters.</span>'


def figure(svg: str, title: str, caption: str) -> str:
    """Make a card with a picture, its title and its caption."""
    return f'<figure class="card"><h3>{escape(title)}</h3>{svg}<figcaption>{escape(caption)}</figcaption></figure>'


def table(title: str, head: str, rows: Sequence[str], note: str) -> str:
    """Make a section with a table that scrolls in its own frame; without a title it has no heading."""
    body = f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"
    heading, name = f"<h2>{escape(title)}</h2>" if title else "", escape(title or "table")
    return (
        f'{heading}<div class="card wide" tabindex="0" role="region" aria-label="{name}">{body}</div>'
        f'<p class="note">{escape(note)}</p>'
    )


def dot(results: Results, method: Method) -> str:
    """Show the colour of a method."""
    return f'<span class="dot" style="background: var(--{colour_of(results, method)})" aria-hidden="true"></span>'


def _spread(summary: Summary) -> str:
    return "" if summary.spread is None else f" <small>± {100 * summary.spread:.1f}</small>"


def _range(interval: Interval | None) -> str:
    if interval is None:
        return ""
    # Student's t interval can exceed the range of 0 to 100 %.
    low, high = max(0.0, 100 * interval.low), min(100.0, 100 * interval.high)
    return f"<small>{low:.1f}–{high:.1f}</small>"
