"""Sums over the rows of each set, and equations in such sums, solved for all sets at once.

The tilt of a set is the offset of its logits that makes its expected count what it should be. Both
likelihoods of a stated count need it: `unmix.core.counts` as the tilt of the saddlepoint,
`unmix.core.set_effects` as the effect of the set. An iteration takes one pass over the rows of all
sets. This file knows no likelihood; its inputs are checked by its callers.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

__all__ = [
    "binary_tilts",
    "class_spread",
    "class_tilts",
    "decreasing_root",
    "log_sums",
    "outer_sums",
    "row_copies",
    "row_spread",
    "set_rows",
    "set_sums",
    "spread_slope",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

FAR = 40.0  # sigma(-40) = 4e-18: no row is left in a class whose count is exactly 0


def row_copies(set_index: IntArray) -> tuple[Any, IntArray]:
    """Return one copy of each row for every set it lies in: which row it is, and its set.

    Parameters
    ----------
    set_index : array of integers, shape (n,) or (n, G)

    Returns
    -------
    rows : array of integers, shape (N,), or a slice of all
    set_index : array of integers, shape (N,)

    Examples
    --------
    >>> row_copies(np.array([[0, 2], [1, -1]]))[1]
    array([0, 1, 2])
    """
    if set_index.ndim == 1:
        return slice(None), set_index
    grouping, rows = np.nonzero(set_index.T >= 0)  # one grouping after the other
    return rows, set_index[rows, grouping]


def set_rows(set_index: IntArray, num_sets: int) -> IntArray:
    """Return the rows of each set (m,), for one grouping or several."""
    return np.bincount(row_copies(set_index)[1], minlength=num_sets)


def set_sums(values: FloatArray, index: IntArray, num_sets: int) -> FloatArray:
    """Sum over the rows of each set: (n,) -> (m,), (n, K) -> (m, K)."""
    if values.ndim == 2:
        return np.stack([set_sums(column, index, num_sets) for column in values.T], axis=1)
    # A bincount without rows forgets that its weights are floats.
    return np.asarray(np.bincount(index, weights=values, minlength=num_sets), dtype=np.float64)


def outer_sums(columns: FloatArray, index: IntArray, num_sets: int) -> FloatArray:
    """Sum the outer product of each row with itself over each set: (n, K) -> (m, K, K)."""
    num_classes = columns.shape[1]
    sums = np.empty((num_sets, num_classes, num_classes))
    for k in range(num_classes):
        for other in range(k + 1):
            products = columns[:, k] * columns[:, other]
            sums[:, k, other] = set_sums(products, index, num_sets)
            sums[:, other, k] = sums[:, k, other]
    return sums


def decreasing_root(
    value_and_slope: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    low: FloatArray,
    high: FloatArray,
    start: FloatArray | None = None,
) -> FloatArray:
    """Find each set's root of a decreasing function in [low, high] by Newton or halving.

    Parameters
    ----------
    value_and_slope : callable
        Gives the function and its derivative, (m,) and (m,), at one point per set (m,).
    low, high : (m,)
        The bracket of each set; a bracket of no width is its own answer.
    start : (m,), optional
        First guess inside the bracket; its middle if not given.

    Returns
    -------
    (m,)
    """
    point = (low + high) / 2 if start is None else start
    step = last_step = high - low
    solved = step == 0
    for _ in range(200):
        value, slope = value_and_slope(point)
        solved |= value == 0  # on a plateau every point is a root: stay
        low = np.where(value >= 0, point, low)
        high = np.where(value < 0, point, high)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = point - value / slope
            # Newton must stay inside and at least halve the step before last.
            good = (newton >= low) & (newton <= high) & (2 * abs(value) < abs(last_step * slope))
        following = np.where(good, newton, (low + high) / 2)
        last_step, step = step, abs(following - point)
        # A solved set stays where it is: rounding would throw it back to halving.
        point = np.where(solved, point, following)
        solved |= step <= 1e-15 + 1e-12 * abs(point)
        if solved.all():
            break
    return point


def binary_tilts(
    logits: FloatArray, index: IntArray, counts: FloatArray, variances: FloatArray
) -> FloatArray:
    """Return t_j with sum_i sigma(z_i + t_j) + s_j^2 t_j = c_j.

    An exact count of 0 or n has its root at infinity and gets a tilt that leaves every row a
    probability below 1e-17 or above 1 - 1e-17. A set without rows gets 0.

    Parameters
    ----------
    logits : (n,)
    index : (n,)
    counts : (m,)
        In 0..n_j where the variance is 0, else any number.
    variances : (m,)

    Returns
    -------
    (m,)
    """
    num_sets = len(counts)

    def value_and_slope(tilt: FloatArray) -> tuple[FloatArray, FloatArray]:
        shifted = expit(logits + tilt[index])
        expected = set_sums(shifted, index, num_sets)
        spread = set_sums(shifted * (1 - shifted), index, num_sets)
        return counts - expected - variances * tilt, -(spread + variances)

    low, high = _bracket(logits, index, counts, variances)
    # Newton's first step from 0, on the scale of the log-odds: right if all logits are equal.
    rows = np.bincount(index, minlength=num_sets)
    missing, slope = value_and_slope(np.zeros(num_sets))
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.clip((counts - missing) / rows, 1e-12, 1 - 1e-12)
        stated = np.clip(counts / rows, 1e-12, 1 - 1e-12)
        start = np.log(stated / expected) - np.log((1 - stated) / (1 - expected))
        start = start * (slope + variances) / slope
    start = np.clip(np.nan_to_num(start), low, high)
    return decreasing_root(value_and_slope, low, high, start)


def _bracket(
    logits: FloatArray, index: IntArray, counts: FloatArray, variances: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return bounds of the tilt of each set (m,), (m,)."""
    num_sets = len(counts)
    rows = np.bincount(index, minlength=num_sets)
    lowest, highest = np.full(num_sets, np.inf), np.full(num_sets, -np.inf)
    np.minimum.at(lowest, index, logits)
    np.maximum.at(highest, index, logits)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = counts / rows
        centre = np.clip(np.log(share / (1 - share)), -FAR, FAR)
        centre = np.where(counts <= 0, -FAR, np.where(counts >= rows, FAR, centre))
        # If every logit were the highest (lowest), these would be the roots without noise.
        low, high = centre - highest, centre - lowest
        low = np.where(counts >= rows, high, low)  # an exact 0 or n: no root, nothing to seek
        high = np.where(counts <= 0, low, high)
        # Noise pulls the root towards 0, and c - s^2 t is an expected count, so in 0..n.
        inside = (counts > 0) & (counts < rows)
        toward = np.where(inside, np.minimum(low, 0), -np.inf)
        beyond = np.where(inside, np.maximum(high, 0), np.inf)
        low = np.where(variances > 0, np.maximum(toward, (counts - rows) / variances), low)
        high = np.where(variances > 0, np.minimum(beyond, counts / variances), high)
    empty = rows == 0
    low[empty] = high[empty] = 0.0
    return low, np.maximum(low, high)


