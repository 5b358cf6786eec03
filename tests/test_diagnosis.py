"""What set priors and sizes say before training, and what sets are worth in labels."""

import json
import re

import numpy as np
import pytest

from unmix.assess.diagnose import diagnose, worth_in_labels, worth_in_labels_of
from unmix.assess.evaluate import evaluate
from unmix.errors import InputError


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def levels_of(found, subject):
    return [finding.level for finding in found.findings if finding.subject == subject]


def literal_worth(logits, set_index, set_priors, target_prior):
    """The sums over rows and sets as they are written."""
    rho = np.bincount(set_index, minlength=len(set_priors)) / len(set_index)
    pooled = rho @ set_priors
    odds = np.log(target_prior / (1 - target_prior))
    delta = np.log(set_priors / (1 - set_priors)) - odds
    delta_p = np.log(pooled / (1 - pooled)) - odds
    of_sets = of_labels = 0.0
    for z in logits:
        eta = sigmoid(z)
        forms = set_priors / target_prior * eta + (1 - set_priors) / (1 - target_prior) * (1 - eta)
        posterior = rho * forms / (rho @ forms)
        of_sets += np.sum(posterior * (sigmoid(z + delta) - sigmoid(z + delta_p)) ** 2)
        of_labels += sigmoid(z + delta_p) * (1 - sigmoid(z + delta_p))
    return len(logits) * of_sets / of_labels


def test_worth_is_the_formula_for_two_classes():
    priors, sizes = np.array([0.1, 0.4, 0.8]), np.array([100, 300, 200])
    rho = sizes / 600
    pooled = rho @ priors
    expected = 600 * np.sum(rho * (priors - pooled) ** 2) / (pooled * (1 - pooled))
    assert worth_in_labels(priors, sizes) == pytest.approx(expected)
    assert worth_in_labels(np.stack([1 - priors, priors], axis=1), sizes) == pytest.approx(expected)


def test_pure_sets_are_worth_all_their_rows_and_equal_sets_nothing():
    assert worth_in_labels([0.0, 1.0], [30, 70]) == pytest.approx(100)
    assert worth_in_labels(np.eye(4), [10, 20, 30, 40]) == pytest.approx(100)
    assert worth_in_labels([0.3, 0.3], [50, 50]) == 0
    # Classes 1 and 2 always come in the same ratio: never told apart.
    assert worth_in_labels([[0.2, 0.4, 0.4], [0.6, 0.2, 0.2], [0.4, 0.3, 0.3]], [9, 9, 9]) == 0


def test_a_class_that_is_hard_to_tell_apart_lowers_the_worth_of_all():
    near = [[0.8, 0.11, 0.09], [0.1, 0.44, 0.46], [0.1, 0.46, 0.44]]
    far = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]
    assert worth_in_labels(near, [100] * 3) < 2 < 100 < worth_in_labels(far, [100] * 3)


def test_worth_after_training_is_the_literal_double_sum():
    rng = np.random.default_rng(0)
    priors = np.array([0.05, 0.3, 0.6, 0.9])
    index = rng.integers(0, 4, 400)
    logits = rng.normal(0, 3, 400)
    found = worth_in_labels_of(logits, index, priors, 0.2)
    assert found == pytest.approx(literal_worth(logits, index, priors, 0.2), rel=1e-4)


def test_k_class_worth_after_training_agrees_with_two_classes_and_with_the_start():
    rng = np.random.default_rng(1)
    priors, index = np.array([0.05, 0.3, 0.6, 0.9]), rng.integers(0, 4, 300)
    logits = rng.normal(0, 2, 300)
    both = np.stack([np.zeros(300), logits], axis=1)
    matrix = np.stack([1 - priors, priors], axis=1)
    expected = worth_in_labels_of(logits, index, priors, 0.2)
    assert worth_in_labels_of(both, index, matrix, [0.8, 0.2]) == pytest.approx(expected, rel=1e-4)
    # Logits that say nothing beyond the pooled prior give the worth before training.
    theta = rng.dirichlet(np.ones(3), 4)
    sizes = np.bincount(index)
    pooled = sizes @ theta / 300
    flat = np.tile(np.log(pooled), (300, 1))
    start = worth_in_labels(theta, sizes)
    assert worth_in_labels_of(flat, index, theta, pooled) == pytest.approx(start, rel=1e-6)


