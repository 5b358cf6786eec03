"""The likelihood of stated shares when every set has an offset of its own.

Regions, schools and days differ in more than their rows: p(class | x, set j) = sigma(z + b_j) with
b_j ~ N(0, tau^2). tau = 0 is covariate shift. Here are the offsets, the likelihood with its
gradient, and the effects of known sets; what the law itself says is in `effect_law`.

K classes: softmax(z + b_j), where b_j is a vector of independent N(0, tau^2 / 2) per class. No
class is special, and the log-odds of any two classes have a set effect of variance tau^2, as two
classes have. In formulas class 0 is at 0; the others have the covariance tau^2 (I + J) / 2.

This file knows no model and no set names. `tests/reference_counts.py` holds the literal form.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from unmix.core.effect_law import checked_tau, effect_covariance, fit_tau, independent
from unmix.core.share_law import inside_shares
from unmix.core.shares import check_rows
from unmix.core.stated_counts import class_covariances
from unmix.core.sums_by_set import (
    binary_tilts,
    class_spread,
    class_tilts,
    log_sums,
    row_spread,
    set_sums,
    spread_slope,
)
from unmix.errors import InputError

__all__ = [
    "best_effect_nll",
    "effect_size",
    "known_set_offsets",
    "mean_offsets",
    "set_effect_hessian",
    "set_effect_nll",
    "set_offsets",
    "total_variances",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

LATTICE = 1 / (2 * np.pi)  # keeps the probability of a count at or below 1, see `set_effect_nll`


def set_offsets(
    logits: npt.ArrayLike, set_index: npt.ArrayLike, shares: npt.ArrayLike
) -> FloatArray:
    """Return b_j, the offset that makes the mean probability in each set its stated share.

    Parameters
    ----------
    logits : (n,) or (n, K)
    set_index : (n,)
    shares : (m,) or (m, K)
        Moved in by half a row where they are 0 or 1.

    Returns
    -------
    (m,) or (m, K)
        Class 0 of K has the offset 0; a set without rows has offsets of 0.
    """
    return _moments(logits, set_index, shares, 0.0).offsets


def set_effect_nll(
    logits: npt.ArrayLike,
    set_index: npt.ArrayLike,
    shares: npt.ArrayLike,
    tau: float,
    variances: npt.ArrayLike = 0.0,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return -log density of every stated share, the gradient of their sum, and that by log tau.

    Formula (b the offset, v = mean sigma'(z_i + b), s^2 the variance of the count)::

        T = tau^2 + 1 / (n v) + s^2 / (n v)^2
        b^2 / (2 T) + log(T) / 2 + log v + log(2 pi) / 2

    which is computed as, with N = n v and Omega = tau^2 N^2 + N + s^2 the variance of the count ::

        b^2 N^2 / (2 Omega) + log(Omega) / 2 - log n + log(2 pi) / 2

    N is n v + 1 / (2 pi): without the second part a set whose rows are all certain would have an
    infinite density, with it the probability of a count is never above 1.

    The gradient is the exact one: b, v and T all follow the logits. (Holding T, as a page of
    formulas may do, gives another function's gradient, and line searches notice.)

    K classes: N the matrix sum_i diag(q_i) - q_i q_i', Omega = N P N + N + S with the covariance
    P of the offsets and S of `unmix.core.stated_counts.class_covariances`.

    Parameters
    ----------
    logits : (n,) or (n, K)
    set_index : (n,)
        The set of each row, 0..m-1.
    shares : (m,) or (m, K)
        Moved in by half a row where they are 0 or 1.
    tau : float
        Standard deviation of the set effect; 0 for covariate shift.
    variances : float, (m,) or (m, K)
        Of the stated count, from `unmix.core.stated_counts.count_variance`.

    Returns
    -------
    values : (m,)
        0 for a set without rows.
    gradient : of the shape of `logits`
    by_log_tau : (m,)
        Derivative of each value by log tau.
    """
    return _nll(_moments(logits, set_index, shares, variances), checked_tau(tau))


def best_effect_nll(
    logits: npt.ArrayLike,
    set_index: npt.ArrayLike,
    shares: npt.ArrayLike,
    variances: npt.ArrayLike = 0.0,
) -> tuple[FloatArray, FloatArray, float]:
    """Return `set_effect_nll` and its gradient at the tau that suits these sets best, and tau.

    The gradient is that of the minimum over tau, by the envelope theorem.

    Parameters and their shapes are those of `set_effect_nll`.

    Returns
    -------
    values : (m,)
    gradient : of the shape of `logits`
    tau : float
    """
    moments = _moments(logits, set_index, shares, variances)
    tau = _best_tau(moments)
    return *_nll(moments, tau)[:2], tau


