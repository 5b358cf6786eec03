"""The share of a set by its rows and the law of other shares, beside the literal posterior."""

import numpy as np
import pytest
from scipy.optimize import minimize

import reference_counts as literal
from unmix.core.share_law import ShareLaw, log_ratios, share_law, shares_by_law


def test_the_law_has_the_mean_and_the_spread_of_the_shares_and_one_set_more():
    shares = np.array([0.2, 0.5, 0.6])
    ratios = np.log(shares / (1 - shares))
    law = share_law(shares)
    assert law.mean == pytest.approx([ratios.mean()])
    assert law.covariance == pytest.approx((((ratios - ratios.mean()) ** 2).sum() + 1) / 3)


def test_equal_shares_and_few_sets_leave_a_law_with_a_spread():
    assert share_law(np.array([0.3])).covariance == pytest.approx(1.0)
    of_two = share_law(np.array([[0.2, 0.3, 0.5]] * 2))
    # Two log-odds vary by 1, and so do all others: their difference varies by 1 as well.
    assert of_two.covariance == pytest.approx(np.array([[0.5, 0.25], [0.25, 0.5]]))


@pytest.mark.parametrize(("classes", "rows"), [(2, 3), (2, 40), (3, 6), (3, 60), (4, 25)])
def test_the_most_likely_shares_and_their_errors_are_the_literal_ones(classes, rows):
    rng = np.random.default_rng([classes, rows])
    z, prior = rng.normal(size=(3 * rows, classes)) * 2, rng.dirichlet(np.full(classes, 5.0))
    spread = rng.normal(size=(classes - 1, classes - 1))
    law = ShareLaw(rng.normal(size=classes - 1), spread @ spread.T + 0.3 * np.eye(classes - 1))
    found, covariances = shares_by_law(z, np.repeat(np.arange(3), rows), 3, prior, law)
    for j in range(3):

        def minus(ratios, own=z[j * rows : (j + 1) * rows]):
            return -literal.share_log_posterior(own, prior, law.mean, law.covariance, ratios)

        best = minimize(minus, law.mean, method="Nelder-Mead", options={"xatol": 1e-7})
        assert found[j] == pytest.approx(best.x, abs=2e-4)
        steps = 1e-3 * np.eye(classes - 1)
        bends = [
            [
                (minus(found[j] + a + b) - minus(found[j] + a - b) - minus(found[j] - a + b)
                 + minus(found[j] - a - b)) / 4e-6
                for b in steps
            ]
            for a in steps
        ]  # fmt: skip
        assert np.linalg.inv(covariances[j]) == pytest.approx(np.array(bends), rel=1e-3, abs=1e-3)


def test_rows_that_all_say_one_class_do_not_run_away():
    z = np.array([[0.0, 30.0]] * 20 + [[0.0, 1e3]] * 20)
    law = share_law(np.array([0.3, 0.5, 0.7]))
    found, covariances = shares_by_law(z, np.repeat([0, 1], 20), 3, np.array([0.5, 0.5]), law)
    share = 1 / (1 + np.exp(-found[:2, 0]))
    assert share == pytest.approx([share[0]] * 2)
    assert 0.85 < share[0] < 0.999
    # n s (1 - s) of the rows, 1 / variance of the law.
    expected = 1 / (20 * share[0] * (1 - share[0]) + 1 / law.covariance[0, 0])
    assert covariances[0, 0, 0] == pytest.approx(expected, rel=1e-6)
    # A set without rows has the law.
    assert found[2] == pytest.approx(law.mean)
    assert covariances[2] == pytest.approx(law.covariance)


def test_many_rows_forget_the_law():
    rng = np.random.default_rng(0)
    positive = rng.random(20_000) < 0.8
    z = np.stack([np.zeros(20_000), 2 * (rng.normal(size=20_000) + np.where(positive, 1, -1))], 1)
    law = ShareLaw(np.array([-1.0]), np.array([[0.25]]))
    found, _ = shares_by_law(z, np.zeros(20_000, int), 1, np.array([0.5, 0.5]), law)
    assert 1 / (1 + np.exp(-found[0, 0])) == pytest.approx(positive.mean(), abs=0.01)


def test_two_classes_have_the_ratios_of_vectors():
    shares = np.array([0.1, 0.6])
    assert log_ratios(shares) == pytest.approx(log_ratios(np.stack([1 - shares, shares], axis=1)))
