import numpy as np
import pytest
import torch

import reference
from unmix.core.transition import Transition, class_logits, estimation_error_bound
from unmix.errors import IdentifiabilityError, InputError

PRIORS, WEIGHTS, TARGET = [0.1, 0.35, 0.8, 0.6], [0.1, 0.2, 0.3, 0.4], 0.3


@pytest.fixture
def transition():
    return Transition(PRIORS, WEIGHTS, TARGET)


def test_set_posterior_is_theorem_1(transition):
    f = torch.linspace(0.001, 0.999, 50, dtype=torch.float64)
    expected = reference.theorem_1(f, PRIORS, WEIGHTS, TARGET)
    torch.testing.assert_close(
        transition.set_posterior(torch.logit(f)), expected, rtol=0, atol=1e-12
    )
    assert torch.allclose(expected.sum(dim=1), torch.ones(50, dtype=torch.float64))


def test_k_class_set_posterior_is_bayes_rule():
    rng = np.random.default_rng(0)
    theta = rng.dirichlet(np.ones(3), size=5)
    weights = rng.dirichlet(np.ones(5))
    target = np.array([0.2, 0.3, 0.5])
    logits = torch.from_numpy(rng.normal(size=(20, 3)))
    expected = reference.transition_k(logits.softmax(-1), torch.from_numpy(theta), weights, target)
    got = Transition(theta, weights, target).set_posterior(logits)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


def test_two_columns_and_one_column_of_priors_are_the_same_transition():
    one = Transition([0.2, 0.7], [1, 3], 0.4)
    two = Transition([[0.8, 0.2], [0.3, 0.7]], [1, 3], [0.6, 0.4])
    z = torch.tensor([-2.0, 0.0, 1.5], dtype=torch.float64)
    as_two = torch.stack((torch.zeros(3, dtype=torch.float64), z), dim=1)
    torch.testing.assert_close(one.set_posterior(z), two.set_posterior(as_two))


def test_the_inverse_undoes_the_transition(transition):
    f = torch.linspace(0.01, 0.99, 30, dtype=torch.float64)
    q = transition.set_posterior(torch.logit(f))
    torch.testing.assert_close(transition.inverse(q), f)
    for j in range(4):
        index = torch.full((30,), j)
        torch.testing.assert_close(transition.inverse(q[:, j], index), f)
        bisected = reference.theorem_1_inverse(q[:, j], j, PRIORS, WEIGHTS, TARGET)
        torch.testing.assert_close(transition.inverse(q[:, j], index), bisected)


def test_the_k_class_inverse_undoes_the_transition():
    rng = np.random.default_rng(1)
    t = Transition(rng.dirichlet(np.ones(4), size=6), target_prior=[0.1, 0.2, 0.3, 0.4])
    logits = torch.from_numpy(rng.normal(size=(10, 4)))
    torch.testing.assert_close(t.inverse(t.set_posterior(logits)), logits.softmax(-1))


def test_the_range_is_the_posterior_at_zero_and_one(transition):
    ends = reference.theorem_1(torch.tensor([0.0, 1.0]).double(), PRIORS, WEIGHTS, TARGET)
    torch.testing.assert_close(transition.range, ends.T)


def test_alpha_lipschitz_and_bound_are_the_papers(transition):
    alpha = reference.alpha(PRIORS, WEIGHTS, TARGET)
    assert transition.alpha == pytest.approx(alpha, abs=1e-15)
    assert transition.lipschitz == pytest.approx(2 / alpha**2)
    bound = estimation_error_bound(
        transition, rademacher=0.01, num_rows=1000, loss_bound=3.0, loss_lipschitz=2.0, delta=0.1
    )
    assert bound == pytest.approx(reference.theorem_4(4, 2.0, alpha, 0.01, 3.0, 0.1, 1000))


def test_the_lipschitz_constant_bounds_every_slope():
    rng = np.random.default_rng(2)
    for _ in range(20):
        priors, weights = rng.uniform(0, 1, 5), rng.dirichlet(np.ones(5))
        t = Transition(priors, weights, rng.uniform(0.05, 0.95))
        f = torch.linspace(0, 1, 400, dtype=torch.float64, requires_grad=True)
        posterior = reference.theorem_1(f, priors, weights, t.target_prior)
        for j in range(5):
            (slope,) = torch.autograd.grad(posterior[:, j].sum(), f, retain_graph=True)
            assert slope.abs().max() <= t.lipschitz


def test_the_k_class_lipschitz_constant_bounds_every_slope():
    rng = np.random.default_rng(3)
    for _ in range(10):
        theta = rng.dirichlet(np.ones(3), size=6)
        t = Transition(theta, target_prior=rng.dirichlet(5 * np.ones(3)))
        eta = torch.from_numpy(rng.dirichlet(np.ones(3), size=50)).requires_grad_()
        weights, target = t.set_weights, t.target
        posterior = reference.transition_k(eta, t.prior_matrix, weights, target)
        for j in range(6):
            (slope,) = torch.autograd.grad(posterior[:, j].sum(), eta, retain_graph=True)
            assert slope.abs().max() <= t.lipschitz


def test_left_out_target_prior_is_the_pooled_prior():
    assert Transition([0.2, 0.8], [3, 1]).target_prior == pytest.approx(0.35)


def test_counts_and_shares_are_the_same_weights():
    torch.testing.assert_close(
        Transition([0.2, 0.8], [30, 10]).set_weights, torch.tensor([0.75, 0.25]).double()
    )


def test_retarget_changes_the_target_prior_only(transition):
    other = transition.retarget(0.7)
    assert other.target_prior == pytest.approx(0.7)
    torch.testing.assert_close(other.prior_matrix, transition.prior_matrix)
    torch.testing.assert_close(other.set_weights, transition.set_weights)


@pytest.mark.parametrize(
    ("priors", "weights", "target", "message"),
    [
        ([0.2, 1.3], None, None, r"set 1: 1.3 is above 1; if these are percentages"),
        ([0.2, -0.1], None, None, r"set 1: -0.1 is negative"),
        ([0.2, float("nan")], None, None, "set 1: the share is missing"),
        (["a", "b"], None, None, "numbers"),
        ([0.2, 0.4], [1, 2, 3], None, r"set_weights must have shape \(2,\)"),
        ([0.2, 0.4], [-1, 2], None, "negative"),
        ([0.2, 0.4], None, 1.0, "strictly between 0 and 1"),
        ([0.2, 0.4], None, [0.2, 0.3, 0.5], "target_prior must hold 2 shares"),
        ([[0.2, 0.4], [0.5, 0.5]], None, None, "set 0: the shares of the classes sum to 0.6"),
    ],
)
def test_bad_input_is_named(priors, weights, target, message):
    with pytest.raises(InputError, match=message):
        Transition(priors, weights, target)


def test_equal_priors_cannot_identify_the_classes():
    with pytest.raises(IdentifiabilityError, match="all 3 sets have the same prior"):
        Transition([0.4, 0.4, 0.4])


def test_priors_of_low_rank_cannot_identify_the_classes():
    with pytest.raises(IdentifiabilityError, match="rank 2 but there are 3 classes"):
        Transition([[0.2, 0.3, 0.5], [0.4, 0.3, 0.3], [0.3, 0.3, 0.4]])


def test_sets_without_rows_cannot_identify_anything():
    with pytest.raises(IdentifiabilityError):
        Transition([0.4, 0.4, 0.9], [5, 5, 0])


def test_logits_of_the_wrong_shape_are_refused(transition):
    with pytest.raises(InputError, match=r"shape \(n,\); got \(5, 1\)"):
        class_logits(torch.zeros(5, 1), transition)
