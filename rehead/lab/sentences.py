"""What was seen in this run, in words: two sentences for each question, made from the numbers.

Where the textbook's expectation did not come out, the sentence says so.
"""

from __future__ import annotations

from rehead.compare.answer import confidence_interval, p_value, percent, points, significant
from rehead.compare.results import Paired, Reach
from rehead.lab.facts import LabFacts, Pretraining, Snapshot
from rehead.lab.plots import method_of
from rehead.progress import duration

SAME = 1e-4  # outputs that differ by less are the same: rounding of float32


def summarise(facts: LabFacts) -> list[str]:
    """Say what came out, in a line for each question."""
    sections = (mask_and_positions, new_head, parameters, scratch_against_pretrained, objectives)
    return [f"{number}. {make(facts)}" for number, make in enumerate(sections, 1)]


def mask_and_positions(facts: LabFacts) -> str:
    """Question 1."""
    found = facts.causality
    tokens, place = found.tokens, found.changed
    leaks = sum(moved for changed, row in enumerate(found.moved) for moved in row[:changed])
    moved = sum(found.moved[place])
    later = len(tokens) - place
    first = (
        f"Under the square mask, changing token {place + 1} (“{tokens[place]}” to “{found.replacement}”) moved "
        f"{moved} of {len(tokens)} outputs, none of them before it"
    )
    if leaks:
        first = (
            f"In this run the mask leaked, which it must never do: {leaks} outputs moved when a later token was changed"
        )
    elif moved < later:
        first += f", although {later} may see it"
    first += f"; without the mask, {found.moved_without_mask} moved."
    same = found.shuffled < SAME
    second = (
        f"Without positions, shuffling the tokens shuffled the outputs and changed nothing else (largest difference "
        f"{found.shuffled:.1g}); with them, outputs changed by up to {found.shuffled_with_positions:.2f}."
        if same and found.shuffled_with_positions > SAME
        else "The textbook expects that order counts only through the positions. In this run it did not come out: "
        f"shuffling changed outputs by {found.shuffled:.1g} without positions, and by "
        f"{found.shuffled_with_positions:.1g} with them."
    )
    return f"{first} {second}"


def new_head(facts: LabFacts) -> str:
    """Question 2."""
    found = facts.head
    gone, come = (sum(each.count for each in some) for some in (found.dropped, found.added))
    first = f"Replacing the head dropped {gone:,} parameters and added {come:,}, at random."
    if found.changed_bytes == 0 and found.digest_before == found.digest_after:
        return (
            f"{first} All {found.kept_bytes:,} bytes of the {found.kept_parameters:,} parameters of the base are the "
            "same as before."
        )
    return (
        f"{first} The base should be untouched, but {found.changed_bytes:,} of its {found.kept_bytes:,} bytes differ."
    )


def parameters(facts: LabFacts) -> str:
    """Question 3."""
    found = facts.counting
    vocabulary = sum(
        each.count for each in found.parts if each.part in ("embedding", "language-model head") and each.level == "part"
    )
    worst = max(found.mistakes, key=lambda each: abs(each.off_by))
    return (
        f"The language model has {found.language_model:,} parameters and the classifier {found.classifier:,}, by "
        f"formula and in the live modules; {percent(vocabulary / found.language_model, 0)} of the language model is "
        f"vocabulary. The mistake that costs most here is off by {abs(worst.off_by):,}: “{_lower(worst.mistake)}”."
    )


def scratch_against_pretrained(facts: LabFacts) -> str:
    """Question 4."""
    results = facts.comparison
    method = method_of(facts, facts.pretraining[0].name)
    if method is None or (pair := _pair(facts, "scratch", method.key)) is None:
        return "Scratch and pretrained were not both trained in this run. There is nothing to compare."
    ahead = results.score(method.key)
    behind = results.score(pair.first)
    assert ahead is not None  # noqa: S101 (a pair has both)
    assert behind is not None  # noqa: S101
    test = f"{confidence_interval(pair)}, permutation test {p_value(pair.p)}"
    accuracies = (
        f"With {pair.labels:,} labels the pretrained model reached {percent(ahead.accuracy.mean)} and the same network "
        f"from random weights {percent(behind.accuracy.mean)}"
    )
    if significant(pair) and pair.difference.mean > 0:
        first = f"{accuracies}: {points(pair.difference.mean)} more ({test})."
    elif significant(pair):
        first = (
            f"The textbook expects pretraining to help, and in this run it did harm. {accuracies}: "
            f"{points(pair.difference.mean)} less ({test})."
        )
    else:
        first = (
            f"The textbook expects pretraining to help; in this run that did not come out. {accuracies}: the "
            f"difference may be chance ({test})."
        )
    return f"{first} {_reached(results.reaches, pair)}"


