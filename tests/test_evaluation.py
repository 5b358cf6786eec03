"""Evaluation without labels: values against literal transcriptions, coverage over repetitions."""

import json
import tracemalloc

import numpy as np
import pytest
from scipy.stats import norm

from unmix.assess import labeled
from unmix.assess.class_rates import fit_class_rates, share_covariance
from unmix.assess.evaluate import evaluate
from unmix.assess.fit_test import (
    chi_square_test,
    contributions,
    fit_cells,
    join_small_sets,
    score_bins,
)
from unmix.assess.roc import estimate_roc
from unmix.errors import IdentifiabilityError, InputError

REPETITIONS = 100
MEAN = np.array([0.9, 0.45, 0.0, 0.0, 0.0])  # of the positives; negatives have the opposite
WEIGHTS, BIAS = np.array([1.0, 0.2, 0.3, 0.0, 0.0]), -0.3  # a scorer that is good, not best
TARGET = 0.3

MEANS = np.array([[1.2, 0, 0, 0, 0], [-0.6, 1.1, 0, 0, 0], [-0.6, -1.1, 0.3, 0, 0]])
MATRIX = MEANS + 0.15 * np.eye(3, 5)[:, ::-1]
BIASES = np.array([0.1, -0.2, 0.0])
TARGETS = np.array([0.5, 0.3, 0.2])


def binary_truth():
    """TPR, FPR, accuracy and AUC of the linear scorer, exactly."""
    scale, middle = np.linalg.norm(WEIGHTS), WEIGHTS @ MEAN
    tpr, fpr = norm.cdf((BIAS + middle) / scale), norm.cdf((BIAS - middle) / scale)
    accuracy = TARGET * tpr + (1 - TARGET) * (1 - fpr)
    return tpr, fpr, accuracy, norm.cdf(np.sqrt(2) * middle / scale)


def binary_sets(rng, num_sets=20, rows=500, shift=0.0, share_error=0.0):
    """Logits, set index, stated shares and labels of Gaussian classes in 5 dimensions."""
    shares = rng.uniform(0.1, 0.9, num_sets)
    index = np.repeat(np.arange(num_sets), rows)
    labels = (rng.random(len(index)) < shares[index]).astype(int)
    x = rng.normal(size=(len(index), 5)) + np.where(labels[:, None] == 1, MEAN, -MEAN)
    direction = WEIGHTS / np.linalg.norm(WEIGHTS)
    x += (shift * rng.normal(size=num_sets))[index][:, None] * direction
    stated = np.clip(shares + share_error * rng.normal(size=num_sets), 0, 1)
    return x @ WEIGHTS + BIAS, index, stated, labels


def three_class_sets(rng, num_sets=20, rows=500, shift=0.0):
    shares = rng.dirichlet(np.ones(3), num_sets)
    index = np.repeat(np.arange(num_sets), rows)
    labels = (rng.random(len(index))[:, None] > shares.cumsum(axis=1)[index]).sum(axis=1)
    x = rng.normal(size=(len(index), 5)) + MEANS[labels]
    direction = MATRIX[0] / np.linalg.norm(MATRIX[0])
    x += (shift * rng.normal(size=num_sets))[index][:, None] * direction
    return x @ MATRIX.T + BIASES, index, shares, labels


def covers(estimate, truth):
    return estimate.low <= truth <= estimate.high


@pytest.fixture(scope="module")
def repeated():
    """One hundred evaluations of the same scorer on fresh held-out rows."""
    results = []
    for seed in range(REPETITIONS):
        logits, index, stated, _ = binary_sets(np.random.default_rng(seed))
        results.append(evaluate(logits, index, stated, TARGET))
    return results


def test_intervals_cover_accuracy_auc_and_rates(repeated):
    tpr, fpr, accuracy, auc = binary_truth()
    assert sum(covers(found.accuracy, accuracy) for found in repeated) >= 90
    assert sum(covers(found.auc, auc) for found in repeated) >= 90
    assert sum(covers(found.tpr, tpr) for found in repeated) >= 90
    assert sum(covers(found.fpr, fpr) for found in repeated) >= 90
    balanced = (tpr + 1 - fpr) / 2
    assert sum(covers(found.balanced_accuracy, balanced) for found in repeated) >= 90


