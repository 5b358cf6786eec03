"""The log density of held-out shares, line by line of the page's table."""

import math

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal

import reference_counts as literal
from unmix.core.effect_law import fit_tau
from unmix.core.set_effects import total_variances
from unmix.core.share_density import (
    baseline_residuals,
    join_residuals,
    label_shift_residuals,
    log_density,
    set_effect_residuals,
)
from unmix.core.share_law import ShareLaw, inside_shares, share_law
from unmix.errors import InputError


def label_shift_sets(rng, num_sets, rows):
    shares = rng.uniform(0.1, 0.9, num_sets)
    index = np.repeat(np.arange(num_sets), rows)
    positive = rng.random(len(index)) < shares[index]
    z = 2 * (rng.normal(size=len(index)) + np.where(positive, 1, -1))
    return z, index, np.bincount(index, positive) / rows


def covariate_shift_sets(rng, num_sets, rows, tau):
    index = np.repeat(np.arange(num_sets), rows)
    centre, effect = rng.normal(size=num_sets), tau * rng.normal(size=num_sets)
    z = 2 * (rng.normal(size=len(index)) + centre[index])
    positive = rng.random(len(index)) < 1 / (1 + np.exp(-z - effect[index]))
    return z, index, np.bincount(index, positive) / rows


def logit(p):
    return math.log(p / (1 - p))


WIDE = ShareLaw(np.array([0.2]), np.array([[1.5]]))


def test_label_shift_is_the_pages_line():
    z, index, shares = label_shift_sets(np.random.default_rng(0), 5, 80)
    shares[0] = 0.0
    density, tau = log_density(label_shift_residuals(z, index, shares, 0.4, WIDE, 3.0), 0.2)
    assert tau == 0.2
    for j in range(5):
        both = [[0.0, a] for a in z[index == j]]

        def posterior(ratio, both=both):
            return literal.share_log_posterior(both, [0.6, 0.4], [0.2], 1.5, [ratio])

        found = minimize_scalar(lambda t: -posterior(t), bounds=(-8, 8), method="bounded")
        step = 1e-3
        bend = posterior(found.x + step) + posterior(found.x - step) - 2 * posterior(found.x)
        share = max(shares[j], 0.5 / 80)
        total = 0.2**2 - step**2 / bend + 3.0 / (80 * share * (1 - share)) ** 2
        expected = math.log(literal.normal(logit(share) - found.x, total) / (share * (1 - share)))
        assert density[j] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("rows", [5, 20, 100])
def test_label_shift_is_nearly_the_density_by_integration(rows):
    z, index, shares = label_shift_sets(np.random.default_rng(rows), 12, rows)
    stated = np.clip(shares, 0.1, 0.9)
    density, _ = log_density(label_shift_residuals(z, index, stated, 0.5, WIDE), 0.0)
    exact = [
        math.log(literal.share_posterior_density(z[index == j], 0.5, 0.2, 1.5, stated[j]))
        for j in range(12)
    ]
    assert density == pytest.approx(exact, abs=0.35)
    assert density.mean() == pytest.approx(np.mean(exact), abs=0.05)


def test_set_effects_are_the_pages_line():
    z, index, shares = covariate_shift_sets(np.random.default_rng(1), 4, 50, 0.5)
    density, _ = log_density(set_effect_residuals(z, index, shares, 2.0), 0.3)
    for j in range(4):
        inside = float(inside_shares(shares[[j]], [50])[0])
        expected = -literal.set_effect_nll(z[index == j], inside, 0.3, 2.0)
        assert density[j] == pytest.approx(expected, abs=1e-9)


def test_the_baseline_is_the_pages_line():
    shares, rows = np.array([0.2, 0.0, 0.7]), np.array([50, 50, 10])
    density, _ = log_density(baseline_residuals(shares, rows, -0.4), 0.8)
    for j, share in enumerate([0.2, 0.01, 0.7]):
        total = 0.8**2 + 1 / (rows[j] * share * (1 - share))
        expected = math.log(literal.normal(logit(share) + 0.4, total) / (share * (1 - share)))
        assert density[j] == pytest.approx(expected)


def test_the_density_of_a_share_integrates_to_one():
    # On a fine grid of shares of one set; the tails beyond half a row are left out.
    rows = 400
    grid = np.linspace(0.5 / rows, 1 - 0.5 / rows, 2_001)
    flat = baseline_residuals(grid, np.full(len(grid), rows), 0.3)
    assert trapezoid(np.exp(log_density(flat, 0.5)[0]), grid) == pytest.approx(1, abs=0.02)
    z = np.random.default_rng(2).normal(size=rows)
    effects = set_effect_residuals(np.tile(z, 2_001), np.repeat(np.arange(2_001), rows), grid)
    assert trapezoid(np.exp(log_density(effects, 0.5)[0]), grid) == pytest.approx(1, abs=0.02)


