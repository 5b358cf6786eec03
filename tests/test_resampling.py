"""Fits to resampled sets: what they are made of, and what they say."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from unmix import UnmixClassifier
from unmix.core.row_losses import CrossEntropyRows
from unmix.data.sets import UnlabeledSets
from unmix.learn import resampled_lines
from unmix.learn.models import Setup, fit_learner, model_row
from unmix.learn.resampling import with_resamples


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


def label_shift_sets(classes, rows=4_000, num_sets=30, columns=6):
    """Draw sets under label shift, and the fit of a line to them."""
    rng = np.random.default_rng(classes)
    shares = rng.dirichlet(np.ones(classes), num_sets) * 0.8 + 0.2 / classes
    index = rng.permutation(np.arange(rows) % num_sets)
    labels = (rng.random(rows)[:, None] > shares[index].cumsum(axis=1)[:, :-1]).sum(axis=1)
    x = rng.normal(size=(rows, columns))
    for k in range(1, classes):
        x[:, k] += labels == k
    stated = shares[:, 1] if classes == 2 else shares
    target = 0.5 if classes == 2 else np.full(classes, 1 / classes)
    return UnlabeledSets(x, index, stated, target)


def log_odds(logits):
    """Take out what no loss sees: a number added to the logits of all classes of a row."""
    return logits if logits.ndim == 1 else logits - logits.mean(axis=1, keepdims=True)


@pytest.mark.parametrize("classes", [2, 3])
def test_fits_to_all_resamples_at_once_end_where_fits_one_by_one_do(classes):
    sets = label_shift_sets(classes)
    setup = Setup("linear", "ssc", l2=1e-3)
    learner = fit_learner(sets, setup)
    rng = np.random.default_rng(0)
    draws = [rng.choice(sets.num_sets, sets.num_sets) for _ in range(8)]
    times = np.stack([np.bincount(draw, minlength=sets.num_sets) for draw in draws])
    at_once = model_row("linear").resamples_at_once(sets, learner, times)
    one_by_one = [fit_learner(sets.take_sets(draw), setup).fit for draw in draws]
    together, alone = (
        np.stack([log_odds(fit.logits(sets.x)) for fit in fits]) for fits in (at_once, one_by_one)
    )
    spread = alone.std(axis=0).mean()
    apart = np.abs(together - alone).mean()
    assert spread > 0.05  # or the next line would say nothing
    assert apart < 0.1 * spread


def test_the_first_step_of_resampled_fits_is_newtons_by_the_gradient_of_the_resample():
    sets = label_shift_sets(2)
    rng = np.random.default_rng(1)
    weights, bias, l2 = rng.normal(size=6), np.array(0.3), 0.01
    times = rng.integers(0, 3, size=(2, sets.num_sets))
    scale = np.array([1.0, 2.0, 0.5, 1.0, 1.0, 1.0, 3.0])  # stands for any coordinates

    def coordinates(vector, transposed):
        return vector * scale

    losses = CrossEntropyRows(sets.scoring_transition)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resampled_lines, "LEFT", 1e-9)  # the first step and no other
        found = resampled_lines.steps_to_resamples(
            sets, losses, weights, bias, l2, times, coordinates
        )
    for r, often in enumerate(times):
        drawn = sets.take_sets(np.repeat(np.arange(sets.num_sets), often))
        own = CrossEntropyRows(drawn.transition)
        by_logits = own.gradient(drawn.x @ weights + bias, drawn.set_index) / len(drawn)
        gradient = np.append(drawn.x.T @ by_logits + 2 * l2 * weights, by_logits.sum())
        step = scale**2 * gradient
        np.testing.assert_allclose(found[0][r], weights - step[:-1], rtol=1e-9)
        np.testing.assert_allclose(found[1][r], bias - step[-1], rtol=1e-9)


def test_resampled_fits_of_wide_tables_spread_about_as_far_as_other_draws_of_the_sets():
    spreads, fits = [], []
    x = np.random.default_rng(99).normal(size=(500, 60))
    for seed in range(8):
        rng = np.random.default_rng(seed)
        index = rng.permutation(np.arange(3_000) % 40)
        shares = rng.uniform(0.1, 0.9, 40)
        rows = rng.normal(size=(3_000, 60))
        rows[:, :5] += 0.5 * (rng.random(3_000) < shares[index])[:, None]
        sets = UnlabeledSets(rows, index, shares, 0.5)
        learner = with_resamples(
            sets, fit_learner(sets, Setup("linear", "ssc", l2=1e-4)), thinned=False, seed=seed
        )
        fits.append(learner.logits(x))
        spreads.append(learner.resampled_logits(x).std(axis=0, ddof=1).mean())
    truth = np.std(fits, axis=0, ddof=1).mean()
    # Fits that are run to the end spread five times as far.
    assert 0.7 * truth < np.mean(spreads) < 1.5 * truth
