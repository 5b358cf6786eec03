"""The class shares of sets and groups of rows, by a fitted classifier.

Finds out which sets are known and what makes a group; `unmix.assess.prevalence` does the rest.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from unmix.assess.entries import Entries
from unmix.assess.prevalence import Prevalence, prevalence
from unmix.core.share_precision import SharePrecision, precision_by_counts
from unmix.data.grouped_priors import set_name
from unmix.data.priors import Priors, factor_ids, is_grouped
from unmix.errors import InputError
from unmix.learn.estimator import SetClassifier

__all__ = ["MISSING", "prevalence_of", "prevalence_of_logits"]

Array = np.ndarray[Any, Any]

MISSING = "missing"  # what rows without a value are called


def prevalence_of(
    clf: SetClassifier,
    X: Any,
    sets: Any = None,
    *,
    by: Any = None,
    set_priors: Any = None,
    confidence: float = 0.95,
) -> Prevalence:
    """Estimate the class shares of sets, or of groups of rows, by a fitted classifier.

    Parameters
    ----------
    clf : UnmixClassifier
    X, sets, by, set_priors, confidence
        As for `UnmixClassifier.prevalence`.
    """
    if isinstance(by, str):
        if not isinstance(X, pd.DataFrame) or by not in X.columns:
            raise InputError(f"X has no column {by!r}; pass its values: by=frame[{by!r}]")
        by = X[by]
    logits = clf.logits_at(X, clf.learner_.base_prior)
    return prevalence_of_logits(
        clf,
        logits,
        clf.resampled_logits(X),
        sets,
        by=by,
        set_priors=set_priors,
        confidence=confidence,
    )


def prevalence_of_logits(
    clf: SetClassifier,
    logits: Array,
    resampled: Array,
    sets: Any = None,
    *,
    by: Any = None,
    set_priors: Any = None,
    confidence: float = 0.95,
) -> Prevalence:
    """Do the same for logits (n,) or (n, K), and resampled ones, at the learner's base prior."""
    if set_priors is None and getattr(sets, "name", None) in clf.groupings_:
        sets = sets.to_frame()
    if is_grouped(sets) and len(sets.columns) == 1 and not clf.groupings_:
        sets = sets.iloc[:, 0]
    if is_grouped(sets):
        options = {"by": by, "set_priors": set_priors, "confidence": confidence}
        return _of_groupings(clf, logits, resampled, sets, **options)
    if sets is None and by is None:
        raise InputError("say what the shares are by: sets, by, or both")
    if sets is None:  # of rows whose sets nobody names
        logits, resampled = clf.learner_.lone(logits), _lone_fits(clf, resampled)
    groups = None if by is None else _groups(by)
    set_ids: list[Hashable] = ["all rows"]
    codes = np.zeros(len(logits), dtype=np.int64)
    if sets is not None:
        codes, set_ids = factor_ids(sets)
    elif set_priors is not None:
        raise InputError("set_priors are the shares of sets: pass the set of each row")
    for name, column in (("sets", codes), ("by", codes if groups is None else groups[0])):
        if len(column) != len(logits):
            raise InputError(f"X has {len(logits)} rows and {name} has {len(column)}")
    shares = precision = None
    # By set alone the question is what the share is, so that only shares given with it are used.
    if sets is not None and (by is not None or set_priors is not None):
        rows = np.bincount(codes, minlength=len(set_ids))
        shares, precision = _known_shares(clf, sets, set_ids, rows, set_priors)
    named: dict[str, Any] = (
        {} if groups is None else {"groups": groups[0], "group_values": groups[1]}
    )
    return prevalence(
        logits,
        codes,
        len(set_ids),
        clf.learner_.base_prior,
        set_ids=[str(i) for i in set_ids],
        assumption=clf.method_row_.assumption,
        confidence=confidence,
        tau=clf.learner_.tau,
        resampled=resampled,
        set_shares=shares,
        precision=precision,
        trust=clf.trust_inside_,
        by=(str(getattr(sets, "name", None) or "set"),) if groups is None else groups[2],
        **named,
    )


def _lone_fits(clf: SetClassifier, resampled: Array) -> Array:
    """Move resampled logits (R, n) or (R, n, K) as those of lone rows, all but a third.

    How far rows inside a set are told apart is not known either: it may be as far as the model
    would.
    """
    moved = resampled.copy()
    for fit in range(len(resampled)):
        if fit % 3:
            moved[fit] = clf.learner_.lone(resampled[fit])
    return moved


