"""The arguments of the classifier's constructor, checked when `fit` begins.

What depends on the rows or the sets, such as a share for each class, is checked where it is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np

from unmix.data.wording import quoted
from unmix.errors import InputError

__all__ = ["MOST_ERROR", "check_parameters"]

MOST_ERROR = 0.5  # no number between 0 and 1 has a larger standard deviation


def check_parameters(given: Any) -> None:
    """Raise InputError, with the name of the argument and the cure, for the first that is wrong.

    Parameters
    ----------
    given : object
        With the arguments as attributes.
    """
    for name, (allowed, cure) in _ALLOWED.items():
        value = getattr(given, name)
        if not allowed(value):
            raise InputError(f"{name} must be {cure}; got {quoted(value)}")


def _is_strength(value: Any) -> bool:
    return value is None or (_is_real(value) and 0 <= value < math.inf)


def _is_real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _at_least(least: int) -> Callable[[Any], bool]:
    """Return the check for a whole number of so many or more, or None."""

    def allowed(value: Any) -> bool:
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        return value is None or (whole and value >= least)

    return allowed


def _is_part(value: Any) -> bool:
    return _is_real(value) and 0 <= value < 1


def _is_error(value: Any) -> bool:
    """Say whether one number is a standard error; others are checked with the sets."""
    return not _is_real(value) or 0 <= value <= MOST_ERROR


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


_ALLOWED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "l2": (_is_strength, "a finite number of 0 or more, or None"),
    "epochs": (_at_least(1), "a whole number of 1 or more, or None"),
    "shift": (_at_least(0), "a whole number of 0 or more, or None"),
    "flip": (_is_bool, "True or False"),
    "hide_sets": (lambda value: value is None or _is_bool(value), "True, False or None"),
    "allow_set_feature": (_is_bool, "True or False"),
    "held_out": (_is_part, "a share of the rows from 0 to below 1"),
    "keep_split": (_is_bool, "True or False"),
    "engine": (
        lambda value: value is None or isinstance(value, str),
        "'local', 'ray', 'ray://HOST:PORT' or None",
    ),
    "prior_error": (_is_error, f"a standard error between 0 and {MOST_ERROR}, 'auto' or None"),
}
