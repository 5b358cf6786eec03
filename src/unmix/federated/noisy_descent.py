"""A linear fit by gradients that have noise: few steps, none of which trusts a single answer.

L-BFGS compares answers, which noise makes worthless, and the parties tell as many as their noise
was made for and no more. So each answer is one step down, of a length that shrinks with all that
was answered so far, and the weights are the average of the last steps.
"""

from __future__ import annotations

import numpy as np

from unmix.errors import InputError
from unmix.federated.party_sets import PartySets
from unmix.federated.sum_noise import NEEDS
from unmix.learn.linear_fit import LinearFit
from unmix.learn.methods import method_named
from unmix.learn.models import Learner, Setup
from unmix.learn.sets_in_parts import asked_criterion

__all__ = ["fit_noisy_sums"]

LENGTH = 1.0  # of the first step, in log-odds by standardised columns
AVERAGED = 0.25  # of the steps


def fit_noisy_sums(sets: PartySets, setup: Setup, answers: int) -> Learner:
    """Fit a linear model of two classes to the rows of all parties by noisy gradients.

    Formula (AdaGrad with one number for all weights: Ward, Wu and Bottou 2019)::

        w <- w - g / sqrt(sum of |g|^2 so far)

    Parameters
    ----------
    sets : PartySets
    setup : Setup
        With a strength of the penalty.
    answers : int
        Sums that every party may tell.
    """
    method, shares = method_named(setup.method), sets.set_priors
    criterion = asked_criterion(method, sets, np.zeros(sets.num_sets))
    if shares.num_classes > 2 or not criterion.in_blocks:
        raise InputError(NEEDS)
    question = sets.question("losses", method)
    base = method.base_prior(sets.transition)
    assert setup.l2 is not None
    l2, squares, points = setup.l2, 0.0, []
    point = np.zeros(sets.parts.num_features + 1)
    point[-1] = np.log(base[1] / base[0])
    for _ in range(answers):
        gradient = np.sum(sets.parts.ask(question, point), axis=0)[1:]
        gradient[:-1] += 2 * l2 * point[:-1]
        squares += float(gradient @ gradient)
        point = point - LENGTH * gradient / np.sqrt(max(squares, 1e-300))
        points.append(point)
    average = np.mean(points[-max(1, round(AVERAGED * answers)) :], axis=0)
    fit = LinearFit(
        average[:-1],
        average[-1],
        base,
        shares,
        iterations=answers,
        loss=0.0,  # nobody told it
        converged=True,
    )
    return Learner(setup, fit, fit.base_prior, shares, [])
