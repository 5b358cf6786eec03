"""From runs to the numbers of a table: means, deviations, which are best. Formats nothing."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import ttest_rel

from unmix.learn.methods import method_named
from unmix.studies.cell import Cell
from unmix.studies.grid import STUDIES, Row, Study, has_sets
from unmix.studies.published import Published

__all__ = ["LEVEL", "Entry", "Summary", "mean_and_deviation", "summarize"]

LEVEL = 0.05  # of the test that decides which errors cannot be told from the best


@dataclass(frozen=True)
class Entry:
    """One number of a table: a method in a column, over seeds. Errors are in percent."""

    dataset: str
    row: str
    column: str
    num_sets: int
    """0: the supervised reference, which has none."""
    seeds: tuple[int, ...]
    """Those that were run; empty: the place is blank."""
    errors: tuple[float, ...]
    """Of the last epoch, in the order of `seeds`."""
    mean: float | None
    std: float | None
    """Sample standard deviation (n - 1); None with fewer than two seeds."""
    selected_errors: tuple[float, ...]
    """Of the epoch chosen without labels."""
    selected_mean: float | None
    selected_std: float | None
    paper: Published | None
    epochs: int | None
    best: bool
    """The least mean among rivals, or not to be told from it by a paired t-test at 5 %."""
    runs: tuple[dict[str, Any], ...]
    """What `run_cell` returned, in the order of `seeds`."""


@dataclass(frozen=True)
class Summary:
    """A study in numbers."""

    study: Study
    entries: tuple[Entry, ...]
    supervised: dict[str, Entry]
    """The reference by dataset, where it was run with the same recipe, epochs and scale."""

    @property
    def all_entries(self) -> tuple[Entry, ...]:
        """The entries and the reference, once each."""
        return (*self.entries, *(e for e in self.supervised.values() if e not in self.entries))


def summarize(
    study: Study, results: Mapping[Cell, dict[str, Any]], rows: Sequence[Row] | None = None
) -> Summary:
    """Return the numbers of a study.

    Parameters
    ----------
    study : Study
    results : mapping from Cell to the result of its run
        May hold other runs too, as `RunStore.results` does.
    rows : sequence of Row, optional
        The places of the table; all of `study.cells()` if left out.
    """
    rows = study.cells() if rows is None else rows
    entries = _entries(rows, results)
    return Summary(study, tuple(_with_best(entries)), _supervised(rows, results))


def _entries(rows: Sequence[Row], results: Mapping[Cell, dict[str, Any]]) -> list[Entry]:
    """Return one entry per place, over the seeds that were run."""
    places: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        cell = row.cell
        places.setdefault((cell.dataset, row.row, row.column, cell.num_sets), []).append(row)
    return [_entry(members, results) for members in places.values()]


def _entry(rows: Sequence[Row], results: Mapping[Cell, dict[str, Any]]) -> Entry:
    """Return the entry of one place."""
    cell = rows[0].cell
    runs = tuple(results[row.cell] for row in rows if row.cell in results)
    errors = tuple(100 * run["test_error"] for run in runs)
    selected = tuple(
        100 * run["selected_test_error"] for run in runs if "selected_test_error" in run
    )
    mean, std = mean_and_deviation(errors)
    selected_mean, selected_std = mean_and_deviation(selected)
    return Entry(
        dataset=cell.dataset,
        row=rows[0].row,
        column=rows[0].column,
        num_sets=cell.num_sets if has_sets(cell) else 0,
        seeds=tuple(run["seed"] for run in runs),
        errors=errors,
        mean=mean,
        std=std,
        selected_errors=selected,
        selected_mean=selected_mean,
        selected_std=selected_std,
        paper=rows[0].paper,
        epochs=runs[0]["epochs"] if runs else None,
        best=False,
        runs=runs,
    )


def mean_and_deviation(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return mean and sample standard deviation, as far as there are values."""
    mean = float(np.mean(values)) if values else None
    return mean, float(np.std(values, ddof=1)) if len(values) > 1 else None


def _with_best(entries: Sequence[Entry]) -> list[Entry]:
    """Mark the best of each column, if it has rivals, and those not to be told from it."""
    marked = []
    for entry in entries:
        place = (entry.dataset, entry.num_sets, entry.column)
        known = {
            e.row: (e.mean, e)
            for e in entries
            if (e.dataset, e.num_sets, e.column) == place and e.mean is not None
        }
        best = min(known.values(), key=lambda pair: pair[0])[1] if len(known) > 1 else None
        is_best = best is not None and entry.row in known and _cannot_be_told(entry, best)
        marked.append(replace(entry, best=is_best))
    return marked


def _cannot_be_told(entry: Entry, best: Entry) -> bool:
    """Say whether a paired t-test over the common seeds sees no difference from the best."""
    if entry.row == best.row:
        return True
    ours, theirs = (dict(zip(e.seeds, e.errors, strict=True)) for e in (entry, best))
    common = [seed for seed in ours if seed in theirs]
    if len(common) < 2:
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant differences: nothing to warn of here
        p = ttest_rel([ours[s] for s in common], [theirs[s] for s in common]).pvalue
    return not p < LEVEL  # all differences zero: p is nan


def _supervised(rows: Sequence[Row], results: Mapping[Cell, dict[str, Any]]) -> dict[str, Entry]:
    """Return the reference of each dataset that has one."""
    found: dict[str, Entry] = {}
    for dataset in dict.fromkeys(row.cell.dataset for row in rows):
        cells = [row.cell for row in rows if row.cell.dataset == dataset]
        seeds = list(dict.fromkeys(cell.seed for cell in cells))
        like = cells[0]
        # A method with more epochs of its own is no reason to train the reference longer.
        epochs = None if like.epochs == method_named(like.method).longer else like.epochs
        reference = STUDIES["supervised"].cells(
            [dataset], None, seeds, like.recipe, epochs, like.scale
        )
        entry = _entry(reference, results)
        if entry.runs:
            found[dataset] = entry
    return found
