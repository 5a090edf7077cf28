"""The seam: a view that only this file knows is fitted, built into a run, cached, scored, explained and saved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from rehead.errors import DamagedError
from rehead.finetune.build import build_linear
from rehead.finetune.examples import read_examples, read_unlabelled
from rehead.finetune.fitted import calibrate_run
from rehead.finetune.linear import fit
from rehead.model.accounting import account, check
from rehead.model.config import Classifier
from rehead.runs.run import Run, load, save
from rehead.runs.scoring import class_logits
from rehead.text.documents import LabelledData
from rehead.use.explain import explain
from rehead.use.labeller import Labeller
from rehead.views import VIEWS
from rehead.views.encoded import EncodedTexts
from rehead.views.leave_out import Groups
from rehead.views.neural import neural_view
from rehead.views.view import DenseView, Raw, SparseView, View
from tests.model.conftest import alive, miniature
from tests.views.test_cache import tokenizer

LABELS = ["bad", "good"]
TEXTS = [f"{'a and ' * (n % 4)}{LABELS[n % 2]} film{' one' * (n % 3)}" for n in range(24)]


@dataclass(frozen=True, kw_only=True)
class LetterOptions:
    """What the new views state."""

    letters: str = "abdfglmno"


class SharesView(DenseView):
    """How often each letter occurs, as a share of the text."""

    name = "shares"
    about = "how often each letter occurs"
    Options = LetterOptions

    @property
    def columns(self) -> int:
        return len(self.options.letters)

    def read(self, texts: EncodedTexts) -> Raw:
        rows = [[text.count(each) / max(1, len(text)) for each in self.options.letters] for text in texts.texts]
        return Raw(np.array(rows, np.float32), np.arange(len(texts)), len(texts))

    def scores_without(
        self, weight: Any, texts: EncodedTexts, groups: Groups, progress: Callable[[], None]
    ) -> np.ndarray:
        whole = self.transform(self.read(texts)) @ weight.T
        return np.repeat(whole, 1 + groups.count, 0)


class CountsView(SparseView):
    """How often each letter occurs."""

    name = "counts"
    about = "how many there are of each letter"
    Options = LetterOptions

    @property
    def columns(self) -> int:
        return len(self.options.letters)

    def read(self, texts: EncodedTexts) -> Raw:
        rows = [[text.count(each) for each in self.options.letters] for text in texts.texts]
        return Raw(sparse.csr_matrix(np.array(rows, np.float32)), np.arange(len(texts)), len(texts))

    def fit(self, raw: Raw) -> None:
        self.scale = np.linspace(1, 2, self.columns)

    def scores_without(
        self, weight: Any, texts: EncodedTexts, groups: Groups, progress: Callable[[], None]
    ) -> np.ndarray:
        whole = self.transform(self.read(texts)) @ weight
        return np.repeat(np.asarray(whole), 1 + groups.count, 0)


@pytest.mark.parametrize("new", [SharesView, CountsView])
@pytest.mark.parametrize("alone", [True, False])
def test_a_view_is_one_class_and_one_entry(
    new: type[View], alone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VIEWS, new.name, new)
    monkeypatch.setenv("REHEAD_CACHE", str(tmp_path / "cache"))
    base = load(save(Run(alive(miniature("small")), tokenizer()), tmp_path / "base"))
    views: list[View] = [new(base.model, LetterOptions())]
    if not alone:
        views.insert(0, neural_view(base.model, "bag"))
    truth = np.arange(len(TEXTS)) % 2
    given = [(LABELS[each],) for each in truth]
    train = LabelledData(TEXTS, given, LABELS, multilabel=False, sources=[("x", 1)] * len(TEXTS))

    examples = read_examples(base, views, TEXTS, truth, 2, balanced=False)
    again = read_unlabelled(base, examples, TEXTS)
    for name, features in examples.features.items():
        kept, found = (each.toarray() if sparse.issparse(each) else each for each in (features, again.features[name]))
        np.testing.assert_allclose(found, kept, atol=1e-6, err_msg="through the cache")
    even = {view.name: 1.0 for view in views}
    linear = fit(examples, {**even, "power": 2.0, "alpha": 0.01})
    run = build_linear(base, examples, linear, train)
    logits = class_logits(run, TEXTS)
    np.testing.assert_allclose(logits, linear.scores(examples), atol=1e-4)
    assert (logits.argmax(1) == truth).all()

    head = run.model.head_config
    assert isinstance(head, Classifier)
    stated = head.view(new.name)
    assert stated is not None
    assert stated.options == {"letters": "abdfglmno"}
    assert run.model.config.nlayers == 0, "no view of this classifier reads layers"
    check(account(run.model.config, head), run.model, "classifier")
    calibrate_run(run, linear.scores(examples), truth)
    scores = class_logits(run, TEXTS)
    assert (scores.argmax(1) == truth).all()
    back = load(save(run, tmp_path / "run"))
    np.testing.assert_array_equal(class_logits(back, TEXTS), scores)
    [explained] = explain(Labeller.of(back), TEXTS[:1])
    assert explained.label == LABELS[0]

    monkeypatch.delitem(VIEWS, new.name)
    with pytest.raises(DamagedError, match=new.name):
        load(tmp_path / "run")
