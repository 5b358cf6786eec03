"""How messages name things: short lists, the nearest guess, nothing that a terminal would obey.

Knows no file format.
"""

import difflib
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np

__all__ = ["have", "how_many_sets", "listed", "nearest", "printable", "quoted"]

LONGEST = 200  # characters of a name


def quoted(name: object) -> str:
    """Return a name as Python would write it, with NumPy's numbers as plain ones.

    A name that another may look exactly like is written in ASCII: an accent may be a character of
    its own. Of a very long one only the beginning is shown.
    """
    plain = name.item() if isinstance(name, np.generic) else name
    if isinstance(plain, str) and len(plain) > LONGEST:
        return f"{quoted(plain[: LONGEST // 2])}... ({len(plain):,} characters)"
    if isinstance(plain, str) and not unicodedata.is_normalized("NFC", plain):
        return ascii(plain)
    return repr(plain)


def printable(text: str) -> str:
    r"""Return text with everything escaped that a terminal would obey and not show.

    Control characters, marks of direction, line ends and characters of no width.

    Examples
    --------
    >>> printable("caf\xe9 \x1b[31mred\n")
    'caf\xe9 \\x1b[31mred\\n'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def listed(names: Sequence[object], limit: int = 5) -> str:
    """Return ``'a', 'b' and 12 more``: the first ``limit`` names, or ``none``."""
    if not len(names):
        return "none"
    shown = ", ".join(quoted(name) for name in names[:limit])
    rest = len(names) - limit
    return f"{shown} and {rest} more" if rest > 0 else shown


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name most like ``name``, blind to case and outer spaces, or None."""
    folded = {other.strip().casefold(): other for other in names}
    close = difflib.get_close_matches(name.strip().casefold(), folded, n=1)
    return folded[close[0]] if close else None


def how_many_sets(count: int) -> str:
    """Return ``1 set`` or ``7 sets``."""
    return "1 set" if count == 1 else f"{count} sets"


def have(count: int) -> str:
    """Return the verb for so many sets."""
    return "has" if count == 1 else "have"