def test_worth_after_training_stands_extreme_logits_and_pure_sets():
    index = np.array([0, 0, 1, 1, 2, 2])
    logits = np.array([-1000.0, 0.5, 1000.0, 1.0, 0.0, -0.5])
    assert worth_in_labels_of(logits, index, [0.0, 1.0, 1.0], 0.4) == pytest.approx(6, rel=1e-3)
    found = worth_in_labels_of(logits, index, [0.0, 1.0, 0.5], 0.4)
    assert 2 < found < 6


def test_good_sets_get_no_warning():
    found = diagnose([0.1, 0.3, 0.5, 0.7, 0.9], [400] * 5, target_prior=0.2)
    assert found.usable
    assert {finding.level for finding in found.findings} == {"ok"}
    assert (found.num_sets, found.num_rows, found.num_classes) == (5, 2000, 2)
    assert (found.lowest_prior, found.highest_prior) == (0.1, 0.9)
    assert found.pooled_prior == pytest.approx(0.5)
    assert found.spread == pytest.approx(np.std([0.1, 0.3, 0.5, 0.7, 0.9]))
    assert found.worth_in_labels == pytest.approx(2000 * 0.08 / 0.25)
    assert found.rank == 2
    assert "effective number of labels is about 640 (" in found.expectation
    assert "without labels to within about " in found.expectation


def test_expected_errors_are_those_that_evaluation_then_has():
    rng = np.random.default_rng(2)
    priors = np.array([0.1, 0.3, 0.4, 0.7, 0.8])
    index = np.repeat(np.arange(5), 2000)
    positive = rng.random(len(index)) < priors[index]
    right = rng.random(len(index)) < 0.8
    logits = np.where(positive == right, 1.0, -1.0)
    found = evaluate(logits, index, priors, 0.3)
    plan = diagnose(priors, [2000] * 5, target_prior=0.3)
    for name in ("tpr", "fpr", "accuracy"):
        estimate = getattr(found, name)
        expected = getattr(plan, f"{name}_error")
        assert (estimate.high - estimate.low) / 2 / 1.96 == pytest.approx(expected, rel=0.05)


def test_pure_sets_inflate_nothing():
    found = diagnose([0.0, 1.0], [500, 500], target_prior=0.5)
    assert found.variance_inflation == pytest.approx(1)
    assert found.tpr_error == pytest.approx(np.sqrt(0.8 * 0.2 / 500))
    assert any("2 sets hold a single class" in finding.message for finding in found.findings)


@pytest.mark.parametrize(
    ("priors", "words"),
    [
        (
            [31.0, 12.0, 50.0],
            "set 'north': 31 is above 1 .2 more.*divide them all by 100",
        ),
        ([0.3, 1200.0, 0.5], "set 'south': 1200 is above 1.*counts"),
        ([0.3, -0.1, 0.5], "set 'south': -0.1 is negative"),
        ([0.3, np.nan, 0.5], "set 'south': the share is missing.*Fill it in"),
        ([0.4, 0.4, 0.4], "same share.*Add sets"),
    ],
)
def test_bad_priors_are_reported_not_raised(priors, words):
    found = diagnose(priors, [100] * 3, set_ids=["north", "south", "east"])
    errors = [f"{f.message} {f.cure}" for f in found.findings if f.level == "error"]
    assert len(errors) == 1
    assert re.search(words, errors[0])
    assert not found.usable
    assert "cannot be used" in found.expectation
    assert np.isnan(found.accuracy_error)
    assert found.findings[0].level == "error"
    json.dumps(found.to_dict(), allow_nan=False)


