"""One table of rates as its columns: what the user said of it, their roles, numbers and scale.

Knows the names and the cells of columns, but not what they mean together.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from unmix.core.class_shares import share_problems, sums_to_one
from unmix.data.rate_cells import Cells, ambiguous_thousands, read_cells
from unmix.data.rate_names import (
    per_how_many,
    plain_name,
    repeats,
    role_of,
    says_percent,
    unit_of,
)
from unmix.data.rate_statement import RateStatement
from unmix.data.wording import listed, nearest, quoted
from unmix.errors import InputError

__all__ = [
    "RateColumns",
    "RateOptions",
    "RateTable",
    "adds_up",
    "are_counts",
    "complete",
    "noise_words",
    "sums_to",
]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

NAMED = ("share", "lower", "upper", "positives", "total", "noise")


@dataclass(frozen=True)
class RateOptions:
    """What the user said about a table of rates; None where the table is asked.

    Parameters
    ----------
    percent : bool, optional
        Whether shares are percentages.
    share, lower, upper, positives, total, noise : str, optional
        Names of columns.
    classes : tuple of str, optional
        The columns that hold the shares or counts of the classes.
    count_noise : float, optional
        Standard deviation of noise that was added to each count.
    rates_are : str
        A key of `RATES_ARE`.
    """

    percent: bool | None = None
    share: str | None = None
    lower: str | None = None
    upper: str | None = None
    positives: str | None = None
    total: str | None = None
    noise: str | None = None
    classes: tuple[str, ...] | None = None
    count_noise: float | None = None
    rates_are: str = "auto"

    def __post_init__(self) -> None:
        if self.count_noise is not None and not 0 <= self.count_noise < np.inf:
            raise InputError(f"noise in counts is 0 or more; got {self.count_noise!r}")
        if (self.lower is None) != (self.upper is None):
            raise InputError("name both ends of the interval: --lower and --upper")
        if self.positives is not None and self.share is not None:
            raise InputError("name a column of shares or one of positives, not both")
        if self.classes is not None and len(self.classes) < 2:
            raise InputError(f"name at least two classes; got {listed(self.classes)}")

    def named(self) -> dict[str, str]:
        """Return role -> column for the columns that the user named."""
        given = ((role, getattr(self, role)) for role in NAMED)
        return {role: name for role, name in given if name is not None}


@dataclass(frozen=True, eq=False)
class RateColumns:
    """What a table says of m sets.

    Attributes
    ----------
    shares : array, shape (m,) or (m, K)
        Meaningless for sets that are not rated.
    rated : array of bool, shape (m,)
        Whether a share was published.
    classes : tuple of str, or None
    statement : RateStatement
    words : str
        What was understood.
    used : tuple of str
        The columns that say it.
    """

    shares: FloatArray
    rated: BoolArray
    statement: RateStatement
    words: str
    used: tuple[str, ...]
    classes: tuple[str, ...] | None = None


@dataclass(eq=False)
class RateTable:
    """The text columns of one table, read when they are needed."""

    columns: Mapping[str, Any]
    set_ids: Sequence[Hashable]
    source: str
    options: RateOptions
    _cells: dict[str, Cells] = field(default_factory=dict)

    def cells(self, name: str) -> Cells:
        """Return the cells of a column."""
        if name not in self._cells:
            self._cells[name] = read_cells(self.columns[name])
        return self._cells[name]

    def numbers(self, name: str) -> Cells:
        """Return the cells of a column of numbers, or name the one that is none."""
        cells = self.cells(name)
        if cells.unreadable:
            j = cells.unreadable[0]
            said = (self.columns[name][j].as_py() or "")[:40]
            cure = "correct it, or remove the column if it holds no numbers"
            if "\u00b1" in said:
                cure = "write what follows the sign in a column 'se', or 'moe' if it is a margin"
            elif re.search(r"\d\s*[kmKM]$|\d\s*(bn|mn|mio|tsd)\.?$", said):
                cure = "write the number out"
            elif re.fullmatch(r"[^()]*\d\s*\([^()]*\d[^()]*\)", said):
                cure = "say in the name what is in brackets, as in 'rate (SE)' or 'n (%)'"
            raise InputError(f"{self.where(name, j)}: {said!r} is not a number; {cure}.")
        return cells

    def counts(self, name: str) -> Cells:
        """Return the cells of a column of counts, whose points may separate thousands."""
        cells = self.numbers(name)
        if (cells.stated == np.floor(cells.stated)).all() or self.options.count_noise:
            return cells
        text = self.columns[name]
        grouped = pc.match_substring_regex(pc.fill_null(text, ""), r"^\s*\d{1,3}(\.\d{3})*\s*$")
        if not np.asarray(grouped)[~cells.suppressed & ~cells.ranges].all():
            return cells
        return read_cells(pc.replace_substring(text, ".", ""))

    def where(self, name: str, j: int) -> str:
        """Return the file, the column and the set as messages name them."""
        return f"{self.source}, column {name!r}, set {quoted(self.set_ids[j])}"

    def refuse(self, name: str, wrong: BoolArray, values: FloatArray, what: str) -> None:
        """Raise about the first set for which something is wrong."""
        if wrong.any():
            j = int(wrong.argmax())
            raise InputError(f"{self.where(name, j)}: {what.format(f'{values[j]:g}')}.")

    def roles(self) -> dict[str, str]:
        """Return role -> column, by the names that leave no doubt and by those the user named."""
        alike = {name.strip(): name for name in self.columns}
        named = {
            role: name if name in self.columns else alike.get(name.strip(), name)
            for role, name in self.options.named().items()
        }
        for role, name in named.items():
            if name not in self.columns:
                guess = nearest(name, self.columns)
                hint = f"did you mean {guess!r}? " if guess is not None else ""
                raise InputError(
                    f"{self.source} has no column {name!r} for --{role}; {hint}Besides the set "
                    f"column it has {listed(tuple(self.columns), 10)}."
                )
        by_name: dict[str, list[str]] = {}
        for name in self.columns:
            of_name = role_of(name)
            if plain_name(name) == "plus_minus" and name not in named.values():
                raise InputError(
                    f"{self.source}, column {name!r}: rename it 'se' if it holds standard errors, "
                    "'moe' if it holds margins (95 %)."
                )
            if repeats(name, self.columns):
                continue
            if of_name not in (None, "other") and name not in named.values():
                by_name.setdefault(str(of_name), []).append(name)
        found = dict(named)
        if "share" in named:  # counts beside it would say the same once more
            by_name.pop("positives", None)
        if "positives" in named:
            by_name.pop("share", None)
        for role, names in by_name.items():
            if role in named:
                continue
            able = [name for name in names if self.cells(name).is_number] or names
            if role == "share":
                # 'share' beside 'rate' is the share
                able = [n for n in able if n.strip().casefold() == "share"] or able
            if len(able) > 1 and role in ("share", "positives", "total", "lower", "upper"):
                able = self._one_of(role, able, by_name)
            if able:
                found[role] = able[0]
        for one, other in (("lower", "upper"), ("upper", "lower")):
            if one in found and other not in found:
                del found[one]
        return found

    def _one_of(self, role: str, names: list[str], by_name: dict[str, list[str]]) -> list[str]:
        """Choose between columns of one role, or ask; none where classes may have these names."""
        if role in ("positives", "total") and "share" in by_name:
            return []
        if role == "total" and "positives" not in by_name:
            return []  # counts of classes add up to one of them
        numeric = [name for name in self.columns if self.cells(name).is_number]
        if set(names) <= set(numeric) and adds_up(self, numeric):
            return []
        raise InputError(
            f"{self.source} has several columns that may be the {role}: {listed(names)}; say which "
            f"one with --{role} NAME."
        )

    def scale(self, *names: str) -> tuple[float | FloatArray, str]:
        """Return by what to divide columns of shares, and how to say so."""
        main = names[0]
        cells, said = self.numbers(main), self.options.percent
        signed = cells.percent
        if said:
            return 100.0, " in percent"
        if signed.any():
            bare = ~signed & ~cells.suppressed & (cells.values != 0)
            if bare.any() and not says_percent(main) and said is None:
                j = int(bare.argmax())
                raise InputError(
                    f"{self.where(main, j)}: {self.columns[main][j].as_py()!r} has no percent sign "
                    "where others have one; write all shares alike, or say --percent."
                )
            every = bool(signed[~cells.suppressed & (cells.values != 0)].all())
            if every or said is None:
                return 100.0, " in percent"
            return np.where(signed, 100.0, 1.0), " in part with percent signs"
        if said is False:
            return 1.0, ""
        per = per_how_many(main)
        if per is not None:
            return per, f" per {per:,.0f}"
        unit = self._unit()
        if unit is not None:
            return unit
        values = cells.stated
        high = float(np.max(values, initial=0.0))
        if says_percent(main):
            if high <= 1:
                raise InputError(
                    f"{self.source}, column {main!r}: its name says percent and no number is above "
                    "1; say --percent if 0.35 is 0.35 %, or --no-percent if it is 35 %."
                )
            return 100.0, " in percent"
        if 1 < high <= 100 and ((values >= 1) | (values == 0)).all() and self._a_share(main):
            return 100.0, " in percent, as all are above 1"
        return 1.0, ""

    def _unit(self) -> tuple[float, str] | None:
        """Return the unit that a column of its own states, and how to say so."""
        for name in filter(unit_of, self.columns):
            said = [cell for cell in self.columns[name].unique().to_pylist() if cell]
            units = {100.0 if says_percent(cell) else per_how_many(cell) for cell in said}
            if len(units) > 1:
                raise InputError(
                    f"{self.source} has numbers in several units, {listed(said)} in column "
                    f"{name!r}; write all in one."
                )
            unit = units.pop() if units else None
            if unit is not None:
                words = "in percent" if unit == 100 else f"per {unit:,.0f}"
                return unit, f" {words}, as {name!r} says"
        return None

    def _a_share(self, name: str) -> bool:
        """Say whether numbers above 1 must be percentages: named as shares, or not whole."""
        if name == self.options.share or role_of(name) == "share":
            return True
        values = self.cells(name).stated
        return bool((values != np.floor(values)).any())

    def shares(self, name: str, unit: float | FloatArray) -> Cells:
        """Return a column of shares between 0 and 1; what is suppressed has none."""
        cells = self.numbers(name).scaled(unit)
        thousand = ambiguous_thousands(self.columns[name])
        if thousand is not None:
            raise InputError(
                f"{self.source}, column {name!r}: {thousand!r} may be "
                f"{thousand.replace(',', '.')} or {thousand.replace(',', '')}; write decimals with "
                "a point."
            )
        # A range with whole ends above 1 among shares is that of the count behind a share.
        hidden = cells.ranges & (cells.values > 1)
        hidden |= cells.ranges & (np.where(np.isinf(cells.high), cells.low, cells.high) > 1)
        high = np.where(np.isinf(cells.high), 1.0, cells.high)
        values = np.where(cells.ranges, (cells.low + high) / 2, cells.values)
        suppressed = cells.suppressed | hidden
        self.check_shares(name, values[~suppressed], ~suppressed)
        return Cells(
            np.where(suppressed, 0.0, values.clip(0, 1)),
            cells.percent,
            cells.low,
            high,
            cells.ranges & ~hidden,
            suppressed,
        )

    def check_shares(self, name: str, values: FloatArray, there: BoolArray) -> None:
        """Refuse numbers that are no shares."""
        ids = [self.set_ids[j] for j in np.flatnonzero(there).tolist()]
        for problem in (
            share_problems(values, ids, f"{self.source}, column {name!r}") if ids else ()
        ):
            text = str(problem).replace("divide them all by 100", "say --percent")
            raise InputError(f"{text}.")

    def totals(self, name: str, rated: BoolArray) -> tuple[FloatArray, BoolArray]:
        """Return how many were counted (m,), and the sets for which that was published."""
        cells = self.counts(name)
        values, told = cells.values, ~cells.suppressed & ~cells.ranges
        self.refuse(name, told & rated & (values <= 0), values, "the total is {}; remove the set")
        whole = values == np.floor(values)
        self.refuse(name, told & ~whole, values, "the total {} is not whole; correct it")
        return np.where(told, values, 1.0), told

    def noise(self, roles: Mapping[str, str]) -> FloatArray | None:
        """Return the standard deviation of the noise in each count (m,), None if there is none."""
        m = len(self.set_ids)
        if self.options.count_noise is not None:
            return np.full(m, float(self.options.count_noise)) if self.options.count_noise else None
        if "noise" not in roles:
            return None
        name = roles["noise"]
        values = self.numbers(name).values
        plain = name.casefold()
        self.refuse(name, np.isnan(values), values, "the noise is missing; give 0 for none")
        self.refuse(name, values < 0, values, "noise of {} is negative; give a standard deviation")
        if "var" in plain:
            return np.sqrt(values)
        return values * np.sqrt(2) if "laplace" in plain else values


def noise_words(table: RateTable, roles: Mapping[str, str], noise: FloatArray | None) -> str:
    """Say where the noise came from."""
    if noise is None:
        return ""
    if table.options.count_noise is not None:
        return f" with noise of standard deviation {table.options.count_noise:g}"
    kind = "Laplace scale" if "laplace" in roles["noise"].casefold() else "standard deviation"
    kind = "variance" if "var" in roles["noise"].casefold() else kind
    return f" with noise of the {kind} in {roles['noise']!r}"


def adds_up(table: RateTable, names: Sequence[str], *, mostly: bool = False) -> bool:
    """Say whether columns hold shares of classes: they sum to 1, or to 100, in every set.

    With `mostly` in half of them: then the others are mistakes, and not another kind of table.
    """
    values = complete(table, names)
    if mostly and len(values) and (values >= 0).all():
        sums = values.sum(axis=1)
        for total in (1.0, 100.0):
            close = sums_to_one(sums / total)
            if (values <= total).all() and close.mean() >= 0.5:
                return True
    return len(names) > 1 and (sums_to(values, 1.0) or sums_to(values, 100.0))


def sums_to(values: FloatArray, total: float) -> bool:
    """Say whether rows of shares (m, K) sum to 1 or to 100, as far as rounding goes."""
    if not len(values) or (values < 0).any():
        return False
    return bool(sums_to_one(values.sum(axis=1) / total).all())


def complete(table: RateTable, names: Sequence[str]) -> FloatArray:
    """Return the numbers of the sets for which all columns have one."""
    columns = [table.cells(name) for name in names]
    told = ~np.any([cells.suppressed | cells.ranges for cells in columns], axis=0)
    return np.asarray(np.stack([cells.values for cells in columns], axis=1)[told])


def are_counts(table: RateTable, names: Sequence[str]) -> bool:
    """Say whether columns hold whole numbers of 0 or more, some of them above 1."""
    values = complete(table, names)
    whole = (values == np.floor(values)).all() and (values >= 0).all()
    return bool(len(values) and whole and (values > 1).any())