def class_tilts(
    logits: FloatArray,
    index: IntArray,
    counts: FloatArray,
    covariances: FloatArray,
    active: BoolArray,
    rough: BoolArray | None = None,
) -> FloatArray:
    """Return t_j (K,) with sum_i softmax(z_i + t_j) + S_j t_j = c_j for every set.

    Formula: the minimum of the convex function ::

        sum_i [logsumexp(z_i + t) - logsumexp(z_i)] + t' S t / 2 - t' c

    by damped Newton steps. Only steps that do not climb are taken, so it cannot diverge.

    Parameters
    ----------
    logits : (n, K)
    index : (n,)
    counts : (m, K)
        Sum to n_j; positive where active and without noise.
    covariances : (m, K, K)
        Rows sum to 0.
    active : (m, K)
        False where no row of the set can be of the class; its tilt is -inf.
    rough : (m,), optional
        True where the expected counts may be off by a tenth of a row.

    Returns
    -------
    (m, K)
        The first active class has the tilt 0.
    """
    num_sets = len(counts)
    rows = np.bincount(index, minlength=num_sets)
    tilts = _first_tilts(logits, index, counts, covariances, active)
    unsolved = np.flatnonzero((rows > 0) & (active.sum(axis=1) > 1))
    damping = np.full(num_sets, 1e-3)
    limits = 1e-11 + 1e-13 * rows
    if rough is not None:
        limits = np.where(rough, 0.1, limits)
    for iteration in range(200):
        place = np.full(num_sets, -1)
        place[unsolved] = np.arange(len(unsolved))
        keep = place[index] >= 0
        logits, index = logits[keep], index[keep]
        local = place[index]
        mine = counts[unsolved], covariances[unsolved], active[unsolved]
        if iteration == 0:
            value, slope, curvature = _objective(logits, local, tilts[unsolved], *mine)
        step = _damped_step(slope, curvature, damping[unsolved], mine[2])
        trial = tilts[unsolved] + step
        trial_value, trial_slope, trial_curvature = _objective(logits, local, trial, *mine)
        better = trial_value <= value + 1e-13 * (1 + abs(value))
        tilts[unsolved[better]] = trial[better]
        value = np.where(better, trial_value, value)
        slope = np.where(better[:, None], trial_slope, slope)
        curvature = np.where(better[:, None, None], trial_curvature, curvature)
        damping[unsolved] *= np.where(better, 0.1, 10.0)
        # Beyond this damping no step can climb down: the digits of the objective are used up.
        far = abs(slope).max(axis=1) > limits[unsolved]
        going = far & (damping[unsolved] < 1e9 * (1 + rows[unsolved]))
        value, slope, curvature = value[going], slope[going], curvature[going]
        unsolved = unsolved[going]
        if not len(unsolved):
            break
    first = np.argmax(active, axis=1)
    return np.asarray(tilts - tilts[np.arange(num_sets), first][:, None])


