"""The wrong thing passed in Python: one clear sentence, before anything is done with it."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from unmix import UnmixClassifier
from unmix.errors import InputError

SHARES = {"a": 0.2, "b": 0.5, "c": 0.8}


def table():
    rng = np.random.default_rng(0)
    sets = np.repeat(list(SHARES), 40)
    sick = rng.random(120) < np.repeat(list(SHARES.values()), 40)
    return np.stack([rng.normal(2.0 * sick), rng.normal(size=120)], axis=1), sets


X, SETS = table()


@pytest.fixture(scope="module")
def fitted():
    return UnmixClassifier(SHARES, model="linear", method="ssc").fit(X, SETS)


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (None, "the set ids must be one column"),
        (3, "the set ids must be one column"),
        ("abc", "the set ids must be one column"),
        (np.stack([SETS, SETS], axis=1), "the set ids must be one column"),
        ([["a"]] * 120, "the set ids must be text or numbers"),
        ([{}] * 120, "the set ids must be text or numbers"),
        (SETS[:-1], "119"),
        ([None] * 120, "row 1 has no set"),
        (["z"] * 120, "no prior"),
    ],
)
@pytest.mark.parametrize("name", ["evaluate", "score", "prevalence"])
def test_sets_that_are_no_column_of_ids_are_told(fitted, name, sets, words):
    if name == "prevalence" and (sets is None or "prior" in words):
        return  # sets of rows that nobody knows are what it is for
    with pytest.raises(InputError, match=words):
        getattr(fitted, name)(X, sets)


@pytest.mark.parametrize(
    "shares",
    [0.5, "x", "rates.csv", [0.2, 0.5, 0.8], np.array([0.2, 0.5, 0.8]), len, dict, {1, 2}],
)
def test_shares_that_are_no_mapping_are_told(shares):
    with pytest.raises(InputError, match="must be a mapping from set to share"):
        UnmixClassifier(shares, model="linear").fit(X, SETS)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": []}, "method"),
        ({"method": "SSC"}, "did you mean ssc"),
        ({"model": "forest"}, "model"),
        ({"target_prior": [0.2, 0.7]}, "target_prior"),
        ({"target_prior": float("nan")}, "target_prior"),
        ({"l2": -1}, "l2"),
        ({"l2": "x"}, "l2"),
        ({"epochs": 1.5}, "epochs"),
        ({"held_out": 1}, "held_out"),
        ({"prior_error": 5}, "prior_error"),
        ({"hidden": (0, 1), "model": "mlp"}, "hidden"),
        ({"engine": "x"}, "engine"),
    ],
)
def test_arguments_of_the_constructor_are_checked_by_fit(options, words):
    with pytest.raises(InputError, match=words):
        UnmixClassifier(SHARES, **({"model": "linear", "method": "ssc"} | options)).fit(X, SETS)


@pytest.mark.parametrize(
    "use",
    [
        lambda clf: clf.predict(X),
        lambda clf: clf.predict_proba(X),
        lambda clf: clf.score(X, SETS),
        lambda clf: clf.evaluate(X, SETS),
        lambda clf: clf.prevalence(X, SETS),
        lambda clf: clf.drift(X),
        lambda clf: clf.diagnose(),
        lambda clf: clf.judge(),
        lambda clf: clf.summary(),
        lambda clf: clf.report("report.html"),
        lambda clf: clf.plot_shares(),
        lambda clf: clf.plot_gain(),
        lambda clf: clf.plot_history(),
        lambda clf: clf.plot_roc(X, SETS),
        lambda clf: clf.coef_interval(),
        lambda clf: clf.save("model"),
        lambda clf: clf.export("model.onnx"),
        lambda clf: clf.retarget(0.5),
        lambda clf: clf.coef_,
        lambda clf: clf.classes_,
    ],
)
def test_what_is_not_fitted_says_so(use, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        use(UnmixClassifier(SHARES))
    assert list(tmp_path.iterdir()) == []


def test_what_a_kind_of_model_does_not_have_is_no_missing_fit(fitted):
    assert not hasattr(fitted, "feature_names_in_")
    trees = copy.copy(fitted)
    trees.learner_ = replace(fitted.learner_, fit=object())
    with pytest.raises(AttributeError, match="a model of kind linear has no weights"):
        trees.coef_
    assert copy.deepcopy(fitted).predict(X).shape == (120,)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.zeros((120, 2)), "labels must be one column; got an array of 2 dimensions"),
        (3, "labels must be one column"),
        (["q"] * 120, "no class of the model"),
        ([None] * 120, "has no label"),
        ([0] * 119, "119"),
    ],
)
def test_labels_that_do_not_fit_are_told(fitted, labels, words):
    with pytest.raises(InputError, match=words):
        fitted.evaluate(X, SETS, labels=labels)


@pytest.mark.parametrize("frame", [X[:, :1], X[0], "rows", None])
def test_rows_of_another_form_are_told_in_a_sentence(fitted, frame):
    with pytest.raises(ValueError, match=r"array|features|rows|columns"):
        fitted.predict(frame)
