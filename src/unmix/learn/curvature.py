"""How losses curve: by the logits of a row, and by the weights of a linear model.

`FisherTable`: what the set of a row tells about its logits. `core.row_losses.fisher_information`
costs m per row; for two classes it is a smooth function of one logit, so it is worked out once on a
grid and read off by interpolation. The diagonal for K classes is read off K such tables, each class
against the rest. Boosting takes it as its Hessian.

`Curvature`: coordinates in which a linear fit takes few steps. In the coordinates v of
``(w, b) = C v``, where ``C' H C`` is the identity for the curvature H at a point near the minimum,
a gradient points to the minimum: L-BFGS takes a few steps, whatever the scales and correlations of
the columns. H need only be near the truth, so some of the rows are enough, and all fits to
resampled sets share one.

`SharedCurvature`: the same for K classes, whose directions are told apart together. It takes one
product of the columns where `Curvature` takes K, and is there before anything was fitted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dtrtri
from scipy.special import softmax

from unmix.core.row_losses import fisher_information
from unmix.core.transition import Transition

__all__ = ["Coordinates", "Curvature", "FisherTable", "SharedCurvature"]

Array = np.ndarray[Any, Any]
FloatArray = npt.NDArray[np.float64]
Coordinates = Callable[[FloatArray, bool], FloatArray]
"""(vector, whether it is a gradient) -> the vector in other coordinates"""

# Logits at the pooled prior. In the tails the information falls like exp(-2 |u|), so a linear
# interpolation is off by (2 step)^2 / 8 of the value, which is 5e-5 here.
FARTHEST, STEPS = 16.0, 100  # the grid ends here, and has so many points to a unit
GRID = np.arange(-FARTHEST * STEPS, FARTHEST * STEPS + 1) / STEPS
READ_ROWS = 16_384  # that are read off at a time: they stay in the processor's cache
# Shares nearer to 0 and 1 than this are taken as this far.
LEAST_SHARE = 1e-7
# More groups than this are not told apart: the error is their spread squared.
MOST_GROUPS = 512
BLOCK_ROWS = 4_096  # that the curvature is summed over at a time
# Relative to the mean of the diagonal: columns that are combinations of others stay harmless.
LEAST_CURVATURE = 1e-6


class FisherTable:
    """What the set index of a row tells about its logits, in time that does not depend on m.

    Parameters
    ----------
    transition : Transition

    Notes
    -----
    Two classes: equal to `fisher_information` up to the grid. K classes: each class against the
    rest, as if the rest were mixed alike in all sets. That is exact for K = 2 and at the target
    prior, and near it elsewhere; the exact diagonal would cost m per row.
    """

    def __init__(self, transition: Transition) -> None:
        arrays = transition.arrays
        self._log_pooled = np.log(arrays.pooled) - np.log(arrays.target)
        theta, weights = arrays.prior_matrix, arrays.set_weights
        classes = (1,) if transition.binary else range(transition.num_classes)
        tables = [_one_against_rest(theta[:, k], weights) for k in classes]
        self._tables = [(table, np.diff(table)) for table in tables]

    def __call__(self, logits: Array) -> Array:
        """Return the information about each logit.

        Parameters
        ----------
        logits : array, shape (n,) or (n, K)

        Returns
        -------
        array of the shape of `logits`
        """
        found = np.empty(logits.shape[::-1]).T  # a class of all rows lies together
        for first in range(0, len(logits), READ_ROWS):
            rows = slice(first, first + READ_ROWS)
            if logits.ndim == 1:
                shift = self._log_pooled[1] - self._log_pooled[0]
                found[rows] = _read_off(self._tables[0], logits[rows] + shift)
                continue
            shares = softmax(logits[rows].T + self._log_pooled[:, None], axis=0)  # (K, rows)
            np.clip(shares, LEAST_SHARE, 1 - LEAST_SHARE, out=shares)
            for k, share in enumerate(shares):
                found[rows, k] = _read_off(self._tables[k], np.log(share / (1 - share)))
        return found


def _read_off(table: tuple[Array, Array], logits: Array) -> Array:
    """Return the values between the points of the grid, where it is even: no search is needed."""
    place = logits + FARTHEST
    place *= STEPS
    np.minimum(place, len(GRID) - 1, out=place)
    np.fmax(place, 0, out=place)
    point = place.astype(np.intp)
    np.minimum(point, len(GRID) - 2, out=point)
    place -= point
    values, steps = table
    place *= steps.take(point, mode="clip")
    place += values.take(point, mode="clip")
    return place


def _one_against_rest(priors: Array, weights: Array) -> Array:
    """Return the information about the logit of one class at the pooled prior, on the grid."""
    priors, weights = _merge(priors[weights > 0], weights[weights > 0])
    return fisher_information(GRID, Transition(priors, weights, scoring=True))


def _merge(priors: Array, weights: Array) -> tuple[Array, Array]:
    """Join sets of nearly the same prior, so that a million sets cost no more than a thousand."""
    if len(priors) <= MOST_GROUPS:
        return priors, weights
    # In logits, because the information in the tails is governed by the odds of the priors.
    bounded = np.clip(priors, 1e-6, 1 - 1e-6)
    logits = np.log(bounded) - np.log1p(-bounded)
    edges = np.linspace(logits.min(), logits.max(), MOST_GROUPS + 1)
    group = np.digitize(logits, edges[1:-1])
    total = np.bincount(group, weights, minlength=MOST_GROUPS)
    used = total > 0
    mean = np.bincount(group, weights * priors, minlength=MOST_GROUPS)[used] / total[used]
    return np.clip(mean, 0, 1), total[used]


class Curvature:
    """The curvature of a mean loss over rows by weights and bias, for each class by itself.

    Parameters
    ----------
    x : array, shape (n, d)
    information : array, shape (n,) or (n, K)
        The curvature of the loss of each row by its logits.
    """

    def __init__(self, x: npt.NDArray[Any], information: FloatArray) -> None:
        d = x.shape[1]
        roots = np.sqrt(np.maximum(information, 0)).astype(np.float32)
        roots = roots.reshape(len(x), -1)
        self._sums = np.zeros((roots.shape[1], d + 1, d + 1))
        with_bias = np.ones((BLOCK_ROWS, d + 1), dtype=np.float32)
        for first in range(0, len(x), BLOCK_ROWS):
            block = slice(first, first + BLOCK_ROWS)
            rows = with_bias[: len(x[block])]
            rows[:, :d] = x[block]
            for k, of_class in enumerate(roots[block].T):
                weighted = rows * of_class[:, None]
                self._sums[k] += weighted.T @ weighted
        self._sums /= len(x)
        self._factors: dict[float, FloatArray | None] = {}

    def coordinates(self, l2: float) -> Coordinates | None:
        """Return the map of vectors of weights and bias by C, or by C' for gradients.

        Parameters
        ----------
        l2 : float
            Weight of |w|^2.

        Returns
        -------
        function (vector, transposed) -> vector
            None if the curvature is of no use.
        """
        if l2 not in self._factors:
            self._factors[l2] = self._factor(l2)
        factors = self._factors[l2]
        if factors is None:
            return None

        def mapped(vector: FloatArray, transposed: bool) -> FloatArray:
            by_class = vector.reshape(factors.shape[1], -1).T[:, :, None]  # (K, d + 1, 1)
            maps = np.swapaxes(factors, 1, 2) if transposed else factors
            return np.asarray(np.matmul(maps, by_class)[:, :, 0].T.ravel())

        return mapped

    def _factor(self, l2: float) -> FloatArray | None:
        """Return C of each class, (K, d + 1, d + 1)."""
        size = self._sums.shape[1]
        scale = np.trace(self._sums, axis1=1, axis2=2) / size
        if not np.isfinite(self._sums).all() or not (scale > 0).all():
            return None
        ridge = np.eye(size) * np.append(np.full(size - 1, 2 * l2), 0.0)
        least = LEAST_CURVATURE * scale[:, None, None] * np.eye(size)
        try:
            lower = np.linalg.cholesky(self._sums + ridge + least)
        except np.linalg.LinAlgError:
            return None
        return np.stack([dtrtri(of_class, lower=True)[0].T for of_class in lower])


class SharedCurvature:
    """The curvature of a mean loss by the weights of K classes, as if that of all rows were alike.

    Formula (g the derivatives of the loss of a row by its logits, x that row and a one; the mean of
    g g' is the curvature by the logits where the loss is a likelihood)::

        H = (mean of x x') times, as a Kronecker product, (mean of g g') + 2 l2

    Parameters
    ----------
    x : array, shape (n, d)
    gradient : array, shape (n, K)
        The derivatives of the loss of each row by its logits.
    """

    def __init__(self, x: npt.NDArray[Any], gradient: FloatArray) -> None:
        d = x.shape[1]
        columns = np.zeros((d + 1, d + 1))
        with_bias = np.ones((BLOCK_ROWS, d + 1), dtype=np.float32)
        for first in range(0, len(x), BLOCK_ROWS):
            block = x[first : first + BLOCK_ROWS]
            rows = with_bias[: len(block)]
            rows[:, :d] = block
            columns += rows.T @ rows
        self._columns, self._classes = columns / len(x), gradient.T @ gradient / len(x)

    def coordinates(self, l2: float) -> Coordinates | None:
        """Return the map of vectors of weights and bias by C, or by C' for gradients.

        Parameters
        ----------
        l2 : float
            Weight of |w|^2.

        Returns
        -------
        function (vector, transposed) -> vector
            None if the curvature is of no use.
        """
        if not (np.isfinite(self._columns).all() and np.isfinite(self._classes).all()):
            return None
        of_columns, columns = np.linalg.eigh(self._columns)
        of_classes, classes = np.linalg.eigh(self._classes)
        curved = np.outer(np.maximum(of_columns, 0), np.maximum(of_classes, 0))  # (d + 1, K)
        if not curved.max() > 0:
            return None
        lengths = 1 / np.sqrt(curved + 2 * l2 + LEAST_CURVATURE * curved.max())

        def mapped(vector: FloatArray, transposed: bool) -> FloatArray:
            numbers = vector.reshape(lengths.shape)
            if transposed:
                return np.asarray(lengths * (columns.T @ numbers @ classes)).ravel()
            return np.asarray(columns @ (lengths * numbers) @ classes.T).ravel()

        return mapped
