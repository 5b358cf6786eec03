"""A model folder may come from a stranger: it is read, or refused in one line, and nothing else."""

import functools
import json
import os
import shutil
import warnings

import lightgbm
import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file

from mutated_models import generator, mutate, sign
from test_estimator import label_shift
from unmix import UnmixClassifier
from unmix.errors import InputError
from unmix.learn.saved import MANIFEST
from unmix.learn.tree_text import checked_trees

MODELS = {"linear": {}, "boosting": {}, "mlp": {"hidden": (2, 16), "epochs": 2}}
MUTATED = 120


@functools.lru_cache
def table():
    x, sets, _, priors = label_shift(num_sets=6, rows=300)
    words = [f"w{i}" for i in range(8)]
    x["colour"] = np.random.default_rng(0).choice(words, len(x))
    # A column that tells much, so that trees split by its categories.
    x["half"] = np.where(x["a"] > x["a"].median(), "upper", "lower")
    return x, sets, priors


@functools.lru_cache
def fitted(model):
    x, sets, priors = table()
    options = {"target_prior": 0.3, "method": "ssc", "random_state": 0} | MODELS[model]
    return UnmixClassifier(priors, model=model, **options).fit(x, sets)


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    folder = tmp_path_factory.mktemp("valid")
    for model in MODELS:
        fitted(model).save(folder / model)
    return folder


@pytest.fixture
def copied(valid, tmp_path):
    def copy(model):
        return shutil.copytree(valid / model, tmp_path / model)

    return copy


