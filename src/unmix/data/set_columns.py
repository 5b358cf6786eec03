"""The columns of a table that name the sets of its rows: read, and rows without a rate told.

Names of a column, not the shares of its sets: these are in `priors`, and so is the matching.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmix.data.priors import Priors, factor_ids
from unmix.data.wording import have, how_many_sets, listed
from unmix.errors import InputError

__all__ = [
    "UnratedRows",
    "UnratedWarning",
    "how_to_read",
    "sets_in",
]


class UnratedWarning(UserWarning):
    """Rows are left out because their sets have no rate."""


class UnratedRows:
    """
    Tells rows of sets without a rate, which are left out, and counts them.

    Parameters
    ----------
    priors
        With the sets that were named without a rate.
    whole
        Whether it sees all rows: then none with a rate is a mistake.
    """

    def __init__(self, priors: Priors, *, whole: bool = True) -> None:
        self._priors = priors
        self._whole = whole
        self._unrated = frozenset(priors.unrated)
        self.rows = 0
        self.total = 0
        self.sets: dict[Hashable, None] = {}

    def rated(self, set_values: Any) -> NDArray[np.bool_] | None:
        """Return which rows have a rate (n,), None if all have; may be called batch by batch."""
        priors = self._priors
        if not self._unrated and not priors.drop_unrated:
            return None
        codes, found = factor_ids(set_values)
        self.total += len(codes)
        known = priors.index
        without = [
            place
            for place, set_id in enumerate(found)
            if set_id not in known and (priors.drop_unrated or set_id in self._unrated)
        ]
        if not without:
            return None
        self.sets |= dict.fromkeys(found[place] for place in without)
        kept = np.ones(len(found), dtype=bool)
        kept[without] = False
        rated: NDArray[np.bool_] = kept[codes]
        self.rows += len(codes) - int(rated.sum())
        if self._whole and not rated.any() and len(without) == len(found):
            self.refuse_none()
        return rated

    def join(self, other: "UnratedRows") -> None:
        """Add what was counted among other rows."""
        self.rows, self.total = self.rows + other.rows, self.total + other.total
        self.sets |= other.sets

    def refuse_none(self) -> None:
        """Raise InputError if no row so far has a rate."""
        if self.rows and self.rows == self.total:
            raise InputError(
                f"no row has a set with a rate in {self._priors.source}; the rows have the sets "
                f"{listed(list(self.sets))}."
            )

    def __str__(self) -> str:
        count = len(self.sets)
        return (
            f"{self.rows:,} of {self.total:,} rows are left out: their {how_many_sets(count)} "
            f"({listed(list(self.sets), 3)}) {have(count)} no rate in {self._priors.source}"
        )


def how_to_read(
    columns: Sequence[str], set_columns: Sequence[str], dtypes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return how rows are read with their sets: of several groupings, cells may be empty."""
    if len(set_columns) == 1:
        return {"columns": list(columns), "set_column": set_columns[0], "dtypes": dtypes}
    names = list(dict.fromkeys([*columns, *set_columns]))
    return {"columns": names, "dtypes": {**(dtypes or {}), **dict.fromkeys(set_columns, "str")}}


def sets_in(frame: pd.DataFrame, set_columns: Sequence[str]) -> Any:
    """Return the sets of the rows of a frame: ids, or a frame of them for several groupings."""
    return frame[set_columns[0]].to_numpy() if len(set_columns) == 1 else frame[list(set_columns)]
