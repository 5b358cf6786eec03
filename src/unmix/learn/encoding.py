"""Turning a user's table into numbers: one matrix for linear and neural models, one for trees.

What is learned from the training table is a short summary of each column, plain enough for JSON.
Rows are encoded by that summary alone, after training and after loading alike, so a loaded encoder
cannot differ from the one that was saved.

This file knows no sets, no priors and no model.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from unmix.data.wording import listed
from unmix.errors import InputError
from unmix.learn.columns import (
    UNKNOWN,
    CategoryColumn,
    Column,
    FloatArray,
    LeftOutColumn,
    NumberColumn,
    SeenColumn,
    category_codes,
    category_text,
    in_range,
    read_summary,
)
from unmix.learn.sums import num_threads, one_thread
from unmix.learn.table_blocks import (
    FeatureColumns,
    Place,
    blocks_of_numbers,
    column_values,
    columns_apart,
    numbers_by_row,
    only_numbers,
    seen_side_by_side,
)

__all__ = ["TableEncoder", "TableSummary"]

VERSION = 1
BLOCK_ROWS, BLOCK_COLUMNS = 4_096, 64  # of a block that stays in the processor's cache
ROW_NUMBERS = 131_072  # of a block of whole rows
MANY_NUMBERS = 2_000_000  # below, threads wait for each other more than they help


class TableSummary:
    """What is learned of a training table, which may come in blocks of rows.

    A text column with more than 100,000 different words may lose count of the rarest.
    """

    def __init__(self) -> None:
        self._seen: dict[str, SeenColumn] = {}
        self._by_name = True

    @property
    def columns(self) -> list[SeenColumn]:
        """What has been seen of each column."""
        return list(self._seen.values())

    def add(self, frame: Any) -> None:
        """Look at rows: a DataFrame, or an array of numbers, shape (n, d).

        Raises
        ------
        InputError
            A column cannot be used; the message says which and why.
        """
        table = _table(frame)
        self._by_name &= isinstance(frame, pd.DataFrame)
        places = _places(table)
        repeated = [name for name, found in places.items() if len(found) > 1]
        if repeated:
            raise InputError(f"column {repeated[0]!r} appears more than once; rename one of them")
        seen = [self._seen.setdefault(name, SeenColumn(name)) for name in places]
        blocks = blocks_of_numbers(table)
        if len(blocks) == 1:
            _look_at(table, seen)
        else:
            with one_thread(num_threads()) as side_by_side:
                for later in side_by_side(lambda rows: _look_at(rows, _unseen(seen)), blocks):
                    for column, of_block in zip(seen, later, strict=True):
                        column.take_in(of_block)
        words = [name for name, column in self._seen.items() if column.words]
        if words and not isinstance(frame, pd.DataFrame):
            raise InputError(f"column {words[0]!r} of the array holds text; give a DataFrame")

    def take_in(self, other: TableSummary) -> None:
        """Add what was learned of later rows."""
        self._by_name &= other._by_name
        for name, column in other._seen.items():
            self._seen.setdefault(name, SeenColumn(name)).take_in(column)

    def encoder(self) -> TableEncoder:
        """Return the encoder of such tables, or say that no column tells rows apart."""
        summaries = [column.summary() for column in self._seen.values()]
        named = {name: column.names_rows for name, column in self._seen.items()}
        if self._by_name and not all(named.values()):
            summaries = [
                LeftOutColumn(c.name, named[c.name]) if named[c.name] else c for c in summaries
            ]
        encoder = TableEncoder(summaries)
        if not encoder.feature_names:
            raise InputError(
                f"no column varies ({listed(encoder.columns)}), so the rows cannot be told apart; "
                "add columns that differ between rows"
            )
        return encoder


class TableEncoder:
    """Encodes tables as it saw them in training; made by `fit` or `from_dict`.

    Numbers are standardised, and missing ones put at the mean with a column that marks them if
    training had missing ones. The 30 most frequent categories of a text column have one column
    each; others are all zeros. What was constant in training is left out of the matrix.

    Parameters
    ----------
    summaries : sequence of NumberColumn, CategoryColumn or EmptyColumn

    Attributes
    ----------
    summaries : tuple
        One summary per column, in training order.
    columns : list of str
        Their names.
    feature_names : list of str
        The columns of `matrix`.
    places : list of Place
        Where each column stands among them.
    categorical : list of int
        Positions of the columns of `native` that hold codes.
    dtypes : dict
        Column -> 'float64' or 'str': what to read a file as, so that 007 stays a word.

    Examples
    --------
    >>> table = pd.DataFrame({"age": [20.0, 40.0], "city": ["Rome", "Oslo"]})
    >>> encoder = TableEncoder.fit(table)
    >>> encoder.feature_names
    ['age', 'city=Oslo', 'city=Rome']
    >>> encoder.matrix(table)
    array([[-1.,  0.,  1.],
           [ 1.,  1.,  0.]], dtype=float32)
    """

    def __init__(self, summaries: Sequence[Column]) -> None:
        self.summaries = tuple(summaries)
        self.columns = [c.name for c in self.summaries]
        kinds = [c.kind for c in self.summaries]
        self.categorical = [i for i, kind in enumerate(kinds) if kind == "category"]
        self.dtypes = {
            c.name: "float64" if c.kind == "number" else "str"
            for c in self.summaries
            if not isinstance(c, LeftOutColumn)
        }
        self.places, self.feature_names = _features(self.summaries)

    @property
    def column_of_feature(self) -> npt.NDArray[np.int64]:
        """The number of the column of each feature of `matrix`, (d,)."""
        found = np.zeros(len(self.feature_names), dtype=np.int64)
        for i, (summary, place) in enumerate(zip(self.summaries, self.places, strict=True)):
            if place.value is not None:
                words = len(summary.categories) if isinstance(summary, CategoryColumn) else 1
                found[place.value : place.value + words] = i
            if place.missing is not None:
                found[place.missing] = i
        return found

    @property
    def needed(self) -> list[str]:
        """The columns that a table must have."""
        return [c.name for c in self.summaries if not isinstance(c, LeftOutColumn)]

    @property
    def left_out(self) -> dict[str, str]:
        """Columns that only name or number the rows -> why."""
        return {c.name: c.reason for c in self.summaries if isinstance(c, LeftOutColumn)}

    def listing(self) -> list[tuple[str, str, str]]:
        """Return name, type and what becomes of it, for every column."""
        return [(c.name, *_becomes(c)) for c in self.summaries]

    @classmethod
    def fit(cls, frame: Any) -> TableEncoder:
        """Summarise the columns of a training table.

        Parameters
        ----------
        frame : DataFrame, or array of numbers, shape (n, d)
            The columns of an array are called x0, x1, ...

        Raises
        ------
        InputError
            A column cannot be used, or no column says anything; the message says which and why.
        """
        summary = TableSummary()
        summary.add(frame)
        return summary.encoder()

    def to_dict(self) -> dict[str, Any]:
        """Return the whole state as JSON values."""
        columns: list[dict[str, Any]] = [{"kind": c.kind} | asdict(c) for c in self.summaries]
        for column in columns:
            if "categories" in column:
                column["categories"] = list(column["categories"])
        return {"version": VERSION, "columns": columns}

    @classmethod
    def from_dict(cls, state: Any) -> TableEncoder:
        """Return the encoder that `to_dict` described.

        Raises
        ------
        InputError
            If anything in it is missing, unknown or of the wrong type.
        """
        if not isinstance(state, dict) or set(state) != {"version", "columns"}:
            found = listed(sorted(state)) if isinstance(state, dict) else repr(state)
            raise InputError(
                f"an encoder is stored as 'version' and 'columns'; got {found}. Save it again"
            )
        if state["version"] != VERSION:
            raise InputError(
                f"the encoder has format version {state['version']!r}, and this unmix reads "
                f"{VERSION}; load it with the unmix that saved it"
            )
        if not isinstance(state["columns"], list) or not state["columns"]:
            raise InputError("the stored encoder has no list of columns; save it again")
        summaries = [read_summary(i, column) for i, column in enumerate(state["columns"])]
        names = Counter(c.name for c in summaries)
        if len(names) < len(summaries):
            twice = names.most_common(1)[0][0]
            raise InputError(f"the stored encoder has column {twice!r} twice; save it again")
        return cls(summaries)

    def matrix(self, frame: Any) -> npt.NDArray[np.float32]:
        """Return the rows for linear and neural models.

        Parameters
        ----------
        frame : DataFrame, or array of numbers, shape (n, d)
            Columns are taken by name, in any order; others are ignored.

        Returns
        -------
        array of float32, shape (n, number of feature names)
            Always finite.
        """
        table = self.chosen(frame)
        x = np.zeros((len(table), len(self.feature_names)), dtype=np.float32)
        first = 0  # the numbers are the first features, in the order of their columns
        # Numbers that lie row by row are read as they lie, fewer rows at a time if these are long.
        by_row = numbers_by_row(table) is not None
        width = max(1, len(self.summaries)) if by_row else BLOCK_COLUMNS
        height = int(np.clip(ROW_NUMBERS // width, 1, BLOCK_ROWS)) if by_row else BLOCK_ROWS
        for start in range(0, len(self.summaries), width):
            group = slice(start, start + width)
            part = FeatureColumns(table.iloc[:, group], self.summaries[group], self.places[group])
            numbers = slice(first, first := first + len(part.varying))
            with one_thread(num_threads() if x.size >= MANY_NUMBERS else 1) as side_by_side:
                blocks = (slice(row, row + height) for row in range(0, len(table), height))
                deque(side_by_side(partial(part.write, x, numbers), blocks), maxlen=0)
        return x

    def native(self, frame: Any) -> FloatArray:
        """Return the rows for models that know missing values and categories, such as LightGBM.

        Returns
        -------
        array of float64, shape (n, number of columns)
            Numbers as they are and codes of categories; NaN for missing and unknown.
        """
        table = self.chosen(frame)
        if only_numbers(table, self.summaries) and in_range(values := table.to_numpy()):
            return values  # of an array no copy
        x = np.empty((len(table), len(self.summaries)))
        for i, column in enumerate(self.summaries):
            x[:, i] = column_values(table.iloc[:, i], column)
        for i in self.categorical:
            x[x[:, i] < 0, i] = np.nan
        return x

    def unseen(self, frame: Any) -> dict[str, tuple[int, str]]:
        """Return the categories that training never saw: column -> (rows, an example).

        A column whose rare categories were put together is left out: there a new category is
        one more rare one, which the model has met.
        """
        table = self.chosen(frame)
        found: dict[str, tuple[int, str]] = {}
        for i, column in enumerate(self.summaries):
            if isinstance(column, CategoryColumn) and not column.rare:
                rows = np.flatnonzero(category_codes(table.iloc[:, i], column) == UNKNOWN)
                if len(rows):
                    found[column.name] = (len(rows), category_text(table.iloc[rows[0], i]))
        return found

    def chosen(self, frame: Any) -> pd.DataFrame:
        """Return the columns of training, in their order."""
        table = _table(frame)
        if isinstance(frame, np.ndarray) and frame.shape[1] != len(self.columns):
            raise InputError(
                f"the array has {frame.shape[1]} columns and training had {len(self.columns)}; "
                "give the same columns"
            )
        places = _places(table)
        absent = [name for name in self.columns if name not in places]
        if absent and not set(absent) & set(self.needed):
            table = table.assign(**dict.fromkeys(absent, np.nan))
            places = _places(table)
        lost = [name for name in self.needed if name not in places]
        if lost:
            raise InputError(
                f"columns of the training table are missing: {listed(lost)}; add them (empty "
                "cells are allowed)"
            )
        repeated = [name for name in self.columns if len(places[name]) > 1]
        if repeated:
            raise InputError(f"column {repeated[0]!r} appears more than once; rename one of them")
        chosen = [places[name][0] for name in self.columns]
        # As they come they are not copied.
        return table if chosen == list(range(table.shape[1])) else table.iloc[:, chosen]


def _look_at(table: pd.DataFrame, seen: Sequence[SeenColumn]) -> Sequence[SeenColumn]:
    """Add what further rows show to what has been seen of each column, and return it."""
    together = seen_side_by_side(table, [column.name for column in seen])
    if together is not None:
        for column, later in zip(seen, together, strict=True):
            column.take_in(later)
        return seen
    for place, series in columns_apart(table):
        seen[place].add(series)
    return seen


def _unseen(columns: Sequence[SeenColumn]) -> list[SeenColumn]:
    """Return the same columns, of which nothing has been seen."""
    return [SeenColumn(column.name) for column in columns]


def _becomes(column: Column) -> tuple[str, str]:
    """Return the type of a column and what becomes of it, in words."""
    if isinstance(column, NumberColumn):
        missing = ", and a mark where it is missing" if column.missing else ""
        if not column.deviation:
            return "number", f"constant, so that it says nothing{missing}"
        return "number", f"standardised{missing}"
    if isinstance(column, CategoryColumn):
        count = len(column.categories)
        rare = "; rarer ones are unknown" if column.rare else ""
        return "text", f"a mark for each of {count} words{rare}"
    if isinstance(column, LeftOutColumn):
        return "name", f"left out: {column.reason}"
    return "empty", "left out: no row has a value"


def _features(columns: Sequence[Column]) -> tuple[list[Place], list[str]]:
    """Return each column's place in the matrix, and the names of the features.

    Numbers come first, then the marks of their missing values, then categories.
    """
    names: list[str] = []

    def add(name: str) -> int:
        names.append(name)
        return len(names) - 1

    value: dict[int, int] = {}
    missing: dict[int, int] = {}
    numbers = [(i, c) for i, c in enumerate(columns) if isinstance(c, NumberColumn)]
    varying = [(i, c) for i, c in numbers if c.deviation > 0]
    for i, number in varying:
        value[i] = add(number.name)
    for i, number in varying + [(i, c) for i, c in numbers if c.deviation == 0]:
        if number.missing:
            missing[i] = add(f"{number.name} is missing")
    for i, category in enumerate(columns):
        if not isinstance(category, CategoryColumn):
            continue
        if len(category.categories) + category.rare + category.missing <= 1:
            continue  # constant
        if category.missing:
            missing[i] = add(f"{category.name} is missing")
        value[i] = len(names)
        names += [f"{category.name}={word}" for word in category.categories]
    return [Place(value.get(i), missing.get(i)) for i in range(len(columns))], names


def _table(frame: Any) -> pd.DataFrame:
    """Return a table with rows and columns, or say what is wrong with it."""
    if isinstance(frame, np.ndarray):
        if frame.ndim != 2:
            raise InputError(
                f"an array of rows must have shape (n, d); got {frame.shape}. Use reshape(-1, 1) "
                "for a single column"
            )
        frame = pd.DataFrame(frame, columns=[f"x{i}" for i in range(frame.shape[1])], copy=False)
    if not isinstance(frame, pd.DataFrame):
        raise InputError(
            f"rows must be a pandas DataFrame or a numpy array (n, d); got {type(frame).__name__}. "
            "Convert them first"
        )
    if frame.shape[1] == 0:
        raise InputError("the table has no columns to learn from; give it at least one")
    if len(frame) == 0:
        raise InputError("the table has no rows; give it at least one")
    return frame


def _places(table: pd.DataFrame) -> dict[str, list[int]]:
    """Return the positions of each column name; names are text, so that JSON can hold them."""
    places: dict[str, list[int]] = {}
    for i, name in enumerate(table.columns):
        places.setdefault(str(name), []).append(i)
    return places
