"""Reading rates as they are published: from CSV, Parquet and Excel, and from tables in memory.

Here a table is opened, its set column found and its sets checked; what the other columns say is in
`unmix.data.rate_columns`. Set ids from files are text exactly as written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from unmix.core.class_shares import ClassShares, check_identifiable
from unmix.data.addresses import CSV, suffixes
from unmix.data.priors import Priors
from unmix.data.published_csv import read_published_csv
from unmix.data.rate_columns import understand
from unmix.data.rate_names import is_total, plain_name, unit_of, without_kind
from unmix.data.rate_table import RateOptions
from unmix.data.split_cells import split_cells
from unmix.data.tables import naming, open_table
from unmix.data.wording import listed, nearest
from unmix.errors import InputError

__all__ = ["read_rates"]

EXCEL = (".xlsx", ".xlsm")


def read_rates(
    rates: Any,
    set_column: str | None = None,
    *,
    percent: bool | None = None,
    share: str | None = None,
    lower: str | None = None,
    upper: str | None = None,
    positives: str | None = None,
    total: str | None = None,
    noise: str | None = None,
    classes: Sequence[str] | None = None,
    count_noise: float | None = None,
    rates_are: str = "auto",
    drop_unrated: bool = False,
    sheet: str | None = None,
    least_sets: int = 2,
) -> Any:
    """
    Read the class shares of sets as they are published.

    Besides the set column a table has shares or percentages, perhaps with an interval or a standard
    error; or counts of positives and of all; or shares or counts per class. Columns are known by
    the names that people use (``rate``, ``lower``, ``cases``, ``population``, ``se``, ...), or
    named here. Cells may hold percent signs, footnotes, intervals in brackets, ranges such as
    ``<5``, and what publishers write for a suppressed number (``*``, ``-``, ``..``, nothing): such
    sets are left out.

    Parameters
    ----------
    rates : path, DataFrame, Series, mapping, or a table with ``__arrow_c_stream__`` such as polars'
        The path of a CSV, Parquet or Excel file. A mapping goes from set ids to shares, or to a
        mapping of each class to its share, or from names of columns to Series; a mapping from
        names of groupings to tables is read table by table.
    set_column : str, optional
        The column with the set ids; if left out, ``set``, or the index of a data frame.
    percent : bool, optional
        Whether shares are percentages, where the numbers leave a doubt.
    share, lower, upper, positives, total, noise : str, optional
        Which columns these are, where names leave a doubt.
    classes : sequence of str, optional
        The columns that hold the shares or counts of the classes.
    count_noise : float, optional
        Standard deviation of noise that was added to each count.
    rates_are : {'auto', 'exact', 'sample', 'population'}
        What the rates are: counts of these very rows, counts in a sample of others, or rates of the
        population that the rows were drawn from. 'auto': exact where a total is the number of rows
        of its set, or a share a whole number of them; else a sample where there are totals, and
        rates of the population where there are none.
    drop_unrated : bool
        Leave out rows of sets that have no rate, instead of refusing them.
    sheet : str, optional
        The sheet of an Excel workbook, where several have a table.
    least_sets : int
        Sets that there must be: 1 for an owner of rows who fits together with others.

    Returns
    -------
    Priors
        Or a dict of them, for a mapping of tables. `Priors.understood` says how it was read.

    Raises
    ------
    InputError
        In one line: the file, the set, what is wrong and the cure.

    Examples
    --------
    >>> frame = pd.DataFrame({"set": ["a", "b"], "cases": [12, 40], "population": [100, 200]})
    >>> read_rates(frame).understood
    "set_priors: 2 sets; 'cases' of 'population'"
    """
    options = RateOptions(
        percent=percent,
        share=share,
        lower=lower,
        upper=upper,
        positives=positives,
        total=total,
        noise=noise,
        classes=None if classes is None else tuple(classes),
        count_noise=count_noise,
        rates_are=rates_are,
    )
    if isinstance(rates, Priors):
        return rates
    if isinstance(rates, Mapping):
        values = list(rates.values())
        if values and all(_is_table(value) for value in values):
            given: dict[str, Any] = {
                "set_column": set_column,
                "rates_are": rates_are,
                "drop_unrated": drop_unrated,
                "sheet": sheet,
                "least_sets": least_sets,
            }
            return {
                name: read_rates(table, **given, **_as_arguments(options))
                for name, table in rates.items()
            }
        if not (values and all(isinstance(value, pd.Series) for value in values)):
            return Priors.from_mapping(rates)
        rates = pd.DataFrame(dict(rates)).rename_axis("set")
    if isinstance(rates, pd.Series):
        name = "share" if rates.name is None else str(rates.name)
        rates = rates.rename(name).to_frame().rename_axis("set")
    if _is_path(rates):
        table = _file_columns(rates, set_column, sheet)
    else:
        table = _frame_columns(rates, set_column)
    priors = _priors_of(table, options, drop_unrated=drop_unrated, least_sets=least_sets)
    del table
    pa.default_memory_pool().release_unused()  # the text of a million sets
    return priors


@dataclass(frozen=True)
class _Columns:
    """A table of rates as text, with its sets."""

    source: str
    set_ids: tuple[Hashable, ...]
    columns: Mapping[str, Any]
    id_column: str = ""
    about: str = ""
    """What else there is to say about how it was read."""


def _priors_of(
    table: _Columns, options: RateOptions, *, drop_unrated: bool, least_sets: int
) -> Priors:
    """Return what a table says of the sets that it rates."""
    table, totals = _without_totals(table)
    with naming(table.source):
        columns, options = split_cells(table.columns, options)
    table = replace(table, columns=columns)
    found = understand(table.columns, table.set_ids, table.source, options)
    kept = np.flatnonzero(found.rated)
    ids = tuple(table.set_ids[j] for j in kept)
    unrated = tuple(table.set_ids[j] for j in np.flatnonzero(~found.rated))
    if len(ids) < least_sets:
        check_identifiable(np.empty((len(ids), 2)), table.source)
    shares = ClassShares(found.shares[kept], ids, source=table.source)
    about = f"{table.source}: {len(table.set_ids):,} sets{table.about}; {found.words}"
    left_out = [name for name in table.columns if name not in found.used and not unit_of(name)]
    if left_out:
        about += f"; {listed(left_out, 4)} left out"
    if totals:
        about += f"; {listed(totals)} taken for a total and left out"
    if unrated:
        about += f"; {len(unrated):,} without a rate ({listed(unrated, 3)})"
    return Priors(
        ids,
        shares,
        found.classes,
        source=table.source,
        statement=found.statement.take(kept),
        unrated=unrated,
        drop_unrated=drop_unrated,
        understood=about,
        least_sets=least_sets,
    )


def _without_totals(table: _Columns) -> tuple[_Columns, list[Hashable]]:
    """Return a table without the lines that sum up the others, and their names."""
    totals = [place for place, name in enumerate(table.set_ids) if is_total(name, table.id_column)]
    if not totals or len(table.set_ids) - len(totals) < 2:
        return table, []
    kept = np.delete(np.arange(len(table.set_ids)), totals)
    columns = {name: cells.take(pa.array(kept)) for name, cells in table.columns.items()}
    ids = tuple(table.set_ids[j] for j in kept)
    return replace(table, set_ids=ids, columns=columns), [table.set_ids[j] for j in totals]


def _as_arguments(options: RateOptions) -> dict[str, Any]:
    """Return the options as `read_rates` takes them, but for those it has of its own."""
    return {name: value for name, value in vars(options).items() if name != "rates_are"}


def _is_path(rates: Any) -> bool:
    return isinstance(rates, str | os.PathLike)


def _is_table(value: Any) -> bool:
    """Say whether a value is a table, and not a share or a column."""
    if isinstance(value, pd.Series | str | Mapping):
        return False
    return isinstance(value, pd.DataFrame | Priors) or hasattr(value, "__arrow_c_stream__")


def _file_columns(path: Any, set_column: str | None, sheet: str | None) -> _Columns:
    """Read a file of rates as text."""
    path = os.fspath(path)
    if path.lower().endswith(EXCEL):
        from unmix.data.workbook import read_workbook

        cells, where, about = read_workbook(path, set_column, sheet)
        text = _as_arrays(cells)
    elif sheet is not None:
        raise InputError(f"{path} has no sheets, only workbooks (.xlsx) have; leave out --sheet.")
    else:
        text, where, about = _text_columns(path, set_column)
    id_column = _find_set_column(path, text, set_column)
    if id_column != set_column and set_column is not None:
        about += f", named by {id_column!r}"
    ids = _checked_ids(path, text, id_column, where)
    return _Columns(path, ids, {k: v for k, v in text.items() if k != id_column}, id_column, about)


def _text_columns(
    path: str, set_column: str | None
) -> tuple[dict[str, Any], Callable[[int], str], str]:
    """Read a file as columns of text, how to name a row, and what was passed over.

    A CSV file that is more than a table is refused as it stands, and read around its table.
    """
    try:
        table = open_table(path)
        batches = list(table.batches(dict.fromkeys(table.columns, pa.string())))
        if not sum(batch.num_rows for batch in batches):
            raise InputError(f"{path} has columns but no rows.")
        whole = pa.Table.from_batches(batches).combine_chunks()
        text = {name: whole[name].chunk(0) for name in whole.column_names}
        _find_set_column(path, text, set_column)
        return text, table.where, ""
    except InputError as refused:
        found = read_published_csv(path, set_column) if suffixes(path)[0] in CSV else None
        if found is None:
            raise
        text = _as_arrays(found.columns)
        try:
            _find_set_column(path, text, set_column)
        except InputError:
            raise refused from None
        return text, found.row_name, found.above


def _as_arrays(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {name: pa.array(cells, pa.string()) for name, cells in columns.items()}


def _frame_columns(table: Any, set_column: str | None) -> _Columns:
    """Take a table in memory as text; set ids stay what they are."""
    frame = table if isinstance(table, pd.DataFrame) else _from_arrow(table)
    source = "set_priors"
    named = [str(name) for name in frame.columns]
    if len(set(named)) < len(named):
        twice = next(name for name in named if named.count(name) > 1)
        raise InputError(f"{source} has several columns named {twice!r}; rename all but one.")
    wanted = set_column if set_column in named else "set" if "set" in named else None
    name = frame.index.name
    indexed = name is not None or not isinstance(frame.index, pd.RangeIndex)
    if wanted is None and indexed and (set_column is None or name in (set_column, "set", None)):
        ids: Any = frame.index
    else:
        text = {name: _as_text(frame.iloc[:, i]) for i, name in enumerate(named)}
        wanted = wanted or _find_set_column(source, text, set_column)
        ids = frame.iloc[:, named.index(wanted)]
    keep = [i for i, name in enumerate(named) if name != wanted]
    columns = {named[i]: _as_text(frame.iloc[:, i]) for i in keep}
    rows = {"": pd.Series(list(ids), dtype=object), **columns}
    return _Columns(source, _checked_ids(source, rows, "", _row_name), columns, wanted or "")


def _row_name(row: int) -> str:
    return f"row {row + 1}"


def _from_arrow(table: Any) -> pd.DataFrame:
    """Return anything that hands out Arrow data as a frame."""
    if not hasattr(table, "__arrow_c_stream__"):
        raise InputError(
            "rates must be a file, a data frame, a Series or a mapping from set to share; got "
            f"{type(table).__name__}"
        )
    frame: pd.DataFrame = pa.table(table).to_pandas()
    return frame


def _as_text(series: pd.Series[Any]) -> Any:
    """Return a column of a frame as strings, numbers in the shortest way."""
    missing = series.isna().to_numpy()
    cells = series.to_numpy(dtype=object)
    return pa.array(
        [None if gone else _text(cell) for cell, gone in zip(cells, missing, strict=True)],
        pa.string(),
    )


def _text(cell: Any) -> str:
    if isinstance(cell, bool | np.bool_):
        return str(cell)
    if isinstance(cell, float | np.floating):
        return repr(float(cell))
    return str(cell)


def _find_set_column(path: str, columns: Mapping[str, Any], set_column: str | None) -> str:
    """Return the name of the column with the set ids."""
    for name in (set_column, "set"):
        if name is not None and name in columns:
            return name
    wanted = "set" if set_column is None else set_column
    for form in (plain_name, without_kind):  # Region for region, Hospital ID for hospital
        alike = [name for name in columns if form(name) == form(wanted)]
        if len(alike) == 1:
            return alike[0]
    words = [name for name, cells in columns.items() if _are_names(cells)]
    if len(words) == 1 and set_column is not None:
        return words[0]
    guess = nearest(wanted, columns)
    hint = f" (did you mean {guess!r}?)" if guess is not None else ""
    raise InputError(
        f"{path} has no set column {wanted!r}{hint}; it has {listed(tuple(columns), 10)}: "
        "rename the column with the set ids or say which one it is."
    )


def _are_names(cells: Any) -> bool:
    """Say whether the cells of a column can only be names of sets: words, no two alike."""
    from unmix.data.rate_cells import read_cells

    found = cells.drop_null()
    if not len(found) == len(cells) == len(cells.unique()):
        return False
    read = read_cells(cells)
    return bool(read.unreadable) and not len(read.stated) and not read.ranges.any()


def _checked_ids(
    source: str, columns: Mapping[str, Any], id_column: str, where: Any
) -> tuple[Hashable, ...]:
    """Return the set ids; each must be there, once."""
    given = columns[id_column]
    series = pd.Series(given if isinstance(given, pd.Series) else given.to_pylist(), dtype=object)
    if series.isna().any():
        of = f" in column {id_column!r}" if id_column else ""
        raise InputError(
            f"{where(int(series.isna().to_numpy().argmax()))} of {source} has an empty set id{of}; "
            "fill it in or remove the line."
        )
    set_ids = tuple(series)
    repeated = series.duplicated().to_numpy()
    if not repeated.any():
        return set_ids
    second = int(repeated.argmax())
    first = set_ids.index(set_ids[second])
    others = {name: cells for name, cells in columns.items() if name != id_column}
    differing = [name for name, cells in others.items() if cells[first] != cells[second]]
    if differing:
        name = differing[0]
        values = f"{others[name][first].as_py()!r} and {others[name][second].as_py()!r}"
        what = f"with different values ({name!r}: {values}); "
        both = pd.DataFrame({"set": series, "other": pd.Series(others[name].to_pylist())})
        if both.duplicated().any() or both["other"].nunique() > len(both) / 2:
            what += "keep the right one"
        else:
            what += (
                f"keep the lines of one {name!r}, or, if these are classes, write a column for each"
            )
    else:
        what = "with the same values; remove one"
    raise InputError(
        f"{source} lists set {set_ids[second]!r} more than once, in {where(first)} and "
        f"{where(second)}, {what}."
    )
