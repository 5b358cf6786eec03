"""Linear models of resampled sets, all at once: a few steps of L-BFGS from the fit to all sets.

A resample only gives each set another weight, so that all of them share their rows: logits and
gradients are two products of matrices for all resamples together, where fits one after the other
would go over copies of the rows some hundred times. The steps share the curvature at the fit to all
sets. They end where they no longer come nearer to a minimum: in wide tables with weak penalties the
first step is nearer to how far another draw of the sets would move the model than the minimum is,
which lies where noise was learned.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from unmix.core.row_losses import CrossEntropyRows
from unmix.data.sets import UnlabeledSets
from unmix.learn.curvature import Coordinates
from unmix.learn.sums import blocks, one_thread, rows_of_block

__all__ = ["steps_to_resamples"]

FloatArray = npt.NDArray[np.float64]

STEPS = 5
# Of the length of the gradient, in coordinates of the curvature, that a step must leave at most.
LEFT = 0.7
NEAR = 0.01  # relative to the first step: what is left is far below the spread of the resamples


def steps_to_resamples(
    sets: UnlabeledSets,
    losses: CrossEntropyRows,
    weights: FloatArray,
    bias: FloatArray,
    l2: float,
    times: npt.NDArray[np.int64],
    coordinates: Coordinates,
) -> tuple[FloatArray, FloatArray]:
    """Return weights and bias for each resample of the sets.

    Formula (t_rj how often set j is in resample r, n_r its rows; C of `Curvature`)::

        L_r(w, b)       = sum_j t_rj sum over the rows of set j of loss / n_r + l2 |w|^2
        the first step  = - C C' gradient of L_r

    Parameters
    ----------
    sets : UnlabeledSets
        With rows of shape (n, d), of one grouping.
    losses : CrossEntropyRows
        Of these sets.
    weights, bias : arrays, shapes (d,) and (), or (d, K) and (K,)
        The fit to all sets.
    l2 : float
    times : array of integers, shape (R, m)
    coordinates : function (vector, transposed) -> vector
        Those of the curvature at the fit to all sets.

    Returns
    -------
    weights : array, shape (R, d) or (R, d, K)
    bias : array, shape (R,) or (R, K)
    """
    number, d = len(times), len(weights)
    rows = times * sets.set_sizes
    pooled = rows @ sets.set_priors.matrix / rows.sum(axis=1, keepdims=True)  # (R, K)
    of_resamples = [losses.with_pooled(prior) for prior in pooled]
    start = np.vstack((weights.reshape(d, -1), bias.reshape(1, -1)))  # (d + 1, K)
    points = np.repeat(start[None], number, axis=0)  # (R, d + 1, K)
    moving, first, last = np.arange(number), np.zeros(number), np.full(number, np.inf)
    seen = [_Secants(start.shape[1]) for _ in range(number)]
    with one_thread():
        for _ in range(STEPS):
            own = [of_resamples[r] for r in moving]
            gradient = _gradients(sets, own, points[moving], times[moving])
            gradient /= rows.sum(axis=1)[moving, None, None]
            gradient[:, :d] += 2 * l2 * points[moving][:, :d]
            on = []
            for r, of_resample in zip(moving, gradient, strict=True):
                slope = coordinates(of_resample.ravel(), True)
                length = float(np.linalg.norm(slope))
                first[r] = first[r] or length
                if NEAR * first[r] < length < LEFT * last[r]:
                    on.append(r)
                    points[r] -= coordinates(seen[r].step(slope), False).reshape(points[r].shape)
                last[r] = length
            moving = np.array(on, dtype=np.intp)
            if not on:
                break
    shape = weights.shape[1:]
    return points[:, :d].reshape(number, d, *shape), points[:, d].reshape(number, *shape)


class _Secants:
    """What the steps so far have shown of a curvature that is about the identity (L-BFGS)."""

    def __init__(self, classes: int) -> None:
        # The curvature is that of each class by itself, and classes that move together count more.
        self._first = 1.0 if classes == 1 else (classes - 1) / classes
        self._pairs: list[tuple[FloatArray, FloatArray]] = []
        self._last: tuple[FloatArray, FloatArray] | None = None

    def step(self, slope: FloatArray) -> FloatArray:
        """Return what to take from a point with this gradient; it is taken."""
        if self._last is not None:
            moved, change = -self._last[0], slope - self._last[1]
            if moved @ change > 0:
                self._pairs.append((moved, change))
        found, parts = slope.copy(), []
        for moved, change in reversed(self._pairs):
            parts.append((moved @ found) / (moved @ change))
            found -= parts[-1] * change
        found *= self._first
        for (moved, change), part in zip(self._pairs, reversed(parts), strict=True):
            found += (part - (change @ found) / (moved @ change)) * moved
        self._last = found, slope
        return found


def _gradients(
    sets: UnlabeledSets,
    losses: list[CrossEntropyRows],
    points: FloatArray,
    times: npt.NDArray[np.int64],
) -> FloatArray:
    """Return the gradients of the sums of the losses of resamples, (R, d + 1, K)."""
    number, size, classes = points.shape
    # Rows in float32 are multiplied as they are: what is rounded is far less than a step leaves.
    exact = np.result_type(sets.x.dtype, np.float32)
    weights = points[:, :-1].swapaxes(1, 2).reshape(number * classes, size - 1).astype(exact)
    total = np.zeros((number * classes, size - 1))
    by_bias = np.zeros((number, classes))
    step = rows_of_block(max(sets.x.shape[1], number * classes))
    for x, index in blocks(sets.x, sets.set_index, step):
        logits = (weights @ x.T).astype(np.float64, copy=False).reshape(number, classes, len(x))
        logits += points[:, -1, :, None]
        for r, of_resample in enumerate(losses):
            z = logits[r, 0] if classes == 1 else logits[r].T
            by_logits = of_resample.gradient(z, index).T * times[r].take(index)
            logits[r] = by_logits
        by_bias += logits.sum(axis=2)
        total += logits.reshape(number * classes, len(x)).astype(exact) @ x
    by_weights = total.reshape(number, classes, size - 1).swapaxes(1, 2)
    return np.concatenate((by_weights, by_bias[:, None]), axis=1)
