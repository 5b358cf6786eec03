"""The SSC cross-entropy of many rows as arrays: value and gradient, for linear models and trees.

The formulas are those of `core.losses`, which networks call for their batches; here for all rows
of a table at once, with one exponential and one logarithm a row, and without torch. It is faster
with one row of logits per class, (K, n) in memory; any layout is right.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit, softmax

from unmix.core.groupings import of_groupings
from unmix.core.sums_by_set import set_sums
from unmix.core.transition import Transition, check_logits, check_set_index

__all__ = ["CrossEntropyRows", "fisher_information", "set_log_loss"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# Logits up to here are taken to exponentials as they are: no sum or product overflows.
LARGEST_LOGIT = 600.0
# Odds below this could vanish in a sum: then logarithms are added instead.
SMALLEST = 1e-280
# Logits that are worked on at a time: they stay in the processor's cache, and what is made of them
# on the way in memory that is there already.
BLOCK_NUMBERS = 32_768


class CrossEntropyRows:
    """`ssc_cross_entropy` and its gradient for rows in memory.

    Parameters
    ----------
    transition : Transition
    """

    def __init__(self, transition: Transition) -> None:
        arrays = transition.arrays
        self.transition, self._arrays = transition, arrays
        self._pooled = arrays.pooled / arrays.target  # (K,)
        joint = arrays.set_weights[:, None] * arrays.prior_matrix / arrays.target
        self._joint = np.ascontiguousarray(joint.T)  # (K, m), so that a class is one column
        self._plain = bool((self._pooled > 0).all())
        grouped = transition.grouping is not None
        self._parts = [CrossEntropyRows(part) for part in transition.parts] if grouped else []

    def with_pooled(self, pooled: FloatArray) -> CrossEntropyRows:
        """Return the loss where the same sets weigh otherwise: their pooled prior is given, (K,).

        For its gradient: what a set weighs adds a constant to the loss of its rows. One grouping.
        """
        other = copy(self)
        other._pooled = pooled / self._arrays.target
        other._plain = bool((other._pooled > 0).all())
        return other

    def losses(self, logits: FloatArray, set_index: IntArray) -> FloatArray:
        """Return the loss of each row, (n,).

        Parameters
        ----------
        logits : array, shape (n,) or (n, K)
        set_index : array of integers, shape (n,)
        """
        if self._parts:
            return self._added(logits, set_index)[0]
        check_set_index(logits, set_index, self.transition)
        found = np.empty(len(logits))
        for rows in _blocks(logits):
            found[rows] = self._block(logits[rows], set_index[rows], gradient=False)[0]
        return found

    def gradient(self, logits: FloatArray, set_index: IntArray) -> FloatArray:
        """Return the derivative of the loss of each row by its logits, of their shape."""
        if self._parts:
            return self._added(logits, set_index)[1]
        check_set_index(logits, set_index, self.transition)
        found = np.empty(logits.shape[::-1]).T
        for rows in _blocks(logits):
            found[rows] = self._block(logits[rows], set_index[rows], value=False)[1]
        return found

    def sum_and_gradient(self, logits: FloatArray, set_index: IntArray) -> tuple[float, FloatArray]:
        """Return the sum of the loss over a block of rows, and its derivative by the logits."""
        if self._parts or logits.size <= BLOCK_NUMBERS:
            whole = self._added if self._parts else self._block
            losses, gradient = whole(logits, set_index)
            return float(losses.sum()), gradient
        value, found = 0.0, np.empty(logits.shape[::-1]).T
        for rows in _blocks(logits):
            losses, found[rows] = self._block(logits[rows], set_index[rows])
            value += float(losses.sum())
        return value, found

    def prior_gradient(self, logits: FloatArray, set_index: IntArray) -> FloatArray:
        """Return the derivative of the sum of the losses by the set priors, (m, K).

        Formula (the pooled prior p follows the set priors; set weights and target prior stay)::

            rho_j sum over all rows of (eta_k / kappa_k) / sum_k (p_k / kappa_k) eta_k
                - the same over the rows of set j, with Theta_j in the place of p

        For one grouping.
        """
        arrays = self._arrays
        z = np.stack((np.zeros_like(logits), logits), axis=1) if logits.ndim == 1 else logits
        odds = z - np.log(arrays.target)  # (n, K)
        with np.errstate(divide="ignore"):
            log_pooled, log_sets = np.log(arrays.pooled), np.log(arrays.prior_matrix)
        by_pooled = np.exp(odds - np.logaddexp.reduce(odds + log_pooled, axis=1)[:, None])
        own = np.exp(odds - np.logaddexp.reduce(odds + log_sets[set_index], axis=1)[:, None])
        of_sets = set_sums(own, set_index, self.transition.num_sets)
        return np.asarray(arrays.set_weights[:, None] * by_pooled.sum(axis=0) - of_sets)

    def _added(self, logits: FloatArray, set_index: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the losses and derivatives of several groupings: sums over those of a row."""
        losses, gradient = np.zeros(len(logits)), np.zeros_like(logits)
        for rows, index, _, g in of_groupings(set_index, self.transition):
            own = self._parts[g]
            losses[rows] += own.losses(logits[rows], index)
            gradient[rows] += own.gradient(logits[rows], index)
        return losses, gradient

    def _block(
        self, logits: FloatArray, index: IntArray, *, value: bool = True, gradient: bool = True
    ) -> tuple[FloatArray, FloatArray]:
        """Return the losses and their derivatives; what is not asked for is empty."""
        none = np.empty(0)
        z = logits.T  # (n,) or (K, n)
        if logits.ndim == 1:
            low, high = z.min(), z.max()
            if not (self._plain and low >= -LARGEST_LOGIT and high <= LARGEST_LOGIT):
                return self._by_logarithms(logits, index)  # also what is not a number
            odds = np.exp(z)
            (p0, p1), own1 = self._pooled, self._joint[1].take(index)
            own = own1 * odds
            own += self._joint[0].take(index)
            if not own.min() > 0:  # a row in a set without weight, whose loss is infinite
                return self._by_logarithms(logits, index)
            pooled = p1 * odds
            pooled += p0
            losses = np.log(pooled / own) if value else none
            if not gradient:
                return losses, none
            own1 /= own
            np.divide(p1, pooled, out=pooled)
            pooled -= own1
            pooled *= odds
            return losses, pooled
        odds = z - z.max(axis=0)  # (K, n)
        np.exp(odds, out=odds)
        ratios = self._joint.take(index, axis=1)
        ratios *= odds
        pooled, own = self._pooled @ odds, ratios.sum(axis=0)
        if not self._plain or not own.min() > SMALLEST or not pooled.min() > SMALLEST:
            return self._by_logarithms(logits, index)
        losses = np.log(pooled / own) if value else none
        if not gradient:
            return losses, none
        ratios /= -own
        odds *= self._pooled[:, None]
        odds /= pooled
        ratios += odds
        return losses, ratios.T

    def _by_logarithms(self, logits: FloatArray, index: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the same, right at any logits and priors, and slower."""
        arrays = self._arrays
        with np.errstate(divide="ignore", invalid="ignore"):
            log_pooled = np.log(self._pooled)
            log_sets = np.log(arrays.prior_matrix / arrays.target)[index]  # (n, K)
            log_weights = np.log(arrays.set_weights)[index]
        z = np.stack((np.zeros_like(logits), logits), axis=1) if logits.ndim == 1 else logits
        of_pooled, of_own = z + log_pooled, z + log_sets
        losses = np.logaddexp.reduce(of_pooled, axis=1) - (
            np.logaddexp.reduce(of_own, axis=1) + log_weights
        )
        gradient = softmax(of_pooled, axis=1) - softmax(of_own, axis=1)
        return losses, gradient[:, 1] if logits.ndim == 1 else gradient


def set_log_loss(logits: Any, set_index: Any, transition: Transition) -> float:
    """Return the mean set log-loss of rows: the yardstick that needs no label.

    Parameters
    ----------
    logits : array, shape (n,) or (n, K)
        At the transition's target prior.
    set_index : array of integers, shape (n,)
    transition : Transition
    """
    z = np.asarray(logits, dtype=np.float64)
    losses = CrossEntropyRows(transition).losses(z, np.asarray(set_index))
    return float(losses.mean())


def fisher_information(
    logits: npt.ArrayLike, transition: Transition, *, sets_at_once: int = 256
) -> FloatArray:
    """Return what the set index of a row tells about its logit, on average over sets.

    Formula (the variance, over sets drawn from the set posterior, of the gradient)::

        sum_j T_j(z) (sigma(z + delta_j) - sigma(z + delta_p))^2

    K classes: the diagonal of the information matrix. This is the one quantity whose cost grows
    with m; sets are taken in chunks so that nothing of size n x m exists.

    Parameters
    ----------
    logits : array, shape (n,) or (n, K)
    transition : Transition
    sets_at_once : int
        Chunk of sets held at a time.

    Returns
    -------
    array, of the shape of `logits`
    """
    given, arrays = np.asarray(logits, dtype=np.float64), transition.arrays
    check_logits(given, transition)
    two = given.ndim == 1
    # Class shares of a row; of two classes both with their leading digits.
    eta = np.stack((expit(-given), expit(given)), axis=1) if two else softmax(given, axis=1)
    # A class that no set has is told by nothing: 0 / 0, and no warning.
    with np.errstate(divide="ignore", invalid="ignore"):
        pooled = eta * (arrays.pooled / arrays.target)  # (n, K)
        total = pooled.sum(axis=1, keepdims=True)
        mean, found = pooled / total, np.zeros_like(pooled)
        for first in range(0, transition.num_sets, sets_at_once):
            chunk = slice(first, first + sets_at_once)
            ratios = arrays.prior_matrix[chunk] / arrays.target  # (chunk, K)
            own = eta @ ratios.T  # (n, chunk)
            posterior = own * arrays.set_weights[chunk] / total
            for k in (1,) if two else range(transition.num_classes):
                gradient = eta[:, k, None] * ratios[:, k] / own - mean[:, k, None]
                # A set in which the classes of a row do not occur says nothing about it.
                found[:, k] += np.where(own > 0, posterior * gradient**2, 0).sum(axis=1)
    return found[:, 1] if two else found


def _blocks(logits: FloatArray) -> list[slice]:
    """Return slices of rows that are worked on at a time."""
    step = max(1, BLOCK_NUMBERS * len(logits) // max(1, logits.size))
    return [slice(first, first + step) for first in range(0, len(logits), step)]
