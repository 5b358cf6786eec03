import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from unmix.core.losses import (
    ssc_cross_entropy,
    ssc_cross_entropy_gradient,
    ssc_squared_error,
    ssc_squared_error_gradient,
)
from unmix.core.row_losses import CrossEntropyRows, fisher_information, set_log_loss
from unmix.core.transition import Transition
from unmix.errors import InputError

LOSSES = {
    "cross-entropy": (ssc_cross_entropy, ssc_cross_entropy_gradient, reference.cross_entropy),
    "squared error": (ssc_squared_error, ssc_squared_error_gradient, reference.squared_error),
}


def problem(num_sets, seed=0, rows=64):
    rng = np.random.default_rng(seed)
    priors = rng.uniform(0, 1, num_sets)
    weights = rng.dirichlet(np.ones(num_sets))
    logits = torch.from_numpy(rng.normal(scale=3, size=rows)).requires_grad_()
    set_index = torch.from_numpy(rng.integers(num_sets, size=rows))
    return priors, weights, rng.uniform(0.05, 0.95), logits, set_index


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("num_sets", [2, 10, 1000])
def test_closed_form_equals_the_papers_equations(name, num_sets):
    fast, gradient, literal = LOSSES[name]
    priors, weights, target, logits, set_index = problem(num_sets)
    t = Transition(priors, weights, target)
    slow = literal(reference.theorem_1(torch.sigmoid(logits), priors, weights, target), set_index)
    quick = fast(logits, set_index, t)
    torch.testing.assert_close(quick, slow, rtol=0, atol=1e-10)
    (slow_slope,) = torch.autograd.grad(slow.sum(), logits)
    (quick_slope,) = torch.autograd.grad(quick.sum(), logits)
    torch.testing.assert_close(quick_slope, slow_slope, rtol=0, atol=1e-10)
    torch.testing.assert_close(gradient(logits, set_index, t), slow_slope, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("num_classes", [3, 10])
def test_k_class_closed_form_equals_bayes_rule(name, num_classes):
    fast, gradient, literal = LOSSES[name]
    rng = np.random.default_rng(num_classes)
    theta = rng.dirichlet(np.ones(num_classes), size=25)
    weights, target = rng.dirichlet(np.ones(25)), rng.dirichlet(5 * np.ones(num_classes))
    logits = torch.from_numpy(rng.normal(scale=2, size=(40, num_classes))).requires_grad_()
    set_index = torch.from_numpy(rng.integers(25, size=40))
    t = Transition(theta, weights, target)
    posterior = reference.transition_k(logits.softmax(-1), torch.from_numpy(theta), weights, target)
    slow = literal(posterior, set_index)
    torch.testing.assert_close(fast(logits, set_index, t), slow, rtol=0, atol=1e-10)
    (slope,) = torch.autograd.grad(slow.sum(), logits)
    torch.testing.assert_close(gradient(logits, set_index, t), slope, rtol=0, atol=1e-10)


def test_two_sets_are_uu_learning():
    # UU: the logistic loss of "which of two sets" on the corrupted posterior.
    priors, weights, target, logits, set_index = problem(2, seed=3)
    corrupted = reference.theorem_1(torch.sigmoid(logits), priors, weights, target)[:, 1]
    expected = torch.nn.functional.binary_cross_entropy(
        corrupted, set_index.double(), reduction="none"
    )
    got = ssc_cross_entropy(logits, set_index, Transition(priors, weights, target))
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)


def test_priors_of_zero_and_one_are_ordinary_cross_entropy():
    _, _, _, logits, set_index = problem(2, seed=4)
    share = float(set_index.double().mean())
    t = Transition([0.0, 1.0], [1 - share, share], share)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        logits, set_index.double(), reduction="none"
    )
    torch.testing.assert_close(
        ssc_cross_entropy(logits, set_index, t), expected, rtol=0, atol=1e-10
    )


def test_k_pure_sets_are_ordinary_cross_entropy():
    rng = np.random.default_rng(5)
    target = rng.dirichlet(np.ones(4))
    logits = torch.from_numpy(rng.normal(size=(30, 4)))
    labels = torch.from_numpy(rng.integers(4, size=30))
    t = Transition(np.eye(4), target, target)
    expected = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    torch.testing.assert_close(ssc_cross_entropy(logits, labels, t), expected, rtol=0, atol=1e-10)


def test_extreme_logits_and_priors_have_the_right_limits_in_float32():
    t = Transition([0.0, 1.0, 0.5], [1, 1, 2], 0.5)
    z = torch.tensor([1000.0, -1000.0, 1000.0, -1000.0, 1000.0], requires_grad=True)
    index = torch.tensor([0, 0, 1, 1, 2])
    loss = ssc_cross_entropy(z, index, t)
    # At z = +1000 the posterior of sets (0, 1, 0.5) is (e^-1000 / 2, 1/2, 1/2).
    log2 = np.log(2)
    expected = torch.tensor([1000 + log2, log2, log2, 1000 + log2, log2])
    torch.testing.assert_close(loss, expected.float(), rtol=1e-6, atol=1e-4)
    (slope,) = torch.autograd.grad(loss.sum(), z)
    torch.testing.assert_close(slope, torch.tensor([1.0, 0.0, 0.0, -1.0, 0.0]))
    torch.testing.assert_close(ssc_cross_entropy_gradient(z.detach(), index, t), slope)
    squared = ssc_squared_error(z, index, t)
    torch.testing.assert_close(squared, torch.tensor([1.5, 0.5, 0.5, 1.5, 0.5]))
    (slope,) = torch.autograd.grad(squared.sum(), z)
    torch.testing.assert_close(slope, torch.zeros(5))


