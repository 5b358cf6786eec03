"""One score on held-out sets decides about the method, the strength and what was shown."""

import warnings

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm

from test_estimator import covariate_shift, label_shift
from test_known_sets import natural_sets
from unmix import UnmixClassifier
from unmix.core.share_law import share_law
from unmix.data.sets import UnlabeledSets
from unmix.learn import held_out_score
from unmix.learn.encoding import TableEncoder
from unmix.learn.estimator import NotShownWarning
from unmix.learn.held_out_score import ENOUGH_SETS, score_on_sets
from unmix.learn.hidden_sets import Gain
from unmix.learn.methods import METHODS
from unmix.learn.models import Setup, fit_learner


def no_signal(seed, num_sets=40, rows=100):
    rng = np.random.default_rng(seed)
    sets = np.repeat(np.arange(num_sets), rows)
    return rng.normal(size=(len(sets), 4)), sets, dict(enumerate(rng.uniform(0.3, 0.7, num_sets)))


def chosen(x, sets, priors):
    clf = UnmixClassifier(priors, model="linear", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotShownWarning)
        return clf.fit(x, sets)


@pytest.mark.parametrize("seed", range(3))
def test_label_shift_is_told_from_natural_sets(seed):
    x, sets, _, priors = label_shift(rows=200, seed=seed)
    clf = chosen(x, sets, priors)
    assert clf.method_ == "ssc"
    assert clf.gains_["ssc"].shown
    for data in (covariate_shift(rows=150, seed=seed), natural_sets(seed=seed, tau=0.4)):
        x, sets, _, priors = data
        clf = chosen(x, sets, priors)
        assert clf.method_ == "set-effects"
        assert clf.gains_["set-effects"].shown
        assert clf.gains_["ssc"].gain < clf.gains_["set-effects"].gain


def test_nothing_is_shown_where_there_is_nothing_to_learn():
    for seed in range(10):
        x, sets, priors = no_signal(seed, num_sets=12 if seed % 2 else 40, rows=60)
        clf = chosen(x, sets, priors)
        assert not any(gain.shown for gain in clf.gains_.values()), seed


def test_the_size_of_the_set_effect_is_that_of_held_out_sets():
    x, sets, _, priors = natural_sets(tau=0.8)
    assert chosen(x, sets, priors).gains_["set-effects"].tau == pytest.approx(0.8, abs=0.3)
    x, sets, _, priors = natural_sets(tau=0.0)
    assert chosen(x, sets, priors).gains_["set-effects"].tau < 0.25


def test_the_score_is_the_log_density_written_out():
    # Two classes, label shift, every set a fold of its own: by hand, with the same fits.
    x, sets, _, priors = label_shift(num_sets=6, rows=150, dim=2)
    names, index = np.unique(sets, return_inverse=True)
    shares = np.array([priors[name] for name in names])
    rows = UnlabeledSets(x.to_numpy(np.float32), index, shares, 0.5)
    setup = Setup("linear", "ssc", l2=1e-3)
    (found,) = score_on_sets({"linear": rows}, [setup], folds=6)
    assumption = METHODS["ssc"].assumption
    residuals, variances, ours = [], [], []
    for j in range(6):
        kept = rows.rows(index != j)
        pooled = np.average(shares, weights=kept.set_sizes)
        kept = UnlabeledSets(kept.x, kept.set_index, shares, pooled)
        learner = fit_learner(kept, setup)
        z = learner.logits(rows.x[index == j])
        stated = shares[[j]]
        law = share_law(np.delete(shares, j))
        got = assumption.residuals(z, np.zeros(150, int), stated, learner.base_prior, law)
        ours.append(got)
        others = np.delete(np.log(shares / (1 - shares)), j)
        residuals.append(np.log(shares[j] / (1 - shares[j])) - others.mean())
        variances.append(1 / (150 * shares[j] * (1 - shares[j])))
    tau = np.linspace(0, 5, 5001)[:, None]
    total = tau**2 + np.array(variances)
    baseline = norm.logpdf(residuals, scale=np.sqrt(total)).sum(axis=1).max() / 6
    b = np.concatenate([r.residuals[:, 0] for r in ours])
    v = np.concatenate([r.variances[:, 0] for r in ours])
    label = norm.logpdf(b, scale=np.sqrt(tau**2 + v)).sum(axis=1).max() / 6
    # Both are divided by the same slopes, those of the stated shares.
    assert found.gain.gain == pytest.approx(label - baseline, abs=1e-3)


def test_the_strongest_penalty_within_one_error_of_the_best_is_taken():
    x, sets, _, priors = label_shift(num_sets=20, rows=100)
    clf = chosen(x, sets, priors)
    assert clf.learner_.setup.l2 in METHODS[clf.method_].strengths
    # Of four candidates, strongest first, the second is behind the best by less than one error.
    wave = np.tile([1.0, -1.0], 50)
    densities = np.stack([wave, 1.0 + 0.3 * wave, 1.02 + 0 * wave, 0.9 + 0 * wave])
    assert held_out_score._strongest(densities) == 1
    densities[1] -= 0.1
    assert held_out_score._strongest(densities) == 2


