"""How long should the slopes of a model of whole sets be? Sets that it has not seen say it.

Sets of which a model was learned fit it better than others do: with the slopes that suit them best
its probabilities are too bold. With a penalty that is strong enough for few sets they are too
timid. Here logits are multiplied by a length and moved by a shift such that what is stated of sets
that the model has not seen is most likely.

This file knows no model and no resampling. `tests/reference_counts.py` holds the literal form.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from unmix.core.set_risks import SetRisk

__all__ = ["Length", "length_and_shift"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# How far the length may be from 1 before anything speaks for it: of few sets the likelihood is
# nearly flat. Settled on simulated sets.
SPREAD = 0.5
OUT = 1 - float(np.exp(-1))  # share of the sets that a resample holds: .632
STEP = 1e-3  # of differences


class Length(NamedTuple):
    """By what to multiply logits and what to add to them, for sets that are new.

    Attributes
    ----------
    length : float
    shift : (), or (K,) with 0 for class 0
    error : float
        Standard error of the length, from how the likelihood curves.
    """

    length: float
    shift: FloatArray
    error: float


def length_and_shift(
    risk: SetRisk, unseen: FloatArray, unseen_index: IntArray, seen: FloatArray, index: IntArray
) -> Length:
    """Return by what to multiply logits, and what to add to them, for sets that are new.

    Formula: the minimum over a >= 0 and b of ::

        .632 R(a unseen + b) + .368 R(a seen + b) + (a - 1)^2 / (2 SPREAD^2)

    R is the negative log-likelihood of the sets' counts or shares, under set effects at the tau
    that suits these sets best. Resampled fits know .632 of the sets, so that sets they have not
    seen speak for slopes that are shorter than those of a fit to all should be (Efron, 1983). The
    last part keeps the length near 1 where a few sets say little. Where the shares of new sets
    have nothing to do with the logits, or go against them, many sets make it small.

    Parameters
    ----------
    risk : SetRisk
        Knows what is stated of the sets and how well it is known.
    unseen : (n,) or (n, K)
        Logits of rows by fits that have not seen their sets.
    unseen_index : (n,)
    seen : (n',) or (n', K)
        Logits of rows by all fits.
    index : (n',)
    """
    classes = unseen.shape[1:]
    parts = ((OUT, unseen, unseen_index), (1 - OUT, seen, index))

    def value_and_gradient(point: FloatArray) -> tuple[float, FloatArray]:
        off = (point[0] - 1) / SPREAD
        value, slope = off**2 / 2, np.zeros_like(point)
        slope[0] = off / SPREAD
        for weight, logits, sets in parts:
            total, by_logits, _ = risk.added(point[0] * logits + _shift(point[1:], classes), sets)
            value += weight * total
            slope[0] += weight * np.sum(by_logits * logits)
            slope[1:] += weight * np.atleast_1d(by_logits.sum(axis=0))[-(len(point) - 1) :]
        return float(value) / num_sets, slope / num_sets

    num_sets = len(np.unique(index))
    start = np.concatenate(([1.0], np.zeros(classes[0] - 1 if classes else 1)))
    bounds = [(0.0, None), *[(None, None)] * (len(start) - 1)]
    found = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", bounds=bounds)
    slopes = [
        value_and_gradient(found.x + step)[1] - value_and_gradient(found.x - step)[1]
        for step in STEP * np.eye(len(start))
    ]
    curvature = num_sets * np.stack(slopes) / (2 * STEP)
    variance = np.linalg.pinv((curvature + curvature.T) / 2)[0, 0]
    error = float(np.sqrt(np.clip(variance, 0.0, SPREAD**2)))
    return Length(float(found.x[0]), _shift(found.x[1:], classes), error)


def _shift(free: FloatArray, classes: tuple[int, ...]) -> FloatArray:
    """Return the shift of every class from that of all but class 0; of two classes one number."""
    return np.concatenate(([0.0], free)) if classes else np.asarray(free[0])
