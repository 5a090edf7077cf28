"""Classifiers of real reviews, trained in seconds; one of long reviews takes longer, and is right far more often."""

from __future__ import annotations

import functools

import pytest
import torch

from rehead.errors import UserError
from rehead.finetune.build import build_linear
from rehead.finetune.candidates.linear import fit_average
from rehead.finetune.examples import read_examples
from rehead.finetune.targets import targets
from rehead.model.config import preset
from rehead.model.model import Model
from rehead.runs.run import Run
from rehead.text.datasets import DatasetSplits, find_file, load_dataset
from rehead.text.documents import Document
from rehead.text.tokenizer import Tokenizer
from rehead.views.encoded import EncodedTexts
from rehead.views.neural import neural_view
from rehead.views.tokens import TokensOptions, TokensView

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


@functools.cache
def linear_classifier(name: str = "rotten-tomatoes") -> Run:
    """Directions and tokens, as a frozen base has them, without the search for settings."""
    train, tokenizer = split(name).train, words_of_reviews(name)
    torch.manual_seed(0)
    shape = preset("bag", nhid=16, nbuckets=SIZES[name][2], ntokens=tokenizer.vocab_size)
    base = Run(Model(shape).eval(), tokenizer)
    views = [neural_view(base.model), TokensView(base.model, TokensOptions())]
    truth = targets(train, train.names, multilabel=False)
    examples = read_examples(base, views, train.texts, truth, 2, balanced=False)
    linear = fit_average(examples, [{"power": 1.0, "bag": 1.0, "tokens": 1.0, "alpha": 1.0, "temperature": 0.1}])
    return build_linear(base, examples, linear, train)


@functools.cache
def layered_classifier() -> Run:
    """One layer, trained from scratch for a moment, with the loss written out."""
    train, tokenizer = split().train, words_of_reviews()
    torch.manual_seed(0)
    shape = preset("small", nhid=16, nlayers=1, nhead=2, ngrams=1, nbuckets=0, ntokens=2000)
    model = Model(shape, shape.classifier(2))
    assert model.reads_layers
    ids, truth = (
        EncodedTexts(train.texts, tokenizer).ids,
        torch.from_numpy(targets(train, train.names, multilabel=False)),
    )
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
    return Run(model.eval(), tokenizer, train.names)
