"""Stated set priors: what can be wrong with them, and their matrix form.

One list of problems serves `diagnose`, which reports them all, and `evaluate`, which stops at the
first. This file knows no rows and no logits.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unmix.assess.rates import share_covariance
from unmix.errors import InputError

__all__ = ["Finding", "prior_covariance", "prior_matrix", "prior_problems", "set_names"]

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
    shares = set_priors.reshape(len(set_priors), -1)  # (m, 1) or (m, K)
    with np.errstate(invalid="ignore"):
        checks = [
            (~np.isfinite(shares), "must be numbers", "Fill in the share or drop the set."),
            (shares > 1, "must lie in [0, 1]", _cure_above_one(shares)),
            (shares < 0, "must lie in [0, 1]", "Correct the negative share."),
        ]
    problems = [
        Finding(
            "error", "set priors", f"set priors {must}; {_first_bad(bad, shares, names)}.", cure
        )
        for bad, must, cure in checks
        if bad.any()
    ]
    sums = shares.sum(axis=1, keepdims=True)
    # Published shares are rounded: half a percent per class is allowed.
    far = abs(sums - 1) > 0.005 * shares.shape[1]
    if set_priors.ndim == 2 and not problems and far.any():
        message = f"class shares of a set must sum to 1; {_first_bad(far, sums, names)}."
        problems.append(Finding("error", "set priors", message, "Give a share for every class."))
    if prior_errors is not None:
        errors = prior_errors.reshape(len(shares), -1)
        bad = ~(np.isfinite(errors) & (errors >= 0))
        if bad.any():
            message = f"prior errors must be numbers >= 0; {_first_bad(bad, errors, names)}."
            cure = "Give 0 for a share that is known exactly."
            problems.append(Finding("error", "prior errors", message, cure))
    return problems


def prior_matrix(set_priors: npt.ArrayLike, names: tuple[str, ...]) -> FloatArray:
    """Return the class shares of every set as rows that sum to 1 (m, K), or say what is wrong.

    Two classes, (m,), become the columns (1 - set_priors, set_priors).
    """
    priors = np.asarray(set_priors, dtype=np.float64)
    _check_shape(priors, len(names))
    for problem in prior_problems(priors, names):
        raise InputError(f"{problem.message} {problem.cure}")
    if priors.ndim == 1:
        return np.stack([1 - priors, priors], axis=1)
    return np.asarray(priors / priors.sum(axis=1, keepdims=True))


def prior_covariance(
    prior_errors: npt.ArrayLike | None, set_priors: npt.ArrayLike, names: tuple[str, ...]
) -> FloatArray | None:
    """Return the covariance of the errors of stated shares (m, K, K), None for exact shares."""
    if prior_errors is None:
        return None
    errors = np.asarray(prior_errors, dtype=np.float64)
    priors = np.asarray(set_priors, dtype=np.float64)
    if errors.shape != priors.shape:
        raise InputError(
            f"prior_errors must have the shape of set_priors, {priors.shape}; got {errors.shape}."
        )
    for problem in prior_problems(priors, names, errors):
        raise InputError(f"{problem.message} {problem.cure}")
    return share_covariance(np.stack([errors, errors], axis=1) if errors.ndim == 1 else errors)


def _check_shape(priors: FloatArray, num_sets: int) -> None:
    """Refuse an array that is not one share, or one row of shares, per set."""
    if priors.ndim not in (1, 2) or len(priors) != num_sets or priors.shape[1:] == (1,):
        raise InputError(
            f"set_priors must have shape ({num_sets},) or ({num_sets}, K), one entry per set; "
            f"got {priors.shape}."
        )


def _first_bad(bad: npt.NDArray[np.bool_], values: FloatArray, names: tuple[str, ...]) -> str:
    """Name the first set with a bad value and say how many more there are."""
    j, k = (int(place) for place in np.argwhere(bad)[0])
    more = int(bad.any(axis=1).sum()) - 1
    return f"set '{names[j]}' has {values[j, k]:g}" + (
        f" and {more} more are wrong" if more else ""
    )


def _cure_above_one(shares: FloatArray) -> str:
    """Guess what shares above 1 are meant to be."""
    if np.max(shares, where=np.isfinite(shares), initial=0.0) <= 100:
        return "They look like percentages: divide by 100."
    return "They look like counts: divide by the rows of the set."
