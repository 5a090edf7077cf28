"""Small classifiers that read the text itself, with vocabularies of many scripts and random weights."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from rehead.model.config import Classifier, preset
from rehead.model.model import Model
from rehead.runs.run import Run
from rehead.runs.scoring import classifier_head
from rehead.views import VIEWS
from rehead.views.encoded import EncodedTexts
from rehead.views.view import View
from tests.finetune.sets import reviews
from tests.use.classifiers import tokenizer, view

KINDS: dict[str, tuple[str, ...]] = {
    "words": ("words",),
    "characters": ("characters",),
    "lsa": ("lsa",),
    "all": ("bag", "words", "characters", "lsa"),
}

# Each twice, so that their n-grams are in the vocabulary.
SCRIPTS = [
    "这部电影非常好看，我很喜欢。",
    "この映画はとても良かった。ガラス",
    "ภาพยนตร์เรื่องนี้สนุกมาก",
    "هَذَا الفِيلْمُ رَائِعٌ جِدًّا",
    "Le café était <b>très</b> bon… 👍🏽 don't <br /> well-made",
    "Die STRASSE, the straße; 100 % ①②③",
]
TEXTS = [
    "good film",
    "",
    "   ",
    "A great film, and a great story of two people: it was Superb, superb!",
    *SCRIPTS,
    "cafe\u0301 か\u3099ラス a´b ½ ﬁlm H\u0331ello ΟΔΟΣ.Β",
    "<p>A <b>dull</b> film&nbsp;&#8212; dull,dull!</p> 👩‍👩‍👧 👍🏽👍🏽",
    "\x00 \x02 the\x03film \u2028 x",
    "qqq zzz 0x7f ####",
    *reviews(3, 8).texts,
]


@functools.cache
def text_classifier(kind: str, *, multilabel: bool = False, corpus: int = 40) -> Run:
    """Make a classifier of a kind; its vocabulary is that of so many reviews, and of texts in other scripts."""
    torch.manual_seed(0)
    config = preset("bag", nhid=16, ntokens=tokenizer().vocab_size, nbuckets=64)
    model = Model(config)
    learnt = learn_views(model, [name for name in KINDS[kind] if name != "bag"], [*reviews(corpus).texts, *SCRIPTS * 2])
    neural = [view(config, "bag", unit=True)] if "bag" in KINDS[kind] else []
    stated = (*neural, *(each.config() for each in learnt))
    model.replace_head(Classifier(classes=3, views=stated, multilabel=multilabel))
    head = classifier_head(model)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_()
        for each in learnt:
            for name, values in each.statistics().items():
                head.of(each.name).get_buffer(name).copy_(torch.from_numpy(values))
    return Run(
        model.eval(), tokenizer(), ["bad", "fair", "good"], {"thresholds": [0.3, 0.5, 0.7]} if multilabel else {}
    )


def learn_views(model: Model, names: Sequence[str], texts: Sequence[str]) -> list[View]:
    """Make views that have learnt from some texts."""
    views = [VIEWS[name](model, VIEWS[name].Options()) for name in names]
    for each in views:
        encoded = EncodedTexts(texts)
        each.learn(encoded)
        each.fit(each.read(encoded))
    return views
