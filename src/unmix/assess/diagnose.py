"""Can these sets work at all? What set priors and set sizes say before any training.

Are the classes told apart, how many labeled rows do the sets replace, how sharply could a
classifier be judged without labels, and what looks like a mistake. This file reads no rows.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unmix.assess.class_rates import fit_class_rates
from unmix.assess.diagnosis_messages import (
    SMALL_SET,
    Finding,
    count_findings,
    prior_covariance,
    prior_findings,
    prior_problems,
    set_names,
    size_findings,
    target_findings,
    target_problems,
)
from unmix.assess.effective_labels import worth_in_labels, worth_in_labels_of
from unmix.assess.estimates import Share, frozen_share, plain
from unmix.core.class_shares import ClassShares, check_prior, share_rank
from unmix.errors import InputError

__all__ = ["Diagnosis", "Finding", "diagnose", "worth_in_labels", "worth_in_labels_of"]

FloatArray = npt.NDArray[np.float64]

REFERENCE_RATE = 0.8  # share of each class that the classifier used for planning gets right
LEVELS = ("error", "warning", "note", "ok")


@dataclass(frozen=True)
class Diagnosis:
    """What set priors and set sizes say before training.

    Attributes
    ----------
    num_sets, num_rows, num_classes : int
        Sets with rows, their rows, classes.
    pooled_prior : float or tuple of K floats
        Class shares of all rows together.
    lowest_prior, highest_prior, spread : float
        Two classes: range and standard deviation of the set priors over rows; nan for K.
    rank : int
        Rank of the prior matrix; the classes are told apart if it is the number of classes.
    smallest_singular_value : float
        Of the prior matrix with rows weighted by the root of the set weight; near 0 is bad.
    worth_in_labels : float
        Effective number of labels: labeled rows that would teach as much.
    variance_inflation : float
        Variance of the label-free accuracy over that from as many labeled rows.
    tpr_error, fpr_error, accuracy_error : float
        Standard errors to expect if all these rows were held out, for a classifier that gets 80 %
        of each class right; divide by the root of the held-out share. tpr, fpr: nan for K.
    smallest_set, largest_set : tuple of (str, int)
        Name and rows.
    single_row_sets, small_sets : int
        Sets with one row, and with fewer than 30.
    expectation : str
        What to expect, in words.
    findings : tuple of Finding
        Errors first, then warnings, notes and what is well.

    Numbers that bad priors leave without meaning are nan.
    """

    num_sets: int
    num_rows: int
    num_classes: int
    pooled_prior: Share
    lowest_prior: float
    highest_prior: float
    spread: float
    rank: int
    smallest_singular_value: float
    worth_in_labels: float
    variance_inflation: float
    tpr_error: float
    fpr_error: float
    accuracy_error: float
    smallest_set: tuple[str, int]
    largest_set: tuple[str, int]
    single_row_sets: int
    small_sets: int
    expectation: str
    findings: tuple[Finding, ...]

    @property
    def usable(self) -> bool:
        """Whether no finding is an error."""
        return all(finding.level != "error" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON; nan becomes None."""
        values: dict[str, Any] = plain(self)
        return values


def diagnose(
    set_priors: npt.ArrayLike,
    set_sizes: npt.ArrayLike,
    *,
    set_ids: Any = None,
    prior_errors: npt.ArrayLike | None = None,
    target_prior: npt.ArrayLike | None = None,
) -> Diagnosis:
    """Say whether sets with these shares and sizes can work, and how well.

    Bad shares are reported as findings of level 'error', not raised.

    Parameters
    ----------
    set_priors : (m,) or (m, K)
        Stated class shares of the sets.
    set_sizes : (m,)
        Rows of each set.
    set_ids : sequence of length m, optional
        Names of the sets; 0, 1, ... if left out.
    prior_errors : (m,) or (m, K), optional
        Standard errors of the stated shares.
    target_prior : float or (K,), optional
        Class shares where the classifier will be used; the average share if left out.

    Returns
    -------
    Diagnosis

    Raises
    ------
    InputError
        Only if the arrays do not have one entry per set.

    Notes
    -----
    Formula: `worth_in_labels` for learning; for judging, the standard errors of
    `class_rates.fit_class_rates` at the rates of a classifier that gets 80 % of each class right,
    and the variance of its accuracy over `sum_k target_k^2 0.8 0.2 / (n p_k)`, that of n labeled
    rows.

    Examples
    --------
    >>> found = diagnose([0.2, 0.5, 0.8], [1000, 1000, 1000])
    >>> round(found.worth_in_labels)
    720
    >>> [(finding.level, finding.subject) for finding in found.findings]
    [('warning', 'number of sets'), ('ok', 'set priors')]
    """
    priors = np.asarray(set_priors, dtype=np.float64)
    sizes = np.asarray(set_sizes, dtype=np.float64)
    errors = None if prior_errors is None else np.asarray(prior_errors, dtype=np.float64)
    if priors.ndim not in (1, 2) or sizes.shape != priors.shape[:1]:
        raise InputError(
            f"set_sizes must hold one number per set; got {sizes.shape} sizes for set_priors of "
            f"shape {priors.shape}."
        )
    num_classes = 2 if priors.ndim == 1 else priors.shape[1]
    names = set_names(set_ids, len(priors))
    findings = prior_problems(priors, names, errors)
    findings += target_problems(target_prior, num_classes)
    used = np.flatnonzero(sizes > 0)
    numbers = _unknown_numbers()
    if not findings and len(used):
        shares = ClassShares(priors, names).take(used)
        covariance = prior_covariance(errors, len(priors), num_classes, names)
        covariance = None if covariance is None else covariance[used]
        given = target_prior is not None
        target = check_prior(target_prior, num_classes) if given else shares.pooled(sizes[used])
        numbers = _numbers(shares.matrix, sizes[used], covariance, target)
        findings += prior_findings(numbers, shares.matrix, covariance)
        if given:
            findings += target_findings(target, shares.matrix)
    findings += size_findings(sizes, names) + count_findings(len(used), num_classes)
    rows = sizes[used].astype(int)
    order = used[np.argsort(rows, kind="stable")]
    ends = [(names[j], int(sizes[j])) for j in (*order[:1], *order[-1:])] or [("", 0)] * 2
    return Diagnosis(
        num_sets=len(used),
        num_rows=int(rows.sum()),
        num_classes=num_classes,
        smallest_set=ends[0],
        largest_set=ends[1],
        single_row_sets=int(np.sum(rows == 1)),
        small_sets=int(np.sum(rows < SMALL_SET)),
        expectation=_expectation(numbers, int(rows.sum())),
        findings=tuple(sorted(findings, key=lambda finding: LEVELS.index(finding.level))),
        **numbers,
    )


