"""How error messages name things: short lists and the nearest guess. Knows no file format."""

import difflib
from collections.abc import Iterable, Sequence

import numpy as np

__all__ = ["listed", "nearest", "quoted"]


def quoted(name: object) -> str:
    """Return a name as Python would write it, with NumPy's numbers as plain ones."""
    return repr(name.item() if isinstance(name, np.generic) else name)


def listed(names: Sequence[object], limit: int = 5) -> str:
    """Return ``'a', 'b' and 12 more``: the first ``limit`` names."""
    shown = ", ".join(quoted(name) for name in names[:limit])
    rest = len(names) - limit
    return f"{shown} and {rest} more" if rest > 0 else shown


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name most like ``name``, blind to case and outer spaces, or None."""
    folded = {other.strip().casefold(): other for other in names}
    close = difflib.get_close_matches(name.strip().casefold(), folded, n=1)
    return folded[close[0]] if close else None
