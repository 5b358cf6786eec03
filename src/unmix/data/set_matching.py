"""Which set a row belongs to: the rows' set ids against the ids that have a prior.

Ids match if Python calls them equal; 1 and '1' do not. Where ids only look alike, the error says
so. Knows no file and no share.
"""

import unicodedata
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmix.data.wording import listed, quoted
from unmix.errors import InputError

__all__ = ["match_ids", "refuse_unused"]


def match_ids(
    set_values: Any,
    known: Mapping[Hashable, int],
    source: str,
    unused: Literal["error", "drop", "keep"],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """
    Find each row's set among the known ones.

    Parameters
    ----------
    set_values (n,)
        The set id of each row: an array, a Series or a list.
    known
        The m ids -> their positions 0..m-1, in order.
    source
        What messages call the place where the known ids come from.
    unused
        Whether known ids without rows are an error, are dropped, or are kept.

    Returns
    -------
    set_index (n,)
        For each row a position in ``used``.
    used
        The positions of the sets that are kept, in increasing order.

    Raises
    ------
    InputError
        A row has no set, a set is not known, or a known set has no rows.
    """
    codes, uniques = pd.factorize(_as_column(set_values))
    if (codes < 0).any():
        raise InputError(
            f"row {int((codes < 0).argmax()) + 1} has no set; give it one or remove it."
        )
    found = uniques.tolist()
    positions = np.array([known.get(set_id, -1) for set_id in found], dtype=np.int64)
    if (positions < 0).any():
        absent = [set_id for set_id in found if set_id not in known]
        raise InputError(_no_prior(absent, known, source))
    has_rows = np.zeros(len(known), dtype=bool)
    has_rows[positions] = True
    if unused == "error":
        refuse_unused(has_rows, known, source)
    if unused == "keep":
        has_rows[:] = True
    new_position = np.cumsum(has_rows) - 1
    return new_position[positions][codes], np.flatnonzero(has_rows)


def refuse_unused(has_rows: NDArray[np.bool_], known: Mapping[Hashable, int], source: str) -> None:
    """Raise InputError, with their names, if some of the known sets (m,) have no rows."""
    if has_rows.all():
        return
    idle = [set_id for set_id, position in known.items() if not has_rows[position]]
    raise InputError(
        f"{_sets(len(idle))} of {source} {_have(len(idle))} no rows: {listed(idle)}; "
        "remove their priors or allow unused ones (--allow-unused-priors)."
    )


def _as_column(set_values: Any) -> Any:
    """Return the rows' set ids as something pandas can factorize without changing them."""
    if not hasattr(set_values, "__array__"):  # NumPy would turn [1, 'a'] into text
        set_values = pd.Series(list(set_values), dtype=object)
    elif not isinstance(set_values, pd.Series):
        set_values = np.asarray(set_values)
    if set_values.ndim != 1:
        raise InputError(
            f"the set ids must be one column; got an array of shape {set_values.shape}."
        )
    series = pd.Series(set_values)
    # An Index of tuples would become a MultiIndex; an array stays what it is. Dates and words keep
    # their own arrays, numbers and objects are plain ones, which every pandas can factorize.
    plain = isinstance(series.array, pd.arrays.NumpyExtensionArray)
    return series.to_numpy() if plain else series.array


def _no_prior(absent: Sequence[Hashable], known: Mapping[Hashable, int], source: str) -> str:
    """Say which sets of the rows have no prior, and why that may be."""
    folded = {_folded(set_id): set_id for set_id in known}
    alike = next(
        ((set_id, folded[_folded(set_id)]) for set_id in absent if _folded(set_id) in folded), None
    )
    cure = (
        "add the missing priors or remove those rows"
        if alike is None
        else f"the rows have {quoted(alike[0])} where {source} has {quoted(alike[1])}: "
        "write them alike"
    )
    count = len(absent)
    return (
        f"{_sets(count)} of the rows {_have(count)} no prior in {source}: {listed(absent)}; {cure}."
    )


def _folded(set_id: Hashable) -> str:
    """Return what ids have in common that differ in case, spaces, zeros or type only."""
    text = unicodedata.normalize("NFKC", str(set_id)).strip().casefold()
    try:
        number = float(text)
    except ValueError:
        return text
    return repr(number)  # 1, '1', '01' and '1.0'


def _sets(count: int) -> str:
    """Return ``1 set`` or ``7 sets``."""
    return "1 set" if count == 1 else f"{count} sets"


def _have(count: int) -> str:
    """Return the verb for so many sets."""
    return "has" if count == 1 else "have"