def test_three_classes_are_normal_densities_of_log_ratios():
    rng = np.random.default_rng(3)
    shares, rows = rng.dirichlet(np.ones(3), size=4), np.array([30, 40, 50, 60])
    mean, tau = np.array([0.2, -0.3]), 0.6
    density, _ = log_density(baseline_residuals(shares, rows, mean, 2.0), tau)
    inside = inside_shares(shares, rows)
    for j in range(4):
        s = inside[j]
        sampling = np.linalg.inv(rows[j] * (np.diag(s) - np.outer(s, s))[1:, 1:])
        noise = sampling @ (2 * (np.eye(3) - 1 / 3))[1:, 1:] @ sampling
        covariance = tau**2 * (np.eye(2) + 1) / 2 + sampling + noise
        expected = multivariate_normal(mean, covariance).logpdf(np.log(s[1:] / s[0]))
        assert density[j] == pytest.approx(expected - np.log(s).sum())
    z, index = rng.normal(size=(180, 3)), np.repeat(np.arange(4), rows)
    effects, _ = log_density(set_effect_residuals(z, index, shares), tau)
    offsets, slopes, totals = total_variances(z, index, shares, tau)
    for j in range(4):
        expected = multivariate_normal([0, 0], totals[j]).logpdf(offsets[j])
        assert effects[j] == pytest.approx(expected - np.log(np.linalg.det(slopes[j])))


@pytest.mark.parametrize("tau", [0.3, None])
def test_two_classes_are_the_vectors_of_k_classes(tau):
    z, index, shares = label_shift_sets(np.random.default_rng(4), 12, 60)
    both, vectors = np.stack([0 * z, z], axis=1), np.stack([1 - shares, shares], axis=1)
    rows = np.full(12, 60)
    pairs = [
        (label_shift_residuals(z, index, shares, 0.5, WIDE),
         label_shift_residuals(both, index, vectors, [0.5, 0.5], WIDE)),
        (set_effect_residuals(z, index, shares), set_effect_residuals(both, index, vectors)),
        (baseline_residuals(shares, rows, 0.1), baseline_residuals(vectors, rows, [0.1])),
    ]  # fmt: skip
    for one, other in pairs:
        assert log_density(other, tau)[0] == pytest.approx(log_density(one, tau)[0], abs=1e-5)


def test_tau_is_fitted_to_the_residuals_of_all_folds_together():
    z, index, shares = covariate_shift_sets(np.random.default_rng(5), 60, 80, 0.7)
    whole = set_effect_residuals(z, index, shares)
    first, second = index < 25, index >= 25
    joined = join_residuals(
        set_effect_residuals(z[first], index[first], shares[:25]),
        set_effect_residuals(z[second], index[second] - 25, shares[25:]),
    )
    density, tau = log_density(joined)
    assert tau == pytest.approx(fit_tau(whole.residuals, whole.variances))
    assert tau == pytest.approx(0.7, abs=0.2)
    assert density == pytest.approx(log_density(whole)[0], abs=1e-7)


def test_each_assumption_predicts_its_own_sets_best():
    rng = np.random.default_rng(6)
    for make in (label_shift_sets, lambda *a: covariate_shift_sets(*a, 0.3)):
        z, index, shares = make(rng, 60, 150)
        rows = np.full(60, 150)
        law = share_law(inside_shares(shares, rows))
        shift, _ = log_density(label_shift_residuals(z, index, shares, 0.5, law))
        effects, _ = log_density(set_effect_residuals(z, index, shares))
        base, _ = log_density(baseline_residuals(shares, rows, law.mean))
        own, other = (shift, effects) if make is label_shift_sets else (effects, shift)
        for rival in (other, base):
            gain = own - rival
            assert gain.mean() > 4 * gain.std() / math.sqrt(60)


def test_sets_without_rows_have_no_density_and_leave_tau_alone():
    z, index, shares = covariate_shift_sets(np.random.default_rng(7), 10, 40, 0.5)
    more = np.append(shares, 0.5)
    for residuals in (
        set_effect_residuals(z, index, more),
        label_shift_residuals(z, index, more, 0.5, WIDE),
    ):
        density, _ = log_density(residuals)
        assert np.isnan(density).tolist() == [False] * 10 + [True]
    alone, tau = log_density(set_effect_residuals(z, index, shares))
    density, same = log_density(set_effect_residuals(z, index, more))
    assert same == tau
    assert density[:10] == pytest.approx(alone)


def test_shares_must_go_with_the_logits():
    with pytest.raises(InputError, match="shares must go with the logits"):
        label_shift_residuals([0.0, 1.0], [0, 0], [[0.5, 0.5]], 0.5, WIDE)