def predicted(folder):
    """Load a model and predict a few rows; a warning of scikit-learn's about names is no matter."""
    x, _, _ = table()
    clf = UnmixClassifier.load(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return clf.predict_proba(x[:20].reindex(columns=clf.encoder_.columns))


def refused(folder):
    """Return the one line by which a folder is refused."""
    with pytest.raises(InputError) as caught:
        predicted(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Trees --------------------------------------------------------------------------------------------

TREE = {
    "num_leaves": "3",
    "num_cat": "1",
    "split_feature": "0 5",
    "split_gain": "2 1",
    "threshold": "0.5 0",
    "decision_type": "2 1",
    "left_child": "1 -1",
    "right_child": "-3 -2",
    "leaf_value": "0.1 -0.2 0.3",
    "leaf_weight": "1 1 1",
    "leaf_count": "1 1 1",
    "internal_value": "0 0",
    "internal_weight": "2 1",
    "internal_count": "3 2",
    "cat_boundaries": "0 1",
    "cat_threshold": "6",
    "is_linear": "0",
    "shrinkage": "0.1",
}
HEAD = {
    "version": "v4",
    "num_class": "1",
    "num_tree_per_iteration": "1",
    "label_index": "0",
    "max_feature_idx": "5",
    "feature_names": "a b c d e f",
    "feature_infos": "[0:1] [0:1] [0:1] [0:1] [0:1] 0:1:2",
    "tree_sizes": "100",
}


def lines(fields):
    return "".join(f"{name}={value}\n" for name, value in fields.items() if value is not None)


def tree_text(head=None, **changed):
    return (
        f"tree\n{lines(HEAD | (head or {}))}\nTree=0\n{lines(TREE | changed)}\n\nend of trees\n"
    ).encode()


def test_a_sound_tree_is_read_as_before():
    booster = lightgbm.Booster(model_str=checked_trees(tree_text(), 6, 1))
    rows = np.array([[0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 5], [1, 0, 0, 0, 0, 1.0]])
    np.testing.assert_allclose(booster.predict(rows, raw_score=True), [0.1, -0.2, 0.3])


def test_trees_of_a_fit_predict_the_same_after_they_were_checked():
    x, _, _ = table()
    fit, rows = fitted("boosting").learner_.fit, fitted("boosting").encoder_.native(x)
    checked = checked_trees(fit.model_text.encode(), rows.shape[1], 1)
    assert "num_cat=1" in checked  # there are categories among the splits
    again = lightgbm.Booster(model_str=checked)
    expected = lightgbm.Booster(model_str=fit.model_text)
    for kind in ("gain", "split"):
        np.testing.assert_array_equal(
            again.feature_importance(kind), expected.feature_importance(kind)
        )
    raw = {"raw_score": True}
    np.testing.assert_array_equal(again.predict(rows, **raw), expected.predict(rows, **raw))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"left_child": "1 0"}, "older than its parent"),
        ({"left_child": "0 -1"}, "older than its parent"),
        ({"left_child": "1 1"}, "older than its parent"),
        ({"left_child": "99 -1"}, "two parents"),
        ({"left_child": "1 -99"}, "two parents"),
        ({"right_child": "-1 -2"}, "two parents"),
        ({"right_child": "-3 -2147483648"}, "two parents"),
        ({"left_child": "1"}, "left_child has 1 values, not 2"),
        ({"num_leaves": "1000000000"}, "1000000000 leaves"),
        ({"num_leaves": "0"}, "0 leaves"),
        ({"num_leaves": "-3"}, "-3 leaves"),
        ({"num_leaves": "4"}, "leaf_value has 3 values, not 4"),
        ({"num_leaves": ""}, "num_leaves has 0 values"),
        ({"num_leaves": "3 3"}, "num_leaves has 2 values"),
        ({"split_feature": "0 6"}, "split_feature is out of range"),
        ({"split_feature": "0 -1"}, "split_feature is out of range"),
        ({"split_feature": "0 99999999999"}, "split_feature holds something else"),
        ({"leaf_value": "0.1 nan 0.3"}, "leaf_value holds something else"),
        ({"leaf_value": "0.1 1e999 0.3"}, "leaf_value is out of range"),
        ({"leaf_value": "0.1 inf 0.3"}, "leaf_value holds something else"),
        ({"leaf_value": "0.1  0.3 0.2"}, "leaf_value holds something else"),
        ({"leaf_value": "0.1\t0.3 0.2"}, "leaf_value holds something else"),
        ({"leaf_value": None}, "there is no leaf_value"),
        ({"threshold": "0.5 1"}, "threshold is out of range"),
        ({"threshold": "0.5 -1"}, "threshold is out of range"),
        ({"threshold": "0.5 0.5"}, "no whole number"),
        ({"decision_type": "2 13"}, "decision_type is out of range"),
        ({"decision_type": "2 -1"}, "decision_type is out of range"),
        ({"num_cat": "0"}, "categories are split and there are none"),
        ({"num_cat": "2"}, "cat_boundaries has 2 values, not 3"),
        ({"num_cat": "-1"}, "cat_boundaries has 2 values, not 0"),
        ({"cat_boundaries": "0 1000000"}, "cat_boundaries do not fit"),
        ({"cat_boundaries": "1 1"}, "cat_boundaries do not fit"),
        ({"cat_boundaries": "0 -1"}, "cat_boundaries do not fit"),
        ({"cat_threshold": "-1"}, "cat_threshold is out of range"),
        ({"cat_threshold": "1 2"}, "cat_boundaries do not fit"),
        ({"cat_threshold": None}, "cat_boundaries do not fit"),
        ({"is_linear": "1"}, "linear"),
        ({"leaf_coeff": "1"}, "line 'leaf_coeff=1' is unknown"),
        ({"shrinkage": "x"}, "shrinkage holds something else"),
        ({"leaf_count": "1 1 4294967296"}, "leaf_count is out of range"),
        ({"head": {"version": "v3"}}, "version 'v3', not v4"),
        ({"head": {"num_class": "1000000000"}}, "num_class '1000000000', not 1"),
        ({"head": {"num_tree_per_iteration": "0"}}, "num_tree_per_iteration '0', not 1"),
        ({"head": {"max_feature_idx": "2147483647"}}, "max_feature_idx '2147483647', not 5"),
        ({"head": {"objective": "binary"}}, "line 'objective=binary' is unknown"),
        ({"head": {"num_class": None}}, "num_class '', not 1"),
    ],
)
def test_a_tree_that_is_none_never_gets_to_lightgbm(changed, words):
    with pytest.raises(ValueError, match=words):
        checked_trees(tree_text(**changed), 6, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "no line 'end of trees'"),
        (b"\xff\xfe", "ascii"),
        (tree_text().replace(b"end of trees", b"the end"), "no line 'end of trees'"),
        (tree_text().replace(b"Tree=0", b"Tree=1"), "tree 0 is called 'Tree=1'"),
        (tree_text().replace(b"tree\n", b"forest\n", 1), "version"),
        (tree_text().replace(b"\nthreshold", b"\nnum_cat=1\nthreshold"), "there twice"),
        (tree_text().replace(b"\n", b"\r\n"), "no line"),
        (tree_text().replace(b"\nshrinkage", b"\n\nshrinkage"), "unknown"),
    ],
)
def test_a_text_that_holds_no_trees_never_gets_to_lightgbm(text, words):
    with pytest.raises(ValueError, match=words):
        checked_trees(text, 6, 1)


