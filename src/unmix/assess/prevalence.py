"""The class shares of new sets, with intervals, from a trained classifier's logits.

Answers "what is the share in this set?" for sets whose shares nobody stated. This file knows
neither the model nor the sets it was trained on.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unmix.assess.diagnosis_messages import set_names
from unmix.assess.estimates import Share, frozen_share, plain
from unmix.core.assumptions import LABEL_SHIFT, Assumption, assumption_named
from unmix.core.class_shares import check_prior
from unmix.core.shares import check_rows
from unmix.errors import InputError

__all__ = ["Prevalence", "SetShare", "prevalence"]


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
    assumption: str | Assumption = LABEL_SHIFT,
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
    assumption : Assumption, or its name: 'label shift' or 'covariate shift'
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
    assumed = assumption_named(assumption)
    if not 0 < confidence < 1:
        raise InputError(f"confidence must lie inside (0, 1); got {confidence}: try 0.95.")
    scores, index = check_rows(logits, set_index, num_sets)
    names = set_names(set_ids, num_sets)
    prior = check_prior(target_prior, 2 if scores.ndim == 1 else scores.shape[1])
    found = assumed.estimate_shares(scores, index, num_sets, prior, confidence)
    rows = np.bincount(index, minlength=num_sets)
    ends = (array.tolist() for array in (found.shares, found.low, found.high))
    table = zip(names, rows.tolist(), *ends, strict=True)
    sets = tuple(SetShare(name, count, *map(frozen_share, ends)) for name, count, *ends in table)
    return Prevalence(assumed.name, confidence, f"{found.how}, model held fixed", sets)
