"""ONNX files under onnxruntime: the same probabilities as the classifier, by the file alone."""

import json

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch

from exported_models import fitted, table
from unmix import UnmixClassifier
from unmix.core.stand_ins import UNMOVED, LogitMove
from unmix.deploy.onnx_model import onnx_model
from unmix.errors import InputError


def feed(session, rows):
    """The recipe of docs/deploy.md."""
    return {
        column.name: rows[[column.name]].to_numpy(dtype=float)
        if column.type == "tensor(double)"
        else rows[[column.name]].astype(object).fillna("").astype(str).to_numpy(dtype=object)
        for column in session.get_inputs()
    }


def run(model, rows):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(["label", "probabilities"], feed(session, rows))


def assert_same(clf, rows, model=None):
    label, probabilities = run(onnx_model(clf) if model is None else model, rows)
    expected = clf.predict_proba(rows)
    np.testing.assert_allclose(probabilities, expected, rtol=0, atol=1e-5)
    assert expected.std(axis=0).min() > 0.02  # not the same for all rows
    clear = np.sort(expected, axis=1)
    clear = clear[:, -1] - clear[:, -2] > 1e-5
    assert clear.mean() > 0.95
    assert label[clear].tolist() == clf.predict(rows)[clear].tolist()


@pytest.mark.parametrize("classes", [2, 3])
def test_rows_of_unnamed_sets_are_moved_in_the_file_too(classes):
    clf = fitted("linear", classes)
    rows, _ = table(300, np.random.default_rng(9), classes=classes, training=False)
    shift = 0.4 if classes == 2 else np.array([0.0, 0.4, -0.3])
    object.__setattr__(clf.learner_, "lone", LogitMove(0.6, shift))
    try:
        assert_same(clf, rows)
    finally:
        object.__setattr__(clf.learner_, "lone", UNMOVED)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("model", ["linear", "mlp", "boosting"])
def test_onnxruntime_says_what_the_classifier_says(model, classes):
    clf = fitted(model, classes)
    rows, _ = table(700, np.random.default_rng(9), classes=classes, training=False)
    assert_same(clf, rows)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("model", ["linear", "boosting"])
def test_the_average_over_set_effects_is_inside(model, classes):
    clf = fitted(model, classes)
    rows, _ = table(500, np.random.default_rng(9), classes=classes, training=False)
    object.__setattr__(clf.learner_, "tau", 1.5)
    assert_same(clf, rows)
    averaged = clf.predict_proba(rows)
    object.__setattr__(clf.learner_, "tau", 0.0)
    assert np.abs(clf.predict_proba(rows) - averaged).max() > 0.05
    assert_same(clf, rows)


@pytest.mark.parametrize("model", ["linear", "mlp", "boosting"])
def test_another_target_prior_is_inside(model):
    clf = fitted(model)
    rows, _ = table(300, np.random.default_rng(9), training=False)
    before = clf.predict_proba(rows)
    try:
        assert_same(clf.retarget(0.7), rows)
        assert clf.predict_proba(rows)[:, 1].mean() > before[:, 1].mean() + 0.1
    finally:
        clf.retarget(0.2)


def test_the_trees_of_these_tests_split_by_groups_of_categories():
    clf = fitted("boosting")
    dumped = json.dumps(clf.learner_.fit.booster.dump_model())
    assert '"decision_type": "=="' in dumped
    assert "||" in dumped  # groups of several categories


def test_inputs_are_the_columns_that_the_model_looks_at():
    session = onnxruntime.InferenceSession(onnx_model(fitted("linear")))
    inputs = {column.name: (column.type, column.shape) for column in session.get_inputs()}
    number, text = ("tensor(double)", ["rows", 1]), ("tensor(string)", ["rows", 1])
    assert inputs == {
        "age": number,
        "seen at": number,
        "member": number,
        "visits": number,
        "city": text,
        "code": text,
    }
    facts = session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["target_prior"]) == pytest.approx([0.8, 0.2])
    assert json.loads(facts["classes"]) == [0, 1]


