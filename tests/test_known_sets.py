"""Rows of sets whose share is known are predicted better than rows of sets that nobody knows."""

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.metrics import roc_auc_score

from test_estimator import label_shift
from unmix import UnmixClassifier
from unmix.cli import main
from unmix.core.effect_law import new_set_probability
from unmix.data.priors import Priors
from unmix.errors import InputError


def natural_sets(tau=0.8, num_sets=60, rows=150, dim=4, seed=0):
    """Sets that differ in their rows and by an effect of their own: x, ids, labels, priors."""
    rng = np.random.default_rng(seed)
    index = np.repeat(np.arange(num_sets), rows)
    x = rng.normal(scale=0.5, size=(num_sets, dim))[index] + rng.normal(size=(len(index), dim))
    effect = rng.normal(scale=tau, size=num_sets)[index]
    logits = x @ np.linspace(1.0, -1.0, dim) - 0.3 + effect
    labels = rng.random(len(index)) < 1 / (1 + np.exp(-logits))
    shares = np.bincount(index, labels) / rows
    names = np.array([f"n{j}" for j in range(num_sets)])
    return (
        pd.DataFrame(x, columns=list("abcdefgh")[:dim]),
        names[index],
        labels,
        dict(zip(names, shares, strict=True)),
    )


SET_EFFECTS = {
    "model": "linear",
    "method": "set-effects",
    "l2": 1e-3,
    "hide_sets": False,
    "random_state": 0,
}


def brier(probability, labels):
    return np.mean((probability[:, 1] - labels) ** 2)


@pytest.mark.parametrize("model", ["linear", "boosting"])
def test_under_label_shift_a_known_share_is_the_prior_of_its_rows(model):
    x, sets, _, priors = label_shift()
    test_x, test_sets, test_labels, _ = label_shift(seed=0, rows=300)  # other rows, same priors
    clf = UnmixClassifier(priors, model=model, method="ssc", random_state=0, hide_sets=False).fit(
        x, sets
    )
    new, known = clf.predict_proba(test_x), clf.predict_proba(test_x, sets=test_sets)
    np.testing.assert_allclose(known.sum(axis=1), 1)
    assert brier(known, test_labels) < brier(new, test_labels) - 0.005
    own = np.array([priors[s] for s in test_sets])
    shift = np.log(own / (1 - own)) - np.log(clf.target_prior_[1] / clf.target_prior_[0])
    expected = 1 / (1 + np.exp(-clf.decision_function(test_x) - shift))
    np.testing.assert_allclose(known[:, 1], expected, atol=1e-9)


@pytest.mark.parametrize("method", ["ssc", "set-effects"])
def test_a_row_alone_is_not_drawn_towards_one_half(method):
    # The share of a set stays as well known as it is, however few of its rows are at hand.
    x, sets, _, priors = label_shift()
    clf = UnmixClassifier(
        priors, model="linear", method=method, random_state=0, hide_sets=False
    ).fit(x, sets)
    name = min(priors, key=priors.get)
    rows = np.flatnonzero(sets == name)
    alone = [clf.predict_proba(x.iloc[[i]], sets=sets[[i]])[0, 1] for i in rows[:40]]
    together = clf.predict_proba(x.iloc[rows], sets=sets[rows])[:40, 1]
    if method == "ssc":
        np.testing.assert_allclose(alone, together)
    else:
        assert np.median(alone) == pytest.approx(priors[name], abs=0.05)


def test_set_effects_are_learned_and_help_rows_of_known_sets():
    x, sets, labels, priors = natural_sets()
    clf = UnmixClassifier(priors, **SET_EFFECTS).fit(x, sets)
    assert clf.learner_.tau == pytest.approx(0.8, abs=0.25)
    assert not clf.refined_
    new, known = clf.predict_proba(x), clf.predict_proba(x, sets=sets)
    share = np.array([priors[s] for s in sets])
    assert brier(known, labels) < brier(new, labels) - 0.01
    assert brier(known, labels) < np.mean((share - labels) ** 2) - 0.02
    means = pd.Series(known[:, 1]).groupby(sets).mean()
    assert np.abs(means - pd.Series(priors)).mean() < 0.01  # nearly the stated shares


def test_a_new_set_is_averaged_over_its_effect():
    x, sets, _, priors = natural_sets(tau=1.5)
    clf = UnmixClassifier(priors, **SET_EFFECTS).fit(x, sets)
    logits, tau = clf.decision_function(x), clf.learner_.tau
    assert tau > 1
    got = clf.predict_proba(x)[:, 1]
    np.testing.assert_allclose(got, new_set_probability(logits, tau), atol=1e-12)
    test_x, _, test_labels, _ = natural_sets(tau=1.5, seed=1)
    plain = 1 / (1 + np.exp(-clf.decision_function(test_x)))
    assert brier(clf.predict_proba(test_x), test_labels) < np.mean((plain - test_labels) ** 2)


