"""TextClassifier: what scikit-learn expects of an estimator, on texts."""

from __future__ import annotations

import copy
import inspect
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks, get_tags
from sklearn.utils.validation import check_is_fitted

import rehead
from rehead import TextClassifier
from rehead.cli import main
from rehead.errors import DamagedError, UserError
from rehead.finetune.fit import fit_classifier
from rehead.finetune.options import FitOptions
from rehead.runs.run import Run, load, save
from rehead.runs.scoring import class_logits, class_probabilities
from tests.finetune.conftest import MakeBase
from tests.finetune.sets import multilabel, reviews

pytestmark = pytest.mark.usefixtures("quick_search")
TEXTS, LABELS = reviews(40).texts, [label for (label,) in reviews(40).labels]
NEW, TRUE = reviews(20, 5).texts, [label for (label,) in reviews(20, 5).labels]


@pytest.fixture
def base(make_base: MakeBase) -> Run:
    return make_base()


@pytest.fixture
def quick(base: Run) -> TextClassifier:
    """One that is fitted in a moment."""
    return TextClassifier(base, freeze="base")


# Those of scikit-learn's checks that ask nothing of the input.
CHECKS = (
    "check_estimator_cloneable",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_estimator_repr",
    "check_no_attributes_set_in_init",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_mixin_order",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
)
# Those that make a table of their own, and are done below on texts.
ON_TEXTS = (
    "check_fit_score_takes_y",
    "check_estimators_overwrite_params",
    "check_dont_overwrite_parameters",
    "check_estimators_fit_returns_self",
    "check_estimators_unfitted",
    "check_fit_check_is_fitted",
    "check_fit_idempotent",
    "check_dict_unchanged",
    "check_estimators_pickle",
    "check_pipeline_consistency",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_requires_y_none",
    "check_supervised_y_2d",
    "check_supervised_y_no_nan",
    "check_classifiers_one_label",
    "check_classifiers_classes",
    "check_classifiers_regression_target",
    "check_decision_proba_consistency",
    "check_estimators_empty_data_messages",
    "check_class_weight_classifiers",
)


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_finds_nothing_wrong(name: str) -> None:
    check = getattr(estimator_checks, name)
    if "estimator_orig" not in inspect.signature(check).parameters:
        check("TextClassifier", TextClassifier())
    else:
        check("TextClassifier", estimator_orig=TextClassifier())


def test_the_checks_are_those_there_are() -> None:
    assert all(hasattr(estimator_checks, name) for name in ON_TEXTS)
    assert not set(CHECKS) & set(ON_TEXTS)


def test_tags() -> None:
    tags = get_tags(TextClassifier())
    assert is_classifier(TextClassifier())
    assert tags.input_tags.string
    assert tags.input_tags.one_d_array
    assert not tags.input_tags.two_d_array
    assert not tags.input_tags.sparse
    assert tags.classifier_tags.multi_class
    assert tags.classifier_tags.multi_label
    assert tags.target_tags.required


def test_nothing_is_predicted_before_it_is_fitted(quick: TextClassifier, tmp_path: Path) -> None:
    for method in (quick.predict, quick.predict_proba, quick.decision_function):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            method(NEW)
    with pytest.raises(NotFittedError):
        quick.save(tmp_path / "run")
    with pytest.raises(NotFittedError):
        check_is_fitted(quick)
    assert quick.fit(TEXTS, LABELS) is quick
    check_is_fitted(quick)


