"""Fits to resampled sets: what they are made of, and what they say."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from unmix import UnmixClassifier
from unmix.data.sets import UnlabeledSets


def natural_sets(seed, num_sets=40, rows=100, tau=0.5, slope=1.0):
    """Draw sets with effects of their own: X, set of each row, shares, and the true slope."""
    rng = np.random.default_rng(seed)
    sets = np.repeat(np.arange(num_sets), rows)
    x = rng.normal(rng.normal(0, 1, num_sets)[sets], 1.0)
    y = rng.random(len(x)) < expit(slope * x + rng.normal(0, tau, num_sets)[sets])
    shares = pd.Series(y).groupby(sets).mean()
    return pd.DataFrame({"x": x, "other": rng.normal(size=len(x))}), sets, shares.to_dict()


def fitted(seed, **options):
    x, sets, shares = natural_sets(seed)
    return UnmixClassifier(shares, model="linear", random_state=seed, **options).fit(x, sets), x


def test_sets_that_are_taken_bring_all_their_rows_and_one_taken_twice_is_two_sets():
    sets = UnlabeledSets(
        np.arange(6.0)[:, None], np.array([1, 0, 1, 2, 0, 1]), np.array([0.1, 0.5, 0.9]), 0.5
    )
    taken = sets.take_sets(np.array([1, 2, 1]))
    assert taken.x.ravel().tolist() == [0, 2, 5, 3, 0, 2, 5]
    assert taken.set_index.tolist() == [0, 0, 0, 1, 2, 2, 2]
    assert taken.set_priors.matrix[:, 1].tolist() == [0.5, 0.9, 0.5]


def test_the_model_under_set_effects_is_the_average_of_its_resampled_fits():
    clf, x = fitted(0, method="set-effects")
    resampled = clf.resampled_logits(x)
    assert resampled.shape == (20, len(x))
    np.testing.assert_allclose(resampled.mean(axis=0), clf.logits_at(x, clf.learner_.base_prior))
    assert resampled.std(axis=0).min() > 0


def test_under_label_shift_the_model_stays_what_it_was_and_the_fits_spread_about_it():
    clf, x = fitted(0, method="ssc")
    resampled = clf.resampled_logits(x)
    own = clf.logits_at(x, clf.learner_.base_prior)
    np.testing.assert_allclose(resampled.mean(axis=0), own)


def test_the_spread_of_the_slope_is_about_its_error():
    slopes, spreads = [], []
    for seed in range(8):
        clf, _ = fitted(seed, method="set-effects", l2=1e-6)
        weights = np.stack([w for w, _ in clf.learner_.fit.resampled]) / np.std(
            natural_sets(seed)[0]["x"]
        )
        slopes.append(weights[:, 0].mean())
        spreads.append(weights[:, 0].std(ddof=1))
    error = np.abs(np.array(slopes) - 1.0) / np.mean(spreads)
    assert (error < 2.5).all()
    assert error.max() > 0.3


def test_resampled_fits_are_saved_with_the_model(tmp_path):
    clf, x = fitted(0, method="set-effects")
    clf.save(tmp_path / "model")
    again = UnmixClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.resampled_logits(x), clf.resampled_logits(x))


@pytest.mark.parametrize("model", ["boosting"])
def test_models_without_resampled_fits_say_so_by_having_none(model):
    x, sets, shares = natural_sets(0)
    clf = UnmixClassifier(shares, model=model, method="ssc", random_state=0).fit(x, sets)
    assert clf.resampled_logits(x).shape[0] == 0