def test_rounds_of_several_classes_are_whole():
    head = {"num_class": "3", "num_tree_per_iteration": "3"}
    with pytest.raises(ValueError, match="1 trees are not 3 in each round"):
        checked_trees(tree_text(head), 6, 3)


def test_what_the_parser_gets_holds_nothing_that_was_not_checked(copied):
    folder = copied("boosting")
    trees = folder / "trees.txt"
    ending = b"\nparameters:\n[machines: evil.example:1]\n[forcedsplits_filename: /etc/passwd]\n"
    trees.write_bytes(trees.read_bytes().replace(b"\nparameters:\n", ending))
    sign(folder)
    text = UnmixClassifier.load(folder).learner_.fit.model_text
    assert "evil" not in text
    assert "passwd" not in text
    expected = fitted("boosting").predict_proba(table()[0][:20])
    np.testing.assert_array_equal(predicted(folder), expected)


# Everything else ----------------------------------------------------------------------------------


def edit(folder, change):
    path = folder / "model.json"
    state = json.loads(path.read_text())
    change(state)
    path.write_text(json.dumps(state))
    sign(folder)


def entry(*path, to):
    """Return a change of one entry of model.json."""

    def change(state):
        for key in path[:-1]:
            state = state[key]
        state[path[-1]] = to

    return change


NAN, INF = float("nan"), float("inf")
FIVE = [0.2, 0.4, 0.6, 0.8, 0.5]