def test_intervals_are_no_wider_than_the_scatter_of_the_estimates(repeated):
    for name in ("accuracy", "auc", "tpr", "fpr"):
        estimates = [getattr(found, name) for found in repeated]
        scatter = np.std([estimate.value for estimate in estimates])
        width = np.mean([estimate.high - estimate.low for estimate in estimates])
        assert width / (2 * 1.96) == pytest.approx(scatter, rel=0.25)


def test_estimates_are_centred_on_the_truth(repeated):
    truth = dict(zip(("tpr", "fpr", "accuracy", "auc"), binary_truth(), strict=True))
    for name, value in truth.items():
        assert np.mean([getattr(f, name).value for f in repeated]) == pytest.approx(value, abs=4e-3)


def test_roc_band_covers_the_true_curve(repeated):
    grid = np.array(repeated[0].roc.fpr)
    distance = 2 * WEIGHTS @ MEAN / np.linalg.norm(WEIGHTS)
    truth = norm.sf(norm.isf(grid) - distance)
    inside = [
        (np.array(found.roc.low) <= truth) & (truth <= np.array(found.roc.high))
        for found in repeated
    ]
    assert np.mean(inside, axis=0)[5:95].min() >= 0.88
    heights = np.array([found.roc.tpr for found in repeated])
    assert (np.diff(heights, axis=1) >= 0).all()


def test_the_fit_test_keeps_its_level(repeated):
    assert sum(found.fit_test.p_value < 0.05 for found in repeated) <= 10
    assert repeated[0].fit_test.degrees == 18 * 3
    ratio = np.mean([found.fit_test.chi_square for found in repeated]) / 54
    assert ratio == pytest.approx(1, abs=0.06)
    # Holm keeps the chance of naming any set at 5 %.
    assert sum(len(found.fit_test.misfits) > 0 for found in repeated) <= 10


def test_the_fit_test_sees_shifted_sets():
    rejected = 0
    for seed in range(REPETITIONS):
        logits, index, stated, _ = binary_sets(np.random.default_rng(seed), shift=0.5)
        theta = np.stack([1 - stated, stated], axis=1)
        names = tuple(map(str, range(20)))
        rejected += chi_square_test(score_bins(logits), index, theta, names).p_value < 0.05
    assert rejected >= 95


def test_the_one_set_that_does_not_fit_is_named():
    right = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        logits, index, stated, _ = binary_sets(rng)
        logits[index == 7] += 0.6
        found = evaluate(
            logits, index, stated, TARGET, set_ids=[f"set {j}" for j in range(20)]
        ).fit_test
        right += found.misfits == ("set 7",)
        assert found.sets[7].residual > 2
    assert right >= 34


def test_three_classes_are_covered_and_tested():
    rng = np.random.default_rng(99)
    draws = [rng.normal(size=(300_000, 5)) + mean for mean in MEANS]
    decisions = [np.argmax(x @ MATRIX.T + BIASES, axis=1) for x in draws]
    truth = np.array([np.bincount(d, minlength=3) / len(d) for d in decisions])
    accuracy = TARGETS @ np.diag(truth)
    covered, entries, rejected, seen = 0, np.zeros((3, 3)), 0, 0
    for seed in range(REPETITIONS):
        logits, index, shares, _ = three_class_sets(np.random.default_rng(seed))
        found = evaluate(logits, index, shares, TARGETS)
        covered += covers(found.accuracy, accuracy)
        low, high = np.array(found.confusion.low), np.array(found.confusion.high)
        entries += (low <= truth) & (truth <= high)
        rejected += found.fit_test.p_value < 0.05
        assert np.sum(found.confusion.value, axis=1) == pytest.approx(np.ones(3))
        logits, index, shares, _ = three_class_sets(np.random.default_rng(seed), shift=0.5)
        names = tuple(map(str, range(20)))
        seen += chi_square_test(score_bins(logits), index, shares, names).p_value < 0.05
    assert found.fit_test.degrees == 17 * 2
    assert covered >= 90
    assert entries.min() >= 88
    assert rejected <= 10
    assert seen >= 95


