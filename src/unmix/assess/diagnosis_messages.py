"""What there is to say about sets before training: a sentence each, with a cure.

One list of problems serves `diagnose`, which reports them all, and `evaluate`, which stops at the
first. This file knows no rows and no logits, and computes nothing that chooses no sentence.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unmix.assess.class_rates import share_covariance
from unmix.core.class_shares import check_prior, error_problems, share_problems
from unmix.errors import InputError

__all__ = [
    "SMALL_SET",
    "Finding",
    "count_findings",
    "prior_covariance",
    "prior_findings",
    "prior_problems",
    "set_names",
    "size_findings",
    "target_findings",
    "target_problems",
]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Finding:
    """Something worth knowing about the sets.

    Attributes
    ----------
    level : str
        'ok', 'note', 'warning' or 'error'.
    subject : str
        What it is about: 'set priors', 'set sizes', 'number of sets', ...
    message : str
        One plain sentence.
    cure : str
        What to do; empty if nothing is to be done.
    """

    level: str
    subject: str
    message: str
    cure: str = ""


def set_names(set_ids: Any, num_sets: int) -> tuple[str, ...]:
    """Return the names of the sets as text: the ids given, or 0, 1, ..."""
    if set_ids is None:
        return tuple(str(j) for j in range(num_sets))
    names = tuple(str(name) for name in set_ids)
    if len(names) != num_sets:
        raise InputError(f"set_ids must name all {num_sets} sets; got {len(names)} names.")
    return names


def prior_problems(
    set_priors: FloatArray, names: tuple[str, ...], prior_errors: FloatArray | None = None
) -> list[Finding]:
    """List what makes the stated shares unusable, one finding for each kind of mistake.

    Parameters
    ----------
    set_priors : (m,) or (m, K)
        Stated shares.
    names : tuple of str, length m
        Names of the sets, for the messages.
    prior_errors : (m,) or (m, K), optional
        Stated standard errors.

    Returns
    -------
    list of Finding
        All of level 'error'; empty if the priors can be used.
    """
    found = [("set priors", problem) for problem in share_problems(set_priors, names)]
    if prior_errors is not None:
        found += [("prior errors", problem) for problem in error_problems(prior_errors, names)]
    return [
        Finding("error", subject, f"{problem.message}.", f"{_capital(problem.cure)}.")
        for subject, problem in found
    ]


def prior_covariance(
    prior_errors: npt.ArrayLike | None, num_sets: int, num_classes: int, names: tuple[str, ...]
) -> FloatArray | None:
    """Return the covariance of the errors of stated shares (m, K, K), None for exact shares.

    Parameters
    ----------
    prior_errors : (m,) or (m, K), optional
        One standard error per set counts for the share of each of its classes.
    num_sets, num_classes : int
    names : tuple of str, length m
    """
    if prior_errors is None:
        return None
    errors = np.asarray(prior_errors, dtype=np.float64)
    if errors.shape not in ((num_sets,), (num_sets, num_classes)):
        raise InputError(
            f"prior_errors must hold one standard error per set ({num_sets}), or one per class "
            f"and set; got shape {errors.shape}."
        )
    for problem in error_problems(errors, names):
        raise InputError(f"{problem}.")
    columns = errors[:, None] if errors.ndim == 1 else errors
    return share_covariance(np.broadcast_to(columns, (num_sets, num_classes)))


def _capital(words: str) -> str:
    """Begin a sentence."""
    return words[:1].upper() + words[1:]


SMALL_SET = 30  # rows
FEW_SETS = 5
NARROW = 0.05  # standard deviation of set priors below which they hardly differ
FEW_LABELS = 100


def target_problems(target_prior: Any, num_classes: int) -> list[Finding]:
    """Report a target prior that is no class prior."""
    if target_prior is None:
        return []
    try:
        check_prior(target_prior, num_classes, "The target prior")
    except InputError as error:
        return [Finding("error", "target prior", f"{error}.", "Give a share such as 0.2.")]
    return []


def prior_findings(
    numbers: dict[str, Any], theta: FloatArray, covariance: FloatArray | None
) -> list[Finding]:
    """Say whether and how well the priors tell the classes apart."""
    num_classes = theta.shape[1]
    subject = "set priors"
    if numbers["rank"] < num_classes:
        message = (
            "All sets have the same share, so the classes cannot be told apart."
            if num_classes == 2
            else f"The stated shares tell only {numbers['rank']} of {num_classes} classes apart."
        )
        cure = "Add sets with other shares, or split the sets by something the shares depend on."
        return [Finding("error", subject, message, cure)]
    findings = []
    worth = numbers["worth_in_labels"]
    if numbers["spread"] < NARROW:
        message = f"The stated shares differ little (standard deviation {numbers['spread']:.3f})."
        cure = "Add sets with lower or higher shares; they help most."
        findings.append(Finding("warning", subject, message, cure))
    if worth < FEW_LABELS:
        message = f"The effective number of labels is only about {worth:.0f}."
        cure = "Add rows or sets with more extreme shares, or label a few hundred rows instead."
        findings.append(Finding("warning", "worth in labels", message, cure))
    pure = int(np.sum(theta.max(axis=1) == 1))
    if pure:
        message = (
            f"{_count(pure, 'set holds', 'sets hold')} a single class and count as labeled rows."
        )
        findings.append(Finding("ok", subject, message))
    if covariance is not None:
        noise = float(np.mean(np.einsum("jkk->j", covariance)))
        signal = float(np.sum(theta.var(axis=0)))
        if noise > signal / 4:
            message = (
                f"The errors of the stated shares ({np.sqrt(noise / num_classes):.2g}) are large "
                f"compared with their spread ({np.sqrt(signal / num_classes):.2g})."
            )
            cure = "Estimate the shares along with the model, or get better shares."
            findings.append(Finding("warning", "prior errors", message, cure))
    if not any(finding.level == "warning" for finding in findings):
        message = f"The stated shares tell the {num_classes} classes apart."
        findings.append(Finding("ok", subject, message))
    return findings


def target_findings(target: FloatArray, theta: FloatArray) -> list[Finding]:
    """Warn of a target prior that no mixture of the sets has."""
    outside = (target < theta.min(axis=0)) | (target > theta.max(axis=0))
    if not outside.any():
        return []
    k = int(np.flatnonzero(outside)[-1])
    message = (
        f"The base rate {target[k]:g} of class {k} (target prior) lies outside the stated shares "
        f"({theta[:, k].min():g} to {theta[:, k].max():g}), so accuracy there is extrapolated."
    )
    return [Finding("warning", "target prior", message, "Expect wider intervals there.")]


def size_findings(sizes: FloatArray, names: tuple[str, ...]) -> list[Finding]:
    """Report sets without rows, with one row and with few."""
    findings = []
    empty, single = np.flatnonzero(sizes == 0), int(np.sum(sizes == 1))
    small = int(np.sum((sizes > 0) & (sizes < SMALL_SET)))
    subject = "set sizes"
    bad = np.flatnonzero(~(sizes >= 0))
    if len(bad):
        message = f"Set sizes must be >= 0; set '{names[bad[0]]}' has {sizes[bad[0]]:g}."
        findings.append(Finding("error", subject, message, "Count the rows of each set."))
    elif len(empty) == len(sizes):
        message = "No set has any rows."
        cure = "Check that set ids in rows and priors are spelled the same way."
        findings.append(Finding("error", subject, message, cure))
    elif len(empty):
        message = (
            f"{_count(len(empty), 'set has', 'sets have')} no rows, first '{names[empty[0]]}'."
        )
        cure = "Check that set ids in rows and priors are spelled the same way."
        findings.append(Finding("note", subject, message, cure))
    if single:
        message = f"{_count(single, 'set has', 'sets have')} a single row."
        findings.append(Finding("note", subject, message))
    if small:
        message = f"{_count(small, 'set has', 'sets have')} fewer than {SMALL_SET} rows."
        cure = (
            "Small sets can be used: an exact count of their rows says much, the rate of where "
            "they came from little."
        )
        findings.append(Finding("note", subject, message, cure))
    return findings


def count_findings(num_sets: int, num_classes: int) -> list[Finding]:
    """Say whether there are enough sets to test the assumption."""
    subject = "number of sets"
    cure = "Split the sets or add more, if their shares are known."
    if num_sets < num_classes:
        message = f"{_count(num_sets, 'set', 'sets')} cannot tell {num_classes} classes apart."
        return [Finding("error", subject, message, cure)]
    if num_sets == num_classes:
        message = f"Label shift, the assumption, cannot be tested with {num_sets} sets."
        return [Finding("warning", subject, message, cure)]
    if num_sets < FEW_SETS + num_classes - 2:
        message = (
            f"With {num_sets} sets, the test of label shift (the assumption) has little power."
        )
        return [Finding("warning", subject, message, cure)]
    message = f"{num_sets:,} sets are enough to test label shift (the assumption) after training."
    return [Finding("ok", subject, message)]


def _count(number: int, one: str, many: str) -> str:
    """Return '1 set has' or '3 sets have'."""
    return f"{number:,} {one if number == 1 else many}"
