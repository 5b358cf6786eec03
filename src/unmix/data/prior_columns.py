"""What the columns of a priors table say: shares, shares per class, counts, standard errors.

Turns text columns into checked arrays and refuses what cannot be meant: percentages, decimal
commas, gaps, shares that do not add up. Knows neither files nor how sets are matched with rows.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unmix.core.class_shares import ClassShares, share_problems
from unmix.data.column_types import first_unreadable, parse_text
from unmix.data.wording import listed, quoted
from unmix.errors import InputError

__all__ = ["PriorColumns", "interpret"]

_SHARES = {"share", "prior", "set_prior", "proportion", "prevalence", "rate", "fraction"}
_POSITIVES = {"positives", "positive", "n_positive", "n_positives", "count", "cases", "events"}
_TOTALS = {"total", "totals", "n_total", "n", "size"}
_ERRORS = {"se", "std_error", "standard_error", "stderr", "std_err"}
_NEGATIVE_POSITIVE = (
    {"negative": 0, "positive": 1},
    {"negatives": 0, "positives": 1},
    {"neg": 0, "pos": 1},
    {"no": 0, "yes": 1},
    {"false": 0, "true": 1},
    {"0": 0, "1": 1},
)
_ACCEPTED = (
    "one column of shares; 'share' and 'standard_error'; 'positives' and 'total'; or one column "
    "of shares per class"
)


@dataclass(frozen=True)
class PriorColumns:
    """What a table says of m sets: their shares, and ``standard_errors`` (m,) or None."""

    set_priors: ClassShares
    classes: tuple[str, ...] | None = None
    standard_errors: NDArray[np.float64] | None = None


def interpret(
    columns: Mapping[str, Any],
    set_ids: Sequence[Hashable],
    source: str,
    classes: Sequence[str] | None = None,
) -> PriorColumns:
    """
    Find out which of the accepted forms a table has, and check its numbers.

    Parameters
    ----------
    columns
        Name -> string array (m,), without the set column.
    set_ids
        The m set ids, for messages.
    source
        The file's name, for messages.
    classes
        The columns that hold the classes' shares; the others are then ignored.

    Raises
    ------
    InputError
        The form is not clear or a number is impossible.
    """
    cells = _Cells(columns, set_ids, source)
    if classes is not None:
        return _per_class(cells, tuple(classes))
    names = tuple(columns)
    roles = {name: _role(name) for name in names}
    if not names:
        raise InputError(f"{source} has no column besides the set column; add {_ACCEPTED}.")
    if len(names) == 1:
        return PriorColumns(ClassShares(cells.shares(names[0])))
    if sorted(roles.values()) == ["positives", "total"]:
        by_role = {role: name for name, role in roles.items()}
        return _from_counts(cells, by_role["positives"], by_role["total"])
    if len(names) == 2 and list(roles.values()).count("error") == 1:
        error, share = sorted(names, key=lambda name: roles[name] != "error")
        shares = ClassShares(cells.shares(share))
        return PriorColumns(shares, standard_errors=cells.standard_errors(error))
    binary = _binary_order(names)
    if binary is not None:
        return PriorColumns(ClassShares(_per_class(cells, binary).set_priors.matrix[:, 1]))
    if any(roles.values()):
        raise InputError(
            f"cannot tell what the columns {listed(names)} of {source} mean together; besides "
            f"the set column keep {_ACCEPTED}."
        )
    return _per_class(cells, names)


@dataclass(frozen=True)
class _Cells:
    """The text columns of one priors table, read as numbers on demand."""

    columns: Mapping[str, Any]
    set_ids: Sequence[Hashable]
    source: str

    def shares(self, name: str) -> NDArray[np.float64]:
        """Read a column of shares."""
        values = self._numbers(name)
        for problem in share_problems(values, self.set_ids, self._where(name)):
            raise InputError(f"{problem}.")
        return values

    def counts(self, name: str) -> NDArray[np.float64]:
        """Read a column of whole numbers, 0 or more."""
        values = self._numbers(name)
        self._refuse(name, np.isnan(values), values, "the count is missing; fill it in")
        self._refuse(name, values < 0, values, "the count {} is negative; correct it")
        self._refuse(
            name, values != np.floor(values), values, "the count {} is not whole; correct it"
        )
        return values

    def standard_errors(self, name: str) -> NDArray[np.float64]:
        """Read a column of standard errors; 0 says that the share is known exactly."""
        values = self._numbers(name)
        self._refuse(name, np.isnan(values), values, "the standard error is missing; fill it in")
        self._refuse(name, values < 0, values, "the standard error {} is negative; correct it")
        self._refuse(
            name,
            values > 0.5,
            values,
            "the standard error {} is more than 0.5, the most a share can have; "
            "if these are percentages divide them all by 100",
        )
        return values

    def _where(self, name: str) -> str:
        """Return the file and the column as messages name them."""
        return f"{self.source}, column {name!r}"

    def _numbers(self, name: str) -> NDArray[np.float64]:
        """Read a column as floats, NaN where it is empty."""
        text = self.columns[name]
        try:
            numbers = parse_text(text, pa.float64())
        except pa.ArrowInvalid:
            position = first_unreadable(text, pa.float64())
            raise InputError(
                f"{self._where(name)}, set {quoted(self.set_ids[position])}: "
                f"{_explain_text(text[position].as_py())}."
            ) from None
        floats: NDArray[np.float64] = np.array(numbers.to_numpy(zero_copy_only=False), dtype=float)
        return floats

    def _refuse(
        self, name: str, wrong: NDArray[np.bool_], values: NDArray[np.float64], what: str
    ) -> None:
        """Raise about the first set for which something is wrong."""
        if wrong.any():
            first = int(wrong.argmax())
            said = what.format(f"{values[first]:g}")
            raise InputError(f"{self._where(name)}, set {quoted(self.set_ids[first])}: {said}.")


def _explain_text(text: str) -> str:
    """Say why a cell is no number, and how to write it."""
    bare = text.strip()
    if bare.endswith("%"):
        number = bare[:-1].strip().replace(",", ".")
        cure = f"{float(number) / 100:g}" if _is_number(number) else "0.35 for 35%"
        return f"{text!r} is a percentage; write {cure}"
    if bare.count(",") == 1 and _is_number(bare.replace(",", ".")):
        return f"{text!r} has a decimal comma; write {bare.replace(',', '.')}"
    return f"{text!r} is not a number; correct it, or remove the column if it holds no shares"


def _is_number(text: str) -> bool:
    """Say whether Python reads the text as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _role(name: str) -> str:
    """Return what a column's name says it is, or an empty string."""
    plain = name.strip().lower().replace(" ", "_").replace("-", "_")
    known = {"share": _SHARES, "positives": _POSITIVES, "total": _TOTALS, "error": _ERRORS}
    return next((role for role, names in known.items() if plain in names), "")


