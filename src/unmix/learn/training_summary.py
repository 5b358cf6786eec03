"""What the rows of training and their scores looked like, in a few numbers that a model keeps.

Later rows are compared with it (`assess.drift`). Numbers are counted between the deciles of
training, categories one by one; of large tables an even sample of the rows stands for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import logsumexp

from unmix.learn.columns import (
    LARGEST,
    MISSING,
    CategoryColumn,
    Column,
    EmptyColumn,
    LeftOutColumn,
    NumberColumn,
    category_codes,
    column_numbers,
)
from unmix.learn.encoding import TableEncoder
from unmix.learn.models import score_names
from unmix.learn.sums import num_threads, one_thread
from unmix.learn.table_blocks import blocks_of_numbers, column_ends, columns_apart, numbers_by_row

__all__ = [
    "Distribution",
    "TrainingSummary",
    "cells_of_column",
    "cells_of_numbers",
    "class_log_odds",
]

Array = np.ndarray[Any, Any]

MOST_ROWS, MOST_IMAGES = 20_000, 2_000  # that are counted


@dataclass(frozen=True)
class Distribution:
    """How the values of a column, or the scores of a class, were distributed in training."""

    name: str
    edges: tuple[float, ...]
    """Of numbers: values up to the first are in cell 0, and so on; empty for categories."""
    counts: tuple[int, ...]
    """Rows in each cell: between the edges, or one per category and one for all others. The last
    cell is of missing values."""
    low: float | None = None
    """The smallest number of training; None for categories."""
    high: float | None = None

    def __post_init__(self) -> None:
        numbers = (*self.edges, *(end for end in (self.low, self.high) if end is not None))
        if not np.isfinite(numbers).all() or (self.low is None) != (self.high is None):
            raise ValueError(f"the distribution of {self.name!r} has numbers that are none")
        if len(self.counts) < 2 or min(self.counts) < 0 or not 0 < sum(self.counts) <= MOST_ROWS:
            raise ValueError(f"the distribution of {self.name!r} has counts that are none")
        if self.low is None:
            return
        if len(self.counts) != len(self.edges) + 2 or (np.diff(self.edges) <= 0).any():
            raise ValueError(f"the distribution of {self.name!r} has edges that are none")

    @property
    def rows(self) -> int:
        """Rows that were counted."""
        return sum(self.counts)


@dataclass(frozen=True)
class TrainingSummary:
    """Distributions of the columns of training, and of the scores of the fitted model."""

    columns: tuple[Distribution, ...]
    scores: tuple[Distribution, ...]
    """Log-odds at the base prior of the learner: of the second of two classes, or of each of K."""

    @classmethod
    def of(cls, x: Any, encoder: Any, logits_of: Any, classes: Array) -> TrainingSummary:
        """Summarise rows of training.

        Parameters
        ----------
        x : data frame, or array of images
            Rows of training before encoding.
        encoder : TableEncoder or ImageEncoder
        logits_of : function
            Positions of rows of `x` -> their logits at the base prior, (n,) or (n, K).
        classes : array, shape (K,)
        """
        table = isinstance(encoder, TableEncoder)
        most = min(len(x), MOST_ROWS if table else MOST_IMAGES)
        kept = np.unique(np.linspace(0, len(x) - 1, most).astype(np.intp))
        columns = []
        if table:
            frame = encoder.chosen(x)
            with one_thread(num_threads()) as side_by_side:
                ends_of = partial(_ends, columns=encoder.summaries)
                ends = np.stack(list(side_by_side(ends_of, blocks_of_numbers(frame))))
            lows, highs = np.fmin.reduce(ends[..., 0]), np.fmax.reduce(ends[..., 1])
            for place, series in columns_apart(frame.iloc[kept]):  # so few come all at once
                column = encoder.summaries[place]
                if not isinstance(column, EmptyColumn | LeftOutColumn):
                    columns.append(_of_column(series, column, lows[place], highs[place]))
        odds = class_log_odds(logits_of(kept))
        scores = [_of_numbers(name, odds[:, k]) for k, name in enumerate(score_names(classes)[:-1])]
        return cls(tuple(columns), tuple(scores))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "columns": [asdict(column) for column in self.columns],
            "scores": [asdict(score) for score in self.scores],
        }

    @classmethod
    def from_dict(cls, state: dict[str, Any], encoder: Any, classes: Array) -> TrainingSummary:
        """Return what `to_dict` described; ValueError, TypeError or KeyError if it is none."""
        found = cls(*(tuple(map(_restored, state[key])) for key in ("columns", "scores")))
        if [score.name for score in found.scores] != score_names(classes)[:-1]:
            raise ValueError("the summary of training has scores of other classes")
        columns = {c.name: c for c in getattr(encoder, "summaries", ())}
        for seen in found.columns:
            column = columns.pop(seen.name)  # KeyError: unknown, or there twice
            category = isinstance(column, CategoryColumn)
            cells = len(column.categories) + 2 if category else len(seen.counts)
            if category != (seen.low is None) or len(seen.counts) != cells:
                raise ValueError(f"the summary of {seen.name!r} is that of another column")
        return found


def class_log_odds(logits: Array) -> Array:
    """Return log-odds (n, 1) of the second of two classes, or (n, K) of each against the rest."""
    if logits.ndim == 1:
        return logits[:, None]
    rows, largest = np.arange(len(logits)), logits.argmax(axis=1)
    found = logits - logits[rows, largest, None]
    odds = np.exp(found)
    # All others of a class are those of all without its own, but where hardly any would be left.
    others = odds.sum(axis=1, keepdims=True) - odds
    others[rows, largest] = 1.0
    found -= np.log(others)
    rest = logits.copy()
    rest[rows, largest] = -np.inf
    found[rows, largest] = logits[rows, largest] - logsumexp(rest, axis=1)
    return found


def cells_of_column(series: pd.Series[Any], column: Column, edges: Sequence[float]) -> Array:
    """Return the cell (n,) of each value of a column among the counts of its distribution."""
    if isinstance(column, CategoryColumn):
        codes, known = category_codes(series, column).astype(np.intp), len(column.categories)
        return np.where(codes >= 0, codes, np.where(codes == MISSING, known + 1, known))
    return cells_of_numbers(column_numbers(series, column.name), edges)


def cells_of_numbers(values: Array, edges: Sequence[float] | Array) -> Array:
    """Return the cell (n,) of each number; the last one is that of NaN."""
    cells = np.searchsorted(np.asarray(edges, dtype=np.float64), values, side="left")
    return np.where(np.isnan(values), len(edges) + 1, cells)


def _ends(frame: pd.DataFrame, columns: Sequence[Column]) -> Array:
    """Return the smallest and the largest number of each column, (d, 2); NaN for the others."""
    ends = np.full((len(columns), 2), np.nan)
    values = numbers_by_row(frame)
    if values is not None and all(isinstance(column, NumberColumn) for column in columns):
        together = column_ends(values)
        if not np.abs(together).max() > LARGEST:  # else the column is named below
            return together
    for place, series in columns_apart(frame):
        if isinstance(columns[place], NumberColumn):
            values = column_numbers(series, columns[place].name)
            low, high = ends[place]
            ends[place] = np.fmin.reduce(values, initial=low), np.fmax.reduce(values, initial=high)
    return ends


def _of_column(series: pd.Series[Any], column: Column, low: float, high: float) -> Distribution:
    """Count a column in some of the rows; of numbers the ends of all rows are kept."""
    if isinstance(column, CategoryColumn):
        cells = cells_of_column(series, column, ())
        counts = np.bincount(cells, minlength=len(column.categories) + 2)
        return Distribution(column.name, (), tuple(counts.tolist()))
    found = _of_numbers(column.name, column_numbers(series, column.name))
    return replace(found, low=float(low), high=float(high))


def _of_numbers(name: str, values: Array) -> Distribution:
    """Count numbers between their deciles."""
    missing = int(np.isnan(values).sum())
    present = np.sort(values)[: len(values) - missing]  # NaN is last
    if not len(present):  # in the rows that were kept
        return Distribution(name, (), (0, missing), 0.0, 0.0)
    # A value of training each, so that the counts of few different numbers are those of numbers.
    edges = np.unique(present[(np.arange(1, 10) * len(present) - 1) // 10])
    up_to = np.searchsorted(present, edges, side="right")
    counts = np.diff(up_to, prepend=0, append=len(present)).tolist()
    ends = float(present[0]), float(present[-1])
    return Distribution(name, tuple(edges.tolist()), (*counts, missing), *ends)


def _restored(state: dict[str, Any]) -> Distribution:
    """Return a distribution from its JSON values."""
    edges, counts, ends = state["edges"], state["counts"], (state["low"], state["high"])
    given = [*edges, *(end for end in ends if end is not None)]
    if not all(type(number) in (int, float) for number in given):
        raise TypeError("a number of the summary of training is none")
    if not all(type(count) is int for count in counts) or not isinstance(state["name"], str):
        raise TypeError("a count of the summary of training is none")
    return Distribution(state["name"], tuple(edges), tuple(counts), *ends)
