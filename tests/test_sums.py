"""A linear fit by sums over parts of the rows is the fit to all rows."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from unmix.core.losses import ssc_cross_entropy
from unmix.core.row_losses import CrossEntropyRows
from unmix.core.transition import Transition
from unmix.data.sets import UnlabeledSets
from unmix.errors import InputError
from unmix.learn.linear_fit import fit_linear
from unmix.learn.linear_objective import Objective, criterion_for
from unmix.learn.methods import METHODS
from unmix.learn.sets_in_parts import PartsHere, SetsInParts

NUM_SETS, DIM = 24, 3


def drawn(num_classes=2, rows=2_400, set_rows=None):
    rng = np.random.default_rng(num_classes)
    priors = rng.dirichlet(np.ones(num_classes), NUM_SETS)
    index = rng.integers(NUM_SETS, size=rows)
    classes = (rng.random(rows)[:, None] > priors[index].cumsum(axis=1)).sum(axis=1)
    x = rng.normal(size=(rows, DIM)) + 1.5 * np.eye(num_classes, DIM)[classes]
    counted = np.stack([np.bincount(index[classes == k], minlength=NUM_SETS) for k in range(3)])
    stated = (counted / counted.sum(axis=0)).T[:, :num_classes]
    stated = stated[:, 1] if num_classes == 2 else stated
    return UnlabeledSets(x.astype(np.float32), index, stated, None)


def by_rows(sets, parts=5):
    """Parts in which rows of every set lie."""
    return [sets.rows(np.arange(len(sets)) % parts == k) for k in range(parts)]


def by_sets(sets, parts=5):
    """Parts in which sets lie whole."""
    return [sets.rows(sets.set_index % parts == k) for k in range(parts)]


def in_parts(sets, parts):
    return SetsInParts(PartsHere.of(parts), sets, sets.set_priors, sets.target_prior, sets.set_ids)


SPLITS = [("ssc", by_rows), ("ssc-mse", by_rows), ("count", by_sets), ("set-effects", by_sets)]


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize(("method", "split"), SPLITS)
def test_the_sums_over_parts_are_value_and_gradient_over_all_rows(method, split, num_classes):
    sets = drawn(num_classes)
    asked = in_parts(sets, split(sets))
    certain, row = np.zeros(NUM_SETS), METHODS[method]
    bias = np.zeros(()) if num_classes == 2 else np.zeros(num_classes)
    ours, theirs = (
        Objective(of, criterion_for(row, of, certain), bias, np.empty(0), 0.01, None)
        for of in (asked, sets)
    )
    rng = np.random.default_rng(0)
    for _ in range(3):
        point = rng.normal(size=len(theirs.start))
        value, gradient = ours(point)
        expected, slope = theirs(point)
        assert value == pytest.approx(expected, rel=1e-11)
        np.testing.assert_allclose(gradient, slope, rtol=1e-7, atol=1e-9)
        step = rng.normal(size=point.shape)
        up, down = (ours(point + h * step)[0] for h in (1e-5, -1e-5))
        assert gradient @ step == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize(("method", "split"), SPLITS)
def test_a_fit_by_sums_is_the_fit_in_memory(method, split, num_classes):
    sets = drawn(num_classes)
    options = {"method": method, "l2": 1e-3}
    whole = fit_linear(sets, **options)
    fit = fit_linear(in_parts(sets, split(sets)), **options)
    assert fit.loss == pytest.approx(whole.loss, abs=1e-7)
    np.testing.assert_allclose(fit.weights, whole.weights, atol=2e-3)
    np.testing.assert_allclose(fit.bias, whole.bias, atol=2e-3)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_shares_with_errors_are_refined_by_sums_as_in_memory(num_classes):
    sets = drawn(num_classes)
    options = {"method": "ssc", "l2": 1e-3, "prior_errors": 0.1 * (np.arange(NUM_SETS) % 3)}
    whole = fit_linear(sets, **options)
    fit = fit_linear(in_parts(sets, by_rows(sets)), **options)
    assert fit.loss == pytest.approx(whole.loss, abs=1e-7)
    np.testing.assert_allclose(fit.weights, whole.weights, atol=2e-3)
    np.testing.assert_allclose(fit.set_priors.matrix, whole.set_priors.matrix, atol=2e-3)
    assert np.abs(fit.set_priors.matrix - sets.set_priors.matrix).max() > 0.02


@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_slope_by_the_set_priors_is_that_of_the_loss(num_classes):
    sets, rng = drawn(num_classes), np.random.default_rng(0)
    z = rng.normal(size=2400 if num_classes == 2 else (2400, num_classes))
    theta = torch.from_numpy(rng.dirichlet(np.ones(num_classes), NUM_SETS)).requires_grad_()
    weights, target = (
        torch.from_numpy(sets.set_sizes / 60),
        torch.full((num_classes,), 1 / num_classes),
    )
    moved = Transition.unchecked(theta, weights, target.double())
    loss = ssc_cross_entropy(torch.from_numpy(z), torch.from_numpy(sets.set_index), moved).sum()
    (slope,) = torch.autograd.grad(loss, theta)
    found = CrossEntropyRows(moved).prior_gradient(z, sets.set_index)
    np.testing.assert_allclose(found, slope.numpy(), rtol=1e-10)


def test_the_length_of_the_weights_is_free_of_the_penalty_under_set_effects():
    sets = drawn()
    strong, weak = (
        fit_linear(in_parts(sets, by_sets(sets)), method="set-effects", l2=l2) for l2 in (10.0, 0.0)
    )
    whole = fit_linear(sets, method="set-effects", l2=10.0)
    np.testing.assert_allclose(strong.weights, whole.weights, rtol=1e-3)
    assert np.linalg.norm(strong.weights) > 0.5 * np.linalg.norm(weak.weights)


def test_many_rows_take_the_same_few_steps_as_in_memory():
    sets = drawn(rows=90_000)
    whole = fit_linear(sets, method="ssc", l2=1e-4)
    fit = fit_linear(in_parts(sets, by_rows(sets)), method="ssc", l2=1e-4)
    assert fit.iterations == whole.iterations
    np.testing.assert_allclose(fit.weights, whole.weights, atol=1e-8)


def test_answers_are_added_in_the_order_of_the_parts_whoever_is_first():
    class Backwards(PartsHere):
        def ask(self, question, point, answered=lambda part: None):
            found = {}
            for k in reversed(range(len(self.each))):
                alone = PartsHere([self.each[k]], [], [], self.num_features)
                (found[k],) = alone.ask(question, point)
                answered(k)
            return [found[k] for k in range(len(self.each))]

    sets, progress = drawn(), []
    parts = by_rows(sets, 7)
    fit = fit_linear(in_parts(sets, parts), method="ssc", l2=1e-3)
    backwards = SetsInParts(
        Backwards.of(parts), sets, sets.set_priors, sets.target_prior, sets.set_ids
    )
    other = fit_linear(
        backwards, method="ssc", l2=1e-3, progress=lambda *said: progress.append(said)
    )
    assert other.weights.tobytes() == fit.weights.tobytes()
    assert progress[0] == (len(parts[-1]), len(sets), "pass 1 of a linear fit")
    assert progress[6][0] == len(sets)


@pytest.mark.parametrize("method", ["count", "set-effects"])
def test_a_set_that_lies_in_two_parts_is_refused_where_sets_are_summed(method):
    sets = drawn()
    with pytest.raises(
        InputError, match=r"needs each set whole in one part, and rows of set '0' lie in"
    ):
        fit_linear(in_parts(sets, by_rows(sets)), method=method, l2=1e-3)


def test_what_is_no_sum_is_refused_with_what_is():
    sets = drawn()
    asked = in_parts(sets, by_sets(sets))
    with pytest.raises(InputError, match=r"mmc-u2 needs all rows at once.*use 'ssc'") as caught:
        fit_linear(asked, method="mmc-u2", l2=1e-3)
    assert "'count'" in str(caught.value)
    assert "proportion'" not in str(caught.value)
    with pytest.raises(InputError, match="cannot be refined from sums by method ssc-mse"):
        fit_linear(asked, method="ssc-mse", l2=1e-3, prior_errors=np.full(NUM_SETS, 0.1))


def test_a_part_answers_without_torch_and_without_an_engine():
    code = (
        "import sys, numpy as np\n"
        "from unmix.core.class_shares import ClassShares\n"
        "from unmix.learn.sums import Question, answer\n"
        "x, index = np.ones((4, 2), np.float32), np.array([0, 0, 1, 1])\n"
        "abouts = (('losses', 'ssc'), ('counts', 'count'), ('effects', 'set-effects'))\n"
        "for about, method in abouts:\n"
        "    q = Question(about, method, ClassShares([.2, .7]), np.array([2, 2]), 4, None)\n"
        "    print(len(answer(x, index, q, np.zeros(3 + (about == 'effects')))))\n"
        "print({'torch', 'ray', 'flwr', 'pandas', 'sklearn'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["4", "4", "4", "set()"]
