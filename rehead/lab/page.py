"""Render `lab.html`: a self-contained page with the five questions, made from `lab.json` alone.

It uses the page of a comparison: no scripts, no external resources, light and dark mode, a phone, and print.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import Template

from rehead.compare.answer import percent
from rehead.compare.page import TEMPLATE, dot, escape, figure, learning_curves, significance, table
from rehead.lab.facts import Attention, Causality, LabFacts, Pretraining, Snapshot
from rehead.lab.grids import grid
from rehead.lab.plots import method_of
from rehead.lab.sentences import (
    mask_and_positions,
    new_head,
    objectives,
    of_filled,
    parameters,
    scratch_against_pretrained,
    what_it_can_do,
)
from rehead.progress import duration

MASK_SHOWN = 10  # positions in the picture of the square mask
MOMENTS = ("before the first step", "in the middle", "at the end")


def render(facts: LabFacts, plots: dict[str, str]) -> str:
    """Render the page. `plots` are SVG by name, as `plots.draw_plots` gives them, and may be empty."""
    results = facts.comparison
    sections = (
        _question(1, "What may a token see, and how does it know its place?", mask_and_positions(facts)),
        _mask(facts.causality),
        _question(2, "What does replacing the head change?", new_head(facts)),
        _head(facts),
        _question(3, "Where is every parameter?", parameters(facts)),
        _counting(facts),
        _question(4, "What does pretraining buy?", scratch_against_pretrained(facts)),
        _transfer(facts, plots),
        _question(5, "Does it matter what was learnt first?", objectives(facts)),
        _objectives(facts, plots),
        _samples(facts),
        *(_attention(facts, each) for each in facts.attention),
        _setup(facts),
    )
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title="rehead: the lab",
        kicker=escape(
            f"rehead lab · {results.run.date} · {facts.shape} · {duration(facts.seconds)} on {results.run.cores} "
            f"core{'s' * (results.run.cores != 1)}"
        ),
        headline="A Transformer learns a language, gets a new head, and is compared with one that did not",
        verdict=escape(scratch_against_pretrained(facts)),
        body="\n".join(each for each in sections if each),
        foot="Everything here was computed in this run. <code>lab.json</code>, in the same directory, has the figures, "
        "and <code>report/report.html</code> the comparison in full.",
    )


def _question(number: int, title: str, answer: str) -> str:
    return f'<h2 id="q{number}">{number}. {escape(title)}</h2><p>{escape(answer)}</p>'


def _mask(found: Causality) -> str:
    hidden = [[float(key > query) for key in range(MASK_SHOWN)] for query in range(MASK_SHOWN)]
    words = [["−∞" if value else "0" for value in row] for row in hidden]
    numbers = [str(each) for each in range(MASK_SHOWN)]
    mask = grid(
        [[0.55 * value for value in row] for row in hidden],
        colour="scratch", rows=numbers, columns=numbers, texts=words, cell=20, label="The square mask",
    )  # fmt: skip
    moved = grid(
        [[0.85 * value for value in row] for row in found.moved],
        colour="pretrained", rows=found.tokens, columns=found.tokens, cell=18, label="Outputs that changed tokens move",
    )  # fmt: skip
    positions = grid(
        found.positions, colour="pretrained", negative="recipe", cell=6, label="Values of the positional encoding"
    )
    return (
        '<div class="grid">'
        + figure(
            mask,
            "The square mask",
            "Row: the position that looks. Column: the position it looks at. −∞ is added to the score of what it may "
            "not see, 0 to the others.",
        )
        + figure(
            moved,
            "What a changed token moves",
            "Computed with the pretrained model: every token (row) was replaced in turn; a cell is filled where the "
            "output at that position (column) changed.",
        )
        + figure(
            positions,
            "The positions",
            f"Row: positions 0, {found.every}, {2 * found.every} and so on. Column: {len(found.columns)} of the values "
            "of the encoding; orange above zero, blue below.",
        )
        + "</div>"
    )


def _head(facts: LabFacts) -> str:
    found = facts.head
    rows = [
        f'<tr><th scope="row">{what}</th><td>{escape(each.name)}</td><td>{"×".join(map(str, each.shape))}</td>'
        f"<td>{each.count:,}</td></tr>"
        for what, some in (("dropped", found.dropped), ("added", found.added))
        for each in some
    ]
    rows.append(
        f'<tr><th scope="row">kept</th><td>{found.kept_tensors} tensors of the base</td><td></td>'
        f"<td>{found.kept_parameters:,}</td></tr>"
    )
    same = (
        '<span class="yes">equal</span>'
        if found.digest_before == found.digest_after
        else '<span class="no">not equal</span>'
    )
    note = (
        f"SHA-256 of the {found.kept_bytes:,} bytes of the base: {found.digest_before[:16]}… before, "
        f"{found.digest_after[:16]}… after."
    )
    head = "".join(f'<th scope="col">{each}</th>' for each in ("", "tensor", "shape", "parameters"))
    return table("", f"<tr>{head}</tr>", rows, note) + f"<p>The two digests are {same}.</p>"


def _counting(facts: LabFacts) -> str:
    found = facts.counting
    rows = []
    for each in found.parts:
        name = f"<b>{escape(each.part)}</b>" if each.level == "total" else escape(each.part)
        cells = [escape(each.formula), escape(each.numbers), f"{each.count:,}"]
        rows.append(f'<tr><th scope="row">{name}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>')
    head = "".join(f'<th scope="col">{each}</th>' for each in ("part", "formula", "numbers", "parameters"))
    parts = table(
        "", f"<tr>{head}</tr>", rows,
        "Counted by formula from the configuration, and compared with the live modules tensor by tensor.",
    )  # fmt: skip
    rows = [
        f'<tr><th scope="row">{escape(each.mistake)}</th><td>{_signed(each.off_by)}</td>'
        f"<td>{100 * abs(each.off_by) / _whole(facts, each.of):.1f} %</td><td>{escape(each.arithmetic)}</td></tr>"
        for each in found.mistakes
    ]
    head = "".join(f'<th scope="col">{each}</th>' for each in ("mistake", "off by", "of the model", "the arithmetic"))
    note = "For this run's shape. The language-model head in the classifier is relative to the classifier."
    return (
        parts
        + "<details open><summary>The usual mistakes</summary>"
        + table("", f"<tr>{head}</tr>", rows, note)
        + "</details>"
    )


def _whole(facts: LabFacts, model: str) -> int:
    return facts.counting.classifier if model == "classifier" else facts.counting.language_model


def _signed(number: int) -> str:
    return f"{'−' if number < 0 else '+'}{abs(number):,}"


def _transfer(facts: LabFacts, plots: dict[str, str]) -> str:
    results = facts.comparison
    rows = []
    for count in results.counts:
        cells = []
        for method in results.methods:
            score = results.score(method.key, count)
            if score is None:
                cells.append("<td>–</td>")
                continue
            spread = "" if score.accuracy.spread is None else f" <small>± {100 * score.accuracy.spread:.1f}</small>"
            cells.append(f"<td>{100 * score.accuracy.mean:.1f}{spread}</td>")
        rows.append(f'<tr><th scope="row">{count:,} labels</th>{"".join(cells)}</tr>')
    head = "".join(
        f'<th scope="col">{dot(results, each)}{escape(each.name or each.title)}</th>' for each in results.methods
    )
    note = (
        f"Accuracy in per cent on {results.data.sizes['test']:,} other texts; ± is the standard deviation over seeds. "
        "The head reads the mean of the hidden states. Every network was trained in the same way, but for two things: "
        "on pretrained layers the head starts as the best linear classifier on what they give, and they move slowly; "
        "random layers have to move fast, under a random head."
    )
    return (
        learning_curves(results, plots, heading="")
        + table("", f'<tr><th scope="col"></th>{head}</tr>', rows, note)
        + f"<details><summary>All paired tests</summary>{significance(results, heading='')}</details>"
    )


def _objectives(facts: LabFacts, plots: dict[str, str]) -> str:
    results = facts.comparison
    rows = []
    for each in facts.pretraining:
        method = method_of(facts, each.name)
        score = None if method is None else results.score(method.key)
        mark = "" if method is None else dot(results, method)
        accuracy = "–" if score is None else f"{100 * score.accuracy.mean:.1f}"
        cells = [
            f"{each.tokens:,}",
            f"{each.tokens / max(each.seconds, 1e-9):,.0f}",
            "–" if "loss" not in each.held_out else f"{each.held_out['loss']:.3f}",
            "–" if "accuracy" not in each.held_out else percent(each.held_out["accuracy"]),
            accuracy,
            escape(each.objective),
        ]
        rows.append(
            f'<tr><th scope="row">{mark}{escape(each.name)}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
        )
    names = ("", "tokens", "tokens/s", "held-out loss", "right", "fine-tuned, %", "objective")
    head = "".join(f'<th scope="col">{each}</th>' for each in names)
    note = (
        "All had the same time, of which bag warms up the embeddings. Losses of different objectives cannot be "
        "compared: a masked word has neighbours on both sides."
    )
    curves = ""
    if "pretraining" in plots:
        curves = figure(plots["pretraining"], "Pretraining", "Right predictions on held-out text by tokens read.")
        curves = f'<div class="grid">{curves}</div>'
    return table("", f"<tr>{head}</tr>", rows, note) + curves


def _samples(facts: LabFacts) -> str:
    cards = [_sample(facts, each) for each in facts.pretraining]
    asked = f"Asked to continue “{facts.prompt}”, and to fill in “{facts.masked_sentence}”."
    return f"<h3>What each can do</h3><p>{escape(asked)}</p>{''.join(cards)}"


def _sample(facts: LabFacts, run: Pretraining) -> str:
    items = []
    for place, each in enumerate(run.snapshots):
        items.append(f"<li><b>{_moment(place, len(run.snapshots), each)}</b> {_done(facts, each)}</li>")
    said = escape(what_it_can_do(run))
    title = f'<h3>{escape(run.name)}</h3><p class="note">{said}</p>'
    return f'<section class="card">{title}<ul>{"".join(items)}</ul></section>'


def _moment(place: int, total: int, at: Snapshot) -> str:
    name = MOMENTS[0] if not at.tokens else MOMENTS[2] if place == total - 1 else MOMENTS[1]
    return escape(f"{name}, {at.tokens:,} tokens:")


def _done(facts: LabFacts, at: Snapshot) -> str:
    parts = []
    if at.written is not None:
        parts.append(f"{escape(facts.prompt)} <i>{escape(at.written)}</i>")
    if at.filled is not None:
        words = " · ".join("/".join(each) for each in at.filled)
        parts.append(
            f"fills in <i>{escape(words)}</i> "
            f'<span class="note">(gave {escape(of_filled(at, facts.masked_words))})</span>'
        )
    return "; ".join(parts)


def _attention(facts: LabFacts, found: Attention) -> str:
    highest = max((value for layer in found.layers for head in layer for row in head for value in row), default=1.0)
    cells = []
    for layer, heads in enumerate(found.layers, 1):
        for head, weights in enumerate(heads, 1):
            picture = grid(
                [[value / highest for value in row] for row in weights],
                colour="recipe", rows=found.tokens, columns=found.tokens, cell=12,
                label=f"Attention of layer {layer}, head {head}",
            )  # fmt: skip
            cells.append(f"<figure><h3>layer {layer}, head {head}</h3>{picture}</figure>")
    how = "each token attends to itself and to earlier ones" if found.causal else "each token attends to all"
    title = f"Attention of the model pretrained by {found.run}"
    note = (
        f"On “{facts.sentence}”. Row: the token that looks; column: the token it looks at. The fuller the colour, the "
        f"more weight; {how}."
    )
    return f'<h3>{escape(title)}</h3><p class="note">{escape(note)}</p><div class="card grid">{"".join(cells)}</div>'


def _setup(facts: LabFacts) -> str:
    data = facts.comparison.data
    lines: Sequence[str] = (
        f"Pretrained on text of {', '.join(each.name for each in facts.pretraining)}: the preset lab, {facts.shape}.",
        f"Labelled texts: {data.labelled} ({data.sizes['train']:,} to train, {data.sizes['valid']:,} to choose the "
        f"best epoch, {data.sizes['test']:,} to measure on).",
        f"Asked for {facts.minutes:g} minutes; it took {duration(facts.seconds)}.",
        *(
            [f"For want of time: {'; '.join(facts.notes)}. Give more --minutes to have all of it."]
            if facts.notes
            else []
        ),
    )
    listed = "".join(f"<li>{escape(each)}</li>" for each in lines)
    return f"<h2>How it was done</h2><ul>{listed}</ul><p>Command:</p><pre>{escape(facts.command)}</pre>"