def _reached(reaches: list[Reach], pair: Paired) -> str:
    found = {each.method: each for each in reaches if each.labels == pair.labels}
    ours, theirs = found.get(pair.second), found.get(pair.first)
    if ours is None or theirs is None:
        return ""
    best = f"The best validation accuracy from scratch, {percent(theirs.target)} after {_effort(theirs)},"
    if ours.reached == 0:
        return f"{best} was never reached by the pretrained model."
    seeds = "" if ours.reached == ours.seeds else f" in {ours.reached} of {ours.seeds} seeds"
    if ours.epochs == 0:
        return f"{best} was reached by the pretrained model{seeds} before its first step."
    sooner = (ours.seconds or 0) < (theirs.seconds or 0)
    return f"{best} was reached by the pretrained model{seeds} after {_effort(ours)}{'' if sooner else ', no sooner'}."


def _effort(reach: Reach) -> str:
    return f"{reach.epochs or 0:.1f} epochs ({duration(reach.seconds or 0)})"


def objectives(facts: LabFacts) -> str:
    """Question 5."""
    results = facts.comparison
    scored = []
    for each in facts.pretraining:
        method = method_of(facts, each.name)
        score = None if method is None else results.score(method.key)
        if method is not None and score is not None:
            scored.append((score.accuracy.mean, each.name, method.key))
    if len(scored) < 2:
        return "Objectives were not compared in this run. There is nothing to say about them."
    accuracies = ", ".join(f"{name} {percent(mean)}" for mean, name, _ in scored)
    minutes = duration(max(each.seconds for each in facts.pretraining))
    first = f"After {minutes} of pretraining each, fine-tuned on {results.counts[-1]:,} labels: {accuracies}."
    base = scored[0]
    clear = []
    for mean, name, key in scored[1:]:
        pair = next(
            (p for p in results.paired if (p.first, p.second, p.labels) == (base[2], key, results.counts[-1])), None
        )
        if pair is not None and significant(pair):
            more = "ahead of" if mean > base[0] else "behind"
            clear.append(f"{name} is {points(pair.difference.mean)} {more} {base[1]} ({confidence_interval(pair)})")
    if clear:
        return f"{first} More than chance: {'; '.join(clear)}."
    return f"{first} None of the others differs from {base[1]} by more than chance."


def what_it_can_do(run: Pretraining) -> str:
    """Say what a pretrained model can do, and how that changed."""
    able = [
        *(["write"] if any(each.written is not None for each in run.snapshots) else []),
        *(["fill in"] if any(each.filled is not None for each in run.snapshots) else []),
    ]
    can = " and ".join(able) or "neither write nor fill in"
    if len(run.snapshots) < 2:
        return f"It can {can}."
    first, last = run.snapshots[0].measures, run.snapshots[-1].measures
    if not {"accuracy"} <= first.keys() & last.keys():
        return f"It can {can}."
    if last["accuracy"] > first["accuracy"]:
        rose = f"{percent(first['accuracy'])} to {percent(last['accuracy'])}"
        return f"It can {can}; right held-out predictions rose from {rose}."
    return f"It can {can}, but did not learn: {percent(last['accuracy'])} of the held-out predictions are right."


def of_filled(snapshot: Snapshot, words: list[str]) -> str:
    """Say how probable the words were that had been masked."""
    if snapshot.probabilities is None:
        return ""
    return ", ".join(f"“{word}” {percent(each)}" for word, each in zip(words, snapshot.probabilities, strict=True))


def _pair(facts: LabFacts, kind: str, key: str) -> Paired | None:
    """Find the test of a method against the one of a kind, with the most labels."""
    results = facts.comparison
    return next(
        (
            pair
            for pair in results.paired
            if pair.second == key and pair.labels == results.counts[-1] and results.method(pair.first).kind == kind
        ),
        None,
    )


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
