"""The class shares of a set, read off the logits of its rows.

Two rules, one per assumption: maximum likelihood when all sets share p(x | class) (label shift),
the mean predicted probability when they share p(class | x) (covariate shift). All sets are solved
at once with one pass over the rows per iteration; nothing of size n x m is built.

This file knows no model, no stated set priors and no set names.
"""

import numpy as np
import numpy.typing as npt
from scipy.special import chdtr, chdtri, expit, softmax

from unmix.core.class_shares import check_prior
from unmix.core.simplex import simplex_errors, simplex_factors, simplex_maximum
from unmix.core.sums_by_set import decreasing_root, set_sums
from unmix.errors import InputError

__all__ = [
    "check_rows",
    "interpolated",
    "matching_threshold",
    "share_by_likelihood",
    "share_by_mean",
    "share_interval",
    "share_profile",
    "share_spread",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

ROOTS, MOST_ROOT = 7, 3.5  # of a profile likelihood, on each side of its maximum


def check_rows(
    logits: npt.ArrayLike, set_index: npt.ArrayLike, num_sets: int
) -> tuple[FloatArray, IntArray]:
    """Return logits as float64 (n,) or (n, K) and set_index as int64 (n,), or say what is wrong.

    Raises
    ------
    InputError
        If a logit is not finite, the lengths differ, or an index lies outside 0..num_sets-1.
    """
    scores = np.asarray(logits, dtype=np.float64)
    index = np.asarray(set_index)
    if scores.ndim not in (1, 2) or (scores.ndim == 2 and scores.shape[1] < 2):
        raise InputError(
            f"logits must have shape (n,) for two classes or (n, K); got {scores.shape}: "
            "pass one logit per row, of the positive class."
        )
    if index.shape != scores.shape[:1] or (index.size and index.dtype.kind not in "iu"):
        raise InputError(
            f"set_index must hold one integer per row of logits ({len(scores)}); got shape "
            f"{index.shape} of {index.dtype}: number the sets from 0."
        )
    if not np.isfinite(scores).all():
        row = int(np.flatnonzero(~np.isfinite(scores.reshape(len(scores), -1)).all(axis=1))[0])
        raise InputError(f"logits must be finite; row {row} holds {scores[row]}: check the model.")
    if index.size and (index.min() < 0 or index.max() >= num_sets):
        worst = int(index.max() if index.max() >= num_sets else index.min())
        raise InputError(
            f"set_index must lie in 0..{num_sets - 1}; got {worst}: number the sets from 0."
        )
    return scores, index.astype(np.int64)


def share_by_likelihood(
    logits: npt.ArrayLike, set_index: npt.ArrayLike, num_sets: int, target_prior: npt.ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Estimate every set's class shares by maximum likelihood, assuming label shift.

    Parameters
    ----------
    logits : (n,) or (n, K)
        Log-odds of the positive class at the target prior, or K logits.
    set_index : (n,)
        The set of each row, 0..num_sets-1.
    num_sets : int
        Number of sets m; a set may have no rows.
    target_prior : float or (K,)
        Class prior at which the logits hold, inside (0, 1); for two classes one share will do.

    Returns
    -------
    shares : (m,) or (m, K)
        Shares, exactly 0 or 1 where the likelihood is largest there; nan for a set with no rows.
        Where the likelihood of a set is flat (its rows say nothing) the target prior is returned.
    standard_errors : (m,) or (m, K)
        From the observed information, see Formula; inf where the likelihood is flat, nan for no
        rows.

    Notes
    -----
    Formula, with eta the softmax of the logits and kappa the target prior, for each set::

        maximise over s in the simplex   sum_i log sum_k s_k eta_ik / kappa_k
        information  I_kl = sum_i (l_ik / f_i) (l_il / f_i),  l = eta / kappa,  f = l s

    The standard error is the root of the diagonal of I's inverse on the simplex (shares sum to 1).
    A share at 0 or 1 keeps the curvature found there: the error then says how fast the likelihood
    falls off into the simplex, a width for one side only. `share_interval` is better there for two
    classes. The errors hold the logits fixed: they know nothing of a wrong model.

    Two classes are solved by Newton steps kept inside a shrinking bracket, K classes by Newton
    steps projected to shares >= 0. Both problems are concave, so the start does not matter.
    """
    scores, index = check_rows(logits, set_index, num_sets)
    target = check_prior(target_prior, 2 if scores.ndim == 1 else scores.shape[1])
    rows = np.bincount(index, minlength=num_sets)
    if scores.ndim == 2:
        likelihoods = np.asarray(softmax(scores - np.log(target), axis=1))
        shares = simplex_maximum(likelihoods, index, num_sets, target)
        errors = simplex_errors(likelihoods, index, shares)
    else:
        likelihoods = _two_likelihoods(scores, target)
        shares = _positive_shares(likelihoods, index, num_sets, target[1])
        _, slope = _score(likelihoods, index, shares)
        with np.errstate(divide="ignore"):
            errors = 1 / np.sqrt(-slope)
    shares[rows == 0] = np.nan
    errors[rows == 0] = np.nan
    return shares, errors


def share_by_mean(
    logits: npt.ArrayLike, set_index: npt.ArrayLike, num_sets: int
) -> tuple[FloatArray, FloatArray]:
    """Estimate every set's class shares by the mean probability, assuming covariate shift.

    Parameters
    ----------
    logits : (n,) or (n, K)
        Log-odds of the positive class, or K logits.
    set_index : (n,)
        The set of each row, 0..num_sets-1.
    num_sets : int
        Number of sets m.

    Returns
    -------
    shares : (m,) or (m, K)
        Mean of sigmoid(logits) or of softmax(logits) over the rows of each set; nan without rows.
    standard_errors : (m,) or (m, K)
        Sample deviation / sqrt(n_j); inf for a single row, nan for none.

    Examples
    --------
    >>> share_by_mean([0.0, 1000.0, -1000.0], [0, 0, 1], 2)[0]
    array([0.75, 0.  ])
    """
    scores, index = check_rows(logits, set_index, num_sets)
    eta = expit(scores) if scores.ndim == 1 else softmax(scores, axis=1)
    columns = eta.reshape(len(eta), -1)  # (n, 1) or (n, K)
    rows = np.bincount(index, minlength=num_sets)[:, None]  # (m, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = set_sums(columns, index, num_sets) / rows
        squares = set_sums((columns - shares[index]) ** 2, index, num_sets)
        errors = np.where(rows == 1, np.inf, np.sqrt(squares / (rows - 1) / rows))
    errors[rows[:, 0] == 0] = np.nan
    if scores.ndim == 1:
        return shares[:, 0], errors[:, 0]
    return shares, errors


def share_interval(
    logits: npt.ArrayLike,
    set_index: npt.ArrayLike,
    num_sets: int,
    target_prior: npt.ArrayLike,
    confidence: float = 0.95,
) -> tuple[FloatArray, FloatArray]:
    """Give the profile-likelihood interval of every set's share of positives (two classes).

    Parameters
    ----------
    logits : (n,)
        Log-odds of the positive class at the target prior.
    set_index : (n,)
        The set of each row, 0..num_sets-1.
    num_sets : int
        Number of sets m.
    target_prior : float
        Share of positives at which the logits hold.
    confidence : float
        Coverage aimed at.

    Returns
    -------
    low, high : (m,)
        The shares at which the log-likelihood lies chi2.ppf(confidence, 1) / 2 below its maximum,
        or 0 and 1 where it never does; nan for a set with no rows.
    """
    scores, index = check_rows(logits, set_index, num_sets)
    target = check_prior(target_prior, 2 if scores.ndim == 1 else scores.shape[1])
    likelihoods = _two_likelihoods(scores, target)
    best = _positive_shares(likelihoods, index, num_sets, target[1])
    floor = _log_likelihood(likelihoods, index, best) - chdtri(1, 1 - confidence) / 2

    def below(share: FloatArray) -> tuple[FloatArray, FloatArray]:
        score, _ = _score(likelihoods, index, share)
        return floor - _log_likelihood(likelihoods, index, share), -score

    def above(share: FloatArray) -> tuple[FloatArray, FloatArray]:
        value, slope = below(share)
        return -value, -slope

    zeros, ones = np.zeros(num_sets), np.ones(num_sets)
    # A bracket of no width keeps the bound at 0 or 1 when the likelihood stays above the floor.
    low = decreasing_root(below, zeros, np.where(below(zeros)[0] > 0, best, 0.0))
    high = decreasing_root(above, np.where(above(ones)[0] < 0, best, 1.0), ones)
    empty = np.bincount(index, minlength=num_sets) == 0
    low[empty] = high[empty] = np.nan
    return low, high


def share_profile(
    logits: npt.ArrayLike, set_index: npt.ArrayLike, num_sets: int, target_prior: npt.ArrayLike
) -> FloatArray:
    """Give every set's share of positives as a function of the signed root of its likelihood.

    A standard normal in the place of the root draws a share from its likelihood: `interpolated`.

    Parameters
    ----------
    logits, set_index, num_sets, target_prior
        As for `share_interval`.

    Returns
    -------
    (m, 2 ROOTS + 1)
        The shares at roots that are evenly spaced in [-MOST_ROOT, MOST_ROOT], not decreasing; that
        of maximum likelihood in the middle.
    """
    roots = np.linspace(0, MOST_ROOT, ROOTS + 1)[1:]
    middle, _ = share_by_likelihood(logits, set_index, num_sets, target_prior)
    sides = [
        share_interval(logits, set_index, num_sets, target_prior, float(chdtr(1, root**2)))
        for root in roots
    ]
    below, above = [low for low, _ in sides[::-1]], [high for _, high in sides]
    return np.stack([*below, middle, *above], axis=1)


def interpolated(profile: FloatArray, roots: FloatArray) -> FloatArray:
    """Return the shares of a profile (m, 2 ROOTS + 1) at roots (d, m), (d, m)."""
    place = ((roots / MOST_ROOT + 1) * ROOTS).clip(0, 2 * ROOTS)
    left = np.minimum(place.astype(np.int64), 2 * ROOTS - 1)
    sets, part = np.arange(len(profile)), place - left
    return np.asarray((1 - part) * profile[sets, left] + part * profile[sets, left + 1])


def share_spread(
    logits: npt.ArrayLike, set_index: npt.ArrayLike, shares: FloatArray, target_prior: FloatArray
) -> FloatArray:
    """Return what K - 1 standard normals are multiplied by to be errors of shares (m, K, K - 1).

    Parameters
    ----------
    logits : (n, K)
    set_index : (n,)
    shares : (m, K)
        Of maximum likelihood.
    target_prior : (K,)
        At which the logits hold.
    """
    scores, index = check_rows(logits, set_index, len(shares))
    likelihoods = np.asarray(softmax(scores - np.log(target_prior), axis=1))
    return simplex_factors(likelihoods, index, shares)


def matching_threshold(probabilities: npt.ArrayLike, share: float) -> float:
    """Return the threshold at which the share of rows at or above it is nearest to a given one.

    Parameters
    ----------
    probabilities : (n,)
    share : float
        In [0, 1].

    Examples
    --------
    >>> matching_threshold([0.1, 0.2, 0.3, 0.9], 0.5)
    0.3
    """
    values = np.sort(np.asarray(probabilities, dtype=np.float64))
    # Rows at or above each candidate; the last one, above all rows, has none.
    candidates = np.append(values, np.nextafter(values[-1], np.inf))
    reached = 1 - np.searchsorted(values, candidates) / len(values)
    # The larger of two equally near ones: in doubt fewer rows are positive.
    return float(candidates[::-1][np.argmin(abs(reached - share)[::-1])])


def _two_likelihoods(scores: FloatArray, target: FloatArray) -> FloatArray:
    """Return p(x | negative) and p(x | positive), up to a factor per row (2, n)."""
    shifted = scores - np.log(target[1]) + np.log(target[0])
    # Both sigmoids, not one and its complement: the small one keeps its digits.
    return np.stack([expit(-shifted), expit(shifted)])


def _log_likelihood(likelihoods: FloatArray, index: IntArray, share: FloatArray) -> FloatArray:
    """Return each set's log-likelihood at its share of positives (m,)."""
    with np.errstate(divide="ignore"):
        logs = np.log(_mixed(likelihoods, index, share))
    return set_sums(logs, index, len(share))


def _score(
    likelihoods: FloatArray, index: IntArray, share: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the first and the second derivative of each set's log-likelihood (m,), (m,)."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = (likelihoods[1] - likelihoods[0]) / _mixed(likelihoods, index, share)
        return set_sums(ratio, index, len(share)), -set_sums(ratio**2, index, len(share))


def _mixed(likelihoods: FloatArray, index: IntArray, share: FloatArray) -> FloatArray:
    """Return p(x) of each row in its set at the set's share of positives (n,)."""
    mixed = (1 - share)[index] * likelihoods[0] + share[index] * likelihoods[1]
    return np.asarray(mixed)


def _positive_shares(
    likelihoods: FloatArray, index: IntArray, num_sets: int, flat: float
) -> FloatArray:
    """Maximise each set's log-likelihood over its share of positives (m,)."""
    zeros, ones = np.zeros(num_sets), np.ones(num_sets)
    low = np.where(_score(likelihoods, index, ones)[0] >= 0, 1.0, 0.0)
    high = np.where(_score(likelihoods, index, zeros)[0] <= 0, 0.0, 1.0)
    undecided = low > high  # both ends look best: every row has the same likelihood in both classes
    low[undecided] = high[undecided] = flat
    return decreasing_root(lambda share: _score(likelihoods, index, share), low, high)
