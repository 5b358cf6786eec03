"""Logits of the rows of many files, with what else is asked about these: here, or by workers.

What `evaluate` and `prevalence` say is worked out from them by whoever asked. A file is scored by
itself, so that it changes no bit who does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

__all__ = ["LogitPlan", "LogitWorker", "RowLogits", "joined_sets", "logits_of_files"]

Array = np.ndarray[Any, Any]
Progress = Callable[[int, int | None, str], None]


@dataclass(frozen=True, eq=False)
class RowLogits:
    """What a classifier says of rows, and what their table says."""

    logits: Array
    """At the classifier's base prior, (n,) or (n, K)."""
    resampled: Array
    """Of fits to resampled sets (R, n) or (R, n, K); R is 0 if nobody asked."""
    sets: Any
    """The ids (n,) by the name of their column, a frame for several groupings, or None."""
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
        """Return the logits of one file, batch by batch."""
        from unmix.learn.estimator import SetClassifier

        if not self._clf:
            self._clf.append(SetClassifier.load(self.plan.model))
        return of_file(self._clf[0], self.plan, part)


def of_file(
    clf: SetClassifier,
    plan: LogitPlan,
    part: int,
    progress: Callable[[int], None] = lambda rows: None,
) -> list[RowLogits]:
    """Return the logits of one file, batch by batch; `progress` gets the rows so far."""
    import pandas as pd

    from unmix.data.set_columns import UnratedRows, how_to_read, sets_in
    from unmix.data.tables import scan_rows

    table, names = plan.tables[part], plan.set_columns
    if table.num_rows == 0:
        return []
    types = dict.fromkeys(plan.beside, "str") | dict(clf.encoder_.dtypes)
    found, done = [], 0
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
        sets = pd.DataFrame(sets_in(frame, names)) if names else None
        found.append(RowLogits(logits, resampled, sets, frame[list(plan.beside)], others))
        progress(done)
    return found


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
    done, found = 0, list[RowLogits]()

    def so_far(rows: int, before: int = 0) -> None:
        nonlocal done
        done = before + rows
        progress(done, total, "")

    if engine is None:
        for part in range(len(sizes)):
            found += of_file(clf, plan, part, partial(so_far, before=done))
    else:
        engine.start(plan)
        each = engine.each("logits", len(sizes), done=lambda part: so_far(sizes[part] or 0, done))
        found = [batch for batches in each for batch in batches]
    return _joined(found, plan)


def _joined(found: Sequence[RowLogits], plan: LogitPlan) -> RowLogits:
    """Put batches one after the other."""
    import pandas as pd

    from unmix.data.set_columns import UnratedRows

    others = None if plan.priors is None else UnratedRows(plan.priors)
    for batch in found:
        if others is not None and batch.others is not None:
            others.join(batch.others)
    if others is not None:
        others.refuse_none()
    return RowLogits(
        np.concatenate([batch.logits for batch in found]),
        np.concatenate([batch.resampled for batch in found], axis=1),
        joined_sets([batch.sets for batch in found if batch.sets is not None], plan.set_columns),
        pd.concat([batch.beside for batch in found], ignore_index=True),
        others,
    )


def joined_sets(parts: Sequence[pd.DataFrame], set_columns: Sequence[str]) -> Any:
    """Return the sets of all rows: ids by the name of their column, a frame for several groupings.

    None if there are none.
    """
    import pandas as pd

    if not parts:
        return None
    frame = pd.concat(parts, ignore_index=True)
    return frame if len(set_columns) > 1 else frame.iloc[:, 0].rename(set_columns[0])
