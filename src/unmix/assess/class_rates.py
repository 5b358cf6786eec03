"""How a classifier treats each class, from how often it says what in each set.

Under label shift the rates in a set are a mixture of the rates in the classes, with the set prior
as the mixture. Weighted least squares over sets undoes it. This file knows only rates and sizes
of sets: no logits, no labels, no intervals.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unmix.core.class_shares import nearest_in_simplex, share_rank
from unmix.errors import IdentifiabilityError

__all__ = [
    "RateFit",
    "decide",
    "fit_class_rates",
    "rate_variances",
    "set_combination",
    "share_covariance",
    "share_moves",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RateFit:
    """Class rates and what their errors need.

    Attributes
    ----------
    class_rates : (K, C)
        Rate of each outcome in each class, every row moved to the nearest point of the simplex.
    combination : (K, m)
        A, which turns set rates into class rates; A Theta is the identity.
    fitted : (m, C)
        Theta class_rates, kept off 0 and 1 by what one row may change.
    sizes : (m,)
        Rows of each set.
    priors : (m, K)
        The shares that fit best: the stated ones unless these have errors.
    covariance : (m, K, K) or None
        Covariance of the errors of the stated shares.
    """

    class_rates: FloatArray
    combination: FloatArray
    fitted: FloatArray
    sizes: FloatArray
    priors: FloatArray
    covariance: FloatArray | None

    def variance(self, coefficients: FloatArray) -> float:
        """Return the variance of sum_kc coefficients_kc class_rates_kc.

        Formula, with d_j = A_.j' coefficients (C,) the part of set j::

            sum_j (sum_c d_jc^2 r_jc - (sum_c d_jc r_jc)^2) / n_j + (Q d_j)' S_j (Q d_j)

        The first term takes the rows of a set as independent draws. If the stated share is that of
        these very rows, their class counts do not vary and the interval is a little wide.
        """
        parts = self.combination.T @ coefficients  # (m, C)
        means = np.sum(parts * self.fitted, axis=1)
        squares = np.sum(parts**2 * self.fitted, axis=1)
        total = np.sum((squares - means**2) / self.sizes)
        if self.covariance is not None:
            moves = parts @ self.class_rates.T  # (m, K)
            total += np.einsum("jk,jkl,jl->", moves, self.covariance, moves)
        return float(total)

    def entry_variances(self) -> FloatArray:
        """Return the variance of every entry of class_rates (K, C)."""
        squares = self.combination**2  # (K, m)
        variances = squares @ rate_variances(self.fitted, self.sizes, None, self.class_rates)
        if self.covariance is not None:
            variances = variances + squares @ _share_variances(self.covariance, self.class_rates)
        return np.asarray(variances)

    def residuals(self, rates: FloatArray, set_priors: FloatArray) -> FloatArray:
        """Return (observed - fitted) / its standard deviation, per set and outcome (m, C)."""
        spread = rate_variances(self.fitted, self.sizes, self.covariance, self.class_rates)
        free = np.maximum(1 - _leverage(set_priors, self.combination), 1e-12)
        return np.asarray((rates - set_priors @ self.class_rates) / np.sqrt(spread * free[:, None]))


def fit_class_rates(
    rates: FloatArray,
    sizes: FloatArray,
    set_priors: FloatArray,
    covariance: FloatArray | None = None,
) -> RateFit:
    """Fit the rate of each outcome in each class to the rates in the sets.

    Parameters
    ----------
    rates : (m, C)
        Share of each set's rows with each outcome; rows sum to 1. Two classes: C = 2.
    sizes : (m,)
        Rows behind each set's rates, all > 0.
    set_priors : (m, K)
        Stated class shares Theta.
    covariance : (m, K, K), optional
        Covariance of the errors of the stated shares, see `share_covariance`.

    Returns
    -------
    RateFit

    Raises
    ------
    IdentifiabilityError
        If the set priors cannot tell the classes apart.

    Notes
    -----
    Formula: `rates = Theta Q`, solved for Q by::

        Q = A rates,  A = (H' W Theta)^-1 H' W,  W_j = 1 / mean_c var(rates_jc)
        var(rates_jc) = r_jc (1 - r_jc) / n_j + Q_.c' S_j Q_.c        at the fitted r = Theta Q

    begun at W_j = n_j and repeated twice. With two classes W is n_j / (r_j (1 - r_j)), and the
    second term (TPR - FPR)^2 s_j^2. One weight per set, not per entry, keeps the rows of Q summing
    to 1.

    H = Theta for exact shares. Shares with errors would pull the rates of the classes together
    (regression dilution), so H holds the shares refined by the rates themselves, repeated until
    they settle: least squares in both directions.
    """
    _check_rank(set_priors, sizes)
    weights, refined = sizes, set_priors
    for _ in range(3 if covariance is None else 50):
        combination = set_combination(set_priors, refined, weights)
        class_rates = nearest_in_simplex(combination @ rates)
        # A fitted rate may be off by one row among those that determine it, n_j / leverage.
        leverage = _leverage(set_priors, combination)
        one_row = np.clip(leverage / sizes, 1e-12, 0.5)[:, None]
        fitted = np.clip(set_priors @ class_rates, one_row, 1 - one_row)
        weights = 1 / rate_variances(fitted, sizes, covariance, class_rates).mean(axis=1)
        if covariance is not None:
            deviations = rates - set_priors @ class_rates
            last = refined
            refined = set_priors + np.einsum(
                "jkl,jl->jk",
                covariance,
                share_moves(deviations, fitted, sizes, class_rates, covariance),
            )
            if abs(refined - last).max() < 1e-8:
                break
    return RateFit(class_rates, combination, fitted, sizes, refined, covariance)


def set_combination(
    set_priors: FloatArray, instruments: FloatArray, weights: FloatArray
) -> FloatArray:
    """Return A = (H' W Theta)^-1 H' W, from rates of sets to rates of classes (K, m)."""
    weighted = instruments.T * (weights / weights.max())
    return np.linalg.solve(weighted @ set_priors, weighted)


def share_covariance(prior_errors: FloatArray) -> FloatArray:
    """Return a covariance of share errors that sum to 0 with the given standard errors.

    Parameters
    ----------
    prior_errors : (m, K)
        Standard error of each stated share.

    Returns
    -------
    (m, K, K)

    Notes
    -----
    Formula: `S = diag(d) - d d' / sum(d)` with d such that diag(S) = prior_errors^2: the form of a
    multinomial's covariance, so standard errors from counts get back exactly theirs, and two
    classes get s^2 [[1, -1], [-1, 1]].
    """
    squares = prior_errors**2
    scale = squares.copy()
    for _ in range(200):
        total = np.maximum(scale.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        # No class may carry all of the error: another must give what it takes.
        scale = squares / (1 - np.minimum(scale / total, 0.99))
    total = np.maximum(scale.sum(axis=1), np.finfo(float).tiny)
    diagonal = scale[:, :, None] * np.eye(scale.shape[1])
    outer = scale[:, :, None] * scale[:, None, :] / total[:, None, None]
    return np.asarray(diagonal - outer)


def share_moves(
    deviations: FloatArray,
    fitted: FloatArray,
    sizes: FloatArray,
    class_rates: FloatArray,
    covariance: FloatArray,
) -> FloatArray:
    """Return g (m, K) such that S_j g_j is how far the rates move the shares of set j.

    Formula, with D_j = n_j diag(1 / r_j) and e_j the deviations::

        g_j = (I + Q D_j Q' S_j)^-1 Q D_j e_j

    `class_rates` Q is (K, C), or (m, K, C) where the sets have outcomes of their own.
    """
    precision = sizes[:, None] / fitted  # (m, C)
    per_set = np.broadcast_to(class_rates, (len(sizes), *class_rates.shape[-2:]))
    pull = np.einsum("jkc,jc->jk", per_set, precision * deviations)
    gain = np.einsum("jkc,jc,jlc->jkl", per_set, precision, per_set) @ covariance
    return np.asarray(np.linalg.solve(np.eye(gain.shape[1]) + gain, pull[:, :, None])[:, :, 0])


def rate_variances(
    fitted: FloatArray,
    sizes: FloatArray,
    covariance: FloatArray | None,
    class_rates: FloatArray,
) -> FloatArray:
    """Return the variance of every set rate around its fit (m, C)."""
    variances = fitted * (1 - fitted) / sizes[:, None]
    if covariance is not None:
        variances = variances + _share_variances(covariance, class_rates)
    return np.asarray(variances)


def _share_variances(covariance: FloatArray, class_rates: FloatArray) -> FloatArray:
    """Return the variance of every set rate that share errors cause (m, C)."""
    return np.asarray(np.einsum("kc,jkl,lc->jc", class_rates, covariance, class_rates))


def _leverage(set_priors: FloatArray, combination: FloatArray) -> FloatArray:
    """Return how much of each set's fit comes from the set itself (m,)."""
    return np.asarray(np.sum(set_priors * combination.T, axis=1)).clip(0.0, 1.0)


def _check_rank(set_priors: FloatArray, sizes: FloatArray) -> None:
    """Refuse set priors that no number of rows could tell apart."""
    num_classes = set_priors.shape[1]
    if share_rank(set_priors[sizes > 0]) < num_classes:
        raise IdentifiabilityError(
            f"{len(set_priors)} sets with rows do not tell {num_classes} classes apart: their set "
            "priors are too much alike; add sets with other shares."
        )


def decide(logits: FloatArray) -> IntArray:
    """Return the class of each row: 1 where one logit is > 0, the largest of K logits (n,)."""
    if logits.ndim == 1:
        return (logits > 0).astype(np.int64)
    return np.asarray(np.argmax(logits, axis=1))
