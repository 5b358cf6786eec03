"""Stated counts of sets: how well they are known, and what is checked of them.

`unmix.core.counts` has their likelihood.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from unmix.core.shares import check_rows
from unmix.errors import InputError

__all__ = [
    "StatedCounts",
    "checked_counts",
    "class_covariances",
    "count_variance",
    "label_shift_counts",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def count_variance(
    rows: npt.ArrayLike,
    shares: npt.ArrayLike,
    *,
    population: bool = False,
    standard_errors: npt.ArrayLike = 0.0,
    noise_variances: npt.ArrayLike = 0.0,
    drawn_from: npt.ArrayLike | None = None,
) -> FloatArray:
    """Return the variance of a stated count: how well it is known. Variances add.

    Formula (two classes; n rows, share pi)::

        the count of these very rows                         0
        population: a rate of what the rows were drawn from  n pi (1 - pi)
        standard_errors: a rate with standard error e        n^2 e^2
        noise_variances: a count with noise added            sigma^2, or 2 b^2 for Laplace noise
        drawn_from: n of the N rows whose share is known     n pi (1 - pi) (N - n) / (N - 1)

    Under label shift give counts of variance > 0 to `label_shift_counts` before `count_nll`; for a
    population rate alone SSC is the likelihood.

    K classes: a number d_k per class, as if the counts had independent errors of these variances
    that happen to sum to 0 (see `class_covariances`): n pi_k for a population, which gives the
    multinomial covariance; sigma^2 for independent noise; n^2 e_k^2 K / (K - 1) for standard
    errors, which gives them back if they are equal.

    Parameters
    ----------
    rows : (m,)
        Rows of each set at hand.
    shares : (m,) or (m, K)
        Stated shares.
    population : bool
        The shares are rates of a population from which the rows were drawn.
    standard_errors, noise_variances : float, (m,) or (m, K)
        Of the shares and of the counts.
    drawn_from : (m,), optional
        Rows N >= n of the whole set that the stated share describes; infinite for a population.

    Returns
    -------
    (m,) or (m, K)

    Examples
    --------
    >>> count_variance([10], [0.5], population=True, noise_variances=2.0)
    array([4.5])
    """
    share = np.asarray(shares, dtype=np.float64)
    n = np.asarray(rows, dtype=np.float64)
    several = share.ndim == 2
    if n.shape != share.shape[:1]:
        raise InputError(f"rows must hold one number per set ({len(share)}); got shape {n.shape}.")
    whole = n if drawn_from is None else np.asarray(drawn_from, dtype=np.float64)
    if np.any(whole < n):
        worst = int(np.flatnonzero(whole < n)[0])
        raise InputError(f"drawn_from must be at least rows; set {worst} has {n[worst]:g} rows.")
    with np.errstate(invalid="ignore"):
        part = np.where(np.isinf(whole), 1.0, (whole - n) / np.maximum(whole - 1, 1))
    absent = part + float(population)
    if several:
        n, absent = n[:, None], absent[:, None]
    sampled = n * share if several else n * share * (1 - share)
    spread = share.shape[1] / (share.shape[1] - 1) if several else 1.0
    total = sampled * absent + spread * (n * np.asarray(standard_errors, dtype=np.float64)) ** 2
    return np.asarray(total + np.asarray(noise_variances, dtype=np.float64))


def label_shift_counts(
    counts: npt.ArrayLike, variances: npt.ArrayLike, rows: npt.ArrayLike, pooled: npt.ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Restate noisy counts so that `count_nll` gives their likelihood under label shift.

    Under label shift a set's count does not scatter about the pooled prior p as that of a random
    set does. The likelihood of its rows is sum_c P(c | stated) PB(c; sigma(z)) / Bin(c; n, p); the
    last factor is no constant unless the count is exact. With normal laws for both it is again
    the likelihood of a noisy count::

        1 / s'^2 = 1 / s^2 - 1 / (n p (1 - p)),    c' / s'^2 = c / s^2 - 1 / (1 - p)

    K classes: the same with n p_k in the place of n p (1 - p), and c'_k / d'_k = c_k / d_k - 1.

    Where the stated variance reaches n p (1 - p) the count says no more than a rate does: s' is
    then infinite and the likelihood is SSC (`unmix.core.losses`). Here the variance is bounded by
    .999 of that, which comes close.

    Parameters
    ----------
    counts, variances : (m,) or (m, K)
        Stated counts and how well they are known; an exact count stays as it is.
    rows : (m,)
    pooled : float or (K,)
        Pooled prior.

    Returns
    -------
    counts, variances : (m,) or (m, K)
        For `count_nll`.
    """
    stated, noise = np.asarray(counts, np.float64), np.asarray(variances, np.float64)
    prior, n = np.asarray(pooled, np.float64), np.asarray(rows, np.float64)
    noise = np.broadcast_to(noise, stated.shape)
    if stated.ndim == 2:
        expected = n[:, None] * prior
        natural = expected
    else:
        expected, natural = n * prior, n * prior * (1 - prior)
    known = np.minimum(noise, 0.999 * natural)
    with np.errstate(divide="ignore", invalid="ignore"):
        wider = known / (1 - known / natural)
        moved = (stated - expected * known / natural) / (1 - known / natural)
    exact = noise == 0
    return np.where(exact, stated, moved), np.where(exact, 0.0, wider)