def total_variances(
    logits: npt.ArrayLike,
    set_index: npt.ArrayLike,
    shares: npt.ArrayLike,
    tau: float,
    variances: npt.ArrayLike = 0.0,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the offsets b_j, the slopes N_j / n_j and the variances T_j of the offsets.

    Parameters and their shapes are those of `set_effect_nll`.

    Returns
    -------
    offsets : (m,) or (m, K - 1)
        Of every class but class 0.
    slopes : (m,) or (m, K - 1, K - 1)
        v_j: the derivative of the mean probability by the offset.
    totals : (m,) or (m, K - 1, K - 1)
        T_j; meaningless for a set without rows.
    """
    return _totals(_moments(logits, set_index, shares, variances), checked_tau(tau))


def effect_size(
    logits: npt.ArrayLike,
    set_index: npt.ArrayLike,
    shares: npt.ArrayLike,
    variances: npt.ArrayLike = 0.0,
) -> float:
    """Return the tau that suits the stated shares of these sets best, given their rows' logits.

    Parameters
    ----------
    logits : (n,) or (n, K)
    set_index : (n,)
    shares : (m,) or (m, K)
    variances : float, (m,) or (m, K)
        Of the stated counts.
    """
    return _best_tau(_moments(logits, set_index, shares, variances))


def known_set_offsets(
    logits: npt.ArrayLike,
    set_index: npt.ArrayLike,
    shares: npt.ArrayLike,
    tau: float,
    variances: npt.ArrayLike = 0.0,
    counted: npt.ArrayLike | None = None,
) -> FloatArray:
    """Return the expected effect of each set, given its stated share: add it to its rows' logits.

    Formula (r_j rows were counted for the share of set j)::

        b_j tau^2 / T_j,    T_j = tau^2 + 1 / (r_j v_j) + s_j^2 / (n_j v_j)^2

    Works as well for sets that were not in training but whose share is stated.

    Parameters and their shapes are those of `set_effect_nll`, and

    counted : (m,), optional
        Rows of which the stated share was counted, if not these: a share stays as well known as
        it is when only a few rows of its set are at hand.

    Returns
    -------
    (m,) or (m, K)
        0 for a set without rows; class 0 of K is at 0.
    """
    moments = _moments(logits, set_index, shares, variances, counted)
    scale, times = checked_tau(tau), _times_as_many(moments.rows, counted)
    if moments.q.ndim == 1:
        information, omega, _ = _binary_omega(moments, scale, times)
        return np.asarray(moments.offsets * (scale * information) ** 2 / omega)
    information, omega = _class_omega(moments, scale, times)
    pulled = _times(information, _solved(omega, _times(information, moments.offsets[:, 1:])))
    shrunken = pulled @ effect_covariance(scale, moments.q.shape[1])
    return np.hstack([np.zeros((len(shrunken), 1)), shrunken])


def set_effect_hessian(
    logits: npt.ArrayLike,
    set_index: npt.ArrayLike,
    shares: npt.ArrayLike,
    tau: float,
    variances: npt.ArrayLike = 0.0,
) -> FloatArray:
    """Return a positive diagonal in the place of the Hessian of `set_effect_nll`, for boosting.

    Formula (two classes; K classes the same with the diagonals of N and Omega)::

        sigma'_i / (n_j v_j T_j) = sigma'_i N_j / Omega_j

    Parameters and their shapes are those of `set_effect_nll`.

    Returns
    -------
    of the shape of `logits`
    """
    moments, scale = _moments(logits, set_index, shares, variances), checked_tau(tau)
    own = moments.q * (1 - moments.q)
    if own.ndim == 1:
        information, omega, _ = _binary_omega(moments, scale)
        return np.asarray(own * (information / omega)[moments.set_index])
    full = _class_information(moments)
    total = full @ full * scale**2 / 2 + full + class_covariances(moments.variances)
    ratio = np.einsum("mkk->mk", full) / np.einsum("mkk->mk", total)
    return np.asarray(own * ratio[moments.set_index])


class _Moments(NamedTuple):
    """Checked input and what the rows say at the offsets of their sets."""

    set_index: IntArray  # (n,)
    rows: IntArray  # (m,)
    offsets: FloatArray  # (m,) or (m, K)
    q: FloatArray  # probabilities at the offsets, (n,) or (n, K)
    variances: FloatArray  # of the counts, like the shares


def _moments(
    logits: npt.ArrayLike,
    set_index: npt.ArrayLike,
    shares: npt.ArrayLike,
    variances: npt.ArrayLike,
    counted: npt.ArrayLike | None = None,
) -> _Moments:
    """Check the input and solve for the offsets."""
    stated = np.asarray(shares, dtype=np.float64)
    z, index = check_rows(logits, set_index, len(np.atleast_1d(stated)))
    if stated.ndim != z.ndim or stated.shape[1:] != z.shape[1:]:
        raise InputError(
            f"shares must have shape (m,) for logits (n,), else (m, K); got {stated.shape} for "
            f"logits of shape {z.shape}."
        )
    if not (np.all(stated >= 0) and np.all(stated <= 1)):
        raise InputError("shares must lie in [0, 1]; noisy counts go to unmix.core.counts.")
    noise = np.asarray(variances, dtype=np.float64)
    if (noise.ndim and noise.shape != stated.shape) or not np.all(noise >= 0):
        raise InputError(
            f"variances must be >= 0 and one number or of the shape of shares {stated.shape}; got "
            f"shape {noise.shape}."
        )
    noise = np.broadcast_to(noise, stated.shape)
    rows = np.bincount(index, minlength=len(stated))
    inside = inside_shares(stated, rows if counted is None else counted)
    offsets = mean_offsets(z, index, inside)
    moved = z + offsets[index]
    return _Moments(
        index, rows, offsets, expit(moved) if z.ndim == 1 else log_sums(moved)[1], noise
    )


def mean_offsets(logits: FloatArray, set_index: IntArray, means: FloatArray) -> FloatArray:
    """Return the offsets that make the mean probability in each set what it should be.

    Parameters
    ----------
    logits : (n,) or (n, K)
    set_index : (n,)
    means : (m,) or (m, K)
        Between 0 and 1, without these.

    Returns
    -------
    (m,) or (m, K)
        Class 0 of K has the offset 0; a set without rows has offsets of 0.
    """
    rows = np.bincount(set_index, minlength=len(means))
    if logits.ndim == 1:
        return binary_tilts(logits, set_index, rows * means, np.zeros(len(rows)))
    num_classes = logits.shape[1]
    exact = np.zeros((len(rows), num_classes, num_classes))
    every = np.ones(means.shape, dtype=bool)
    offsets = class_tilts(logits, set_index, rows[:, None] * means, exact, every)
    offsets[rows == 0] = 0.0
    return offsets


def _nll(moments: _Moments, tau: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return values (m,), gradient and the derivative by log tau (m,); 0 for empty sets."""
    solve = _binary_nll if moments.q.ndim == 1 else _class_nll
    values, gradient, by_log_tau = solve(moments, tau)
    empty = moments.rows == 0
    values[empty] = by_log_tau[empty] = 0.0
    return values, gradient, by_log_tau


def _totals(moments: _Moments, tau: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return offsets, slopes and variances, see `total_variances`."""
    n = np.maximum(moments.rows, 1)
    if moments.q.ndim == 1:
        information, omega, _ = _binary_omega(moments, tau)
        return moments.offsets, information / n, omega / information**2
    information, omega = _class_omega(moments, tau)
    inverse = np.linalg.inv(information)
    totals = inverse @ omega @ inverse
    return moments.offsets[:, 1:], information / n[:, None, None], totals


def _best_tau(moments: _Moments) -> float:
    """Return the tau under which the offsets are most likely."""
    offsets, _, totals = _totals(moments, 0.0)
    rows = moments.rows > 0
    if offsets.ndim == 1:
        return fit_tau(offsets[rows], totals[rows])
    return fit_tau(*independent(offsets[rows], totals[rows])[:2])


def _times_as_many(rows: IntArray, counted: npt.ArrayLike | None) -> FloatArray:
    """Return how many times the rows at hand were counted for the stated share (m,)."""
    if counted is None:
        return np.ones(len(rows))
    return np.asarray(np.asarray(counted, dtype=np.float64) / np.maximum(rows, 1))


def _binary_omega(
    moments: _Moments, tau: float, times: FloatArray | float = 1.0
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return N, Omega and dOmega/dN of each set (m,)."""
    _, rows, _, q, noise = moments
    information = times * set_sums(q * (1 - q), moments.set_index, len(rows)) + LATTICE
    omega = (tau * information) ** 2 + information + times**2 * noise
    return information, omega, 2 * tau**2 * information + 1


def _binary_nll(moments: _Moments, tau: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return values (m,), gradient (n,) and the derivative by log tau (m,) of two classes."""
    index, rows, b, q, _ = moments
    information, omega, omega_slope = _binary_omega(moments, tau)
    pull = b * information / omega
    values = b * information * pull / 2 + np.log(2 * np.pi * omega) / 2 - _log_rows(rows)
    by_offset = information * pull
    by_information = b * pull + (1 / omega - pull**2) * omega_slope / 2
    v = q * (1 - q)
    u = by_information[index] * v * (1 - 2 * q)
    # The offset answers every logit: db = -v_i / sum v.
    total = by_offset + set_sums(u, index, len(rows))
    slope = total / np.maximum(set_sums(v, index, len(rows)), 1e-300)
    by_log_tau = (tau * information) ** 2 * (1 / omega - pull**2)
    return values, u - v * slope[index], by_log_tau


def _log_rows(rows: IntArray) -> FloatArray:
    """Return log n_j (m,): counts become shares."""
    return np.log(np.maximum(rows, 1).astype(np.float64))


def _class_information(moments: _Moments) -> FloatArray:
    """Return N of all classes, rows summing to 0 (m, K, K)."""
    num_sets, num_classes = moments.offsets.shape
    unit = np.full((num_sets, num_classes), num_classes ** (1 / (num_classes - 1)))
    spread = class_spread(moments.q, moments.set_index, num_sets)
    return np.asarray(spread + LATTICE * class_covariances(unit))


def _class_omega(
    moments: _Moments, tau: float, times: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return N and Omega of every class but class 0 (m, K - 1, K - 1)."""
    information = _class_information(moments)[:, 1:, 1:]
    noise = class_covariances(moments.variances)[:, 1:, 1:]
    if times is not None:
        information = information * times[:, None, None]
        noise = noise * times[:, None, None] ** 2
    effect = effect_covariance(tau, moments.q.shape[1])
    return information, information @ effect @ information + information + noise


def _times(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    """Multiply a matrix by a vector in each set: (m, k, k), (m, k) -> (m, k)."""
    return np.asarray(np.einsum("mkl,ml->mk", matrices, vectors))


def _solved(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    """Solve a system in each set: (m, k, k), (m, k) -> (m, k)."""
    return np.asarray(np.linalg.solve(matrices, vectors[:, :, None])[:, :, 0])


def _class_nll(moments: _Moments, tau: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return values (m,), gradient (n, K) and the derivative by log tau (m,) of K classes."""
    index, rows, offsets, q, _ = moments
    num_sets, num_classes = offsets.shape
    b, effect = offsets[:, 1:], effect_covariance(tau, num_classes)
    information, omega = _class_omega(moments, tau)
    inverse = np.asarray(np.linalg.inv(omega), dtype=np.float64)
    moved = _times(information, b)
    pull = _times(inverse, moved)
    _, log_det = np.linalg.slogdet(2 * np.pi * omega)
    values = np.sum(moved * pull, axis=1) / 2 + log_det / 2 - (num_classes - 1) * _log_rows(rows)

    by_omega = (inverse - pull[:, :, None] * pull[:, None, :]) / 2
    reached = effect @ information  # P N
    by_information = b[:, :, None] * pull[:, None, :] + 2 * reached @ by_omega + by_omega
    weights = np.zeros((num_sets, num_classes, num_classes))
    weights[:, 1:, 1:] = (by_information + np.swapaxes(by_information, 1, 2)) / 2
    direct = spread_slope(q, index, weights)
    # The offsets answer every logit: db = -(sum of spreads)^-1 (spread of the row) dz.
    total = _times(information, pull) + set_sums(direct, index, num_sets)[:, 1:]
    plain = class_spread(q, index, num_sets)[:, 1:, 1:]
    ridge = 1e-13 * np.maximum(np.einsum("mkk->m", plain), 1e-280)[:, None, None]
    answer = np.zeros((num_sets, num_classes))
    answer[:, 1:] = _solved(plain + ridge * np.eye(num_classes - 1), total)
    by_tau = np.einsum("mkl,mkl->m", by_omega, 2 * np.swapaxes(information, 1, 2) @ reached)
    return values, direct - row_spread(q, answer[index]), by_tau
