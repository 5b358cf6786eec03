"""Were sets put together by chance? Then their features differ by their rows and classes alone.

Natural sets differ in their features by more: what makes two rows neighbours also makes them alike.
A method for sets put together by chance has no business there, however well it does on shares.

This file knows no model and no methods.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincc

from unmix.core.sums_by_set import set_sums

__all__ = ["chance_p_value"]

FloatArray = npt.NDArray[np.float64]

LEAST_RELIABLE = 0.1  # share of the variance of stated shares that is no error, at least
TINY = 1e-12


def chance_p_value(
    x: npt.ArrayLike,
    set_index: npt.ArrayLike,
    shares: npt.ArrayLike,
    error_variances: npt.ArrayLike = 0.0,
) -> float:
    """Return how likely features are to differ as much between sets put together by chance.

    Formula (M_j the mean of a feature in set j, W its variance inside sets, f_j its regression on
    the shares; s_j^2 what the shares are off by, r what part of their variance is no error)::

        sum_j (M_j - f_j)^2 / (W / n_j + b^2 s_j^2 / r)     chi-square with m - K degrees

    and the least p-value of all features, times their number. Under label shift the means are
    linear in the shares, so that sets which differ in their classes alone pass too.

    Parameters
    ----------
    x : (n, d)
    set_index : (n,)
    shares : (m, K)
    error_variances : float or (m,)
        Of the stated share of a class.

    Returns
    -------
    float
        At most 1; 1 if there are too few sets.
    """
    wide, index = np.asarray(x, dtype=np.float64), np.asarray(set_index, np.int64)
    stated = np.asarray(shares, dtype=np.float64)
    m, classes = stated.shape
    rows = np.bincount(index, minlength=m)
    present = rows > 0
    degrees = int(present.sum()) - classes
    inside = len(wide) - int(present.sum())
    if degrees < 1 or inside < 1:
        return 1.0
    wide = wide - wide.mean(axis=0)
    means = set_sums(wide, index, m)[present] / rows[present, None]
    weights = np.sqrt(rows[present])[:, None]
    within = (np.sum(wide**2, axis=0) - np.sum((weights * means) ** 2, axis=0)) / inside
    design = np.column_stack([np.ones(present.sum()), stated[present, 1:]])
    slopes = np.linalg.lstsq(weights * design, weights * means, rcond=None)[0]  # (K, d)
    left = (means - design @ slopes) ** 2
    off = np.broadcast_to(np.asarray(error_variances, np.float64), m)[present]
    spread = stated[present, 1:].var(axis=0)  # (K - 1,)
    reliable = np.clip(1 - off.mean() / np.maximum(spread, TINY), LEAST_RELIABLE, 1.0)
    by_errors = np.sum(slopes[1:] ** 2 / reliable[:, None], axis=0)  # (d,)
    expected = within / rows[present, None] + by_errors * off[:, None]
    able = within > TINY
    if not able.any():
        return 1.0
    statistic = np.sum(left[:, able] / expected[:, able], axis=0)
    return float(min(1.0, able.sum() * gammaincc(degrees / 2, statistic.max() / 2)))