@pytest.mark.parametrize(
    ("model", "path", "value"),
    [
        ("linear", ("stated_priors",), [1.2, *FIVE]),
        ("linear", ("stated_priors",), [-0.1, *FIVE]),
        ("linear", ("stated_priors",), [NAN, *FIVE]),
        ("linear", ("stated_priors",), FIVE),
        ("linear", ("set_priors",), [2] * 6),
        ("linear", ("set_priors",), [[0.5, 0.6]] * 6),
        ("linear", ("target_prior",), [0.5, NAN]),
        ("linear", ("target_prior",), [0.5, 0.6]),
        ("linear", ("target_prior",), [0, 1]),
        ("linear", ("target_prior",), [-1, 2]),
        ("linear", ("target_prior",), [0.5]),
        ("linear", ("base_prior",), [1e-400, 1]),
        ("linear", ("base_prior",), [[0.5, 0.5]]),
        ("linear", ("set_ids",), list("aabcde")),
        ("linear", ("set_ids",), [["a"], *"bcdef"]),
        ("linear", ("set_ids",), [None, *"bcdef"]),
        ("linear", ("set_ids",), [NAN, 1, 2, 3, 4, 5]),
        ("linear", ("set_ids",), "abcdef"),
        ("linear", ("set_ids",), {"a": 1}),
        ("linear", ("classes",), [[0, 1], [2, 3]]),
        ("linear", ("classes",), [[[0]], [[1]]]),
        ("linear", ("classes",), [0, 0]),
        ("linear", ("classes",), [0]),
        ("linear", ("classes",), [0, 1, 2]),
        ("linear", ("classes",), [0, "1"]),
        ("linear", ("classes",), [0, 10**400]),
        ("linear", ("set_sizes",), [80] * 5),
        ("linear", ("set_sizes",), [*[80] * 5, -1]),
        ("linear", ("set_sizes",), [*[80] * 5, 1e300]),
        ("linear", ("prior_errors",), [0.1]),
        ("linear", ("prior_errors",), [NAN] * 6),
        ("linear", ("prior_errors",), [-0.1] * 6),
        ("linear", ("given_priors",), {"set_ids": ["a", "a"], "shares": FIVE[:2]}),
        ("linear", ("given_priors",), []),
        ("linear", ("given_priors",), {"set_ids": ["a", "b"], "shares": FIVE}),
        ("linear", ("tau",), NAN),
        ("linear", ("tau",), -1),
        ("linear", ("noticed_error",), "much"),
        ("linear", ("refined",), "yes"),
        ("linear", ("labels",), 1),
        ("linear", ("history",), [[1]]),
        ("linear", ("history",), [{"epoch": INF}]),
        ("linear", ("gains",), {"ssc": {"gain": 1}}),
        ("linear", ("gains",), [1]),
        ("linear", ("leave_sets_out",), {"ssc": "x"}),
        ("linear", ("setup", "seed"), -1),
        ("linear", ("setup", "epochs"), 1.5),
        ("linear", ("setup", "l2"), NAN),
        ("linear", ("setup",), {"l2": 1, "os": "system"}),
        ("linear", ("parameters",), {}),
        ("linear", ("parameters", "target_prior"), {"mapping": [[[1], 2]]}),
        ("linear", ("parameters", "target_prior"), {"eval": "1"}),
        ("linear", ("parameters", "method"), [[[[[["ssc"]]]]]]),
        ("linear", ("method",), "magic"),
        ("linear", ("method",), ["ssc"]),
        ("linear", ("model",), "module"),
        ("linear", ("model",), None),
        ("linear", ("num_features",), 8),
        ("linear", ("num_features",), 10**30),
        ("linear", ("encoder", "columns", 0, "mean"), NAN),
        ("linear", ("encoder", "columns", 0, "deviation"), -1),
        ("linear", ("encoder", "columns", 1, "name"), "a"),
        ("linear", ("encoder", "columns"), []),
        ("linear", ("encoder", "version"), 2),
        ("linear", ("encoder",), {"images": [1000, 1000]}),
        ("linear", ("encoder",), {"images": [-1, -2]}),
        ("linear", ("encoder",), {"images": []}),
        ("linear", ("encoder",), {"images": "ab"}),
        ("linear", ("fit",), [1]),
        ("linear", ("fit", "iterations"), "many"),
        ("boosting", ("fit", "base_logits"), NAN),
        ("boosting", ("fit", "base_logits"), [0, 1]),
        ("boosting", ("fit", "num_features"), 5),
        ("boosting", ("fit", "num_features"), 10**12),
        ("boosting", ("fit", "num_features"), 7.0),
        ("boosting", ("fit", "num_rounds"), -1),
        ("mlp", ("fit", "network", "width"), 2**31),
        ("mlp", ("fit", "network", "width"), 10_000),
        ("mlp", ("fit", "network", "width"), 0),
        ("mlp", ("fit", "network", "width"), 16.0),
        ("mlp", ("fit", "network", "depth"), 20),
        ("mlp", ("fit", "network", "depth"), 10**9),
        ("mlp", ("fit", "network", "dropout"), 1.0),
        ("mlp", ("fit", "network", "dropout"), NAN),
        ("mlp", ("fit", "network", "device"), "cuda"),
        ("mlp", ("fit", "row_shape"), [10**9]),
        ("mlp", ("fit", "row_shape"), [10**6, 10**6]),
        ("mlp", ("fit", "row_shape"), [-1]),
        ("mlp", ("fit", "row_shape"), []),
        ("mlp", ("fit", "prior"), [0.5, NAN]),
        ("mlp", ("fit", "prior"), [1 / 3] * 3),
        ("mlp", ("fit", "name"), "resnet32"),
        ("mlp", ("fit", "name"), "linear"),
        ("mlp", ("fit", "name"), "os.system"),
    ],
)
def test_an_entry_that_makes_no_sense_is_refused(copied, model, path, value):
    folder = copied(model)
    edit(folder, entry(*path, to=value))
    assert str(folder) in refused(folder)


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 500 + "]" * 500, "1", "[]", "null", "{", ""])
def test_json_that_is_no_table_is_refused(copied, text):
    folder = copied("linear")
    (folder / "model.json").write_text(text)
    sign(folder)
    refused(folder)
    (folder / MANIFEST).write_text(text)
    refused(folder)


