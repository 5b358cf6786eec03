"""The cells of a table of rates as numbers: percent signs, intervals, suppressed cells, footnotes.

Published tables hold more than numbers. What a cell says is read here, one column at a time; what
the columns mean together is none of this file's business.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unmix.data.column_types import parse_text

__all__ = ["Cells", "ambiguous_thousands", "is_suppressed", "read_cells"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

# How publishers write that they do not say, in lower case, without points, spaces and brackets.
_WORDS = """
x c s u z n d low na n/a #na #n/a nan null none nil np nd nr nc ns nv ka so k/a n/d s/d s/o
suppressed withheld confidential missing redacted unknown masked undisclosed notavailable
notpublished notapplicable notreported notdisclosed notcalculated datasuppressed insufficientdata
toofew keineangabe nodata
"""
SUPPRESSED = frozenset(_WORDS.split())
_SIGNS = frozenset("*-–—.…:/#†‡_~")
_SPACES = "\u00a0\u2000-\u200a\u202f"  # of typesetters: thin, narrow, of a digit's width
_NUMBER = rf"[+-]?(?:\d[\d,. {_SPACES}'’]*)?\d(?:[eE][+-]?\d+)?\.?|[+-]?\.\d+"
_FOOTNOTE = (
    r"(?:\s*[*\u2020\u2021\u00a7^]+|\s*\[(?:note\s*)?[a-z0-9]{1,2}\]"
    r"|\s+\(?(?:[a-jln-su-z1-9]|b[deptu]|d[epu]|e[pu])\)?)?"  # two letters: flags of Eurostat
)
_PLAIN = re.compile(rf"^({_NUMBER})\s*(%?){_FOOTNOTE}$")
_BELOW = re.compile(rf"^(<=?|\u2264|less than|under|fewer than)\s*({_NUMBER})\s*(%?){_FOOTNOTE}$")
_ABOVE = re.compile(rf"^(>=?|\u2265|more than|over|at least)\s*({_NUMBER})\s*(%?){_FOOTNOTE}$")
_RANGE = re.compile(r"^(\d+(?:\.\d+)?)\s*%?\s*(?:-|\u2013|\u2014|to)\s*(\d+(?:\.\d+)?)\s*(%?)$")
_LEVEL = r"(?:95\s?% ?(?:ci|confidence interval)\s*:?\s*)?"
_WITH_INTERVAL = re.compile(
    rf"^([+-]?[\d.,]+)\s*(%?)\s*[(\[]\s*{_LEVEL}([\d.,]+)\s*%?\s*(?:-|\u2013|\u2014|to|,|;)\s*"
    r"([\d.,]+)\s*(%?)\s*[)\]]$",
    re.IGNORECASE,
)
_THOUSANDS = re.compile(
    rf"^[+-]?\d{{1,3}}(?:([, {_SPACES}'’])\d{{3}})(?:\1\d{{3}})*(?:\.\d+|(?<!,\d\d\d),\d{{1,2}})?$"
)
_DECIMAL_COMMA = re.compile(r"^[+-]?\d*,\d+$")
# 1.472.000 and 1.234,5: here points separate thousands
_POINTS = re.compile(r"^[+-]?\d{1,3}(?:(?:\.\d{3}){2,}(?:,\d+)?|\.\d{3},\d+)$")
_PERCENT_WORDS = re.compile(r"\s*(?:per ?cent|pct\.?|\uff05)$", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of a column.

    Attributes
    ----------
    values (m,)
        Nan where none was published; the middle of a range such as ``<5`` or ``10-14``.
    percent (m,)
        Cells with a percent sign. Their values are as written: 35 for ``35%``.
    low, high (m,)
        The ends of ranges and of intervals in brackets, nan elsewhere; a range without an upper
        end has infinity there.
    ranges (m,)
        Cells that give a range and no value.
    suppressed (m,)
        Cells without any number.
    unreadable
        Positions of cells that hold something else.
    """

    values: FloatArray
    percent: BoolArray
    low: FloatArray
    high: FloatArray
    ranges: BoolArray
    suppressed: BoolArray
    unreadable: tuple[int, ...] = ()

    @property
    def stated(self) -> FloatArray:
        """The numbers that were published, without ranges."""
        return self.values[~self.suppressed & ~self.ranges]

    @property
    def is_number(self) -> bool:
        """Whether the column holds numbers, however many of them were suppressed."""
        return not self.unreadable and not bool(self.suppressed.all())

    def scaled(self, unit: float | FloatArray) -> Cells:
        """Return the cells with all numbers divided by a unit."""
        return Cells(
            self.values / unit,
            self.percent,
            self.low / unit,
            self.high / unit,
            self.ranges,
            self.suppressed,
        )