def _unknown_numbers() -> dict[str, Any]:
    """Return the numbers of sets whose priors have no meaning."""
    fields = (
        "pooled_prior lowest_prior highest_prior spread smallest_singular_value worth_in_labels "
        "variance_inflation tpr_error fpr_error accuracy_error"
    )
    return {**dict.fromkeys(fields.split(), float("nan")), "rank": 0}


def _numbers(
    theta: FloatArray,
    sizes: FloatArray,
    covariance: FloatArray | None,
    target: FloatArray,
) -> dict[str, Any]:
    """Compute all numbers of a diagnosis from valid priors (m, K) of sets with rows."""
    num_classes = theta.shape[1]
    binary = num_classes == 2
    weights = sizes / sizes.sum()
    pooled = weights @ theta
    values = np.linalg.svd(theta * np.sqrt(weights)[:, None], compute_uv=False)
    numbers = _unknown_numbers()
    numbers["pooled_prior"] = float(pooled[1]) if binary else frozen_share(pooled.tolist())
    if binary:
        positive = theta[:, 1]
        numbers["lowest_prior"] = float(positive.min())
        numbers["highest_prior"] = float(positive.max())
        numbers["spread"] = float(np.sqrt(weights @ (positive - pooled[1]) ** 2))
    numbers["rank"] = share_rank(theta)
    numbers["smallest_singular_value"] = float(values[-1]) if len(values) == num_classes else 0.0
    numbers["worth_in_labels"] = worth_in_labels(theta, sizes)
    if numbers["rank"] < num_classes:
        return numbers

    others = (1 - REFERENCE_RATE) / (num_classes - 1)
    reference = np.full((num_classes, num_classes), others)
    np.fill_diagonal(reference, REFERENCE_RATE)
    fit = fit_class_rates(theta @ reference, sizes, theta, covariance)
    variance = fit.variance(np.diag(target))
    within = REFERENCE_RATE * (1 - REFERENCE_RATE)
    from_labels = np.sum(target**2 * within / (sizes.sum() * pooled))
    numbers["accuracy_error"] = float(np.sqrt(variance))
    numbers["variance_inflation"] = float(variance / from_labels)
    if binary:
        deviations = np.sqrt(fit.entry_variances())
        numbers["fpr_error"] = float(deviations[0, 1])
        numbers["tpr_error"] = float(deviations[1, 1])
    return numbers


def _expectation(numbers: dict[str, Any], rows: int) -> str:
    """Say in words what these sets can do."""
    if np.isnan(numbers["accuracy_error"]):
        return "These sets cannot be used as they are; see the errors."
    worth = numbers["worth_in_labels"]
    half = 1.96 * numbers["accuracy_error"] * np.sqrt(5)  # a fifth held out
    judged = "Accuracy cannot be estimated without labels."
    if half < 0.25:
        judged = (
            "If label shift holds, a fifth of the rows held out tells accuracy without labels to "
            f"within about {100 * half:.1f} percentage points."
        )
    return (
        f"The effective number of labels is about {worth:,.0f} ({100 * worth / rows:.1f} % of the "
        f"{rows:,} rows). {judged}"
    )
