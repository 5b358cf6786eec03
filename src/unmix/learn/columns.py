"""One column of a user's table: what is learned from it in training, and its values as numbers.

Numbers, booleans and dates (as days since 1970) are numbers, everything else that can be read as a
word is a category. Lists and the like are refused, with the cure, and so is text most of which are
numbers. Columns that only name or number the rows are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import date, time, timedelta
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from unmix.data.wording import listed
from unmix.errors import InputError

__all__ = [
    "BLOCK_ROWS",
    "LARGEST",
    "MISSING",
    "UNKNOWN",
    "CategoryColumn",
    "Column",
    "EmptyColumn",
    "FloatArray",
    "LeftOutColumn",
    "NumberColumn",
    "SeenColumn",
    "category_codes",
    "category_text",
    "column_numbers",
    "counts_up",
    "holds_numbers",
    "in_range",
    "read_summary",
    "text_for_numbers",
]

FloatArray = npt.NDArray[np.float64]

MAX_CATEGORIES = 30
MOST_WORDS = 100_000  # of a text column that comes in blocks; beyond, the rarest are forgotten
BLOCK_ROWS = 65_536  # of numbers that are looked at at a time
FIRST_NUMBERS = 64  # that are looked at first
LARGEST = 1e150  # the square of a larger number overflows
# A smaller deviation, relative to the mean, is lost in the rounding of mean + deviation.
FLAT = 1e-12
LEAST_NAMED = 50  # rows, from which on it is no accident that all differ
MOST_GAPS = 2.0  # how far numbers of rows may be apart, on average
NEARLY = 0.1  # of the rows may be words in a column that holds numbers
# How pandas names the index of a frame that was saved with it, in CSV and in Parquet.
_INDEX = re.compile(r"^(Unnamed: 0(\.\d+)?|__index_level_\d+__)$")
# Dates that may be meant in several ways, or are in words: they are not guessed at.
_DATE = re.compile(
    r"^\s*(\d{1,2}[./-]\d{1,2}[./-](\d{4}|\d\d)|\d{4}[./]\d{1,2}[./]\d{1,2}"
    r"|\d{1,2}[ -][A-Za-z]{3,9}\.?[ -]\d{2,4}|[A-Za-z]{3,9}\.? \d{1,2},? \d{4})(\s+\d.*)?$"
)
# $1,200 and 43%: numbers with a sign, and with commas
_SIGNED_NUMBER = re.compile(r"^[-+]?[$€£¥]?\s?[-+]?\d[\d.,']*\s?[$€£¥%]?$")
UNKNOWN, MISSING = -2.0, -1.0  # codes of categories; those of known ones count from 0


@dataclass(frozen=True)
class NumberColumn:
    """What is remembered of a column of numbers or booleans."""

    kind: ClassVar[str] = "number"
    name: str
    mean: float
    deviation: float
    """Standard deviation; 0 if the column is constant."""
    missing: bool
    """Whether values were missing in training."""


@dataclass(frozen=True)
class CategoryColumn:
    """What is remembered of a column of text."""

    kind: ClassVar[str] = "category"
    name: str
    categories: tuple[str, ...]
    """The most frequent ones, in alphabetical order."""
    rare: bool
    """Whether there were more; they are treated as unknown."""
    missing: bool
    """Whether values were missing in training."""


@dataclass(frozen=True)
class EmptyColumn:
    """A column with no value in training: it must be there, and is not looked at."""

    kind: ClassVar[str] = "empty"
    name: str


@dataclass(frozen=True)
class LeftOutColumn:
    """A column that names or numbers the rows: nobody looks at it, and it may be missing."""

    kind: ClassVar[str] = "left out"
    name: str
    reason: str
    """Such as 'numbers the rows'."""


Column = NumberColumn | CategoryColumn | EmptyColumn | LeftOutColumn
KINDS: dict[str, type[Column]] = {
    c.kind: c for c in (NumberColumn, CategoryColumn, EmptyColumn, LeftOutColumn)
}


class SeenColumn:
    """What has been seen so far of one training column."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count, self.mean, self.variance = 0, 0.0, 0.0
        self.low, self.high = np.inf, -np.inf
        self.missing = False
        self.words: Counter[str] = Counter()
        self.forgotten = False
        self.repeated = False
        self.declared = False
        self.rising, self.first, self.last = True, -np.inf, -np.inf

    def add(self, series: pd.Series[Any]) -> None:
        """Look at further rows."""
        self.declared |= isinstance(series.dtype, pd.CategoricalDtype)
        if holds_numbers(series, self.name):
            self._add_numbers(column_numbers(series, self.name))
        else:
            self._add_words(series)

    def take_in(self, other: SeenColumn) -> None:
        """Add what was seen of later rows."""
        self.missing |= other.missing
        self.declared |= other.declared
        self.forgotten |= other.forgotten
        self._join_numbers(other)
        self.repeated |= other.repeated or any(word in self.words for word in other.words)
        self.words.update(other.words)
        self._forget_rare()

    def _join_numbers(self, other: SeenColumn) -> None:
        if not other.count:
            return
        self.rising = self.rising and other.rising and (not self.count or other.first > self.last)
        self.first = self.first if self.count else other.first
        self.last = other.last
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.join(other.count, other.mean, other.variance)

    @property
    def names_rows(self) -> str:
        """Say why the column only names or numbers the rows; empty if it does not."""
        if _INDEX.match(self.name):
            return "is the index of a saved frame"
        if self._dates:
            return (
                f"it holds dates such as {next(iter(self.words))!r}, which may be meant in "
                "several ways; write them as 2026-12-24"
            )
        rows = sum(self.words.values()) if self.words else self.count
        if rows < LEAST_NAMED:
            return ""
        if self.words:
            return "" if self.repeated or self.declared else "no two rows have the same"
        # Some rows may be held out, so that a few numbers are missing in between.
        counts = self.rising and self.high - self.low + 1 <= MOST_GAPS * self.count
        return "numbers the rows" if counts and not self.missing else ""

    @property
    def _dates(self) -> bool:
        """Whether all words are dates, written as they may be meant in several ways."""
        return bool(self.words) and not self.declared and all(map(_DATE.match, self.words))

    def summary(self) -> Column:
        """Return what has to be remembered.

        Raises
        ------
        InputError
            Most words of a column of text are numbers: then the others are mistakes.
        """
        self._refuse_near_numbers()
        if self.words:
            by_count = sorted(self.words, key=lambda word: (-self.words[word], word))
            kept = sorted(by_count[:MAX_CATEGORIES])
            rare = self.forgotten or len(self.words) > len(kept)
            return CategoryColumn(self.name, tuple(kept), rare, self.missing)
        if not self.count:
            return EmptyColumn(self.name)
        deviation = float(np.sqrt(self.variance))
        flat = self.low == self.high or deviation <= FLAT * abs(self.mean)
        return NumberColumn(self.name, self.mean, 0.0 if flat else deviation, self.missing)

    def _add_numbers(self, values: FloatArray) -> None:
        if len(values) > BLOCK_ROWS:  # a block that stays in the processor's cache, then the next
            for first in range(0, len(values), BLOCK_ROWS):
                self._add_numbers(values[first : first + BLOCK_ROWS])
            return
        present = ~np.isnan(values)
        if not present.all():
            self.missing = True
            values = values[present]
        if not len(values):
            return
        if self.rising:
            self.rising = bool(values[0] > self.last) and counts_up(values)
            self.last = float(values[-1])
        if not self.count:
            self.first = float(values[0])
        self.low, self.high = min(self.low, values.min()), max(self.high, values.max())
        mean = float(values.mean())
        squares = values - mean
        squares *= squares
        self.join(len(values), mean, float(squares.mean()))

    def add_seen(
        self,
        count: int,
        mean: float,
        variance: float,
        ends: tuple[float, float],
        first_and_last: tuple[float, float],
        rising: bool,
    ) -> None:
        """Take what others have seen of the first rows, which are numbers and none is missing."""
        self.low, self.high = map(float, ends)
        self.first, self.last = map(float, first_and_last)
        self.rising = rising
        self.join(count, float(mean), float(variance))

    def join(self, count: int, mean: float, variance: float) -> None:
        """Add further numbers of which only this is known."""
        if not count:
            return
        self.count += count
        share = count / self.count
        step = mean - self.mean
        between = step**2 * share * (1 - share)
        self.variance = (1 - share) * self.variance + share * variance + between
        self.mean += share * step

    def _forget_rare(self) -> None:
        """Keep memory bounded."""
        if len(self.words) > MOST_WORDS:
            self.words = Counter(dict(self.words.most_common(MOST_WORDS // 2)))
            self.forgotten = True

    def _add_words(self, series: pd.Series[Any]) -> None:
        self._forget_rare()
        codes, uniques = pd.factorize(series)
        self.missing |= bool((codes < 0).any())
        self.repeated |= len(uniques) < int((codes >= 0).sum())
        for value, count in zip(uniques, np.bincount(codes[codes >= 0]), strict=True):
            word = category_text(value)
            self.repeated |= word in self.words
            self.words[word] += int(count)

    def _refuse_near_numbers(self) -> None:
        """Refuse text that holds numbers but for a few words, or with percent signs."""
        if self.declared or len(self.words) <= MAX_CATEGORIES or self._dates:
            return
        # 007 is a code.
        odd = [word for word in self.words if not _is_quantity(word)]
        rows, strange = sum(self.words.values()), sum(self.words[word] for word in odd)
        if not odd:
            return
        example = max(odd, key=lambda word: self.words[word])
        or_drop = f"or leave the column out (--drop {_shell_word(self.name)})"
        of_all = strange > NEARLY * rows
        if of_all and all(map(_SIGNED_NUMBER.match, odd)) and any(re.search(r"\D", w) for w in odd):
            raise InputError(
                f"column {self.name!r} holds numbers written as text, such as {example!r}; write "
                f"them plainly, as 1200.5, {or_drop}"
            )
        if not of_all or all(word.rstrip().endswith("%") for word in odd):
            raise InputError(
                f"column {self.name!r} holds numbers, but for {strange:,} of {rows:,} rows with "
                f"text such as {example!r}; make these empty cells or numbers, {or_drop}"
            )


def counts_up(values: FloatArray) -> bool:
    """Say whether numbers are whole and each is larger than the one before."""
    few = values[:FIRST_NUMBERS]  # most columns end here
    return all(
        bool((of[1:] > of[:-1]).all() and (of == np.floor(of)).all()) for of in (few, values)
    )


def _shell_word(name: str) -> str:
    """Return a name as a shell takes it."""
    return name if re.fullmatch(r"[\w.-]+", name) else f'"{name}"'


def _is_quantity(word: str) -> bool:
    """Say whether a word is a number and not a code such as 007."""
    try:
        float(word)
    except ValueError:
        return False
    return not re.match(r"^[+-]?0\d", word.strip())


def holds_numbers(series: pd.Series[Any], name: str) -> bool:
    """Say whether a column holds numbers or booleans, else text; refuse everything else."""
    dtype = series.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":  # nearly all, and asked first
        return True
    if isinstance(dtype, pd.CategoricalDtype | pd.StringDtype):
        return False
    if pd.api.types.is_bool_dtype(dtype) or pd.api.types.is_datetime64_any_dtype(dtype):
        return True
    if pd.api.types.is_timedelta64_dtype(dtype):
        return True
    if pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_complex_dtype(dtype):
        return True
    types = set(map(type, series.dropna().to_numpy(dtype=object)))
    for kind in (date, timedelta):
        if types and all(issubclass(found, kind) for found in types):
            return True
    for found in types:
        if not issubclass(found, str | Real | np.bool_ | Decimal):
            raise InputError(
                f"column {name!r} holds values of type {found.__name__}; {_cure(found)}, or "
                "leave the column out"
            )
    # A column without any value may hold either.
    return not any(issubclass(found, str) for found in types)


def _cure(found: type) -> str:
    """Say what to do with values that are neither numbers nor text."""
    if issubclass(found, date | time | timedelta | pd.Period):
        return "turn times into numbers such as hours, or into text"
    if issubclass(found, bytes):
        return "decode bytes into text"
    return "turn them into one number or one word per cell"


def column_numbers(series: pd.Series[Any], name: str) -> FloatArray:
    """Return a column of numbers as float64 (n,), NaN where they are missing."""
    try:
        if series.dtype != np.float64:
            series = _dates_as_days(series, name)
            series = pd.Series(series.to_numpy(np.float64, na_value=np.nan), series.index)
        values = np.ascontiguousarray(series.to_numpy())
    except OverflowError:  # an integer of Python, beyond any float
        raise InputError(
            f"column {name!r} holds an integer with more than 300 digits; scale it or make it text"
        ) from None
    if not in_range(values):
        at = int((np.abs(values) > LARGEST).argmax())
        where = f"column {name!r} holds {values[at]:g} in row {series.index[at]}"
        if np.isinf(values[at]):
            raise InputError(f"{where}; replace it by a number or an empty cell")
        raise InputError(f"{where}; looks like a missing-value code; replace it by an empty cell")
    return values


def in_range(values: FloatArray) -> bool:
    """Say whether all numbers are ones that a table may hold; those that are missing are."""
    low = np.fmin.reduce(values, axis=None, initial=0.0)
    high = np.fmax.reduce(values, axis=None, initial=0.0)
    return bool(max(-low, high) <= LARGEST)


def _dates_as_days(series: pd.Series[Any], name: str) -> pd.Series[Any]:
    """Return dates as days since 1970, in UTC, as they are read from files, and spans as days."""
    if series.dtype == object:
        some = series.dropna()
        if len(some) and isinstance(some.iloc[0], timedelta):
            return pd.to_timedelta(series).dt.total_seconds() / 86_400
        if not (len(some) and isinstance(some.iloc[0], date)):
            return series
        try:
            series = pd.to_datetime(series, utc=True)
        except (ValueError, TypeError, OverflowError):
            raise InputError(
                f"column {name!r} holds dates beside something else; make all of them dates"
            ) from None
    if pd.api.types.is_timedelta64_dtype(series.dtype):
        days: pd.Series[Any] = series.dt.total_seconds() / 86_400
        return days
    if not pd.api.types.is_datetime64_any_dtype(series.dtype):
        return series
    if getattr(series.dt, "tz", None) is not None:
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    return (series - pd.Timestamp(0)) / pd.Timedelta(days=1)


def text_for_numbers(series: pd.Series[Any], name: str) -> InputError:
    """Return the error for text in a column that held numbers in training."""
    is_text = series.map(lambda value: isinstance(value, str)).to_numpy(dtype=bool, na_value=False)
    # One word makes a column of a file text, numbers and all: name the word.
    is_word = is_text & pd.to_numeric(series.astype(object), errors="coerce").isna().to_numpy()
    at = int((is_word if is_word.any() else is_text).argmax())
    return InputError(
        f"column {name!r} held numbers in training and holds {category_text(series.iloc[at])!r} "
        f"in row {series.index[at]}; make it numbers (pandas.to_numeric) or empty cells"
    )


def category_codes(series: pd.Series[Any], column: CategoryColumn) -> FloatArray:
    """Return the code of each row's category (n,), `UNKNOWN` or `MISSING`."""
    holds_numbers(series, column.name)  # both may be read as text, but no dates or lists
    codes, uniques = pd.factorize(series)
    known = {word: float(i) for i, word in enumerate(column.categories)}
    table = [known.get(category_text(value), UNKNOWN) for value in uniques]
    return np.array([*table, MISSING])[codes]  # factorize says -1, the last, for missing


def category_text(value: Any) -> str:
    """Return a category as text; whole numbers without a point, whatever their type."""
    if isinstance(value, Real) and not isinstance(value, Integral) and float(value).is_integer():
        return str(int(float(value)))
    return str(value)


def read_summary(position: int, stored: Any) -> Column:
    """Return the summary of one column from its JSON form."""
    where = f"column {position} of the stored encoder"
    kind = KINDS.get(str(stored.get("kind"))) if isinstance(stored, dict) else None
    if kind is None:
        raise InputError(f"{where} is of none of the kinds {listed(list(KINDS))}; save it again")
    wanted = {field.name for field in fields(kind)}
    found = set(stored) - {"kind"}
    if found != wanted:
        raise InputError(f"{where} lacks or adds {listed(sorted(found ^ wanted))}; save it again")
    for key in sorted(wanted):
        if not _VALID[key](stored[key]):
            raise InputError(f"{where} has {key} = {stored[key]!r}; save it again")
    values = {key: stored[key] for key in wanted}
    if "categories" in values:
        values["categories"] = tuple(values["categories"])
    return kind(**values)


def _is_number(value: Any) -> bool:
    """Say whether a JSON value is a number that training could have left."""
    return type(value) in (int, float) and abs(value) <= LARGEST


_VALID: dict[str, Callable[[Any], bool]] = {
    "name": lambda value: isinstance(value, str),
    "mean": _is_number,
    "deviation": lambda value: _is_number(value) and value >= 0,
    "reason": lambda value: isinstance(value, str),
    "missing": lambda value: isinstance(value, bool),
    "rare": lambda value: isinstance(value, bool),
    "categories": lambda value: (
        isinstance(value, list)
        and all(isinstance(word, str) for word in value)
        and len(set(value)) == len(value) > 0
    ),
}
