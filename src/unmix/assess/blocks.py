"""Work on many rows or sets some thousand at a time, where each is for itself."""

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["in_blocks"]

AT_A_TIME = 65_536


def in_blocks(function: Callable[..., Any], *arrays: Any, at_a_time: int = AT_A_TIME) -> Any:
    """Return `function(*arrays)` (n, ...), which says of each row what it would say of it alone.

    Memory for what is worked out on the way is that of `at_a_time` rows.

    Examples
    --------
    >>> in_blocks(np.negative, np.arange(5), at_a_time=2)
    array([ 0, -1, -2, -3, -4])
    """
    rows = len(arrays[0])
    if rows <= at_a_time:
        return function(*arrays)
    found = None
    for first in range(0, rows, at_a_time):
        part = function(*(array[first : first + at_a_time] for array in arrays))
        if found is None:
            found = np.empty((rows, *part.shape[1:]), part.dtype)
        found[first : first + at_a_time] = part
    return found