def class_covariances(variances: FloatArray) -> FloatArray:
    """Return the covariance of class counts that sum to the known number of rows.

    Formula: independent errors of variances d_k, given that they sum to 0 ::

        diag(d) - d d' / sum(d)

    d = n pi gives the multinomial covariance, equal d the projection on sum 0; two classes have
    the variance d_0 d_1 / (d_0 + d_1).

    Parameters
    ----------
    variances : (m, K)

    Returns
    -------
    (m, K, K)
    """
    total = variances.sum(axis=1)[:, None, None]
    outer = variances[:, :, None] * variances[:, None, :]
    return np.asarray(
        variances[:, :, None] * np.eye(variances.shape[1]) - outer / np.where(total > 0, total, 1.0)
    )


class StatedCounts(NamedTuple):
    """Checked input: logits (n,) or (n, K), set_index (n,), counts and variances (m,) or (m, K)."""

    logits: FloatArray
    set_index: IntArray
    counts: FloatArray
    variances: FloatArray


def checked_counts(
    logits: npt.ArrayLike,
    set_index: npt.ArrayLike,
    counts: npt.ArrayLike,
    variances: npt.ArrayLike,
) -> StatedCounts:
    """Check what goes into the likelihood; exact counts become whole numbers."""
    stated = np.asarray(counts, dtype=np.float64)
    z, index = check_rows(logits, set_index, len(np.atleast_1d(stated)))
    if stated.shape[1:] != z.shape[1:] or stated.ndim != z.ndim:
        raise InputError(
            f"counts must have shape (m,) for logits (n,), else (m, K); got {stated.shape} for "
            f"logits of shape {z.shape}."
        )
    noise = np.asarray(variances, dtype=np.float64)
    if noise.ndim and noise.shape != stated.shape:
        raise InputError(
            f"variances must be one number or of the shape of counts {stated.shape}; got "
            f"{noise.shape}."
        )
    noise = np.broadcast_to(noise, stated.shape)
    if not (np.isfinite(stated).all() and np.isfinite(noise).all() and np.all(noise >= 0)):
        raise InputError("counts must be finite and variances finite and >= 0: check both.")
    rows = np.bincount(index, minlength=len(stated))
    if stated.ndim == 2:
        stated, noise = _summing_to(rows, stated, noise)
    stated = np.where(noise == 0, np.rint(stated), stated)
    wrong = (noise == 0) & ((stated < 0) | (stated > rows.reshape(-1, *[1] * (stated.ndim - 1))))
    # An empty set says nothing, whatever was stated about it.
    wrong[rows == 0] = False
    if wrong.any():
        j = int(np.argwhere(wrong)[0, 0])
        raise InputError(
            f"counts must lie in 0..{rows[j]} for set {j} of {rows[j]} rows; got {stated[j]}: "
            "give the variance of a noisy count."
        )
    return StatedCounts(z, index, stated, noise)


def _summing_to(
    rows: IntArray, counts: FloatArray, variances: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Make class counts sum to the rows of their set; the noisier a count, the more it gives."""
    excess = rows - counts.sum(axis=1)
    total = variances.sum(axis=1)
    part = variances / np.where(total > 0, total, 1.0)[:, None]
    counts = counts + part * excess[:, None]
    # A single noisy class is what the exact others leave.
    variances = np.where((variances > 0).sum(axis=1, keepdims=True) > 1, variances, 0.0)
    exact = (variances == 0).all(axis=1) & (rows > 0)
    wrong = exact & (np.rint(counts).sum(axis=1) != rows)
    if wrong.any():
        j = int(np.flatnonzero(wrong)[0])
        raise InputError(
            f"counts of set {j} must sum to its {rows[j]} rows; got {counts[j]}: give the "
            "variances of noisy counts."
        )
    return counts, variances
