"""Summarise a comparison in two sentences: the accuracies, then the verdict.

The headline method is fixed in advance (the default recipe), never the one with the best test accuracy, and it is
compared with the best of all baselines that were run, by mean test accuracy at that training set size. So selection on
the test set can only work against us; a narrow win of a baseline is flattered by it. Accuracy of multilabel data is the
share of exact matches. Both sentences are
about the largest training set; if another method wins with fewer labels, the verdict adds that. A difference is
significant if the permutation test over all seeds gives p < 0.05.
"""

from __future__ import annotations

from rehead.compare.kinds import BASELINES
from rehead.compare.results import Method, Paired, Results, Score

SIGNIFICANT = 0.05


def answer(results: Results) -> list[str]:
    """Write the summary: the accuracies, then which method wins."""
    labels = results.counts[-1]
    ours = results.ours
    own = results.score(ours.key) if ours else None
    linear = results.best(BASELINES)
    scratch = results.best(("scratch",))
    metric = "exact match" if results.data.multilabel else "test accuracy"
    accuracies = []
    if ours and own and ours.kind != "scratch":
        how = {"recipe": "default recipe", "frozen": "frozen"}.get(ours.kind, "")
        accuracies.append(_accuracy_of(f"the pretrained model{_in_brackets(how, ours.name)}", own, metric))
    if scratch:
        which = _in_brackets(results.method(scratch.method).name)
        accuracies.append(
            f"from scratch{which} {percent(scratch.accuracy.mean)}"
            if accuracies
            else _accuracy_of(f"a model from scratch{which}", scratch, metric)
        )
    if linear:
        name = f"the best linear model ({results.method(linear.method).title})"
        accuracies.append(
            f"{name} {percent(linear.accuracy.mean)}" if accuracies else _accuracy_of(name, linear, metric)
        )
    figures = f"With {labels:,} labels {'; '.join(accuracies)}."
    verdicts = [each for each in (_against_linear(results), *_with_fewer(results), _against_scratch(results)) if each]
    return [figures, *([_sentence("; ".join(verdicts))] if verdicts else [])]


def percent(share: float, digits: int = 1) -> str:
    """Format a fraction as a percentage."""
    return f"{100 * share:.{digits}f} %"


def points(share: float) -> str:
    """Format the absolute difference of two fractions in percentage points."""
    size = abs(100 * share)
    return f"{size:.1f} point" + "s" * (f"{size:.1f}" != "1.0")


def p_value(p: float) -> str:
    """Format a p-value."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def significant(pair: Paired) -> bool:
    """Return whether a difference is statistically significant."""
    return pair.p < SIGNIFICANT


def confidence_interval(pair: Paired) -> str:
    """Format the interval of a difference in percentage points, with the sign flipped if the difference is negative."""
    sign = -1 if pair.difference.mean < 0 else 1
    low, high = sorted(100 * sign * end for end in (pair.difference.interval.low, pair.difference.interval.high))
    return f"95 % interval {low:.1f} to {high:.1f}".replace("-", "−")


def _linear_pair(results: Results, labels: int) -> Paired | None:
    """Find the paired test of the headline method against the best of the baselines, for this training set size."""
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
            return f"{name} and the linear model are equally accurate, and the linear model is cheaper"
        return (
            f"{leads} {points(pair.difference.mean)}, which is not significant on {results.data.sizes['test']:,} test "
            f"documents ({p_value(pair.p)})"
        )
    if pair.difference.mean > 0:
        return f"{name} beats the linear model by {points(pair.difference.mean)} ({confidence_interval(pair)})"
    return f"the linear model wins by {points(pair.difference.mean)} ({confidence_interval(pair)}): use it"


def _with_fewer(results: Results) -> list[str]:
    """List the smaller training set sizes at which a method wins that does not win at the largest."""
    pairs = [_linear_pair(results, count) for count in results.counts]
    winners = [None if pair is None or not significant(pair) else pair.difference.mean > 0 for pair in pairs]
    clauses = []
    for ours in (False, True):
        counts = [count for count, winner in zip(results.counts, winners, strict=True) if winner is ours]
        if not counts or winners[-1] is ours or results.ours is None:
            continue
        name = _name(results.ours) if ours else "the linear model"
        all_below = counts == results.counts[: len(counts)]
        many = f"{counts[-1]:,} labels or fewer" if all_below else f"{' and '.join(f'{c:,}' for c in counts)} labels"
        clauses.append(f"with {many} {name} wins")
    return clauses


def _against_scratch(results: Results) -> str | None:
    """Compare pretrained with scratch for the run of the headline, or else for the first run that has both."""
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
    size, which = points(pair.difference.mean), _in_brackets(results.method(pair.second).name)
    interval = confidence_interval(pair)
    if not significant(pair):
        return (
            f"for the same network{which}, pretraining makes no significant difference over training from scratch "
            f"({p_value(pair.p)})"
        )
    if pair.difference.mean > 0:
        return f"pretraining the same network{which} gains {size} over training it from scratch ({interval})"
    return f"pretraining the same network{which} loses {size} against training it from scratch ({interval})"


def _name(method: Method) -> str:
    return "the model from scratch" if method.kind == "scratch" else "the pretrained model"


def _in_brackets(*notes: str) -> str:
    joined = ", ".join(each for each in notes if each)
    return f" ({joined})" if joined else ""


def _accuracy_of(name: str, score: Score, metric: str) -> str:
    return f"{name} reaches {percent(score.accuracy.mean)} {metric}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
