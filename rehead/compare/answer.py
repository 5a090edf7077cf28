"""The answer of a comparison in two plain sentences, whoever wins.

The first gives the figures, the second the verdict. The headline is about the default recipe, not about whatever did
best on the test part, and it is held against the better of the baselines: a choice that can only cost us. Both are
about the most labels; where somebody else wins with fewer, the verdict says so. A difference counts if the permutation
test over all seeds finds it at 5 %.
"""

from __future__ import annotations

from rehead.compare.kinds import BASELINES
from rehead.compare.results import Method, Paired, Results, Score

SIGNIFICANT = 0.05


def answer(results: Results) -> list[str]:
    """Say what came out: the figures, then who wins."""
    labels = results.counts[-1]
    ours = results.ours
    own = results.score(ours.key) if ours else None
    linear = results.best(BASELINES)
    scratch = results.best(("scratch",))
    parts = []
    if ours and own and ours.kind != "scratch":
        how = {"recipe": "default recipe", "frozen": "frozen"}.get(ours.kind, "")
        parts.append(_alone(f"the pretrained model{_note(how, ours.name)}", own))
    if scratch:
        which = _note(results.method(scratch.method).name)
        parts.append(
            f"from scratch{which} {percent(scratch.accuracy.mean)}"
            if parts
            else _alone(f"a model from scratch{which}", scratch)
        )
    if linear:
        name = f"the best linear model ({results.method(linear.method).title})"
        parts.append(f"{name} {percent(linear.accuracy.mean)}" if parts else _alone(name, linear))
    figures = f"With {labels:,} labels {'; '.join(parts)}."
    verdicts = [each for each in (_against_linear(results), *_with_fewer(results), _against_scratch(results)) if each]
    return [figures, *([_sentence("; ".join(verdicts))] if verdicts else [])]


def percent(share: float, digits: int = 1) -> str:
    """Write a share as per cent."""
    return f"{100 * share:.{digits}f} %"


def points(share: float) -> str:
    """Write a difference of shares in points, without its sign."""
    size = abs(100 * share)
    return f"{size:.1f} point" + "s" * (f"{size:.1f}" != "1.0")


def chance(p: float) -> str:
    """Write a p-value."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def significant(pair: Paired) -> bool:
    """Tell whether a difference is more than chance."""
    return pair.p < SIGNIFICANT


def between(pair: Paired) -> str:
    """Give the interval of a difference, in points, from its own side."""
    sign = -1 if pair.difference.mean < 0 else 1
    low, high = sorted(100 * sign * end for end in (pair.difference.interval.low, pair.difference.interval.high))
    return f"95 % interval {low:.1f} to {high:.1f}".replace("-", "−")


def _linear_pair(results: Results, labels: int) -> Paired | None:
    """Find the paired test of the headline's method and the better of the baselines, with so many labels."""
    linear, ours = results.best(BASELINES, labels), results.ours
    if linear is None or ours is None:
        return None
    wanted = (linear.method, ours.key, labels)
    return next((each for each in results.paired if (each.first, each.second, each.labels) == wanted), None)


def _against_linear(results: Results) -> str | None:
    pair = _linear_pair(results, results.counts[-1])
    if pair is None:
        return None
    name = _name(results.method(pair.second))
    if not significant(pair):
        leads = f"{name} is ahead by" if pair.difference.mean > 0 else "the linear model is ahead by"
        if not round(1000 * pair.difference.mean):
            return f"{name} and the linear model are level, and the linear model is the cheaper one"
        return (
            f"{leads} {points(pair.difference.mean)}, which these {results.data.sizes['test']:,} test documents cannot "
            f"tell from chance ({chance(pair.p)})"
        )
    if pair.difference.mean > 0:
        return f"{name} beats the linear model by {points(pair.difference.mean)} ({between(pair)})"
    return f"the linear model wins, by {points(pair.difference.mean)} ({between(pair)}): use it"


def _with_fewer(results: Results) -> list[str]:
    """Say with how many labels somebody wins who does not win with the most."""
    pairs = [_linear_pair(results, count) for count in results.counts]
    winners = [None if pair is None or not significant(pair) else pair.difference.mean > 0 for pair in pairs]
    said = []
    for ours in (False, True):
        counts = [count for count, winner in zip(results.counts, winners, strict=True) if winner is ours]
        if not counts or winners[-1] is ours or results.ours is None:
            continue
        name = _name(results.ours) if ours else "the linear model"
        all_below = counts == results.counts[: len(counts)]
        many = f"{counts[-1]:,} labels or fewer" if all_below else f"{' and '.join(f'{c:,}' for c in counts)} labels"
        said.append(f"with {many} {name} wins")
    return said


def _against_scratch(results: Results) -> str | None:
    """Judge pretraining by the run of the headline, or else by the first that was trained from scratch as well."""
    pairs = [
        each
        for each in results.paired
        if results.method(each.first).kind == "scratch"
        and results.method(each.second).kind == "pretrained"
        and each.labels == results.counts[-1]
    ]
    if not pairs:
        return None
    run = results.ours.run if results.ours else None
    pair = next((each for each in pairs if results.method(each.second).run == run), pairs[0])
    size, which = points(pair.difference.mean), _note(results.method(pair.second).name)
    if not significant(pair):
        return (
            f"for the same network{which}, no difference was shown between pretrained and from scratch "
            f"({chance(pair.p)})"
        )
    if pair.difference.mean > 0:
        return f"pretraining the same network{which} is worth {size} over training it from scratch ({between(pair)})"
    return f"pretraining the same network{which} costs {size} against training it from scratch ({between(pair)})"


def _name(method: Method) -> str:
    return "the model from scratch" if method.kind == "scratch" else "the pretrained model"


def _note(*words: str) -> str:
    said = ", ".join(each for each in words if each)
    return f" ({said})" if said else ""


def _alone(name: str, score: Score) -> str:
    return f"{name} is right {percent(score.accuracy.mean)} of the time"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
