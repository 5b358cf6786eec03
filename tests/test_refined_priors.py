import numpy as np
import pytest
import torch

import reference
from unmix.core.transition import Transition
from unmix.learn.refined_priors import PriorRefiner, RefiningNetwork

STATED = np.array([0.2, 0.3, 0.5, 0.6, 0.8])


def learned(errors=(0.1,) * 5, stated=STATED):
    transition = Transition(stated, target_prior=0.5)
    return RefiningNetwork(torch.nn.Linear(2, 1), transition, np.array(errors), num_rows=1000)


def with_priors(model, priors, errors=0.1, stated=STATED):
    with torch.no_grad():
        model.prior_steps.copy_(torch.as_tensor((priors - stated) / errors)[:, None])
    return model


def test_priors_start_as_stated_and_cost_nothing():
    model = learned()
    np.testing.assert_allclose(model.set_priors()[:, 1].detach(), STATED, atol=1e-6)
    assert model.penalty().item() < 1e-9


def test_a_common_stretch_and_shift_of_all_priors_is_undone():
    # The likelihood hardly sees it, so that only the stated priors may decide about it.
    model = with_priors(learned(), 0.1 + 0.6 * STATED)
    np.testing.assert_allclose(model.set_priors()[:, 1].detach(), STATED, atol=1e-6)


def test_what_is_left_is_the_line_that_fits_the_stated_priors_best():
    own = np.array([0.25, 0.2, 0.55, 0.6, 0.7])
    line = np.polyfit(own, STATED, 1)
    model = with_priors(learned(), own)
    np.testing.assert_allclose(model.set_priors()[:, 1].detach(), np.polyval(line, own), atol=1e-6)


def test_a_prior_without_error_stays_and_counts_most():
    own = np.array([0.25, 0.2, 0.55, 0.6, 0.7])
    errors = np.array([0.0, 0.1, 0.1, 0.1, 0.0])
    priors = with_priors(learned(errors), own).set_priors()[:, 1].detach().numpy()
    assert priors[0] == STATED[0]
    assert priors[4] == STATED[4]
    # The two exact ones are where they are, and fix the line for the others.
    np.testing.assert_allclose(priors[1:4], own[1:4], atol=1e-3)


def test_stated_priors_of_0_and_1_may_come_back_from_the_edge():
    stated = np.array([0.0, 0.3, 0.5, 0.6, 1.0])
    own = np.array([0.15, 0.3, 0.5, 0.6, 0.85])
    model = with_priors(learned(stated=stated), own, stated=stated)
    priors = model.set_priors()[:, 1]
    assert 0 < priors[0] < 0.1
    priors[0].backward()
    assert model.prior_steps.grad.abs().max() > 0


@pytest.mark.parametrize("num_classes", [2, 3, 5])
def test_refined_priors_and_their_price_are_the_literal_ones(num_classes):
    rng = np.random.default_rng(num_classes)
    stated = rng.dirichlet(np.ones(num_classes), size=12)
    errors = rng.uniform(0.02, 0.2, 12) * (rng.random(12) < 0.8)
    refiner = PriorRefiner(Transition(stated), errors)
    free = torch.from_numpy(rng.normal(size=(12, num_classes - 1))).requires_grad_()
    off = errors[:, None] * free.detach().numpy()
    own = stated + np.column_stack((-off.sum(axis=1), off))
    expected = reference.anchored(own, stated, errors)
    np.testing.assert_allclose(refiner.shares(free).detach(), expected, atol=1e-7)
    price = reference.distance_from_stated(expected, stated, errors)
    assert refiner.penalty(free).item() == pytest.approx(price, rel=1e-5)
    assert torch.autograd.gradcheck(refiner.shares, free)


@pytest.mark.parametrize("num_classes", [2, 4])
def test_no_common_map_of_all_priors_changes_anything(num_classes):
    # Every set looks as before if the classes are mixed the other way round.
    rng = np.random.default_rng(0)
    stated = 0.1 + 0.9 * rng.dirichlet(np.ones(num_classes), size=10)
    stated /= stated.sum(axis=1, keepdims=True)
    refiner = PriorRefiner(Transition(stated), 0.1)
    own = rng.dirichlet(np.full(num_classes, 5.0), size=10)
    mixed = own @ rng.dirichlet(np.full(num_classes, 2.0), size=num_classes)

    def free(shares):
        return torch.from_numpy((shares - stated)[:, 1:] / 0.1)

    np.testing.assert_allclose(refiner.shares(free(own)), refiner.shares(free(mixed)), atol=1e-8)
