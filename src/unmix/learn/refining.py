"""Set priors that are only known up to a standard error, refined by a model's logits.

Published shares are wrong in practice. Here they are observations: the priors move to where the
set log-loss of the given logits falls, and each step of one standard error away from what was
stated costs as much as it should. If nobody knows that error, the rows themselves say how large it
is. This file knows no model; it takes logits as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.optimize import Bounds, minimize
from scipy.special import logit, logsumexp

from unmix.core.losses import ssc_cross_entropy
from unmix.core.transition import Transition
from unmix.errors import InputError

__all__ = ["ERRORS", "check_prior_errors", "estimate_prior_error", "refine_priors"]

Array = np.ndarray[Any, Any]

# Refined priors stay this far away from 0 and 1, where the loss has infinite slope.
EDGE = 1e-6
# How far the logits may be moved and (as a logarithm) stretched, so that the search stays finite.
SHIFT, STRETCH = 5.0, 2.0
# Standard errors to choose from, and how much likelier (as a logarithm, 20 to 1) one must make the
# rows than exact priors do before it is believed.
ERRORS, DOUBT = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3), 3.0
# Where an integral over a prior is evaluated: as fine as a set of some thousand rows asks for.
GRID = (np.arange(200) + 0.5) / 200


def refine_priors(
    logits: Array,
    set_index: Array,
    stated: Array,
    errors: Array,
    set_weights: Array,
    target: float,
) -> Array:
    """Return the set priors that fit both the logits and what was stated (two classes).

    Formula, minimised over pi, a and b with the logits z fixed (the pooled prior moves with pi)::

        sum_rows loss(a + exp(b) z; pi) + sum_j (pi_j - stated_j)^2 / (2 errors_j^2)

    The scale of the logits must not speak: a model that is too timid or too bold would spread the
    priors or draw them together. So a and b are free, and the overall level and spread of the
    priors come from what was stated; the logits say which sets stand out from it.

    Parameters
    ----------
    logits : array, shape (n,)
        Of the positive class at the target prior, for rows the model was not trained on: a model
        confirms the priors it was trained with on its own rows.
    set_index : array of integers, shape (n,)
    stated, errors : array, shape (m,)
        Stated set priors and their standard errors; an error of 0 keeps a prior as it is.
    set_weights : array, shape (m,)
        Share of all rows that lie in each set; counts are scaled to sum to one.
    target : float
        The target prior.

    Returns
    -------
    array, shape (m,)
    """
    stated = np.asarray(stated, dtype=np.float64)
    errors = check_prior_errors(errors, stated)
    if not errors.any():
        return stated.copy()
    return _refine(logits, set_index, stated, errors, set_weights, target)[0]


def estimate_prior_error(
    logits: Array, set_index: Array, stated: Array, set_weights: Array, target: float
) -> float:
    """Return the standard error of the stated priors that the rows speak for; 0 if for none.

    The likelihood of the set index is compared between errors s, the same for all sets, with the
    true priors integrated out. Formula, with z the logits, moved and stretched as `refine_priors`
    does for that error and then brought from the target prior to even odds::

        likelihood(s) = integral over all pi_j in (0, 1) of
            prod_j normal(pi_j; stated_j, s) prod_i in j (1 - pi_j + pi_j exp z_i)
            / prod_i (1 - p + p exp z_i),    p = sum_j rho_j pi_j

    where the normal density is scaled to (0, 1). The logarithm of the last product is taken to
    first order in p around the refined priors, so that the integral is one for each set. Level and
    spread of all priors are left to what was stated, so an error that moves or stretches them all
    alike is hardly seen; and sets whose p(x | class) differs look like wrong priors too.

    Parameters
    ----------
    logits, set_index, stated, set_weights, target
        As for `refine_priors`.
    """
    # Sets without rows say nothing, and there may be a million of them.
    present, set_index = np.unique(set_index, return_inverse=True)
    stated = np.asarray(stated, dtype=np.float64)[present]
    weights = np.asarray(set_weights, dtype=np.float64)[present]
    weights /= weights.sum()

    def surprise(error: float) -> float:
        errors = np.full(len(stated), error)
        priors, moved = _refine(logits, set_index, stated, errors, weights, target)
        z = moved - logit(target)

        def log_mixture(prior: Any) -> Array:
            """Return log(1 - prior + prior exp z) of each row, (n,)."""
            with np.errstate(divide="ignore"):  # priors of 0 and 1
                return np.asarray(np.logaddexp(np.log(prior) + z, np.log1p(-prior)))

        pooled = log_mixture(weights @ priors)
        if not error:
            return float((pooled - log_mixture(stated[set_index])).sum())
        density = -((GRID[:, None] - stated) ** 2) / (2 * error**2)  # (grid, m), as a logarithm
        own = [np.bincount(set_index, log_mixture(prior), len(stated)) for prior in GRID]
        by_pooled = (np.exp(z - pooled) - np.exp(-pooled)).sum()
        joint = density + own - by_pooled * weights * (GRID[:, None] - priors)
        return float(pooled.sum() - (logsumexp(joint, axis=0) - logsumexp(density, axis=0)).sum())

    return _likeliest({error: surprise(error) for error in (0.0, *ERRORS)})


def _likeliest(surprises: dict[float, float]) -> float:
    """Return the error with the least surprise, if that speaks clearly against exact priors."""
    best = min(surprises, key=surprises.__getitem__)
    return best if surprises[0.0] - surprises[best] > DOUBT else 0.0


def _refine(
    logits: Array,
    set_index: Array,
    stated: Array,
    errors: Array,
    set_weights: Array,
    target: float,
) -> tuple[Array, Array]:
    """Return refined priors (m,) and the logits moved and stretched to them (n,)."""
    free = np.flatnonzero(errors > 0)
    z, own_set = torch.from_numpy(np.asarray(logits, np.float64)), torch.from_numpy(set_index)
    weights = torch.from_numpy(np.asarray(set_weights, np.float64) / np.sum(set_weights))
    kappa = torch.tensor([1 - target, target], dtype=torch.float64)
    centre, scale = torch.from_numpy(stated[free]), torch.from_numpy(errors[free])

    def value_and_slope(point: Array) -> tuple[float, Array]:
        """Return the sum to be minimised and its slope, by autograd."""
        leaf = torch.from_numpy(point).requires_grad_()
        steps, a, b = leaf[:-2], leaf[-2], leaf[-1]
        pi = torch.from_numpy(stated).index_put((torch.from_numpy(free),), centre + scale * steps)
        theta = torch.stack((1 - pi, pi), dim=1)
        transition = Transition.unchecked(theta, weights, kappa, binary=True)
        losses = ssc_cross_entropy(a + b.exp() * z, own_set.long(), transition)
        total = losses.sum() + (steps**2).sum() / 2
        (slope,) = torch.autograd.grad(total, leaf)
        return float(total.detach()), slope.numpy()

    # Steps are counted in standard errors, so that one step size suits all sets.
    low, high = (EDGE - stated[free]) / errors[free], (1 - EDGE - stated[free]) / errors[free]
    start = np.append(np.clip(0.0, low, high), [0.0, 0.0])
    bounds = Bounds(np.append(low, [-SHIFT, -STRETCH]), np.append(high, [SHIFT, STRETCH]))
    found = minimize(value_and_slope, start, jac=True, method="L-BFGS-B", bounds=bounds)
    *steps, a, b = found.x
    refined = stated.copy()
    refined[free] += errors[free] * steps
    return refined, a + np.exp(b) * z.numpy()


def check_prior_errors(errors: Any, stated: Array) -> Array:
    """Return standard errors of set priors as float64 (m,), or say what is wrong with them."""
    if stated.ndim != 1:
        raise InputError(
            f"set priors are refined for two classes only, stated as one share per set; here a set "
            f"has {stated.shape[1]} shares: leave out their standard errors"
        )
    checked = np.asarray(errors, dtype=np.float64)
    if checked.shape != stated.shape:
        raise InputError(
            f"standard errors must be one per set: {len(stated)} sets, got shape {checked.shape}"
        )
    wrong = ~(np.isfinite(checked) & (checked >= 0))
    if wrong.any():
        j = int(wrong.argmax())
        raise InputError(
            f"standard errors of set priors must be 0 (exact) or more; got {checked[j]:g} "
            f"for set {j}"
        )
    return checked
