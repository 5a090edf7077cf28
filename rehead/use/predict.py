"""`rehead predict RUN FILE`: labels and probabilities for any number of texts, in input order.

Rows are read, tokenised and classified in groups; the next group is read while the current one is computed, so that two
groups are in memory. Group boundaries depend on the rows alone, so a resumed prediction computes the same groups: its
file is identical byte for byte.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rehead.errors import UserError
from rehead.options import CommonOptions, flag, positional, read_options
from rehead.terminal import printable, stdin
from rehead.text.documents import ReadOptions, describe_skipped
from rehead.training.resuming import report_stop
from rehead.use.predictions import Layout, Prediction, encoded, explanation_field, format_of_output
from rehead.use.unfinished import Unfinished, check_out

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rehead.text.records import Record, Records
    from rehead.use.explain import Explanation
    from rehead.use.labeller import Labeller
    from rehead.views.encoded import EncodedTexts

GROUP_TEXTS, GROUP_CHARACTERS = 1024, 1 << 19  # whichever comes first
PAGE = ".html"
EXPLANATION, UNCERTAINTY = "explanation", "uncertainty"  # columns
EMPTY_TEXT, NO_LABEL = "(empty text)", "(no label)"  # names in the summary
SHOWN = 12  # maximum number of labels in the summary


@dataclass(kw_only=True)
class PredictOptions(CommonOptions, ReadOptions):
    """Predict labels and probabilities for texts."""

    GROUP = "writes"
    MOST_USED = ("out", "format", "threshold", "explain", "text_column")

    run: Path = positional()
    "Classifier made by rehead finetune."

    file: str | None = positional(None)
    """Texts to classify: a txt, csv, tsv, jsonl or parquet file, also as .gz or .zst, or a folder; - is standard input
    (default: standard input)."""

    out: Path | None = flag(None, metavar="FILE")
    """Output file: .csv or .jsonl, also as .gz; with --explain also .html. It is moved into place when complete
    (default: standard output)."""

    format: Literal["csv", "jsonl"] | None = None
    """Output format, csv or jsonl (default: by the extension of --out; on standard output, jsonl for jsonl input,
    otherwise csv)."""

    spreadsheet: bool = False
    "csv for a spreadsheet: put an apostrophe in front of cells that it would take for a formula (=, +, -, @)."

    threshold: float | None = flag(None, metavar="P")
    "Minimum probability, 0 to 1: below it, a text gets --unsure instead of a label (default: always predict)."

    unsure: str = flag("unsure", metavar="WORD")
    "With --threshold: what to write in place of a label."

    explain: bool = False
    """Show which words contributed to the prediction: in colour on a terminal, as a .html page, or as a column of csv
    or jsonl (--format)."""

    explain_label: str | None = flag(None, metavar="NAME")
    "With --explain: show the words for and against this label (default: the predicted label)."

    most_uncertain: int | None = flag(None, metavar="N")
    """Active learning: output only the N texts most worth labelling, uncertain and diverse, best first (default: output
    all texts)."""

    skip_empty: bool = False
    "Omit rows with an empty text; otherwise they are kept, without label or probabilities."

    resume: bool = False
    "Continue an interrupted prediction: repeat its command with this flag."

    overwrite: bool = False
    "Replace an existing output file."

    # Options of labelled input, which do not apply.
    label_column: str | None = field(default=None, init=False)
    single_label: bool = field(default=False, init=False)


def predict(options: PredictOptions) -> int:
    """Run the command."""
    _check(options)
    from rehead.text.records import Records
    from rehead.training.stopping import Stopped
    from rehead.use.labeller import Labeller

    labeller = Labeller.open(options.run)
    if options.threshold is not None and options.unsure in labeller.names:
        raise UserError(f"{options.unsure!r} is the name of a class. Choose another word with --unsure.")
    if options.explain_label is not None and options.explain_label not in labeller.names:
        raise UserError(f"--explain-label {options.explain_label}: choose one of {', '.join(labeller.names)}.")
    reading = read_options(options, ReadOptions)
    records = Records(_input(options), reading)
    if options.out is not None and any(_same_file(options.out, each.path) for each in records.texts.files):
        raise UserError(f"--out {options.out} is the input file. Choose another name.")
    if not options.quiet and (kind := records.looks_like()):
        print(
            f"note: standard input is read as plain text, but its first line looks like {kind}. If it is, add "
            f"--input-format {kind}",
            file=sys.stderr,
        )
    shown = options.most_uncertain is None and options.format is None
    if options.explain and shown and (options.out is None or options.out.suffix.lower() == PAGE):
        return _show_explanations(labeller, records, options)
    format_, compressed = format_of_output(options.out, options.format, {each.format for each in records.texts.files})
    more = (*([UNCERTAINTY] if options.most_uncertain else []), *([EXPLANATION] if options.explain else []))
    if options.spreadsheet and format_ != "csv":
        raise UserError("--spreadsheet is for csv: jsonl has no formulas. Drop it, or add --format csv.")
    layout = Layout(format_, records.columns(), labeller.names, labeller.multilabel, more, options.spreadsheet)
    if options.most_uncertain is not None:
        counts = _most_uncertain(labeller, records, layout, options, compressed=compressed)
    elif options.out is None:
        counts = _to_standard_output(labeller, records, layout, options)
    else:
        settings = _settings(options, reading, layout)
        try:
            counts = _to_file(labeller, records, layout, options, settings, compressed=compressed)
        except Stopped as stop:
            return report_stop(stop)
    _summarise(options, records, counts, layout)
    return 0


@dataclass
class Group:
    """Consecutive rows, and the state of reading after them."""

    records: list[Record]
    end: int
    "Number of rows read so far, including these."
    digest: str
    "Digest of all rows read so far."
    bytes_read: int
    texts: EncodedTexts | None = None
    "The texts that are not empty, tokenised."


def predict_groups(
    labeller: Labeller, records: Records, done: Mapping[str, Any] | None = None, *, quiet: bool = False
) -> Iterator[tuple[Group, NDArray[np.float32]]]:
    """Yield each group of rows with the probabilities of its texts that are not empty, (n, K).

    `done` is the state of an interrupted prediction: rows to skip, and their digest.
    """
    from rehead.progress import progress
    from rehead.training.prefetch import prefetch
    from rehead.use.cores import one_core

    behind = 0 if done is None else int(done["rows"])
    waiting = _groups(records)

    def read(_: int) -> Group | None:
        group = next(waiting, None)
        if group is not None and group.end > behind:
            group.texts = labeller.encode([each.text for each in group.records if each.text])
        return group

    with (
        nullcontext() if labeller.run.model.reads_layers else one_core(),
        progress("predicting", records.texts.total_bytes, unit="B", quiet=quiet) as bar,
        prefetch(read, 0) as groups,
    ):
        for group in groups:
            if done is not None and (group is None or group.end >= behind):
                if group is None or group.end > behind or group.digest != done["digest"]:
                    raise UserError(
                        f"{records.texts.files[0].name}: its first {behind:,} rows differ from those read before the "
                        "interruption. Give the same file, or start again with --overwrite."
                    )
                done = None
            elif group is None:
                break
            elif group.texts is not None:
                yield group, labeller.probabilities_of(group.texts)
            bar.note = f"{group.end:,} texts"
            bar.update(group.bytes_read)


def _groups(records: Records) -> Iterator[Group]:
    """Cut rows into groups; the boundaries depend on the rows alone, so that a resumed prediction has the same."""
    digest = hashlib.sha256()
    group: list[Record] = []
    end = characters = 0
    for record in records:
        group.append(record)
        characters += len(record.text)
        digest.update(repr(record.columns).encode(errors="surrogatepass"))
        if len(group) >= GROUP_TEXTS or characters >= GROUP_CHARACTERS:
            end += len(group)
            yield Group(group, end, digest.hexdigest(), records.texts.bytes_read)
            group, characters = [], 0
    if group:
        yield Group(group, end + len(group), digest.hexdigest(), records.texts.bytes_read)


def make_predictions(
    group: Group,
    probabilities: NDArray[np.float32],
    labeller: Labeller,
    options: PredictOptions,
    layout: Layout | None = None,
) -> list[Prediction]:
    """Make the predictions of a group from its probabilities; `layout` formats explanations for the output file."""
    min_confidence = 0.0 if options.threshold is None else options.threshold
    known = zip(labeller.labels(probabilities, min_confidence), probabilities.tolist(), strict=True)
    texts = [each.text for each in group.records if each.text] if options.explain else []
    why = iter(_explanations(labeller, texts, options.explain_label))
    predictions = []
    for record in group.records:
        if not record.text:
            predictions.append(Prediction(None, None))
            continue
        labels, each = next(known)
        row = Prediction((options.unsure,) if labels is None else labels, each)
        if options.explain:
            reason = next(why)
            row.more[EXPLANATION] = reason if layout is None else explanation_field(reason, layout.format)
        predictions.append(row)
    return predictions


def _explanations(labeller: Labeller, texts: list[str], label: str | None) -> list[Explanation]:
    from rehead.use.explain import explain

    return explain(labeller, texts, label=label) if texts else []


def _show_explanations(labeller: Labeller, records: Records, options: PredictOptions) -> int:
    """Show explanations in colour on standard output, or write them as an HTML page."""
    from rehead.use.highlight import page, print_explanations

    if options.resume:
        raise UserError("--resume does not work with an .html page. Drop it, or write .jsonl with --explain.")
    counts: Counter[str] = Counter()

    def explanations() -> Iterator[Explanation]:
        for group, probabilities in predict_groups(labeller, records, quiet=options.quiet or options.out is None):
            predictions = make_predictions(group, probabilities, labeller, options)
            _count(counts, predictions)
            for each in predictions:
                if each.labels is not None:
                    why = each.more[EXPLANATION]
                    given = None if why.label in each.labels else "|".join(each.labels) or NO_LABEL
                    yield dataclasses.replace(why, given=given)

    if options.out is None:
        print_explanations(explanations())
    else:
        with Unfinished(options.out, None, overwrite=options.overwrite) as out:
            for piece in page(explanations()):
                out.append(encoded(piece, compressed=False))
            out.finish()
    _summarise(options, records, counts)
    return 0


def _most_uncertain(
    labeller: Labeller, records: Records, layout: Layout, options: PredictOptions, *, compressed: bool
) -> Counter[str]:
    """Read all texts, and write the rows to label next."""
    import numpy as np

    from rehead.use.uncertain import CANDIDATES, MostUncertain, choose, uncertainty

    if options.out is not None:
        check_out(options.out, overwrite=options.overwrite)  # before the computation
    wanted = options.most_uncertain or 0
    uncertain = MostUncertain(CANDIDATES * wanted)
    for group, probabilities in predict_groups(labeller, records, quiet=options.quiet):
        uncertain.add(
            [each for each in group.records if each.text], probabilities, uncertainty(probabilities, labeller)
        )
    chosen = choose(uncertain.found(), labeller, wanted)
    group = Group([each.record for each in chosen], len(chosen), "", 0)
    probabilities = np.array([each.probabilities for each in chosen], np.float32).reshape(
        len(chosen), len(labeller.names)
    )
    predictions = make_predictions(group, probabilities, labeller, options, layout)
    for each, row in zip(chosen, predictions, strict=True):
        row.more[UNCERTAINTY] = round(each.uncertainty, 6)
    rows = layout.header() + "".join(map(layout.row, group.records, predictions))
    if options.out is None:
        _put(rows)
    else:
        with Unfinished(options.out, None, overwrite=options.overwrite) as out:
            out.append(encoded(rows, compressed=compressed))
            out.finish()
    counts: Counter[str] = Counter()
    _count(counts, predictions)
    return counts


def _to_standard_output(labeller: Labeller, records: Records, layout: Layout, options: PredictOptions) -> Counter[str]:
    counts: Counter[str] = Counter()
    _put(layout.header())
    for group, probabilities in predict_groups(labeller, records, quiet=options.quiet):
        predictions = make_predictions(group, probabilities, labeller, options, layout)
        _put("".join(map(layout.row, group.records, predictions)))
        _count(counts, predictions)
    return counts


def _put(text: str) -> None:
    """Write rows to standard output in UTF-8, whatever the encoding of the terminal, which no text may control."""
    sys.stdout.flush()
    text = printable(text, keep="\n\t") if sys.stdout.isatty() else text
    sys.stdout.buffer.write(encoded(text, compressed=False))
    sys.stdout.buffer.flush()


def _to_file(
    labeller: Labeller,
    records: Records,
    layout: Layout,
    options: PredictOptions,
    settings: dict[str, Any],
    *,
    compressed: bool,
) -> Counter[str]:
    """Write the output file, or resume it; a signal stops between groups, so that it can be resumed."""
    from rehead.training.stopping import Stopped, stop_signals

    assert options.out is not None  # noqa: S101 (for the type checker)
    begun = Unfinished(options.out, settings, resume=options.resume, overwrite=options.overwrite)
    with stop_signals() as told, begun as out:
        counts = Counter(out.state["counts"] if out.state else {})
        before = "" if out.size else layout.header()
        for group, probabilities in predict_groups(labeller, records, out.state, quiet=options.quiet):
            predictions = make_predictions(group, probabilities, labeller, options, layout)
            _count(counts, predictions)
            rows = before + "".join(map(layout.row, group.records, predictions))
            before = ""
            state = {"rows": group.end, "digest": group.digest, "counts": dict(counts)}
            out.append(encoded(rows, compressed=compressed), state)
            if told:
                out.save()
                raise Stopped(told[0])
        out.append(encoded(before, compressed=compressed))  # if there was no row
        out.finish()
    return counts


def _count(counts: Counter[str], predictions: list[Prediction]) -> None:
    for each in predictions:
        if each.probabilities is None:
            counts[EMPTY_TEXT] += 1
        else:
            counts.update(each.labels or (NO_LABEL,))


def _check(options: PredictOptions) -> None:
    """Refuse values out of range and contradicting options before anything is loaded."""
    if options.threshold is not None and not 0 <= options.threshold <= 1:
        raise UserError(f"--threshold {options.threshold:g}: must be between 0 and 1.")
    if options.out is not None and options.out.suffix.lower() == PAGE and not options.explain:
        raise UserError(
            f"--out {options.out}: an .html page shows explanations. Add --explain, or write .csv or .jsonl."
        )
    if options.explain_label is not None and not options.explain:
        raise UserError("--explain-label has no effect alone. Add --explain.")
    if options.resume and options.overwrite:
        raise UserError("--resume continues a file and --overwrite deletes it. Give one.")
    if options.most_uncertain is not None and options.most_uncertain < 1:
        raise UserError(f"--most-uncertain {options.most_uncertain}: must be 1 or more.")
    if options.most_uncertain is not None and options.resume:
        raise UserError(
            "--resume does not work with --most-uncertain, which writes its file only once all texts are read. Drop it."
        )
    if options.resume and options.out is None:
        raise UserError("--resume continues a file. Name it with --out.")


def _input(options: PredictOptions) -> str:
    if options.file is not None:
        return options.file
    if stdin().isatty():
        raise UserError("no input: name a file, or pipe text in.")
    return "-"


def _settings(options: PredictOptions, reading: ReadOptions, layout: Layout) -> dict[str, Any]:
    """Collect everything but the input that determines the output, by flag: a resumed prediction must have the same."""
    import rehead
    from rehead.disk import sha256

    given = {**dataclasses.asdict(reading), "threshold": options.threshold, "unsure": options.unsure}
    given |= {"explain": options.explain, "explain_label": options.explain_label, "spreadsheet": options.spreadsheet}
    flags = {f"--{name.replace('_', '-')}": value for name, value in given.items()}
    run = sha256(options.run / "config.json")
    return {
        "run": run,
        **flags,
        "format": layout.format,
        "columns": layout.own,
        "version of rehead": rehead.__version__,
    }


def _same_file(one: Path, other: Path) -> bool:
    return one.exists() and one.samefile(other)


def _summarise(options: PredictOptions, records: Records, counts: Counter[str], layout: Layout | None = None) -> None:
    """Print the label counts: on standard output, or on standard error if that holds the rows (and is no terminal)."""
    summary = ", ".join(f"{name} {count:,}" for name, count in counts.most_common(SHOWN))
    more = f" and {len(counts) - SHOWN} more" if len(counts) > SHOWN else ""
    if options.out is not None:
        print(f"{options.out}: {summary or 'no text'}{more}")
    if options.quiet:
        return
    if options.out is None and (layout is None or not sys.stdout.isatty()):
        print(f"{summary or 'no text'}{more}", file=sys.stderr)
    if layout is not None and (renamed := layout.renamed()):
        what = ", ".join(f"{name} is {used}" for name, used in renamed.items())
        print(
            f"note: output columns are renamed, since the input has columns of these names: {what}",
            file=sys.stderr,
        )
    if skipped := describe_skipped(records.skipped):
        print(f"skipped: {skipped}", file=sys.stderr)
