"""Facts that nobody measured, for tests of the page and its sentences, around the results of a made comparison."""

from __future__ import annotations

import dataclasses

from rehead.compare.results import Method, Paired
from rehead.compare.statistics import Difference, Interval
from rehead.lab.facts import (
    FORMAT,
    Attention,
    Causality,
    CountedPart,
    Counting,
    HeadReplacement,
    HeadTensor,
    LabFacts,
    Mistake,
    Pretraining,
    Snapshot,
)
from tests.compare.made_results import MISCHIEF, made_results


def made_facts(gain: float = 0.06, low: float = 0.03, p: float = 0.001) -> LabFacts:
    """Facts in which the pretrained model is so many points ahead of scratch."""
    results = made_results()
    scratch = next(each for each in results.methods if each.kind == "scratch")
    causal = next(each for each in results.methods if each.kind == "pretrained")
    causal.name = "causal"
    masked = Method("pretrained:masked", "pretrained", "pretrained (masked)", "", "masked", 1, "masked")
    results.methods = [scratch, causal, masked]
    pairs = [(scratch.key, causal.key, gain, p), (causal.key, masked.key, 0.01, 0.4)]
    results.paired = [
        Paired(first, second, 1600, Difference(mean, Interval(mean - gain + low, mean + 0.05)), chance, [])
        for first, second, mean, chance in pairs
    ]
    scores = {each.method: each for each in results.scores if each.labels == 1600}
    own = scores[causal.key]
    results.scores = [each for each in results.scores if each.method in (scratch.key, causal.key)]
    results.scores.append(dataclasses.replace(own, method=masked.key))
    words = ["a", MISCHIEF[:24], "film"]
    steps = [Snapshot(f, int(900 * f), 60 * f, {"loss": 6 - f, "accuracy": 0.1 + 0.2 * f}) for f in (0.0, 0.5, 1.0)]
    for each in steps:
        each.written = MISCHIEF[:30]
        each.filled, each.probabilities = [["film", "book"]], [0.25]
    weights = [[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]] * 2
    return LabFacts(
        format=FORMAT,
        sentence=" ".join(words),
        prompt="a",
        masked_sentence="a [MASK]",
        masked_words=["film"],
        causality=Causality(
            words, 1, "river", [[True] * 3, [False, True, True], [False, False, True]], [0.0, 1.0, 0.5], 3, 1e-7, 0.8,
            [[0.5, -0.5]] * 4, 4, [0, 1],
        ),
        head=HeadReplacement(
            [HeadTensor("head.weight", [10, 4], 40)], [HeadTensor("head.bias", [2], 2)], 7, 100, 400, 0, "aa", "aa"
        ),
        counting=Counting(
            [
                CountedPart("embedding", "ntokens·nhid", "10·4", 40, "part", True, True),
                CountedPart("language model", "base + head", "100 + 50", 150, "total", True, False),
            ],
            [Mistake("Forgetting the biases", "4 · 3", -12, "language model")],
            150,
            102,
            checked=True,
        ),
        pretraining=[
            Pretraining(name, name, f"bag:0.1,{name}:0.9", 900, 60.0, 150, {"loss": 5.0, "accuracy": 0.3}, steps)
            for name in ("causal", "masked")
        ],
        attention=[Attention("causal", words, True, [weights, weights])],
        comparison=results,
        notes=["1 seed instead of 3"],
        shape="4 wide",
        minutes=15,
        seconds=900,
        command="rehead lab --out runs/lab",
    )  # fmt: skip
