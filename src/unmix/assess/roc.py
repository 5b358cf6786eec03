"""The ROC curve and its area from unlabeled sets (two classes).

The distribution of the score in each class is a signed combination of its distributions in the
sets, so every row carries one weight for the positive and one for the negative class, and the ROC
curve is drawn as it is from labels. This file knows logits and set priors, no labels.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression
from scipy.special import ndtri

from unmix.assess.blocks import in_blocks
from unmix.assess.class_rates import fit_class_rates, set_combination
from unmix.assess.estimates import Estimate, normal_interval
from unmix.core.sums_by_set import set_sums

__all__ = ["Roc", "estimate_roc"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

NUM_THRESHOLDS = 2000  # quantiles of the pooled scores at which the curve is known
GRID = np.linspace(0, 1, 101)


@dataclass(frozen=True)
class Roc:
    """True positive rate over a grid of false positive rates, with a band for each point alone."""

    fpr: tuple[float, ...]
    tpr: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def estimate_roc(
    logits: FloatArray,
    set_index: IntArray,
    sizes: FloatArray,
    set_priors: FloatArray,
    covariance: FloatArray | None = None,
    confidence: float = 0.95,
) -> tuple[Estimate, Roc]:
    """Estimate the area under the ROC curve and the curve, without labels.

    Parameters
    ----------
    logits : (n,)
        Scores; only their order matters.
    set_index : (n,)
        The set of each row.
    sizes : (m,)
        Rows of each set, all > 0.
    set_priors : (m, 2)
        Stated shares of (negatives, positives).
    covariance : (m, 2, 2), optional
        Covariance of the errors of the stated shares.
    confidence : float
        Coverage aimed at, by the area and by each point of the band.

    Returns
    -------
    area : Estimate
    curve : Roc

    Notes
    -----
    Formula, with a_j and b_j the entries of A (`class_rates.set_combination`) for the positive and
    the negative class, and F_j the score distribution of set j::

        F_+ = sum_j a_j F_j,  F_- = sum_j b_j F_j,  AUC = integral F_- dF_+   (ties count half)

    in O(n log n): rows are sorted once and the weights a_j / n_j, b_j / n_j summed along the order.
    The set weights in A are those of a rate of one half, the same at all thresholds.

    A row of set j moves the area by `h = a_j F_-(z) + b_j (1 - F_+(z))`, hence::

        var(AUC) = sum_j var_j(h) / n_j + (AUC - 1/2)^2 s_j^2 (a_j - b_j)^2

    where var_j is taken under the fitted mixture of set j, so sets of a single row do no harm. The
    curve is made monotone by isotonic regression. Its band is that of TPR - slope * FPR at the
    threshold of the point; below a false positive rate of 0.02 it is somewhat narrow.
    """
    combination = _score_combination(logits, set_index, sizes, set_priors, covariance)
    negative, positive = combination / sizes  # weight of one row, per set (m,), (m,)
    num_values, group = _ranks(logits)
    masses, moves = np.empty((2, num_values)), np.empty((2, num_values))
    for k, weights in enumerate((negative, positive)):
        masses[k] = set_sums(weights[set_index], group, num_values)
    del group
    moves[1] = np.cumsum(masses[0]) - masses[0] / 2  # F_- with ties counted half
    area = float(masses[1] @ moves[1])
    moves[0] = 1 - (np.cumsum(masses[1]) - masses[1] / 2)
    np.clip(moves, 0, 1, out=moves)

    share_errors = np.zeros(len(sizes)) if covariance is None else covariance[:, 1, 1]
    variance = _row_variance(moves, masses, combination, set_priors) / sizes
    variance += (area - 0.5) ** 2 * share_errors * (combination[1] - combination[0]) ** 2

    at = np.unique(np.linspace(0, num_values - 1, NUM_THRESHOLDS).astype(int))
    fpr = _monotone(1 - np.cumsum(masses[0])[at])
    tpr = _monotone(1 - np.cumsum(masses[1])[at])
    del masses, moves
    curve = _curve(fpr, tpr, combination, sizes, set_priors, share_errors, confidence)
    return normal_interval(area, float(variance.sum()), confidence), curve


def _score_combination(
    logits: FloatArray,
    set_index: IntArray,
    sizes: FloatArray,
    set_priors: FloatArray,
    covariance: FloatArray | None,
) -> FloatArray:
    """Return A with the set weights of a rate of one half (2, m)."""
    if covariance is None:
        return set_combination(set_priors, set_priors, sizes)
    above = np.bincount(set_index[logits > np.median(logits)], minlength=len(sizes)) / sizes
    fit = fit_class_rates(np.stack([1 - above, above], axis=1), sizes, set_priors, covariance)
    difference = fit.class_rates[1, 1] - fit.class_rates[0, 1]
    weights = 1 / (0.25 / sizes + difference**2 * covariance[:, 1, 1])
    return set_combination(set_priors, fit.priors, weights)


def _row_variance(
    moves: FloatArray, masses: FloatArray, combination: FloatArray, set_priors: FloatArray
) -> FloatArray:
    """Return the variance, in each set's fitted mixture, of what a row adds to the area (m,)."""
    expected = masses @ moves.T  # (2, 2)
    products = np.einsum("kv,av,bv->kab", masses, moves, moves)  # (2, 2, 2)

    def of_sets(priors: FloatArray, weights: FloatArray) -> FloatArray:
        means = priors @ expected  # (m, 2)
        seconds = np.einsum("jk,kab->jab", priors, products)
        spread = seconds - means[:, :, None] * means[:, None, :]
        # moves[0] goes with the negative weight of the set, moves[1] with the positive one.
        return np.asarray(np.einsum("ja,jab,jb->j", weights, spread, weights)).clip(0)

    return np.asarray(in_blocks(of_sets, set_priors, combination.T))


