"""How long should the slopes of a model under set effects be? Sets that it has not seen say it.

Sets of which a model was learned fit it better than others do: with the slopes that suit them best
its probabilities are too bold. Here logits of rows in sets that the model has not seen are
multiplied by a length and moved by a shift such that their stated shares are most likely.

This file knows no model and no resampling. `tests/reference_counts.py` holds the literal form.
"""

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from unmix.core.set_risks import SetEffectRisk

__all__ = ["length_and_shift"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# How far the length may be from 1 before anything speaks for it: of few sets the likelihood is
# nearly flat. Settled on simulated sets.
SPREAD = 0.5


def length_and_shift(
    risk: SetEffectRisk, logits: FloatArray, set_index: IntArray
) -> tuple[float, FloatArray]:
    """Return by what to multiply logits, and what to add to them, for sets that are new.

    Formula: the minimum over a >= 0 and b, at the tau that suits them best, of ::

        sum over sets of set_effect_nll(a z + b) + (a - 1)^2 / (2 SPREAD^2)

    The second part keeps the length near 1 where a few sets say little. Where the shares of new
    sets have nothing to do with the logits, or go against them, many sets make it 0.

    Parameters
    ----------
    risk : SetEffectRisk
        Knows the stated shares and how well they are known.
    logits : (n,) or (n, K)
        Of rows by fits that have not seen their sets.
    set_index : (n,)

    Returns
    -------
    length : float
    shift : (), or (K,) with 0 for class 0
    """
    num_sets = len(np.unique(set_index))
    classes = logits.shape[1:]

    def moved(point: FloatArray) -> FloatArray:
        return np.asarray(point[0] * logits + _shift(point[1:], classes))

    def value_and_gradient(point: FloatArray) -> tuple[float, FloatArray]:
        value, by_logits = risk.value_and_gradient(moved(point), set_index)
        off = (point[0] - 1) / SPREAD
        by_shift = np.atleast_1d(by_logits.sum(axis=0))[-(len(point) - 1) :]
        slope = np.concatenate(([np.sum(by_logits * logits)], by_shift))
        slope[0] += off / SPREAD / num_sets
        return value + off**2 / 2 / num_sets, slope

    start = np.concatenate(([1.0], np.zeros(classes[0] - 1 if classes else 1)))
    bounds = [(0.0, None), *[(None, None)] * (len(start) - 1)]
    found = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return float(found.x[0]), _shift(found.x[1:], classes)


def _shift(free: FloatArray, classes: tuple[int, ...]) -> FloatArray:
    """Return the shift of every class from that of all but class 0; of two classes one number."""
    return np.concatenate(([0.0], free)) if classes else np.asarray(free[0])
