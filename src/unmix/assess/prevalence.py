"""The class shares of new sets, with intervals, from a trained classifier's logits.

Answers "what is the share in this set?" for sets whose shares nobody stated. This file knows
neither the model nor the sets it was trained on.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from unmix.assess.estimates import Share, frozen_share, plain
from unmix.assess.priors import set_names
from unmix.core.shares import check_rows, share_by_likelihood, share_by_mean, share_interval
from unmix.errors import InputError

__all__ = ["Assumption", "Prevalence", "SetShare", "prevalence"]

Assumption = Literal["label shift", "covariate shift"]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)  # there may be a million
class SetShare:
    """The share of positives in one set, or of each of K classes, with its interval.

    A set with no rows has nan in all three.
    """

    set_id: str
    rows: int
    share: Share
    low: Share
    high: Share


@dataclass(frozen=True)
class Prevalence:
    """The class shares of every set.

    Attributes
    ----------
    assumption : str
        'label shift' or 'covariate shift'.
    confidence : float
        Coverage the intervals aim at.
    method : str
        How shares and intervals were made.
    sets : tuple of SetShare
        One entry per set, in order.
    """

    assumption: str
    confidence: float
    method: str
    sets: tuple[SetShare, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain values for JSON; nan becomes None."""
        values: dict[str, Any] = plain(self)
        return values


def prevalence(
    logits: npt.ArrayLike,
    set_index: npt.ArrayLike,
    num_sets: int,
    target_prior: npt.ArrayLike,
    *,
    set_ids: Any = None,
    confidence: float = 0.95,
    assumption: Assumption = "label shift",
) -> Prevalence:
    """Estimate the class shares of every set.

    The intervals hold the model fixed: they cover the chance of which rows are in a set, not the
    error of the classifier, and are too narrow where its logits are not log-odds.

    Parameters
    ----------
    logits : (n,) or (n, K)
        Log-odds of the positive class at the target prior, or K logits.
    set_index : (n,)
        The set of each row, 0..num_sets-1.
    num_sets : int
        Number of sets m.
    target_prior : float or (K,)
        Class shares at which the logits hold. Not used under covariate shift.
    set_ids : sequence, optional
        Names of the sets; 0, 1, ... if left out.
    confidence : float
        Coverage aimed at by each interval on its own.
    assumption : 'label shift' or 'covariate shift'
        Whether the sets share p(x | class) or p(class | x).

    Returns
    -------
    Prevalence

    Notes
    -----
    Label shift: the maximum-likelihood share (`share_by_likelihood`). For two classes the interval
    holds the shares whose log-likelihood lies at most chi2.ppf(confidence, 1) / 2 below the
    maximum, which stays honest near 0 and 1; for K classes it is share +- z standard errors, cut
    off at 0 and 1. Covariate shift: the mean predicted probability +- z standard errors, cut off.
    """
    if assumption not in get_args(Assumption):
        raise InputError(
            f"assumption must be 'label shift' or 'covariate shift'; got {assumption!r}."
        )
    if not 0 < confidence < 1:
        raise InputError(f"confidence must lie inside (0, 1); got {confidence}: try 0.95.")
    scores, index = check_rows(logits, set_index, num_sets)
    names = set_names(set_ids, num_sets)
    if assumption == "covariate shift":
        shares, errors = share_by_mean(scores, index, num_sets)
        low, high = _within_errors(shares, errors, confidence)
        method = "mean predicted probability; normal interval, model held fixed"
    elif scores.ndim == 1:
        shares, _ = share_by_likelihood(scores, index, num_sets, target_prior)
        low, high = share_interval(scores, index, num_sets, target_prior, confidence)
        method = "maximum likelihood; profile-likelihood interval, model held fixed"
    else:
        shares, errors = share_by_likelihood(scores, index, num_sets, target_prior)
        low, high = _within_errors(shares, errors, confidence)
        method = "maximum likelihood; normal interval cut off at 0 and 1, model held fixed"
    rows = np.bincount(index, minlength=num_sets)
    table = zip(names, rows.tolist(), shares.tolist(), low.tolist(), high.tolist(), strict=True)
    sets = tuple(SetShare(name, count, *map(frozen_share, ends)) for name, count, *ends in table)
    return Prevalence(assumption, confidence, method, sets)


def _within_errors(
    shares: FloatArray, errors: FloatArray, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Return share -+ z standard errors, cut off at 0 and 1."""
    half = ndtri((1 + confidence) / 2) * errors
    return (shares - half).clip(0, 1), (shares + half).clip(0, 1)
