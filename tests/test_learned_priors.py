import numpy as np
import torch

from unmix.core.transition import Transition
from unmix.learn.learned_priors import LearnedPriors

STATED = np.array([0.2, 0.3, 0.5, 0.6, 0.8])


def learned(errors=(0.1,) * 5, stated=STATED):
    transition = Transition(stated, target_prior=0.5)
    return LearnedPriors(torch.nn.Linear(2, 1), transition, np.array(errors), num_rows=1000)


def with_priors(model, priors):
    with torch.no_grad():
        model.prior_logits.copy_(torch.logit(torch.as_tensor(priors)))
    return model


def test_priors_start_as_stated_and_cost_nothing():
    model = learned()
    np.testing.assert_allclose(model.set_priors().detach(), STATED, atol=1e-6)
    assert model.penalty().item() < 1e-9


def test_a_common_stretch_and_shift_of_all_priors_is_undone():
    # The likelihood hardly sees it, so that only the stated priors may decide about it.
    model = with_priors(learned(), 0.1 + 0.6 * STATED)
    np.testing.assert_allclose(model.set_priors().detach(), STATED, atol=1e-6)


def test_what_is_left_is_the_line_that_fits_the_stated_priors_best():
    own = np.array([0.25, 0.2, 0.55, 0.6, 0.7])
    line = np.polyfit(own, STATED, 1)
    model = with_priors(learned(), own)
    np.testing.assert_allclose(model.set_priors().detach(), np.polyval(line, own), atol=1e-6)


def test_a_prior_without_error_stays_and_counts_most():
    own = np.array([0.25, 0.2, 0.55, 0.6, 0.7])
    errors = np.array([0.0, 0.1, 0.1, 0.1, 0.0])
    priors = with_priors(learned(errors), own).set_priors().detach().numpy()
    assert priors[0] == STATED[0]
    assert priors[4] == STATED[4]
    # The two exact ones fix the line for the others.
    line = np.polyfit(own[[0, 4]], STATED[[0, 4]], 1)
    np.testing.assert_allclose(priors[1:4], np.polyval(line, own[1:4]), atol=1e-3)


def test_stated_priors_of_0_and_1_may_come_back_from_the_edge():
    stated = np.array([0.0, 0.3, 0.5, 0.6, 1.0])
    model = with_priors(learned(stated=stated), np.array([0.15, 0.3, 0.5, 0.6, 0.85]))
    priors = model.set_priors()
    assert 0 < priors[0] < 0.1
    priors[0].backward()
    assert model.prior_logits.grad.abs().max() > 0
