"""The class shares of sets and of groups of rows, with intervals, from a classifier's logits.

Answers "what is the share in this set?" for sets whose shares nobody stated, and "what is the share
among these people?" for rows of sets known and new. This file knows neither the model nor the sets
it was trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from unmix.assess.diagnosis_messages import set_names
from unmix.assess.entries import Entries
from unmix.assess.estimates import Share, plain
from unmix.core.assumptions import LABEL_SHIFT, Assumption, ShareEstimate, assumption_named
from unmix.core.class_shares import check_prior
from unmix.core.share_draws import ScoredSets
from unmix.core.share_precision import SharePrecision
from unmix.core.shares import check_rows
from unmix.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["GroupShare", "Prevalence", "SetShare", "new_set_shares", "prevalence"]

FloatArray = npt.NDArray[np.float64]

AT_A_TIME = 20_000  # sets whose shares are sought together


@dataclass(frozen=True, slots=True)
class SetShare:
    """The share of positives in one set, or of each of K classes, with its interval.

    A set with no rows has nan in all three.
    """

    set_id: str
    rows: int
    share: Share
    low: Share
    high: Share


@dataclass(frozen=True, slots=True)
class GroupShare:
    """The same for the rows that have one value, or one pair of values, of other columns."""

    group: tuple[str, ...]
    """One value per column."""
    rows: int
    share: Share
    low: Share
    high: Share


@dataclass(frozen=True)
class Prevalence:
    """The class shares of every set, or of every group of rows.

    Attributes
    ----------
    assumption : str
        'label shift', 'covariate shift' or 'set effects'.
    confidence : float
        Coverage the intervals aim at.
    method : str
        How shares and intervals were made.
    sets : Entries of SetShare
        One entry per set, in order; empty if the shares are by groups.
    groups : Entries of GroupShare
        One entry per group, in order; empty if the shares are by set.
    by : tuple of str
        What the shares are by: the name of the set column, or of the columns that make groups.
    known_sets : int
        How many of the sets have shares that were known and used.
    """

    assumption: str
    confidence: float
    method: str
    sets: Entries[SetShare]
    groups: Entries[GroupShare]
    by: tuple[str, ...] = ("set",)
    known_sets: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain values for JSON; nan becomes None."""
        values: dict[str, Any] = plain(self)
        return values

    def to_frame(self, classes: Sequence[Any] | None = None) -> pd.DataFrame:
        """Return one row per set or group: what it is, rows, share, low, high.

        Parameters
        ----------
        classes : sequence of K, optional
            Names of the classes, for columns such as share_red; 0, 1, ... if left out. With two
            classes the columns are share, low and high of the positives.
        """
        import pandas as pd

        found = self.groups or self.sets
        labels = [e.group if isinstance(e, GroupShare) else (e.set_id,) for e in found]
        table = pd.DataFrame(labels, columns=list(self.by), dtype=object)
        table["rows"] = np.array([entry.rows for entry in found], dtype=np.int64)
        for end in ("share", "low", "high"):
            values = np.array([getattr(entry, end) for entry in found], dtype=np.float64)
            if values.ndim == 1:
                table[end] = values
                continue
            names = range(values.shape[1]) if classes is None else classes
            for name, column in zip(names, values.T, strict=True):
                table[f"{end}_{name}"] = column
        return table


