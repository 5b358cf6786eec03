"""Scores as counts: how many rows of each set fall into each cell of one fixed grid.

A score is a row's log-odds at the target prior. The grid is the same for all and 0 is one of its
edges, so that the counts of parties, put together, are the counts of all rows, and how many rows
are decided for each class is exact. Cells with few rows are counted in a neighbour.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["NUM_CELLS", "cell_counts_of_sets", "scores_of_cells"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

STEP, FARTHEST = 0.125, 8.0  # in log-odds: a share of 0.5 moves by .03 from cell to cell
EDGES = np.arange(-FARTHEST, FARTHEST + STEP / 2, STEP)
NUM_CELLS = len(EDGES) + 1
DECISION = int(np.searchsorted(EDGES, 0.0)) + 1  # the first cell of scores above 0


def cell_counts_of_sets(
    scores: FloatArray, set_index: IntArray, num_sets: int, least: int
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

    Returns
    -------
    array of integers, shape (m, cells)

    Examples
    --------
    >>> counts = cell_counts_of_sets(np.array([-3.0, -2.0, 1.0, 1.0]), np.zeros(4, int), 1, 2)
    >>> counts[0, counts[0] > 0], scores_of_cells()[counts[0] > 0]
    (array([2, 2]), array([-2.0625,  0.9375]))
    """
    cells = np.searchsorted(EDGES, scores, side="left")
    counts = np.bincount(set_index * NUM_CELLS + cells, minlength=num_sets * NUM_CELLS)
    return np.stack([_merged(own, least) for own in counts.reshape(num_sets, NUM_CELLS)])


def scores_of_cells() -> FloatArray:
    """Return the score in the middle of each cell (cells,); the outermost are half a step away."""
    return np.concatenate((EDGES[:1] - STEP / 2, EDGES + STEP / 2))


def _merged(counts: IntArray, least: int) -> IntArray:
    """Return the counts of one set with thin cells counted in a neighbour (cells,)."""
    if counts.sum() < least:
        return np.zeros_like(counts)
    found = np.zeros_like(counts)
    low = _side(counts[:DECISION], least)
    high = _side(counts[DECISION:][::-1], least)[::-1]
    found[:DECISION], found[DECISION:] = low, high
    rest = int(counts.sum() - found.sum())
    if rest:  # one side is so few that even their number is not told
        told = np.flatnonzero(found)
        nearest = told[np.abs(told - DECISION).argmin()] if len(told) else _fuller_side(counts)
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


def _fuller_side(counts: IntArray) -> int:
    """Return the cell beside the decision on the side that has more rows."""
    return DECISION if counts[DECISION:].sum() > counts[:DECISION].sum() else DECISION - 1