def test_errors_of_stated_shares_widen_intervals_and_bend_nothing():
    tpr, _, accuracy, auc = binary_truth()
    found = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        logits, index, stated, _ = binary_sets(rng, rows=300, share_error=0.08)
        found.append(evaluate(logits, index, stated, TARGET, prior_errors=np.full(20, 0.08)))
    assert sum(covers(f.accuracy, accuracy) for f in found) >= 54
    assert sum(covers(f.auc, auc) for f in found) >= 54
    assert sum(f.fit_test.p_value < 0.05 for f in found) <= 6
    # Plain least squares would pull TPR down by about 0.02 (dilution).
    assert np.mean([f.tpr.value for f in found]) == pytest.approx(tpr, abs=0.01)
    assert "errors of the stated shares" in found[0].method


def test_many_tiny_sets_are_joined_and_keep_level_and_coverage():
    _, _, accuracy, auc = binary_truth()
    covered, rejected = np.zeros(2), 0
    for seed in range(40):
        logits, index, stated, _ = binary_sets(np.random.default_rng(seed), 1000, rows=3)
        found = evaluate(logits, index, stated, TARGET)
        covered += [covers(found.accuracy, accuracy), covers(found.auc, auc)]
        rejected += found.fit_test.p_value < 0.05
        assert sum(entry.rows for entry in found.fit_test.sets) == 3000
    assert covered.min() >= 36
    assert rejected <= 4
    assert all(len(entry.set_ids) >= 14 for entry in found.fit_test.sets)


def test_rates_are_weighted_least_squares_with_fitted_variances():
    rng = np.random.default_rng(0)
    pi, sizes = rng.uniform(0, 1, 8), rng.integers(20, 300, 8).astype(float)
    observed = rng.binomial(sizes.astype(int), 0.7 * pi + 0.2 * (1 - pi)) / sizes
    weights = sizes
    for _ in range(3):
        design = np.stack([1 - pi, pi], axis=1) * np.sqrt(weights)[:, None]
        (fpr, tpr), *_ = np.linalg.lstsq(design, observed * np.sqrt(weights), rcond=None)
        fitted = pi * tpr + (1 - pi) * fpr
        last, weights = weights, sizes / (fitted * (1 - fitted))
    fit = fit_class_rates(
        np.stack([1 - observed, observed], axis=1), sizes, np.stack([1 - pi, pi], axis=1)
    )
    assert fit.class_rates[:, 1] == pytest.approx([fpr, tpr])
    design = np.stack([1 - pi, pi], axis=1)
    spread = np.linalg.inv(design.T @ (design * last[:, None])) @ (design * last[:, None]).T
    covariance = spread @ np.diag(1 / weights) @ spread.T
    assert fit.entry_variances()[:, 1] == pytest.approx(np.diag(covariance))
    gradient = np.array([-(1 - TARGET), TARGET])
    coefficients = np.array([[0, -(1 - TARGET)], [0, TARGET]])
    assert fit.variance(coefficients) == pytest.approx(gradient @ covariance @ gradient)


def test_auc_is_the_literal_double_sum_over_signed_rows_with_ties():
    rng = np.random.default_rng(1)
    pi, sizes = np.array([0.1, 0.4, 0.8]), np.array([7, 9, 8])
    index = np.repeat(np.arange(3), sizes)
    logits = rng.integers(-3, 4, len(index)) + pi[index].round()
    design = np.stack([1 - pi, pi], axis=1)
    weighted = design.T * sizes
    negative, positive = np.linalg.inv(weighted @ design) @ weighted / sizes
    area = 0.0
    for i, a in enumerate(logits):
        for k, b in enumerate(logits):
            area += positive[index[i]] * negative[index[k]] * ((a > b) + (a == b) / 2)
    estimate, _ = estimate_roc(logits, index, sizes.astype(float), design)
    assert 0 < area < 1
    assert estimate.value == pytest.approx(area)


