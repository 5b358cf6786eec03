"""Sets put together by chance differ in their features by their rows and classes alone."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import f_oneway

from unmix import UnmixClassifier
from unmix.core.chance_sets import chance_p_value


def rows(sets, size, seed):
    rng = np.random.default_rng(seed)
    return rng, np.repeat(np.arange(sets), size), rng.normal(size=(sets * size, 4))


def shares_of(labels, index):
    share = np.bincount(index, labels) / np.bincount(index)
    return np.stack([1 - share, share], axis=1)


def test_one_feature_and_shares_that_say_nothing_is_an_analysis_of_variance():
    rng, index, x = rows(60, 50, 0)
    x = x[:, :1] + rng.normal(scale=0.1, size=60)[index, None]
    shares = shares_of(rng.random(len(x)) < 0.5, index)
    p = chance_p_value(x, index, shares)
    plain = f_oneway(*(x[index == j, 0] for j in range(60))).pvalue
    assert np.log(p) == pytest.approx(np.log(plain), abs=1.5)  # one degree less, normal rows


def test_random_sets_are_rarely_taken_for_natural_ones():
    found = []
    for seed in range(60):
        rng, index, x = rows(300, 16, seed)
        y = rng.random(len(x)) < expit(1.5 * x @ [1, -0.8, 0.5, 0] - 0.5)
        found.append(chance_p_value(x, index, shares_of(y, index)))
    assert np.mean(np.array(found) < 0.001) <= 1 / 60
    assert np.median(found) > 0.1


@pytest.mark.parametrize("noise", [0.0, 0.15])
def test_sets_that_differ_in_their_classes_alone_pass_with_known_noise(noise):
    for seed in range(5):
        rng, index, _ = rows(200, 32, seed)
        y = rng.random(len(index)) < rng.uniform(0.1, 0.9, 200)[index]
        x = rng.normal(size=(len(y), 4)) + 1.5 * y[:, None] * [1, -0.8, 0.5, 0]
        shares = shares_of(y, index)
        shares[:, 1] += noise * rng.normal(size=200)
        shares[:, 0] = 1 - shares[:, 1]
        assert chance_p_value(x, index, shares, noise**2) > 0.001
        if noise:  # noise that nobody tells of is taken for a difference between sets
            assert chance_p_value(x, index, shares) < 0.001


def test_natural_sets_are_seen_and_too_few_say_nothing():
    rng, index, x = rows(40, 30, 1)
    x += rng.normal(scale=0.4, size=(40, 4))[index]
    shares = shares_of(rng.random(len(x)) < 0.3, index)
    assert chance_p_value(x, index, shares) < 1e-10
    two = index < 2
    assert chance_p_value(x[two], index[two], shares[:2]) == 1.0
    assert chance_p_value(np.ones_like(x), index, shares) == 1.0


def test_counts_are_not_chosen_for_natural_sets_without_a_visible_effect():
    rng, index, x = rows(30, 40, 2)
    x += rng.normal(scale=0.6, size=(30, 4))[index]
    y = (rng.random(len(x)) < expit(x @ [1.5, -1, 0.5, 0])).astype(int)
    shares = pd.Series(y).groupby(index).mean()
    clf = UnmixClassifier(shares, model="linear", random_state=0).fit(x, index)
    assert clf.method_ == "set-effects"
