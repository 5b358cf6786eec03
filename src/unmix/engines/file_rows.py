"""The rows of files that an engine works on, for a fit from Python."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unmix.data.grouped_priors import grouped_priors
from unmix.data.priors import Priors
from unmix.engines.choice import engine_named
from unmix.errors import InputError
from unmix.learn.table_source import TableSource
from unmix.learn.training_rows import JudgedRows, TrainingRows

__all__ = ["rows_of_files"]


@contextmanager
def rows_of_files(
    engine: str, files: Any, sets: Any, set_priors: Any, **options: Any
) -> Iterator[tuple[TrainingRows, JudgedRows]]:
    """Yield the rows to learn from, which are asked for sums, and those to judge by.

    Parameters
    ----------
    engine : str
        As `engine_named` takes it.
    files : path, or sequence of paths
        Parquet files, a folder, a glob or an address.
    sets : str, or sequence of str
        The column that names the set of each row; several for several groupings.
    set_priors : mapping, Series or Priors
        As `UnmixClassifier` takes them.
    **options
        held_out, seed and verbose, as `TableSource.open` takes them.
    """
    names = [sets] if isinstance(sets, str) else sets
    paths = [files] if isinstance(files, str | os.PathLike) else files
    if set_priors is None or not _are(names, str) or not _are(paths, str | os.PathLike):
        raise InputError(
            f"with engine={engine!r} fit takes files and the name of their set column, such as "
            "fit('rows/', 'region'), and set_priors; leave engine out for rows in memory"
        )
    if isinstance(set_priors, Priors) or len(names) == 1:
        priors = Priors.of(set_priors)
    else:
        priors = grouped_priors(set_priors, names)
    with (
        tempfile.TemporaryDirectory(prefix="unmix-") as scratch,
        engine_named(engine) as carrier,
    ):
        source = TableSource.open(
            paths, names, priors, allow_unused=True, engine=carrier, **options
        )
        with source.rows(Path(scratch) / "model", {}) as found:
            yield found


def _are(values: Any, kind: Any) -> bool:
    """Say whether these are some values of a kind."""
    return isinstance(values, Sequence) and all(isinstance(value, kind) for value in values)
