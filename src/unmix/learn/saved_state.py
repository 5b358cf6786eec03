"""What may stand in the model.json of a saved model, checked before anything is built from it.

A folder may come from a stranger: every entry that is read has its type, its range and its length
checked here, in one table. What only one kind of model knows, its own file checks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from unmix.core.class_shares import ClassShares, check_errors, check_prior
from unmix.core.stand_ins import NO_STAND_INS, UNMOVED, LogitMove, StandIns
from unmix.learn.methods import method_named
from unmix.learn.models import saved_row

__all__ = [
    "check_state",
    "finite_arrays",
    "grouping_of",
    "image_shape",
    "inside_of",
    "numbers",
    "shares_of",
]

Array = np.ndarray[Any, Any]
State = dict[str, Any]

MOST_ROWS = 2**53
LONGEST = 2**24  # side of an image, or features of a row
DEEPEST = 4  # of a constructor argument: a mapping of pairs


def check_state(state: Any) -> None:
    """Raise ValueError, with the name of the entry, if model.json holds what it may not."""
    if not isinstance(state, dict):
        raise ValueError("model.json is no table of names and values")
    if state["labels"] is True and state["per_class"] is True:
        raise ValueError("labels and shares per class do not go together")
    for name, allowed in _ALLOWED.items():
        if name in state and not allowed(state[name]):
            raise ValueError(f"{name} is not what it may be")
    saved_row(state["model"])
    method_named(state["method"])
    sets, classes = len(state["set_ids"]), len(state["classes"])
    for name in ("stated_priors", "set_priors"):
        shares_of(state, name, sets, classes)
    for name in ("target_prior", "base_prior"):
        check_prior(numbers(state, name, (classes,)), classes, name)
    check_errors(state["prior_errors"], sets)
    sizes = numbers(state, "set_sizes", (sets,))
    if ((sizes < 0) | (sizes > MOST_ROWS)).any():
        raise ValueError("set_sizes are no numbers of rows")
    inside_of(state, classes)
    names = state.get("groupings", [])
    grouping_of(state.get("grouping_of_sets", []), names, sets)
    if (given := state.get("given_priors")) is not None:
        if names and set(given) == {"groupings"} and list(given["groupings"]) == names:
            for of in given["groupings"].values():
                _check_given(of, classes)
        else:
            _check_given(given, classes)


def numbers(state: State, name: str, shape: tuple[int, ...]) -> Array:
    """Return an array of finite numbers of the shape it must have."""
    values = np.array(state[name], dtype=np.float64)
    if values.shape != shape or not np.isfinite(values).all():
        raise ValueError(f"{name} must be numbers of shape {shape}")
    return values


def shares_of(state: State, name: str, num_sets: int, num_classes: int) -> ClassShares:
    """Return class shares of the sets, shown as they were given."""
    values = np.array(state[name], dtype=np.float64)
    shape = (num_sets,) if values.ndim == 1 and num_classes == 2 else (num_sets, num_classes)
    return ClassShares(numbers(state, name, shape), source=name)


def inside_of(state: State, num_classes: int) -> tuple[StandIns, LogitMove]:
    """Return how slopes inside sets are, and what that does to lone rows; old folders say none."""
    inside, lone = state.get("inside"), state.get("lone")
    if inside is None or lone is None:
        return NO_STAND_INS, UNMOVED
    length = float(numbers(lone, "length", ()))
    shift = np.array(lone["shift"], dtype=np.float64)
    slope, columns = float(numbers(inside, "slope", ())), inside["columns"]
    fits = shift.shape == (1,) or (num_classes > 2 and shift.shape == (num_classes,))
    if not (0 <= slope <= 1 and length >= 0 and _is_count(columns) and fits):
        raise ValueError("inside and lone are not what they may be")
    if not np.isfinite(shift).all():
        raise ValueError("shift holds a number that is not finite")
    return StandIns(slope, columns), LogitMove(length, shift if len(shift) > 1 else float(shift[0]))


def grouping_of(of_sets: Any, names: list[str], num_sets: int) -> Array | None:
    """Return the grouping of each set (m,), those of one after the other; None if there is one."""
    if not names:
        return None
    grouping = np.array(of_sets)
    whole = np.arange(len(names))
    if grouping.shape != (num_sets,) or not np.array_equal(np.unique(grouping), whole):
        raise ValueError(f"grouping must name one of {len(names)} groupings for each set")
    if (np.diff(grouping) < 0).any():
        raise ValueError("the sets of a grouping must follow each other")
    return grouping.astype(np.int64)


def image_shape(value: Any) -> tuple[int, ...]:
    """Return the shape of an image, or of a row of numbers, from its JSON form."""
    if not isinstance(value, list) or not 1 <= len(value) <= 3:
        raise ValueError("the shape of a row is none")
    if not all(_is_count(side) and 0 < side <= LONGEST for side in value):
        raise ValueError("the shape of a row is none")
    return tuple(value)


def finite_arrays(arrays: dict[str, Any]) -> None:
    """Raise ValueError if a weight is not finite."""
    for name, values in arrays.items():
        if not np.isfinite(values).all():
            raise ValueError(f"{name[:40]} holds a number that is not finite")


def _distinct_names(value: Any) -> bool:
    """Say whether a value is a list of names, text or finite numbers, without a repetition."""
    if not isinstance(value, list) or not all(map(_is_name, value)):
        return False
    return len(set(value)) == len(value) and len({isinstance(v, str) for v in value}) <= 1


def _is_plain(value: Any, depth: int = DEEPEST) -> bool:
    """Say whether a value is a name, None, or a list or mapping of such to a small depth."""
    if isinstance(value, list):
        return depth > 0 and all(_is_plain(entry, depth - 1) for entry in value)
    if isinstance(value, dict):
        return set(value) == {"mapping"} and _are_pairs(value["mapping"])
    return value is None or _is_name(value)


def _is_name(value: Any) -> bool:
    """Say whether a value is text or a finite number."""
    return isinstance(value, str) or (isinstance(value, int | float) and math.isfinite(value))


def _are_pairs(value: Any) -> bool:
    """Say whether a value is a list of pairs of a name and a name, no first one twice."""
    if not isinstance(value, list):
        return False
    pairs = all(isinstance(p, list) and len(p) == 2 and all(map(_is_name, p)) for p in value)
    return pairs and len({p[0] for p in value}) == len(value)


def _is_number(value: Any) -> bool:
    """Say whether a value is a number that is at least 0 and finite."""
    return type(value) in (int, float) and 0 <= value < math.inf


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST_ROWS


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_numbers(value: Any) -> bool:
    """Say whether a value maps words to numbers, some of which may be unknown."""
    return isinstance(value, dict) and all(type(n) in (int, float) for n in value.values())


def _are_gains(value: Any) -> bool:
    gains = isinstance(value, dict) and all(isinstance(gain, dict) for gain in value.values())
    return gains and all(_is_scalar(entry) for gain in value.values() for entry in gain.values())


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _is_history(value: Any) -> bool:
    rows = isinstance(value, list) and all(map(_are_numbers, value))
    return rows and all(map(math.isfinite, (n for row in value for n in row.values())))


def _is_setup(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    l2, epochs, seed = (value.get(name) for name in ("l2", "epochs", "seed"))
    return (
        (l2 is None or _is_number(l2))
        and (epochs is None or (_is_count(epochs) and epochs >= 1))
        and _is_count(seed)
        and all(map(_is_plain, value.values()))
    )


def _is_parameters(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_plain, value.values()))


def _several_names(value: Any) -> bool:
    return _distinct_names(value) and len(value) >= 2


_ALLOWED: dict[str, Callable[[Any], bool]] = {
    "model": _is_text,
    "method": _is_text,
    "classes": _several_names,
    "labels": _is_bool,
    "per_class": _is_bool,
    "set_ids": _several_names,
    "groupings": lambda value: _distinct_names(value) and all(map(_is_text, value)),
    "fitted_again": _is_bool,
    "sampled_rows": _is_count,
    "training_labels": _is_count,
    "refined": _is_bool,
    "noticed_error": _is_number,
    "tau": _is_number,
    "leave_sets_out": _are_numbers,
    "gains": _are_gains,
    "history": _is_history,
    "named_columns": _is_bool,
    "num_features": _is_count,
    "setup": _is_setup,
    "parameters": _is_parameters,
    "fit": lambda value: isinstance(value, dict),
    "encoder": lambda value: isinstance(value, dict),
}


def _check_given(given: Any, classes: int) -> None:
    """Refuse priors, as they were given to the constructor, that are none."""
    if not isinstance(given, dict) or not _several_names(given["set_ids"]):
        raise ValueError("given_priors is not what it may be")
    sets = len(given["set_ids"])
    shares_of(given, "shares", sets, classes)
    check_errors(given["standard_errors"], sets)