@pytest.mark.parametrize("freeze", [None, "base", "layers", "none"])
def test_it_is_what_fit_classifier_makes(base: Run, freeze: Any) -> None:
    """The base and the random state of the caller stay as they were."""
    epochs = None if freeze == "base" else 1
    data, options = reviews(40), FitOptions(freeze=freeze, epochs=epochs, seed=3)
    for place in range(len(data)):
        data.sources[place] = ("X", place)
    before, state = copy.deepcopy(base.model.state_dict()), torch.get_rng_state()
    made = TextClassifier(base, freeze=freeze, epochs=epochs, seed=3).fit(TEXTS, LABELS)
    assert torch.equal(torch.get_rng_state(), state)
    expected = fit_classifier(data, None, base=base, options=options).run
    np.testing.assert_allclose(made.predict_proba(NEW), class_probabilities(expected, NEW), atol=1e-6)
    assert made.run_.details["options"]["seed"] == 3
    for name, tensor in base.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_what_is_predicted_hangs_together(quick: TextClassifier) -> None:
    quick.fit(TEXTS, LABELS)
    shares, scores, guess = quick.predict_proba(NEW), quick.decision_function(NEW), quick.predict(NEW)
    np.testing.assert_allclose(shares.sum(1), 1, atol=1e-12)
    np.testing.assert_array_equal(guess, quick.classes_[shares.argmax(1)])
    np.testing.assert_array_equal(guess, quick.classes_[(scores > 0).astype(int)])
    np.testing.assert_allclose(shares[:, 1], 1 / (1 + np.exp(-scores)), atol=1e-6)
    assert quick.score(NEW, TRUE) == accuracy_score(TRUE, guess) > 0.8
    order = np.random.RandomState(0).permutation(len(NEW))
    np.testing.assert_allclose(quick.predict_proba([NEW[each] for each in order]), shares[order], atol=1e-6)
    one_by_one = np.concatenate([quick.predict_proba([text]) for text in NEW])
    np.testing.assert_allclose(one_by_one, shares, atol=1e-6)
    assert quick.predict([]).shape == (0,)
    assert quick.predict([""])[0] in ("bad", "good")


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["bad", "good"], np.array(["bad", "good"])),
        ([7, -2], np.array([-2, 7])),
        ([True, False], np.array([False, True])),
        ([np.float32(1), np.float32(0)], np.array([0, 1], np.float32)),
        (np.array(["y", "x"], object), np.array(["x", "y"], object)),
        (["", "full"], np.array(["", "full"])),
    ],
    ids=["str", "int", "bool", "float", "object", "empty name"],
)
def test_labels_of_any_kind(quick: TextClassifier, tmp_path: Path, labels: Any, classes: Any) -> None:
    given = np.array([labels[int(name == "good")] for name in LABELS], np.asarray(labels).dtype)
    state = given.copy()
    quick.fit(np.array(TEXTS), given)
    np.testing.assert_array_equal(given, state)
    np.testing.assert_array_equal(quick.classes_, classes)
    assert quick.classes_.dtype == classes.dtype
    guess = quick.predict(NEW)
    assert guess.dtype == classes.dtype
    assert (guess == [labels[int(name == "good")] for name in TRUE]).mean() > 0.8
    quick.save(tmp_path / "run")
    again = TextClassifier.load(tmp_path / "run")
    assert again.classes_.dtype == classes.dtype
    np.testing.assert_array_equal(again.predict(NEW), guess)


def test_three_classes(base: Run) -> None:
    data = reviews(60, names=("bad", "good", "so"))
    labels = [label for (label,) in data.labels]
    made = TextClassifier(base, freeze="base").fit(data.texts, labels)
    scores = made.decision_function(NEW)
    assert scores.shape == (20, 3)
    np.testing.assert_array_equal(made.classes_[scores.argmax(1)], made.predict(NEW))
    assert made.score(data.texts, labels) > 0.8


def test_several_labels(base: Run, tmp_path: Path) -> None:
    data = multilabel(120)
    table = np.array([[name in labels for name in data.names] for labels in data.labels]).astype(int)
    made = TextClassifier(base, freeze="base").fit(data.texts, table)
    assert made.classes_.tolist() == [0, 1, 2]
    expected = fit_classifier(data, None, base=base, options=FitOptions(freeze="base")).run
    np.testing.assert_allclose(made.predict_proba(NEW), class_probabilities(expected, NEW), atol=1e-6)
    guess = made.predict(data.texts)
    thresholds = made.run_.details["thresholds"]
    assert thresholds == expected.details["thresholds"]
    assert any(each != 0.5 for each in thresholds)  # else the next lines show little
    np.testing.assert_array_equal(guess, made.predict_proba(data.texts) >= thresholds)
    np.testing.assert_array_equal(guess, made.decision_function(data.texts) >= 0)
    assert made.score(data.texts, table) == (guess == table).all(1).mean() > 0.4
    made.save(tmp_path / "run")
    np.testing.assert_array_equal(TextClassifier.load(tmp_path / "run").predict(data.texts), guess)


