"""Fitting a Parquet table that is larger than memory, in a scratch folder that survives a kill.

The table is read twice. The first pass summarises its columns and counts the rows of each set; the
second encodes the rows and scatters them to parts on disk in random order (`data.shuffled`), and
keeps two random samples as they are: rows to judge the model by, and rows to choose the model by.
Training then reads the parts only. Everything is a function of the table and the seed, so that an
interrupted fit comes to the same result.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from unmix.core.sums_by_set import set_rows
from unmix.data.priors import Priors, refuse_unused
from unmix.data.set_columns import UnratedRows, how_to_read
from unmix.data.shuffled import ShuffledSets, number_of_parts, scatter_rows, scattered_parts
from unmix.data.tables import Table, naming, open_table, read_rows, scan_rows
from unmix.data.wording import listed
from unmix.errors import InputError
from unmix.files import atomic_write_text, hold_lock
from unmix.learn.checkpoint import Checkpoint
from unmix.learn.encoding import TableEncoder, TableSummary
from unmix.progress import Progress

__all__ = ["RowKeeper", "StreamedTable", "scratch_folder"]

Array = np.ndarray[Any, Any]

# Of each of the two samples: rows, and bytes as float64.
MOST_IN_MEMORY = 1_000_000
SAMPLE_BYTES = 130_000_000
# What makes a folder a scratch folder of ours, and what may be in it.
LOCK, MARK = "lock", "scratch folder of unmix fit\n"
_OURS = re.compile(
    r"lock|(run|statistics|parts)\.json|(judged|sample)\.parquet|(rows|sets)-[0-9]{3}|training"
    r"|\..*\.tmp(\.[^.]+)?"
)


@contextmanager
def scratch_folder(output: str | os.PathLike[str], run: dict[str, Any]) -> Iterator[Path]:
    """Yield a hidden folder beside the output that is still there if the process is killed.

    Parameters
    ----------
    output : path
        What the run will write.
    run : dict
        What decides the result. A folder that an interrupted run with the same values left is
        taken up again; one of another run is emptied.
    """
    target = Path(os.path.realpath(output))
    folder = target.with_name(f".{target.name}.unfinished")
    _refuse_other_folder(folder)
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / LOCK).open("a+", encoding="utf-8") as lock:
        _lock(lock, output)
        if lock.tell() == 0:
            lock.write(MARK)
            lock.flush()
        stated = folder / "run.json"
        text = json.dumps(run, sort_keys=True)
        if not stated.exists() or stated.read_text() != text:
            _empty(folder)
            atomic_write_text(stated, text)
        try:
            yield folder
        except InputError:  # to be mended first: then it is another run
            _remove(folder)
            raise
        _remove(folder)


def _refuse_other_folder(folder: Path) -> None:
    """Refuse what has the name of a scratch folder and is not one: it would be emptied."""
    if not folder.is_symlink() and not folder.exists():
        return
    why = f"cannot use {folder} to work in: it is {{}}; move it, or choose another name"
    if folder.is_symlink() or not folder.is_dir():
        raise InputError(why.format("a link or a file"))
    entries = list(os.scandir(folder))
    if not entries:
        return
    others = sorted(e.name for e in entries if e.is_symlink() or not _OURS.fullmatch(e.name))
    mark = folder / LOCK
    text = mark.read_text(errors="replace") if mark.is_file() else None
    # Killed right after its beginning, a run leaves a lock without a mark.
    if not others and (text == MARK or (text == "" and len(entries) == 1)):
        return
    holding = f" and holds {listed(others)}" if others else ""
    raise InputError(why.format(f"no folder of an interrupted fit{holding}"))


def _lock(file: Any, output: str | os.PathLike[str]) -> None:
    """Refuse a folder in which another process is at work; a killed one lets go of it."""
    if not hold_lock(file):
        raise InputError(f"another fit is writing {output}; wait or choose another name")


def _remove(folder: Path) -> None:
    """Remove a scratch folder; killed meanwhile, it leaves one that is not taken up again."""
    _empty(folder)
    (folder / LOCK).unlink()  # last, since it says whose the rest is
    folder.rmdir()


def _empty(folder: Path) -> None:
    """Remove everything in a folder but its lock, first of all what says whose run it is."""
    (folder / "run.json").unlink(missing_ok=True)
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != LOCK:
            entry.unlink()


@dataclass(frozen=True)
class StreamedTable:
    """A Parquet table on its way to a model.

    Parameters
    ----------
    source : Table or path
    columns : sequence of str
        The features.
    set_columns : tuple of str
        One, or one for each grouping.
    priors : Priors
        Of all sets of the table.
    allow_unused : bool
        Whether some of the priors may have no rows.
    held_out : float
        Share of the rows to judge by, which training does not see; at most a million rows.
    seed : int
    scratch : path
        A folder for this table and these settings only.
    progress : function (done, total, text)
    """

    source: Table | str
    columns: Sequence[str]
    set_columns: tuple[str, ...]
    priors: Priors
    allow_unused: bool
    held_out: float
    seed: int
    scratch: Path
    progress: Progress

    def prepare(self) -> None:
        """Make the two passes over the table, as far as they were not made before."""
        self.scratch.mkdir(exist_ok=True)
        if not self.statistics_file.exists():
            self._summarise()
        if scattered_parts(self.scratch) is None:
            self._scatter()

    @cached_property
    def table(self) -> Table:
        """The open table."""
        return open_table(self.source)

    @property
    def path(self) -> str:
        """What messages call it."""
        return self.table.path

    @cached_property
    def encoder(self) -> TableEncoder:
        """How the columns become numbers, from all training rows."""
        return TableEncoder.from_dict(self.statistics["encoder"])

    @cached_property
    def used_priors(self) -> Priors:
        """The priors of the sets that have rows."""
        ids = self.priors.set_ids
        used = self.priors.keep([ids[j] for j in self.statistics["used"]])
        return used.resolved(self.statistics["all_sizes"])

    @property
    def left_out(self) -> str:
        """What there is to say of rows whose sets have no rate; empty if there are none."""
        return str(self.statistics["left_out"])

    @property
    def rows(self) -> ShuffledSets:
        """All training rows, encoded and shuffled."""
        parts = scattered_parts(self.scratch)
        if parts is None:
            raise RuntimeError("prepare() comes first")
        priors = self.used_priors
        return ShuffledSets(
            self.scratch,
            parts,
            len(self.encoder.feature_names),
            np.array(self.statistics["sizes"]),
            priors.set_priors,
            None,
            priors.set_ids,
        )

    @property
    def checkpoint(self) -> Checkpoint:
        """Where training saves its state."""
        return Checkpoint(self.scratch / "training", {})

    def sample(self) -> pd.DataFrame:
        """Return a random sample of the training rows, with the set column."""
        return self._read(self.scratch / "sample.parquet")

    def judged(self) -> pd.DataFrame:
        """Return the held-out rows, with the set column; without rows if there are none."""
        path = self.scratch / "judged.parquet"
        if path.exists():
            return self._read(path)
        return pd.DataFrame({name: [] for name in self.set_columns})

    @property
    def num_rows(self) -> int:
        """Rows of the table."""
        return self.table.num_rows or 0  # only tables that know it come here

    @property
    def statistics_file(self) -> Path:
        """What the first pass found, as JSON."""
        return self.scratch / "statistics.json"

    @cached_property
    def statistics(self) -> dict[str, Any]:
        """What the first pass found."""
        statistics: dict[str, Any] = json.loads(self.statistics_file.read_text())
        return statistics

    def _read(self, path: Path) -> pd.DataFrame:
        table = open_table(path)
        return read_rows(table, **how_to_read(table.columns, self.set_columns))

    def _blocks(
        self, text: str, others: UnratedRows
    ) -> Iterator[tuple[pd.DataFrame, Array, Array]]:
        """Yield blocks of rows, the set of each row, and a random number of its own in [0, 1)."""
        rng = np.random.default_rng([self.seed, 8])
        scan = scan_rows(self.table, **how_to_read(self.columns, self.set_columns))
        done, total = 0, self.num_rows
        for frame in scan:
            frame.index += 1  # messages count rows from 1
            done += len(frame)
            rated = others.rated(self._sets_in(frame))
            if rated is not None:
                frame = frame[rated]
            set_index, _ = self.priors.find_sets(self._sets_in(frame), unused="keep")
            yield frame, set_index, rng.random(len(frame))
            self.progress(done, total, text)

    def _sets_in(self, frame: pd.DataFrame) -> Any:
        """Return the sets of rows as they were read: words are numbered without being objects."""
        columns = list(self.set_columns)
        return frame[columns[0]] if len(columns) == 1 else frame[columns]

    def _summarise(self) -> None:
        """Learn the encoding and count the rows of each set, of training rows."""
        summary = TableSummary()
        has_rows = np.zeros(len(self.priors), dtype=bool)
        sizes = np.zeros(len(self.priors), dtype=np.int64)
        all_sizes, others = sizes.copy(), UnratedRows(self.priors)
        for frame, set_index, chance in self._blocks("reading, 1 of 2", others):
            all_sizes += set_rows(set_index, len(self.priors))
            kept = chance >= self.judged_share
            has_rows |= set_rows(set_index, len(self.priors)) > 0
            sizes += set_rows(set_index[kept], len(self.priors))
            if kept.any():
                with naming(self.path):
                    summary.add(frame.loc[kept, list(self.columns)])
        if not self.allow_unused:
            refuse_unused(has_rows, self.priors.index, self.priors.source)
        with naming(self.path):
            encoder = summary.encoder()
        statistics = {
            "encoder": encoder.to_dict(),
            "used": np.flatnonzero(has_rows).tolist(),
            "sizes": sizes[has_rows].tolist(),
            "all_sizes": all_sizes[has_rows].tolist(),
            "left_out": str(others) if others.rows else "",
        }
        atomic_write_text(self.statistics_file, json.dumps(statistics))

    def _scatter(self) -> None:
        """Write the shuffled parts and the two samples."""
        features = len(self.encoder.feature_names)
        self._require_space(4 * self.num_rows * (features + 1))
        position = np.full(len(self.priors) + 1, -1)  # the last for rows without a set
        position[self.statistics["used"]] = np.arange(len(self.statistics["used"]))
        sample_end = self.judged_share + self.sample_share

        def kept_rows() -> Iterator[tuple[Array, Array]]:
            others = UnratedRows(self.priors)
            for frame, set_index, chance in self._blocks("reading, 2 of 2", others):
                out = chance < self.judged_share
                judged.write(frame[out])
                sample.write(frame[~out & (chance < sample_end)])
                with naming(self.path):
                    x = self.encoder.matrix(frame)  # held-out rows too must be fit for use
                yield x[~out], position[set_index[~out]]

        parts = number_of_parts(self.num_rows, features)
        with (
            RowKeeper(self.scratch / "judged.parquet") as judged,
            RowKeeper(self.scratch / "sample.parquet") as sample,
        ):
            scatter_rows(self.scratch, kept_rows(), parts, np.random.default_rng([self.seed, 9]))

    @property
    def sample_share(self) -> float:
        """The share of the rows that may be held in memory as they are."""
        rows = min(MOST_IN_MEMORY, SAMPLE_BYTES // (8 * len(self.columns)))
        return rows / self.num_rows

    @property
    def judged_share(self) -> float:
        """The share of the rows to judge by, which are held in memory."""
        return min(self.held_out, self.sample_share)

    def _require_space(self, wanted: int) -> None:
        """Refuse to start what the disk cannot hold."""
        free = shutil.disk_usage(self.scratch).free
        if free < wanted:
            raise InputError(
                f"shuffling {self.path} takes {wanted / 1e9:.1f} GB beside the model for a while, "
                f"and {free / 1e9:.1f} GB are free; free some space or write the model elsewhere"
            )


class RowKeeper:
    """Writes rows to a Parquet file as they come; no file if there are none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None

    def __enter__(self) -> RowKeeper:
        self._path.unlink(missing_ok=True)
        return self

    def write(self, frame: pd.DataFrame) -> None:
        """Add rows."""
        if len(frame):
            table = pa.Table.from_pandas(frame, preserve_index=False)
            if self._writer is None:  # numbers hardly repeat: to look for what does takes time
                plain: Any = {"use_dictionary": False, "compression": "none"}
                self._writer = pq.ParquetWriter(self._path, table.schema, **plain)
            self._writer.write_table(table)

    def __exit__(self, *exception: object) -> None:
        if self._writer is not None:
            self._writer.close()