def test_sets_that_were_not_in_training_bring_their_own_shares():
    x, sets, _, priors = natural_sets()
    clf = UnmixClassifier(priors, **SET_EFFECTS).fit(x, sets)
    test_x, test_sets, test_labels, test_priors = natural_sets(seed=5)
    renamed = np.array([f"new {name[1:]}" for name in test_sets])
    shares = {f"new {name[1:]}": share for name, share in test_priors.items()}
    with pytest.raises(InputError, match="no prior in the model"):
        clf.predict_proba(test_x, sets=renamed)
    known = clf.predict_proba(test_x, sets=renamed, set_priors=shares)
    assert brier(known, test_labels) < brier(clf.predict_proba(test_x), test_labels) - 0.01


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_shares_of_nothing_and_of_everything_stay_finite(share):
    x, sets, _, priors = label_shift(num_sets=6, rows=100)
    clf = UnmixClassifier(
        priors, model="linear", method="ssc", random_state=0, hide_sets=False
    ).fit(x, sets)
    known = clf.predict_proba(x, sets=sets, set_priors=priors | {"set 0": share})
    assert np.isfinite(known).all()
    assert abs(known[sets == "set 0", 1].mean() - share) < 0.05


def test_three_classes_of_known_sets():
    rng = np.random.default_rng(0)
    names = ["red", "green", "blue"]
    shares = rng.dirichlet(np.ones(3), size=10)
    priors = {j: dict(zip(names, row, strict=True)) for j, row in enumerate(shares)}
    sets = np.repeat(np.arange(10), 400)
    classes = np.array([rng.choice(3, p=shares[j]) for j in sets])
    x = np.array([[1.5, 0], [-1, 1], [-1, -1]])[classes] + rng.normal(size=(len(sets), 2))
    for method in ("ssc", "set-effects"):
        clf = UnmixClassifier(
            priors, model="linear", method=method, l2=1e-3, random_state=0, hide_sets=False
        ).fit(x, sets)
        new = clf.predict_proba(x).argmax(axis=1) == classes
        known = clf.predict_proba(x, sets=sets).argmax(axis=1) == classes
        assert known.mean() > new.mean() + 0.02, method
    swapped = {j: {c: p[c] for c in reversed(names)} for j, p in priors.items()}
    given = clf.predict_proba(x, sets=sets, set_priors=Priors.from_mapping(swapped))
    np.testing.assert_allclose(given, clf.predict_proba(x, sets=sets))


def test_a_saved_model_knows_its_set_effect(tmp_path):
    x, sets, _, priors = natural_sets()
    clf = UnmixClassifier(priors, **SET_EFFECTS).fit(x, sets)
    clf.save(tmp_path / "model")
    back = UnmixClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(back.predict_proba(x), clf.predict_proba(x))
    np.testing.assert_array_equal(back.predict_proba(x, sets=sets), clf.predict_proba(x, sets=sets))


@pytest.mark.parametrize("model", ["boosting", "mlp"])
def test_trees_and_networks_learn_with_set_effects(model):
    x, sets, labels, priors = natural_sets(num_sets=80, rows=60)
    options = SET_EFFECTS | {"model": model, "l2": None, "epochs": 15}
    clf = UnmixClassifier(priors, **options).fit(x, sets)
    assert roc_auc_score(labels, clf.decision_function(x)) > 0.7
    assert brier(clf.predict_proba(x, sets=sets), labels) < brier(clf.predict_proba(x), labels)


def test_the_command_predicts_for_known_sets_and_by_a_threshold(tmp_path):
    x, sets, _, priors = natural_sets(num_sets=30, rows=60)
    rows, rates = tmp_path / "rows.csv", tmp_path / "rates.csv"
    x.assign(region=sets).to_csv(rows, index=False)
    pd.Series(priors, name="share").rename_axis("region").to_csv(rates)
    clf = UnmixClassifier(priors, **SET_EFFECTS).fit(x, sets)
    clf.save(tmp_path / "model")

    def predicted(*options):
        out = tmp_path / "scored.csv"
        args = [
            "predict",
            str(tmp_path / "model"),
            str(rows),
            "-o",
            str(out),
            "--overwrite",
            *options,
        ]
        done = CliRunner().invoke(main, args)
        return done, pd.read_csv(out) if done.exit_code == 0 else None

    _, found = predicted("--sets", "region", "--threshold", "0.3")
    expected = clf.predict_proba(x, sets=sets)[:, 1]
    np.testing.assert_allclose(found["probability"], expected, atol=1e-9)
    assert (found["prediction"] == (expected >= 0.3)).all()
    newer = {name: min(1.0, share + 0.1) for name, share in priors.items()}
    pd.Series(newer, name="share").rename_axis("region").to_csv(rates)
    _, moved = predicted("--sets", "region", "--priors", str(rates))
    assert moved["probability"].mean() > found["probability"].mean() + 0.05
    for options, words in (
        (("--priors", str(rates)), "say with --sets"),
        (("--sets", "region", "--target-prior", "0.2"), "give one of them"),
        (("--sets", "place"), "has no column 'place'"),
    ):
        done, _ = predicted(*options)
        assert done.exit_code == 2
        assert words in done.stderr
        assert done.stderr.count("\n") == 1
