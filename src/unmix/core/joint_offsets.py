"""What the sets of several groupings add to a row's logits, if the shares of all are known.

The offsets of a row's sets add, and they are solved for together: each is what its own set still
needs when the offsets of the other groupings are there. Sets of two groupings that are much the
same rows therefore share one offset between them and do not count it twice. This file knows
neither a model nor an assumption.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

__all__ = ["add_joint_offsets"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
# (logits of rows with a set, their sets as 0, 1, ..., which sets these are, number of the grouping)
# -> offsets of these sets
Solver = Callable[[FloatArray, IntArray, IntArray, int], FloatArray]

SWEEPS = 200
CLOSE = 1e-7  # in log-odds


def add_joint_offsets(logits: FloatArray, set_index: IntArray, solver: Solver) -> FloatArray:
    """Return logits with the offsets of all groupings, by turns until none changes.

    Where `solver` meets a share exactly this is raking (iterative proportional fitting) on the
    scale of log-odds; a solver that shrinks makes it the joint mode of independent effects.

    Parameters
    ----------
    logits : (n,) or (n, K)
    set_index : (n, G)
        -1 where a row has no set.
    solver : function
        The offsets of the sets of one grouping, (s,) or (s, K), given what the others add.
    """
    columns = []
    for column in set_index.T:
        rows = np.flatnonzero(column >= 0)
        present, index = np.unique(column[rows], return_inverse=True)
        columns.append((rows, index, present))
    moved = np.array(logits, dtype=np.float64)
    added = [np.zeros((len(rows), *logits.shape[1:])) for rows, _, _ in columns]
    for _ in range(SWEEPS):
        change = 0.0
        for g, (rows, index, present) in enumerate(columns):
            if not len(rows):
                continue
            others = moved[rows] - added[g]
            found = solver(others, index, present, g)[index]
            change = max(change, float(abs(found - added[g]).max()))
            moved[rows] = others + found
            added[g] = found
        if change < CLOSE:
            break
    return moved