def test_any_number_of_rows_is_scored():
    clf = fitted("boosting")
    rows, _ = table(5, np.random.default_rng(9), training=False)
    model = onnx_model(clf)
    for count in (1, 5):
        _, probabilities = run(model, rows.iloc[:count])
        expected = clf.predict_proba(rows.iloc[:count])
        np.testing.assert_allclose(probabilities, expected, rtol=0, atol=1e-5)


def test_only_numbers_only_text_and_an_array_are_tables_too():
    rng = np.random.default_rng(0)
    x, y = table(600, rng)
    sets = np.where(rng.random(600) < np.where(y == 1, 0.8, 0.2), "high", "low")
    priors = {s: y[sets == s].mean() for s in ("high", "low")}
    for model in ("linear", "boosting"):
        for columns in (["age", "visits"], ["city", "code"], ["city"]):
            clf = UnmixClassifier(priors, model=model, method="ssc", random_state=0)
            clf.fit(x[columns], sets)
            _, got = run(onnx_model(clf), x)
            np.testing.assert_allclose(got, clf.predict_proba(x[columns]), rtol=0, atol=1e-5)
    clf = UnmixClassifier(priors, model="linear", method="ssc", random_state=0)
    clf.fit(x[["age", "visits"]].to_numpy(), sets)
    renamed = x[["age", "visits"]].set_axis(["x0", "x1"], axis=1)
    _, got = run(onnx_model(clf), renamed)
    np.testing.assert_allclose(got, clf.predict_proba(renamed.to_numpy()), rtol=0, atol=1e-5)


def test_trees_that_never_split_are_a_model_too():
    rng = np.random.default_rng(0)
    noise = pd.DataFrame({"a": rng.normal(size=60)})
    sets = np.repeat(["high", "low"], 30)
    clf = UnmixClassifier({"high": 0.6, "low": 0.4}, model="boosting", method="ssc", random_state=0)
    clf.fit(noise, sets)
    _, got = run(onnx_model(clf), noise)
    np.testing.assert_allclose(got, clf.predict_proba(noise), rtol=0, atol=1e-5)


def test_names_of_columns_may_be_those_of_nodes():
    rng = np.random.default_rng(0)
    x, y = table(400, rng)
    sets = np.where(rng.random(400) < np.where(y == 1, 0.8, 0.2), "high", "low")
    priors = {s: y[sets == s].mean() for s in ("high", "low")}
    x = x[["age", "visits"]].set_axis(["Concat_0", "IsNaN_1"], axis=1)
    clf = UnmixClassifier(priors, model="linear", method="ssc", random_state=0).fit(x, sets)
    _, got = run(onnx_model(clf), x)
    np.testing.assert_allclose(got, clf.predict_proba(x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["label", "probabilities", ""])
def test_a_column_with_the_name_of_an_output_is_refused(name):
    rng = np.random.default_rng(0)
    x = pd.DataFrame({name: rng.normal(size=200)})
    clf = UnmixClassifier({"a": 0.7, "b": 0.2}, model="linear", method="ssc", random_state=0)
    clf.fit(x, np.repeat(["a", "b"], 100))
    with pytest.raises(InputError, match="rename it"):
        onnx_model(clf)


def test_the_empty_text_beside_missing_values_is_refused():
    rng = np.random.default_rng(0)
    words = np.array(["", "a", None], dtype=object)[rng.integers(0, 3, 200)]
    x = pd.DataFrame({"word": words, "n": rng.normal(size=200)})
    clf = UnmixClassifier({"a": 0.7, "b": 0.2}, model="linear", method="ssc", random_state=0)
    clf.fit(x, np.repeat(["a", "b"], 100))
    with pytest.raises(InputError, match="column 'word' holds the empty text"):
        onnx_model(clf)


def test_images_and_modules_are_sent_to_torch():
    rng = np.random.default_rng(0)
    priors, sets = {"a": 0.7, "b": 0.2}, np.repeat(["a", "b"], 40)

    class Line(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(3, 1)

        def forward(self, x):
            return self.inner(x)[:, 0]

    cases = [("mlp", rng.random((80, 4, 4))), (Line(), rng.normal(size=(80, 3)))]
    for model, x in cases:
        clf = UnmixClassifier(priors, model=model, method="ssc", epochs=1, random_state=0)
        with pytest.raises(InputError, match=r"torch\.onnx\.export"):
            onnx_model(clf.fit(x, sets))
