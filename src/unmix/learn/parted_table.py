"""Fitting a table in many files by sums that workers make, each over the files it reads.

Two passes of the workers come first: one summarises the columns and counts the rows of each set,
the other encodes the rows, which the workers keep. What they found, and the random samples by which
a model is chosen and judged, lies in the scratch folder of the run (`streaming`), so that a fit
whose driver was killed resumes; all else is a function of the files and the seed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from unmix.core.class_shares import ClassShares
from unmix.data.priors import refuse_unused
from unmix.data.set_columns import UnratedRows
from unmix.data.sets import UnlabeledSets
from unmix.data.tables import infer_dtypes, naming
from unmix.errors import InputError
from unmix.files import atomic_write_text
from unmix.learn.encoding import TableSummary
from unmix.learn.part_files import Engine, FileParts, FilePlan, Known, PartSummary, one_by_one
from unmix.learn.sets_in_parts import SetsInParts
from unmix.learn.streaming import RowKeeper, StreamedTable

if TYPE_CHECKING:
    from unmix.learn.models import Learner

__all__ = ["PartedTable"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class PartedTable:
    """A table in many files on its way to a model.

    Parameters
    ----------
    streamed : StreamedTable
        The same table, and where its scratch folder is; nothing is scattered.
    engine : Engine
        Who has the workers.
    """

    streamed: StreamedTable
    engine: Engine

    def prepare(self) -> None:
        """Let the workers make their two passes, the first only if it was not made before."""
        self.engine.start(self.plan)
        if not self.streamed.statistics_file.exists():
            self._summarise()
        rows, text = self.part_rows, "encoding, 2 of 2"
        found = self.engine.each("check", len(rows), self.known, done=self._counting(rows, text))
        for table, expected, encoded in zip(self.plan.tables, rows, found, strict=True):
            if expected != encoded:
                raise InputError(
                    f"{table.path} has changed since it was first read; run the command again"
                )

    @cached_property
    def plan(self) -> FilePlan:
        """What every worker knows from the start."""
        streamed = self.streamed
        tables = one_by_one(streamed.table)
        types = infer_dtypes(streamed.table)
        return FilePlan(
            tables,
            tuple(streamed.columns),
            streamed.set_columns,
            {name: types[name] for name in streamed.columns},
            streamed.priors,
            streamed.judged_share,
            streamed.sample_share,
            streamed.seed,
        )

    @cached_property
    def known(self) -> Known:
        """What every worker must know to encode its rows."""
        position = np.full(len(self.streamed.priors), -1)
        used = self.streamed.statistics["used"]
        position[used] = np.arange(len(used))
        return Known(self.streamed.encoder, position)

    @property
    def part_rows(self) -> list[int]:
        """Training rows of each part."""
        return [int(rows) for rows in self.streamed.statistics["part_rows"]]

    def rows(self, sample: Any, set_index: Array) -> SetsInParts:
        """Return all training rows as sets that are asked for sums.

        Parameters
        ----------
        sample : data frame
            Those at hand.
        set_index : array of integers, shape (n,) or (n, G)
            Their sets.
        """
        priors, encoder = self.streamed.used_priors, self.streamed.encoder
        parts = self._parts()
        shares = ClassShares.of(priors.set_priors).of_positives()
        x = encoder.matrix(sample)
        seen = UnlabeledSets(x, set_index, shares, None, priors.set_ids)
        return SetsInParts(parts, seen, shares, None, priors.set_ids)

    def judged(self, learner: Learner) -> Array:
        """Return the logits of the rows held out to judge by, in the order of their sets."""
        return self._parts().judged(learner)

    def _parts(self) -> FileParts:
        """Return who is asked about the training rows."""
        features = len(self.streamed.encoder.feature_names)
        return FileParts(self.engine, self.known, self._part_sets(), self.part_rows, features)

    def _part_sets(self) -> list[Array]:
        """Return the training rows of each set in each part, (m,) each."""
        found = []
        for sets, rows in self.streamed.statistics["part_sets"]:
            found.append(np.zeros(len(self.streamed.used_priors), dtype=np.int64))
            found[-1][sets] = rows
        return found

    def _summarise(self) -> None:
        """Add up what the parts say of themselves, in their order, and keep it."""
        streamed, priors = self.streamed, self.streamed.priors
        total = [table.num_rows or 0 for table in self.plan.tables]
        counting = self._counting(total, "reading, 1 of 2")
        parts: list[PartSummary] = self.engine.each("summarise", len(total), done=counting)
        columns, others = TableSummary(), UnratedRows(priors)
        for part in parts:
            columns.take_in(part.columns)
            others.join(part.others)
        others.refuse_none()
        sizes = np.stack([part.sizes for part in parts])  # (parts, sets)
        all_sizes = np.sum([part.all_sizes for part in parts], axis=0)
        has_rows = all_sizes > 0
        if not streamed.allow_unused:
            refuse_unused(has_rows, priors.index, priors.source)
        with naming(streamed.path):
            encoder = columns.encoder()
        for name in ("judged", "sample"):
            with RowKeeper(streamed.scratch / f"{name}.parquet") as keeper:
                for part in parts:
                    keeper.write(getattr(part, name))
        own = sizes[:, has_rows]
        statistics = {
            "encoder": encoder.to_dict(),
            "used": np.flatnonzero(has_rows).tolist(),
            "sizes": own.sum(axis=0).tolist(),
            "all_sizes": all_sizes[has_rows].tolist(),
            "left_out": str(others) if others.rows else "",
            "part_sets": [[row.nonzero()[0].tolist(), row[row > 0].tolist()] for row in own],
            "part_rows": [part.rows for part in parts],
        }
        atomic_write_text(streamed.statistics_file, json.dumps(statistics))

    def _counting(self, rows: list[int], text: str) -> Callable[[int], None]:
        """Return a function that tells how many rows are done when a part is."""
        done, total = 0, sum(rows)

        def counted(part: int) -> None:
            nonlocal done
            done += rows[part]
            self.streamed.progress(done, total, text)

        return counted