def test_tables_of_pandas_and_scipy(base: Run) -> None:
    pandas = pytest.importorskip("pandas")
    from scipy import sparse

    data = multilabel(60)
    table = np.array([[name in labels for name in data.names] for labels in data.labels]).astype(int)
    frame = pandas.DataFrame(table, columns=data.names)
    texts = pandas.Series(data.texts, index=range(100, 160))
    made = TextClassifier(base, freeze="base")
    expected = made.fit(data.texts, table).predict(NEW)
    np.testing.assert_array_equal(made.fit(texts, sparse.csr_matrix(table)).predict(NEW), expected)
    np.testing.assert_array_equal(made.fit(texts, frame).predict(pandas.Series(NEW)), expected)
    assert made.classes_.tolist() == made.run_.labels == data.names
    labels = pandas.Series(LABELS, index=range(40, 80), dtype="category")
    assert made.fit(pandas.Series(TEXTS), labels).classes_.tolist() == ["bad", "good"]


def test_what_is_no_text_is_refused(quick: TextClassifier) -> None:
    two = LABELS[:2]
    for texts, why in (
        ([b"a", b"b"], r"X\[0\] is bytes"),
        (["a", 3.5], r"X\[1\] is 3.5 \(of type float\)"),
        (["a", None], r"X\[1\] is None"),
        (["a", float("nan")], r"X\[1\] is nan"),
        (np.array([["a", "b"], ["c", "d"]]), r"X has the shape \(2, 2\)"),
        (np.zeros((2, 3)), r"Reshape your data"),
        ([["a"], ["b"]], r"X\[0\] is \['a'\]"),
        ("ab", "X is a single text"),
        (5, r"X is 5 \(of type int\)"),
        ([], r"at least 1 is required"),
    ):
        with pytest.raises(ValueError, match=why):
            quick.fit(texts, two)
    quick.fit(TEXTS, LABELS)
    with pytest.raises(ValueError, match="X is a single text"):
        quick.predict("one text")


def test_what_are_no_labels_is_refused(quick: TextClassifier) -> None:
    for labels, why in (
        (None, "requires y to be passed, but the target y is None"),
        (LABELS[:-1], "inconsistent numbers of samples: X has 40 texts, y has 39"),
        (["bad"] * 40, "one class, .*'bad'"),
        ([*LABELS[:-1], None], "y contains NaN"),
        ([1.0, float("nan")] * 20, "y contains NaN"),
        (np.linspace(0, 1, 40), "Unknown label type"),
        ([["bad"], ["good", "bad"]] * 20, "MultiLabelBinarizer"),
        (np.array([[0, 1, 2]] * 40), "should be a 1d array"),
    ):
        with pytest.raises(ValueError, match=why):
            quick.fit(TEXTS, labels)
    with pytest.warns(DataConversionWarning):
        quick.fit(TEXTS, np.array(LABELS)[:, None])


def test_parameters_are_refused_when_it_is_fitted_by_their_name(base: Run, tmp_path: Path) -> None:
    for parameters, why in (
        ({"freeze": "all"}, "freeze is 'all'. Expected None, or one of: 'base'"),
        ({"class_weight": "some"}, "class_weight is 'some'. Expected None, or one of: 'balanced'"),
        ({"freeze": "base", "long": "middle"}, "long is 'middle'. Expected None, or one of: 'head'"),
        ({"freeze": "base", "epochs": 3}, "^epochs applies to training by gradient descent, which freeze base"),
        ({"patience": 2}, "^patience needs a validation set"),
        ({"seed": 0.5}, "seed is 0.5. Expected a whole number"),
        ({"batch": 100.0, "freeze": "none"}, "batch is 100.0. Expected a whole number"),
        ({"seed": None}, "seed is None"),
        ({"epochs": True}, "epochs is True"),
        ({"epochs": -1, "freeze": "none"}, "epochs -1: must be above 0"),
        ({"layer_decay": 2.0}, "^layer_decay 2"),
        ({"lr": 3.0}, "^lr 3: .* lr_scale"),
        ({"lr": 1e-3, "lr_scale": 2.0}, "^lr 0.001 and lr_scale 2"),
        ({"epochs": "3"}, r"epochs is '3' \(of type str\). Expected a number"),
        ({"freeze": "base", "unlabelled": ["a"]}, "unlabelled .* freeze is None"),
        ({"unlabelled": "some text"}, "some text"),
        ({"base": tmp_path / "nothing"}, "no such run"),
        ({"base": 3}, r"base is 3 \(of type int\)"),
    ):
        with pytest.raises(ValueError, match=why):
            TextClassifier(**{"base": base, **parameters}).fit(TEXTS, LABELS)


