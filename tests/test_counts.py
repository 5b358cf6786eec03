"""The likelihood of counts against every labeling, finite differences and the page's promises."""

import math

import numpy as np
import pytest
import torch

import reference_counts as literal
from unmix.core.count_recursion import batches, count_states
from unmix.core.counts import count_hessian, count_nll, count_tilts, refined_counts
from unmix.core.losses import ssc_cross_entropy
from unmix.core.stated_counts import class_covariances, count_variance, label_shift_counts
from unmix.core.transition import Transition
from unmix.errors import InputError

ALL = 10**9  # sum every count exactly, whatever the size


def one_set(n):
    return np.zeros(n, dtype=int)


def draw(rng, num_sets, rows, *, scale=2.0, shift=0.0):
    """Sets of two classes with their true counts."""
    index = np.repeat(np.arange(num_sets), rows)
    z = scale * rng.normal(size=len(index)) + shift
    positive = rng.random(len(index)) < 1 / (1 + np.exp(-z))
    return z, index, np.bincount(index, positive, minlength=num_sets)


def draw_classes(rng, num_sets, rows, num_classes, scale=1.5):
    index = np.repeat(np.arange(num_sets), rows)
    z = scale * rng.normal(size=(len(index), num_classes))
    y = np.argmax(z + rng.gumbel(size=z.shape), axis=1)
    counts = np.zeros((num_sets, num_classes))
    np.add.at(counts, (index, y), 1)
    return z, index, counts


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("variance", [0.0, 0.3, 5.0])
def test_small_sets_are_summed_over_every_labeling(n, variance):
    rng = np.random.default_rng(n)
    z = 2 * rng.normal(size=n)
    noisy = [-1.7, 0.4, n + 2.5] if variance else []
    for count in [*range(n + 1), *noisy]:
        values, gradient = count_nll(z, one_set(n), [count], variance)
        likelihood = literal.count_likelihood(z, count, variance)
        assert values[0] == pytest.approx(-math.log(likelihood), abs=1e-11)
        slope = literal.slope(
            lambda x, c=count: -math.log(literal.count_likelihood(x, c, variance)), z
        )
        assert gradient == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("counts", [(2, 2, 1), (0, 4, 1), (0, 0, 5), (5, 0, 0), (1, 0, 4)])
def test_small_sets_of_three_classes_are_summed_over_every_labeling(counts):
    z = 1.5 * np.random.default_rng(0).normal(size=(5, 3))
    values, gradient = count_nll(z, one_set(5), [counts])
    assert values[0] == pytest.approx(-math.log(literal.class_count_likelihood(z, counts)))
    slope = literal.slope(lambda x: -math.log(literal.class_count_likelihood(x, counts)), z)
    assert gradient == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("variances", [(1.0, 2.0, 0.5), (3.0, 3.0, 3.0)])
def test_noisy_counts_of_three_classes_are_summed_over_every_labeling(variances):
    z = np.random.default_rng(1).normal(size=(4, 3))
    stated = np.array([2.6, -0.8, 2.2])  # sums to 4
    d = np.array([variances])
    covariance = class_covariances(d)[0]
    values, gradient = count_nll(z, one_set(4), [stated], d)

    def slow(x):
        return -math.log(literal.class_count_likelihood(x, stated, covariance))

    assert values[0] == pytest.approx(slow(z), abs=1e-11)
    assert gradient == pytest.approx(literal.slope(slow, z), abs=1e-8)


def test_a_class_with_an_exact_count_among_noisy_ones():
    # The exact class must match; the errors of the two others sum to 0, with variance 2 * 2 / 4.
    z = np.random.default_rng(2).normal(size=(4, 3))
    values, _ = count_nll(z, one_set(4), [[1.0, 1.4, 1.6]], [[0.0, 2.0, 2.0]])
    total = 0.0
    for p, counts in literal.labelings([literal.softmax(row) for row in z]):
        if counts[0] == 1:
            total += p * literal.normal(1.4 - counts[1], 1.0)
    assert values[0] == pytest.approx(-math.log(total), abs=1e-11)


def test_class_counts_that_miss_the_rows_are_corrected_in_proportion_to_their_noise():
    z = np.random.default_rng(3).normal(size=(4, 3))
    given, _ = count_nll(z, one_set(4), [[2.0, 2.0, 3.0]], [[1.0, 2.0, 3.0]])
    corrected, _ = count_nll(z, one_set(4), [[1.5, 1.0, 1.5]], [[1.0, 2.0, 3.0]])
    assert given == pytest.approx(corrected, abs=1e-13)


