"""Sets hidden from a fit: what is known of them, what was predicted, and the gain over guessing.

`HiddenSets` are the same whoever has their rows. `HeldOutShares` are what was predicted of them.
A `Gain` is how much better that was than guessing: one scale for everything that is chosen, and for
whether anything was learned at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit, ndtr, stdtrit

from unmix.core.class_shares import ClassShares, as_stated
from unmix.core.share_density import ShareResiduals, baseline_residuals
from unmix.core.share_law import inside_shares, share_law
from unmix.core.within_sets import explained_share
from unmix.learn.models import Learner, Setup
from unmix.learn.saved_state import numbers

__all__ = [
    "Gain",
    "HeldOutShares",
    "HiddenSets",
    "gain_of",
    "set_folds",
    "z_of",
]

Array = np.ndarray[Any, Any]
FloatArray = npt.NDArray[np.float64]

# Thresholds of z; with ten sets chance passes two less than once in 1,600 times, if gains of sets
# are about normal.
CLEAR = 2.0
LEAST_ROWS = 20  # the share of a smaller hidden set is mostly chance


class HiddenSets(ABC):
    """Some sets of a grouping, hidden from all others.

    Parameters
    ----------
    set_priors : ClassShares
        Of all sets (m).
    set_sizes : array of integers, shape (m,)
    hidden : array of integers
        The sets to hide, all of one grouping.
    least_rows : int
        Sets with fewer are joined with others of similar shares.

    Attributes
    ----------
    number : array of integers, shape (m,)
        Of each hidden set, small ones of similar shares alike; -1 for all others.
    rows, truth : arrays, shapes (h,) and (h, K)
        Rows and stated shares of the hidden sets, small ones joined.
    variances : float, (h,) or (h, K)
        Of their stated counts, by errors of the shares.
    pooled : array, shape (K,)
        Share of each class in the sets that are not hidden.
    law : ShareLaw
        Of the shares of these sets.
    """

    def __init__(
        self,
        set_priors: ClassShares,
        set_sizes: Array,
        hidden: Array,
        least_rows: int = LEAST_ROWS,
    ) -> None:
        matrix, sizes = set_priors.matrix, set_sizes
        self.number = number = _joined(matrix, sizes, hidden, least_rows)
        numbering = set_priors.grouping
        self.grouping = 0 if numbering is None else int(numbering[hidden[0]])
        alike: Any = True if numbering is None else numbering == self.grouping
        self.rows = np.bincount(number[hidden], sizes[hidden]).astype(np.int64)
        sums = [np.bincount(number[hidden], (sizes * share)[hidden]) for share in matrix.T]
        self.truth = np.stack(sums, axis=1) / self.rows[:, None]
        self.variances = _error_variances(set_priors, sizes, number, hidden)
        seen = sizes * (alike & ~np.isin(np.arange(len(sizes)), hidden))
        self.pooled = set_priors.pooled(seen)
        # Small sets are judged together: what their shares tend to have is told as of so many rows.
        self.seen = inside_shares(matrix[seen > 0], np.maximum(seen[seen > 0], least_rows))
        self.law = share_law(self.seen)

    @abstractmethod
    def fitted(
        self, view: Any, setup: Setup, before: Learner | None, categorical: Sequence[int]
    ) -> Learner:
        """Fit to the sets that are not hidden, from where a stronger penalty ended."""

    @abstractmethod
    def predicted(
        self, view: Any, setup: Setup, learner: Learner
    ) -> tuple[Array, Array, list[ShareResiduals]]:
        """Return predicted shares of the hidden sets (h, K), errors, residuals of the stated."""

    @property
    def guess(self) -> Array:
        """The share of each class by the mean log-odds of the sets that are not hidden (K,)."""
        seen = self.seen if self.seen.ndim == 2 else np.stack([1 - self.seen, self.seen], axis=1)
        return np.asarray(expit(logit(seen).mean(axis=0)))

    def baseline(self) -> ShareResiduals:
        """Return the residuals of the answer that knows no rows."""
        return baseline_residuals(self.truth, self.rows, self.law.mean, self.variances)

    def square_error(self, shares: Array) -> float:
        """Return the squared error of predicted shares, summed over rows."""
        # Two classes have one share each: the other is its complement, not a second error.
        squares = as_stated(shares - self.truth) ** 2
        return float(self.rows @ squares.reshape(len(squares), -1).sum(axis=1))


def set_folds(
    set_priors: ClassShares, present: Array, folds: int, rng: np.random.Generator
) -> list[Array]:
    """Divide the sets of each grouping into folds, one grouping after the other.

    Parameters
    ----------
    set_priors : ClassShares
        Of all sets.
    present : array of integers
        The sets that have rows.
    folds : int
        For each grouping, at most.
    rng : Generator
    """
    grouping = set_priors.grouping
    if grouping is None:
        grouping = np.zeros(len(set_priors), dtype=np.int64)
    divided = []
    for g in np.unique(grouping[present]):
        own = present[grouping[present] == g]
        divided += _folds(set_priors.matrix, own, min(folds, len(own)), rng)
    return divided


def _folds(stated: Array, present: Array, folds: int, rng: np.random.Generator) -> list[Array]:
    """Divide the sets into folds that each span the range of the priors."""
    order = present[np.argsort(stated[present, -1], kind="stable")]
    turn = np.concatenate([rng.permutation(folds) for _ in range(-(-len(order) // folds))])[
        : len(order)
    ]
    return [order[turn == f] for f in range(folds)]


def _joined(stated: Array, sizes: Array, hidden: Array, least_rows: int) -> Array:
    """Number the hidden sets, small ones of similar shares alike, (m,); -1 for all others."""
    large = hidden[sizes[hidden] >= least_rows]
    small = hidden[sizes[hidden] < least_rows]
    small = small[np.argsort(stated[small, -1], kind="stable")]
    number = np.full(len(stated), -1)
    number[large] = np.arange(len(large))
    number[small] = (
        len(large) + np.unique((np.cumsum(sizes[small]) - 1) // least_rows, return_inverse=True)[1]
    )
    return number


def _error_variances(set_priors: ClassShares, sizes: Array, number: Array, hidden: Array) -> Any:
    """Return what the errors of the stated shares add to the counts of joined sets; 0.0 if none."""
    precision, shares = set_priors.precision, set_priors.matrix
    if precision is None or precision.standard_errors is None:
        return 0.0
    own = precision.error_variances(sizes, as_stated(shares))[hidden]
    if own.ndim == 1:
        return np.bincount(number[hidden], own)
    return np.stack([np.bincount(number[hidden], of_class) for of_class in own.T], axis=1)


class HeldOutShares(NamedTuple):
    """Shares of hidden sets; small sets of similar shares were taken together.

    Attributes
    ----------
    stated, predicted, errors, guessed : (m, K)
        What was stated, what the model predicted from the rows and its standard errors, and what
        the training sets suggest without these rows.
    rows : (m,)
    """

    stated: FloatArray
    predicted: FloatArray
    errors: FloatArray
    guessed: FloatArray
    rows: FloatArray

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists for JSON."""
        return {name: values.tolist() for name, values in self._asdict().items()}

    @classmethod
    def from_dict(cls, state: dict[str, Any], num_classes: int) -> HeldOutShares:
        """Return what `to_dict` described, or raise ValueError."""
        m = len(state["rows"])
        shapes = {name: (m, num_classes) for name in cls._fields} | {"rows": (m,)}
        found = cls(**{name: numbers(state, name, shape) for name, shape in shapes.items()})
        for name in ("stated", "predicted", "errors", "guessed"):
            values = getattr(found, name)
            if ((values < 0) | (values > 1)).any():
                raise ValueError(f"{name} must be shares")
        return found