@pytest.mark.parametrize(
    ("model", "name", "value"),
    [
        ("linear", "weights", NAN),
        ("linear", "bias", INF),
        ("linear", "resampled_weights", NAN),
        ("mlp", "head.weight", NAN),
        ("mlp", "body.1.running_var", -1),
        ("mlp", "body.1.running_mean", -INF),
        ("mlp", "body.0.weight", 1e38),
    ],
)
def test_weights_that_no_training_leaves_are_refused(copied, model, name, value):
    folder = copied(model)
    path = folder / "weights.safetensors"
    arrays = load_file(path)
    arrays[name][...] = value
    save_file(arrays, path)
    sign(folder)
    refused(folder)


def reshape(name, *shape):
    return lambda arrays: arrays.update({name: np.zeros(shape, arrays[name].dtype)})


@pytest.mark.parametrize(
    ("model", "change"),
    [
        ("linear", reshape("weights", 1)),
        ("linear", reshape("weights", 0)),
        ("linear", reshape("weights", 15, 2)),
        ("linear", reshape("bias", 2)),
        ("linear", reshape("bias", 0)),
        ("linear", reshape("resampled_weights", 20, 3)),
        ("linear", reshape("resampled_bias", 3)),
        ("linear", lambda arrays: arrays.pop("bias")),
        ("linear", lambda arrays: arrays.pop("resampled_bias")),
        ("linear", lambda arrays: arrays.update(more=np.zeros(1))),
        ("linear", lambda arrays: arrays.update(weights=arrays["weights"].astype(np.float32))),
        ("linear", lambda arrays: arrays.update(weights=arrays["weights"].astype(np.int64))),
        ("mlp", reshape("head.weight", 1, 17)),
        ("mlp", reshape("body.0.weight", 16, 3)),
        ("mlp", lambda arrays: arrays.pop("head.bias")),
        ("mlp", lambda arrays: arrays.update(more=np.zeros(1))),
        ("mlp", lambda arrays: arrays.update({"head.bias": np.zeros(1)})),
    ],
)
def test_weights_of_another_form_are_refused(copied, model, change):
    folder = copied(model)
    path = folder / "weights.safetensors"
    arrays = load_file(path)
    change(arrays)
    save_file(arrays, path)
    sign(folder)
    refused(folder)


@pytest.mark.parametrize("name", [MANIFEST, "model.json", "weights.safetensors"])
def test_members_that_are_links_pipes_or_folders_are_refused(copied, tmp_path, name):
    folder = copied("linear")
    shutil.move(folder / name, tmp_path / name)
    (folder / name).symlink_to(tmp_path / name)
    assert f"{folder / name} is a link; put the file itself there" in refused(folder)
    (folder / name).unlink()
    (folder / name).mkdir()
    refused(folder)
    (folder / name).rmdir()
    os.mkfifo(folder / name)
    refused(folder)


def test_files_beside_a_model_are_not_read(copied):
    folder = copied("linear")
    (folder / "report.html").symlink_to("/etc/passwd")
    (folder / "sitecustomize.py").write_text("raise SystemExit")
    assert predicted(folder).shape == (20, 2)


@pytest.mark.parametrize("model", MODELS)
def test_a_mutated_folder_is_read_or_refused(valid, tmp_path, model):
    outcomes = {"read": 0, "refused": 0}
    for number in range(MUTATED // len(MODELS)):
        folder = shutil.copytree(valid / model, tmp_path / str(number))
        mutate(folder, generator(model, number))
        try:
            shares = predicted(folder)
        except InputError:
            outcomes["refused"] += 1
        else:
            assert ((shares >= 0) & (shares <= 1)).all()
            outcomes["read"] += 1
    assert min(outcomes.values()) > 0


def test_a_fitted_model_still_comes_back_after_it_was_saved_again(valid, tmp_path):
    x, _, _ = table()
    for model in MODELS:
        once = UnmixClassifier.load(valid / model)
        once.save(tmp_path / model)
        again = UnmixClassifier.load(tmp_path / model)
        np.testing.assert_array_equal(again.predict_proba(x), fitted(model).predict_proba(x))
        assert isinstance(once.decision_function(pd.DataFrame(x)), np.ndarray)
