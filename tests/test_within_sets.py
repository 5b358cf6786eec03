"""Rows of one set are told apart as far as differences between sets were shown to be explained."""

import math

import numpy as np
import pytest
from scipy.special import expit, softmax

import reference_counts as literal
from unmix import UnmixClassifier
from unmix.core.within_sets import explained_share, tempered_logits


def test_the_explained_share_is_that_of_the_variance_between_sets():
    with_features, without = 0.4, 0.9
    gain = math.log(without / with_features)  # of N(0, tau^2), at its own tau
    expected = literal.explained_share(with_features, without)
    assert explained_share(gain, 0.0, 2.5) == pytest.approx(expected)
    assert explained_share(2 * gain, 0.0, 2.5, num_classes=3) == pytest.approx(expected)


def test_only_what_is_beyond_the_threshold_counts():
    assert explained_share(0.5, 0.2, 2.5) == 0.0
    assert explained_share(0.5 + 1e-9, 0.2, 2.5) == pytest.approx(0.0, abs=1e-8)
    assert explained_share(0.6, 0.2, 2.5) == pytest.approx(1 - math.exp(-0.2))
    assert explained_share(-3.0, 0.1, 2.5) == explained_share(1.0, math.inf, 2.5) == 0.0


def test_a_cautious_slope_gains_wherever_the_true_one_is_more_than_half_of_it():
    # The reason for the rule, in its own arithmetic: t (2 l - t) = l^2 - (l - t)^2.
    for slope in np.linspace(-1, 2, 13):
        for trust in np.linspace(0.05, 1, 7):
            gain = slope**2 - (slope - trust) ** 2
            assert gain == pytest.approx(trust * (2 * slope - trust))
            assert (gain > 1e-12) == (slope > trust / 2 + 1e-12)


@pytest.mark.parametrize("trust", [0.0, 0.3, 1.0])
def test_tempered_logits_are_the_literal_ones(trust):
    rng = np.random.default_rng(0)
    index = np.repeat([0, 2, 3], [1, 4, 30])  # set 1 has no rows
    z = rng.normal(scale=2, size=len(index)) + index
    found = tempered_logits(z, index, 4, trust)
    for j in (0, 2, 3):
        assert found[index == j] == pytest.approx(literal.tempered(z[index == j], trust), abs=1e-6)
        assert expit(found[index == j]).mean() == pytest.approx(expit(z[index == j]).mean())


def test_two_classes_of_k_are_tempered_as_two_classes_and_means_are_kept():
    rng = np.random.default_rng(1)
    index = np.repeat([0, 1], 25)
    z = rng.normal(scale=2, size=50)
    both = tempered_logits(np.stack([np.zeros(50), z], axis=1), index, 2, 0.4)
    assert both[:, 1] - both[:, 0] == pytest.approx(tempered_logits(z, index, 2, 0.4), abs=1e-6)
    three = rng.normal(scale=2, size=(50, 3))
    q = softmax(tempered_logits(three, index, 2, 0.4), axis=1)
    for j in (0, 1):
        before = softmax(three[index == j], axis=1).mean(axis=0)
        assert q[index == j].mean(axis=0) == pytest.approx(before, abs=1e-6)


def contextual_sets(context, seed, num_sets=60, rows=120, tau=0.4):
    """Sets in which the means of the features matter by themselves: x, sets, labels, shares."""
    rng = np.random.default_rng(seed)
    index = np.repeat(np.arange(num_sets), rows)
    centre = rng.normal(scale=0.4, size=(num_sets, 3))
    slopes = np.array([1.0, -1.0, 0.5])
    effect = context * centre @ slopes + rng.normal(scale=tau, size=num_sets)
    x = centre[index] + rng.normal(size=(len(index), 3))
    labels = rng.random(len(index)) < expit(x @ slopes - 0.3 + effect[index])
    return x, index, labels, np.bincount(index, labels) / rows


@pytest.mark.parametrize("context", [0.0, 2.0, -2.5])
def test_known_sets_are_predicted_no_worse_than_by_their_share_unless_slopes_are_reversed(context):
    # Context -2.5 turns the learned slopes around: no score without labels can find that, but
    # the cut keeps the loss at a fraction of what the full slopes would lose.
    ours, full, share = [], [], []
    for seed in range(2):
        x, sets, labels, shares = contextual_sets(context, seed)
        told = {"model": "linear", "method": "set-effects", "l2": 0.01}
        clf = UnmixClassifier(dict(enumerate(shares)), hide_sets=True, **told).fit(x, sets)
        assert 0 < clf.trust_inside_ < 1
        ours.append(np.mean((clf.predict_proba(x, sets=sets)[:, 1] - labels) ** 2))
        clf.gains_ = {}  # not tested: all slopes as they were learned
        full.append(np.mean((clf.predict_proba(x, sets=sets)[:, 1] - labels) ** 2))
        share.append(np.mean((shares[sets] - labels) ** 2))
    ours, full, share = np.mean(ours), np.mean(full), np.mean(share)
    if context == 0.0:
        assert share - ours > 0.5 * (share - full) > 0.01
    elif context > 0:
        assert ours < share
        assert ours < full
    else:
        assert 0 < ours - share < 0.6 * (full - share)
