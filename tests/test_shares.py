"""Shares of sets from logits, against literal grids and EM."""

import numpy as np
import pytest

from unmix.core.class_shares import nearest_in_simplex
from unmix.core.shares import check_rows, share_by_likelihood, share_by_mean, share_interval
from unmix.errors import InputError


def literal_log_likelihood(share, logits, target_prior):
    eta = 1 / (1 + np.exp(-logits))
    mixed = share / target_prior * eta + (1 - share) / (1 - target_prior) * (1 - eta)
    return np.sum(np.log(mixed))


def literal_em(logits, target_prior, rounds=4_000):
    eta = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    share = np.full(len(target_prior), 1 / len(target_prior))
    for _ in range(rounds):
        posterior = share / target_prior * eta
        posterior /= posterior.sum(axis=1, keepdims=True)
        share = posterior.mean(axis=0)
    return share


def two_class_sets(rng, shares, rows, target_prior):
    index = np.repeat(np.arange(len(shares)), rows)
    positive = rng.random(len(index)) < np.asarray(shares)[index]
    x = rng.normal(size=len(index)) + np.where(positive, 1, -1)
    return 2 * x + np.log(target_prior / (1 - target_prior)), index


def three_class_sets(rng, shares, rows, target_prior):
    means = np.array([[1.5, 0.0], [-0.7, 1.2], [-0.7, -1.2]])
    index = np.repeat(np.arange(len(shares)), rows)
    classes = (rng.random(len(index))[:, None] > np.cumsum(shares, axis=1)[index]).sum(axis=1)
    x = rng.normal(size=(len(index), 2)) + means[classes]
    return x @ means.T - (means**2).sum(axis=1) / 2 + np.log(target_prior), index


def test_two_class_shares_are_where_a_grid_finds_the_likelihood_largest():
    rng = np.random.default_rng(0)
    logits, index = two_class_sets(rng, [0.02, 0.3, 0.5, 0.97], 60, 0.2)
    shares, _ = share_by_likelihood(logits, index, 4, 0.2)
    grid = np.linspace(0, 1, 4_001)
    for j in range(4):
        values = [literal_log_likelihood(s, logits[index == j], 0.2) for s in grid]
        assert shares[j] == pytest.approx(grid[np.argmax(values)], abs=2e-4)


def test_standard_errors_are_the_curvature_of_the_literal_likelihood():
    rng = np.random.default_rng(1)
    logits, index = two_class_sets(rng, [0.4, 0.7], 80, 0.5)
    shares, errors = share_by_likelihood(logits, index, 2, 0.5)
    for j in range(2):
        mine, h = logits[index == j], 1e-4
        f = [literal_log_likelihood(shares[j] + d, mine, 0.5) for d in (-h, 0, h)]
        assert errors[j] == pytest.approx(((2 * f[1] - f[0] - f[2]) / h**2) ** -0.5, rel=1e-4)


def test_k_class_shares_are_those_of_em_and_may_be_exactly_zero():
    rng = np.random.default_rng(2)
    target = np.array([0.5, 0.3, 0.2])
    stated = np.array([[0.2, 0.3, 0.5], [0.0, 0.6, 0.4], [0.0, 0.0, 1.0], [0.9, 0.1, 0.0]])
    logits, index = three_class_sets(rng, stated, 200, target)
    shares, _ = share_by_likelihood(logits, index, 4, target)
    for j in range(4):
        assert shares[j] == pytest.approx(literal_em(logits[index == j], target), abs=2e-4)
    assert shares.sum(axis=1) == pytest.approx(np.ones(4), abs=1e-14)
    assert (shares == 0).sum() >= 2


def test_k_class_code_agrees_with_two_class_code():
    rng = np.random.default_rng(3)
    logits, index = two_class_sets(rng, rng.uniform(0, 1, 12), 50, 0.3)
    shares, errors = share_by_likelihood(logits, index, 12, 0.3)
    both = np.stack([np.zeros_like(logits), logits], axis=1)
    matrix, matrix_errors = share_by_likelihood(both, index, 12, np.array([0.7, 0.3]))
    assert matrix[:, 1] == pytest.approx(shares, abs=1e-9)
    assert matrix_errors[:, 1] == pytest.approx(errors, rel=1e-6)
    assert matrix_errors[:, 0] == pytest.approx(errors, rel=1e-6)


def test_three_class_standard_errors_match_the_scatter_of_many_sets():
    rng = np.random.default_rng(4)
    target = np.array([0.3, 0.3, 0.4])
    stated = np.tile([0.5, 0.3, 0.2], (300, 1))
    logits, index = three_class_sets(rng, stated, 150, target)
    shares, errors = share_by_likelihood(logits, index, 300, target)
    assert ((shares - stated) / errors).std(axis=0) == pytest.approx(np.ones(3), abs=0.12)
    assert shares.mean(axis=0) == pytest.approx(stated[0], abs=0.01)


