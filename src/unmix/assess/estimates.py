"""A number with its interval, and the way results become plain JSON values.

Knows nothing of where the numbers come from.
"""

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

__all__ = [
    "Estimate",
    "Share",
    "frozen_share",
    "json_pieces",
    "largest_classes",
    "normal_interval",
    "p_value",
    "plain",
]

AT_ONCE = 4096  # entries of a sequence that become text together

Share = float | tuple[float, ...]  # of the positives, or of each of K classes


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A value and the two ends of its confidence interval."""

    value: float
    low: float
    high: float


def normal_interval(value: float, variance: float, confidence: float) -> Estimate:
    """Return value +- z sd for a quantity that lies in [0, 1].

    The value is moved into [0, 1] first and the interval is cut off at 0 and 1 after. Moving
    the value towards the range that holds the truth can only help the interval to cover it.

    Examples
    --------
    >>> normal_interval(0.9, 0.01, 0.95).high
    1.0
    """
    inside = min(max(float(value), 0.0), 1.0)
    half = float(ndtri((1 + confidence) / 2)) * math.sqrt(max(float(variance), 0.0))
    return Estimate(inside, max(inside - half, 0.0), min(inside + half, 1.0))


def p_value(value: float) -> str:
    """Return a p-value in words, without pretending to digits it does not have.

    Examples
    --------
    >>> p_value(0.0312), p_value(0.0)
    ('0.031', '< 0.0001')
    """
    if not math.isfinite(value):
        return "\N{EN DASH}"
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}"


def frozen_share(share: float | list[float]) -> Share:
    """Return a share, or the shares of K classes as a tuple."""
    return tuple(share) if isinstance(share, list) else share


def largest_classes(shares: npt.ArrayLike, most: int) -> list[int]:
    """Return the positions of the most common of K classes, at most `most`, in their order."""
    of_class = np.asarray(shares, dtype=np.float64)
    if len(of_class) <= most:
        return list(range(len(of_class)))
    return sorted(np.argsort(-of_class, kind="stable")[:most].tolist())


def plain(value: Any) -> Any:
    """Turn dataclasses, tuples and numpy values into what JSON knows; nan and inf become None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def json_pieces(value: Any) -> Iterator[str]:
    """Yield what `json.dumps(plain(value))` returns piece by piece: it may be longer than memory.

    Examples
    --------
    >>> "".join(json_pieces({"shares": (0.5, math.nan)}))
    '{"shares": [0.5, null]}'
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        yield "{"
        for number, (key, entry) in enumerate(value.items()):
            yield f"{', ' if number else ''}{json.dumps(key)}: "
            yield from json_pieces(entry)
        yield "}"
    elif isinstance(value, Sequence) and not isinstance(value, str) and len(value) > AT_ONCE:
        for first in range(0, len(value), AT_ONCE):
            text = json.dumps(plain(value[first : first + AT_ONCE]))
            yield f"{', ' if first else '['}{text[1:-1]}"
        yield "]"
    else:
        yield json.dumps(plain(value))