@dataclass(frozen=True)
class Gain:
    """How much better a candidate predicts the shares of held-out sets than the baseline does."""

    gain: float
    """Mean over sets of log density of the stated share, minus that of the baseline."""
    error: float
    """Its standard error over sets."""
    threshold: float
    """Of z, below which a gain is not shown: a t quantile that allows for the choosing."""
    tau: float
    """Standard deviation of what is left of the log-odds of the shares: the set effect."""

    @property
    def z(self) -> float:
        """The gain in standard errors."""
        return self.gain / self.error if self.error > 0 else 0.0

    @property
    def shown(self) -> bool:
        """Whether the candidate predicts held-out sets better than chance would."""
        return self.z >= self.threshold

    @property
    def word(self) -> str:
        """What the gain amounts to: not shown, weak, or clear from twice the threshold on."""
        if not self.shown:
            return "not shown"
        return "clear" if self.z >= CLEAR * self.threshold else "weak"

    def explained(self, num_classes: int) -> float:
        """Return the share of the differences between sets that features were shown to explain."""
        return explained_share(self.gain, self.error, self.threshold, num_classes)


def gain_of(differences: Array, tau: float, num_candidates: int) -> Gain:
    """Return the mean of differences over sets with its error, and when it counts as shown."""
    m, error = np.isfinite(differences).sum(), _error(differences)
    # As likely by chance as two standard errors of a normal law, and shared by all that compete.
    threshold = -float(stdtrit(max(m - 1, 1), ndtr(-2.0) / num_candidates))
    return Gain(float(np.nanmean(differences)), error, threshold, float(tau))


def z_of(differences: Array) -> float:
    """Return the mean of differences over sets in standard errors."""
    error = _error(differences)
    return float(np.nanmean(differences)) / error if error > 0 else 0.0


def _error(differences: Array) -> float:
    """Return the standard error of the mean of differences over sets."""
    m = np.isfinite(differences).sum()
    return float(np.nanstd(differences, ddof=1) / np.sqrt(m)) if m > 1 else np.inf
