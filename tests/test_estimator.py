import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from unmix import UnmixClassifier
from unmix.data.priors import Priors
from unmix.errors import IdentifiabilityError, InputError
from unmix.learn.estimator import NotShownWarning

NOT_Y = "the second argument is called sets, not y: it holds set ids, not labels"
EXPECTED_FAILURES = {"check_fit_score_takes_y": NOT_Y, "check_n_features_in_after_fitting": NOT_Y}


@parametrize_with_checks(
    [UnmixClassifier(random_state=0, model="linear"), UnmixClassifier(random_state=0)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_scikit_learn_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def label_shift(num_sets=20, rows=500, dim=5, seed=0, separation=1.2):
    """Gaussian classes shared by all sets; returns frame, set ids, labels, priors."""
    rng = np.random.default_rng(seed)
    priors = {f"set {j}": p for j, p in enumerate(rng.uniform(0.1, 0.9, num_sets))}
    sets = np.repeat(list(priors), rows)
    labels = rng.random(len(sets)) < [priors[s] for s in sets]
    x = rng.normal(size=(len(sets), dim))
    x[:, 0] += separation * labels
    x[:, 1] -= separation * labels
    return pd.DataFrame(x, columns=list("abcdefgh")[:dim]), sets, labels, priors


def covariate_shift(num_sets=40, rows=500, dim=5, seed=0):
    """Feature means differ by set, p(class | x) is shared; shares spread by about 0.08."""
    rng = np.random.default_rng(seed)
    means = rng.normal(scale=0.35, size=(num_sets, dim))
    index = np.repeat(np.arange(num_sets), rows)
    x = means[index] + rng.normal(size=(len(index), dim))
    weights = np.linspace(1.5, -1.0, dim)
    labels = rng.random(len(index)) < 1 / (1 + np.exp(-(x @ weights)))
    shares = np.bincount(index, labels) / rows
    names = [f"s{j}" for j in range(num_sets)]
    sets = np.array(names)[index]
    return pd.DataFrame(x), sets, labels, dict(zip(names, shares, strict=True))


@pytest.mark.parametrize("model", ["linear", "boosting"])
def test_label_shift_is_learned_nearly_as_well_as_with_labels(model):
    x, sets, labels, priors = label_shift()
    test_x, _, test_labels, _ = label_shift(seed=1)
    clf = UnmixClassifier(priors, model=model, method="ssc", random_state=0).fit(x, sets)
    ours = roc_auc_score(test_labels, clf.decision_function(test_x))
    best = roc_auc_score(test_labels, LogisticRegression().fit(x, labels).decision_function(test_x))
    assert ours > best - 0.02


def test_auto_finds_covariate_shift_and_beats_ssc():
    x, sets, labels, priors = covariate_shift()
    clf = UnmixClassifier(priors, model="linear", random_state=0).fit(x, sets)
    errors = clf.leave_sets_out_
    assert clf.method_ == "set-effects"
    assert errors["set-effects"] < errors["baseline"]
    assert errors["set-effects"] < errors["ssc"]
    assert clf.gains_["set-effects"].shown
    assert clf.gains_["set-effects"].gain > clf.gains_["ssc"].gain
    ssc = UnmixClassifier(priors, model="linear", method="ssc", random_state=0).fit(x, sets)
    auc = {c.method_: roc_auc_score(labels, c.decision_function(x)) for c in (clf, ssc)}
    supervised = LogisticRegression().fit(x, labels)
    best = roc_auc_score(labels, supervised.decision_function(x))
    assert auc["set-effects"] > best - 0.02
    assert auc["set-effects"] > auc["ssc"]


def test_auto_finds_label_shift():
    x, sets, _, priors = label_shift()
    clf = UnmixClassifier(priors, model="linear", random_state=0).fit(x, sets)
    assert clf.method_ == "ssc"
    assert set(clf.leave_sets_out_) == {"ssc", "set-effects", "baseline"}
    assert clf.gains_["ssc"].z > clf.gains_["ssc"].threshold


def test_sets_that_cannot_answer_are_said_to_in_plain_words():
    rng = np.random.default_rng(0)
    priors = {j: p for j, p in enumerate(rng.uniform(0.4, 0.6, 20))}
    sets = np.repeat(list(priors), 100)
    x = rng.normal(size=(2000, 4))  # the features know nothing
    with pytest.warns(NotShownWarning, match="cannot answer the question"):
        UnmixClassifier(priors, model="linear", random_state=0).fit(x, sets)


def test_refined_priors_come_near_the_error_of_the_true_ones():
    x, sets, _, priors = label_shift(num_sets=50, rows=400, seed=3)
    test_x, _, test_labels, _ = label_shift(seed=4)
    rng = np.random.default_rng(5)
    noisy = {s: float(np.clip(p + rng.choice([-0.2, 0.2]), 0, 1)) for s, p in priors.items()}

    def error(given, **options):
        clf = UnmixClassifier(
            given, target_prior=0.5, model="linear", method="ssc", random_state=0, **options
        )
        clf.fit(x, sets)
        return (clf.predict(test_x) != test_labels).mean(), clf

    true_error, _ = error(priors)
    refined_error, clf = error(noisy, prior_error=0.2)
    assert refined_error < true_error + 0.005
    before = np.mean([abs(noisy[s] - priors[s]) for s in priors])
    after = np.mean([abs(clf.set_priors_[s] - priors[s]) for s in priors])
    assert after < before / 2


def test_retarget_is_as_good_as_training_with_that_target_prior():
    x, sets, _, priors = label_shift()
    options = {"model": "linear", "method": "ssc", "random_state": 0, "l2": 1e-4}
    moved = UnmixClassifier(priors, target_prior=0.5, **options).fit(x, sets).retarget(0.05)
    trained = UnmixClassifier(priors, target_prior=0.05, **options).fit(x, sets)
    difference = moved.decision_function(x) - trained.decision_function(x)
    assert np.abs(difference).max() < 0.05
    assert moved.target_prior_.tolist() == pytest.approx([0.95, 0.05])


def test_grid_search_runs_without_a_label_and_picks_a_sensible_setting():
    x, sets, _, priors = label_shift(rows=150)
    grid = GridSearchCV(
        UnmixClassifier(priors, model="linear", method="ssc", random_state=0),
        {"l2": [1e-4, 10.0]},
        cv=3,
    ).fit(x, sets)
    assert grid.best_params_ == {"l2": 1e-4}
    assert grid.cv_results_["mean_test_score"].max() < 0


def test_it_works_in_a_pipeline_and_in_cross_validation():
    x, sets, _, priors = label_shift(rows=100)
    clf = UnmixClassifier(priors, model="linear", method="ssc", random_state=0)
    scores = cross_val_score(make_pipeline(StandardScaler(), clf), x, sets, cv=4)
    assert len(scores) == 4
    assert (scores > -np.log(20) - 0.1).all()  # chance is minus the logarithm of 20 sets


def test_a_fold_that_misses_a_set_shifts_nothing():
    x, sets, _, priors = label_shift(num_sets=6, rows=300)
    clf = UnmixClassifier(priors, target_prior=0.5, model="linear", method="ssc", random_state=0)
    without = sets != "set 0"
    part = clf.fit(x[without], sets[without]).decision_function(x)
    renamed = {s: p for s, p in priors.items() if s != "set 0"}
    alone = UnmixClassifier(
        renamed, target_prior=0.5, model="linear", method="ssc", random_state=0
    ).fit(x[without], sets[without])
    np.testing.assert_allclose(part, alone.decision_function(x))
    assert np.isfinite(clf.score(x[without][:50], sets[without][:50]))


def test_k_classes_from_shares_per_class():
    rng = np.random.default_rng(0)
    names = ["red", "green", "blue"]
    shares = rng.dirichlet(np.ones(3), size=8)
    priors = {j: dict(zip(names, row, strict=True)) for j, row in enumerate(shares)}
    sets = np.repeat(np.arange(8), 600)
    classes = np.array([rng.choice(3, p=shares[j]) for j in sets])
    centers = np.array([[2.5, 0], [-2, 2], [-2, -2]])
    x = centers[classes] + rng.normal(size=(len(sets), 2))
    for model in ("linear", "boosting"):
        clf = UnmixClassifier(priors, model=model, method="ssc", random_state=0).fit(x, sets)
        assert clf.classes_.tolist() == names
        accuracy = (clf.predict(x) == np.array(names)[classes]).mean()
        assert accuracy > 0.88, model
        np.testing.assert_allclose(clf.predict_proba(x).sum(axis=1), 1)
    moved = clf.retarget({"red": 0.98, "green": 0.01, "blue": 0.01})
    assert (moved.predict(x) == "red").mean() > 0.4


def test_mlp_and_a_module_of_ones_own_learn():
    x, sets, labels, priors = label_shift(num_sets=6, rows=400)
    module = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))

    class Flat(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = module

        def forward(self, x):
            return self.inner(x)[:, 0]

    for model in ("mlp", Flat()):
        clf = UnmixClassifier(
            priors, target_prior=0.5, model=model, method="ssc", epochs=15, random_state=0
        ).fit(x, sets)
        assert roc_auc_score(labels, clf.decision_function(x)) > 0.85


def test_categories_and_missing_values_are_features():
    rng = np.random.default_rng(1)
    x, sets, labels, priors = label_shift(num_sets=8, rows=400, dim=3, separation=0.0)
    x["colour"] = np.where(rng.random(len(x)) < 0.85, labels, ~labels)
    x["colour"] = x["colour"].map({True: "warm", False: "cold"})
    x.loc[::7, "a"] = np.nan
    x.loc[::11, "colour"] = None
    for model in ("linear", "boosting"):
        clf = UnmixClassifier(priors, model=model, method="ssc", random_state=0).fit(x, sets)
        assert roc_auc_score(labels, clf.decision_function(x)) > 0.75, model


def test_the_set_column_is_refused_as_a_feature():
    x, sets, _, priors = label_shift(num_sets=4, rows=50)
    with_set = x.assign(region=sets)
    with pytest.raises(InputError, match="column 'region' of X names the set"):
        UnmixClassifier(priors, model="linear").fit(with_set, with_set["region"])
    coded = x.assign(code=pd.factorize(sets)[0] * 10)
    with pytest.raises(InputError, match="column 'code'"):
        UnmixClassifier(priors, model="linear").fit(coded, sets)
    clf = UnmixClassifier(priors, model="linear", method="ssc", allow_set_feature=True)
    assert "code" in clf.fit(coded, sets).coef_.index


def test_a_feature_that_names_the_set_is_looked_for_in_all_rows_of_a_large_table():
    sets = np.repeat([f"s{j}" for j in range(20)], 1000)
    x = pd.DataFrame({"a": np.random.default_rng(0).normal(size=20_000)})
    x["code"] = pd.factorize(sets)[0] * 7.0
    priors = {f"s{j}": j / 20 for j in range(20)}
    clf = UnmixClassifier(priors, model="linear", method="ssc", l2=1e-3, hide_sets=False)
    with pytest.raises(InputError, match="column 'code'"):
        clf.fit(x, sets)
    x.loc[19_999, "code"] = 0.0  # now it is a feature like any other
    assert clf.fit(x, sets).coef_.index.tolist() == ["a", "code"]


def test_set_ids_are_any_hashable():
    x, sets, _, _ = label_shift(num_sets=3, rows=80)
    ids = [("a", 1), ("b", 2), 7]
    values = pd.Series([ids[int(s.split()[1])] for s in sets], dtype=object)
    priors = {ids[0]: 0.2, ids[1]: 0.5, ids[2]: 0.8}
    clf = UnmixClassifier(priors, model="linear", random_state=0).fit(x, values)
    assert set(clf.set_priors_) == set(ids)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"method": "magic"}, InputError, "method must be"),
        ({"model": "forest"}, InputError, "model must be"),
        ({"set_priors": {"set 0": 0.2, "set 1": 0.3}}, InputError, "no prior"),
        ({"set_priors": {f"set {j}": 0.3 for j in range(4)}}, IdentifiabilityError, "same prior"),
        ({"set_priors": {f"set {j}": 30 + j for j in range(4)}}, InputError, "100"),
        ({"target_prior": 1.5}, InputError, "target_prior must lie strictly"),
        ({"prior_error": -1}, InputError, "prior_error"),
        ({"prior_error": {"set 0": 0.1}}, InputError, "prior_error has no entry for set 'set 1'"),
        (
            {"model": "boosting", "method": "proportion"},
            InputError,
            "boosting learns by ssc, count",
        ),
        ({"set_priors": None, "method": "proportion"}, InputError, "needs set_priors"),
    ],
)
def test_mistakes_are_named(change, error, words):
    x, sets, _, priors = label_shift(num_sets=4, rows=30)
    options = {"set_priors": priors, "model": "linear", "random_state": 0} | change
    with pytest.raises(error, match=words):
        UnmixClassifier(**options).fit(x, sets)


def test_infinite_features_are_named():
    x, sets, _, priors = label_shift(num_sets=4, rows=30)
    x.loc[5, "c"] = np.inf
    with pytest.raises(InputError, match="'c'"):
        UnmixClassifier(priors, model="linear").fit(x, sets)


def test_counts_bring_their_own_errors():
    x, sets, _, priors = label_shift(num_sets=4, rows=100)
    table = Priors(tuple(priors), np.array([*priors.values()]), standard_errors=np.full(4, 0.1))
    clf = UnmixClassifier(table, model="linear", method="ssc", random_state=0).fit(x, sets)
    assert clf.prior_errors_.tolist() == [0.1] * 4
    assert clf.set_priors_ != clf.stated_priors_
