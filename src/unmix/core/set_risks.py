"""Risks of whole sets: what the count or share of a set says about the logits of its rows.

As a risk of `unmix.core.risks`, a function ``(logits, set_index) -> scalar``, but with its own
gradient, worked out by numpy in float64 (`unmix.core.counts`, `unmix.core.set_effects`). A set of
which a batch holds only some rows is known less well, and the likelihood knows by how much.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from unmix.core.counts import count_hessian, count_nll
from unmix.core.effect_law import independent
from unmix.core.groupings import of_groupings
from unmix.core.set_effects import (
    best_effect_nll,
    effect_size,
    set_effect_hessian,
    set_effect_nll,
    total_variances,
)
from unmix.core.share_precision import SharePrecision, precision_by_counts
from unmix.core.stated_counts import label_shift_counts
from unmix.core.transition import Transition, check_logits
from unmix.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["CountRisk", "SetEffectRisk", "SetRisk"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class SetRisk(ABC):
    """A risk of whole sets that knows its gradient: a sum over sets, divided by a number.

    The sets may be those of several groupings of the same rows (`unmix.core.groupings`).

    Parameters
    ----------
    transition : Transition
    """

    def __init__(self, transition: Transition) -> None:
        self.transition = transition
        self.shares = transition.arrays.prior_matrix  # (m, K)

    @cached_property
    def parts(self) -> list[Self]:
        """The same risk for the sets of each grouping by itself."""
        return [self.of_part(part) for part in self.transition.parts]

    def of_part(self, part: Transition) -> Self:
        """Return the same risk for the sets of one grouping."""
        return type(self)(part)

    @abstractmethod
    def sum_over_sets(
        self, logits: FloatArray, set_index: IntArray
    ) -> tuple[float, FloatArray, int]:
        """Return the sum, its derivative by the logits, and the number of sets: of one grouping."""

    @abstractmethod
    def information(self, logits: FloatArray, set_index: IntArray) -> FloatArray:
        """Return a positive diagonal in the place of the Hessian of the sum: of one grouping."""

    @abstractmethod
    def divisor(self, num_sets: int, num_rows: int) -> int:
        """Return what the sum over sets is divided by."""

    def added(self, logits: FloatArray, set_index: IntArray) -> tuple[float, FloatArray, int]:
        """Return `sum_over_sets` for any number of groupings: the sum over them."""
        if set_index.ndim == 1:
            return self.sum_over_sets(logits, set_index)
        total, gradient, num_sets = 0.0, np.zeros_like(logits), 0
        for rows, index, _, g in of_groupings(set_index, self.transition):
            value, slope, sets = self.parts[g].sum_over_sets(logits[rows], index)
            total, num_sets = total + value, num_sets + sets
            gradient[rows] += slope
        return total, gradient, num_sets

    def __call__(self, logits: Tensor, set_index: Tensor) -> Tensor:
        """Return the risk of a batch, with its gradient."""
        check_logits(logits, self.transition)
        from unmix.core.known_gradient import with_gradient

        z = logits.detach().double().numpy(force=True)
        value, gradient = self.value_and_gradient(z, set_index.numpy(force=True))
        return with_gradient(logits, value, gradient)

    def value_and_gradient(
        self, logits: FloatArray, set_index: IntArray
    ) -> tuple[float, FloatArray]:
        """Return the risk of rows and its derivative by their logits."""
        total, gradient, num_sets = self.added(logits, set_index)
        divisor = self.divisor(num_sets, len(logits))
        return total / divisor, gradient / divisor

    def row_gradients(self, logits: FloatArray, set_index: IntArray) -> FloatArray:
        """Return the derivative of the sum over sets by the logits, for boosting."""
        return self.added(logits, set_index)[1]

    def row_information(self, logits: FloatArray, set_index: IntArray) -> FloatArray:
        """Return a positive diagonal in the place of the Hessian, for boosting."""
        if set_index.ndim == 1:
            return self.information(logits, set_index)
        total = np.zeros_like(logits)
        for rows, index, _, g in of_groupings(set_index, self.transition):
            total[rows] += self.parts[g].information(logits[rows], index)
        return total

    def at_hand(self, set_index: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return the sets that have rows, the number of each row's set among them, their rows."""
        rows = np.bincount(set_index, minlength=len(self.shares))
        present = np.flatnonzero(rows)
        return present, (np.cumsum(rows > 0) - 1)[set_index], rows[present]

    def stated(self, present: IntArray, logits: FloatArray) -> FloatArray:
        """Return the stated shares of some sets in the shape of logits: (m,) or (m, K)."""
        return self.shares[present, 1] if logits.ndim == 1 else self.shares[present]


