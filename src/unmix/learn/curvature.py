"""How the loss of a linear model curves: coordinates in which a fit takes few steps.

In the coordinates v of ``(w, b) = C v``, where ``C' H C`` is the identity for the curvature H at a
point near the minimum, a gradient points to the minimum: L-BFGS takes a few steps, whatever the
scales and correlations of the columns. H need only be near the truth, so some of the rows are
enough, and all fits to resampled sets share one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Curvature"]

FloatArray = npt.NDArray[np.float64]

BLOCK_ROWS = 4_096
# Relative to the mean of the diagonal: columns that are combinations of others stay harmless.
LEAST_CURVATURE = 1e-6


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

    def coordinates(self, l2: float) -> Callable[[FloatArray, bool], FloatArray] | None:
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
            maps = factors.mT if transposed else factors
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
        return np.asarray(np.linalg.inv(lower).mT)
