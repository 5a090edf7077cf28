"""The answer of a comparison in two plain sentences, whoever wins.

The first gives the figures, the second the verdict. The headline is about the default recipe, not about whatever did
best on the test part, and it is held against the better of the baselines: a choice that can only cost us. A difference
counts if the paired bootstrap and McNemar's test, with every seed, agree on it at 5 %.
"""

from __future__ import annotations

from rehead.compare.kinds import BASELINES
from rehead.compare.results import Paired, Results, Score

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
        how = " (default recipe)" if ours.kind == "recipe" else " (frozen)" if ours.kind == "frozen" else ""
        parts.append(f"the pretrained model{how} is right {percent(own.accuracy.mean)} of the time")
    if scratch:
        parts.append(
            f"from scratch {percent(scratch.accuracy.mean)}" if parts else _alone("a model from scratch", scratch)
        )
    if linear:
        name = f"the best linear model ({results.method(linear.method).title})"
        parts.append(f"{name} {percent(linear.accuracy.mean)}" if parts else _alone(name, linear))
    figures = f"With {labels:,} labels {'; '.join(parts)}."
    verdicts = [each for each in (_against_linear(results), _against_scratch(results)) if each]
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


def pair_of(results: Results, first: str, second: str) -> Paired | None:
    """Find the paired test of two methods with the most labels."""
    wanted = (first, second, results.counts[-1])
    return next((each for each in results.paired if (each.first, each.second, each.labels) == wanted), None)


def _against_linear(results: Results) -> str | None:
    linear, ours = results.best(BASELINES), results.ours
    pair = pair_of(results, linear.method, ours.key) if linear and ours else None
    if pair is None or ours is None:
        return None
    name = "the pretrained model" if ours.kind != "scratch" else "the model from scratch"
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


def _against_scratch(results: Results) -> str | None:
    pair = next(
        (
            each
            for each in results.paired
            if results.method(each.first).kind == "scratch"
            and results.method(each.second).kind == "pretrained"
            and each.labels == results.counts[-1]
        ),
        None,
    )
    if pair is None:
        return None
    size = points(pair.difference.mean)
    if not significant(pair):
        return f"for the same network, pretrained or from scratch makes no difference beyond chance ({chance(pair.p)})"
    if pair.difference.mean > 0:
        return f"pretraining the same network is worth {size} over training it from scratch ({between(pair)})"
    return f"pretraining the same network costs {size} against training it from scratch ({between(pair)})"


def _alone(name: str, score: Score) -> str:
    return f"{name} is right {percent(score.accuracy.mean)} of the time"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
