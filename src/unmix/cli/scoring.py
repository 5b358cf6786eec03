"""Scores of rows, batch by batch: what `predict` does to one table, here or in a worker."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmix.cli.group import about_rows
from unmix.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from unmix.assess.drift import DriftCount
    from unmix.data.tables import Table
    from unmix.learn.estimator import SetClassifier

__all__ = ["ScorePlan", "Scoring", "features_of", "refuse_other_scores", "require_features"]

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Scoring:
    """How rows become scores."""

    clf: SetClassifier
    kept: tuple[str, ...]
    """Columns that are kept beside the scores."""
    threshold: float | None
    quote_formulas: bool

    def write(
        self,
        table: Table,
        output: str | os.PathLike[str],
        drift: DriftCount,
        *,
        known: Any = None,
        progress: Callable[[int, int | None, str], None] = lambda done, total, text: None,
    ) -> tuple[int, dict[str, tuple[int, str]]]:
        """Score a table into a file; return its rows and the categories that were new.

        Parameters
        ----------
        table : Table
        output : path
        drift : DriftCount
            Counts the rows.
        known : array, shape (n, K), optional
            Probabilities of all rows, where they are known already.
        progress : function (done, total, text)
        """
        from unmix.data.tables import write_rows

        unseen: dict[str, tuple[int, str]] = {}
        batches = self._batches(table, os.fspath(output), drift, known, unseen, progress)
        return write_rows(output, batches, quote_formulas=self.quote_formulas), unseen

    def _batches(
        self,
        table: Table,
        output: str,
        drift: DriftCount,
        known: Any,
        unseen: dict[str, tuple[int, str]],
        progress: Callable[[int, int | None, str], None],
    ) -> Iterator[Any]:
        """Yield the scores of a batch of rows after the other."""
        from unmix.data.addresses import is_csv
        from unmix.data.tables import rows_per_batch, scan_kept, scan_rows
        from unmix.learn.fitted import class_probabilities
        from unmix.learn.models import score_columns

        clf, kept, done = self.clf, list(self.kept), 0
        as_they_lie = not any(map(is_csv, table.files)) and bool(kept)
        columns = list(dict.fromkeys([*clf.encoder_.needed, *(() if as_they_lie else kept)]))
        features = clf.encoder_.dtypes
        types = {k: v for k, v in features.items() if v == "str" or k not in kept or as_they_lie}
        batch_rows = rows_per_batch(len(columns) + len(kept))
        if all(map(is_csv, table.files)) and is_csv(output):  # 007 stays 007
            types |= {name: "str" for name in kept if name not in features}
        scan = scan_rows(table, columns=columns, dtypes=types, batch_rows=batch_rows)
        beside = scan_kept(table, kept, batch_rows) if as_they_lie else repeat(None)
        for frame, lying in zip(scan, beside, strict=False):
            with about_rows(table, frame):
                if known is None:
                    rows = features_of(clf, frame)
                    base = clf.learner_.base_prior
                    logits = clf.logits_at(rows, base)
                    drift.add(rows, logits, base)
                    probability = class_probabilities(clf.lone_logits(logits), clf.learner_.tau)
                else:
                    probability = known[done : done + len(frame)]
            own = frame[[]] if as_they_lie else frame[kept]
            scores = score_columns(own, probability, clf.classes_, self.threshold)
            for name, (count, example) in clf.encoder_.unseen(frame).items():
                unseen[name] = (unseen.get(name, (0, example))[0] + count, example)
            done += len(frame)
            progress(done, table.num_rows, "")
            yield scores if lying is None else _beside(lying, scores)


@dataclass(frozen=True)
class ScorePlan:
    """What every worker must know to score files."""

    tables: tuple[Table, ...]
    """One for each file."""
    model: str
    """The folder of the model, which every worker reads."""
    target_prior: Any
    """None: that of the model."""
    kept: tuple[str, ...]
    threshold: float | None
    quote_formulas: bool
    every: int
    """Each so many-th row is compared with those of training."""
    folder: str
    names: tuple[str, ...]
    """The file that is written for each."""

    def worker(self) -> ScoreWorker:
        """Return what does the work in its process."""
        return ScoreWorker(self)


@dataclass
class ScoreWorker:
    """Scores the files of a plan; what it writes is a function of the file and the model alone."""

    plan: ScorePlan
    _clf: list[SetClassifier] = field(default_factory=list)

    def score(self, part: int) -> tuple[int, str, dict[str, tuple[int, str]], Any]:
        """Write the scores of one file: all of them or nothing.

        Returns
        -------
        rows, SHA-256 of the file, the categories that were new, what was counted of drift
        """
        from unmix.assess.drift import DriftCount
        from unmix.files import sha256_of
        from unmix.learn.estimator import SetClassifier

        plan = self.plan
        if not self._clf:
            self._clf.append(SetClassifier.load(plan.model))
            if plan.target_prior is not None:
                self._clf[0].retarget(plan.target_prior)
        clf = self._clf[0]
        drift = DriftCount(clf, every=plan.every)
        target = Path(plan.folder) / plan.names[part]
        scoring = Scoring(clf, plan.kept, plan.threshold, plan.quote_formulas)
        rows, unseen = scoring.write(plan.tables[part], target, drift)
        return rows, sha256_of(target), unseen, drift.counted()


def names_of(tables: tuple[Table, ...], ending: str) -> tuple[str, ...]:
    """Return a file name for the scores of each file: its own, with a number if it is not alone."""
    stems = [Path(table.files[0]).name.partition(".")[0] for table in tables]
    alone = len(set(stems)) == len(stems)
    return tuple(
        f"{stem}{ending}" if alone else f"{stem}-{i:05}{ending}" for i, stem in enumerate(stems)
    )


def write_parts(
    plan: ScorePlan, engine: Any, folder: Path, drift: DriftCount, progress: Any
) -> Any:
    """Let an engine score the files of a plan into a folder; return rows and new categories."""
    plan = replace(plan, folder=os.fspath(folder))
    engine.start(plan)
    sizes = [table.num_rows or 0 for table in plan.tables]
    done, unseen = 0, dict[str, tuple[int, str]]()

    def finished(part: int) -> None:
        nonlocal done
        done += sizes[part]
        progress(done, sum(sizes), "")

    found = engine.each("score", len(sizes), done=finished)
    for _, _, own, counted in found:
        drift.add_counted(counted)
        for name, (count, example) in own.items():
            before = unseen.get(name, (0, example))
            unseen[name] = (before[0] + count, before[1])
    files = {
        name: {"rows": rows, "sha256": digest, "of": table.files[0]}
        for name, table, (rows, digest, _, _) in zip(plan.names, plan.tables, found, strict=True)
    }
    total = sum(rows for rows, *_ in found)
    text = json.dumps({"format": "unmix scores", "rows": total, "files": files}, indent=1)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
    return total, unseen


def refuse_other_scores(folder: Path) -> None:
    """Raise InputError if a folder holds anything but scores that were written here."""
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        ours = {MANIFEST, *found["files"]} if found["format"] == "unmix scores" else set()
    except (OSError, ValueError, KeyError, TypeError):
        ours = set()
    if others := sorted(entry.name for entry in folder.iterdir() if entry.name not in ours):
        raise InputError(
            f"will not overwrite the folder {folder}: {others[0]} in it is no file of scores; "
            "choose another name"
        )


def features_of(clf: SetClassifier, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of training; those that nobody looks at may be missing."""
    return frame.reindex(columns=clf.encoder_.columns)


def _beside(kept: Any, scores: pd.DataFrame) -> Any:
    """Return the columns that are kept as they lie, and the scores, as one Arrow table."""
    import pyarrow as pa

    added = pa.Table.from_pandas(scores, preserve_index=False)
    for name in added.column_names:
        kept = kept.append_column(name, added[name])
    return kept.replace_schema_metadata(None)


def require_features(clf: SetClassifier, table: Table) -> None:
    """Refuse a table that lacks a column of the model."""
    from unmix.data.wording import listed

    if not hasattr(clf.encoder_, "columns"):
        raise InputError("the model is one of images, and the rows of a file are not")
    available = table.columns
    absent = [name for name in clf.encoder_.needed if name not in available]
    if absent:
        raise InputError(
            f"{table.path} lacks {listed(absent)}, which the model needs; it has "
            f"{listed(available, 10)}: rename or add columns (empty cells are allowed)"
        )
