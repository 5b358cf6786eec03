"""The likelihood of stated shares when every set has an offset of its own.

Regions, schools and days differ in more than their rows: p(class | x, set j) = sigma(z + b_j) with
b_j ~ N(0, tau^2). tau = 0 is covariate shift. Here are the offsets, the likelihood with its
gradient, tau itself, and the probabilities of rows of new and of known sets.

K classes: softmax(z + b_j), where b_j is a vector of independent N(0, tau^2 / 2) per class. No
class is special, and the log-odds of any two classes have a set effect of variance tau^2, as two
classes have. In formulas class 0 is at 0; the others have the covariance tau^2 (I + J) / 2.

This file knows no model and no set names. `tests/reference_counts.py` holds the literal form.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import expit

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
    "effect_covariance",
    "effect_points",
    "effect_scale",
    "effect_size",
    "fit_tau",
    "independent",
    "inside_shares",
    "known_set_offsets",
    "mean_offsets",
    "new_set_probability",
    "set_effect_hessian",
    "set_effect_nll",
    "set_offsets",
    "total_variances",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

LATTICE = 1 / (2 * np.pi)  # keeps the probability of a count at or below 1, see `set_effect_nll`
TAUS = np.geomspace(0.01, 10.0, 31)  # where the search for tau starts


def inside_shares(shares: npt.ArrayLike, rows: npt.ArrayLike) -> FloatArray:
    """Move shares of 0 and 1 in by half a row, where their log-odds are finite.

    Parameters
    ----------
    shares : (m,) or (m, K)
    rows : (m,)

    Returns
    -------
    of the shape of `shares`

    Examples
    --------
    >>> inside_shares([0.0, 0.3, 1.0], [10, 10, 10])
    array([0.05, 0.3 , 0.95])
    """
    share, n = np.asarray(shares, np.float64), np.asarray(rows, np.float64)
    if n.shape != share.shape[:1]:
        raise InputError(f"rows must hold one number per set ({len(share)}); got shape {n.shape}.")
    half = 0.5 / np.maximum(n, 1)
    if share.ndim == 1:
        return np.clip(share, half, 1 - half)
    # What the small shares are given, the others lose in proportion to what they have above it.
    least = np.minimum(half, 1 / share.shape[1])[:, None]
    above = np.maximum(share - least, 0)
    total = above.sum(axis=1, keepdims=True)
    part = np.where(total > 0, above / np.where(total > 0, total, 1.0), 1 / share.shape[1])
    return np.asarray(least + (1 - share.shape[1] * least) * part)


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
    return _nll(_moments(logits, set_index, shares, variances), _checked_tau(tau))


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
    return _totals(_moments(logits, set_index, shares, variances), _checked_tau(tau))


def fit_tau(residuals: npt.ArrayLike, variances: npt.ArrayLike) -> float:
    """Return the tau >= 0 under which residuals ~ N(0, tau^2 + variance) are most likely.

    Parameters
    ----------
    residuals, variances : (r,)
        Offsets and what they vary by without set effects: T_j at tau = 0. Entries with variance
        inf or nan are left out.

    Returns
    -------
    float
        0 if no tau is better.

    Examples
    --------
    >>> round(fit_tau([1.0, -1.0], [0.0, 0.0]), 6)
    1.0
    """
    b, e = np.ravel(residuals).astype(np.float64), np.ravel(variances).astype(np.float64)
    if b.shape != e.shape:
        raise InputError(f"residuals and variances must match; got {b.shape} and {e.shape}.")
    kept = np.isfinite(b) & np.isfinite(e)
    b, e = b[kept], e[kept]

    def cost(log_tau: float) -> float:
        total = np.exp(2 * log_tau) + e
        return float(np.sum(b**2 / total + np.log(total)))

    costs = [cost(log_tau) for log_tau in np.log(TAUS)]
    best = int(np.argmin(costs))
    bounds = np.log(TAUS[max(best - 1, 0)]), np.log(TAUS[min(best + 1, len(TAUS) - 1)])
    found = minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": 1e-9})
    with np.errstate(divide="ignore", invalid="ignore"):
        without = float(np.sum(b**2 / e + np.log(e))) if len(b) else 0.0
    return 0.0 if without <= found.fun else float(np.exp(found.x))


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


def effect_points(nodes: int = 64) -> tuple[FloatArray, FloatArray]:
    """Return points and weights (nodes,) of the average over N(0, 1): sum of weight * f(point)."""
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    return points, weights / weights.sum()


def effect_scale(tau: float) -> float:
    """Return what logits are multiplied by where the average is only approximated."""
    return float(1 / np.sqrt(1 + np.pi * _checked_tau(tau) ** 2 / 8))


def new_set_probability(
    logits: npt.ArrayLike, tau: float, *, approximate: bool = False, nodes: int = 64
) -> FloatArray:
    """Return the probability of a row of a set that nobody has seen: the average over its effect.

    Formula (two classes)::

        E sigma(z + b), b ~ N(0, tau^2)           by Gauss-Hermite quadrature
        sigma(z / sqrt(1 + pi tau^2 / 8))         approximate

    K classes: always the approximation, softmax in the place of sigma; the average has no form in
    one dimension.

    Parameters
    ----------
    logits : (n,) or (n, K)
    tau : float
    approximate : bool
    nodes : int
        Of the quadrature.

    Returns
    -------
    of the shape of `logits`
    """
    z, scale = np.asarray(logits, np.float64), _checked_tau(tau)
    if approximate or z.ndim == 2:
        z = z * effect_scale(tau)
        return log_sums(z)[1] if z.ndim == 2 else np.asarray(expit(z))
    if scale == 0:  # there is nothing to average over
        return np.asarray(expit(z))
    total = np.zeros_like(z)
    for point, weight in zip(*effect_points(nodes), strict=True):
        total += weight * expit(z + scale * point)
    return total


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
    scale, times = _checked_tau(tau), _times_as_many(moments.rows, counted)
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
    moments, scale = _moments(logits, set_index, shares, variances), _checked_tau(tau)
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


def _checked_tau(tau: float) -> float:
    """Return tau, or say what is wrong with it."""
    if not (np.ndim(tau) == 0 and np.isfinite(tau) and tau >= 0):
        raise InputError(f"tau must be one number >= 0; got {tau}.")
    return float(tau)


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


def independent(
    offsets: FloatArray, covariances: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """Turn offsets into directions that vary independently, to each of which tau adds tau^2.

    Parameters
    ----------
    offsets : (m, K - 1)
    covariances : (m, K - 1, K - 1)
        What they vary by without set effects.

    Returns
    -------
    turned, variances : (m, K - 1)
    log_scale : float
        Log of the determinant by which the turned offsets are longer.
    """
    # A set effect has the covariance tau^2 (I + J) / 2 = tau^2 R R': undo R, then diagonalise.
    root = np.linalg.cholesky(effect_covariance(1.0, offsets.shape[1] + 1))
    undo = np.linalg.inv(root)
    variances, vectors = np.linalg.eigh(undo @ covariances @ undo.T)
    turned = np.einsum("mkl,mk->ml", vectors, offsets @ undo.T)
    return turned, variances, float(np.linalg.slogdet(root)[1])


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


def effect_covariance(tau: float, num_classes: int) -> FloatArray:
    """Return the covariance of the effects of every class but class 0 (K - 1, K - 1)."""
    free = num_classes - 1
    return np.asarray(tau**2 * (np.eye(free) + np.ones((free, free))) / 2)


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
