"""Risks: a scalar for a batch of rows, from their logits and set indices.

A risk is a function ``(logits, set_index) -> scalar``; the functions here build one from a
`Transition`. Over all rows of the sets each equals the paper's empirical risk; over a random
batch its expectation is the same, except where a formula is not linear (U2-c, proportion).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from unmix.core.groupings import on_copies
from unmix.core.losses import (
    ssc_cross_entropy,
    ssc_cross_entropy_gradient,
    ssc_squared_error,
    ssc_squared_error_gradient,
)
from unmix.core.pairing import pair_sets, pair_weights
from unmix.core.row_losses import CrossEntropyRows
from unmix.core.transition import Transition, check_logits, class_logits
from unmix.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "MeanLoss",
    "Risk",
    "ShareMatch",
    "mmc_risk",
    "proportion_risk",
    "ssc_mse_risk",
    "ssc_risk",
    "u2_risk",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Risk = Callable[["Tensor", "Tensor"], "Tensor"]
Loss = Callable[["Tensor", "Tensor", Transition], "Tensor"]


@dataclass(frozen=True)
class MeanLoss:
    """A risk that is the mean of a loss over rows, and knows its gradient in closed form."""

    loss: Loss
    by_logits: Loss
    """The derivative of the loss by the logits of its row."""
    transition: Transition
    for_arrays: Callable[[Transition], CrossEntropyRows] | None = None
    """The same loss for arrays, if there is a form of it that needs no torch."""

    def __call__(self, logits: Tensor, set_index: Tensor) -> Tensor:
        """Return the risk."""
        return self.loss(logits, set_index, self.transition).mean()

    def gradient(self, logits: Tensor, set_index: Tensor) -> Tensor:
        """Return the derivative of the risk by the logits, of their shape."""
        return self.by_logits(logits, set_index, self.transition) / len(logits)

    def row_gradients(self, logits: FloatArray, set_index: IntArray) -> FloatArray:
        """Return the derivative of the loss of each row by its logits, for boosting."""
        if self._rows is not None:
            return self._rows.gradient(logits, set_index)
        return self.sum_and_gradient(logits, set_index)[1]

    def sum_and_gradient(self, logits: FloatArray, set_index: IntArray) -> tuple[float, FloatArray]:
        """Return the sum of the loss over rows and its derivative by their logits, as arrays."""
        if self._rows is not None:
            return self._rows.sum_and_gradient(logits, set_index)
        import torch

        z, index = torch.from_numpy(logits), torch.from_numpy(set_index).long()
        value = self.loss(z, index, self.transition).sum()
        return float(value), np.asarray(self.by_logits(z, index, self.transition).numpy())

    @cached_property
    def _rows(self) -> CrossEntropyRows | None:
        """The loss for arrays, if there is one."""
        return None if self.for_arrays is None else self.for_arrays(self.transition)

    @property
    def learns(self) -> bool:
        """Whether the set priors are learned too: then this gradient is not all of it."""
        return self.transition.prior_matrix.requires_grad


@dataclass(frozen=True)
class ShareMatch:
    """A risk that compares the share of each set with its mean predicted probability.

    Linear models know it in closed form: for rows on disk too, and with sets whose shares are known
    better counting more.
    """

    of_batch: Risk

    def __call__(self, logits: Tensor, set_index: Tensor) -> Tensor:
        """Return the risk."""
        return self.of_batch(logits, set_index)


def ssc_risk(transition: Transition) -> Risk:
    """Return the empirical risk of surrogate set classification (equation 8), cross-entropy."""
    return MeanLoss(ssc_cross_entropy, ssc_cross_entropy_gradient, transition, CrossEntropyRows)


def ssc_mse_risk(transition: Transition) -> Risk:
    """Return the empirical risk of surrogate set classification with the squared error."""
    return MeanLoss(ssc_squared_error, ssc_squared_error_gradient, transition)


def u2_risk(
    transition: Transition, *, balanced: bool = False, correction: float | None = None
) -> Risk:
    """Return the U2 risk of exactly two sets (Section 2.3); see `mmc_risk` for the options."""
    if transition.num_sets != 2:
        raise InputError(
            f"the U2 methods learn from exactly 2 sets; got {transition.num_sets}. "
            "The MMC methods combine more"
        )
    return mmc_risk(transition, balanced=balanced, correction=correction)


def mmc_risk(
    transition: Transition, *, balanced: bool = False, correction: float | None = None
) -> Risk:
    """Return the weighted sum of U2 risks over pairs of sets (multiple mutual contamination).

    Formula (Section 2.3, Appendix B; l is the logistic loss, c the coefficients of a pair)::

        R_p = c_1^+ mean_1 l(z, +1) - c_2^+ mean_2 l(z, +1)
        R_n = c_2^- mean_2 l(z, -1) - c_1^- mean_1 l(z, -1)
        R   = sum over pairs of omega (f(R_p) + f(R_n))

    The mean over a set is the sum over its rows in the batch, divided by the number expected
    there, so a set that a batch misses biases nothing.

    Parameters
    ----------
    balanced : bool
        Take 1/2 for the target prior (U2-b).
    correction : float, optional
        kappa >= 0 of the generalised leaky ReLU f(r) = r or -kappa r (U2-c); f(r) = r if left out.
    """
    import torch
    from torch.nn.functional import softplus

    if not transition.binary:
        raise InputError("the U2 and MMC methods are for two classes; use ssc for more")
    priors, weights = transition.prior_matrix[:, 1], transition.set_weights
    first, second, omega = _pairs(transition)  # (pairs,) each
    target = 0.5 if balanced else float(transition.target[1])
    pi_1, pi_2 = priors[first], priors[second]
    # omega goes with (pi_1 - pi_2)^2: a pair of equal priors has weight 0, not 0 * infinity.
    scale = torch.where(pi_1 > pi_2, omega / (pi_1 - pi_2), 0)
    positive_1, positive_2 = scale * (1 - pi_2) * target, scale * (1 - pi_1) * target
    negative_1, negative_2 = scale * pi_2 * (1 - target), scale * pi_1 * (1 - target)

    @on_copies
    def risk(logits: Tensor, set_index: Tensor) -> Tensor:
        check_logits(logits, transition)
        # (m,) rows of each set to expect in a batch of this size; empty sets are in no pair
        expected = (len(logits) * weights).clamp_min(torch.finfo(weights.dtype).tiny)
        positive = _sum_by_set(softplus(-logits), set_index, weights) / expected
        negative = _sum_by_set(softplus(logits), set_index, weights) / expected
        of_positives = positive_1 * positive[first] - positive_2 * positive[second]
        of_negatives = negative_2 * negative[second] - negative_1 * negative[first]
        parts = torch.stack((of_positives, of_negatives))
        if correction is not None:
            parts = torch.where(parts >= 0, parts, -correction * parts)
        return parts.sum().to(logits.dtype)

    return risk


def proportion_risk(transition: Transition) -> Risk:
    """Return the empirical proportion risk with a differentiable share (equation 4).

    Formula (mean over the sets of the batch; the share is the mean predicted probability)::

        - sum_k Theta_jk log share_jk

    The paper counts signs and sums over sets; a sign has no gradient, and the mean keeps the
    scale when a batch holds few sets.
    """

    @on_copies
    def risk(logits: Tensor, set_index: Tensor) -> Tensor:
        import torch

        probability = torch.softmax(class_logits(logits, transition), dim=-1)  # (n, K)
        present, position = torch.unique(set_index, return_inverse=True)
        total = probability.new_zeros(len(present), probability.shape[1])
        count = torch.bincount(position, minlength=len(present))
        share = total.index_add(0, position, probability) / count[:, None]
        # A share of 0 in floating point must not become an infinite risk.
        log_share = torch.log(share.clamp_min(torch.finfo(share.dtype).tiny))
        stated = transition.prior_matrix[present].to(share.dtype)
        distance: Tensor = -(stated * log_share).sum(dim=-1)
        return distance.mean()

    return ShareMatch(risk)


def _pairs(transition: Transition) -> tuple[Tensor, Tensor, Tensor]:
    """Return the first and second set of each pair and its weight, leaving out empty sets."""
    import torch

    weights = transition.arrays.set_weights
    used = weights.nonzero()[0]
    priors, sizes = transition.arrays.prior_matrix[used, 1], weights[used]
    pairs = pair_sets(priors, sizes)
    columns = (*used[pairs].T.copy(), pair_weights(priors, sizes, pairs))
    first, second, omega = (torch.from_numpy(c).to(transition.set_weights.device) for c in columns)
    return first, second, omega


def _sum_by_set(values: Tensor, set_index: Tensor, like: Tensor) -> Tensor:
    """Return the sum of values over the rows of each set, shape (m,), in the type of `like`."""
    return like.new_zeros(like.shape).index_add(0, set_index, values.to(like.dtype))