def test_logits_of_a_thousand_count_rows():
    logits = np.array([1000.0, -1000.0, -1000.0, -1000.0, 1000.0, 1000.0])
    shares, errors = share_by_likelihood(logits, [0, 0, 0, 0, 1, 1], 2, 0.5)
    assert shares == pytest.approx([0.25, 1.0], abs=1e-12)
    assert errors[0] == pytest.approx(np.sqrt(0.25 * 0.75 / 4))
    hard = 1000.0 * np.eye(3)[[0, 0, 1, 2]]
    assert share_by_likelihood(hard, [0, 0, 0, 0], 1, [0.2, 0.3, 0.5])[0][0] == pytest.approx(
        [0.5, 0.25, 0.25], abs=1e-9
    )
    assert share_by_mean(logits, [0, 0, 0, 0, 1, 1], 2)[0] == pytest.approx([0.25, 1.0])


def test_a_set_of_one_class_gets_a_share_of_exactly_one_or_zero():
    shares, errors = share_by_likelihood(np.full(8, 2.0), [0] * 8, 1, 0.5)
    assert shares[0] == 1.0
    # Curvature at the boundary: each row adds (1 - exp(-2))^2.
    assert errors[0] == pytest.approx(1 / np.sqrt(8 * (1 - np.exp(-2)) ** 2))
    assert share_by_likelihood(np.full(8, -2.0), [0] * 8, 1, 0.5)[0][0] == 0.0


def test_sets_without_rows_are_nan_and_flat_likelihoods_give_the_target_prior():
    shares, errors = share_by_likelihood(np.full(3, np.log(0.2 / 0.8)), [1, 1, 1], 3, 0.2)
    assert np.isnan(shares[[0, 2]]).all()
    assert np.isnan(errors[[0, 2]]).all()
    assert shares[1] == pytest.approx(0.2)
    assert errors[1] == np.inf
    target = np.array([0.2, 0.3, 0.5])
    shares, errors = share_by_likelihood(np.log(target)[None], [1], 2, target)
    assert shares[1] == pytest.approx(target)
    assert (errors[1] == np.inf).all()
    assert np.isnan(shares[0]).all()


def test_mean_shares_have_the_standard_error_of_a_mean():
    rng = np.random.default_rng(5)
    logits = rng.normal(size=(40, 3))
    index = np.repeat([0, 1, 3], [25, 14, 1])
    eta = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    shares, errors = share_by_mean(logits, index, 4)
    assert shares[0] == pytest.approx(eta[:25].mean(axis=0))
    assert errors[1] == pytest.approx(eta[25:39].std(axis=0, ddof=1) / np.sqrt(14))
    assert (errors[3] == np.inf).all()
    assert np.isnan(shares[2]).all()
    assert np.isnan(errors[2]).all()


def test_interval_ends_are_where_the_literal_likelihood_has_fallen_enough():
    rng = np.random.default_rng(6)
    logits, index = two_class_sets(rng, [0.0, 0.35, 1.0], 70, 0.4)
    shares, _ = share_by_likelihood(logits, index, 3, 0.4)
    low, high = share_interval(logits, index, 3, 0.4, confidence=0.95)
    for j in range(3):
        mine = logits[index == j]
        best = literal_log_likelihood(shares[j], mine, 0.4)
        for end in (low[j], high[j]):
            if 0 < end < 1:
                fallen = best - literal_log_likelihood(end, mine, 0.4)
                assert fallen == pytest.approx(3.841458820694124 / 2, rel=1e-8)
        assert low[j] <= shares[j] <= high[j]
    assert low[0] == 0.0
    assert high[0] < 0.2
    assert high[2] == 1.0
    assert low[2] > 0.8


def test_one_certain_row_gives_the_textbook_interval():
    low, high = share_interval([1000.0], [0], 2, 0.5)
    assert low[0] == pytest.approx(np.exp(-3.841458820694124 / 2))
    assert high[0] == 1.0
    assert np.isnan([low[1], high[1]]).all()


@pytest.mark.parametrize(
    ("logits", "index", "message"),
    [
        ([0.0, np.nan], [0, 1], "row 1"),
        ([0.0, 1.0], [0, 2], "got 2"),
        ([0.0, 1.0], [0, -1], "got -1"),
        ([0.0, 1.0], [0], "one integer per row"),
        ([0.0, 1.0], [0.0, 1.0], "one integer per row"),
        ([[0.0], [1.0]], [0, 1], r"\(2, 1\)"),
    ],
)
def test_bad_rows_are_named(logits, index, message):
    with pytest.raises(InputError, match=message):
        check_rows(logits, index, 2)


@pytest.mark.parametrize("target", [0.0, 1.0, 1.5, [0.2, 0.3, 0.5]])
def test_a_target_prior_without_meaning_is_refused(target):
    with pytest.raises(InputError, match="target_prior"):
        share_by_likelihood([0.0], [0], 1, target)


def test_nearest_in_simplex_beats_every_other_point():
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(20, 4))
    nearest = nearest_in_simplex(rows)
    assert nearest.sum(axis=1) == pytest.approx(np.ones(20))
    assert nearest.min() == 0
    others = rng.dirichlet(np.ones(4), 2000)
    distance = ((rows[:, None] - others[None]) ** 2).sum(axis=2).min(axis=1)
    assert (((rows - nearest) ** 2).sum(axis=1) <= distance).all()
