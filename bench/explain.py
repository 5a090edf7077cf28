"""How faithful explanations are, and what they cost, beside other ways to find the words that decided.

    python bench/explain.py runs/classifier valid.csv --texts 60

For each way: by how much the probability of the label falls, on average, when the 1, 2, 4, 8, 16 and 32 heaviest words
are deleted from the text, which is then read again from its characters on; how often the label is lost with the 16
heaviest; and the time a text takes, beside ours. Texts are the first ones of the file; their labels are not looked at.

Ways where no layer reads:
    everywhere    ours: a word taken out of the sum wherever it stands, its places sharing what that does
    one place     a word taken out of the sum where it stands alone
Ways where layers read:
    blank         ours: read again with the word's embeddings zero
    cut out       read again without the word's tokens, the rest moving up
    slope         the slope of the log-odds along each token's embedding, times that: read once, forwards and backwards
    mean slope    the same, the slope averaged over eight strengths of the embeddings (integrated gradients)
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sides import best

from rehead.model.heads import pool
from rehead.runs.scoring import classifier_head, open_views
from rehead.text.documents import ReadOptions
from rehead.text.labelled import read_examples
from rehead.text.long_documents import cut_documents
from rehead.text.spans import Span, touching, word_spans
from rehead.use.explain import log_odds_drop, word_weights
from rehead.use.labeller import Labeller
from rehead.views.encoded import EncodedTexts
from rehead.views.layers import LayersView
from rehead.views.leave_out import Groups

Found = tuple[list[Span], np.ndarray[Any, np.dtype[np.float64]]]
Way = Callable[[str, int], Found]
DELETED = (1, 2, 4, 8, 16, 32)


def ways(labeller: Labeller) -> dict[str, Way]:
    """Name the ways that a classifier can be explained."""
    chance = np.random.RandomState(0)

    def random(text: str, label: int) -> Found:
        spans = word_spans(text)
        return spans, chance.rand(len(spans))

    def ours(text: str, label: int) -> Found:
        return word_weights(labeller, text, label)

    if not labeller.run.model.reads_layers:
        return {"random": random, "everywhere": ours, "one place": lambda text, label: one_place(labeller, text, label)}
    assert len(open_views(labeller.run.model)) == 1, "layers with exact words are not compared"
    return {
        "random": random,
        "blank": ours,
        "cut out": lambda text, label: cut_out(labeller, text, label),
        "slope": lambda text, label: slope(labeller, text, label, 1),
        "mean slope": lambda text, label: slope(labeller, text, label, 8),
    }


def one_place(labeller: Labeller, text: str, label: int) -> Found:
    """Take a word out where it stands."""
    run = labeller.run
    ids, tokens = run.tokenizer.encode_with_spans(text)
    spans = word_spans(text)
    groups = Groups(*touching(tokens, spans), len(spans))
    head, document = classifier_head(run.model), EncodedTexts([text], ids=[np.array(ids)])
    scores = np.tile(head.bias.detach().double().numpy(), (1 + len(spans), 1))
    for view in open_views(run.model):
        weight = head.of(view.name).weight.detach().numpy()
        scores += view.scores_without(weight, document, groups, lambda: None)
    return spans, log_odds_drop(scores, label, multilabel=labeller.multilabel)


def layers_view(labeller: Labeller) -> LayersView:
    """Make the view of the layers, pooling each piece by itself."""
    [view] = open_views(labeller.run.model)
    assert isinstance(view, LayersView)
    return LayersView(labeller.run.model, view.options, unit=False)


def cut_out(labeller: Labeller, text: str, label: int) -> Found:
    """Read each piece again without the tokens of each word that is in it."""
    run, view = labeller.run, layers_view(labeller)
    ids, tokens = run.tokenizer.encode_with_spans(text)
    spans = word_spans(text)
    touch, given = touching(tokens, spans), np.array(ids)
    _, places = cut_documents([np.arange(len(ids))], view.max_length, view.options.long)
    scores = np.zeros((1 + len(spans), len(labeller.names)))
    for where in places:
        gone = [np.isin(where, touch.token[touch.word == word]) for word in range(len(spans))]
        present = np.flatnonzero([each.any() for each in gone])
        parts = [given[where], *(given[where[~gone[word]]] for word in present)]
        with torch.no_grad():
            vectors = torch.from_numpy(view.read(EncodedTexts(ids=parts)).matrix)
            found = classifier_head(run.model)(vectors).double().numpy()
        scores += found[0] / len(places)
        scores[1 + present] += (found[1:] - found[0]) / len(places)
    return spans, log_odds_drop(scores, label, multilabel=labeller.multilabel)


def slope(labeller: Labeller, text: str, label: int, steps: int) -> Found:
    """Follow the log-odds back to the embeddings."""
    run, view, head = labeller.run, layers_view(labeller), classifier_head(labeller.run.model)
    base, causal = run.model.base, view.options.causal
    ids, tokens = run.tokenizer.encode_with_spans(text)
    spans = word_spans(text)
    _, places = cut_documents([np.arange(len(ids))], view.max_length, view.options.long)
    rows = torch.from_numpy(np.stack([np.array(ids)[where] for where in places]))  # pieces are of one length
    with torch.no_grad():
        embedded = base.embed(rows, causal=causal)
    shares = np.zeros(rows.shape)
    for step in range(steps):
        x = (embedded * (1.0 if steps == 1 else (step + 0.5) / steps)).requires_grad_()
        with torch.enable_grad():
            hidden = base(rows, causal=causal, embedded=x)
            scores = head(pool(hidden, None, view.options.pooling)).mean(0)
            others = torch.cat((scores[:label], scores[label + 1 :]))
            odds = scores[label] if labeller.multilabel else scores[label] - others.logsumexp(0)
            [grown] = torch.autograd.grad(odds, x)
        shares += (grown * embedded).sum(-1).double().numpy() / steps
    by_token = np.zeros(len(ids))
    for where, row in zip(places, shares, strict=True):
        np.add.at(by_token, where, row)
    touch, weights = touching(tokens, spans), np.zeros(len(spans))
    np.add.at(weights, touch.word, by_token[touch.token])
    return spans, weights


def without(text: str, spans: list[Span], gone: list[int]) -> str:
    """The text without some of its words."""
    parts, at = [], 0
    for begin, end in (spans[word] for word in sorted(gone)):
        parts.append(text[at:begin])
        at = end
    return "".join([*parts, text[at:]])


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("labelled")
    parser.add_argument("--texts", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=2, help="how often the time is taken")
    given = parser.parse_args()
    torch.set_num_threads(1)
    labeller = Labeller.open(given.run)
    texts = read_examples([given.labelled], ReadOptions(), check=False).texts[: given.texts]
    before = labeller.probabilities(texts)
    labels, rows = before.argmax(1), np.arange(len(texts))
    tried = ways(labeller)
    timed = {
        name: lambda way=way: [way(text, int(label)) for text, label in zip(texts[:8], labels, strict=False)]
        for name, way in tried.items()
    }
    seconds = best(timed, given.rounds)
    ours = seconds[list(tried)[1]]
    print(
        f"{len(texts)} texts; {'words deleted':>14}: " + " ".join(f"{count:6}" for count in DELETED) + "   lost   time"
    )
    for name, way in tried.items():
        deleted = []
        for text, label in zip(texts, labels, strict=True):
            spans, weights = way(text, int(label))
            order = np.argsort(-weights, kind="stable").tolist()
            deleted += [without(text, spans, order[:count]) for count in DELETED]
        after = labeller.probabilities(deleted).reshape(len(texts), len(DELETED), -1)
        falls = before[rows, labels][:, None] - after[rows, :, labels]
        lost = (after[:, DELETED.index(16)].argmax(1) != labels).mean()
        shown = " ".join(f"{each:6.3f}" for each in falls.mean(0))
        print(f"{name:>26}: {shown} {100 * lost:5.0f} % {seconds[name] / ours:6.2f}", flush=True)
    print(f"a text takes ours {1000 * ours / min(8, len(texts)):.1f} ms of one core")


if __name__ == "__main__":
    main()