def _binary_order(names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the negative and the positive column if the names leave no doubt, else None."""
    for pair in _NEGATIVE_POSITIVE:
        if {name.strip().lower() for name in names} == set(pair) and len(names) == 2:
            return tuple(sorted(names, key=lambda name: pair[name.strip().lower()]))
    return None


def _per_class(cells: _Cells, classes: tuple[str, ...]) -> PriorColumns:
    """Read one column of shares per class."""
    if len(classes) < 2:
        raise InputError(f"{cells.source}: give at least two classes; got {listed(classes)}.")
    absent = [name for name in classes if name not in cells.columns]
    if absent:
        raise InputError(
            f"{cells.source} has no column {listed(absent)} for the class of that name; besides "
            f"the set column it has {listed(tuple(cells.columns), 10)}."
        )
    shares = np.column_stack([cells.shares(name) for name in classes])
    return PriorColumns(ClassShares(shares, cells.set_ids, source=cells.source), classes)


def _from_counts(cells: _Cells, positives_name: str, total_name: str) -> PriorColumns:
    """Return shares and their standard errors from counts of positives and of all."""
    positives = cells.counts(positives_name)
    totals = cells.counts(total_name)
    cells._refuse(total_name, totals == 0, totals, "the total is 0; remove the set")
    cells._refuse(
        positives_name,
        positives > totals,
        positives,
        f"{{}} positives are more than the total in column {total_name!r}; correct one of them",
    )
    # The standard deviation of the share under Jeffreys' prior: also 0 of 5 is uncertain.
    a, b = positives + 0.5, totals - positives + 0.5
    errors = np.sqrt(a * b / (a + b + 1)) / (a + b)
    return PriorColumns(ClassShares(positives / totals), standard_errors=errors)
