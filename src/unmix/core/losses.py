"""The surrogate set classification losses, one value per row, in closed form.

The paper builds all m set posteriors and reads one of them. Both losses collapse: the sum over
sets inside them is linear (or quadratic) in the class posterior, so a few stored sums replace it
and the cost per row does not depend on the number of sets. This file knows no model and does not
reduce over rows; `tests/reference.py` holds the literal form, `core.row_losses` the one for arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING

from unmix.core.groupings import of_groupings
from unmix.core.transition import Transition, check_set_index, class_logits

if TYPE_CHECKING:
    from torch import Tensor

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "added_over_groupings",
    "ssc_cross_entropy",
    "ssc_cross_entropy_gradient",
    "ssc_squared_error",
    "ssc_squared_error_gradient",
]

Loss = Callable[["Tensor", "Tensor", Transition], "Tensor"]


def added_over_groupings(loss: Loss) -> Loss:
    """Let a loss of one value (or K) per row take several groupings: the sum over those of a row.

    The decorated function is called with each grouping by itself: its sets, the shares of its own
    rows.
    """

    @wraps(loss)
    def added(logits: Tensor, set_index: Tensor, transition: Transition) -> Tensor:
        if transition.grouping is None:
            return loss(logits, set_index, transition)
        total: Tensor | None = None
        for rows, index, part, _ in of_groupings(set_index, transition):
            values = loss(logits[rows], index, part)
            if total is None:
                total = values.new_zeros(len(logits), *values.shape[1:])
            total = total.index_add(0, rows, values)
        return logits.new_zeros(logits.shape) if total is None else total

    return added


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
    >>> import torch
    >>> t = Transition([0.0, 1.0], target_prior=0.5)
    >>> ssc_cross_entropy(torch.tensor([2.0]), torch.tensor([1]), t)  # log(1 + exp(-2))
    tensor([0.1269])
    """
    check_set_index(logits, set_index, transition)
    # Index before casting: converting the whole table would cost m at every call.
    own = _log_mixture(logits, transition.log_joint.index_select(0, set_index))  # with log rho_j
    return _log_mixture(logits, transition.log_pooled) - own


@added_over_groupings
def ssc_cross_entropy_gradient(logits: Tensor, set_index: Tensor, transition: Transition) -> Tensor:
    """Return the derivative of `ssc_cross_entropy` by the logits, of their shape.

    Formula::

        softmax(z + log p/kappa) - softmax(z + log Theta_j/kappa)
    """
    check_set_index(logits, set_index, transition)
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

    Examples
    --------
    >>> import torch
    >>> t = Transition([0.0, 1.0], target_prior=0.5)  # 2 sigma(-2)^2: the Brier score
    >>> ssc_squared_error(torch.tensor([2.0]), torch.tensor([1]), t)
    tensor([0.0284])
    """
    check_set_index(logits, set_index, transition)
    v, _, own, pooled, rho = _linear_forms(logits, set_index, transition)
    quadratic = (v @ transition.set_quadratic.to(v.dtype) * v).sum(dim=-1)
    return quadratic / pooled**2 - 2 * rho * own / pooled + 1


@added_over_groupings
def ssc_squared_error_gradient(logits: Tensor, set_index: Tensor, transition: Transition) -> Tensor:
    """Return the derivative of `ssc_squared_error` by the logits, of their shape."""
    check_set_index(logits, set_index, transition)
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


def _linear_forms(
    logits: Tensor, set_index: Tensor, transition: Transition
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return v = eta / kappa, eta, Theta_j v, p v and rho_j of each row."""
    z = class_logits(logits, transition)
    eta = z.softmax(dim=-1)
    v = eta / transition.target.to(z.dtype)
    own = (v * transition.prior_matrix[set_index].to(z.dtype)).sum(dim=-1)
    pooled = v @ transition.pooled.to(z.dtype)
    return v, eta, own, pooled, transition.set_weights[set_index].to(z.dtype)


def _log_mixture(logits: Tensor, log_ratio: Tensor) -> Tensor:
    """Return logsumexp_k(z_k + log ratio_k), (n,); one logit z stands for (0, z)."""
    log_ratio = log_ratio.to(logits.dtype)
    if logits.ndim == 1:  # several times faster than a sum over a last axis of two
        return log_ratio[..., 0].logaddexp(logits + log_ratio[..., 1])
    return (logits + log_ratio).logsumexp(dim=-1)


def _mixture_posterior(logits: Tensor, log_ratio: Tensor) -> Tensor:
    """Return the derivative of `_log_mixture` by the logits: softmax_k(z_k + log ratio_k)."""
    log_ratio = log_ratio.to(logits.dtype)
    if logits.ndim == 1:
        return (logits + log_ratio[..., 1] - log_ratio[..., 0]).sigmoid()
    return (logits + log_ratio).softmax(dim=-1)