def read_cells(text: Any) -> Cells:
    """Read the cells of a column, a string array of length m."""
    length = len(text)
    try:
        plain = parse_text(text, pa.float64())
    except pa.ArrowInvalid:
        return _read_each(text.to_pylist())
    values = np.array(plain.to_numpy(zero_copy_only=False), dtype=np.float64)
    nothing = np.zeros(length, dtype=bool)
    nan = np.full(length, np.nan)
    return Cells(values, nothing, nan, nan, nothing, np.isnan(values))


def _read_each(cells: Sequence[str | None]) -> Cells:
    """Read cells one by one, which only tables with more than numbers need."""
    m = len(cells)
    values, low, high = (np.full(m, np.nan) for _ in range(3))
    percent, ranges, suppressed = (np.zeros(m, dtype=bool) for _ in range(3))
    unreadable = []
    for j, cell in enumerate(cells):
        bare = "" if cell is None else cell.strip()
        if is_suppressed(bare):
            suppressed[j] = True
            continue
        try:
            values[j], percent[j], low[j], high[j], ranges[j] = _cell(bare)
        except ValueError:
            unreadable.append(j)
            suppressed[j] = True
    return Cells(values, percent, low, high, ranges, suppressed, tuple(unreadable))


def is_suppressed(bare: str) -> bool:
    """Say whether a cell is what publishers write for a number that they do not say."""
    return set(bare) <= _SIGNS or re.sub(r"[\s.()\[\]<>]", "", bare.casefold()) in SUPPRESSED


def _cell(bare: str) -> tuple[float, bool, float, float, bool]:
    """Return value, percent sign, low end, high end, and whether it is a range without a value."""
    bare = bare.replace("\u2212", "-")  # the minus sign of typesetters
    if bare.endswith("\u2030"):  # per mille: 3.2\u2030 is 0.32%
        value, _, low, high, is_range = _cell(bare[:-1].rstrip() + "%")
        return value / 10, True, low / 10, high / 10, is_range
    bare = _PERCENT_WORDS.sub("%", bare)
    if found := _PLAIN.match(bare):
        return _float(found[1]), bool(found[2]), np.nan, np.nan, False
    if found := _WITH_INTERVAL.match(bare):
        ends = (_float(found[3]), _float(found[4]))
        return _float(found[1]), bool(found[2] or found[5]), *ends, False
    if found := _BELOW.match(bare.casefold()):
        end = _float(found[2])
        if found[1] in ("<", "under", "less than", "fewer than") and end >= 2 and not found[3]:
            end = end - 1 if end.is_integer() else end  # fewer than 5 is at most 4
        return end / 2, bool(found[3]), 0.0, end, True
    if found := _ABOVE.match(bare.casefold()):
        end = _float(found[2])
        return end, bool(found[3]), end, np.inf, True
    if found := _RANGE.match(bare):
        ends = (float(found[1]), float(found[2]))
        if ends[0] <= ends[1]:
            return sum(ends) / 2, bool(found[3]), *ends, True
    raise ValueError(bare)


def _float(text: str) -> float:
    """Read a number with a decimal point or comma, and with or without thousands separators."""
    text = text.strip()
    if _POINTS.match(text):
        return float(text.replace(".", "").replace(",", "."))
    grouped = _THOUSANDS.match(text)
    if grouped and not text.startswith(("0,", "+0,", "-0,")):
        return float(text.replace(grouped[1], "").replace(",", "."))
    if _DECIMAL_COMMA.match(text):
        return float(text.replace(",", "."))
    return float(text)


def ambiguous_thousands(text: Any) -> str | None:
    """Return a cell such as ``1,234`` that may be a decimal or a thousand, or None."""
    hits = text.filter(pc.match_substring_regex(pc.fill_null(text, ""), r"^[1-9]\d{0,2},\d{3}$"))
    return hits[0].as_py() if len(hits) else None
