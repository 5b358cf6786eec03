"""What the columns of a table of rates say together: shares, intervals, counts, or one per class.

Every number is checked, and what was understood is said in words: nothing is guessed in silence,
and what can be meant in two ways is asked about. Knows neither files nor how sets are matched.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmix.data.rate_cells import Cells
from unmix.data.rate_classes import per_class
from unmix.data.rate_names import (
    CONFIDENCE,
    binary_order,
    interval_level,
    is_year,
    repeats,
    role_of,
)
from unmix.data.rate_statement import RateStatement
from unmix.data.rate_table import (
    RateColumns,
    RateOptions,
    RateTable,
    adds_up,
    are_counts,
    complete,
    noise_words,
)
from unmix.data.wording import listed, quoted
from unmix.errors import InputError

__all__ = ["ACCEPTED", "understand"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

ACCEPTED = (
    "one column of shares or percentages, with 'lower' and 'upper' or a 'standard_error' if known; "
    "'positives' and 'total'; or one column of shares or counts per class"
)
# A range says that every number in it is as likely: its standard deviation is its width over this.
UNIFORM = float(np.sqrt(12))


def understand(
    columns: Mapping[str, Any],
    set_ids: Sequence[Hashable],
    source: str,
    options: RateOptions | None = None,
) -> RateColumns:
    """
    Find out what the columns of a table mean, and check its numbers.

    Parameters
    ----------
    columns
        Name -> string array (m,), without the set column.
    set_ids
        The m set ids, for messages.
    source
        The file's name, for messages.
    options
        What the user said.

    Raises
    ------
    InputError
        It can be meant in several ways, or in none, or a number is impossible.
    """
    if not columns:
        raise InputError(f"{source} has no column besides the set column; add {ACCEPTED}.")
    table = RateTable(columns, set_ids, source, options or RateOptions())
    if table.options.classes is not None:
        return per_class(table, table.options.classes)
    roles = table.roles()
    if "positives" in roles and "total" in roles:
        return _from_counts(table, roles)
    if "share" in roles:
        return _from_shares(table, roles)
    return _from_unnamed(table, roles)


def _from_counts(table: RateTable, roles: Mapping[str, str]) -> RateColumns:
    """Return shares from counts of positives and of all."""
    name, total_name = roles["positives"], roles["total"]
    noise = table.noise(roles)
    cells = table.counts(name) if noise is None else table.numbers(name)
    rated = ~cells.suppressed
    totals, told = table.totals(total_name, rated)
    rated = rated & told
    values = np.where(rated, cells.values, 0.0)
    noisy = np.zeros(len(values), dtype=bool) if noise is None else noise > 0
    cure = "correct it, or say how noisy the counts are (--count-noise SIGMA)"
    ranges = cells.ranges & rated
    high = np.minimum(cells.high, totals)
    values = np.where(ranges, (cells.low + high) / 2, values)
    table.refuse(name, (values < 0) & ~noisy, values, f"the count {{}} is negative; {cure}")
    whole = (values == np.floor(values)) | ranges | noisy
    table.refuse(name, ~whole, values, f"the count {{}} is not whole; {cure}")
    above = (values > totals) & ~noisy
    table.refuse(
        name,
        above,
        values,
        f"{{}} positives are more than the total in column {total_name!r}; correct one of them",
    )
    if ranges.any():
        spread = np.where(ranges, np.sqrt(((high - cells.low + 1) ** 2 - 1) / 12), 0.0)
        noise = spread if noise is None else np.hypot(noise, spread)
    stated = values / totals
    shares = stated.clip(0, 1)
    beyond = stated - shares
    statement = RateStatement(
        table.options.rates_are,
        totals=totals,
        noise=noise,
        beyond=beyond if beyond.any() else None,
    )
    given = table.noise(roles)
    words = f"{name!r} of {total_name!r}{noise_words(table, roles, given)}"
    if ranges.any():
        words += f"; {int(ranges.sum())} given as a range such as {_example(table, name, ranges)}"
    used = [roles[r] for r in ("positives", "total", "noise") if r in roles]
    return RateColumns(shares, rated, statement, words, tuple(used))


def _from_shares(table: RateTable, roles: Mapping[str, str]) -> RateColumns:
    """Return shares with all that is said of how well they are known."""
    name = roles["share"]
    unit, scale_words = table.scale(name)
    cells = table.shares(name, unit)
    rated = ~cells.suppressed
    words = f"{name!r} is the share{scale_words}"
    errors, used = None, [name]
    if "lower" in roles and "upper" in roles:
        ends = (roles["lower"], roles["upper"])
        level = interval_level(*ends)
        errors = _interval_errors(table, name, ends, unit, cells, level)
        used += ends
        words += f", {ends[0]!r} to {ends[1]!r} its {level} % interval"
    elif "error" in roles:
        errors = _standard_errors(table, roles["error"], unit, rated)
        used.append(roles["error"])
        words += f", {roles['error']!r} its standard error"
    elif "margin" in roles:
        level = interval_level(roles["margin"])
        errors = _standard_errors(table, roles["margin"], unit, rated) / CONFIDENCE[level]
        used.append(roles["margin"])
        words += f", {roles['margin']!r} its {level} % margin"
    elif np.isfinite(cells.low[rated & ~cells.ranges]).any():
        errors = _bracket_errors(table, name, cells, rated)
        words += ", with its 95 % interval in brackets"
    ranges = cells.ranges & rated
    if ranges.any():
        wide = np.where(ranges, (cells.high - cells.low) / UNIFORM, 0.0)
        errors = wide if errors is None else np.where(ranges, wide, errors)
        words += f"; {int(ranges.sum())} given as a range such as {_example(table, name, ranges)}"
    totals = None
    noise = table.noise(roles)
    if "total" in roles and errors is None:
        totals, told = table.totals(roles["total"], rated)
        rated = rated & told
        used.append(roles["total"])
        words += f", of {roles['total']!r}"
    words += noise_words(table, roles, noise)
    used += [roles["noise"]] if "noise" in roles else []
    statement = RateStatement(table.options.rates_are, errors, totals, noise)
    return RateColumns(cells.values, rated, statement, words, tuple(used))


def _from_unnamed(table: RateTable, roles: Mapping[str, str]) -> RateColumns:
    """Read columns whose names do not say what they are, where only one thing can be meant."""
    plain = [
        name
        for name in table.columns
        if role_of(name) != "other" and not repeats(name, table.columns)
    ]
    years = [name for name in plain if is_year(name)]
    if len(years) > 1:
        raise InputError(
            f"{table.source} has a column for each year: {listed(years)}; say which one counts "
            f"with --share {years[-1].strip()!r}."
        )
    numeric = [name for name in plain if table.cells(name).is_number]
    if not numeric:
        _refuse_nearly_numbers(table, plain)
    ordered = binary_order(tuple(numeric))
    if ordered is not None:
        return per_class(table, ordered, binary=True)
    single = [name for name in numeric if role_of(name) is None]
    if len(table.columns) == 1 and len(numeric) == 0:
        table.numbers(next(iter(table.columns)))  # says which cell is no number
        raise InputError(f"{table.source}, column {plain[0]!r} holds no number; add {ACCEPTED}.")
    others = set(numeric) - set(single) - {roles.get(r) for r in ("error", "margin", "lower")}
    others -= {roles.get(r) for r in ("upper", "total", "noise")}
    if len(single) == 1 and not others:
        return _from_shares(table, {**roles, "share": single[0]})
    if len(numeric) == 1:
        return _only_column(table, numeric[0])
    if len(numeric) > 1 and adds_up(table, numeric, mostly=True):
        return per_class(table, tuple(numeric))
    totals = [name for name in numeric if role_of(name) == "total"]
    total = roles.get("total")
    if total is None and totals:
        total = _the_total(table, [name for name in numeric if name not in totals], totals)
    parts = [name for name in numeric if name != total and name not in totals]
    if len(parts) > 1 and set(parts) == set(single) and are_counts(table, parts):
        if total is not None:
            _check_total(table, parts, total)
        if len(parts) > 2 or not _nested(table, parts):
            return per_class(table, tuple(parts))
    words = [name for name in plain if name not in numeric]
    about = f" (and {listed(words)}, which hold no numbers)" if words and not numeric else ""
    if "positives" in roles and "total" not in roles:
        raise InputError(
            f"{table.source} has the counts {roles['positives']!r} and no column of totals; add "
            "one or name it with --total NAME."
        )
    raise InputError(
        f"cannot tell what the columns {listed(tuple(table.columns), 8)} of {table.source} mean "
        f"together{about}; besides the set column keep {ACCEPTED}; or say which is which with "
        "--share, --lower, --upper, --positives, --total, or --class NAME once for each class."
    )


def _refuse_nearly_numbers(table: RateTable, names: Sequence[str]) -> None:
    """Name the cell that is no number in a column that else holds them."""
    for name in names:
        cells = table.cells(name)
        if 0 < len(cells.unreadable) <= len(table.set_ids) / 2:
            table.numbers(name)


def _the_total(table: RateTable, parts: Sequence[str], totals: Sequence[str]) -> str:
    """Return the total that counts of classes add up to, such as the valid of all votes."""
    for total in totals:
        values = complete(table, [*parts, total])
        if len(parts) > 1 and (abs(values[:, :-1].sum(axis=1) - values[:, -1]) <= 0.5).all():
            return total
    return totals[0]


def _only_column(table: RateTable, name: str) -> RateColumns:
    """Read the only column of numbers, which has the name of something else than a share."""
    values = table.cells(name).stated
    if role_of(name) == "positives" and np.max(values, initial=0.0) > 1:
        raise InputError(
            f"{table.source} has the counts {name!r} and no column of totals; add one or name it "
            "with --total NAME."
        )
    return _from_shares(table, {"share": name})


def _interval_errors(
    table: RateTable,
    name: str,
    ends: tuple[str, str],
    unit: float | FloatArray,
    cells: Cells,
    level: str,
) -> FloatArray:
    """Return standard errors (m,) from the ends of intervals, on the scale of the shares."""
    rated = ~cells.suppressed & ~cells.ranges
    found = []
    for end in ends:
        column = table.numbers(end)
        missing = rated & (column.suppressed | column.ranges)
        table.refuse(end, missing, column.values, "the end of the interval is missing; fill it in")
        found.append(np.where(rated, column.values / unit, 0.0))
    low, high = found
    share = np.where(rated, cells.values, 0.0)
    slack = (
        0.006 * np.maximum(high - low, 0.01) + 0.0051
    )  # rounded to two digits, or percent to one
    wrong = (low > share + slack) | (high < share - slack)
    table.refuse(
        name,
        wrong & rated,
        share,
        f"the share {{}} lies outside its interval {ends[0]!r} to {ends[1]!r}; correct them, or "
        "say which columns they are with --share, --lower and --upper",
    )
    return np.asarray((high - low).clip(0, None) / (2 * CONFIDENCE[level]))


def _bracket_errors(table: RateTable, name: str, cells: Cells, rated: BoolArray) -> FloatArray:
    """Return standard errors (m,) from intervals in brackets behind the shares."""
    missing = rated & ~cells.ranges & np.isnan(cells.low)
    table.refuse(name, missing, cells.values, "{} has no interval where others have; add it")
    width = np.where(rated & ~cells.ranges, cells.high - cells.low, 0.0)
    return np.asarray(width.clip(0, None) / (2 * CONFIDENCE["95"]))


def _standard_errors(
    table: RateTable, name: str, unit: float | FloatArray, rated: BoolArray
) -> FloatArray:
    """Return a column of standard errors (m,); 0 says that the share is known exactly."""
    values = table.numbers(name).values
    table.refuse(
        name, rated & np.isnan(values), values, "the standard error is missing; fill it in"
    )
    values = np.where(rated, values, 0.0) / unit
    table.refuse(name, values < 0, values, "the standard error {} is negative; correct it")
    table.refuse(
        name,
        values > 0.5,
        values,
        "the standard error {} is more than 0.5, the most a share can have; if these are "
        "percentages say --percent",
    )
    return np.asarray(values)


def _nested(table: RateTable, names: Sequence[str]) -> bool:
    """Say whether of two columns one is never above the other: it may be a part of it."""
    values = complete(table, names)
    return bool((values[:, 0] <= values[:, 1]).all() or (values[:, 0] >= values[:, 1]).all())


def _check_total(table: RateTable, parts: Sequence[str], total: str) -> None:
    """Refuse counts of classes that do not add up to the stated total."""
    values = complete(table, [*parts, total])
    off = abs(values[:, :-1].sum(axis=1) - values[:, -1]) > 0.5
    if off.any():
        raise InputError(
            f"{table.source}: the counts {listed(parts, 8)} do not add up to {total!r}; name the "
            "classes with --class NAME once for each, so that others are left out."
        )


def _example(table: RateTable, name: str, which: BoolArray) -> str:
    """Return one of the cells, quoted."""
    return quoted(table.columns[name][int(which.argmax())].as_py())
