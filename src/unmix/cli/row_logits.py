"""Logits of the rows of many files, with what else is asked about these: here, or by workers.

What `evaluate` and `prevalence` say is worked out from them by whoever asked. A file is scored by
itself, so that it changes no bit who does it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from unmix.cli.group import about_rows
from unmix.cli.scoring import features_of

if TYPE_CHECKING:
    import pandas as pd

    from unmix.data.priors import Priors
    from unmix.data.set_columns import UnratedRows
    from unmix.data.tables import Table
    from unmix.learn.estimator import SetClassifier

__all__ = ["LogitPlan", "LogitWorker", "RowLogits", "logits_of_files"]

Array = np.ndarray[Any, Any]
Progress = Callable[[int, int | None, str], None]


@dataclass(frozen=True, eq=False)
class RowLogits:
    """What a classifier says of rows, and what their table says."""

    logits: Array
    """At the classifier's base prior, (n,) or (n, K)."""
    resampled: Array
    """Of fits to resampled sets (R, n) or (R, n, K); R is 0 if nobody asked."""
    sets: pd.DataFrame
    """Their ids: no column, one, or one for each grouping."""
    beside: pd.DataFrame
    """Other columns of these rows."""
    others: UnratedRows | None
    """Rows that were left out, since their sets have no rate."""


@dataclass(frozen=True)
class LogitPlan:
    """What is asked about the rows of some files."""

    tables: tuple[Table, ...]
    """One for each file."""
    model: str
    """The folder of the classifier, which every worker reads."""
    set_columns: tuple[str, ...]
    beside: tuple[str, ...]
    """Other columns, read as text unless they are features."""
    resampled: bool
    priors: Priors | None
    """Rows whose sets have no rate in these are left out; None: all rows stay."""

    def worker(self) -> LogitWorker:
        """Return what does the work in its process."""
        return LogitWorker(self)


@dataclass
class LogitWorker:
    """Works out the logits of the files of a plan."""

    plan: LogitPlan
    _clf: list[SetClassifier] = field(default_factory=list)

    def logits(self, part: int) -> list[RowLogits]:
        """Return the logits of one file, if it has rows."""
        from unmix.learn.estimator import SetClassifier

        if not self._clf:
            self._clf.append(SetClassifier.load(self.plan.model))
        rows = JoinedRows(self.plan)
        for batch in of_file(self._clf[0], self.plan, part):
            rows.add(batch)
        return [rows.joined()] if rows.logits else []


def of_file(
    clf: SetClassifier,
    plan: LogitPlan,
    part: int,
    progress: Callable[[int], None] = lambda rows: None,
) -> Iterator[RowLogits]:
    """Yield the logits of one file, batch by batch; `progress` gets the rows so far."""
    from unmix.data.set_columns import UnratedRows, how_to_read, sets_in
    from unmix.data.tables import scan_rows

    table, names = plan.tables[part], plan.set_columns
    if table.num_rows == 0:
        return
    types = dict.fromkeys(plan.beside, "str") | dict(clf.encoder_.dtypes)
    done = 0
    for frame in scan_rows(table, **how_to_read(list(types), names, types)):
        done += len(frame)
        others = None
        if plan.priors is not None:
            others = UnratedRows(plan.priors, whole=False)
            rated = others.rated(sets_in(frame, names))
            frame = frame if rated is None else frame[rated]
        with about_rows(table, frame):
            features = features_of(clf, frame)
            logits = clf.logits_at(features, clf.learner_.base_prior)
            resampled = clf.resampled_logits(features) if plan.resampled else logits[None][:0]
        sets = frame[list(names)]
        progress(done)
        yield RowLogits(logits, resampled, sets, frame[list(plan.beside)], others)


def logits_of_files(
    clf: SetClassifier, plan: LogitPlan, engine: Any, progress: Progress
) -> RowLogits:
    """Return the logits of all rows, file after file, by an engine if there is one.

    Parameters
    ----------
    clf : SetClassifier
        The one in the folder of the plan.
    plan : LogitPlan
    engine : Engine or None
    progress : function (rows done, rows, text)
    """
    sizes = [table.num_rows for table in plan.tables]
    total = None if None in sizes else sum(size or 0 for size in sizes)
    one = plan.priors is not None and len(plan.set_columns) == 1
    done, rows = 0, JoinedRows(plan, plan.priors.index if one and plan.priors else None)

    def so_far(rows: int, before: int = 0) -> None:
        nonlocal done
        done = before + rows
        progress(done, total, "")

    if engine is None:
        for part in range(len(sizes)):
            for batch in of_file(clf, plan, part, partial(so_far, before=done)):
                rows.add(batch)
    else:
        engine.start(plan)
        each = engine.each("logits", len(sizes), done=lambda part: so_far(sizes[part] or 0, done))
        for batch in (batch for batches in each for batch in batches):
            rows.add(batch)
    if rows.others is not None:
        rows.others.refuse_none()
    return rows.joined()


class JoinedRows:
    """What is said of the rows of many batches, with each name of a set kept once."""

    def __init__(self, plan: LogitPlan, known: Mapping[Hashable, int] | None = None) -> None:
        from unmix.data.set_columns import CodedColumns, UnratedRows

        self.plan = plan
        self.logits: list[Array] = []
        self.resampled: list[Array] = []
        self.sets = CodedColumns(known)
        self.beside = CodedColumns()
        self.others = None if plan.priors is None else UnratedRows(plan.priors, whole=False)

    def add(self, batch: RowLogits) -> None:
        """Put a batch after the others."""
        self.logits.append(batch.logits)
        self.resampled.append(batch.resampled)
        self.sets.add(batch.sets)
        self.beside.add(batch.beside)
        if self.others is not None and batch.others is not None:
            self.others.join(batch.others)

    def joined(self) -> RowLogits:
        """Return all of them; the batches are gone then."""
        return RowLogits(
            _one_array(self.logits, 0),
            _one_array(self.resampled, 1),
            self.sets.joined(),
            self.beside.joined(),
            self.others,
        )


def _one_array(batches: list[Array], axis: int) -> Array:
    """Put batches one after the other, each of which is let go: they are not there twice."""
    shape = list(batches[0].shape)
    shape[axis] = sum(batch.shape[axis] for batch in batches)
    whole = np.empty(shape, batches[0].dtype)
    place, first = np.moveaxis(whole, axis, 0), 0
    batches.reverse()
    while batches:
        batch = np.moveaxis(batches.pop(), axis, 0)
        place[first : first + len(batch)] = batch
        first += len(batch)
    return whole
