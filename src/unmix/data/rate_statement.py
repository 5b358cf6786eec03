"""What was said of how well rates are known, until the sizes of the sets settle what it means.

A count of 40 in 200 is exact for a set of these 200 rows and an estimate for any other. So the
totals, the noise and the user's word are kept as they were read, and become a `SharePrecision` once
the rows of the sets are counted. This file knows no columns and no names.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from unmix.core.share_precision import (
    SharePrecision,
    nearest_counts,
    precision_by_counts,
    stored_numbers,
)
from unmix.data.wording import quoted
from unmix.errors import InputError

__all__ = ["RATES_ARE", "RateStatement"]

FloatArray = npt.NDArray[np.float64]

RATES_ARE = {
    "auto": "told by the numbers: exact where a total is the rows of its set, or a share is a "
    "whole number of them; a sample where totals are others; else of the population",
    "exact": "counts of these very rows",
    "sample": "counted in a sample of other rows, so that they have a sampling error",
    "population": "rates of the population that the rows were drawn from",
}


@dataclass(frozen=True, eq=False)
class RateStatement:
    """What was said of how well the rates of m sets are known.

    Parameters
    ----------
    rates_are : str
        A key of `RATES_ARE`.
    errors : array, shape (m,), optional
        Standard errors of the shares.
    totals : array, shape (m,), optional
        How many were counted.
    noise : array, shape (m,), optional
        Standard deviation of the noise in the counts.
    beyond : array, shape (m,) or (m, K), optional
        As for `SharePrecision`.
    """

    rates_are: str = "auto"
    errors: FloatArray | None = None
    totals: FloatArray | None = None
    noise: FloatArray | None = None
    beyond: FloatArray | None = None

    def __post_init__(self) -> None:
        if self.rates_are not in RATES_ARE:
            raise InputError(f"rates are one of {', '.join(RATES_ARE)}; got {self.rates_are!r}")

    def take(self, sets: Any) -> RateStatement:
        """Return what was said of some of the sets."""
        parts = (getattr(self, name) for name in _ARRAYS)
        return RateStatement(self.rates_are, *(None if p is None else p[sets] for p in parts))

    def as_json(self) -> dict[str, Any]:
        """Return what was said as JSON values."""
        parts = {name: getattr(self, name) for name in _ARRAYS}
        said = {name: None if part is None else part.tolist() for name, part in parts.items()}
        return {"rates_are": self.rates_are} | said

    @classmethod
    def from_json(cls, state: dict[str, Any], shares: FloatArray) -> RateStatement:
        """Return what was said of shares (m, K), checked."""
        parts = (state[name] for name in _ARRAYS)
        return cls(
            state["rates_are"],
            *(None if part is None else stored_numbers(part, len(shares)) for part in parts),
        )

    def without_rows(self, shares: FloatArray) -> FloatArray | None:
        """Return standard errors (m,) as far as they are known before any row is: None for none.

        Totals are those of a sample then, and noise is noise in a count of that many.
        """
        parts = []
        if self.errors is not None:
            parts.append(self.errors)
        if self.totals is not None and self.rates_are in ("auto", "sample"):
            parts.append(sampling_errors(shares, self.totals))
        if self.totals is not None and self.noise is not None:
            parts.append(self.noise / self.totals)
        return np.sqrt(sum(part**2 for part in parts)) if parts else None

    def precision(
        self, shares: FloatArray, rows: FloatArray, names: Sequence[Hashable], source: str
    ) -> SharePrecision:
        """Return how well the shares (m, K) of sets with so many rows (m,) are known.

        Raises
        ------
        InputError
            They cannot be what the user says they are.
        """
        n = np.asarray(rows, dtype=np.float64)
        stated = np.zeros(len(n)) if self.errors is None else self.errors
        counted, sampled = self._counted(shares, n, names, source)
        squares = stated**2
        if self.totals is not None:
            squares = squares + np.where(sampled, sampling_errors(shares, self.totals), 0.0) ** 2
        if self.noise is not None:
            of = n if self.totals is None else self.totals
            squares = squares + (self.noise / np.maximum(of, 1)) ** 2
        return SharePrecision(counted, np.sqrt(squares), self.beyond)

    def exact_shares(self, shares: FloatArray, counted: FloatArray) -> FloatArray:
        """Return shares that are said to be exact as those of whole counts; others as they are."""
        if self.rates_are != "exact" or self.errors is not None or self.noise is not None:
            return shares
        return nearest_counts(shares, counted)

    def _counted(
        self, shares: FloatArray, rows: FloatArray, names: Sequence[Hashable], source: str
    ) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """Return of how many rows each share is the exact count, and which are of a sample."""
        population, none = np.full(len(rows), np.inf), np.zeros(len(rows), dtype=bool)
        if self.rates_are == "population":
            return population, none
        if self.rates_are == "exact":
            if self.totals is None:
                return rows, none
            short = self.totals < rows
            if short.any():
                j = int(short.argmax())
                raise InputError(
                    f"{source}, set {quoted(names[j])}: a total of {self.totals[j]:g} cannot be an "
                    f"exact count of {rows[j]:g} rows or more; say what else the rates are with "
                    "--rates-are sample or population"
                )
            return self.totals, none
        if self.totals is not None:
            same = self.totals == rows
            if self.rates_are == "sample":
                same = none
            return np.where(same, rows, np.inf), ~same
        if self.rates_are == "sample":
            if self.errors is None:
                raise InputError(
                    f"{source}: rates of a sample have a sampling error, and nothing tells how "
                    "large it is; add a column with totals or standard errors"
                )
            return population, none
        if self.errors is not None:
            return population, none
        if self.noise is not None:  # noise is added to counts, so these are counts of these rows
            return rows, none
        return precision_by_counts(shares, rows).counted, none


def sampling_errors(shares: FloatArray, totals: FloatArray) -> FloatArray:
    """Return the sampling error (m,) of shares (m, K) counted in a sample of so many (m,).

    Formula: the standard deviation under Jeffreys' prior, so that 0 of 5 is uncertain too; for K
    classes the root of the mean variance.
    """
    classes = shares.shape[1]
    a = totals[:, None] * shares + 0.5
    whole = totals[:, None] + classes / 2
    mean = a / whole
    variances = mean * (1 - mean) / (whole + 1)
    return np.asarray(np.sqrt(variances.mean(axis=1)))


_ARRAYS = [field.name for field in fields(RateStatement) if field.name != "rates_are"]