@pytest.mark.parametrize("exact_counts", [0, ALL])
@pytest.mark.parametrize("variance", [0.0, 2.0])
def test_two_classes_are_the_vectors_of_k_classes(exact_counts, variance):
    rng = np.random.default_rng(4)
    z, index, counts = draw(rng, 6, 9)
    values, gradient = count_nll(z, index, counts, variance, exact_counts=exact_counts)
    vectors = np.stack([9 - counts, counts], axis=1)
    # Independent noise of both counts: their average has half the variance.
    both, slopes = count_nll(
        np.stack([0 * z, z], axis=1), index, vectors, 2 * variance, exact_counts=exact_counts
    )
    assert both == pytest.approx(values, abs=1e-11)
    assert slopes[:, 1] == pytest.approx(gradient, abs=1e-11)
    assert slopes.sum(axis=1) == pytest.approx(np.zeros(len(z)), abs=1e-13)


@pytest.mark.parametrize("variance", [0.0, 3.0])
def test_the_saddlepoints_gradient_is_that_of_its_value(variance):
    rng = np.random.default_rng(5)
    z, index, counts = draw(rng, 3, 11)
    _, gradient = count_nll(z, index, counts, variance, exact_counts=0)
    slope = literal.slope(
        lambda x: count_nll(x, index, counts, variance, exact_counts=0)[0].sum(), z
    )
    assert gradient == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("variances", [0.0, np.array([[1.0, 2.0, 0.5, 4.0]] * 3)])
