"""The numbers the paper published, as facts: looked up, never computed with here.

`published.json` holds all 156 of them with their source.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

__all__ = ["Published", "published"]


class Published(NamedTuple):
    """A published test error, in percent."""

    error: float
    std: float
    """Over the paper's three trials."""


def published(
    table: str,
    dataset: str,
    num_sets: int,
    method: str,
    *,
    shift: float | str | None = None,
    epsilon: float | None = None,
) -> Published | None:
    """Return what the paper published for a cell of a table, or None.

    Parameters
    ----------
    table : 'comparison', 'set-size', 'set-number' or 'prior-noise'
    dataset : str
    num_sets : int
    method : str
    shift : float or 'random', optional
        tau of the table `set-size`.
    epsilon : float, optional
        Noise of the set priors, of the table `prior-noise`.

    Examples
    --------
    >>> published("comparison", "mnist", 10, "ssc")
    Published(error=3.05, std=0.08)
    """
    return _table().get((table, dataset, num_sets, method, shift, epsilon))


@cache
def _table() -> dict[tuple[Any, ...], Published]:
    """Read the file once."""
    text = files("unmix.studies").joinpath("published.json").read_text(encoding="utf-8")
    names = ("table", "dataset", "num_sets", "method", "shift", "epsilon")
    return {
        tuple(row.get(name) for name in names): Published(row["error"], row["std"])
        for row in json.loads(text)["rows"]
    }
