"""A party whose rows lie in a file of its own, beside a table of the shares of its sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from unmix.data.priors import Priors, factor_ids
from unmix.data.rates_file import read_rates
from unmix.data.set_columns import UnratedRows
from unmix.data.tables import Rows, column_names, naming, open_table, read_rows, require_column
from unmix.data.wording import listed
from unmix.errors import InputError
from unmix.federated.party import Party
from unmix.learn.training_rows import refuse_set_feature

__all__ = ["name_of_rows", "party_of_table"]


def party_of_table(
    name: str,
    rows: Rows,
    set_column: str | None,
    rates: str | Path,
    *,
    reading: Mapping[str, Any],
    drop: Sequence[str] = (),
    **guards: Any,
) -> tuple[Party, Priors, str]:
    """Read the rows of a party and the shares of its sets.

    Parameters
    ----------
    name : str
        Of the party.
    rows : path, or several
    set_column : str, optional
        All rows are one set, the only one that has a share, if left out.
    rates : path
    reading : mapping
        Arguments of `read_rates`.
    drop : sequence of str
        Columns to leave out.
    **guards
        What `Party` has against telling too much.

    Returns
    -------
    Party
    Priors
        As they were read.
    str
        Which rows are left out, if any.
    """
    path, table = str(rates), open_table(rows)
    for column in (*drop, *(() if set_column is None else (set_column,))):
        require_column(table, column)
    known = set_column if set_column is not None else column_names(path)[0]
    priors: Priors = read_rates(path, known, least_sets=1, **reading)
    columns = [column for column in table.columns if column not in (*drop, set_column)]
    if not columns:
        raise InputError(f"{table.path} has no column to learn from besides the set column")
    frame = read_rows(table, columns=columns, set_column=set_column)
    frame.index += 1  # messages count rows from 1
    sets = _sets_of(frame, set_column, priors, table.path)
    frame = frame[columns]
    others = UnratedRows(priors)
    rated = others.rated(sets)
    if rated is not None:
        frame, sets = frame[rated], sets[rated]
    if set_column is not None:
        codes, names = factor_ids(sets)
        if len(names) > 1:
            refuse_set_feature(frame, set_column, codes)
    with naming(table.path):
        party = Party(name, frame, sets, priors, **guards)
    return party, priors, str(others) if others.rows else ""


def name_of_rows(rows: Sequence[str]) -> str:
    """Return the name of a party that gave none: that of its first file, without its ending."""
    return Path(rows[0]).name.partition(".")[0]


def _sets_of(frame: pd.DataFrame, set_column: str | None, priors: Priors, path: str) -> Any:
    """Return the set of each row (n,)."""
    if set_column is not None:
        return frame[set_column].to_numpy()
    if len(priors) > 1:
        raise InputError(
            f"{priors.source} has shares of {len(priors)} sets ({listed(priors.set_ids, 3)}); say "
            f"which column of {path} holds the set of a row (--sets)"
        )
    return np.full(len(frame), priors.set_ids[0], dtype=object)