def test_many_sets_are_thinned_by_whole_sets_first():
    rng = np.random.default_rng(0)
    shares = rng.uniform(0.1, 0.9, 2000)
    index = np.repeat(np.arange(2000), 30)
    labels = rng.random(len(index)) < shares[index]
    x = (rng.normal(size=(len(index), 2)) + labels[:, None]).astype(np.float32)
    sets = UnlabeledSets(x, index, shares, 0.5)
    (found,) = score_on_sets({"linear": sets}, [Setup("linear", "ssc", l2=1e-3)], max_rows=10_000)
    assert found.gain.shown
    few = score_on_sets({"linear": sets}, [Setup("linear", "ssc", l2=1e-3)], max_rows=100)
    assert ENOUGH_SETS * 30 > 100  # and then rows inside the sets
    assert (found.shares.rows == 30).all()
    assert len(found.shares.rows) == pytest.approx(10_000 / 30, abs=1)
    # What is left of small sets is judged together.
    assert few[0].shares.rows.sum() < 110
    assert len(few[0].shares.rows) == 5


def test_a_gain_without_a_spread_is_not_shown():
    assert Gain(1.0, 0.0, 2.0, 0.0).z == 0
    assert not Gain(-1.0, 0.1, 2.0, 0.0).shown
    assert Gain(1.0, 0.1, 2.0, 0.0).shown


@pytest.mark.parametrize("seed", [1, 2])
def test_small_sets_formed_at_random_are_learned_from_by_their_counts(seed):
    rng = np.random.default_rng(seed)
    sets = np.repeat(np.arange(300), 16)
    x = rng.normal(size=(len(sets), 5))
    positive = rng.random(len(sets)) < expit(x @ [1.5, -1.0, 1.0, 0.5, -1.5] - 0.5)
    shares = dict(enumerate(np.bincount(sets, positive) / 16))
    clf = UnmixClassifier(shares, model="linear", random_state=0).fit(x, sets)
    assert clf.method_ == "count"
    assert clf.gains_["count"].shown
    assert ((clf.predict(x) == 1) == positive).mean() > 0.7


def test_where_nothing_beats_the_average_share_the_model_says_hardly_more_than_it():
    rng = np.random.default_rng(5)
    sets = np.repeat(np.arange(12), 100)
    x = rng.normal(size=(len(sets), 4))
    shares = {j: float(s) for j, s in enumerate(rng.uniform(0.2, 0.4, 12))}
    with pytest.warns(NotShownWarning):
        clf = UnmixClassifier(shares, model="linear", random_state=0).fit(x, sets)
    if max(gain.gain for gain in clf.gains_.values()) <= 0:
        assert np.ptp(clf.predict_proba(x)[:, 1]) < 0.02
    known = clf.predict_proba(x, sets)[:, 1]
    assert clf.trust_inside_ == 0.0
    np.testing.assert_array_equal(known, np.array([shares[j] for j in sets]))


def test_trees_are_not_tried_where_a_line_shows_that_the_assumption_fails(monkeypatch):
    x, sets, _, priors = natural_sets(tau=0.4, num_sets=40, rows=100)
    tried = []
    fit = held_out_score.fit_learner

    def noted(rows, setup, **options):
        tried.append((setup.model, setup.method))
        return fit(rows, setup, **options)

    monkeypatch.setattr(held_out_score, "fit_learner", noted)
    clf = UnmixClassifier(priors, random_state=0).fit(x, sets)
    assert clf.gains_["ssc"].gain < clf.gains_["set-effects"].gain
    assert ("linear", "ssc") in tried
    assert ("boosting", "ssc") not in tried
    assert clf.method_ == "set-effects"


def test_many_small_sets_under_label_shift_are_learned_under_label_shift():
    rng = np.random.default_rng(4)
    sets = np.repeat(np.arange(1_000), 50)
    rates = rng.uniform(0.1, 0.9, 1_000)
    positive = rng.random(len(sets)) < rates[sets]
    x = rng.normal(size=(len(sets), 4)) + np.outer(positive, [1.0, -0.5, 0.5, 0.0])
    shares = dict(enumerate(np.bincount(sets, positive) / 50))
    clf = UnmixClassifier(shares, model="linear", random_state=0, hide_sets=True).fit(x, sets)
    assert METHODS[clf.method_].assumption.set_posterior
    assert clf.gains_[clf.method_].word == "clear"


def test_models_that_are_tried_encode_only_the_rows_they_are_tried_on(monkeypatch):
    x, sets, _, priors = natural_sets(tau=0.4, num_sets=40, rows=1_000)
    encoded = []
    native = TableEncoder.native

    def noted(self, frame):
        encoded.append(len(frame))
        return native(self, frame)

    monkeypatch.setattr(TableEncoder, "native", noted)
    clf = UnmixClassifier(priors, random_state=0).fit(x, sets)
    assert clf.model_ == "linear"
    assert encoded
    assert max(encoded) <= 21_000 < len(x) // 1.5
