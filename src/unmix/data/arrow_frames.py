"""Tables of other libraries as frames: Arrow tables, polars, DuckDB, and whatever hands out Arrow.

Their columns become what the same columns become in a Parquet file, so that a model is the same
whether its rows came from a file or from memory. Knows nothing of sets.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa

from unmix.data.parquet_table import read_arrow_column, readable_arrow_type
from unmix.errors import InputError

__all__ = ["as_frame"]

LAZY_ROWS = 1 << 16


def as_frame(rows: Any) -> Any:
    """
    Return a table of another library as a pandas data frame; anything else as it is.

    Parameters
    ----------
    rows
        With ``__arrow_c_stream__`` (Arrow, polars, DuckDB), or a lazy frame of polars, which is
        collected in batches.

    Raises
    ------
    InputError
        A column holds what is neither number, boolean, text nor date.
    """
    if isinstance(rows, pd.Series) or getattr(rows, "ndim", 2) != 2:
        return rows  # one column, or images
    if hasattr(rows, "collect_schema") and hasattr(rows, "collect_batches"):
        batches = [pa.table(batch) for batch in rows.collect_batches(chunk_size=LAZY_ROWS)]
        table = pa.concat_tables(batches) if batches else pa.table(rows.collect())
    elif hasattr(rows, "collect_schema") and hasattr(rows, "collect"):
        table = pa.table(rows.collect())  # an older polars
    elif hasattr(rows, "__arrow_c_stream__"):
        table = pa.table(rows)
    else:
        return rows
    names = table.column_names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"column {twice!r} appears twice in X; rename or drop one")
    return pd.DataFrame({name: _column(table[name], name) for name in names})


def _column(column: Any, name: str) -> Any:
    """Return a chunked column as pandas has it, of the type that a file would give it."""
    type_ = readable_arrow_type(column.type, nulls=column.null_count > 0)
    if type_ is None:
        raise InputError(
            f"column {name!r} holds {column.type}, which is neither number, text nor date; leave "
            "the column out or spread it over several columns"
        )
    chunks = [read_arrow_column(chunk, type_) for chunk in column.chunks]
    return pa.chunked_array(chunks, type_).to_pandas()
