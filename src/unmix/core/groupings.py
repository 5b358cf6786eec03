"""Several groupings of the same rows: by region and by month, say. Their likelihoods add.

Each row lies in one set of every grouping, or of some of them. `set_index` has then a column for
each grouping, (n, G), with -1 where a row lies in no set; the sets of all groupings are numbered
through, 0..m-1. The rows are there once: what each grouping says of a row's logits is summed.

One thing a grouping has for itself: the class shares of its rows, rho' Theta, beside which its sets
are told apart. This file knows no loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any

from unmix.core.transition import Transition
from unmix.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["of_groupings", "on_copies"]


def of_groupings(
    set_index: Any, transition: Transition
) -> Iterator[tuple[Any, Any, Transition, int]]:
    """Yield rows with a set, their sets, what their sets define, and the number of the grouping.

    Parameters
    ----------
    set_index : array or Tensor of integers, shape (n, G)
    transition : Transition
        Of the sets of all groupings.
    """
    firsts = transition.firsts
    if set_index.ndim != 2 or set_index.shape[1] != len(firsts):
        raise InputError(
            f"set_index must have one column for each of {len(firsts)} groupings; got shape "
            f"{tuple(set_index.shape)}"
        )
    for g, (first, part) in enumerate(zip(firsts, transition.parts, strict=True)):
        column = set_index[:, g]
        rows = (column >= 0).nonzero()
        rows = rows[0] if isinstance(rows, tuple) else rows[:, 0]
        if len(rows):
            yield rows, column[rows] - first, part, g


def on_copies(risk: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Let a risk that knows one grouping take several: their sets are simply more sets."""

    @wraps(risk)
    def of_copies(logits: Tensor, set_index: Tensor) -> Tensor:
        if set_index.ndim == 1:
            return risk(logits, set_index)
        grouping, rows = (set_index.T >= 0).nonzero(as_tuple=True)
        return risk(logits[rows], set_index[rows, grouping])

    return of_copies
