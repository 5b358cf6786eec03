"""The law of set effects, N(0, tau^2): how large tau is, and what it says of rows of new sets.

For two classes an effect is one number. Of K classes it is a vector in which the log-odds of any
two classes vary by tau^2; class 0 is at 0, and the others have the covariance tau^2 (I + J) / 2.

This file knows no rows of known sets: those are in `set_effects`. `tests/reference_counts.py` holds
the literal form.
"""

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import expit

from unmix.core.sums_by_set import log_sums
from unmix.errors import InputError

__all__ = [
    "checked_tau",
    "effect_covariance",
    "effect_points",
    "effect_scale",
    "fit_tau",
    "independent",
    "new_set_probability",
]

FloatArray = npt.NDArray[np.float64]

TAUS = np.geomspace(0.01, 10.0, 31)  # where the search for tau starts


def checked_tau(tau: float) -> float:
    """Return tau, or say what is wrong with it."""
    if not (np.ndim(tau) == 0 and np.isfinite(tau) and tau >= 0):
        raise InputError(f"tau must be one number >= 0; got {tau}.")
    return float(tau)


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


def effect_covariance(tau: float, num_classes: int) -> FloatArray:
    """Return the covariance of the effects of every class but class 0 (K - 1, K - 1)."""
    free = num_classes - 1
    return np.asarray(tau**2 * (np.eye(free) + np.ones((free, free))) / 2)


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


def effect_points(nodes: int = 64) -> tuple[FloatArray, FloatArray]:
    """Return points and weights (nodes,) of the average over N(0, 1): sum of weight * f(point)."""
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    return points, weights / weights.sum()


def effect_scale(tau: float) -> float:
    """Return what logits are multiplied by where the average is only approximated."""
    return float(1 / np.sqrt(1 + np.pi * checked_tau(tau) ** 2 / 8))


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
    z, scale = np.asarray(logits, np.float64), checked_tau(tau)
    if approximate or z.ndim == 2:
        z = z * effect_scale(tau)
        return log_sums(z)[1] if z.ndim == 2 else np.asarray(expit(z))
    if scale == 0:  # there is nothing to average over
        return np.asarray(expit(z))
    total = np.zeros_like(z)
    for point, weight in zip(*effect_points(nodes), strict=True):
        total += weight * expit(z + scale * point)
    return total
