"""How well is the stated share of a held-out set predicted? The log density, for every method.

One scale for label shift, set effects and the baseline without features: the density of the share
itself. Each method gives residuals on the scale of log-odds, what they vary by, and how the share
moves with the log-odds. Residuals of several folds are joined before tau is fitted to them.

This file knows no model and no folds.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from unmix.core.effect_law import fit_tau, independent
from unmix.core.set_effects import total_variances
from unmix.core.share_law import (
    ShareLaw,
    inside_shares,
    log_ratios,
    multinomial_spread,
    shares_by_law,
)
from unmix.core.shares import check_rows
from unmix.core.stated_counts import class_covariances
from unmix.errors import InputError

__all__ = [
    "ShareResiduals",
    "baseline_residuals",
    "join_residuals",
    "label_shift_residuals",
    "log_density",
    "set_effect_residuals",
]

FloatArray = npt.NDArray[np.float64]


class ShareResiduals(NamedTuple):
    """What was stated minus what was predicted, in directions that vary independently.

    Attributes
    ----------
    residuals, variances : (m, K - 1)
        On the scale of log-odds; K classes turned so that a set effect tau adds tau^2 to each.
        nan for a set without rows.
    log_slopes : (m,)
        Log of the derivative of the share by the log-odds, of its determinant for K classes.
    """

    residuals: FloatArray
    variances: FloatArray
    log_slopes: FloatArray


def log_density(residuals: ShareResiduals, tau: float | None = None) -> tuple[FloatArray, float]:
    """Return the log density of every stated share, and the tau it was taken at.

    Formula (two classes)::

        log N(residual; 0, tau^2 + variance) - log slope

    K classes: the density of the shares of classes 1..K-1.

    Parameters
    ----------
    residuals : ShareResiduals
    tau : float, optional
        Fitted to the residuals by maximum likelihood if not given.

    Returns
    -------
    log_density : (m,)
        nan for a set without rows.
    tau : float
    """
    b, variance, log_slopes = residuals
    chosen = fit_tau(b, variance) if tau is None else tau
    total = chosen**2 + variance
    terms = -(b**2) / (2 * total) - np.log(2 * np.pi * total) / 2
    return np.asarray(terms.sum(axis=1) - log_slopes), chosen


def join_residuals(*parts: ShareResiduals) -> ShareResiduals:
    """Put the residuals of several folds one after the other."""
    return ShareResiduals(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def set_effect_residuals(
    logits: npt.ArrayLike,
    set_index: npt.ArrayLike,
    shares: npt.ArrayLike,
    variances: npt.ArrayLike = 0.0,
) -> ShareResiduals:
    """Give residuals under covariate shift with set effects.

    Formula: density N(b_j; 0, T_j) / v_j, see `unmix.core.set_effects`.

    Parameters
    ----------
    logits : (n,) or (n, K)
    set_index : (n,)
    shares : (m,) or (m, K)
    variances : float, (m,) or (m, K)
        Of the stated counts.
    """
    offsets, slopes, totals = total_variances(logits, set_index, shares, 0.0, variances)
    rows = np.bincount(np.asarray(set_index), minlength=len(offsets))
    return _turned(offsets, totals, np.log(slopes) if slopes.ndim == 1 else _log_det(slopes), rows)


def label_shift_residuals(
    logits: npt.ArrayLike,
    set_index: npt.ArrayLike,
    shares: npt.ArrayLike,
    target_prior: npt.ArrayLike,
    law: ShareLaw,
    variances: npt.ArrayLike = 0.0,
) -> ShareResiduals:
    """Give residuals under label shift: stated share against what its rows and other sets say.

    Formula (two classes; s and its error e by `unmix.core.share_law.shares_by_law`)::

        N(logit pi - logit s; 0, tau^2 + e^2) / (pi (1 - pi))

    A count with variance s_j^2 adds s_j^2 / (n pi (1 - pi))^2.

    Parameters
    ----------
    logits : (n,) or (n, K)
        At the target prior.
    set_index : (n,)
    shares : (m,) or (m, K)
    target_prior : float or (K,)
    law : ShareLaw
        Of the shares of the sets of training.
    variances : float, (m,) or (m, K)
        Of the stated counts.
    """
    stated = np.asarray(shares, dtype=np.float64)
    z, index = check_rows(logits, set_index, len(stated))
    _check_shares(stated, z.ndim)
    rows = np.bincount(index, minlength=len(stated))
    prior = np.asarray(target_prior, dtype=np.float64)
    kappa = np.stack([1 - prior, prior]) if z.ndim == 1 else prior
    both = z if z.ndim == 2 else np.stack([np.zeros_like(z), z], axis=1)
    found, errors = shares_by_law(both, index, len(stated), kappa, law)
    inside = _both(inside_shares(stated, rows))
    errors = errors + _noise_variance(inside, rows, variances)
    return _turned(log_ratios(inside) - found, errors, np.log(inside).sum(axis=1), rows)


def baseline_residuals(
    shares: npt.ArrayLike,
    rows: npt.ArrayLike,
    mean_log_ratios: npt.ArrayLike,
    variances: npt.ArrayLike = 0.0,
) -> ShareResiduals:
    """Give residuals without features: shares scatter about the mean of the training sets.

    Formula (two classes)::

        N(logit pi - mean; 0, tau^2 + 1 / (n pi (1 - pi))) / (pi (1 - pi))

    Parameters
    ----------
    shares : (m,) or (m, K)
    rows : (m,)
    mean_log_ratios : float or (K - 1,)
        Mean of `log_ratios(inside_shares(...))` over the training sets.
    variances : float, (m,) or (m, K)
        Of the stated counts.
    """
    inside = _both(inside_shares(shares, rows))
    n = np.asarray(rows)
    residual = log_ratios(inside) - np.asarray(mean_log_ratios, dtype=np.float64)
    errors = _sampling_variance(inside, n) + _noise_variance(inside, n, variances)
    return _turned(residual, errors, np.log(inside).sum(axis=1), n)


def _check_shares(shares: FloatArray, ndim: int) -> None:
    """Refuse shares of another number of classes than the logits."""
    if shares.ndim != ndim:
        raise InputError(f"shares must go with the logits, (m,) or (m, K); got {shares.shape}.")


def _both(shares: FloatArray) -> FloatArray:
    """Return the shares of every class (m, K)."""
    return shares if shares.ndim == 2 else np.stack([1 - shares, shares], axis=1)


def _sampling_variance(shares: FloatArray, rows: npt.NDArray[np.int64]) -> FloatArray:
    """Return the covariance of log-ratios of shares of these rows."""
    return np.asarray(np.linalg.inv(multinomial_spread(shares, np.maximum(rows, 1))))


def _noise_variance(
    shares: FloatArray, rows: npt.NDArray[np.int64], variances: npt.ArrayLike
) -> FloatArray:
    """Return what the noise of stated counts adds to the covariance of log-ratios."""
    inverse = _sampling_variance(shares, rows)
    noise = np.asarray(variances, dtype=np.float64)
    if shares.shape[1] == 2 and noise.ndim < 2:
        matrix = np.broadcast_to(noise, len(shares))[:, None, None]
    else:
        matrix = class_covariances(np.broadcast_to(noise, shares.shape))[:, 1:, 1:]
    return np.asarray(inverse @ matrix @ inverse)


def _log_det(matrices: FloatArray) -> FloatArray:
    """Return log det of each matrix (m,)."""
    return np.asarray(np.linalg.slogdet(matrices)[1])


def _turned(
    residuals: FloatArray,
    covariances: FloatArray,
    log_slopes: FloatArray,
    rows: npt.NDArray[np.int64],
) -> ShareResiduals:
    """Turn residuals (m,) or (m, K - 1) into directions that vary independently."""
    b = residuals.reshape(len(residuals), -1)
    free = b.shape[1]
    turned, variances, log_scale = independent(b, covariances.reshape(-1, free, free))
    log_slopes = log_slopes + log_scale
    empty = rows == 0
    turned[empty] = variances[empty] = np.nan
    log_slopes[empty] = np.nan
    return ShareResiduals(turned, variances, np.asarray(log_slopes))
