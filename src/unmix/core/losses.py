"""The surrogate set classification losses, one value per row, in closed form.

The paper builds all m set posteriors and reads one of them. Both losses collapse: the sum over
sets inside them is linear (or quadratic) in the class posterior, so a few stored sums replace it
and the cost per row does not depend on the number of sets. This file knows no model and does not
reduce over rows; `tests/reference.py` holds the literal form.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from unmix.core.groupings import added_over_groupings
from unmix.core.transition import Transition, check_logits, class_logits
from unmix.errors import InputError

__all__ = [
    "fisher_information",
    "set_log_loss",
    "ssc_cross_entropy",
    "ssc_cross_entropy_gradient",
    "ssc_squared_error",
    "ssc_squared_error_gradient",
]


@added_over_groupings
def ssc_cross_entropy(logits: Tensor, set_index: Tensor, transition: Transition) -> Tensor:
    """Return -log p(set of the row | row), the cross-entropy SSC loss.

    Domain: any logits; set priors of exactly 0 and 1 are allowed.

    Formula (equation 8 with the cross-entropy; K classes)::

        logsumexp_k(z_k + log p_k/kappa_k) - logsumexp_k(z_k + log Theta_jk/kappa_k) - log rho_j

    Limits: a set with prior 1 beside a set with prior 0 gives ordinary cross-entropy plus a
    constant; two sets give UU learning.

    Parameters
    ----------
    logits : Tensor, shape (n,) or (n, K)
    set_index : Tensor of integers, shape (n,)
    transition : Transition

    Returns
    -------
    Tensor, shape (n,)

    Examples
    --------
    >>> t = Transition([0.0, 1.0], target_prior=0.5)
    >>> ssc_cross_entropy(torch.tensor([2.0]), torch.tensor([1]), t)  # log(1 + exp(-2))
    tensor([0.1269])
    """
    _check(logits, set_index, transition)
    # Index before casting: converting the whole table would cost m at every call.
    own = _log_mixture(logits, transition.log_joint.index_select(0, set_index))  # with log rho_j
    return _log_mixture(logits, transition.log_pooled) - own


@added_over_groupings
def ssc_cross_entropy_gradient(logits: Tensor, set_index: Tensor, transition: Transition) -> Tensor:
    """Return the derivative of `ssc_cross_entropy` by the logits, of their shape.

    Formula::

        softmax(z + log p/kappa) - softmax(z + log Theta_j/kappa)
    """
    _check(logits, set_index, transition)
    own = _mixture_posterior(logits, transition.log_sets.index_select(0, set_index))
    return _mixture_posterior(logits, transition.log_pooled) - own


@added_over_groupings
def ssc_squared_error(logits: Tensor, set_index: Tensor, transition: Transition) -> Tensor:
    """Return sum_j (p(set j | row) - [row is in j])^2, the squared-error SSC loss.

    Formula (v = eta / kappa, Q = Theta' diag(rho^2) Theta, T_j as in Theorem 1)::

        v' Q v / (p' v)^2 - 2 T_j + 1

    For two classes this is (A f^2 + 2 B f + C) / (c f + d)^2 - 2 T_j(f) + 1.

    Parameters
    ----------
    logits : Tensor, shape (n,) or (n, K)
    set_index : Tensor of integers, shape (n,)
    transition : Transition

    Returns
    -------
    Tensor, shape (n,)
    """
    _check(logits, set_index, transition)
    v, _, own, pooled, rho = _linear_forms(logits, set_index, transition)
    quadratic = (v @ transition.set_quadratic.to(v.dtype) * v).sum(dim=-1)
    return quadratic / pooled**2 - 2 * rho * own / pooled + 1


@added_over_groupings
def ssc_squared_error_gradient(logits: Tensor, set_index: Tensor, transition: Transition) -> Tensor:
    """Return the derivative of `ssc_squared_error` by the logits, of their shape."""
    _check(logits, set_index, transition)
    v, eta, own, pooled, rho = (
        t[:, None] if t.ndim == 1 else t for t in _linear_forms(logits, set_index, transition)
    )
    p = transition.pooled.to(v.dtype)
    theta = transition.prior_matrix[set_index].to(v.dtype)
    qv = v @ transition.set_quadratic.to(v.dtype)
    vqv = (v * qv).sum(dim=-1, keepdim=True)
    by_v = 2 * (qv - vqv / pooled * p - rho * (theta * pooled - own * p)) / pooled**2
    by_eta = by_v / transition.target.to(v.dtype)
    gradient = eta * (by_eta - (eta * by_eta).sum(dim=-1, keepdim=True))
    return gradient[:, 1] if logits.ndim == 1 else gradient


def set_log_loss(logits: Any, set_index: Any, transition: Transition) -> float:
    """Return the mean set log-loss of rows: the yardstick that needs no label.

    Parameters
    ----------
    logits : Tensor or array, shape (n,) or (n, K)
        At the transition's target prior.
    set_index : Tensor or array of integers, shape (n,)
    transition : Transition
    """
    z = torch.as_tensor(logits).double()
    losses = ssc_cross_entropy(z, torch.as_tensor(set_index).long(), transition)
    # Summed by numpy, whose order does not depend on the number of threads.
    return float(losses.numpy(force=True).mean())


def fisher_information(
    logits: Tensor, transition: Transition, *, sets_at_once: int = 256
) -> Tensor:
    """Return what the set index of a row tells about its logit, on average over sets.

    Formula (the variance, over sets drawn from the set posterior, of the gradient)::

        sum_j T_j(z) (sigma(z + delta_j) - sigma(z + delta_p))^2

    K classes: the diagonal of the information matrix. This is the one quantity whose cost grows
    with m; sets are taken in chunks so that nothing of size n x m exists.

    Parameters
    ----------
    logits : Tensor, shape (n,) or (n, K)
    transition : Transition
    sets_at_once : int
        Chunk of sets held at a time.

    Returns
    -------
    Tensor, of the shape of `logits`
    """
    z = class_logits(logits, transition)
    pooled = z + transition.log_pooled.to(z.dtype)
    mean = torch.softmax(pooled, dim=-1)  # (n, K)
    total = torch.zeros_like(mean)
    for first in range(0, transition.num_sets, sets_at_once):
        chunk = slice(first, first + sets_at_once)
        own = z[:, None, :] + transition.log_sets[chunk].to(z.dtype)  # (n, chunk, K)
        log_posterior = torch.logsumexp(own, -1) - torch.logsumexp(pooled, -1)[:, None]
        posterior = torch.exp(log_posterior + transition.log_weights[chunk].to(z.dtype))
        gradient = torch.softmax(own, dim=-1) - mean[:, None, :]
        total += (posterior[:, :, None] * gradient**2).sum(dim=1)
    return total[:, 1] if logits.ndim == 1 else total


def _linear_forms(
    logits: Tensor, set_index: Tensor, transition: Transition
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return v = eta / kappa, eta, Theta_j v, p v and rho_j of each row."""
    z = class_logits(logits, transition)
    eta = torch.softmax(z, dim=-1)
    v = eta / transition.target.to(z.dtype)
    own = (v * transition.prior_matrix[set_index].to(z.dtype)).sum(dim=-1)
    pooled = v @ transition.pooled.to(z.dtype)
    return v, eta, own, pooled, transition.set_weights[set_index].to(z.dtype)