def test_the_saddlepoints_gradient_is_that_of_its_value_for_four_classes(variances):
    z, index, counts = draw_classes(np.random.default_rng(6), 3, 10, 4)
    counts[0] = [0, 4, 6, 0]  # two classes that these rows cannot have
    _, gradient = count_nll(z, index, counts, variances, exact_counts=0)
    slope = literal.slope(
        lambda x: count_nll(x, index, counts, variances, exact_counts=0)[0].sum(), z
    )
    assert gradient == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize(
    ("shift", "errors"),
    [(0.0, {2: 0.25, 8: 0.13, 32: 0.03, 128: 0.007, 512: 0.001}),
     (-3.5, {2: 0.25, 8: 0.20, 32: 0.14, 128: 0.08, 512: 0.04})],
)  # fmt: skip
def test_the_saddlepoint_is_as_close_to_the_sum_as_the_page_says(shift, errors):
    for rows, error in errors.items():
        z, index, counts = draw(np.random.default_rng(7), 2_000 // rows + 20, rows, shift=shift)
        _, exact = count_nll(z, index, counts, exact_counts=ALL)
        _, close = count_nll(z, index, counts, exact_counts=0)
        open_sets = ((counts > 0) & (counts < rows))[index]  # the others are exact anyway
        distance = np.linalg.norm((close - exact)[open_sets])
        assert distance < error * np.linalg.norm(exact[open_sets]), rows


def test_the_saddlepoint_of_three_classes_comes_closer_as_sets_grow():
    distances = []
    for rows in (8, 32, 60):
        z, index, counts = draw_classes(np.random.default_rng(8), 10, rows, 3)
        exact, slope = count_nll(z, index, counts, exact_counts=ALL)
        close, close_slope = count_nll(z, index, counts, exact_counts=0)
        distances.append(np.linalg.norm(close_slope - slope) / np.linalg.norm(slope))
        assert close == pytest.approx(exact, abs=4 / rows)
    assert distances[0] < 0.2
    assert distances[1] < 0.03
    assert distances[2] < distances[1] < distances[0]


def test_counts_contain_ssc_by_the_identity_of_both():
    rng = np.random.default_rng(9)
    z, index, counts = draw(rng, 4, 12, shift=-0.4)
    counts = np.clip(counts, 1, 11)
    pooled, share = 0.4, counts / 12
    delta = np.log(share / (1 - share)) - math.log(pooled / (1 - pooled))
    left = -count_nll(z, index, counts)[0] - log_binomial(counts, 12, pooled)
    inside = -count_nll(z + delta[index], index, counts)[0] - log_binomial(counts, 12, share)
    literal_ssc = [literal.ssc(z[index == j], share[j], pooled) for j in range(4)]
    assert left == pytest.approx(-np.array(literal_ssc) + inside, abs=1e-10)
    # The package's own SSC, whose weights and pooled prior are those of the four sets.
    transition = Transition(share, target_prior=float(share.mean()))
    losses = ssc_cross_entropy(torch.from_numpy(z), torch.from_numpy(index), transition).numpy()
    own = np.bincount(index, losses - math.log(4))
    again = [literal.ssc(z[index == j], share[j], share.mean()) for j in range(4)]
    assert own == pytest.approx(np.array(again), abs=1e-10)


def log_binomial(counts, n, shares):
    shares = np.broadcast_to(shares, len(counts))
    pairs = zip(counts, shares, strict=True)
    return np.array([math.log(literal.binomial(int(c), n, s)) for c, s in pairs])


def test_ssc_sums_over_counts_divided_by_what_random_sets_would_have():
    z = np.random.default_rng(10).normal(size=8)
    share, pooled = 0.7, 0.4
    total = sum(
        literal.poisson_binomial(z, k)
        * literal.binomial(k, 8, share)
        / literal.binomial(k, 8, pooled)
        for k in range(9)
    )
    assert -math.log(total) == pytest.approx(literal.ssc(z, share, pooled), abs=1e-12)


@pytest.mark.parametrize("exact_counts", [0, ALL])
def test_ssc_is_the_limit_of_a_count_known_only_by_its_slope(exact_counts):
    z = np.random.default_rng(11).normal(size=30)
    share, pooled = 0.7, 0.4
    delta = math.log(share / (1 - share)) - math.log(pooled / (1 - pooled))
    _, gradient = count_nll(z, one_set(30), [delta * 1e9], [1e9], exact_counts=exact_counts)
    slope = literal.slope(lambda x: literal.ssc(x, share, pooled), z)
    assert gradient == pytest.approx(slope, abs=1e-6)


def test_noisy_counts_under_label_shift_are_divided_by_what_random_sets_would_have():
    rng = np.random.default_rng(12)
    n, pooled, stated, variance = 12, 0.4, 7.5, 1.5
    z = rng.normal(size=n)

    def slow(x):
        terms = (
            literal.recursion(x, k)
            * literal.normal(k - stated, variance)
            / literal.binomial(k, n, pooled)
            for k in range(n + 1)
        )
        return -math.log(sum(terms))

    slope = literal.slope(slow, z)
    counts, variances = label_shift_counts([stated], [variance], [n], pooled)
    _, gradient = count_nll(z, one_set(n), counts, variances)
    _, as_random = count_nll(z, one_set(n), [stated], [variance])
    # The binomial is replaced by a normal law, so close, and much closer than without.
    assert np.linalg.norm(gradient - slope) < 0.1 * np.linalg.norm(slope)
    assert np.linalg.norm(as_random - slope) > 0.25 * np.linalg.norm(slope)


def test_label_shift_leaves_exact_counts_as_they_are_and_two_classes_are_vectors():
    counts, variances = label_shift_counts([3.0, 5.0], [0.0, 1.0], [10, 10], 0.4)
    assert (counts[0], variances[0]) == (3.0, 0.0)
    assert variances[1] == pytest.approx(1 / (1 / 1.0 - 1 / 2.4))
    assert counts[1] / variances[1] == pytest.approx(5.0 / 1.0 - 1 / 0.6)
    vectors, spreads = label_shift_counts([[5.0, 5.0]], [[2.0, 2.0]], [10], [0.6, 0.4])
    assert 1 / spreads[0] == pytest.approx([1 / 2 - 1 / 6, 1 / 2 - 1 / 4])
    assert vectors[0] / spreads[0] == pytest.approx([5 / 2 - 1, 5 / 2 - 1])


def test_sets_of_one_row_give_cross_entropy():
    z = np.array([-3.0, 0.5, 2.0, 1000.0])
    for exact_counts in (0, ALL):
        values, gradient = count_nll(z, np.arange(4), [1, 0, 1, 0], exact_counts=exact_counts)
        expected = [math.log1p(math.exp(3)), math.log1p(math.exp(0.5)), math.log1p(math.exp(-2))]
        assert values == pytest.approx([*expected, 1000.0], abs=1e-12)
        sigma = 1 / (1 + np.exp(-z))
        assert gradient == pytest.approx(sigma - [1, 0, 1, 0], abs=1e-12)


@pytest.mark.parametrize("exact_counts", [0, ALL])
def test_certain_rows_cost_what_turning_the_cheapest_of_them_costs(exact_counts):
    z = np.array([1000.0, 1000.0, -1000.0])
    values = [count_nll(z, one_set(3), [c], exact_counts=exact_counts)[0][0] for c in range(4)]
    assert values == pytest.approx([2000, 1000 - math.log(2), 0, 1000], abs=0.03)
    _, gradient = count_nll(z, one_set(3), [1], exact_counts=exact_counts)
    assert gradient == pytest.approx([0.5, 0.5, 0.0])
    far, _ = count_nll(z, one_set(3), [-50.0], [0.01], exact_counts=exact_counts)
    noise = 50**2 / 0.02 + math.log(2 * math.pi * 0.01) / 2
    # Turning a row costs 1000 and saves about 5000: all are turned.
    assert far[0] == pytest.approx(2000 + noise)


@pytest.mark.parametrize("exact_counts", [0, ALL])
def test_certain_rows_of_three_classes_cost_what_turning_the_cheapest_of_them_costs(exact_counts):
    z = np.array([[1000.0, 0, -1000], [1000, 0, -1000], [-1000, 1000, 0], [0, 0, 0]])
    costs = {(2, 1, 1): math.log(3), (0, 4, 0): 2000 + math.log(3), (0, 0, 4): 5000 + math.log(3)}
    costs[0, 1, 3] = 4000 + math.log(1.0)  # three ways of turning, each with probability 1 / 3
    for counts, cost in costs.items():
        values, gradient = count_nll(z, one_set(4), [counts], exact_counts=exact_counts)
        assert values[0] == pytest.approx(cost, abs=0.05)
        assert np.isfinite(gradient).all()


def test_empty_sets_and_sets_of_all_sizes_do_not_disturb_each_other():
    rng = np.random.default_rng(13)
    sizes = [0, 1, 3, 250, 0, 17, 2, 1, 40, 0]
    index = rng.permutation(np.repeat(np.arange(10), sizes))
    z = 2 * rng.normal(size=len(index))
    counts = np.array([0, 1, 2, 90, 0, 17, 0, 0, 9.5, 3])
    variances = np.array([0, 0, 1, 0, 2, 0, 0, 0, 4, 0.0])
    values, gradient = count_nll(z, index, counts, variances)
    for j, size in enumerate(sizes):
        if size == 0:
            assert values[j] == 0
            continue
        alone, slope = count_nll(z[index == j], one_set(size), counts[[j]], variances[[j]])
        assert values[j] == pytest.approx(alone[0], abs=1e-10)
        assert gradient[index == j] == pytest.approx(slope, abs=1e-10)


def test_mixed_sets_of_three_classes_do_not_disturb_each_other():
    rng = np.random.default_rng(14)
    sizes = [0, 1, 6, 80, 3]
    index = rng.permutation(np.repeat(np.arange(5), sizes))
    z = 2 * rng.normal(size=(len(index), 3))
    counts = np.array([[0, 0, 0], [0, 1, 0], [2, 2.5, 1.5], [20, 20, 40], [0, 1, 2.0]])
    variances = np.zeros((5, 3))
    variances[2] = 1.0
    values, gradient = count_nll(z, index, counts, variances)
    assert values[0] == 0
    for j in range(1, 5):
        alone, slope = count_nll(z[index == j], one_set(sizes[j]), counts[[j]], variances[[j]])
        assert values[j] == pytest.approx(alone[0], abs=1e-9)
        assert gradient[index == j] == pytest.approx(slope, abs=1e-9)


def test_sets_of_nearly_the_same_size_share_a_batch_without_disturbing_each_other():
    rng = np.random.default_rng(22)
    sizes = [7, 8, 8, 7]
    index = rng.permutation(np.repeat(np.arange(4), sizes))
    z = 2 * rng.normal(size=(len(index), 3))
    counts = np.array([[1, 1, 5], [1, 1, 6], [6, 1, 1], [1.0, 5, 1]])
    for variances in (np.zeros((4, 3)), np.ones((4, 3))):
        batch = next(iter(batches(index, np.arange(4), np.full(4, 4))))
        assert batch.sets.tolist() == [0, 1, 2, 3]  # or this test would test nothing
        values, gradient = count_nll(z, index, counts, variances)
        twos, slopes = count_nll(z[:, 0], index, counts[:, 0], variances[:, 0])
        for j in range(4):
            mine = index == j
            alone, slope = count_nll(z[mine], one_set(sizes[j]), counts[[j]], variances[[j]])
            assert values[j] == pytest.approx(alone[0], abs=1e-11)
            assert gradient[mine] == pytest.approx(slope, abs=1e-11)
            alone, slope = count_nll(
                z[mine, 0], one_set(sizes[j]), counts[[j], 0], variances[[j], 0]
            )
            assert twos[j] == pytest.approx(alone[0], abs=1e-11)
            assert slopes[mine] == pytest.approx(slope, abs=1e-11)


def test_the_order_of_rows_does_not_matter_and_the_same_call_gives_the_same_bits():
    rng = np.random.default_rng(15)
    z, index, counts = draw(rng, 20, 30)
    values, gradient = count_nll(z, index, counts)
    order = rng.permutation(len(z))
    again, shuffled = count_nll(z[order], index[order], counts)
    assert again == pytest.approx(values, abs=1e-11)
    assert shuffled == pytest.approx(gradient[order], abs=1e-11)
    same = count_nll(z, index, counts)
    assert np.array_equal(same[0], values)
    assert np.array_equal(same[1], gradient)


def test_a_million_sets():
    z, index, counts = draw(np.random.default_rng(16), 1_000_000, 2)
    values, gradient = count_nll(z, index, counts)
    q = 1 / (1 + np.exp(-z.reshape(-1, 2)))
    both, none = q.prod(axis=1), (1 - q).prod(axis=1)
    literal_values = -np.log(np.choose(counts.astype(int), [none, 1 - both - none, both]))
    np.testing.assert_allclose(values, literal_values, rtol=0, atol=1e-7)
    settled = np.repeat(counts != 1, 2)
    expected = q.ravel() - np.repeat(counts / 2, 2)
    np.testing.assert_allclose(gradient[settled], expected[settled], rtol=0, atol=1e-12)


@pytest.mark.parametrize("variance", [0.0, 6.0])
def test_tilts_make_the_expected_count_the_stated_one(variance):
    rng = np.random.default_rng(17)
    z, index, counts = draw(rng, 8, 25)
    t = count_tilts(z, index, counts, variance)
    expected = np.bincount(index, 1 / (1 + np.exp(-z - t[index])))
    assert expected + variance * t == pytest.approx(counts, abs=1e-9)
    zs, index, vectors = draw_classes(rng, 8, 25, 3)
    vectors[0] = [0, 20, 5]
    ts = count_tilts(zs, index, vectors, 0.0)
    powers = np.exp(zs + ts[index])
    q = powers / powers.sum(axis=1, keepdims=True)
    sums = np.stack([np.bincount(index, column) for column in q.T], axis=1)
    assert sums == pytest.approx(vectors, abs=1e-9)
    assert (ts[0] == [-np.inf, 0, ts[0, 2]]).all()


def test_refined_counts_are_the_mean_and_deviation_over_labelings():
    z = np.random.default_rng(18).normal(size=7)
    stated, variance = 5.5, 2.0
    means, deviations = refined_counts(z, one_set(7), [stated], [variance])
    weights = np.array(
        [literal.poisson_binomial(z, k) * literal.normal(stated - k, variance) for k in range(8)]
    )
    weights /= weights.sum()
    mean = weights @ np.arange(8)
    assert means[0] == pytest.approx(mean)
    assert deviations[0] == pytest.approx(math.sqrt(weights @ (np.arange(8) - mean) ** 2))
    close, width = refined_counts(z, one_set(7), [stated], [variance], exact_counts=0)
    assert close[0] == pytest.approx(mean, abs=0.05)
    assert width[0] == pytest.approx(deviations[0], rel=0.1)
    exact, zero = refined_counts(z, one_set(7), [3], 0.0)
    assert (exact[0], zero[0]) == (pytest.approx(3), pytest.approx(0, abs=1e-7))


def test_refined_class_counts_agree_between_sum_and_saddlepoint():
    z, index, counts = draw_classes(np.random.default_rng(19), 4, 15, 3)
    d = np.full((4, 3), 3.0)
    stated = counts + np.array([1.5, -1.0, -0.5])
    means, deviations = refined_counts(z, index, stated, d, exact_counts=ALL)
    close, widths = refined_counts(z, index, stated, d, exact_counts=0)
    assert means.sum(axis=1) == pytest.approx(np.full(4, 15))
    assert close == pytest.approx(means, abs=0.1)
    assert widths == pytest.approx(deviations, rel=0.1)


def test_the_hessian_is_the_formula_and_true_where_every_row_is_settled():
    z, index, counts = draw(np.random.default_rng(20), 3, 10)
    counts[:] = [4, 0, 10]
    diagonal = count_hessian(z, index, counts, remainder=0.25)
    q = 1 / (1 + np.exp(-z - count_tilts(z, index, counts)[index]))[index == 0]
    v = q * (1 - q)
    share = v / v.sum()
    assert diagonal[index == 0] == pytest.approx(v * (share + 0.25 * (1 - share)))
    settled = index > 0
    _, up = count_nll(z + 1e-5, index, counts)
    _, down = count_nll(z - 1e-5, index, counts)
    assert diagonal[settled] == pytest.approx(((up - down) / 2e-5)[settled], abs=1e-8)
    vectors = np.stack([10 - counts, counts], axis=1)
    both = count_hessian(np.stack([0 * z, z], axis=1), index, vectors, remainder=0.25)
    assert both[:, 1] == pytest.approx(diagonal, abs=1e-10)


def test_variances_of_a_stated_count_add():
    rows, shares = [10, 20], np.array([0.5, 0.1])
    assert count_variance(rows, shares) == pytest.approx([0, 0])
    assert count_variance(rows, shares, population=True) == pytest.approx([2.5, 1.8])
    assert count_variance(rows, shares, standard_errors=0.1) == pytest.approx([1, 4])
    assert count_variance(rows, shares, noise_variances=[3.0, 4.0]) == pytest.approx([3, 4])
    drawn = count_variance(rows, shares, drawn_from=[10, 100])
    assert drawn == pytest.approx([0, 1.8 * 80 / 99])
    together = count_variance(
        rows, shares, population=True, standard_errors=0.1, noise_variances=2, drawn_from=[10, 100]
    )
    assert together == pytest.approx([2.5 + 1 + 2, 1.8 + 4 + 2 + 1.8 * 80 / 99])


def test_the_variance_of_drawn_rows_is_that_of_drawing_them():
    rng = np.random.default_rng(21)
    ones = np.arange(60) < 18
    counts = [rng.permutation(ones)[:20].sum() for _ in range(20_000)]
    expected = count_variance([20], [0.3], drawn_from=[60])[0]
    assert np.var(counts) == pytest.approx(expected, rel=0.04)


def test_class_variances_give_multinomial_and_projected_covariances():
    shares = np.array([[0.5, 0.3, 0.2]])
    population = class_covariances(count_variance([40], shares, population=True))[0]
    assert population == pytest.approx(40 * (np.diag(shares[0]) - np.outer(shares, shares)))
    noise = class_covariances(count_variance([40], shares, noise_variances=2.0))[0]
    assert noise == pytest.approx(2 * (np.eye(3) - 1 / 3))
    errors = class_covariances(count_variance([40], shares, standard_errors=0.05))[0]
    assert np.diag(errors) == pytest.approx(np.full(3, 4.0))


def test_the_number_of_count_vectors_leaves_out_the_largest_class_and_cannot_overflow():
    strides, number = count_states(np.array([[2, 5, 1], [9, 0, 0]]))
    assert number.tolist() == [6, 1]
    assert strides.tolist() == [[1, 0, 3], [0, 0, 0]]
    assert count_states(np.full((1, 60), 10**6))[1][0] >= 10**14


@pytest.mark.parametrize(
    ("counts", "variances", "message"),
    [
        ([[1.0, 1.0]], 0.0, "counts must have shape"),
        ([1.0], [[1.0]], "variances must be"),
        ([4.0], 0.0, r"counts must lie in 0\.\.3 for set 0"),
        ([-1.0], 0.0, "give the variance"),
        ([1.0], [-1.0], "finite and >= 0"),
        ([np.nan], 1.0, "finite"),
    ],
)
def test_mistakes_are_named(counts, variances, message):
    with pytest.raises(InputError, match=message):
        count_nll([0.0, 1.0, 2.0], [0, 0, 0], counts, variances)


def test_class_counts_without_noise_must_sum_to_the_rows():
    with pytest.raises(InputError, match="set 0 must sum to its 2 rows"):
        count_nll([[0.0, 1.0], [2.0, 0.0]], [0, 0], [[1.0, 2.0]])
    with pytest.raises(InputError, match="drawn_from must be at least rows"):
        count_variance([10], [0.5], drawn_from=[5])