def prevalence(
    logits: npt.ArrayLike,
    set_index: npt.ArrayLike,
    num_sets: int,
    target_prior: npt.ArrayLike,
    *,
    set_ids: Any = None,
    confidence: float = 0.95,
    assumption: str | Assumption = LABEL_SHIFT,
    tau: float = 0.0,
    resampled: npt.ArrayLike | None = None,
    set_shares: npt.ArrayLike | None = None,
    precision: SharePrecision | None = None,
    trust: float = 1.0,
    groups: npt.ArrayLike | None = None,
    group_values: Sequence[tuple[str, ...]] = (),
    by: Sequence[str] = ("set",),
) -> Prevalence:
    """Estimate the class shares of every set, or of groups of rows that may cross the sets.

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
    assumption : Assumption, or its name: 'label shift', 'covariate shift' or 'set effects'
        Whether the sets share p(x | class) or p(class | x).
    tau : float
        Standard deviation of the effect of a set; not used under label shift.
    resampled : (R, n) or (R, n, K), optional
        Logits of the same rows by fits to resampled sets. Without them the intervals hold the
        model fixed, and are too narrow.
    set_shares : (m,) or (m, K), optional
        Shares of sets that are known; nan for those that are not. If left out, none is.
    precision : SharePrecision, optional
        How well they are known; by whether they are whole counts of rows if left out.
    trust : float
        How far rows of one set may be told apart once its share is known, from 0 to 1.
    groups : (n,), optional
        The group of each row, 0..g-1: the shares of groups are told instead of those of sets.
    group_values : sequence of g tuples
        What the rows of each group have in common.
    by : sequence of str
        Names of what the shares are by.

    Returns
    -------
    Prevalence

    Notes
    -----
    New sets under label shift: the maximum-likelihood share (`share_by_likelihood`). For two
    classes the interval holds the shares whose log-likelihood lies at most
    chi2.ppf(confidence, 1) / 2 below the maximum, which stays honest near 0 and 1; for K classes it
    is share +- z standard errors. Each half is then widened: the root of its square plus that of z
    times the spread of the shares by the resampled fits.

    All else: the mean of the rows' probabilities, and quantiles of seeded draws of the fit, the
    effects of the sets (label shift: their shares) and the classes of the rows: see
    `unmix.core.share_draws`. Rows of a new set share one effect that nobody knows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sets = np.repeat([0, 1], 1000)
    >>> positive = rng.random(2000) < np.array([0.2, 0.7])[sets]
    >>> found = prevalence(rng.normal(4 * positive - 2, 2), sets, 2, 0.5)
    >>> all(s.low < t < s.high for s, t in zip(found.sets, (0.2, 0.7), strict=True))
    True
    """
    assumed = assumption_named(assumption)
    if not 0 < confidence < 1:
        raise InputError(f"confidence must lie inside (0, 1); got {confidence}: try 0.95.")
    scores, index = check_rows(logits, set_index, num_sets)
    num_classes = 2 if scores.ndim == 1 else scores.shape[1]
    sets = ScoredSets(
        scores,
        index,
        num_sets,
        check_prior(target_prior, num_classes),
        tau,
        _checked_fits(resampled, scores),
        None if set_shares is None else _checked_shares(set_shares, num_sets, num_classes),
        precision,
        trust,
    )
    known = int(sets.known.sum())
    if groups is None:
        names = set_names(set_ids, num_sets)
        if known:
            found = assumed.group_shares(sets, index, num_sets, confidence)
        else:
            found = new_set_shares(assumed, sets, confidence)
        table = Entries(SetShare, *_columns(names, index, found))
        no_groups = Entries.none(GroupShare)
        return Prevalence(assumed.name, confidence, found.how, table, no_groups, tuple(by), known)
    cells = check_rows(scores, groups, len(group_values))[1]
    found = assumed.group_shares(sets, cells, len(group_values), confidence)
    parts = Entries(GroupShare, *_columns(group_values, cells, found))
    no_sets = Entries.none(SetShare)
    return Prevalence(assumed.name, confidence, found.how, no_sets, parts, tuple(by), known)


def new_set_shares(
    assumed: Assumption, sets: ScoredSets, confidence: float, at_a_time: int = AT_A_TIME
) -> ShareEstimate:
    """Return the class shares of sets whose shares nobody stated, with intervals.

    By likelihood each set is for itself: of more sets than `at_a_time` only so many are in work.
    """
    if assumed.profile is None or sets.num_sets <= at_a_time:
        return assumed.new_set_shares(sets, confidence)
    order = np.argsort(sets.set_index, kind="stable")  # rows of a set in their order: the same sums
    ends = np.append(0, np.cumsum(np.bincount(sets.set_index, minlength=sets.num_sets)))
    found = []
    for first in range(0, sets.num_sets, at_a_time):
        last = min(first + at_a_time, sets.num_sets)
        rows = order[ends[first] : ends[last]]
        part = replace(
            sets,
            logits=sets.logits[rows],
            set_index=sets.set_index[rows] - first,
            num_sets=last - first,
            resampled=None if sets.resampled is None else sets.resampled[:, rows],
            stated=None,
            precision=None,
        )
        found.append(assumed.new_set_shares(part, confidence))
    shares, low, high = (
        np.concatenate([getattr(one, end) for one in found]) for end in ("shares", "low", "high")
    )
    return ShareEstimate(shares, low, high, found[0].how)


def _columns(names: Sequence[Any], index: Any, found: ShareEstimate) -> tuple[Any, ...]:
    """Return names, rows, shares and the two ends of their intervals, of the sets or groups."""
    rows = np.bincount(index, minlength=len(names))
    return names, rows, found.shares, found.low, found.high


def _checked_fits(resampled: npt.ArrayLike | None, scores: FloatArray) -> FloatArray | None:
    """Return the resampled logits, or say what is wrong with them."""
    if resampled is None:
        return None
    fits = np.asarray(resampled, dtype=np.float64)
    if fits.shape[1:] != scores.shape or not np.isfinite(fits).all():
        raise InputError(
            f"resampled must hold finite logits of each fit for rows of shape {scores.shape}; got "
            f"shape {fits.shape}."
        )
    return fits


def _checked_shares(shares: npt.ArrayLike, num_sets: int, num_classes: int) -> FloatArray:
    """Return known shares (m, K) with rows of nan for sets that are not known."""
    values = np.asarray(shares, dtype=np.float64)
    if values.ndim == 1 and num_classes == 2:
        values = np.stack((1 - values, values), axis=1)
    if values.shape != (num_sets, num_classes) or (values < 0).any() or (values > 1).any():
        raise InputError(
            f"set_shares must hold shares in [0, 1], or nan, of {num_sets} sets and {num_classes} "
            f"classes; got shape {values.shape}."
        )
    return values