def _of_groupings(
    clf: SetClassifier, logits: Array, resampled: Array, sets: pd.DataFrame, **options: Any
) -> Prevalence:
    """Do it for the sets of several groupings; they are called as in training.

    Without `by` each grouping is for itself. With it the rows of all known sets are told by the
    shares of all: what the other groupings add to those of the first is held fixed.
    """
    named = [_named(sets.iloc[:, i]) for i in range(sets.shape[1])]
    given = options["set_priors"]
    if given is not None:
        given = options["set_priors"] = clf.given_priors(given, sets)
    if options["by"] is not None:
        priors = clf.priors_of_training(refined=True) if given is None else given
        place = {set_id: j for j, set_id in enumerate(priors.set_ids)}
        index = np.stack(
            [names.map(place).fillna(-1).to_numpy(np.int64) for names in named], axis=1
        )
        # A row that is in no known set has nothing to be told by.
        known, base = clf.method_row_.assumption.known_set, clf.learner_.base_prior
        first, inside = index[:, 0], index[:, 0] >= 0
        others = known(logits, index, priors.set_priors.matrix, base) - logits
        alone = known(logits[inside], first[inside], priors.set_priors.matrix, base)
        others[inside] -= alone - logits[inside]
        names = named[0].where(named[0].notna(), "no set")
        return prevalence_of_logits(clf, logits + others, resampled + others, names, **options)
    found = []
    for names in named:
        rows = names.notna().to_numpy()
        if rows.any():
            one = (logits[rows], resampled[:, rows], names[rows])
            found.append(prevalence_of_logits(clf, *one, **options))
    if not found:
        raise InputError("no row has a set")
    return replace(
        found[0],
        sets=Entries.joined([one.sets for one in found]),
        by=("set",),
        known_sets=sum(one.known_sets for one in found),
    )


def _named(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return the sets of one grouping by the names that they have among those of all."""
    codes, values = pd.factorize(column)
    names = [*(set_name(column.name, value) for value in values.tolist()), None]
    return pd.Series(np.array(names, dtype=object)[codes], name="set")  # no name of a grouping


def _known_shares(
    clf: SetClassifier, sets: Any, set_ids: list[Hashable], rows: Array, set_priors: Any
) -> tuple[Array, SharePrecision]:
    """Return the shares of the sets that are known, nan for the others (m, K), and how well."""
    if set_priors is None:  # as stated: what rows say of a share with an error is found here
        priors, said = clf.priors_of_training(), clf.learner_.set_priors.precision
        known_errors = clf.prior_errors_
    else:
        priors = clf.in_class_order(Priors.of(set_priors))
        sizes = dict(zip(set_ids, rows.tolist(), strict=True))
        priors = priors.resolved([sizes.get(set_id, 0) for set_id in priors.set_ids])
        said, known_errors = priors.set_priors.precision, priors.standard_errors
    place = {set_id: j for j, set_id in enumerate(priors.set_ids)}
    if set_priors is not None and not any(set_id in place for set_id in set_ids):
        priors.find_sets(sets, unused="keep")  # says what does not match
    where = np.array([place.get(set_id, -1) for set_id in set_ids])
    known = where >= 0
    found = np.full((len(set_ids), priors.set_priors.num_classes), np.nan)
    found[known] = priors.set_priors.matrix[where[known]]
    counted, errors = precision_by_counts(np.nan_to_num(found), rows).counted, np.zeros(len(rows))
    if said is not None:
        counted[known] = said.counted[where[known]]
    if known_errors is not None:
        errors[known] = known_errors[where[known]]
    return found, SharePrecision(counted, errors)


def _groups(by: Any) -> tuple[Array, list[tuple[str, ...]], tuple[str, ...]]:
    """Return the group of each row (n,), the values of each group, and the names of the columns."""
    frame = by if isinstance(by, pd.DataFrame) else pd.DataFrame({_name(by): np.asarray(by)})
    if not frame.shape[1]:
        raise InputError("by has no column")
    index: Array = np.zeros(len(frame), dtype=np.int64)
    values: list[tuple[str, ...]] = [()]
    for _, column in frame.items():
        codes, labels = _coded(column)
        index = index * len(labels) + codes
        present, index = np.unique(index, return_inverse=True)
        values = [(*values[i // len(labels)], labels[i % len(labels)]) for i in present.tolist()]
    return index, values, tuple(str(name) for name in frame.columns)


def _name(by: Any) -> str:
    """Return the name of a column, or 'group'."""
    return str(getattr(by, "name", None) or "group")


def _coded(column: pd.Series[Any]) -> tuple[Array, list[str]]:
    """Return codes and the values in order, those without a value last."""
    codes, uniques = pd.factorize(column)
    found = uniques.tolist()
    try:
        order = sorted(range(len(found)), key=found.__getitem__)
    except TypeError:  # of several kinds: as they come
        order = list(range(len(found)))
    rank = np.empty(len(found) + 1, dtype=np.int64)
    rank[order] = np.arange(len(found))
    rank[-1] = len(found)  # code -1
    labels = [_text(found[i]) for i in order]
    return rank[codes], [*labels, MISSING] if (codes < 0).any() else labels


def _text(value: Any) -> str:
    """Return a value as text, numbers in the shortest way."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