def test_class_shares_that_do_not_sum_to_one_are_reported():
    theta = [[0.2, 0.3, 0.5], [0.6, 0.3, 0.3], [0.1, 0.1, 0.8], [0.3, 0.4, 0.3]]
    found = diagnose(theta, [50] * 4, set_ids=list("abcd"))
    assert "set 'b': the shares of the classes sum to 1.2" in found.findings[0].message
    # A rounded row is no mistake.
    assert diagnose([[0.333, 0.333, 0.333], *np.eye(3)], [50] * 4).usable


def test_rank_deficient_classes_are_an_error():
    theta = [[0.2, 0.4, 0.4], [0.6, 0.2, 0.2], [0.4, 0.3, 0.3], [0.0, 0.5, 0.5]]
    found = diagnose(theta, [100] * 4)
    assert "only 2 of 3 classes" in found.findings[0].message
    assert found.rank == 2
    assert found.smallest_singular_value == pytest.approx(0, abs=1e-9)


def test_three_good_classes_are_planned_for():
    theta = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.3, 0.4, 0.3]] * 2)
    found = diagnose(theta, [300] * 8, target_prior=[0.2, 0.3, 0.5])
    assert found.usable
    assert found.pooled_prior == pytest.approx((0.325, 0.35, 0.325))
    assert np.isnan(found.tpr_error)
    assert 0 < found.accuracy_error < 0.03
    assert found.worth_in_labels == pytest.approx(worth_in_labels(theta, [300] * 8))


def test_sizes_are_reported():
    found = diagnose([0.1, 0.2, 0.9, 0.5], [0, 1, 20, 5000], set_ids=["a", "b", "c", "d"])
    assert (found.num_sets, found.num_rows) == (3, 5021)
    assert (found.smallest_set, found.largest_set) == (("b", 1), ("d", 5000))
    assert (found.single_row_sets, found.small_sets) == (1, 2)
    messages = " ".join(finding.message for finding in found.findings)
    assert "1 set has no rows, first 'a'." in messages
    assert "2 sets have fewer than 30 rows." in messages
    assert not diagnose([0.1, 0.9], [0, 0]).usable


def test_few_sets_and_a_far_target_are_warned_of():
    two = diagnose([0.1, 0.9], [500, 500], target_prior=0.02)
    assert levels_of(two, "number of sets") == ["warning"]
    assert "cannot be tested" in next(
        f.message for f in two.findings if f.subject == "number of sets"
    )
    assert "0.02 of class 1 (target prior) lies outside the stated shares (0.1 to 0.9)" in next(
        f.message for f in two.findings if f.subject == "target prior"
    )
    four = diagnose([0.1, 0.3, 0.5, 0.9], [500] * 4)
    assert "has little power" in next(f.message for f in four.findings if f.level == "warning")
    assert levels_of(diagnose([0.1, 0.9], [9, 9], target_prior=1.5), "target prior") == ["error"]


def test_narrow_priors_and_large_errors_are_warned_of():
    narrow = diagnose([0.30, 0.31, 0.32, 0.33, 0.34], [1000] * 5)
    assert levels_of(narrow, "set priors") == ["warning"]
    assert levels_of(narrow, "worth in labels") == ["warning"]
    priors = [0.1, 0.3, 0.5, 0.7, 0.9]
    noisy = diagnose(priors, [1000] * 5, prior_errors=[0.2] * 5)
    assert levels_of(noisy, "prior errors") == ["warning"]
    sharp = diagnose(priors, [1000] * 5, prior_errors=[0.01] * 5)
    assert levels_of(sharp, "prior errors") == []
    assert noisy.accuracy_error > 3 * sharp.accuracy_error
    assert levels_of(diagnose(priors, [9] * 5, prior_errors=[-1.0] * 5), "prior errors") == [
        "error"
    ]


def test_arrays_that_do_not_go_together_are_refused():
    with pytest.raises(InputError, match="one number per set"):
        diagnose([0.1, 0.9], [100])
    with pytest.raises(InputError, match="one standard error per set"):
        diagnose([0.1, 0.9], [100, 100], prior_errors=[0.1])
