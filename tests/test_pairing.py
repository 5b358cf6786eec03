import itertools

import numpy as np
import pytest

from unmix.core.pairing import pair_sets, pair_weights


def test_equal_sizes_pair_sorted_extremes():
    pairs = pair_sets(np.array([0.3, 0.9, 0.15, 0.7]), np.full(4, 100))
    assert {tuple(p) for p in pairs.tolist()} == {(1, 2), (3, 0)}


def brute_force(priors, sizes):
    """The best perfect matching by trying all of them."""

    def value(a, b):
        return 2 / (1 / sizes[a] + 1 / sizes[b]) * (priors[a] - priors[b]) ** 2

    best = 0.0
    for order in itertools.permutations(range(len(priors))):
        pairs = (
            list(itertools.batched(order, 2))
            if hasattr(itertools, "batched")
            else [order[i : i + 2] for i in range(0, len(order), 2)]
        )
        best = max(best, sum(value(a, b) for a, b in pairs))
    return best


def test_unequal_sizes_are_matched_by_maximum_weight():
    rng = np.random.default_rng(0)
    for _ in range(5):
        priors, sizes = rng.uniform(size=6), rng.integers(5, 500, size=6)
        pairs = pair_sets(priors, sizes)
        assert sorted(pairs.ravel().tolist()) == list(range(6))
        a, b = pairs.T
        got = (2 / (1 / sizes[a] + 1 / sizes[b]) * (priors[a] - priors[b]) ** 2).sum()
        assert got == pytest.approx(brute_force(priors, sizes))


@pytest.mark.parametrize("sizes", [[10, 10, 10, 10, 10], [10, 20, 30, 40, 50]])
def test_an_odd_set_gets_a_second_use_of_the_farthest_set(sizes):
    priors = np.array([0.1, 0.9, 0.5, 0.3, 0.65])
    pairs = pair_sets(priors, np.array(sizes))
    assert len(pairs) == 3
    assert set(pairs.ravel().tolist()) == set(range(5))
    counts = np.bincount(pairs.ravel())
    assert sorted(counts.tolist()) == [1, 1, 1, 1, 2]


def test_the_first_of_a_pair_has_the_larger_prior():
    rng = np.random.default_rng(1)
    priors = rng.uniform(size=9)
    first, second = pair_sets(priors, rng.integers(1, 9, size=9)).T
    assert (priors[first] >= priors[second]).all()


def test_weights_go_with_size_times_squared_difference():
    priors, sizes = np.array([0.9, 0.1, 0.8, 0.4]), np.array([100, 100, 50, 50])
    weights = pair_weights(priors, sizes, np.array([[0, 1], [2, 3]]))
    expected = np.array([100 * 0.64, 50 * 0.16])
    np.testing.assert_allclose(weights, expected / expected.sum())