def test_pure_sets_give_the_labeled_numbers():
    logits, _, _, labels = binary_sets(np.random.default_rng(2), 4, 300)
    found = evaluate(logits, labels, [0.0, 1.0], TARGET, labels=labels)
    for name in ("tpr", "fpr", "accuracy", "balanced_accuracy", "auc"):
        assert getattr(found, name).value == pytest.approx(getattr(found.labeled, name))
    n = np.bincount(labels)[1]
    deviation = np.sqrt(found.tpr.value * (1 - found.tpr.value) / n)
    assert (found.tpr.high - found.tpr.low) / 2 == pytest.approx(1.959964 * deviation, rel=1e-4)
    # DeLong: what each row adds is its rank among the rows of the other class.
    positives, negatives = np.sort(logits[labels == 1]), np.sort(logits[labels == 0])
    of_positives = np.searchsorted(negatives, positives) / len(negatives)
    of_negatives = np.searchsorted(positives, negatives) / len(positives)
    variance = of_positives.var() / len(positives) + of_negatives.var() / len(negatives)
    half = (found.auc.high - found.auc.low) / 2
    assert half == pytest.approx(1.959964 * np.sqrt(variance), rel=1e-2)
    assert found.fit_test.degrees == 0
    assert "The assumption cannot be tested with two sets" in found.fit_test.verdict


def test_the_best_cell_rates_are_those_of_one_large_least_squares_problem():
    rng = np.random.default_rng(3)
    priors = rng.dirichlet(np.ones(3), 6)
    truth = rng.dirichlet(np.full(4, 5.0), 3)
    counts = np.array([rng.multinomial(400, row) for row in priors @ truth]).astype(float)
    fitted = np.tile(counts.sum(axis=0) / counts.sum(), (6, 1))
    for _ in range(4):
        rows, right = [], []
        for j in range(6):
            for b in range(4):  # unknowns: the first three bins of each class
                row = np.zeros((3, 3))
                if b < 3:
                    row[:, b] = priors[j]
                else:
                    row -= priors[j][:, None]
                scale = np.sqrt(400 / fitted[j, b])
                rows.append(scale * row.ravel())
                right.append(scale * (counts[j, b] / 400 - (b == 3)))
        answer = np.linalg.lstsq(np.array(rows), np.array(right), rcond=None)[0].reshape(3, 3)
        rates = np.column_stack([answer, 1 - answer.sum(axis=1)])
        fitted = priors @ rates
    assert fit_cells(counts, priors, None)[0] == pytest.approx(rates, abs=1e-10)


def test_share_covariance_of_counts_is_the_multinomial_one():
    shares = np.array([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4]])
    truth = np.array([np.diag(p) - np.outer(p, p) for p in shares]) / 50
    found = share_covariance(np.sqrt(np.einsum("jkk->jk", truth)))
    assert found == pytest.approx(truth, abs=2e-5)
    assert share_covariance(np.array([[0.1, 0.1]]))[0] == pytest.approx(
        0.01 * np.array([[1, -1], [-1, 1]])
    )


def test_thin_cells_are_merged_and_cost_their_degree():
    priors = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0], [0.4, 0.6]])
    rates = np.array([[0.60, 0.39, 0.008, 0.002], [0.01, 0.04, 0.35, 0.60]])
    fitted = priors @ rates
    _, cells = contributions(200 * fitted, priors, rates, fitted, None)
    # 200 rows: set 0 expects 120, 78, 1.6, 0.4; set 2 expects 2, 8, 70, 120; the others are full.
    assert cells.tolist() == [2, 4, 3, 4]
    counts = 200 * fitted + np.array([[0, 0, 4, 0], [0, 0, 0, 0], [3, 0, 0, 0], [0, 0, 0, 0]])
    counts[0, 0] -= 4
    counts[2, 3] -= 3
    parts, _ = contributions(counts, priors, rates, fitted, None)
    # Set 0: (-4)^2/120 + 4^2/80. Set 2: 3^2/10 + (-3)^2/120, its first two cells being one.
    assert parts == pytest.approx([16 / 120 + 16 / 80, 0, 9 / 10 + 9 / 120, 0], abs=1e-12)


