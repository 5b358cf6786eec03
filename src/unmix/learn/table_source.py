"""A table on disk as rows to learn from, and rows held out to judge by.

Small tables are read whole, large ones in pieces in constant memory (`streaming`); who fits a
classifier to them need not know which. The table is opened once and its set ids are matched once.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from unmix.core.sums_by_set import set_rows
from unmix.data.addresses import file_identity, is_remote
from unmix.data.grouped_priors import sources_of
from unmix.data.known_rows import label_codes
from unmix.data.priors import Priors
from unmix.data.set_columns import UnratedRows, UnratedWarning, how_to_read, sets_in
from unmix.data.tables import Rows, Table, naming, open_table, read_rows, require_column
from unmix.errors import InputError
from unmix.learn.encoding import TableEncoder
from unmix.learn.training_rows import JudgedRows, TrainingRows
from unmix.progress import progress_bar

if TYPE_CHECKING:
    from unmix.learn.part_files import Engine

__all__ = ["TableSource"]

Array = np.ndarray[Any, Any]

# Of the table as float64 with its set ids as text. At its worst a fit in memory holds about six
# times as much.
IN_MEMORY_BYTES = 500_000_000
SET_ID_BYTES = 64


@dataclass(frozen=True)
class TableSource:
    """What the user said about the rows to fit. Made by `TableSource.open`."""

    table: Table
    set_columns: tuple[str, ...]
    """One, or one for each grouping."""
    columns: list[str]
    """The features."""
    priors: Priors
    allow_unused: bool
    """Whether some of the priors may have no rows."""
    held_out: float
    """Share of the rows to judge by."""
    seed: int
    stream: bool
    verbose: bool
    engine: Engine | None = None
    """Whose workers read the rows, file by file; None: this process."""
    label_column: str | None = None
    """Classes of a few rows that training may know."""

    @classmethod
    def open(
        cls,
        path: Rows,
        set_column: str | Sequence[str],
        priors: Priors,
        *,
        drop: Sequence[str] = (),
        allow_unused: bool = False,
        held_out: float = 0.2,
        seed: int = 0,
        stream: bool | None = None,
        verbose: bool = False,
        engine: Engine | None = None,
        label_column: str | None = None,
    ) -> TableSource:
        """Open a table and decide how it is read.

        Parameters
        ----------
        path : path
        set_column : str, or sequence of str
            Several for several groupings.
        priors : Priors
        drop : sequence of str
            Columns to leave out.
        allow_unused, held_out, seed, verbose, engine, label_column
            As the attributes.
        stream : bool, optional
            Read it in pieces; by its size if left out. Parquet only.
        """
        table = open_table(path)
        set_columns = (set_column,) if isinstance(set_column, str) else tuple(set_column)
        labels = () if label_column is None else (label_column,)
        for name in (*set_columns, *drop, *labels):
            require_column(table, name)
        columns = [name for name in table.columns if name not in (*set_columns, *drop, *labels)]
        if not columns:
            raise InputError(
                f"{table.path} has no column to learn from besides the set column; add some"
            )
        if stream and table.num_rows is None:
            raise InputError(
                f"--stream reads Parquet only; convert {table.path} or leave --stream out"
            )
        if engine is not None and not table.num_rows:
            raise InputError(
                f"--engine {engine.name} reads Parquet only; convert {table.path}, or leave "
                "--engine out"
            )
        if stream is None:
            stream = not fits_in_memory(table, columns)
        if labels and (stream or engine is not None):
            raise InputError(
                "labels for training need all rows in memory; pass --in-memory, or use the labels "
                "for an audit (--labels-for audit)"
            )
        return cls(
            table,
            set_columns,
            columns,
            priors,
            allow_unused,
            held_out,
            seed,
            stream or engine is not None,
            verbose,
            engine,
            label_column,
        )

    @contextmanager
    def rows(
        self, output: str | os.PathLike[str], settings: dict[str, Any]
    ) -> Iterator[tuple[TrainingRows, JudgedRows]]:
        """Yield the rows to learn from and those to judge by.

        Parameters
        ----------
        output : path
            What will be written; rows in pieces are shuffled beside it.
        settings : dict
            All else that decides the result, as JSON values: a fit that was interrupted resumes
            only with the same.
        """
        with self._in_pieces(output, settings) if self.stream else self._in_memory() as found:
            yield found

    @contextmanager
    def _in_memory(self) -> Iterator[tuple[TrainingRows, JudgedRows]]:
        """Read all rows at once."""
        with progress_bar("reading", enabled=self.verbose, unit="rows") as progress:
            labels = [] if self.label_column is None else [self.label_column]
            types: dict[str, object] = dict.fromkeys(labels, "str")
            how = how_to_read([*self.columns, *labels], self.set_columns, types)
            frame = read_rows(self.table, **how, progress=progress)
        frame.index += 1  # messages count rows from 1
        sets = sets_in(frame, self.set_columns)
        frame = frame.drop(columns=list(self.set_columns))
        others = UnratedRows(self.priors)
        rated = others.rated(sets)
        if rated is not None:
            frame, sets = frame[rated], sets[rated]
            warnings.warn(str(others), UnratedWarning, stacklevel=4)
        unused: Literal["drop", "error"] = "drop" if self.allow_unused else "error"
        set_index, used = self.priors.find_sets(sets, unused=unused)
        # What a share is a count of, all rows of its set say: also those that are held out.
        priors = self.priors.keep(used).resolved(set_rows(set_index, len(used)))
        with naming(self.table.path):
            known = None
            for name in labels:
                known = label_codes(frame.pop(name), priors.classes or (0, 1))
            rows, out = TrainingRows.split(
                frame, set_index, priors, TableEncoder.fit, self.held_out, self.seed, known
            )
            judged = frame[out]
            if len(judged):
                rows.encoder.native(judged)  # must be fit for use too, before training
        with _naming_columns(self.table.path):
            yield rows, JudgedRows(judged, sets[out])

    @contextmanager
    def _in_pieces(
        self, output: str | os.PathLike[str], settings: dict[str, Any]
    ) -> Iterator[tuple[TrainingRows, JudgedRows]]:
        """Do the same in constant memory, resuming what an interrupted run left behind."""
        from unmix.learn.parted_table import PartedTable
        from unmix.learn.streaming import StreamedTable, scratch_folder

        run = settings | {
            "rows": [file_identity(path) for path in self.table.files],
            "priors": [_identity(source, self.priors) for source in sources_of(self.priors)],
            "table": [self.columns, self.set_columns, self.allow_unused, self.held_out],
            # The engine is not among these: all come to the same result.
            "parts": self.engine is not None,
            # Another version may encode or train otherwise: then nothing is taken up.
            "versions": {name: version(name) for name in ("unmix", "torch", "numpy", "pandas")},
        }
        with scratch_folder(output, run) as scratch:
            with progress_bar("fit", enabled=self.verbose, unit="rows") as progress:
                streamed = StreamedTable(
                    self.table,
                    self.columns,
                    self.set_columns,
                    self.priors,
                    self.allow_unused,
                    self.held_out,
                    self.seed,
                    scratch,
                    progress,
                )
                parted = None if self.engine is None else PartedTable(streamed, self.engine)
                (parted or streamed).prepare()
            if streamed.left_out:
                warnings.warn(streamed.left_out, UnratedWarning, stacklevel=4)
            sample, judged = streamed.sample(), streamed.judged()
            used = streamed.used_priors
            set_index, _ = used.find_sets(sets_in(sample, self.set_columns), unused="keep")
            sets = sets_in(judged, self.set_columns)
            sample, judged = (of.drop(columns=list(self.set_columns)) for of in (sample, judged))
            with _naming_columns(self.table.path):
                yield (
                    TrainingRows(
                        sample,
                        set_index,
                        used,
                        streamed.encoder,
                        parted.rows(sample, set_index) if parted else streamed.rows,
                        streamed.checkpoint,
                    ),
                    JudgedRows(judged, sets, parted.judged if parted else None),
                )


def _identity(source: str, priors: Priors) -> list[Any]:
    """Return what tells priors from others: their file, or where there is none what they say."""
    if is_remote(source) or os.path.exists(source):
        return file_identity(source)
    said = (priors.set_ids, priors.set_priors.matrix.tolist(), priors.standard_errors)
    return [source, hashlib.sha256(repr(said).encode()).hexdigest()]


@contextmanager
def _naming_columns(path: str) -> Iterator[None]:
    """Put the name of the file before errors about a column; others may be about an option."""
    try:
        yield
    except InputError as error:
        if str(error).startswith("column "):
            raise type(error)(f"{path}: {error}") from error
        raise


def fits_in_memory(table: Table, columns: Sequence[str]) -> bool:
    """Say whether a table is to be fitted in memory: if it is small, or CSV, which has no size."""
    if table.num_rows is None:
        return True
    return table.num_rows * (8 * len(columns) + SET_ID_BYTES) <= IN_MEMORY_BYTES
