"""Classifiers of real reviews, trained in seconds; one of long reviews takes longer, and is right far more often."""

from __future__ import annotations

import functools

import pytest
import torch
from rehead.finetune.features import read_documents
from rehead.finetune.probe import Probe, put_on
from rehead.model.reading import encode, is_bag

from rehead.errors import UserError
from rehead.finetune.linear import Examples, Found, Setting, fit_average
from rehead.finetune.targets import targets
from rehead.model.config import Classifier, preset
from rehead.model.model import Model
from rehead.runs.run import Run
from rehead.text.datasets import DatasetSplits, find_file, load_dataset
from rehead.text.documents import Document
from rehead.text.tokenizer import Tokenizer

SIZES = {"rotten-tomatoes": (1600, 2000, 1 << 12), "imdb": (4000, 8000, 1 << 17)}  # examples, tokens, n-grams


@functools.cache
def split(name: str = "rotten-tomatoes") -> DatasetSplits:
    try:
        find_file()
    except UserError as error:
        pytest.skip(str(error))
    return load_dataset(name, train=SIZES[name][0], valid=400, test=0)


@functools.cache
def words_of_reviews(name: str = "rotten-tomatoes") -> Tokenizer:
    documents = [Document(each, "x", 1) for each in split(name).train.texts]
    return Tokenizer.train(documents, vocab=SIZES[name][1], quiet=True)


def linear_classifier(name: str = "rotten-tomatoes") -> Run:
    """Directions and exact words, as the usual recipe has them, without its search for settings."""
    train, tokenizer = split(name).train, words_of_reviews(name)
    torch.manual_seed(0)
    shape = preset("bag", nhid=16, nbuckets=SIZES[name][2], ntokens=tokenizer.vocab_size)
    base = Run(Model(shape).eval(), tokenizer)
    truth, setting = targets(train, train.names, multilabel=False), Setting(power=1.0, words=4.0, strength=100.0)
    features, space = read_documents(base.model, encode(tokenizer, train.texts))
    examples = Examples(features, truth, space, 2)
    return put_on(Probe(base, examples, Found([setting], truth), fit_average(examples, [setting]), [], []), train)


def layered_classifier() -> Run:
    """One layer, trained from scratch for a moment, with the loss written out."""
    train, tokenizer = split().train, words_of_reviews()
    torch.manual_seed(0)
    shape = preset("small", nhid=16, nlayers=1, nhead=2, ngrams=1, nbuckets=0, ntokens=2000)
    model = Model(shape, Classifier(classes=2, pooling="mean"))
    ids, truth = encode(tokenizer, train.texts), torch.from_numpy(targets(train, train.names, multilabel=False))
    order = sorted(range(len(ids)), key=lambda place: len(ids[place]))
    batches = [torch.tensor(order[begin : begin + 64]) for begin in range(0, len(ids), 64)]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(6):
        for batch in batches:
            given = [torch.from_numpy(ids[int(place)]) for place in batch]
            rows = torch.nn.utils.rnn.pad_sequence(given, batch_first=True, padding_value=-1)
            loss = torch.nn.functional.cross_entropy(model(rows.clamp_min(0), rows >= 0), truth[batch])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    assert not is_bag(model.base.eval())
    return Run(model.eval(), tokenizer, train.names)
