"""A scikit-learn estimator: texts and labels in, a classifier out.

    classifier = TextClassifier("runs/base").fit(texts, labels)
    classifier.predict(["What a film!"])

It is what `rehead finetune --from` makes, behind scikit-learn's own words, so it goes where these go: `Pipeline`,
`GridSearchCV`, `cross_val_score`, `clone`, `pickle`. `save` writes a run that `rehead evaluate` reads.

Of scikit-learn's estimator checks, those apply that ask nothing of the input, and those of labels; tests run both, the
latter on texts. The others hand over a table of numbers, which is no text and is refused: all on dtypes, sparse and
memory-mapped matrices, feature names and their count, one sample or one feature of a table, NaN and infinity in it,
and sample weights, which are not taken.
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
from rehead.finetune.measures import guesses
from rehead.finetune.options import FitOptions, Freeze, check_fit, check_use
from rehead.finetune.run import sample_texts
from rehead.model.config import Classifier
from rehead.runs.run import Run, load, save
from rehead.runs.scoring import class_logits, class_probabilities
from rehead.text.documents import LabelledData, describe_value
from rehead.text.long_documents import LongRule
from rehead.text.readers import Texts

if TYPE_CHECKING:
    from numpy.typing import NDArray

KINDS = "OUSbiuf"  # of numpy's types, those that classes can have
KEPT = "estimator"  # where a saved run says what its classes are, and how the estimator was made


class TextClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Classify texts with a pretrained base.

    The parameters are those of `rehead finetune`; left out, what to train is found by cross-validation. With several
    labels per text, `y` is a table of 0 and 1 with a column for each label, and so is what `predict` gives.

    base : path of a run that `rehead pretrain` made, or a `Run`. It is never changed.
    freeze : None (cross-validation decides), "base" (a linear classifier on it), "layers", "embeddings" or "none".
    unlabelled : texts without labels, or the path of a file of them, for self-training where that helps.
    epochs, batch, length, long, dropout, unfreeze, layer_decay, patience : see `rehead finetune --help`.
    lr : learning rate of the head and the layers (AdamW); None: the default, by the model's width.
    lr_scale : multiply the default learning rates by this; not together with `lr`.
    class_weight : None, or "balanced": weights by inverse frequency, over the classes present.
    seed : random seed; the same seed gives the same classifier.
    verbose : whether what is found out is printed.

    Fitted: `classes_`; `run_`, the classifier itself; `notes_`, what you should know, a sentence each; `curve_`, what
    validation found epoch by epoch, where the base was trained.
    """

    classes_: NDArray[Any]
    run_: Run
    notes_: list[str]
    curve_: list[Point]

    def __init__(
        self,
        base: str | Path | Run = "runs/base",
        *,
        freeze: Freeze | None = None,
        unlabelled: Sequence[str] | str | Path | None = None,
        epochs: float | None = None,
        batch: int | None = None,
        length: int | None = None,
        long: LongRule | None = None,
        dropout: float | None = None,
        class_weight: Literal["balanced"] | None = None,
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
        self.batch = batch
        self.length = length
        self.long = long
        self.dropout = dropout
        self.class_weight = class_weight
        self.unfreeze = unfreeze
        self.layer_decay = layer_decay
        self.patience = patience
        self.lr = lr
        self.lr_scale = lr_scale
        self.seed = seed
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> TextClassifier:  # noqa: ANN401, N803 (scikit-learn's names)
        """Learn from texts (N,) and their labels: (N,), or a table of 0 and 1 (N, K)."""
        with _plain_names():
            data, classes = _examples(check_texts(X), y)
            fitted = self._fit(data)
        self.classes_, self.run_, self.notes_, self.curve_ = classes, fitted.run, fitted.notes, fitted.curve
        return self

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: ANN401, N803
        """Give the class of each text (N,), or a table of 0 and 1 (N, K) where texts have several labels."""
        multilabel = self._multilabel()
        guess = guesses(self.predict_proba(X), multilabel=multilabel, thresholds=self._thresholds())
        found: NDArray[Any] = guess.astype(np.int64) if multilabel else self.classes_[guess]
        return found

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: ANN401, N803
        """Give the probability of each class: (N, K). They sum to 1, unless texts have several labels."""
        check_is_fitted(self)
        found = class_probabilities(self.run_, check_texts(X, least=0)).astype(np.float64)
        if not self._multilabel():  # to the last digit
            found /= found.sum(1, keepdims=True)
        return found

    def decision_function(self, X: Any) -> NDArray[np.float64]:  # noqa: ANN401, N803
        """Give the score of each class (N, K); of two classes, how much the second is above the first (N,).

        Where texts have several labels, those above 0 are given.
        """
        check_is_fitted(self)
        scores = class_logits(self.run_, check_texts(X, least=0)).astype(np.float64)
        if self._multilabel():
            thresholds = self._thresholds()
            return scores if thresholds is None else scores - np.log(thresholds / (1 - thresholds))
        found: NDArray[np.float64] = scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores
        return found

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the fitted classifier as a run, which `TextClassifier.load` and `rehead evaluate` read."""
        check_is_fitted(self)
        made = {name: _own(value) for name, value in self.get_params().items() if name not in ("base", "unlabelled")}
        base = str(self.base) if isinstance(self.base, str | Path) else None
        kept = {"classes": self.classes_.tolist(), "dtype": self.classes_.dtype.str, "params": {"base": base, **made}}
        return save(
            dataclasses.replace(self.run_, details={**self.run_.details, KEPT: kept}), path, overwrite=overwrite
        )

    @classmethod
    def load(cls, path: str | Path) -> TextClassifier:
        """Read a classifier that `save` or `rehead finetune` wrote.

        One that was made of a `Run` in memory has this run as its base: fitted again, it begins with that.
        """
        run = load(path)
        if run.labels is None:
            raise UserError(f"{path} is no classifier: it has no labels. Make one with fit and save.")
        kept = run.details.get(KEPT, {})
        made = _params_of_today(kept.get("params", {}) if isinstance(kept, dict) else {})
        known = cls._get_param_names()
        loaded = cls(**{name: value for name, value in made.items() if name in known and name != "base"})
        loaded.base = made.get("base") or str(path)
        loaded.classes_ = _classes_again(kept, run.labels, path)
        loaded.run_, loaded.notes_, loaded.curve_ = run, [], []
        return loaded

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401 (scikit-learn has no types)
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = tags.input_tags.string = True
        tags.input_tags.two_d_array = tags.input_tags.sparse = False
        tags.classifier_tags.multi_label = True
        return tags

    def _fit(self, data: LabelledData) -> Fitted:
        options = self._options()
        base = self.base if isinstance(self.base, Run) else load(self.base)

        def say(line: str) -> None:
            if self.verbose:
                print(line)

        with torch.random.fork_rng(devices=[]):  # whoever calls may use chance of their own
            if self.freeze is not None and self.unlabelled is not None:
                raise ConfigError(f"unlabelled is for self-training, where freeze is None, not {self.freeze!r}.")
            return fit_classifier(data, None, base=base, options=options, unlabelled=self._unlabelled(), say=say)

    def _options(self) -> FitOptions:
        """Collect the options of training; refuse what they cannot be."""
        if not isinstance(self.base, str | Path | Run):
            raise ConfigError(f"base is {describe_value(self.base)}. Expected the path of a run, or a Run.")
        kinds = get_type_hints(FitOptions)
        given = {name: _own(value) for name, value in self.get_params(deep=False).items() if name in kinds}
        for name, value in given.items():
            _check(name, value, kinds[name])
        options = FitOptions(**given)
        check_fit(options)
        check_use(options)
        return options

    def _unlabelled(self) -> list[str] | None:
        if self.unlabelled is None:
            return None
        if isinstance(self.unlabelled, str | Path):
            return sample_texts(Texts([str(self.unlabelled)]), self.seed)
        return check_texts(self.unlabelled, "unlabelled", least=0)

    def _multilabel(self) -> bool:
        check_is_fitted(self)
        head = self.run_.model.head_config
        return isinstance(head, Classifier) and head.multilabel

    def _thresholds(self) -> NDArray[np.float64] | None:
        found = self.run_.details.get("thresholds")
        return None if found is None else np.array(found, np.float64)


def check_texts(texts: Any, name: str = "X", *, least: int = 1) -> list[str]:  # noqa: ANN401 (anything may be given)
    """Make a list of texts of what was given, or say what it is instead."""
    if isinstance(texts, str | bytes):
        raise ConfigError(f"{name} is one text. Expected a list of texts: put it into brackets.")
    if len(shape := getattr(texts, "shape", (0,))) != 1:
        raise ConfigError(
            f"{name} has the shape {tuple(shape)}. Expected one row of texts: Reshape your data, or choose a column."
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
            raise ConfigError(f"{name}[{place}] is {text!r}: a text is missing. Take it out, or put '' there.")
        raise ConfigError(f"{name}[{place}] is {describe_value(text)}. Expected str.")
    if len(found) < least:
        raise ConfigError(f"{name} has {len(found)} texts (shape=({len(found)},)), but at least {least} is required.")
    return [str(each) for each in found]


def _examples(texts: list[str], y: Any) -> tuple[LabelledData, NDArray[Any]]:  # noqa: ANN401
    """Put texts and labels together: the labelled set, and the classes as they were given."""
    if y is None:
        raise ConfigError("TextClassifier requires y to be passed, but the target y is None.")
    columns = getattr(y, "columns", None)
    if hasattr(y, "toarray"):
        y = y.toarray()
    try:
        table = np.asarray(y)
    except ValueError:  # rows of different length
        raise ConfigError(
            "y is a list of lists. Expected a label for each text, or a table of 0 and 1 with a column for each label, "
            "as scikit-learn's MultiLabelBinarizer makes it."
        ) from None
    if table.dtype.kind in "Of" and any(_missing(each) for each in table.ravel()):
        raise ConfigError("Input y contains NaN, or None: a label is missing. Take out what has none.")
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
            raise ConfigError(f"y has one class only, {short_repr(classes[0])}. Expected two classes at least.")
        names = _names(classes)
        labels = [(names[each],) for each in numbers]
    multilabel = type_of_target(y).startswith("multilabel")
    return LabelledData(texts, labels, names, multilabel, [("X", place) for place in range(len(texts))]), classes


def _names(classes: NDArray[Any]) -> list[str]:
    """Name classes, each otherwise than the rest."""
    names = [str(each) for each in classes.tolist()]
    if all(names) and len(set(names)) == len(names):
        return names
    return [repr(each) for each in classes.tolist()]


def _classes_again(kept: object, names: list[str], path: str | Path) -> NDArray[Any]:
    """Find the classes of a run as they were given to `fit`; of one that `rehead finetune` made, their names."""
    if not kept:
        return np.array(names)
    try:
        found = np.array(kept["classes"], kept["dtype"])  # type: ignore[index]  # of what is no dict, we hear
    except (KeyError, TypeError, ValueError):
        found = np.zeros(0)
    if found.dtype.kind not in KINDS or found.shape != (len(names),):
        raise DamagedError(f"{path}: details: {KEPT} is {short_repr(kept)}. Expected classes for {len(names)} labels.")
    return found


def _params_of_today(made: dict[str, Any]) -> dict[str, Any]:
    """Translate the parameters of a classifier saved before `lr_scale`: its `lr` was that multiple."""
    made = dict(made)
    if "lr" in made and "lr_scale" not in made:
        made["lr_scale"] = made.pop("lr")
    if made.get("class_weights") == "balanced":
        made["class_weight"] = "balanced"
    return made


def _missing(value: object) -> bool:
    return value is None or (not isinstance(value, str | bytes) and bool(np.isscalar(value)) and value != value)


def _check(name: str, value: Any, kind: Any) -> None:  # noqa: ANN401 (anything may be given, for any type)
    """Refuse a parameter that is not of the type that its option has: a choice, a whole number, a number."""
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


def _own(value: Any) -> Any:  # noqa: ANN401
    """Turn a number of numpy's, as a grid of parameters may hold, into Python's."""
    return value.item() if isinstance(value, np.generic) else value


@contextmanager
def _plain_names() -> Iterator[None]:
    """Speak of parameters where messages speak of flags; what is wrong is a `ValueError`, as scikit-learn has it."""
    try:
        yield
    except UserError as error:
        raise ConfigError(re.sub(r"--([a-z-]+)", lambda found: found[1].replace("-", "_"), str(error))) from error
