"""A scikit-learn estimator: texts and labels in, a classifier out.

    classifier = TextClassifier().fit(texts, labels)
    classifier.predict(["What a film!"])

It trains the same classifier as `rehead finetune`, and works with `Pipeline`, `GridSearchCV`, `cross_val_score`,
`clone` and `pickle`. `save` writes a run that `rehead evaluate` reads.

Of scikit-learn's estimator checks, the tests run those that are independent of the input, and those on labels (with
texts as X). The others pass a matrix of numbers as X, which is rejected: those on dtypes, sparse and memory-mapped
matrices, feature names and counts, a single sample or feature, NaN and infinity, and sample weights, which are not
supported.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, column_or_1d

from rehead.errors import ConfigError, DamagedError, UserError, short_repr
from rehead.finetune.fit import fit_classifier
from rehead.finetune.fitted import Fitted, Point
from rehead.finetune.metrics import DecisionRule, predicted_labels
from rehead.finetune.options import FitOptions, Freeze, Metric, check_base, check_fit, check_metric, check_use
from rehead.finetune.run import read_unlabelled, sample_texts
from rehead.model.config import Classifier
from rehead.runs.run import Run, load, save
from rehead.runs.scoring import class_logits, class_probabilities
from rehead.runs.starting import open_bases
from rehead.text.documents import LabelledData, describe_value
from rehead.text.label_spelling import spelling_notes
from rehead.text.long_documents import LongRule
from rehead.text.readers import Texts

if TYPE_CHECKING:
    from numpy.typing import NDArray

KINDS = "OUSbiuf"  # dtype kinds that classes can have
PRETRAINING = "pretraining"  # key of a run's details for how its base was made, if that was in the same run
KEPT = "estimator"  # key of a run's details for the classes and parameters of the estimator


class TextClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Classify texts with a pretrained base: one that is given, or pretrained on the texts when it is fitted.

    The parameters are those of `rehead finetune`; by default, cross-validation selects what to train. For multilabel
    data, `y` is an indicator matrix with a column for each label, and so is the result of `predict`.

    base : path of a run made by `rehead pretrain`, or a `Run`; it is not modified. Or a base that others pretrained: a
        directory, word vectors, "hf:NAME", "package:NAME". Or a list of these, at most one of them a run with a base of
        its own: cross-validation decides how much each counts. None: `fit` pretrains one on its texts and on
        `unlabelled`, without labels.
    freeze : None (cross-validation decides), "base" (a linear classifier on it), "layers", "embeddings" or "none".
    unlabelled : texts, or the path of a text file: for pretraining, if `base` is None, and for self-training, which is
        used only if cross-validation improves.
    epochs, minutes, batch, length, long, dropout, unfreeze, layer_decay, patience : see `rehead finetune --help`.
    lr : learning rate of the head and the layers (AdamW); None: the default, by hidden size.
    lr_scale : multiply the default learning rates by this; cannot be combined with `lr`.
    class_weight : None, or "balanced": weights by inverse frequency, over the classes present.
    metric : "accuracy", "macro-f1" or, for multilabel data, "micro-f1": what cross-validation and `predict` go by.
    seed : random seed.
    verbose : whether to print progress messages.

    Attributes after `fit`: `classes_`; `run_`, the trained run; `notes_`, a list of notes and warnings; `curve_`,
    validation metrics by epoch, if the base was trained by gradient descent. If `base` is None also `base_`, the base
    that was pretrained: `TextClassifier(other.base_)` reuses it, which makes sense for other labels of the same texts.
    """

    classes_: NDArray[Any]
    base_: Run
    run_: Run
    notes_: list[str]
    curve_: list[Point]

    def __init__(
        self,
        base: str | Path | Run | Sequence[str | Path | Run] | None = None,
        *,
        freeze: Freeze | None = None,
        unlabelled: Sequence[str] | str | Path | None = None,
        epochs: float | None = None,
        minutes: float | None = None,
        batch: int | None = None,
        length: int | None = None,
        long: LongRule | None = None,
        dropout: float | None = None,
        class_weight: Literal["balanced"] | None = None,
        metric: Metric = "accuracy",
        unfreeze: float | None = None,
        layer_decay: float = 1.0,
        patience: int | None = None,
        lr: float | None = None,
        lr_scale: float = 1.0,
        seed: int = 0,
        verbose: bool = False,
    ) -> None:
        self.base = base
        self.freeze = freeze
        self.unlabelled = unlabelled
        self.epochs = epochs
        self.minutes = minutes
        self.batch = batch
        self.length = length
        self.long = long
        self.dropout = dropout
        self.class_weight = class_weight
        self.metric = metric
        self.unfreeze = unfreeze
        self.layer_decay = layer_decay
        self.patience = patience
        self.lr = lr
        self.lr_scale = lr_scale
        self.seed = seed
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> TextClassifier:  # noqa: ANN401, N803 (scikit-learn's names)
        """Train on texts (N,) and their labels: (N,), or an indicator matrix (N, K)."""
        with _parameter_names():
            data, classes = _examples(check_texts(X), y)
            fitted, pretrained = self._fit(data)
        if pretrained is not None:
            self.base_ = pretrained
        elif hasattr(self, "base_"):
            del self.base_
        self.classes_, self.run_, self.notes_, self.curve_ = classes, fitted.run, fitted.notes, fitted.curve
        return self

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: ANN401, N803
        """Predict the class of each text (N,); multilabel: an indicator matrix (N, K)."""
        multilabel = self._multilabel()
        guess = predicted_labels(self.predict_proba(X), multilabel=multilabel, rule=DecisionRule.of(self.run_.details))
        found: NDArray[Any] = guess.astype(np.int64) if multilabel else self.classes_[guess]
        return found

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: ANN401, N803
        """Predict the probability of each class: (N, K). Rows sum to 1, unless multilabel."""
        check_is_fitted(self)
        found = class_probabilities(self.run_, check_texts(X, least=0)).astype(np.float64)
        if not self._multilabel():  # exactly 1 in float64
            found /= found.sum(1, keepdims=True)
        return found

    def decision_function(self, X: Any) -> NDArray[np.float64]:  # noqa: ANN401, N803
        """Compute class scores (N, K), the highest predicted; binary: second minus first (N,); multilabel: above 0."""
        check_is_fitted(self)
        scores = class_logits(self.run_, check_texts(X, least=0)).astype(np.float64)
        rule = DecisionRule.of(self.run_.details)
        thresholds = None if rule.thresholds is None else np.array(rule.thresholds, np.float64)
        if self._multilabel():
            moved = scores if thresholds is None else scores - np.log(thresholds / (1 - thresholds))
            if rule.at_least_one and len(moved):  # the label that is given in any case is above 0, too
                top = np.arange(len(moved)), scores.argmax(1)
                moved[top] = np.maximum(moved[top], np.finfo(np.float64).tiny)
            return moved
        if thresholds is not None:
            scores -= np.log(thresholds)
        found: NDArray[np.float64] = scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores
        return found

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Save the fitted classifier as a run, which `TextClassifier.load` and `rehead evaluate` read."""
        check_is_fitted(self)
        made = {
            name: _to_python(value) for name, value in self.get_params().items() if name not in ("base", "unlabelled")
        }
        named = [str(each) for each in self._bases() if isinstance(each, str | Path)]
        whole = named and len(named) == len(self._bases())
        base = (named if isinstance(self.base, list | tuple) else named[0]) if whole else None
        kept = {"classes": self.classes_.tolist(), "dtype": self.classes_.dtype.str, "params": {"base": base, **made}}
        return save(
            dataclasses.replace(self.run_, details={**self.run_.details, KEPT: kept}), path, overwrite=overwrite
        )

    @classmethod
    def load(cls, path: str | Path) -> TextClassifier:
        """Load a classifier written by `save` or `rehead finetune`.

        If its base was a `Run` in memory, or it was made by `rehead finetune`, `base` becomes the saved run: `fit` then
        starts from that.
        """
        run = load(path)
        if run.labels is None:
            raise UserError(f"{path} is not a classifier: it has no labels. Make one with fit and save.")
        kept = run.details.get(KEPT, {})
        classes = _restore_classes(kept, run.labels, path)
        made = _upgrade_params(_kept_params(kept, path))
        known = cls._get_param_names()
        loaded = cls(**{name: value for name, value in made.items() if name in known and name != "base"})
        empty = run.model.config.empty and not run.model.brought
        pretrains = empty or (bool(kept) and PRETRAINING in run.details)
        loaded.base = made.get("base") or (None if pretrains else str(path))
        loaded.classes_ = classes
        loaded.run_, loaded.notes_, loaded.curve_ = run, [], []
        return loaded

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401 (scikit-learn has no types)
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = tags.input_tags.string = True
        tags.input_tags.two_d_array = tags.input_tags.sparse = False
        tags.classifier_tags.multi_label = True
        return tags

    def _fit(self, data: LabelledData) -> tuple[Fitted, Run | None]:
        """Train the classifier; give it, and its base if that was pretrained here."""
        options = self._options()
        check_metric(options, multilabel=data.multilabel)
        if self.freeze is not None and self.unlabelled is not None and self.base is not None:
            raise ConfigError(f"unlabelled is for self-training, where freeze is None, not {self.freeze!r}.")

        said: list[str] = []

        def say(line: str) -> None:
            said.append(line)
            if self.verbose:
                print(line)

        unlabelled = self._unlabelled()
        with torch.random.fork_rng(devices=[]):  # leave the caller's random state untouched
            if self.base is not None:
                base = open_bases(self._bases())
                own, brought = not base.model.config.empty, list(base.model.brought)
                check_base(options, scratch=False, own=own, brought=brought)
            else:
                from rehead.finetune.own_base import pretrain_on

                base = pretrain_on(data.texts, unlabelled or (), seed=options.seed, quiet=not self.verbose, say=say)
            notes = [line for line in said if line.startswith("note: ")]
            if self.freeze is not None:
                unlabelled = None
            elif isinstance(unlabelled, Texts):
                unlabelled = sample_texts(unlabelled, options.seed)
            fitted = fit_classifier(data, None, base=base, options=options, unlabelled=unlabelled, say=say)
        fitted.notes[:0] = [f"warning: {note}" for note in data.notes]
        if self.base is not None:
            return fitted, None
        fitted.run.details[PRETRAINING] = base.details
        fitted.notes[:0] = notes
        return fitted, base

    def _options(self) -> FitOptions:
        """Collect and validate the training options."""
        for each in self._bases():
            if not isinstance(each, str | Path | Run):
                raise ConfigError(
                    f"base is {describe_value(each)}. Expected the path of a run, a Run, a base that others "
                    "pretrained, a list of these, or None."
                )
        kinds = get_type_hints(FitOptions)
        given = {name: _to_python(value) for name, value in self.get_params(deep=False).items() if name in kinds}
        for name, value in given.items():
            _check(name, value, kinds[name])
        options = FitOptions(**given)
        check_fit(options, selects=options.freeze in (None, "base"))
        check_use(options)
        return options

    def _bases(self) -> list[Any]:
        """List the bases that are given."""
        if self.base is None:
            return []
        return list(self.base) if isinstance(self.base, list | tuple) else [self.base]

    def _unlabelled(self) -> Texts | list[str] | None:
        if self.unlabelled is None:
            return None
        if isinstance(self.unlabelled, str | Path):
            return read_unlabelled([str(self.unlabelled)])
        return check_texts(self.unlabelled, "unlabelled", least=0)

    def _multilabel(self) -> bool:
        check_is_fitted(self)
        head = self.run_.model.head_config
        return isinstance(head, Classifier) and head.multilabel


def check_texts(texts: Any, name: str = "X", *, least: int = 1) -> list[str]:  # noqa: ANN401 (anything may be given)
    """Convert the input to a list of texts, or raise."""
    if isinstance(texts, str | bytes):
        raise ConfigError(f"{name} is a single text. Expected a list of texts: [{name}].")
    if len(shape := getattr(texts, "shape", (0,))) != 1:
        raise ConfigError(
            f"{name} has the shape {tuple(shape)}. Expected a 1d array of texts. Reshape your data, or select a column."
        )
    try:
        found = list(texts)
    except TypeError:
        raise ConfigError(f"{name} is {describe_value(texts)}. Expected a list of texts.") from None
    for place, text in enumerate(found):
        if isinstance(text, str):
            continue
        if isinstance(text, bytes):
            raise ConfigError(f"{name}[{place}] is bytes. Expected str: decode it first.")
        if _missing(text):
            raise ConfigError(f"{name}[{place}] is {text!r}: a missing text. Drop it, or replace it by ''.")
        raise ConfigError(f"{name}[{place}] is {describe_value(text)}. Expected str.")
    if len(found) < least:
        raise ConfigError(f"{name} has {len(found)} texts (shape=({len(found)},)), but at least {least} is required.")
    return [str(each) for each in found]


def _examples(texts: list[str], y: Any) -> tuple[LabelledData, NDArray[Any]]:  # noqa: ANN401
    """Combine texts and labels: the labelled data, and the classes as given."""
    if y is None:
        raise ConfigError("TextClassifier requires y to be passed, but the target y is None.")
    columns = getattr(y, "columns", None)
    if hasattr(y, "toarray"):
        y = y.toarray()
    try:
        table = np.asarray(y)
    except ValueError:  # rows of different length
        raise ConfigError(
            "y is a list of lists. Expected a label for each text, or an indicator matrix with a column for each "
            "label, as made by scikit-learn's MultiLabelBinarizer."
        ) from None
    if table.dtype.kind in "Of" and any(_missing(each) for each in table.ravel()):
        raise ConfigError("Input y contains NaN or None: a label is missing. Drop the texts without a label.")
    if len(table.shape) < 1 or len(table) != len(texts):
        count = len(table) if table.shape else 1
        raise ConfigError(f"inconsistent numbers of samples: X has {len(texts):,} texts, y has {count:,} labels.")
    check_classification_targets(y)
    if type_of_target(y).startswith("multilabel"):
        classes = np.asarray(columns) if columns is not None else np.arange(table.shape[1])
        names = _names(classes)
        labels = [tuple(names[each] for each in np.flatnonzero(row)) for row in table]
    else:
        classes, numbers = np.unique(column_or_1d(table, warn=True), return_inverse=True)
        if len(classes) < 2:
            raise ConfigError(f"y has only one class, {short_repr(classes[0])}. Expected at least two.")
        names = _names(classes)
        labels = [(names[each],) for each in numbers]
    multilabel = type_of_target(y).startswith("multilabel")
    data = LabelledData(texts, labels, names, multilabel, [("X", place) for place in range(len(texts))])
    data.notes = spelling_notes(data)
    return data, classes


def _names(classes: NDArray[Any]) -> list[str]:
    """Name the classes uniquely: by str, or else by repr."""
    names = [str(each) for each in classes.tolist()]
    if all(names) and len(set(names)) == len(names):
        return names
    return [repr(each) for each in classes.tolist()]


def _restore_classes(kept: object, names: list[str], path: str | Path) -> NDArray[Any]:
    """Restore the classes as given to `fit`; for a run made by `rehead finetune`, their names."""
    if not kept:
        return np.array(names)
    try:
        found = np.array(kept["classes"], kept["dtype"])  # type: ignore[index]  # TypeError if it is no dict
    except (KeyError, TypeError, ValueError):
        found = np.zeros(0)
    if found.dtype.kind not in KINDS or found.shape != (len(names),):
        raise DamagedError(f"{path}: details: {KEPT} is {short_repr(kept)}. Expected classes for {len(names)} labels.")
    return found


def _kept_params(kept: object, path: str | Path) -> dict[str, Any]:
    """The parameters that a saved classifier was made with; none, if `rehead finetune` made it."""
    params = kept.get("params", {}) if isinstance(kept, dict) else {}
    if not isinstance(params, dict):
        raise DamagedError(f"{path}: details: {KEPT}: params is {short_repr(params)}. Expected an object.")
    return params


def _upgrade_params(made: dict[str, Any]) -> dict[str, Any]:
    """Translate the parameters of older classifiers: before `lr_scale` was added, `lr` was that factor."""
    made = dict(made)
    if "lr" in made and "lr_scale" not in made:
        made["lr_scale"] = made.pop("lr")
    if made.get("class_weights") == "balanced":
        made["class_weight"] = "balanced"
    return made


def _missing(value: object) -> bool:
    return value is None or (not isinstance(value, str | bytes) and bool(np.isscalar(value)) and value != value)


def _check(name: str, value: Any, kind: Any) -> None:  # noqa: ANN401 (anything may be given, for any type)
    """Check the type of a parameter against its option: a choice, an integer, or a number."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if value is None and type(None) in kinds:
        return
    if choices := [each for part in kinds for each in get_args(part)]:
        if value not in choices:
            expected = ("None, or " if type(None) in kinds else "") + f"one of: {', '.join(map(repr, choices))}"
            raise ConfigError(f"{name} is {value!r}. Expected {expected}.")
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name} is {describe_value(value)}. Expected a number.")
    elif float not in kinds and not isinstance(value, int):
        raise ConfigError(f"{name} is {value!r}. Expected a whole number.")


def _to_python(value: Any) -> Any:  # noqa: ANN401
    """Convert a numpy scalar, as a parameter grid may contain, to a Python number."""
    return value.item() if isinstance(value, np.generic) else value


@contextmanager
def _parameter_names() -> Iterator[None]:
    """Replace flags by parameter names in error messages, and raise a `ValueError`, as scikit-learn does."""
    try:
        yield
    except UserError as error:
        raise ConfigError(re.sub(r"--([a-z-]+)", lambda found: found[1].replace("-", "_"), str(error))) from error