@settings(max_examples=60, deadline=None)
@given(
    priors=st.lists(st.floats(0, 1), min_size=2, max_size=8),
    target=st.floats(0.001, 0.999),
    z=st.floats(-1000, 1000, width=32),
)
def test_losses_are_finite_and_bounded_below_for_all_inputs(priors, target, z):
    if np.ptp(priors) < 1e-5:
        return
    t = Transition(priors, None, target)
    logits = torch.full((len(priors),), z, dtype=torch.float32)
    index = torch.arange(len(priors))
    losses = ssc_cross_entropy(logits, index, t)
    assert torch.isfinite(losses).all()
    assert (losses >= -1e-4).all()  # minus the logarithm of a probability, in float32
    slope = ssc_cross_entropy_gradient(logits, index, t)
    assert (slope.abs() <= 1).all()


def test_set_probabilities_of_a_row_sum_to_one():
    priors, weights, target, logits, _ = problem(7, seed=6)
    t = Transition(priors, weights, target)
    each = torch.stack(
        [ssc_cross_entropy(logits, torch.full((64,), j), t).neg().exp() for j in range(7)]
    )
    torch.testing.assert_close(each.sum(0), torch.ones(64).double())


def test_fisher_information_is_the_expected_squared_gradient():
    priors, weights, target, logits, _ = problem(12, seed=7)
    t = Transition(priors, weights, target)
    expected = reference.fisher(torch.sigmoid(logits.detach()), priors, weights, target)
    for chunk in (5, 256):
        got = fisher_information(logits.detach(), t, sets_at_once=chunk)
        torch.testing.assert_close(torch.from_numpy(got), expected, rtol=0, atol=1e-10)


def test_fisher_information_of_labels_is_that_of_logistic_regression():
    z = torch.linspace(-3, 3, 7, dtype=torch.float64)
    got = fisher_information(z, Transition([0.0, 1.0], None, 0.5))
    torch.testing.assert_close(torch.from_numpy(got), torch.sigmoid(z) * torch.sigmoid(-z))


def test_the_loss_of_arrays_is_that_of_tensors_in_value_and_gradient():
    rng = np.random.default_rng(8)
    rows = 40_000  # more than are worked on at a time
    for classes in (2, 3, 7):
        theta, target = rng.dirichlet(np.ones(classes), 9), rng.dirichlet(5 * np.ones(classes))
        theta[0] = np.eye(classes)[0]
        theta[1] = np.eye(classes)[-1]
        t = Transition(theta, rng.integers(1, 50, 9), target)
        index = rng.integers(9, size=rows)
        shape = rows if classes == 2 else (rows, classes)
        # Of the last, logits are beyond what an exponential can hold.
        for scale in (1.0, 30.0, 1000.0):
            z = scale * rng.normal(size=shape)
            arrays, pair = CrossEntropyRows(t), (torch.from_numpy(z), torch.from_numpy(index))
            expected = ssc_cross_entropy(*pair, t).numpy()
            slope = ssc_cross_entropy_gradient(*pair, t).numpy()
            np.testing.assert_allclose(arrays.losses(z, index), expected, rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(arrays.gradient(z, index), slope, rtol=0, atol=1e-12)
            total, gradient = arrays.sum_and_gradient(z, index)
            np.testing.assert_allclose(gradient, slope, rtol=0, atol=1e-12)
            assert total == pytest.approx(expected.sum(), rel=1e-10)
            assert set_log_loss(z, index, t) == pytest.approx(expected.mean(), rel=1e-10)


def test_the_loss_of_arrays_refuses_sets_that_do_not_go_with_the_rows():
    arrays = CrossEntropyRows(Transition([0.2, 0.8]))
    with pytest.raises(InputError, match="one entry per row"):
        arrays.losses(np.zeros(3), np.zeros(2, dtype=int))
    with pytest.raises(InputError, match="logits of shape"):
        arrays.gradient(np.zeros((3, 1)), np.zeros(3, dtype=int))


@pytest.mark.parametrize("name", LOSSES)
def test_no_tensor_of_rows_times_sets_is_built(name):
    loss = LOSSES[name][0]
    rows, num_sets = 512, 100_000
    t = Transition(np.linspace(0.1, 0.9, num_sets), None, 0.4)
    logits = torch.zeros(rows, requires_grad=True)
    index = torch.randint(num_sets, (rows,), generator=torch.Generator().manual_seed(0))
    loss(logits[:2], index[:2], t)  # what is computed once per transition
    with torch.profiler.profile(profile_memory=True, record_shapes=True) as profile:
        loss(logits, index, t).mean().backward()
    largest = max(event.cpu_memory_usage for event in profile.events())
    # One row of 100,000 float32 sets would take 400 kB; the whole step stays below it.
    assert 0 < largest < 4 * num_sets


def test_a_set_index_of_the_wrong_length_is_refused():
    t = Transition([0.1, 0.9])
    with pytest.raises(InputError, match="3 rows"):
        ssc_cross_entropy(torch.zeros(3), torch.zeros(2, dtype=torch.long), t)