def test_the_seed_alone_decides(base: Run) -> None:
    def shares(seed: int, chance: int) -> Any:
        torch.manual_seed(chance)
        return TextClassifier(base, freeze="none", epochs=1, seed=seed).fit(TEXTS, LABELS).predict_proba(NEW)

    np.testing.assert_array_equal(shares(0, 1), shares(0, 2))
    assert not np.array_equal(shares(0, 1), shares(1, 1))


def test_fitting_again_forgets(quick: TextClassifier) -> None:
    first = quick.fit(TEXTS, LABELS).predict_proba(NEW)
    before = quick.get_params()
    assert not np.array_equal(quick.fit(NEW, TRUE).predict_proba(NEW), first)
    np.testing.assert_array_equal(quick.fit(TEXTS, LABELS).predict_proba(NEW), first)
    assert all(quick.get_params()[name] is value for name, value in before.items())


def test_clone_and_pickle(quick: TextClassifier) -> None:
    quick.fit(TEXTS, LABELS)
    expected = quick.predict_proba(NEW)
    other = clone(quick)
    assert not hasattr(other, "run_")
    np.testing.assert_array_equal(other.fit(TEXTS, LABELS).predict_proba(NEW), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(quick)).predict_proba(NEW), expected)


def test_in_a_pipeline(quick: TextClassifier) -> None:
    expected = clone(quick).fit(TEXTS, LABELS).predict_proba(NEW)
    np.testing.assert_array_equal(make_pipeline(clone(quick)).fit(TEXTS, LABELS).predict_proba(NEW), expected)
    shout = FunctionTransformer(lambda texts: [text.upper() for text in texts])
    pipeline = Pipeline([("shout", shout), ("classify", quick)])
    # The tokenizer has no capitals.
    np.testing.assert_array_equal(pipeline.fit(TEXTS, LABELS).predict_proba(NEW), expected)
    assert pipeline.score(NEW, TRUE) > 0.8


def test_in_searches_and_cross_validation(quick: TextClassifier, base: Run) -> None:
    assert cross_val_score(quick, TEXTS, LABELS, cv=3).mean() > 0.8
    given = {"classify__class_weight": [None, "balanced"], "classify__base": [base]}
    search = GridSearchCV(Pipeline([("classify", quick)]), given, cv=2).fit(TEXTS, LABELS)
    assert search.best_score_ > 0.7
    assert search.predict(NEW).tolist() == search.best_estimator_.predict(NEW).tolist()
    shares = cross_val_predict(quick, TEXTS, LABELS, cv=2, method="predict_proba")
    assert ((shares[:, 1] > 0.5) == (np.array(LABELS) == "good")).mean() > 0.7
    calibrated = CalibratedClassifierCV(quick, cv=2).fit(TEXTS, LABELS)
    assert accuracy_score(TRUE, calibrated.predict(NEW)) > 0.7


def test_labels_that_say_nothing_give_chance(quick: TextClassifier) -> None:
    mixed = np.array(LABELS * 3)[np.random.RandomState(0).permutation(120)]
    texts = reviews(120, 8).texts
    assert abs(cross_val_score(quick, texts, mixed, cv=3).mean() - 0.5) < 0.17
    shares = quick.fit(texts, mixed).predict_proba(NEW)
    assert abs(shares - 0.5).mean() < 0.2


def test_class_weight(quick: TextClassifier) -> None:
    rare = [each for each, label in enumerate(LABELS) if label == "bad" or each < 8]
    texts, labels = [TEXTS[each] for each in rare], [LABELS[each] for each in rare]
    hard = [" ".join(text.split()[:6]) for text in NEW]
    plain = quick.fit(texts, labels).predict_proba(hard)[:, 1].mean()
    assert quick.set_params(class_weight="balanced").fit(texts, labels).predict_proba(hard)[:, 1].mean() > plain


def test_self_training_from_a_list_or_a_file(base: Run, tmp_path: Path) -> None:
    more = reviews(100, 9).texts
    (tmp_path / "more.txt").write_text("\n".join(more), encoding="utf-8")
    one = TextClassifier(base, unlabelled=more).fit(TEXTS, LABELS)
    assert any(step["name"] == "self-training" for step in one.run_.details["candidates"])
    two = TextClassifier(base, unlabelled=tmp_path / "more.txt").fit(TEXTS, LABELS)
    np.testing.assert_array_equal(one.predict_proba(NEW), two.predict_proba(NEW))


