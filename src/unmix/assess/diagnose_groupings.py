"""The diagnosis of several groupings of the same rows: of each by itself, and of all together.

What one grouping cannot tell another may; what they say of the same rows must agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from unmix.assess.diagnose import LEVELS, Diagnosis, diagnose
from unmix.assess.diagnosis_messages import Finding
from unmix.core.class_shares import ClassShares, check_errors

__all__ = ["diagnose_groupings"]

FloatArray = npt.NDArray[np.float64]

CLEARLY = 3.0  # standard errors by which average shares differ, and at least
LEAST_DIFFERENCE = 0.01  # of two shares that were rounded to two digits


def diagnose_groupings(
    shares: ClassShares,
    set_sizes: npt.ArrayLike,
    columns: Sequence[str],
    *,
    set_ids: Sequence[Any],
    prior_errors: npt.ArrayLike | None = None,
    target_prior: npt.ArrayLike | None = None,
) -> Diagnosis:
    """Diagnose the sets of several groupings.

    The numbers about judging are those of the grouping that tells most; the effective numbers of
    labels add, for each grouping sees other differences, up to the number of rows.

    Parameters
    ----------
    shares : ClassShares
        Of the sets of all groupings, which know their grouping.
    set_sizes : (m,)
    columns : sequence of str
        What the groupings are called.
    set_ids, prior_errors, target_prior
        As for `diagnose`, of all sets.
    """
    sizes, grouping = np.asarray(set_sizes), shares.grouping
    if grouping is None:
        return diagnose(
            shares,
            sizes,
            set_ids=set_ids,
            prior_errors=prior_errors,
            target_prior=target_prior,
        )
    found, findings = [], []
    for g, name in enumerate(columns):
        own = np.flatnonzero(grouping == g)
        one = diagnose(
            shares.take(own).grouped(None),
            sizes[own],
            set_ids=[set_ids[j] for j in own.tolist()],
            prior_errors=None if prior_errors is None else np.asarray(prior_errors)[own],
            target_prior=target_prior,
        )
        found.append(one)
        findings += [replace(of, message=f"{name}: {of.message}") for of in one.findings]
    findings += _disagreements(shares, sizes, columns, prior_errors)
    best = max(found, key=lambda one: np.nan_to_num(one.worth_in_labels))
    rows = max(one.num_rows for one in found)
    worth = min(float(rows), float(np.nansum([one.worth_in_labels for one in found])))
    parts = ", ".join(
        f"{name} {one.worth_in_labels:,.0f}" for name, one in zip(columns, found, strict=True)
    )
    ends = sorted((one.smallest_set for one in found), key=lambda end: end[1]) + sorted(
        (one.largest_set for one in found), key=lambda end: end[1]
    )
    return replace(
        best,
        num_sets=sum(one.num_sets for one in found),
        num_rows=rows,
        worth_in_labels=worth,
        smallest_set=ends[0],
        largest_set=ends[-1],
        single_row_sets=sum(one.single_row_sets for one in found),
        small_sets=sum(one.small_sets for one in found),
        expectation=(
            f"{len(columns)} groupings of the same rows; the effective number of labels is about "
            f"{worth:,.0f} ({parts}). By {columns[found.index(best)]}: {best.expectation}"
        ),
        findings=tuple(sorted(findings, key=lambda finding: LEVELS.index(finding.level))),
    )


def _disagreements(
    shares: ClassShares, sizes: FloatArray, columns: Sequence[str], errors: npt.ArrayLike | None
) -> list[Finding]:
    """Say which groupings give the same rows average shares that clearly differ.

    Rates of populations scatter about the shares of the rows by the binomial law, and more by their
    standard errors; what rows without a set in one grouping do to its average is said, not known.
    """
    stated = check_errors(errors, len(shares))
    means, variances, rows = [], [], []
    for g in range(len(columns)):
        own = shares.grouping == g
        theta, weights = shares.matrix[own], sizes[own] / max(float(sizes[own].sum()), 1.0)
        per_row = theta * (1 - theta) / np.maximum(sizes[own], 1)[:, None]
        means.append(weights @ theta)
        variances.append(weights**2 @ (per_row + stated[own][:, None] ** 2))
        rows.append(int(sizes[own].sum()))
    found = []
    for g in range(1, len(columns)):
        difference = abs(means[g] - means[0])
        error = np.sqrt(variances[g] + variances[0])
        k = int(np.argmax(difference - CLEARLY * error)) if shares.num_classes > 2 else 1
        if difference[k] <= max(CLEARLY * error[k], LEAST_DIFFERENCE):
            continue
        missing = "" if rows[g] == rows[0] else f" ({rows[0]:,} and {rows[g]:,} rows have a set)"
        of = "positives" if shares.num_classes == 2 else f"class {k}"
        found.append(
            Finding(
                level="warning",
                subject="groupings",
                message=(
                    f"{columns[0]} and {columns[g]} disagree: the average share of {of} is "
                    f"{means[0][k]:.3f} by {columns[0]} and {means[g][k]:.3f} by {columns[g]}"
                    f"{missing}."
                ),
                cure="Check that both tables are of the same rows, time and definition.",
            )
        )
    return found
