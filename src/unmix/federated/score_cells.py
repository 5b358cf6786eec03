"""Scores as counts: how many rows of each set fall into each cell of one grid.

A score is a row's log-odds at the target prior. The grid is the same for all and 0 is one of its
edges, so that the counts of parties, put together, are the counts of all rows, and how many rows
are decided for each class is exact. Cells with few rows are counted in a neighbour; where these
rows may have been, the counts of all sets together say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from unmix.errors import InputError

__all__ = ["FIXED", "NUM_CELLS", "ScoreGrid", "cell_counts_of_sets", "likely_counts"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

REGULAR = 129  # edges, beside that at 0
NUM_CELLS = REGULAR + 2
STEPS = 14.0  # at least, in a standard deviation: 4.5 of them fit in on each side of the mean
FINEST = 1e-9  # of a deviation, beside the mean
ROUNDS = 20  # of finding out where rows in thin cells may have been; more change little


@dataclass(frozen=True)
class ScoreGrid:
    """Edges at whole multiples of a step, and one at 0.

    A score on an edge belongs to the cell below.
    """

    step: float
    first: int
    """The first edge, in steps."""

    @classmethod
    def around(cls, mean: float, deviation: float) -> Self:
        """Return a grid that suits scores of this mean and deviation."""
        if not FINEST * max(1.0, abs(mean)) < deviation < 1 / FINEST:  # or a party lies
            return cls(FIXED.step, FIXED.first)
        # A power of 2, so that all multiples are exact.
        step = 2.0 ** math.floor(math.log2(deviation / STEPS))
        return cls(step, round(mean / step) - REGULAR // 2)

    @classmethod
    def of_json(cls, given: Any) -> Self:
        """Return the grid that another process has named."""
        step, first = float(given[0]), int(given[1])
        if not (math.isfinite(step) and step > 0 and abs(first) < 2**50):
            raise InputError("there is no such grid of scores")
        return cls(step, first)

    def to_json(self) -> list[float]:
        """Return what names the grid."""
        return [self.step, self.first]

    @property
    def edges(self) -> FloatArray:
        """All edges in their order (cells - 1,)."""
        regular = self.step * np.arange(self.first, self.first + REGULAR, dtype=np.float64)
        return np.sort(np.append(regular, 0.0))

    @property
    def decision(self) -> int:
        """The first cell of scores above 0."""
        return int(np.searchsorted(self.edges, 0.0, side="right"))

    @property
    def scores(self) -> FloatArray:
        """The score in the middle of each cell (cells,); the outermost are half a step away."""
        edges = self.edges
        outside = edges[0] - self.step / 2, edges[-1] + self.step / 2
        return np.concatenate(([outside[0]], (edges[1:] + edges[:-1]) / 2, [outside[1]]))


FIXED = ScoreGrid(0.125, -(REGULAR // 2))  # where nothing is known: a share of .5 moves by .03


def cell_counts_of_sets(
    scores: FloatArray, set_index: IntArray, num_sets: int, least: int, grid: ScoreGrid = FIXED
) -> IntArray:
    """Count the rows of each set in each cell.

    A cell with fewer than `least` rows is empty, and its rows are counted in the next cell towards
    the decision; never beyond it, unless all rows on one side of the decision are so few. A set
    with fewer rows than that is not told at all.

    Parameters
    ----------
    scores : array, shape (n,)
        Log-odds at the target prior.
    set_index : array of integers, shape (n,)
    num_sets : int
    least : int
        1 to count every row where it is.
    grid : ScoreGrid

    Returns
    -------
    array of integers, shape (m, cells)

    Examples
    --------
    >>> counts = cell_counts_of_sets(np.array([-3.0, -2.0, 1.0, 1.0]), np.zeros(4, int), 1, 2)
    >>> counts[0, counts[0] > 0], FIXED.scores[counts[0] > 0]
    (array([2, 2]), array([-2.0625,  0.9375]))
    """
    cells = np.searchsorted(grid.edges, scores, side="left")
    counts = np.bincount(set_index * NUM_CELLS + cells, minlength=num_sets * NUM_CELLS)
    decision = grid.decision
    return np.stack([_merged(own, least, decision) for own in counts.reshape(num_sets, NUM_CELLS)])


def likely_counts(
    counts: IntArray, least: IntArray, shares: FloatArray, grid: ScoreGrid = FIXED
) -> IntArray:
    """Return counts whose merged rows are where they are likely to have been.

    Counting thin cells in a neighbour moves rows towards the decision, in small sets more than in
    large ones: taken as they are told, such counts make the AUC too large and speak against label
    shift where it holds. Which rows may have moved, and from which cells, the rule of
    `cell_counts_of_sets` says; how likely each of these cells is, a mixture that is fitted to the
    counts of all sets (label shift) by expectation and maximisation.

    Parameters
    ----------
    counts : array of integers, shape (m, cells)
        As they were told.
    least : array of integers, shape (m,)
        The rule of each set.
    shares : array, shape (m,)
        Stated shares of positives.
    grid : ScoreGrid

    Returns
    -------
    array of integers, shape (m, cells)
        As many rows of each set, and on each side of the decision if both are told; the same
        counts where no row may have moved.
    """
    groups = np.array(
        [group for j, own in enumerate(counts) for group in _groups(j, own, least[j], grid)],
        dtype=np.int64,
    ).reshape(-1, 5)
    groups = groups[groups[:, 4] > 0]
    if not len(groups):
        return counts
    sets, first, end, told, moved = groups.T
    fixed = counts.copy()
    np.subtract.at(fixed, (sets, told), moved)
    weights = np.stack([1 - shares, shares], axis=1)  # (m, 2)
    pooled = counts.sum(axis=0) + 0.5
    of_class = np.stack([pooled, pooled]) / pooled.sum()  # (2, cells)
    for _ in range(ROUNDS):
        density = weights @ of_class  # (m, cells)
        below = np.pad(density.cumsum(axis=1), ((0, 0), (1, 0)))
        mass = below[sets, end] - below[sets, first]
        rate = np.zeros((len(counts), NUM_CELLS + 1))
        np.add.at(rate, (sets, first), moved / np.maximum(mass, np.finfo(float).tiny))
        np.add.at(rate, (sets, end), -moved / np.maximum(mass, np.finfo(float).tiny))
        expected = density * rate.cumsum(axis=1)[:, :-1].clip(0) + fixed
        per_density = expected / np.maximum(density, np.finfo(float).tiny)
        of_class = of_class * (weights.T @ per_density)
        of_class /= of_class.sum(axis=1, keepdims=True)
    density = weights @ of_class
    for j, start, stop, _, number in zip(sets, first, end, told, moved, strict=True):
        below = np.append(0.0, density[j, start:stop].cumsum())
        fixed[j, start:stop] += np.diff(np.floor(number * below / below[-1] + 0.5).astype(np.int64))
    return fixed


def _groups(
    j: int, counts: IntArray, least: int, grid: ScoreGrid
) -> list[tuple[int, int, int, int, int]]:
    """Return the counts of a set: set, first cell and end of where they were, cell, rows moved."""
    decision, found = grid.decision, []
    low, high = np.flatnonzero(counts[:decision]), np.flatnonzero(counts[decision:]) + decision
    for told, far, near, step in (
        (low, 0, decision if len(high) else NUM_CELLS, 1),
        (high[::-1], NUM_CELLS - 1, (decision if len(low) else 0) - 1, -1),
    ):
        begin = far
        for place, cell in enumerate(told.tolist()):
            last = place == len(told) - 1
            stop = near if last else cell + step
            beside = (cell != begin) + (last and cell + step != near)
            moved = min(int(counts[cell]) - 1, int(beside) * (least - 1))
            found.append((j, min(begin, stop + 1), max(stop, begin + 1), cell, moved))
            begin = stop
    return found


def _merged(counts: IntArray, least: int, decision: int) -> IntArray:
    """Return the counts of one set with thin cells counted in a neighbour (cells,)."""
    if counts.sum() < least:
        return np.zeros_like(counts)
    found = np.zeros_like(counts)
    low = _side(counts[:decision], least)
    high = _side(counts[decision:][::-1], least)[::-1]
    found[:decision], found[decision:] = low, high
    rest = int(counts.sum() - found.sum())
    if rest:  # one side is so few that even their number is not told
        told = np.flatnonzero(found)
        fuller = decision if counts[decision:].sum() > counts[:decision].sum() else decision - 1
        nearest = told[np.abs(told - decision).argmin()] if len(told) else fuller
        found[nearest] += rest
    return found


def _side(counts: IntArray, least: int) -> IntArray:
    """Merge from the far end to the decision; nothing if all are fewer than `least`."""
    found, held, last = np.zeros_like(counts), 0, -1
    if counts.sum() < least:
        return found
    for cell in np.flatnonzero(counts):
        held += int(counts[cell])
        if held >= least:
            found[cell], held, last = held, 0, int(cell)
    if held:
        found[last] += held
    return found