def _first_tilts(
    logits: FloatArray,
    index: IntArray,
    counts: FloatArray,
    covariances: FloatArray,
    active: BoolArray,
) -> FloatArray:
    """Guess tilts (m, K): right without noise if all rows of a set have the same logits."""
    expected = set_sums(log_sums(logits)[1], index, len(counts))
    with np.errstate(divide="ignore", invalid="ignore"):
        guess = np.log(np.maximum(counts, 1e-6)) - np.log(np.maximum(expected, 1e-6))
    noisy = np.trace(covariances, axis1=1, axis2=2) > 0
    return np.where(active, np.where(noisy[:, None], 0.0, guess), -np.inf)


def _objective(
    logits: FloatArray,
    index: IntArray,
    tilts: FloatArray,
    counts: FloatArray,
    covariances: FloatArray,
    active: BoolArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the convex function of each set, its gradient and its Hessian (m,), (m, K), (m, K, K).

    The part of the function that does not depend on the tilts is left out.
    """
    finite = np.where(active, tilts, 0.0)
    top, q = log_sums(logits + tilts[index])
    pull = np.einsum("mkl,ml->mk", covariances, finite)
    value = set_sums(top, index, len(counts)) + np.sum(finite * (pull / 2 - counts), axis=1)
    slope = np.where(active, set_sums(q, index, len(counts)) + pull - counts, 0.0)
    return value, slope, class_spread(q, index, len(counts)) + covariances


def _damped_step(
    slope: FloatArray, curvature: FloatArray, damping: FloatArray, active: BoolArray
) -> FloatArray:
    """Return the damped Newton step of each set, 0 for classes that are not active (m, K)."""
    eye = np.eye(slope.shape[1])
    scale = np.maximum(np.einsum("mkk->m", curvature), 1e-3)
    # A shift of all tilts changes nothing: fill that direction to make the matrix invertible.
    ones = active.astype(np.float64)
    filled = curvature + scale[:, None, None] * ones[:, :, None] * ones[:, None, :]
    floor = np.maximum(damping, 1e-13 * scale)
    filled = filled + np.where(active, floor[:, None], 1.0)[:, :, None] * eye
    return np.asarray(np.linalg.solve(filled, -slope[:, :, None])[:, :, 0])


def log_sums(logits: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return logsumexp (n,) and softmax (n, K) of each row; -inf means never."""
    # Class by class: numpy and scipy are several times slower along a short last axis.
    columns = logits.T
    top = np.maximum.reduce(list(columns))
    powers = np.stack([np.exp(column - top) for column in columns], axis=1)
    total = np.add.reduce(list(powers.T))
    return top + np.log(total), powers / total[:, None]


def class_spread(q: FloatArray, index: IntArray, num_sets: int) -> FloatArray:
    """Sum diag(q_i) - q_i q_i' over each set: the covariance of its counts (n, K) -> (m, K, K)."""
    spread = -outer_sums(q, index, num_sets)
    # The diagonal as q (1 - q), not as a difference of sums: the digits of small ones survive.
    classes = np.arange(q.shape[1])
    spread[:, classes, classes] = set_sums(q * (1 - q), index, num_sets)
    return spread


def row_spread(q: FloatArray, vectors: FloatArray) -> FloatArray:
    """Multiply (diag(q_i) - q_i q_i') by a vector per row: (n, K), (n, K) -> (n, K)."""
    return np.asarray(q * (vectors - np.sum(q * vectors, axis=1, keepdims=True)))


def spread_slope(q: FloatArray, index: IntArray, weights: FloatArray) -> FloatArray:
    """Return the gradient of sum_j trace(A_j class_spread_j) by the logits: (n, K).

    Parameters
    ----------
    q : (n, K)
        Softmax of the logits.
    index : (n,)
    weights : (m, K, K)
        A_j, symmetric.
    """
    columns = range(q.shape[1])  # one class at a time: nothing of size n x K x K
    product = np.stack([np.sum(q * weights[index, k], axis=1) for k in columns], axis=1)
    return row_spread(q, np.einsum("mkk->mk", weights)[index] - 2 * product)
