"""How long slopes should be is told by sets that the model has not seen."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import reference_counts as literal
from unmix import UnmixClassifier
from unmix.core.set_risks import SetEffectRisk
from unmix.core.slope_length import SPREAD, length_and_shift
from unmix.core.transition import Transition
from unmix.learn import resampling


def risk_of(shares, rows):
    shares = np.asarray(shares)
    target = 0.5 if shares.ndim == 1 else shares.mean(axis=0)
    return SetEffectRisk(Transition(shares, np.full(len(shares), rows), target))


def drawn(num_sets, rows, slope, seed, tau=0.4):
    """Logits of slope 1 whose true slope is another: logits, set of each row, shares."""
    rng = np.random.default_rng(seed)
    index = np.repeat(np.arange(num_sets), rows)
    z = rng.normal(rng.normal(0, 1, num_sets)[index], 1.0)
    labels = rng.random(len(z)) < expit(slope * z - 0.3 + rng.normal(0, tau, num_sets)[index])
    return z, index, np.bincount(index, labels) / rows


def by_unseen(risk, z, index):
    """Return the length where all logits are by fits that have not seen the sets."""
    return length_and_shift(risk, z, index, z, index)


def test_length_and_shift_are_those_of_the_literal_form():
    z, index, shares = drawn(5, 5, 1.0, seed=1)
    risk = risk_of(shares, 5)
    parts = ((1 - np.exp(-1), 0.7 * z), (np.exp(-1), z))
    length, shift, _ = length_and_shift(risk, parts[0][1], index, z, index)
    taus = [risk.tau(length * logits + shift, index) for _, logits in parts]

    def cost(a, b):
        of_sets = [
            weight * literal.set_effect_nll(list(a * logits[index == j] + b), share, tau, 0.0)
            for (weight, logits), tau in zip(parts, taus, strict=True)
            for j, share in enumerate(np.clip(shares, 0.1, 0.9))
        ]
        return sum(of_sets) + (a - 1) ** 2 / (2 * SPREAD**2)

    best = cost(length, shift)  # at the tau that is best there, so that the others are no better
    for step in (-0.05, 0.05):
        assert cost(length + step, shift) > best
        assert cost(length, shift + step) > best


@pytest.mark.parametrize("slope", [0.5, 1.0, 1.6])
def test_many_sets_find_the_true_length_and_shift(slope):
    z, index, shares = drawn(400, 50, slope, seed=2)
    length, shift, _ = by_unseen(risk_of(shares, 50), z, index)
    assert length == pytest.approx(slope, abs=0.12)
    assert shift == pytest.approx(-0.3, abs=0.1)


def test_the_error_of_the_length_is_how_far_it_is_off():
    found = [
        by_unseen(risk_of(s, 50), z, i) for z, i, s in (drawn(60, 50, 1.0, s) for s in range(30))
    ]
    off = np.array([(one.length - 1) / one.error for one in found])
    assert 0.6 < off.std() < 1.4
    assert abs(off.mean()) < 0.6


def test_a_slope_that_new_sets_contradict_is_0_and_never_below():
    z, index, shares = drawn(400, 50, -1.0, seed=3)
    assert by_unseen(risk_of(shares, 50), z, index)[0] == 0.0
    z, index, shares = drawn(400, 50, 0.0, seed=3)
    assert by_unseen(risk_of(shares, 50), z, index)[0] < 0.15


def test_a_few_sets_do_not_move_the_length_far():
    lengths = []
    for seed in range(20):
        z, index, shares = drawn(8, 30, 0.0, seed)
        lengths.append(by_unseen(risk_of(shares, 30), z, index)[0])
    assert max(lengths) < 1.8
    assert np.mean(lengths) < 0.9


def test_classes_of_their_own_have_a_length_and_shifts_with_class_0_at_0():
    rng = np.random.default_rng(4)
    index = np.repeat(np.arange(200), 40)
    z = rng.normal(size=(200, 3))[index] + rng.normal(size=(len(index), 3))
    true = 0.6 * z + [0.0, 0.5, -0.5]
    p = np.exp(true) / np.exp(true).sum(axis=1, keepdims=True)
    labels = (rng.random(len(z))[:, None] > p.cumsum(axis=1)).sum(axis=1)
    shares = np.stack([np.bincount(index, labels == k) for k in range(3)], axis=1) / 40
    length, shift, _ = by_unseen(risk_of(shares, 40), z, index)
    assert length == pytest.approx(0.6, abs=0.1)
    np.testing.assert_allclose(shift, [0.0, 0.5, -0.5], atol=0.12)


def test_a_classifier_promises_less_where_little_was_learned(monkeypatch):
    # Few sets, columns that differ between sets and mean nothing: what suits the sets of training
    # best is too steep for others.
    rng = np.random.default_rng(0)
    sets = np.repeat(np.arange(12), 40)
    x = pd.DataFrame(rng.normal(size=(12, 6))[sets] + rng.normal(size=(len(sets), 6)))
    shares = pd.Series(rng.uniform(0.2, 0.8, 12)).to_dict()
    options = {"model": "linear", "method": "set-effects", "l2": 1e-2, "hide_sets": False}
    clf = UnmixClassifier(shares, random_state=0, **options).fit(x, sets)
    monkeypatch.setattr(resampling, "_of_honest_length", lambda learner, *_: learner)
    bold = UnmixClassifier(shares, random_state=0, **options).fit(x, sets)
    spread, before = (np.std(of.predict_proba(x)[:, 1]) for of in (clf, bold))
    assert spread < 0.6 * before
    # The fits to resampled sets are of the same length, and still average to the model.
    logits = clf.resampled_logits(x).mean(axis=0)
    np.testing.assert_allclose(logits, clf.logits_at(x, clf.learner_.base_prior))
    assert clf.learner_.tau > bold.learner_.tau  # new sets are further off than those of training