def _ranks(logits: FloatArray) -> tuple[int, IntArray]:
    """Return how many logits differ, and which of these, in order, each row has (n,)."""
    values, group = np.unique(logits, return_inverse=True)
    return len(values), group


def _monotone(rates: FloatArray) -> FloatArray:
    """Return the nearest falling rates inside [0, 1], turned round to rise from 0 to 1."""
    falling = isotonic_regression(rates, increasing=False).x.clip(0, 1)
    return np.concatenate([[0.0], falling[::-1], [1.0]])


def _curve(
    fpr: FloatArray,
    tpr: FloatArray,
    combination: FloatArray,
    sizes: FloatArray,
    set_priors: FloatArray,
    share_errors: FloatArray,
    confidence: float,
) -> Roc:
    """Read the curve off at the grid and give each point its interval."""
    left = np.searchsorted(fpr, GRID, side="right") - 1
    right = np.minimum(left + 1, len(fpr) - 1)
    width = fpr[right] - fpr[left]
    part = np.divide(GRID - fpr[left], width, out=np.zeros_like(width), where=width > 0)
    height = tpr[left] + part * (tpr[right] - tpr[left])

    # The slope is taken over a tenth of the axis, where finer differences would be noise, and
    # over less towards 0, where the curve is steepest.
    reach = np.clip(GRID, 0.01, 0.05)
    before, after = np.maximum(GRID - reach, 0), np.minimum(GRID + reach, 1)
    slope = (np.interp(after, GRID, height) - np.interp(before, GRID, height)) / (after - before)
    variance = np.empty(len(GRID))
    for i, (negatives, positives) in enumerate(zip(GRID, height, strict=True)):
        # Point by point: there may be a million sets.
        rates = set_priors[:, 0] * negatives + set_priors[:, 1] * positives  # (m,)
        spread = rates * (1 - rates) / sizes + (positives - negatives) ** 2 * share_errors
        weights = combination[1] - slope[i] * combination[0]
        variance[i] = np.sum(weights**2 * spread)
    half = ndtri((1 + confidence) / 2) * np.sqrt(variance)
    return Roc(
        fpr=tuple(GRID.tolist()),
        tpr=tuple(height.tolist()),
        low=tuple((height - half).clip(0, 1).tolist()),
        high=tuple((height + half).clip(0, 1).tolist()),
    )