def test_a_set_is_judged_fairly_even_where_it_pulls_the_fit():
    names = tuple("abcd")
    own = []
    for seed in range(150):
        logits, index, stated, _ = binary_sets(np.random.default_rng(seed), 4, 300)
        theta = np.stack([1 - stated, stated], axis=1)
        found = chi_square_test(score_bins(logits), index, theta, names)
        own += [entry.chi_square / entry.degrees for entry in found.sets]
    # Half of what four sets say goes into the two class rates; uncorrected this would be 0.5.
    assert np.mean(own) == pytest.approx(1, abs=0.15)


def test_small_sets_are_joined_with_those_of_similar_share():
    pi = np.array([0.9, 0.1, 0.5, 0.88, 0.12, 0.11])
    rows = np.array([20.0, 20.0, 100.0, 20.0, 15.0, 2.0])
    members = join_small_sets(rows, np.stack([1 - pi, pi], axis=1), 30)
    assert sorted(map(sorted, members)) == [[0, 3], [1, 4, 5], [2]]


def test_a_set_without_held_out_rows_is_listed_but_not_used():
    logits, index, stated, _ = binary_sets(np.random.default_rng(4), 6, 200)
    full = evaluate(logits, index, stated, TARGET)
    moved = np.where(index >= 3, index + 1, index)
    found = evaluate(logits, moved, np.insert(stated, 3, 0.5), TARGET)
    assert found.num_sets == 6
    assert found.accuracy == full.accuracy
    assert found.fit_test.chi_square == full.fit_test.chi_square
    assert found.calibration[3].rows == 0
    assert np.isnan(found.calibration[3].share)


def test_calibration_holds_stated_and_predicted_shares():
    rng = np.random.default_rng(5)
    stated = np.array([0.2, 0.5, 0.8])
    index = np.repeat(np.arange(3), 2000)
    labels = rng.random(6000) < stated[index]
    logits = 2 * (rng.normal(size=6000) + np.where(labels, 1, -1)) + np.log(0.3 / 0.7)
    found = evaluate(logits, index, stated, 0.3, set_ids=["a", "b", "c"])
    for entry, truth in zip(found.calibration, stated, strict=True):
        assert entry.stated == truth
        assert entry.low <= truth <= entry.high
        assert entry.high - entry.low < 0.1
    means = [np.mean(1 / (1 + np.exp(-logits[index == j]))) for j in range(3)]
    assert [entry.mean_share for entry in found.calibration] == pytest.approx(means)
    assert [entry.set_id for entry in found.calibration] == ["a", "b", "c"]


def test_results_become_json_without_nan():
    logits, index, stated, labels = binary_sets(np.random.default_rng(6), 2, 50)
    found = evaluate(logits, index, stated, TARGET, labels=labels)
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert values["fit_test"]["p_value"] is None
    assert values["accuracy"]["value"] == found.accuracy.value
    assert values["roc"]["fpr"][:2] == [0.0, 0.01]
    assert values["labeled"]["tpr"] == found.labeled.tpr
    logits, index, shares, labels = three_class_sets(np.random.default_rng(7), 5, 50)
    found = evaluate(logits, index, shares, TARGETS, labels=labels)
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert values["auc"] is None
    assert np.shape(values["confusion"]["low"]) == (3, 3)
    assert values["calibration"][2]["stated"] == pytest.approx(shares[2])


@pytest.mark.parametrize("constant", [-1000.0, 0.0, 1000.0])
def test_a_constant_classifier_is_no_better_than_its_prior(constant):
    index = np.repeat(np.arange(5), 100)
    found = evaluate(np.full(500, constant), index, [0.1, 0.3, 0.5, 0.7, 0.9], 0.3)
    assert found.auc.value == pytest.approx(0.5)
    assert found.accuracy.value == pytest.approx(0.3 if constant > 0 else 0.7)
    assert "All scores are equal" in found.fit_test.verdict


