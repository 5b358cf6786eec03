"""Tables in blocks that stay in the processor's cache: columns looked at, features written.

A table of numbers lies row by row or column by column, and to read it the other way takes several
times as long. What columns become, `columns` and `encoding` say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from unmix.learn.columns import (
    BLOCK_ROWS,
    LARGEST,
    MISSING,
    CategoryColumn,
    Column,
    FloatArray,
    NumberColumn,
    SeenColumn,
    category_codes,
    column_numbers,
    counts_up,
    holds_numbers,
    in_range,
    text_for_numbers,
)

__all__ = [
    "FARTHEST",
    "FeatureColumns",
    "Place",
    "blocks_of_numbers",
    "column_ends",
    "column_values",
    "columns_apart",
    "numbers_by_row",
    "only_numbers",
    "seen_side_by_side",
]

# No row of a table with fewer than 1e12 rows lies this many deviations from the mean.
FARTHEST = 1e6
# What is copied at a time of columns that lie row by row.
APART_COLUMNS, APART_ROWS, APART_NUMBERS = 8, 1_024, 2_000_000
# What is looked at at a time of columns together, and how long a row pays for its beginning.
SIDE_NUMBERS, LONG_ROW = 65_536, 256


def blocks_of_numbers(frame: pd.DataFrame) -> list[pd.DataFrame]:
    """Cut a table of nothing but numbers into blocks of rows; any other stays whole."""
    if len(frame) <= BLOCK_ROWS or not (frame.dtypes == np.float64).all():
        return [frame]
    return [frame.iloc[row : row + BLOCK_ROWS] for row in range(0, len(frame), BLOCK_ROWS)]


def columns_apart(frame: pd.DataFrame) -> Iterator[tuple[int, pd.Series[Any]]]:
    """Go through the columns with their places.

    Of numbers that lie row by row some rows come at a time, and are copied to where they lie column
    by column: to go through one column would read all the others from memory too. They are there
    until the next is asked for.
    """
    first = frame.iloc[:, 0].to_numpy()
    together = first.dtype == np.float64 and first.strides != (first.itemsize,)
    if not (together and (frame.dtypes == np.float64).all()):
        yield from enumerate(series for _, series in frame.items())
        return
    values, size = frame.to_numpy(), min(BLOCK_ROWS, len(frame))
    step = max(APART_COLUMNS, APART_NUMBERS // size)
    apart = np.empty((min(step, values.shape[1]), size))
    for row in range(0, len(values), size):
        for column in range(0, values.shape[1], step):
            block = values[row : row + size, column : column + step]
            here, index = apart[: block.shape[1], : len(block)], frame.index[row : row + size]
            for some in range(0, len(block), APART_ROWS):
                rows = slice(some, some + APART_ROWS)
                here[:, rows] = block[rows].T
            for place, numbers in enumerate(here, column):
                yield place, pd.Series(numbers, index, copy=False)


def numbers_by_row(frame: pd.DataFrame) -> FloatArray | None:
    """Return the numbers of a frame (n, d), if it holds nothing else and they lie row by row."""
    if frame.empty or not (frame.dtypes == np.float64).all():
        return None
    first = frame.iloc[:, 0].to_numpy()
    if first.strides == (first.itemsize,) and frame.shape[1] > 1:  # column by column
        return None
    values = frame.to_numpy()
    return values if values.flags.c_contiguous else None


def column_ends(values: FloatArray) -> FloatArray:
    """Return the smallest and the largest number of each column, (d, 2), of numbers row by row."""
    long, rest = _long_rows(values)
    ends = []
    for extreme in (np.fmin, np.fmax):
        of_all = extreme.reduce(long, axis=0, initial=np.nan).reshape(-1, values.shape[1])
        ends.append(extreme.reduce(np.concatenate([of_all, rest]), axis=0))
    return np.stack(ends, axis=1)


def _long_rows(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return several rows as one, which takes less time to go through, and the rows that remain."""
    together = max(1, LONG_ROW // values.shape[1])
    whole = len(values) - len(values) % together
    return values[:whole].reshape(-1, together * values.shape[1]), values[whole:]


def seen_side_by_side(frame: pd.DataFrame, names: Sequence[str]) -> list[SeenColumn] | None:
    """Return what columns of numbers show that lie row by row: they are looked at together.

    None if they do not, or if some are missing: then one column is looked at after the other.
    """
    values = numbers_by_row(frame)
    if values is None:
        return None
    ends = column_ends(values)
    step = max(1, SIDE_NUMBERS // len(names))
    count, mean, squares = 0, np.zeros(len(names)), np.zeros(len(names))
    with np.errstate(over="ignore", invalid="ignore"):  # by numbers that are refused
        for first in range(0, len(values), step):
            block = values[first : first + step]
            of_block = _column_sums(block) / len(block)
            apart = block - of_block
            apart *= apart
            share = len(block) / (count := count + len(block))
            moved = of_block - mean
            squares += _column_sums(apart) + moved**2 * (1 - share) * len(block)
            mean += share * moved
    if np.isnan(mean).any() or not np.abs(ends).max() <= LARGEST:
        return None
    found = [SeenColumn(name) for name in names]
    for place, column in enumerate(found):
        numbers = values[:, place]
        first_and_last = numbers[0], numbers[-1]
        of_column = mean[place], squares[place] / count
        column.add_seen(count, *of_column, ends[place], first_and_last, counts_up(numbers))
    return found


def _column_sums(values: FloatArray) -> FloatArray:
    """Return the sum of each column, (d,), of numbers row by row."""
    long, rest = _long_rows(values)
    of_all = long.sum(axis=0).reshape(-1, values.shape[1])
    return np.asarray(of_all.sum(axis=0) + rest.sum(axis=0))


class Place(NamedTuple):
    """Where the features of a column stand in the matrix; None for what has no feature."""

    value: int | None = None
    """The standardised number, or the first category."""
    missing: int | None = None
    """What marks missing values."""


def column_values(series: pd.Series[Any], column: Column) -> FloatArray:
    """Return the numbers of a column, or the codes of its categories, (n,)."""
    if isinstance(column, NumberColumn):
        if not holds_numbers(series, column.name):
            raise text_for_numbers(series, column.name)
        return column_numbers(series, column.name)
    if isinstance(column, CategoryColumn):
        return category_codes(series, column)
    return np.full(len(series), np.nan)


def only_numbers(table: pd.DataFrame, columns: Sequence[Column]) -> bool:
    """Say whether a table holds nothing but numbers, as models take them."""
    numbers = all(isinstance(column, NumberColumn) for column in columns)
    return numbers and bool((table.dtypes == np.float64).all())


class FeatureColumns:
    """Some neighbouring columns of a table and the features they become."""

    def __init__(
        self, table: pd.DataFrame, summaries: Sequence[Column], places: Sequence[Place]
    ) -> None:
        self._table, self._columns = table, list(zip(summaries, places, strict=True))
        numbers = [isinstance(column, NumberColumn) for column in summaries]
        self._plain = only_numbers(table, summaries)
        self._marked = [
            j
            for j, (column, place) in enumerate(self._columns)
            if isinstance(column, CategoryColumn) or place.missing is not None
        ]
        self.varying = [
            j for j, column in enumerate(summaries) if numbers[j] and places[j].value is not None
        ]
        scales = [summaries[j] for j in self.varying]
        self._mean = np.array([c.mean for c in scales if isinstance(c, NumberColumn)], np.float64)
        self._deviation = np.array(
            [c.deviation for c in scales if isinstance(c, NumberColumn)], np.float64
        )

    def write(self, x: npt.NDArray[np.float32], numbers: slice, rows: slice) -> None:
        """Write a block of rows of a matrix (n, d): numbers into their features, and marks."""
        values, features = self._values(self._table.iloc[rows]), x[rows]
        for j in self._marked:
            _write_marks(values[:, j], *self._columns[j], features)
        if len(self.varying) < len(self._columns):
            values = values[:, self.varying]
        scaled = values - self._mean
        scaled /= self._deviation
        scaled[np.isnan(scaled)] = 0
        features[:, numbers] = np.clip(scaled, -FARTHEST, FARTHEST, out=scaled)

    def _values(self, table: pd.DataFrame) -> FloatArray:
        """Return numbers and codes of categories, (n, columns)."""
        if self._plain:
            values = table.to_numpy()
            if in_range(values):
                return values
        found = [column_values(table.iloc[:, j], c) for j, (c, _) in enumerate(self._columns)]
        return np.stack(found).T


def _write_marks(
    values: FloatArray, column: Column, place: Place, x: npt.NDArray[np.float32]
) -> None:
    """Write what is missing and which category it is into a matrix of zeros, (n, features)."""
    if isinstance(column, NumberColumn):
        if place.missing is not None:
            x[:, place.missing] = np.isnan(values)
    elif isinstance(column, CategoryColumn):
        if place.missing is not None:
            x[:, place.missing] = values == MISSING
        if place.value is not None:
            known = np.flatnonzero(values >= 0)
            x[known, place.value + values[known].astype(np.intp)] = 1
