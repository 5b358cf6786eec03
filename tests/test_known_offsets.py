"""What a known share adds to the logits of its rows, against sums over all labelings."""

import numpy as np
import pytest
from scipy.special import expit

import reference_counts as literal
from unmix.core.known_offsets import offsets_by_effect, offsets_by_prior
from unmix.core.share_precision import SharePrecision

PRIOR = np.array([0.6, 0.4])
CLASS_PRIOR = np.array([0.5, 0.3, 0.2])


def drawn(seed, rows, sets=1, classes=2):
    rng = np.random.default_rng(seed)
    index = np.repeat(np.arange(sets), rows)
    return rng.normal(size=(len(index), classes) if classes > 2 else len(index)), index


def both(shares):
    return np.stack([1 - np.asarray(shares), np.asarray(shares)], axis=1)


def precision(counted, errors):
    return SharePrecision(np.asarray(counted, float), np.asarray(errors, float))


def shifts(prior, shares):
    return np.log(shares / (1 - shares)) - np.log(prior[1] / prior[0])


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_exact_count_of_these_rows_is_the_expected_count_and_nothing_is_left(share):
    z, index = drawn(0, 8)
    for found in (
        offsets_by_prior(z, index, both([share]), PRIOR, precision([8], [0])),
        offsets_by_effect(z, index, both([share]), 0.3, precision([8], [0])),
    ):
        assert expit(z + found.offsets[0]).mean() == pytest.approx(share, abs=1e-9)
        assert found.factors[0] == 0


def test_the_exact_rate_of_a_population_is_the_prior_of_its_rows():
    z, index = drawn(1, 8)
    found = offsets_by_prior(z, index, both([0.3]), PRIOR, precision([np.inf], [0]))
    assert found.offsets[0] == pytest.approx(shifts(PRIOR, 0.3))
    assert found.factors[0] == 0


@pytest.mark.parametrize("error", [0.05, 0.15])
def test_an_uncertain_rate_is_weighed_against_its_rows(error):
    # The posterior of the offset on a grid: likelihood of the rows, N(rate; share, error^2).
    z, index = drawn(2, 60)
    z = 2 * z
    grid = np.linspace(-5, 5, 4001)
    share = expit(grid + np.log(PRIOR[1] / PRIOR[0]))
    rows = [
        np.sum(np.log(share * expit(z) / PRIOR[1] + (1 - share) * expit(-z) / PRIOR[0]))
        for share in share
    ]
    log_density = np.array(rows) - (share - 0.2) ** 2 / (2 * error**2)
    density = np.exp(log_density - log_density.max())
    mean = np.average(grid, weights=density)
    deviation = np.sqrt(np.average((grid - mean) ** 2, weights=density))
    found = offsets_by_prior(z, index, both([0.2]), PRIOR, precision([np.inf], [error]))
    assert found.offsets[0] == pytest.approx(mean, abs=0.35 * deviation)
    assert found.factors[0] == pytest.approx(deviation, rel=0.2)


@pytest.mark.parametrize("noise", [0.5, 1.5])
def test_a_noisy_count_of_random_rows_gives_the_posterior_of_their_classes(noise):
    # Sets that differ by an effect: labels, the effect and the noise, summed over everything.
    z, index = drawn(3, 8)
    tau, stated = 0.8, 5.0
    effects = np.linspace(-4 * tau, 4 * tau, 161)
    total, positive = 0.0, np.zeros(len(z))
    for b in effects:
        weight = literal.normal(b, tau**2)
        q = expit(z + b)
        for labels in np.ndindex(*[2] * len(z)):
            chance = np.prod(np.where(labels, q, 1 - q))
            joint = weight * chance * literal.normal(stated - sum(labels), noise**2)
            total += joint
            positive += joint * np.array(labels)
    found = offsets_by_effect(z, index, both([stated / 8]), tau, precision([8], [noise / 8]))
    expected = positive / total
    np.testing.assert_allclose(expit(z + found.offsets[0]), expected, atol=0.04)
    assert found.factors[0] > 0


def test_the_effect_of_a_set_whose_rate_is_known_is_shrunken_as_in_predictions():
    # Of N rows counted, not these: b tau^2 / (tau^2 + 1 / (N v) + e^2 / v^2), to first order.
    z, index = drawn(4, 400)
    tau, error, counted = 0.5, 0.02, 300
    share = expit(z + 0.1).mean()
    found = offsets_by_effect(z, index, both([share]), tau, precision([counted], [error]))
    v = np.mean(expit(z + 0.1) * expit(-z - 0.1))
    noise = 1 / (counted * v) + error**2 / v**2
    assert found.offsets[0] == pytest.approx(0.1 * tau**2 / (tau**2 + noise), rel=0.02)
    assert found.factors[0] == pytest.approx(np.sqrt(1 / (1 / tau**2 + 1 / noise)), rel=0.03)


@pytest.mark.parametrize("error", [0.0, 0.1])
@pytest.mark.parametrize("counted", [30.0, 500.0, np.inf])
def test_two_classes_by_two_logits_are_two_classes_by_one(counted, error):
    z, index = drawn(5, 30, sets=3)
    pairs = np.stack([np.zeros_like(z), z], axis=1)
    shares, known = both([0.0, 0.3, 0.8]), precision([counted] * 3, [error] * 3)
    for one, two in (
        (offsets_by_prior(of, index, shares, PRIOR, known) for of in (z, pairs)),
        (offsets_by_effect(of, index, shares, 0.4, known) for of in (z, pairs)),
    ):
        np.testing.assert_allclose(one.offsets, two.offsets[:, 1], atol=1e-6)
        np.testing.assert_allclose(abs(one.factors), abs(two.factors[:, 1, 1]), atol=1e-6)
        assert not two.offsets[:, 0].any()


def test_of_several_classes_exact_counts_are_met_and_errors_leave_something():
    z, index = drawn(6, 20, sets=2, classes=3)
    shares = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    for make in (
        lambda known: offsets_by_prior(z, index, shares, CLASS_PRIOR, known),
        lambda known: offsets_by_effect(z, index, shares, 0.5, known),
    ):
        exact = make(precision([20, 20], [0, 0]))
        q = np.exp(z + exact.offsets[index])
        q /= q.sum(axis=1, keepdims=True)
        means = [q[index == j].mean(axis=0) for j in range(2)]
        np.testing.assert_allclose(means, shares, atol=1e-6)
        assert not exact.factors.any()
        rough = make(precision([20, 20], [0.1, 0.1]))
        assert (
            np.linalg.eigvalsh(
                np.einsum("mkl,mjl->mkj", rough.factors, rough.factors)[:, 1:, 1:]
            ).min()
            > 1e-3
        )


def test_a_set_without_rows_adds_nothing():
    z, index = drawn(7, 5)
    shares = both([0.4, 0.7])
    for error in (0.0, 0.1):
        known = precision([5, np.inf], [error, error])
        for found in (
            offsets_by_prior(z, index, shares, PRIOR, known),
            offsets_by_effect(z, index, shares, 0.5, known),
        ):
            assert found.offsets[1] == 0
            assert np.isfinite(found.factors).all()