class SetEffectRisk(SetRisk):
    """The negative log density of the sets' shares where each set has an effect of its own.

    Formula: the mean over the sets of `unmix.core.set_effects.set_effect_nll` at the tau that suits
    these sets best (so that the gradient is that of the minimum over tau). Sets of one grouping may
    differ more than those of another: each has its own tau. A row whose class is known, a set of
    one (`SharePrecision.labels`), adds its log-loss.
    """

    def sum_over_sets(
        self, logits: FloatArray, set_index: IntArray
    ) -> tuple[float, FloatArray, int]:
        """Return the sum, its derivative by the logits, and the number of sets: of one grouping."""
        labels = self._labels(set_index)
        if labels is None:
            values, gradient, _ = best_effect_nll(*self._evidence(logits, set_index))
            return float(values.sum()), gradient, len(values)
        gradient, known = np.zeros_like(logits), set_index[labels]
        values, gradient[labels] = count_nll(
            logits[labels], np.arange(len(known)), self.stated(known, logits)
        )
        total, num_sets, others = float(values.sum()), len(values), ~labels
        if others.any():
            added, gradient[others], sets = self.sum_over_sets(logits[others], set_index[others])
            total, num_sets = total + added, num_sets + sets
        return total, gradient, num_sets

    def divisor(self, num_sets: int, num_rows: int) -> int:
        """Return the number of sets: their mean is taken."""
        return num_sets

    def information(self, logits: FloatArray, set_index: IntArray) -> FloatArray:
        """Return a positive diagonal in the place of the Hessian of the sum: of one grouping."""
        labels = self._labels(set_index)
        if labels is None:
            z, position, shares, variances = self._evidence(logits, set_index)
            tau = effect_size(z, position, shares, variances)
            return set_effect_hessian(z, position, shares, tau, variances)
        found, known, others = np.zeros_like(logits), set_index[labels], ~labels
        found[labels] = count_hessian(
            logits[labels], np.arange(len(known)), self.stated(known, logits)
        )
        if others.any():
            found[others] = self.information(logits[others], set_index[others])
        return found

    def tau(self, logits: FloatArray, set_index: IntArray) -> float:
        """Return the standard deviation of the set effect that suits these rows best.

        Of several groupings that of the sum of their effects, which are independent.
        """
        if set_index.ndim == 1:
            labels = self._labels(set_index)
            if labels is not None:  # which say nothing of the effect of a set
                logits, set_index = logits[~labels], set_index[~labels]
            return effect_size(*self._evidence(logits, set_index)) if len(logits) else 0.0
        found = [
            self.parts[g].tau(logits[rows], index)
            for rows, index, _, g in of_groupings(set_index, self.transition)
        ]
        return float(np.sqrt(np.sum(np.square(found))))

    def offsets(
        self, logits: FloatArray, set_index: IntArray
    ) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the sets at hand, their offsets, and what these vary by without a set effect.

        The last two are (m,) or, of K classes and in directions to each of which tau adds tau^2,
        (m, K - 1): all that `fit_tau` wants. Of one grouping.
        """
        present = self.at_hand(set_index)[0]
        z, position, shares, variances = self._evidence(logits, set_index)
        found, _, totals = total_variances(z, position, shares, 0.0, variances)
        if found.ndim == 1:
            return present, found, totals
        return present, *independent(found, totals)[:2]

    def sum_at(
        self, tau: float, logits: FloatArray, set_index: IntArray
    ) -> tuple[float, FloatArray]:
        """Return the sum over sets and its derivative by the logits at a set effect that is known.

        At the tau that suits all sets best this is the gradient of the minimum over tau, also where
        only some of the sets are at hand.
        """
        z, position, shares, variances = self._evidence(logits, set_index)
        values, gradient, _ = set_effect_nll(z, position, shares, tau, variances)
        return float(values.sum()), gradient

    def _labels(self, set_index: IntArray) -> npt.NDArray[np.bool_] | None:
        """Return which rows are sets of one whose class is known (n,); None if there are none."""
        known = self.transition.precision
        if known is None or known.labels is None:
            return None
        found = known.labels[set_index]
        return found if found.any() else None

    def _evidence(
        self, logits: FloatArray, set_index: IntArray
    ) -> tuple[FloatArray, IntArray, FloatArray, Any]:
        """Return logits, the sets at hand as 0, 1, ... row by row, their shares and variances."""
        present, position, rows = self.at_hand(set_index)
        shares, known = self.stated(present, logits), self.transition.precision
        variances = 0.0 if known is None else known.take(present).error_variances(rows, shares)
        return logits, position, shares, variances


class CountRisk(SetRisk):
    """The negative log-likelihood of the sets' counts, per row.

    How well a count is known, the precision of the stated shares says; where none was stated,
    `unmix.core.share_precision.precision_by_counts`.

    Formula (k of the n rows of a set in the batch, logits z at the pooled prior)::

        1 / rows * sum over sets of -log p(count | z)        `unmix.core.counts.count_nll`
        count exact     c = n pi if k = n; else k pi with the hypergeometric variance
        rate            k pi with the variance k pi (1 - pi)
        with an error e, or noise e n in the count           + k^2 e^2

    Noisy counts are restated for label shift (`label_shift_counts`): a rate alone then gives
    surrogate set classification, an exact count more.

    The rows of one of several groupings may have other class shares than all together, if some rows
    have no set in it. Its likelihood then takes the logits at the shares of its own rows.

    Parameters
    ----------
    transition : Transition
        Made from the rows of each set, not from their weights.
    at : array, shape (K,), optional
        The class prior at which logits come; the pooled prior if left out.
    """

    def __init__(self, transition: Transition, at: FloatArray | None = None) -> None:
        rows = transition.arrays.set_rows
        if rows is None:
            raise InputError("the count of a set needs its number of rows: pass them as weights")
        super().__init__(transition)
        self.rows = rows  # (m,)
        self.pooled = transition.arrays.pooled  # (K,)
        stated = transition.precision
        self.known: SharePrecision = stated or precision_by_counts(self.shares, self.rows)
        self.exact = self.known.exact  # (m,)
        self.shift = np.zeros(len(self.pooled))  # (K,) added to logits
        if at is not None:
            self.shift = np.log(self.pooled) - np.log(at)

    def of_part(self, part: Transition) -> CountRisk:
        """Return the same risk for the sets of one grouping."""
        return CountRisk(part, at=self.pooled)

    def sum_over_sets(
        self, logits: FloatArray, set_index: IntArray
    ) -> tuple[float, FloatArray, int]:
        """Return the sum, its derivative by the logits, and the number of sets: of one grouping."""
        position, counts, variances = self._evidence(logits, set_index)
        values, gradient = count_nll(self._shifted(logits), position, counts, variances)
        return float(values.sum()), gradient, len(values)

    def divisor(self, num_sets: int, num_rows: int) -> int:
        """Return the number of rows: the risk is per row."""
        return num_rows

    def information(self, logits: FloatArray, set_index: IntArray) -> FloatArray:
        """Return a positive diagonal in the place of the Hessian of the sum: of one grouping."""
        position, counts, variances = self._evidence(logits, set_index)
        return count_hessian(self._shifted(logits), position, counts, variances)

    def _shifted(self, logits: FloatArray) -> FloatArray:
        """Return logits at the pooled prior."""
        if not self.shift.any():
            return logits
        return logits + (self.shift[1] - self.shift[0] if logits.ndim == 1 else self.shift)

    def _evidence(
        self, logits: FloatArray, set_index: IntArray
    ) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the sets at hand as 0, 1, ... row by row, and their counts and variances."""
        present, position, here = self.at_hand(set_index)
        known, shares = self.known.take(present), self.stated(present, logits)
        pooled: Any = self.pooled[1] if logits.ndim == 1 else self.pooled
        expected = _by_set(here, shares) * known.stated(shares)
        variances = known.count_variances(here, shares)
        counts, variances = label_shift_counts(expected, variances, here, pooled)
        return position, counts, variances


def _by_set(values: Any, shares: FloatArray) -> Any:
    """Return one value per set in a shape that goes with shares (m,) or (m, K)."""
    return values if shares.ndim == 1 else values[:, None]