def test_it_is_saved_as_a_run(quick: TextClassifier, base: Run, tmp_path: Path, capsys: Any) -> None:
    save(base, tmp_path / "base")
    made = TextClassifier(tmp_path / "base", freeze="base", seed=np.int64(2), unlabelled=None).fit(TEXTS, LABELS)
    details = copy.deepcopy(made.run_.details)
    made.save(tmp_path / "run")
    assert made.run_.details == details
    again = TextClassifier.load(tmp_path / "run")
    assert again.get_params() == {**made.get_params(), "base": str(tmp_path / "base")}
    np.testing.assert_array_equal(again.predict_proba(NEW), made.predict_proba(NEW))
    np.testing.assert_array_equal(again.fit(TEXTS, LABELS).predict_proba(NEW), made.predict_proba(NEW))
    (tmp_path / "new.csv").write_text(
        "text,label\n" + "".join(f"{text},{label}\n" for text, label in zip(NEW, TRUE, strict=True)), encoding="utf-8"
    )
    assert main(["evaluate", str(tmp_path / "run"), str(tmp_path / "new.csv"), "--json"]) == 0
    assert f'"accuracy": {made.score(NEW, TRUE)}' in capsys.readouterr().out
    with pytest.raises(UserError):
        made.save(tmp_path / "run")
    made.save(tmp_path / "run", overwrite=True)
    # Of a base that is in memory only, the run itself is what to begin with.
    quick.fit(TEXTS, LABELS).save(tmp_path / "other")
    other = TextClassifier.load(tmp_path / "other")
    expected = quick.predict_proba(NEW)
    np.testing.assert_allclose(other.fit(TEXTS, LABELS).predict_proba(NEW), expected, atol=1e-6)


def test_parameters_that_were_saved_under_older_names(quick: TextClassifier, tmp_path: Path) -> None:
    """`lr` was a multiple of the default learning rates, and `class_weights` had the choice "none"."""
    quick.fit(TEXTS, LABELS).save(tmp_path / "run")
    for older, today in (
        ({"lr": 3.0, "class_weights": "balanced"}, (None, 3.0, "balanced")),
        ({"lr": 1.0, "class_weights": "none"}, (None, 1.0, None)),
        ({"lr": 2e-5, "lr_scale": 1.0, "class_weight": "balanced"}, (2e-5, 1.0, "balanced")),
    ):
        run = load(tmp_path / "run")
        run.details["estimator"]["params"] = {"base": "runs/base", "seed": 4, **older}
        save(run, tmp_path / "older", overwrite=True)
        loaded = TextClassifier.load(tmp_path / "older")
        assert (loaded.lr, loaded.lr_scale, loaded.class_weight) == today
        assert (loaded.base, loaded.seed) == ("runs/base", 4)


def test_what_is_loaded(quick: TextClassifier, base: Run, tmp_path: Path) -> None:
    quick.fit(TEXTS, LABELS)
    save(quick.run_, tmp_path / "plain")
    assert TextClassifier.load(tmp_path / "plain").predict(NEW).tolist() == quick.predict(NEW).tolist()
    save(base, tmp_path / "base")
    with pytest.raises(UserError, match="not a classifier"):
        TextClassifier.load(tmp_path / "base")
    for number, odd in enumerate(
        (
            [1],
            {"classes": [1, 2, 3], "dtype": "<i8"},
            {"classes": [1, 2], "dtype": "V8"},
            {"x": 1},
            {"classes": [1, 2], "dtype": "<i8", "params": None},
        )
    ):
        run = load(tmp_path / "plain")
        run.details["estimator"] = odd
        save(run, tmp_path / str(number))
        with pytest.raises(DamagedError, match=r"estimator(: params)? is"):
            TextClassifier.load(tmp_path / str(number))


def test_public_names(tmp_path: Path, base: Run) -> None:
    assert rehead.TextClassifier is TextClassifier
    save(base, tmp_path / "base")
    (tmp_path / "train.csv").write_text(
        "text,label\n" + "".join(f"{text},{label}\n" for text, label in zip(TEXTS, LABELS, strict=True)),
        encoding="utf-8",
    )
    run = rehead.finetune(tmp_path / "train.csv", base=tmp_path / "base", out=tmp_path / "run", quiet=True)
    np.testing.assert_array_equal(class_logits(load(tmp_path / "run"), NEW), class_logits(run, NEW))
    assert run.details["method"] == "recipe"
    with pytest.raises(UserError, match=r"finetune has no option 'epoch'. It has: "):
        rehead.finetune(tmp_path / "train.csv", base=tmp_path / "base", out=tmp_path / "two", epoch=3)
    assert callable(rehead.pretrain)
