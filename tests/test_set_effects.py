"""Set effects against the page's formulas, numerical integration and finite differences."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

import reference_counts as literal
from unmix.core.effect_law import fit_tau, new_set_probability
from unmix.core.set_effects import (
    best_effect_nll,
    effect_size,
    known_set_offsets,
    set_effect_hessian,
    set_effect_nll,
    set_offsets,
    total_variances,
)
from unmix.core.share_law import inside_shares
from unmix.errors import InputError


def one_set(n):
    return np.zeros(n, dtype=int)


def draw(rng, num_sets, rows, *, tau=0.5, shift=0.0):
    index = np.repeat(np.arange(num_sets), rows)
    z = 1.5 * rng.normal(size=len(index)) + shift
    effect = tau * rng.normal(size=num_sets)
    positive = rng.random(len(index)) < 1 / (1 + np.exp(-z - effect[index]))
    return z, index, np.bincount(index, positive, minlength=num_sets) / rows


def draw_classes(rng, num_sets, rows, num_classes):
    index = np.repeat(np.arange(num_sets), rows)
    z = rng.normal(size=(len(index), num_classes))
    return z, index, rng.dirichlet(np.ones(num_classes), size=num_sets)


@pytest.mark.parametrize(("tau", "variance"), [(0.0, 0.0), (0.4, 0.0), (0.4, 5.0), (2.0, 1.0)])
def test_values_and_gradients_are_those_of_the_page(tau, variance):
    z, index, shares = draw(np.random.default_rng(0), 3, 12)
    shares[:] = [0.25, 0.0, 0.8]
    values, gradient, by_log_tau = set_effect_nll(z, index, shares, tau, np.full(3, variance))
    inside = [0.25, 0.5 / 12, 0.8]

    def slow(x, j, scale=tau):
        return literal.set_effect_nll(x, inside[j], scale, variance)

    for j in range(3):
        mine = z[index == j]
        assert values[j] == pytest.approx(slow(mine, j), abs=1e-9)
        slope = literal.slope(lambda x, j=j: slow(x, j), mine)
        assert gradient[index == j] == pytest.approx(slope, abs=1e-7)
        up, down = slow(mine, j, tau * math.exp(1e-5)), slow(mine, j, tau * math.exp(-1e-5))
        assert by_log_tau[j] == pytest.approx((up - down) / 2e-5, abs=1e-6)


@pytest.mark.parametrize(("rows", "error"), [(30, 0.05), (100, 0.02), (300, 0.01)])
def test_the_density_is_that_of_the_count_integrated_over_the_effect(rows, error):
    z, index, shares = draw(np.random.default_rng(1), 4, rows, tau=0.4)
    values, _, _ = set_effect_nll(z, index, shares, 0.4)
    for j in range(4):
        probability = literal.set_effect_likelihood(z[index == j], round(shares[j] * rows), 0.4)
        # A count is 1 / n wide on the scale of shares.
        assert values[j] == pytest.approx(-math.log(probability * rows), abs=error)


@pytest.mark.parametrize("variances", [0.0, np.array([[1.0, 2.0, 0.5, 3.0]] * 3)])
def test_gradients_of_four_classes_are_those_of_their_values(variances):
    z, index, shares = draw_classes(np.random.default_rng(2), 3, 9, 4)
    shares[0] = [0, 0.5, 0.5, 0]
    _, gradient, by_log_tau = set_effect_nll(z, index, shares, 0.6, variances)
    slope = literal.slope(lambda x: set_effect_nll(x, index, shares, 0.6, variances)[0].sum(), z)
    assert gradient == pytest.approx(slope, abs=1e-7)
    up, _, _ = set_effect_nll(z, index, shares, 0.6 * math.exp(1e-5), variances)
    down, _, _ = set_effect_nll(z, index, shares, 0.6 * math.exp(-1e-5), variances)
    assert by_log_tau == pytest.approx((up - down) / 2e-5, abs=1e-7)


def test_two_classes_are_the_vectors_of_k_classes():
    z, index, shares = draw(np.random.default_rng(3), 5, 20)
    variances = np.arange(5.0)
    both, vectors = np.stack([0 * z, z], axis=1), np.stack([1 - shares, shares], axis=1)
    noise = np.stack([2 * variances, 2 * variances], axis=1)  # averaged: half of it
    values, gradient, by_log_tau = set_effect_nll(z, index, shares, 0.7, variances)
    as_vectors, slopes, by_tau = set_effect_nll(both, index, vectors, 0.7, noise)
    assert as_vectors == pytest.approx(values, abs=1e-10)
    assert slopes[:, 1] == pytest.approx(gradient, abs=1e-10)
    assert by_tau == pytest.approx(by_log_tau, abs=1e-10)
    offsets = known_set_offsets(both, index, vectors, 0.7, noise)
    assert offsets[:, 1] == pytest.approx(known_set_offsets(z, index, shares, 0.7, variances))
    diagonal = set_effect_hessian(both, index, vectors, 0.7, noise)
    assert diagonal[:, 1] == pytest.approx(set_effect_hessian(z, index, shares, 0.7, variances))


def test_no_class_is_special():
    z, index, shares = draw_classes(np.random.default_rng(4), 3, 9, 4)
    order = [2, 0, 3, 1]
    values, gradient, _ = set_effect_nll(z, index, shares, 0.6)
    turned, slopes, _ = set_effect_nll(z[:, order], index, shares[:, order], 0.6)
    assert turned == pytest.approx(values, abs=1e-10)
    assert slopes == pytest.approx(gradient[:, order], abs=1e-9)
    offsets = known_set_offsets(z, index, shares, 0.6)[:, order]
    moved = known_set_offsets(z[:, order], index, shares[:, order], 0.6)
    assert moved == pytest.approx(offsets - offsets[:, :1], abs=1e-9)


def test_offsets_make_the_mean_probability_the_stated_share():
    rng = np.random.default_rng(5)
    z, index, shares = draw(rng, 4, 15)
    shares[0] = 1.0
    b = set_offsets(z, index, shares)
    means = np.bincount(index, 1 / (1 + np.exp(-z - b[index]))) / 15
    assert means == pytest.approx([1 - 0.5 / 15, *shares[1:]], abs=1e-11)
    zs, index, vectors = draw_classes(rng, 4, 15, 3)
    powers = np.exp(zs + set_offsets(zs, index, vectors)[index])
    q = powers / powers.sum(axis=1, keepdims=True)
    sums = np.stack([np.bincount(index, column) / 15 for column in q.T], axis=1)
    assert sums == pytest.approx(inside_shares(vectors, np.full(4, 15)), abs=1e-10)


def test_shares_move_in_by_half_a_row_and_still_sum_to_one():
    moved = inside_shares([[1.0, 0.0, 0.0], [0.5, 0.3, 0.2], [0.6, 0.4, 0.0]], [10, 10, 10])
    assert moved[0] == pytest.approx([0.9, 0.05, 0.05])
    assert moved[1] == pytest.approx([0.5, 0.3, 0.2])
    assert moved.sum(axis=1) == pytest.approx(np.ones(3))
    assert inside_shares([[1.0, 0.0, 0.0]], [1])[0] == pytest.approx(np.full(3, 1 / 3))
    pair = inside_shares([[1.0, 0.0]], [4])[0]
    assert pair == pytest.approx([1 - inside_shares([0.0], [4])[0], 1 / 8])


def test_certain_rows_keep_every_probability_of_a_count_at_or_below_one():
    z = np.array([1000.0, -1000.0, 1000.0, -1000.0])
    for tau in (0.0, 0.5):
        values, gradient, _ = set_effect_nll(z, one_set(4), [0.5], tau)
        assert values[0] >= -math.log(4) - 1e-9  # the density of a share: at most n
        assert gradient == pytest.approx(np.zeros(4), abs=1e-6)
    values, gradient, _ = set_effect_nll(z, one_set(4), [0.25], 0.5)
    n_v = 0.25 * 2  # one of two rows is turned: both are at even odds
    omega = (0.5 * (n_v + 1 / (2 * math.pi))) ** 2 + n_v + 1 / (2 * math.pi)
    moved = 1000 * (n_v + 1 / (2 * math.pi))
    expected = moved**2 / (2 * omega) + math.log(2 * math.pi * omega) / 2 - math.log(4)
    assert values[0] == pytest.approx(expected)
    assert np.isfinite(gradient).all()
    many, slopes, _ = set_effect_nll(
        1000 * np.eye(4)[[0, 1, 2, 3, 0]], one_set(5), [[0.4, 0.2, 0.2, 0.2]], 0.5
    )
    assert many[0] >= -3 * math.log(5) - 1e-9
    assert np.isfinite(slopes).all()


def test_sets_of_all_sizes_and_none_do_not_disturb_each_other():
    rng = np.random.default_rng(6)
    sizes = [0, 1, 3, 250, 0, 17]
    index = rng.permutation(np.repeat(np.arange(6), sizes))
    z, shares = rng.normal(size=len(index)), np.array([0.5, 1.0, 0.3, 0.9, 0.0, 0.1])
    values, gradient, by_log_tau = set_effect_nll(z, index, shares, 0.3)
    for j, size in enumerate(sizes):
        if size == 0:
            assert (values[j], by_log_tau[j]) == (0, 0)
            continue
        alone, slope, _ = set_effect_nll(z[index == j], one_set(size), shares[[j]], 0.3)
        assert values[j] == pytest.approx(alone[0], abs=1e-10)
        assert gradient[index == j] == pytest.approx(slope, abs=1e-10)
    assert known_set_offsets(z, index, shares, 0.3)[[0, 4]].tolist() == [0, 0]
    same = set_effect_nll(z, index, shares, 0.3)
    assert np.array_equal(same[0], values)
    assert np.array_equal(same[1], gradient)


def test_a_million_sets():
    rng = np.random.default_rng(7)
    index = np.repeat(np.arange(1_000_000), 3)
    z = np.repeat(rng.normal(size=1_000_000), 3)
    shares = rng.integers(4, size=1_000_000) / 3
    values, gradient, _ = set_effect_nll(z, index, shares, 0.5)
    # Rows alike: the offset is the difference of log-odds.
    inside = np.clip(shares, 1 / 6, 5 / 6)
    b = np.log(inside / (1 - inside)) - z[::3]
    information = 3 * inside * (1 - inside) + 1 / (2 * np.pi)
    omega = (0.5 * information) ** 2 + information
    expected = (b * information) ** 2 / (2 * omega) + np.log(2 * np.pi * omega) / 2 - np.log(3)
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(gradient[::3], -b * information**2 / omega / 3, rtol=0, atol=1e-9)


def test_tau_is_found_where_a_grid_finds_the_likelihood_largest():
    rng = np.random.default_rng(8)
    variances = rng.uniform(0.01, 0.5, 400)
    residuals = rng.normal(size=400) * np.sqrt(0.6**2 + variances)
    grid = np.linspace(0.3, 1.0, 7_001)
    costs = [np.sum(residuals**2 / (t**2 + variances) + np.log(t**2 + variances)) for t in grid]
    tau = fit_tau(residuals, variances)
    assert tau == pytest.approx(grid[np.argmin(costs)], abs=1e-4)
    assert abs(tau - 0.6) < 0.1
    assert fit_tau(0.1 * residuals, variances) == 0.0
    gap = fit_tau(np.append(residuals, np.nan), np.append(variances, np.nan))
    assert gap == tau


def test_tau_of_drawn_sets_is_found_from_their_offsets():
    z, index, shares = draw(np.random.default_rng(9), 300, 100, tau=0.8)
    offsets, slopes, totals = total_variances(z, index, shares, 0.0)
    assert totals == pytest.approx(1 / (100 * slopes))
    assert fit_tau(offsets, totals) == pytest.approx(0.8, abs=0.1)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_value_at_the_best_tau_has_the_gradient_of_the_least_value(num_classes):
    rng = np.random.default_rng(3)
    z, index, shares = draw(rng, 8, 30) if num_classes == 2 else draw_classes(rng, 8, 30, 3)
    values, gradient, tau = best_effect_nll(z, index, shares, np.full(shares.shape, 2.0))
    assert tau > 0.1

    def least(logits):
        grid = tau * np.exp(np.linspace(-0.5, 0.5, 201))
        noise = np.full(shares.shape, 2.0)
        return min(set_effect_nll(logits, index, shares, t, noise)[0].sum() for t in grid)

    assert values.sum() <= least(z) + 1e-9
    step = rng.normal(size=z.shape)
    up, down = (
        best_effect_nll(z + e * step, index, shares, np.full(shares.shape, 2.0))[0].sum()
        for e in (1e-5, -1e-5)
    )
    assert (gradient * step).sum() == pytest.approx((up - down) / 2e-5, rel=1e-5)
    assert best_effect_nll(z, index, shares)[2] == effect_size(z, index, shares)


@pytest.mark.parametrize("tau", [0.0, 0.5, 2.0])
def test_rows_of_new_sets_are_averaged_over_the_effect(tau):
    z = np.array([-6.0, -1.0, 0.0, 0.3, 4.0, 1000.0])
    exact = new_set_probability(z, tau)
    if tau:
        for place, a in enumerate(z[:5]):
            slow, _ = quad(
                lambda b, a=a: literal.sigmoid(a + b) * literal.normal(b, tau**2), -9 * tau, 9 * tau
            )
            assert exact[place] == pytest.approx(slow, abs=1e-6)
    else:
        assert exact[:5] == pytest.approx(1 / (1 + np.exp(-z[:5])))
    assert exact[5] == pytest.approx(1)
    assert new_set_probability(z, tau, approximate=True) == pytest.approx(exact, abs=0.02)


def test_three_classes_of_new_sets_are_near_the_average_over_drawn_effects():
    rng = np.random.default_rng(10)
    z = np.array([[0.5, -1.0, 2.0], [0.0, 0.0, 0.0]])
    effects = rng.normal(size=(40_000, 1, 3)) * math.sqrt(0.8**2 / 2)
    powers = np.exp(z + effects)
    drawn = (powers / powers.sum(axis=2, keepdims=True)).mean(axis=0)
    assert new_set_probability(z, 0.8) == pytest.approx(drawn, abs=0.02)


def test_known_offsets_are_the_mean_of_the_effect_given_the_share():
    z, index, shares = draw(np.random.default_rng(11), 3, 60, tau=0.6)
    shrunken = known_set_offsets(z, index, shares, 0.6)
    for j in range(3):
        mine, count = z[index == j], round(shares[j] * 60)

        def weight(b, mine=mine, count=count):
            return literal.recursion(mine + b, count) * literal.normal(b, 0.36)

        total, _ = quad(weight, -5, 5)
        mean, _ = quad(lambda b, weight=weight: b * weight(b), -5, 5)
        assert shrunken[j] == pytest.approx(mean / total, abs=0.03)
    b, _, totals = total_variances(z, index, shares, 0.6)
    assert shrunken == pytest.approx(b * 0.36 / totals)
    assert known_set_offsets(z, index, shares, 0.0) == pytest.approx(np.zeros(3))


def test_the_hessian_is_the_formula():
    z, index, shares = draw(np.random.default_rng(12), 3, 40)
    b, slopes, totals = total_variances(z, index, shares, 0.4, 2.0)
    q = 1 / (1 + np.exp(-z - b[index]))
    expected = q * (1 - q) / (40 * slopes * totals)[index]
    assert set_effect_hessian(z, index, shares, 0.4, 2.0) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("shares", "tau", "variances", "message"),
    [
        ([[0.5, 0.5]], 0.1, 0.0, "shares must have shape"),
        ([1.5], 0.1, 0.0, r"shares must lie in \[0, 1\]"),
        ([0.5], -0.1, 0.0, "tau must be"),
        ([0.5], 0.1, [1.0, 2.0], "variances must be"),
    ],
)
def test_mistakes_are_named(shares, tau, variances, message):
    with pytest.raises(InputError, match=message):
        set_effect_nll([0.0, 1.0], [0, 0], shares, tau, variances)
