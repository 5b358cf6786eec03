"""Stated set priors: what can be wrong with them, and how sure they are.

One list of problems serves `diagnose`, which reports them all, and `evaluate`, which stops at the
first. This file knows no rows and no logits.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unmix.assess.class_rates import share_covariance
from unmix.core.class_shares import error_problems, share_problems
from unmix.errors import InputError

__all__ = ["Finding", "prior_covariance", "prior_problems", "set_names"]

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
