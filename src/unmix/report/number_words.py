"""How the report writes names, shares and counts. Knows no picture and no page."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from itertools import accumulate

from unmix.assess.estimates import Estimate, Share

__all__ = [
    "class_names",
    "clean",
    "counted",
    "decimal",
    "interval",
    "percent",
    "percent_level",
    "positive_class",
    "share_of",
    "share_words",
    "shortened",
    "stated_percent",
]

UNWANTED = "\ufffe\uffff\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
NONE = "\N{EN DASH}"
SPACE = "\N{NO-BREAK SPACE}"


def clean(text: str) -> str:
    """Return text without the characters that HTML and XML cannot hold."""
    return "".join(_clean_character(character) for character in text)


def shortened(name: str, cells: int) -> str:
    """Return a name cut to a display width; characters of Chinese and emoji take two cells.

    Examples
    --------
    >>> shortened("Mecklenburg-Vorpommern", 12)
    'Mecklenburg…'
    """
    text = clean(name).strip()
    if not text:
        return "(no name)"
    widths = [2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text]
    if sum(widths) <= cells:
        return text
    kept = sum(end < cells for end in accumulate(widths))  # the ellipsis takes a cell
    return text[:kept].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


def counted(number: int, one: str, many: str) -> str:
    """Return '1 set' or '3,000 sets'."""
    return f"{number:,} {one if number == 1 else many}"


def percent(share: float) -> str:
    """Return a share in percent, with two digits where it is small.

    Examples
    --------
    >>> percent(0.8421).replace(SPACE, " "), percent(0.00123).replace(SPACE, " ")
    ('84.2 %', '0.12 %')
    """
    if not math.isfinite(share):
        return NONE
    value = 100 * share
    digits = f"{value:.2g}" if 0 < abs(value) < 1 else f"{value:.1f}"
    return f"{digits}{SPACE}%"


def stated_percent(share: float) -> str:
    """Return a share that somebody chose, with the digits they gave."""
    return f"{100 * share:.4g}{SPACE}%" if math.isfinite(share) else NONE


def percent_level(confidence: float) -> str:
    """Return the coverage of an interval in percent.

    Examples
    --------
    >>> percent_level(0.95).replace(SPACE, " ")
    '95 %'
    """
    return f"{100 * confidence:.3g}{SPACE}%"


def decimal(value: float) -> str:
    """Return a number in [0, 1] with three digits."""
    return f"{value:.3f}" if math.isfinite(value) else NONE


def interval(estimate: Estimate, *, in_percent: bool = True) -> str:
    """Return the two ends of an interval."""
    if not (math.isfinite(estimate.low) and math.isfinite(estimate.high)):
        return NONE
    if in_percent:
        return f"{percent(estimate.low).removesuffix(f'{SPACE}%')} to {percent(estimate.high)}"
    return f"{decimal(estimate.low)} to {decimal(estimate.high)}"


def positive_class(classes: Sequence[str]) -> str:
    """Return what the positive class of two is called: 'positives' where it has no name."""
    return "positives" if tuple(classes) == ("0", "1") else f"class {shortened(classes[-1], 24)}"


def class_names(classes: Sequence[str]) -> tuple[str, ...]:
    """Return what the classes are called in pictures: the positive one of two, or all."""
    if len(classes) == 2:
        return (positive_class(classes),)
    return tuple(f"class {shortened(name, 24)}" for name in classes)


def share_of(share: Share, k: int) -> float:
    """Return the share of class k of many, or of the positive class of two."""
    if not isinstance(share, tuple):
        return share
    return share[-1] if len(share) == 2 else share[k]


def share_words(share: Share, classes: Sequence[str], most: int = 8) -> str:
    """Return a share in words: '30 % positives', or the shares of the first classes."""
    if len(classes) == 2:
        return f"{stated_percent(share_of(share, 1))} {positive_class(classes)}"
    if not isinstance(share, tuple):
        return NONE
    parts = [
        f"{shortened(name, 24)} {stated_percent(part)}"
        for name, part in zip(classes[:most], share, strict=False)
    ]
    rest = len(classes) - most
    return ", ".join(parts) + (f" and {counted(rest, 'class', 'classes')} more" if rest > 0 else "")


def _clean_character(character: str) -> str:
    """Return a character, a space for a line break or tab, or the sign of a lost one."""
    if character in "\t\n\r\x0b\x0c\x85":
        return " "
    # Overrides of direction make a name read as another; scripts need none of them.
    lost = unicodedata.category(character) in ("Cc", "Cs") or character in UNWANTED
    return "\N{REPLACEMENT CHARACTER}" if lost else character
