"""Features that name the set: with one, a model could learn the set and not the class."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd

from unmix.errors import InputError

__all__ = ["refuse_set_feature"]

Array = np.ndarray[Any, Any]

PREFILTER_ROWS = 4_096


def refuse_set_feature(frame: pd.DataFrame, name: Hashable, set_index: Array) -> None:
    """Refuse a feature that says no more and no less than which set a row is in."""
    # All the rows of the first few sets: what is not one to one with these is not with all, and
    # only what is need be looked at in every row.
    sizes = np.bincount(set_index)
    first = np.flatnonzero(set_index <= np.searchsorted(sizes.cumsum(), PREFILTER_ROWS))
    few = first[:: -(-len(first) // PREFILTER_ROWS)]
    for place, column in enumerate(frame.columns):
        values = frame.iloc[:, place]
        same = column == name or (
            _one_to_one(values.iloc[few], set_index[few])
            # A column of all different values says nothing about sets of one row each.
            and len(sizes) < len(values)
            and _one_to_one(values, set_index)
        )
        if same:
            raise InputError(
                f"column {column!r} of X names the set, so a model could learn the set and not "
                f"the class; drop it (--drop {column}), or pass allow_set_feature=True"
            )


def _one_to_one(values: pd.Series[Any], set_index: Array) -> bool:
    """Say whether each value goes with one set and each set with one value."""
    codes, found = pd.factorize(values)
    pairs = codes * (int(set_index.max()) + 1) + set_index
    as_many = len(found) == len(np.unique(set_index))
    return bool(as_many and codes.min() >= 0 and len(np.unique(pairs)) == len(found))
