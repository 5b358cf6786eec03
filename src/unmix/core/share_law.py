"""What shares sets tend to have, and the share of a set of which only the rows are known.

Under label shift the rows of a set have a likelihood for its share. Twenty rows may be most likely
at a share of 0 or 1, and the likelihood then falls off to one side only: the share is told by its
rows together with the law of the shares of other sets.

This file knows no model and no stated share of the set itself. `tests/reference_counts.py` holds
the literal form.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from unmix.core.effect_law import effect_covariance
from unmix.core.sums_by_set import class_spread, log_sums, set_sums
from unmix.errors import InputError

__all__ = [
    "ShareLaw",
    "inside_shares",
    "log_ratios",
    "multinomial_spread",
    "share_law",
    "shares_by_law",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MOST_STEPS, MOST_DAMPING = 100, 1e12
NEAR = 1e-6  # standard errors


class ShareLaw(NamedTuple):
    """The normal law of the log-ratios of the shares of sets.

    Attributes
    ----------
    mean : (K - 1,)
    covariance : (K - 1, K - 1)
    """

    mean: FloatArray
    covariance: FloatArray


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


def log_ratios(shares: npt.ArrayLike) -> FloatArray:
    """Return log share_k / share_0 for every class but class 0: (m,) or (m, K) -> (m, K - 1)."""
    given = np.asarray(shares, dtype=np.float64)
    both = given if given.ndim == 2 else np.stack([1 - given, given], axis=1)
    return np.asarray(np.log(both[:, 1:]) - np.log(both[:, :1]))


def share_law(shares: npt.ArrayLike) -> ShareLaw:
    """Return the law of the shares of some sets.

    Formula: the mean, and (sum of squares + E) / m. E is what one set more would add if its
    log-ratios varied as set effects of tau = 1 do: few sets may be alike by chance.

    Parameters
    ----------
    shares : (m,) or (m, K)
        Inside the simplex, see `inside_shares`.
    """
    ratios = log_ratios(shares)
    mean = ratios.mean(axis=0)
    left = ratios - mean
    squares = left.T @ left + effect_covariance(1.0, ratios.shape[1] + 1)
    return ShareLaw(mean, squares / len(ratios))


def shares_by_law(
    logits: npt.NDArray[np.floating],
    set_index: IntArray,
    num_sets: int,
    prior: FloatArray,
    law: ShareLaw,
) -> tuple[FloatArray, FloatArray]:
    """Return the most likely log-ratios of the shares of sets, by their rows and a law.

    Formula (t the log-ratios, s their shares, N the law)::

        maximise over t    sum_i log sum_k (s_k / prior_k) softmax(z_i)_k + log N(t)
        covariance         (n (diag(s) - s s') - sum_i (diag(q_i) - q_i q_i') + N.covariance^-1)^-1

    with q_i the class probabilities of row i at the shares s; the covariance is the normal
    approximation of what is not known of t. A set without rows has the law itself.

    Parameters
    ----------
    logits : (n, K)
    set_index : (n,)
    num_sets : int
    prior : (K,)
        At which the logits hold.
    law : ShareLaw

    Returns
    -------
    log_ratios : (m, K - 1)
    covariances : (m, K - 1, K - 1)
    """
    z, index = np.asarray(logits - np.log(prior), dtype=np.float64), set_index
    precision = np.asarray(np.linalg.inv(law.covariance), dtype=np.float64)
    points = np.tile(law.mean, (num_sets, 1))
    found = _posterior(points, z, index, law.mean, precision)
    informations = found.information.copy()
    unsolved = np.arange(num_sets)
    damping = np.zeros(num_sets)
    for _ in range(MOST_STEPS):
        damped = found.information + damping[unsolved, None, None] * np.eye(points.shape[1])
        step = np.linalg.solve(damped, found.slope[:, :, None])[:, :, 0]
        trial = _posterior(points[unsolved] + step, z, index, law.mean, precision)
        better = trial.value >= found.value - 1e-13 * (1 + abs(found.value))
        points[unsolved[better]] += step[better]
        damping[unsolved] = np.where(better, damping[unsolved] / 10, 10 * damping[unsolved] + 1)
        found = _Posterior(
            np.where(better, trial.value, found.value),
            np.where(better[:, None], trial.slope, found.slope),
            np.where(better[:, None, None], trial.information, found.information),
        )
        informations[unsolved] = found.information
        # Beyond this damping no step can climb: the digits of the value are used up.
        left = np.linalg.solve(found.information, found.slope[:, :, None])[:, :, 0]
        far = np.sum(left * found.slope, axis=1) > NEAR**2
        going = far & (damping[unsolved] < MOST_DAMPING)
        if not going.any():
            break
        place = np.where(going, np.cumsum(going) - 1, -1)[index]
        z, index = z[place >= 0], place[place >= 0]
        unsolved, found = unsolved[going], _Posterior(*(array[going] for array in found))
    return points, np.asarray(np.linalg.inv(informations))


class _Posterior(NamedTuple):
    """Log posterior of the log-ratios of each set, its slope and minus its curvature."""

    value: FloatArray  # (m,)
    slope: FloatArray  # (m, K - 1)
    information: FloatArray  # (m, K - 1, K - 1), of the rows where it is above 0, and of the law


def _posterior(
    points: FloatArray, z: FloatArray, index: IntArray, mean: FloatArray, precision: FloatArray
) -> _Posterior:
    """Return the log posterior at log-ratios (m, K - 1); z are the logits minus log prior."""
    m = len(points)
    rows = np.bincount(index, minlength=m)
    added = np.hstack([np.zeros((m, 1)), points])
    total, shares = log_sums(added)
    of_rows, q = log_sums(z + added[index])
    pull = (points - mean) @ precision
    value = set_sums(of_rows, index, m) - rows * total - np.sum((points - mean) * pull, axis=1) / 2
    slope = (set_sums(q, index, m) - rows[:, None] * shares)[:, 1:] - pull
    told = multinomial_spread(shares, rows) - class_spread(q, index, m)[:, 1:, 1:]
    values, vectors = np.linalg.eigh(told)
    kept = np.maximum(values, 0.0)[:, None, :]
    return _Posterior(value, slope, (vectors * kept) @ np.swapaxes(vectors, 1, 2) + precision)


def multinomial_spread(shares: FloatArray, rows: npt.NDArray[np.integer]) -> FloatArray:
    """Return n (diag(s) - s s') of every class but class 0, (m, K) -> (m, K - 1, K - 1)."""
    free = shares[:, 1:]
    spread = free[:, :, None] * np.eye(free.shape[1]) - free[:, :, None] * free[:, None, :]
    return np.asarray(rows[:, None, None] * spread)
