"""What the cells of a text column mean: numbers, booleans or text.

The type of a column is a property of its whole file, never of one block: `ColumnKind` sees every
block before the first row is handed out. Knows Arrow arrays, but no file.

A column is, in this order of preference,

- boolean, if every cell is true or false (in lower, upper or title case);
- an integer or a float, if every cell is a number; ``inf`` is a number;
- a float, if every cell is a date or a time as ISO 8601 writes them: days since 1970, in UTC;
- text otherwise, with every cell as it was written. One word among a million numbers makes the
  column text from its first row on.

Missing are the empty cell and, in columns of numbers and booleans, the cells of `MISSING`. In a
text column ``NA`` is a word like any other. Integers and booleans with missing cells become floats,
because NumPy has no missing integer.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unmix.errors import InputError

__all__ = [
    "MISSING",
    "ColumnKind",
    "arrow_type",
    "days_of",
    "first_unreadable",
    "parse_text",
    "with_points",
]

MISSING = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None")

_MISSING = pa.array(MISSING)
_BOOLEANS = pa.array(["true", "false", "True", "False", "TRUE", "FALSE"])
# 12  1.5  0,35  1.234,5  1,234,567.8 - but not 1,2,3, which is more likely a list of codes
_COMMA_NUMBER = r"^[+-]?(\d+|\d*\.\d+|[\d.]*,\d+|\d{1,3}(,\d{3})+(\.\d+)?)$"
_ISO_DATE = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:?\d{2})?)?$"
_DATES = pa.timestamp("us")
_TEXT_DTYPES = ("str", "string", "object", "category")


class ColumnKind:
    """The narrowest type that fits every block of a text column shown so far."""

    def __init__(self) -> None:
        self._type: Any = None
        self._missing = False
        self._comma_numbers_only = True
        self._comma_number: str | None = None
        self._points = self._thousands = False

    def see(self, text: Any) -> None:
        """Take one block into account: a string array."""
        if self._type == pa.string() and not self._comma_numbers_only:
            return  # nothing can change any more
        cells = _with_nulls(text)
        values = cells.drop_null()
        self._missing |= len(values) < len(cells)
        if not len(values):
            return
        if self._type != pa.string():
            self._type = next(wider for wider in _WIDER[self._type] if _fits(values, wider))
        if self._type == pa.string():
            numbers = pc.match_substring_regex(values, _COMMA_NUMBER)
            self._comma_numbers_only &= pc.all(numbers).as_py()
            self._thousands |= pc.any(pc.match_substring_regex(values, ",.*,")).as_py()
            self._points |= pc.any(pc.match_substring(values, ".")).as_py()
            with_comma = values.filter(pc.match_substring(values, ","))
            if self._comma_number is None and len(with_comma):
                self._comma_number = with_comma[0].as_py()

    def type(self) -> Any:
        """Return the Arrow type to read the column as."""
        if self._type == _DATES:
            return pa.float64()
        if self._type is None or (self._missing and self._type != pa.string()):
            return pa.float64()
        return self._type

    def decimal_comma(self) -> str | None:
        """Return a cell such as ``0,35`` if it is only such commas that make the column text."""
        return self._comma_number if self._comma_numbers_only else None

    @property
    def decimal_commas_only(self) -> bool:
        """Whether all numbers have a decimal comma or none, and no points: ``0,35`` and ``12``."""
        return self.decimal_comma() is not None and not self._points and not self._thousands


def with_points(text: Any) -> Any:
    """Return text cells with a decimal point for each comma."""
    return pc.replace_substring(text, ",", ".")


def parse_text(text: Any, type_: Any) -> Any:
    """
    Read the cells of a string array as ``type_``; missing cells become null.

    Raises
    ------
    pyarrow.ArrowInvalid
        A cell does not fit; `first_unreadable` says which.
    """
    if pa.types.is_string(type_):
        return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
    cells = _with_nulls(text)
    try:
        return cells.cast(type_)
    except pa.ArrowInvalid:
        if pa.types.is_floating(type_) and _are_dates(cells.drop_null()):
            return days_of(_dates(cells)).cast(type_)
        if not pa.types.is_floating(type_) or not _fits(cells.drop_null(), pa.bool_()):
            raise
        return cells.cast(pa.bool_()).cast(type_)  # true and false as 1 and 0


def first_unreadable(column: Any, type_: Any) -> int:
    """Return the position of the first cell of ``column`` that cannot be read as ``type_``."""
    readable, length = 0, len(column)  # the first ``readable`` cells read, the first ``length`` not
    while length - readable > 1:
        middle = (readable + length) // 2
        try:
            head = column.slice(0, middle)
            parse_text(head, type_) if pa.types.is_string(head.type) else head.cast(type_)
            readable = middle
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            length = middle
    return readable


def arrow_type(dtype: object) -> Any:
    """
    Return the Arrow type of a pandas or NumPy dtype, or of its name.

    Raises
    ------
    InputError
        ``dtype`` is neither text, a number nor a boolean.
    """
    name = str(dtype)
    if name in _TEXT_DTYPES:
        return pa.string()
    try:
        found = np.dtype(name)
    except TypeError:
        found = None
    if found is None or found.kind not in "biuf":
        raise InputError(
            f"cannot read a column as {name!r}; use 'float64', 'int64', 'bool' or 'str'."
        )
    return pa.from_numpy_dtype(found)


def days_of(dates: Any) -> Any:
    """Return dates and times as days since 1970, in UTC, and durations as days: floats."""
    if pa.types.is_duration(dates.type):
        spans = dates.cast(pa.duration("us"), safe=False).cast(pa.int64())
        return pc.divide(spans.cast(pa.float64(), safe=False), 86_400e6)
    microseconds = dates.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    return pc.divide(microseconds.cast(pa.float64(), safe=False), 86_400e6)


def _are_dates(values: Any) -> bool:
    """Say whether every value (none is null) is a date as ISO 8601 writes it."""
    if not len(values) or not pc.all(pc.match_substring_regex(values, _ISO_DATE)).as_py():
        return False
    try:
        _dates(values)
    except pa.ArrowInvalid:
        return False  # such as the 31st of February
    return True


def _dates(text: Any) -> Any:
    """Return dates with or without a time and an offset as timestamps in UTC."""
    zoned = pc.match_substring_regex(text, r"(Z|[+-]\d{2}:?\d{2})$")
    if not pc.any(zoned, min_count=0).as_py():
        return text.cast(pa.timestamp("us"))
    plain = pc.if_else(zoned, pa.scalar(None, pa.string()), text).cast(pa.timestamp("us"))
    moved = pc.if_else(zoned, text, pa.scalar(None, pa.string())).cast(pa.timestamp("us", "UTC"))
    return pc.coalesce(plain, moved.cast(pa.timestamp("us")))


# What a column may turn into when a block does not fit what it was so far; None: no value yet.
_WIDER: dict[Any, tuple[Any, ...]] = {
    None: (pa.bool_(), pa.int64(), pa.float64(), _DATES, pa.string()),
    pa.bool_(): (pa.bool_(), pa.string()),
    pa.int64(): (pa.int64(), pa.float64(), pa.string()),
    pa.float64(): (pa.float64(), pa.string()),
    _DATES: (_DATES, pa.string()),
}


def _with_nulls(text: Any) -> Any:
    """Return the cells without outer spaces, and null where they mean a missing number."""
    cells = pc.ascii_trim_whitespace(text)
    missing = pc.is_in(cells, value_set=_MISSING)
    if not pc.any(missing).as_py():
        return cells
    return pc.if_else(missing, pa.scalar(None, pa.string()), cells)


def _fits(values: Any, type_: Any) -> bool:
    """Say whether every value (none is null) reads as ``type_``."""
    if pa.types.is_string(type_):
        return True
    if type_ == _DATES:
        return _are_dates(values)
    if pa.types.is_boolean(type_):
        return bool(pc.all(pc.is_in(values, value_set=_BOOLEANS)).as_py())
    try:
        # An integer must read as a float too, since a later block may make the column one:
        # Arrow takes 0x1F for an integer, but not for a float.
        values.cast(pa.float64())
        values.cast(type_)
    except pa.ArrowInvalid:
        return False
    return True