def test_nothing_of_size_rows_times_sets_is_built():
    rng = np.random.default_rng(8)
    index = np.repeat(np.arange(2000), 20)
    stated = rng.uniform(0.1, 0.9, 2000)
    logits = rng.normal(size=40_000) + 2 * (rng.random(40_000) < stated[index])
    tracemalloc.start()
    evaluate(logits, index, stated, 0.5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40_000 * 2000 * 8 / 10


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"set_priors": [0.2, 0.5, 31.0]}, "set 'c': 31 is above 1.*divide them all by 100"),
        ({"set_priors": [0.2, 0.5]}, "set_ids must name all 2 sets"),
        ({"set_priors": np.full((3, 3), 1 / 3)}, "same number of classes"),
        (
            {"prior_errors": [0.1, -0.1, 0.1]},
            "set 'b': a standard error .* not -0.1",
        ),
        ({"prior_errors": [0.1]}, "one standard error per set"),
        ({"target_prior": 1.2}, "target_prior must lie strictly"),
        ({"confidence": 95}, "try 0.95"),
        ({"labels": [0, 1, 0, 1, 0, 2]}, "row 5 holds 2"),
        ({"labels": [1, 1, 1, 1, 1, 1]}, "no row of class 0"),
    ],
)
def test_mistakes_are_named_with_a_cure(changes, message):
    arguments = {
        "logits": np.arange(6.0) - 2.5,
        "set_index": [0, 1, 2, 0, 1, 2],
        "set_priors": [0.2, 0.5, 0.7],
        "target_prior": 0.4,
        "set_ids": ["a", "b", "c"],
    }
    evaluate(**arguments)
    with pytest.raises(InputError, match=message):
        evaluate(**{**arguments, **changes})


def test_equal_set_priors_are_refused():
    with pytest.raises(IdentifiabilityError, match="add sets with other shares"):
        evaluate([0.0, 1.0, 2.0], [0, 1, 2], [0.4, 0.4, 0.4], 0.5)


def test_labeled_metrics_are_reweighted_to_the_target_prior():
    logits = np.array([3.0, 1.0, -1.0, 2.0, -2.0, -3.0, -4.0, 0.5])
    labels = np.array([1, 1, 1, 0, 0, 0, 0, 0])  # TPR 2/3, FPR 2/5
    found = labeled.labeled_metrics(logits, labels, 0.1)
    assert (found.tpr, found.fpr) == pytest.approx((2 / 3, 2 / 5))
    assert found.accuracy == pytest.approx(0.1 * 2 / 3 + 0.9 * 3 / 5)
    assert found.error == pytest.approx(1 - found.accuracy)
    assert found.balanced_error == pytest.approx((1 / 3 + 2 / 5) / 2)
    # Pairs won by the positives: 3 beats 5, 1 beats 4, -1 beats 3 of 5.
    assert found.auc == pytest.approx(12 / 15)
    assert labeled.test_error(logits, labels) == pytest.approx(3 / 8)


def test_labeled_metrics_of_three_classes():
    logits = np.eye(3)[[0, 0, 1, 1, 2, 0]]
    labels = [0, 0, 1, 2, 2, 2]
    found = labeled.labeled_metrics(logits, labels, [0.2, 0.3, 0.5])
    assert found.confusion[2] == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert found.accuracy == pytest.approx(0.2 + 0.3 + 0.5 / 3)
    assert found.auc is None
    assert labeled.test_error(logits, labels) == pytest.approx(2 / 6)


def test_the_curve_of_many_sets_takes_memory_for_its_sets_only():
    sets = 20_000
    rng = np.random.default_rng(0)
    index = np.repeat(np.arange(sets), 2)
    shares = rng.uniform(0.1, 0.9, sets)
    positive = rng.random(2 * sets) < shares[index]
    logits = rng.normal(2.0 * positive - 1)
    matrix = np.stack([1 - shares, shares], axis=1)
    tracemalloc.start()
    area, _ = estimate_roc(logits, index, np.full(sets, 2.0), matrix, None, 0.95)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert area.low < 0.921 < area.high  # two normal distributions, two deviations apart
    assert peak < 500 * sets  # bytes; a curve of 101 points for each set took 3,000
