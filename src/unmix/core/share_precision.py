"""How well the stated shares of sets are known: from it follows the variance of every count.

The share of a set may be the count of these very rows, the rate of a population they were drawn
from, or a count of more rows than are at hand; and it may come with a standard error or with noise.
All of that is two numbers for a set, whatever the user said. This file knows no table and no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unmix.core.stated_counts import count_variance
from unmix.errors import InputError

__all__ = ["SharePrecision", "nearest_counts", "precision_by_counts", "stored_numbers"]

FloatArray = npt.NDArray[np.float64]

# A share times the rows of its set that is this near to a whole number is the count of these rows.
WHOLE = 0.01


@dataclass(frozen=True, eq=False)
class SharePrecision:
    """How well the shares of m sets are known.

    Parameters
    ----------
    counted : array, shape (m,)
        Rows of which the share is the exact count, but for its error: those of the set, or of a
        larger set of which these rows are a random part. Infinite for the rate of a population.
    errors : array, shape (m,)
        Standard error of the share, for each of K classes; 0 for none. Noise of standard deviation
        sigma in a count of N rows is an error of sigma / N.
    beyond : array, shape (m,) or (m, K), optional
        What a noisy count states beyond the possible: -0.02 for a count of -2 in 100 rows, whose
        share is then 0.
    labels : array of bool, shape (m,), optional
        Sets of one row whose class somebody knows: no share, but a label.
    """

    counted: FloatArray
    errors: FloatArray
    beyond: FloatArray | None = None
    labels: npt.NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        if self.counted.shape != self.errors.shape or self.counted.ndim != 1:
            raise InputError(
                f"a precision has one entry per set; got {self.counted.shape} rows counted and "
                f"{self.errors.shape} errors"
            )

    def take(self, sets: Any) -> SharePrecision:
        """Return the precision of some of the sets, by index or mask."""
        beyond = None if self.beyond is None else self.beyond[sets]
        labels = None if self.labels is None else self.labels[sets]
        return SharePrecision(self.counted[sets], self.errors[sets], beyond, labels)

    def with_labels(self, number: int) -> SharePrecision:
        """Return the precision of these sets and, after them, of so many labels."""
        m, ones = len(self.counted), np.ones(number)
        beyond = self.beyond
        if beyond is not None:
            beyond = np.concatenate((beyond, np.zeros((number, *beyond.shape[1:]))))
        return SharePrecision(
            np.concatenate((self.counted, ones)),
            np.concatenate((self.errors, 0 * ones)),
            beyond,
            np.arange(m + number) >= m,
        )

    def as_json(self) -> dict[str, Any]:
        """Return the precision as JSON values; None for the rate of a population."""
        return {
            "counted": [n if np.isfinite(n) else None for n in self.counted.tolist()],
            "errors": self.errors.tolist(),
            "beyond": None if self.beyond is None else self.beyond.tolist(),
        }

    @classmethod
    def from_json(cls, state: dict[str, Any], shares: FloatArray) -> SharePrecision:
        """Return the precision of shares (m, K) that `as_json` told, checked."""
        counted = [np.inf if n is None else n for n in state["counted"]]
        return cls(
            stored_numbers(counted, len(shares), least=0.0, most=np.inf),
            stored_numbers(state["errors"], len(shares), least=0.0),
            None if state["beyond"] is None else stored_numbers(state["beyond"], len(shares)),
        )

    @property
    def exact(self) -> npt.NDArray[np.bool_]:
        """Whether a share is a count of rows, these or more, and not a rate (m,)."""
        return np.isfinite(self.counted)

    @property
    def standard_errors(self) -> FloatArray | None:
        """Standard errors of the shares (m,), None if there are none."""
        return self.errors if self.errors.any() else None

    def count_variances(self, rows: npt.ArrayLike, shares: npt.ArrayLike) -> FloatArray:
        """Return the variance of each stated count, see `unmix.core.stated_counts.count_variance`.

        Parameters
        ----------
        rows : (m,)
            Rows of each set at hand.
        shares : (m,) or (m, K)

        Returns
        -------
        (m,) or (m, K)
        """
        return count_variance(
            rows,
            shares,
            standard_errors=_by_set(self.errors, shares),
            drawn_from=np.maximum(self.counted, np.asarray(rows, dtype=np.float64)),
        )

    def error_variances(self, rows: npt.ArrayLike, shares: npt.ArrayLike) -> Any:
        """Return what errors and noise alone add to the variance of each count.

        For formulas that have the sampling of the rows already: with set effects the T_j of
        `unmix.core.set_effects`, and the densities of shares. There 1 / (n v) is the variance of a
        count of these rows; that of a population rate is smaller, by what the count and the sample
        share. To add n pi (1 - pi) as well would count it twice.

        Parameters and their shapes are those of `count_variances`.

        Returns
        -------
        float, (m,) or (m, K)
            0.0 if there are no errors.
        """
        if not self.errors.any():
            return 0.0
        return count_variance(rows, shares, standard_errors=_by_set(self.errors, shares))

    def stated(self, shares: FloatArray) -> FloatArray:
        """Return the shares as they were stated, also where no share can be (m,) or (m, K)."""
        if self.beyond is None:
            return shares
        beyond = self.beyond
        if shares.ndim > beyond.ndim:
            beyond = np.stack((-beyond, beyond), axis=1)
        elif shares.ndim < beyond.ndim:
            beyond = beyond[:, 1]
        return np.asarray(shares + beyond)


def precision_by_counts(shares: npt.ArrayLike, rows: npt.ArrayLike) -> SharePrecision:
    """Return the precision of shares of which nothing was said, by the rows of their sets.

    A share that is a whole number of the rows of its set is taken as the count of these very rows,
    any other as the rate of a population from which they were drawn.

    Parameters
    ----------
    shares : (m, K)
    rows : (m,)
    """
    n = np.asarray(rows, dtype=np.float64)
    counts = n[:, None] * np.asarray(shares, dtype=np.float64)
    whole = (abs(counts - np.rint(counts)) < WHOLE).all(axis=1)
    return SharePrecision(np.where(whole, n, np.inf), np.zeros(len(n)))


def stored_numbers(
    values: Any, length: int, *, least: float = -1e300, most: float = 1e300
) -> FloatArray:
    """Return stored numbers (length,) or (length, K), or refuse what was never stored."""
    found = np.array(values, dtype=np.float64)
    if len(found) != length or not ((found >= least) & (found <= most)).all():
        raise ValueError(f"what is known of shares must be {length} numbers from {least:g}")
    return found


def nearest_counts(shares: FloatArray, rows: FloatArray) -> FloatArray:
    """Return shares (m, K) as those of the nearest whole counts of so many rows (m,).

    The rows that rounding down leaves over go to the classes with the largest remainders.
    """
    counts = rows[:, None] * shares
    down = np.floor(counts + 1e-9)
    left = np.rint(rows - down.sum(axis=1)).astype(int)  # (m,)
    rank = np.argsort(np.argsort(-(counts - down), axis=1, kind="stable"), axis=1)
    return np.asarray((down + (rank < left[:, None])) / np.maximum(rows, 1)[:, None])


def _by_set(errors: FloatArray, shares: npt.ArrayLike) -> FloatArray:
    """Return one error per set in a shape that goes with shares (m,) or (m, K)."""
    return errors if np.ndim(shares) == 1 else errors[:, None]