def _log_mixture(logits: Tensor, log_ratio: Tensor) -> Tensor:
    """Return logsumexp_k(z_k + log ratio_k), (n,); one logit z stands for (0, z)."""
    log_ratio = log_ratio.to(logits.dtype)
    if logits.ndim == 1:  # several times faster than a sum over a last axis of two
        return torch.logaddexp(log_ratio[..., 0], logits + log_ratio[..., 1])
    return torch.logsumexp(logits + log_ratio, dim=-1)


def _mixture_posterior(logits: Tensor, log_ratio: Tensor) -> Tensor:
    """Return the derivative of `_log_mixture` by the logits: softmax_k(z_k + log ratio_k)."""
    log_ratio = log_ratio.to(logits.dtype)
    if logits.ndim == 1:
        return torch.sigmoid(logits + log_ratio[..., 1] - log_ratio[..., 0])
    return torch.softmax(logits + log_ratio, dim=-1)


def _check(logits: Tensor, set_index: Tensor, transition: Transition) -> None:
    """Refuse logits of another shape, and a set index that does not go row by row with them."""
    check_logits(logits, transition)
    if set_index.ndim != 1 or len(set_index) != len(logits):
        raise InputError(
            f"set_index must have one entry per row: {len(logits)} rows, "
            f"set_index of shape {tuple(set_index.shape)}"
        )
