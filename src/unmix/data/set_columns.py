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
    "CodedColumns",
    "UnratedRows",
    "UnratedWarning",
    "as_taken",
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


class CodedColumns:
    """
    Columns of rows that come batch by batch, in which each name is kept once.

    Parameters
    ----------
    known
        Names that are likely to come, in order -> their number: they are kept nowhere else.
    """

    def __init__(self, known: Mapping[Hashable, int] | None = None) -> None:
        self._known: Mapping[Hashable, int] = {} if known is None else known
        self._columns: dict[Hashable, list[NDArray[Any]]] = {}
        self._others: dict[Hashable, dict[Hashable, int] | None] = {}

    def add(self, frame: pd.DataFrame) -> None:
        """Take the columns of some more rows; numbers stay what they are."""
        if not self._others:
            numeric = pd.api.types.is_numeric_dtype
            self._others = {n: None if numeric(column) else {} for n, column in frame.items()}
            self._columns = {name: [] for name in frame.columns}
        for name, others in self._others.items():
            column = frame[name]
            self._columns[name].append(
                column.to_numpy() if others is None else self._coded(column, others)
            )

    def _coded(self, column: Any, others: dict[Hashable, int]) -> NDArray[np.int32]:
        """Return the number of each name (n,), -1 for none."""
        codes, found = pd.factorize(column)
        names, start = found.tolist(), len(self._known)
        numbers = [self._known.get(name, -1) for name in names]
        for i, name in enumerate(names):
            if numbers[i] < 0:
                numbers[i] = start + others.setdefault(name, len(others))
        return np.array([*numbers, -1], dtype=np.int32)[codes]

    def joined(self) -> pd.DataFrame:
        """Return the columns of all rows, names as categories."""
        columns: dict[Hashable, Any] = {}
        for name, parts in self._columns.items():
            others, columns[name] = self._others[name], np.concatenate(parts)
            if others is not None:
                names = pd.Index([*self._known, *others], dtype=object)
                columns[name] = pd.Categorical.from_codes(columns[name], names)
        return pd.DataFrame(columns)


def how_to_read(
    columns: Sequence[str], set_columns: Sequence[str], dtypes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return how rows are read with their sets: of several groupings, cells may be empty."""
    if len(set_columns) == 1:
        return {"columns": list(columns), "set_column": set_columns[0], "dtypes": dtypes}
    names = list(dict.fromkeys([*columns, *set_columns]))
    return {"columns": names, "dtypes": {**(dtypes or {}), **dict.fromkeys(set_columns, "str")}}


def as_taken(sets: pd.DataFrame) -> Any:
    """Return the sets of rows as a classifier takes them: None, a column, or a frame of several."""
    if sets.shape[1] > 1:
        return sets
    return sets.iloc[:, 0] if sets.shape[1] else None


def sets_in(frame: pd.DataFrame, set_columns: Sequence[str]) -> Any:
    """Return the sets of the rows of a frame: ids, or a frame of them for several groupings."""
    return frame[set_columns[0]].to_numpy() if len(set_columns) == 1 else frame[list(set_columns)]
