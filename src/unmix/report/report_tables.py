"""The tables of the report as rows of text: numbers, confusion matrix, sets that do not fit.

Chooses words and leaves out what would make a page too long; the mathematics is in `assess`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unmix.assess.estimates import Estimate, Share, largest_classes, p_value
from unmix.assess.evaluate import Evaluation, SetCalibration
from unmix.assess.fit_test import SetMisfit
from unmix.assess.judge import Judgement
from unmix.core.assumptions import Assumption
from unmix.report.number_words import (
    SPACE,
    counted,
    decimal,
    interval,
    percent,
    positive_class,
    share_of,
    shortened,
    stated_percent,
)

__all__ = [
    "MOST_CLASSES",
    "MOST_ROWS",
    "ConfusionCell",
    "ConfusionRow",
    "Fact",
    "MisfitRow",
    "NumberRow",
    "confusion_rows",
    "fact_rows",
    "labeled_confusion_rows",
    "left_out",
    "misfit_rows",
    "number_rows",
    "predicted_share",
]

MOST_ROWS = 20
MOST_CLASSES = 12
NAMED_TOGETHER = 5
NAME_CELLS = 120
CLEAR = 2.0  # standard deviations from which a set looks more or less positive


@dataclass(frozen=True)
class NumberRow:
    """One metric: its name and meaning, value, interval, and the labeled value beside."""

    name: str
    meaning: str
    value: str
    interval: str
    bar: tuple[float, float, float] | None
    """Left end, width and value in percent, for the bar that shows the interval."""
    labeled: str = ""
    inside: bool | None = None
    """Whether the labeled value lies inside the interval."""


@dataclass(frozen=True)
class Fact:
    """A number without an interval."""

    name: str
    meaning: str
    value: str


@dataclass(frozen=True)
class ConfusionCell:
    """Share of one decision in one class."""

    value: str
    interval: str
    labeled: str
    weight: float
    right: bool


@dataclass(frozen=True)
class ConfusionRow:
    """What is decided about the rows of one class."""

    name: str
    cells: tuple[ConfusionCell, ...]


@dataclass(frozen=True)
class MisfitRow:
    """A set that does not fit, or several small ones that were tested together."""

    names: tuple[str, ...]
    more: int
    rows: str
    stated: str
    predicted: str
    p_value: str
    direction: str


def number_rows(evaluation: Evaluation, classes: Sequence[str]) -> list[NumberRow]:
    """Return the metrics of an evaluation."""
    labeled = evaluation.labeled
    positive = positive_class(classes)
    there = "at the base rate where it is used"
    if len(classes) == 2:
        there = f"where {stated_percent(share_of(evaluation.target_prior, 1))} are {positive}"
    metrics = [
        ("Accuracy", f"correct predictions {there}", "accuracy"),
        ("Balanced accuracy", "correct predictions if all classes were equally common", "balanced"),
        ("AUC", "chance that a positive scores above a negative; 0.5 is guessing", "auc"),
        ("True positive rate", f"share of {positive} that is found", "tpr"),
        ("False positive rate", f"share of all others predicted as {positive}", "fpr"),
    ]
    rows = []
    for name, meaning, key in metrics:
        attribute = "balanced_accuracy" if key == "balanced" else key
        estimate: Estimate | None = getattr(evaluation, attribute)
        if estimate is None:
            continue
        truth: float | None = None if labeled is None else getattr(labeled, attribute)
        write = decimal if key == "auc" else percent
        rows.append(
            NumberRow(
                name=name,
                meaning=meaning,
                value=write(estimate.value),
                interval=interval(estimate, in_percent=key != "auc"),
                bar=_bar(estimate),
                labeled="" if truth is None else write(truth),
                inside=None if truth is None else estimate.low <= truth <= estimate.high,
            )
        )
    return rows


def fact_rows(judgement: Judgement) -> list[Fact]:
    """Return how much there was to learn and to judge from."""
    diagnosis = judgement.diagnosis
    worth, of_labels = diagnosis.worth_in_labels, judgement.training_labels
    facts = [
        Fact(
            "Effective number of labels",
            "labeled rows that would be as informative",
            f"about {worth:,.0f}" if math.isfinite(worth) else "unknown",
        ),
        Fact("Training rows", "without labels", f"{diagnosis.num_rows - of_labels:,}"),
    ]
    if of_labels:
        facts.append(Fact("Labeled rows", "trained on, so no audit", f"{of_labels:,}"))
    if judgement.evaluation is not None:
        facts.append(
            Fact(
                "Held-out rows",
                "not trained on, used to evaluate",
                f"{judgement.evaluation.rows:,}",
            )
        )
    smallest, largest = diagnosis.smallest_set[1], diagnosis.largest_set[1]
    sizes = f"{smallest:,} to {largest:,} rows" if smallest < largest else f"{largest:,} rows each"
    facts.append(Fact("Sets", f"of {sizes}", f"{diagnosis.num_sets:,}"))
    return facts


def confusion_rows(evaluation: Evaluation, classes: Sequence[str]) -> list[ConfusionRow]:
    """Return the confusion matrix of K classes, of the most common ones if there are many."""
    matrix = evaluation.confusion
    if matrix is None:
        return []
    shown = largest_classes(np.broadcast_to(evaluation.target_prior, len(classes)), MOST_CLASSES)
    labeled = evaluation.labeled
    return [
        ConfusionRow(
            shortened(classes[truth], 40),
            tuple(
                ConfusionCell(
                    value=_tenths(matrix.value[truth][decision]),
                    interval=interval(
                        Estimate(
                            matrix.value[truth][decision],
                            matrix.low[truth][decision],
                            matrix.high[truth][decision],
                        )
                    ),
                    labeled="" if labeled is None else _tenths(labeled.confusion[truth][decision]),
                    weight=round(matrix.value[truth][decision], 3),
                    right=truth == decision,
                )
                for decision in shown
            ),
        )
        for truth in shown
    ]


def labeled_confusion_rows(evaluation: Evaluation, classes: Sequence[str]) -> list[ConfusionRow]:
    """Return the confusion matrix by labels, of the most common classes if there are many."""
    if evaluation.labeled is None:
        return []
    matrix = evaluation.labeled.confusion
    shown = largest_classes(np.broadcast_to(evaluation.target_prior, len(classes)), MOST_CLASSES)
    return [
        ConfusionRow(
            shortened(classes[truth], 40),
            tuple(
                ConfusionCell(
                    value=_tenths(matrix[truth][decision]),
                    interval="",
                    labeled="",
                    weight=round(matrix[truth][decision], 3),
                    right=truth == decision,
                )
                for decision in shown
            ),
        )
        for truth in shown
    ]


def _tenths(share: float) -> str:
    """Return a share of a confusion matrix in percent, small ones to no more digits than others."""
    return f"{100 * share:.1f}{SPACE}%"


def predicted_share(entry: SetCalibration, assumption: Assumption) -> Share:
    """Return the share that is predicted for a set by the rule of an assumption."""
    return entry.share if assumption.set_posterior else entry.mean_share


def misfit_rows(judgement: Judgement) -> list[MisfitRow]:
    """Return all sets that do not fit, worst first; the page shows the first `MOST_ROWS`."""
    evaluation = judgement.evaluation
    if evaluation is None:
        return []
    entries = {entry.set_id: entry for entry in evaluation.calibration}
    worst_first = sorted(
        (misfit for misfit in evaluation.fit_test.sets if not misfit.fits),
        key=lambda misfit: (misfit.adjusted_p_value, misfit.p_value, -misfit.chi_square),
    )
    return [_misfit_row(misfit, entries, judgement) for misfit in worst_first]


def _misfit_row(
    misfit: SetMisfit, entries: dict[str, SetCalibration], judgement: Judgement
) -> MisfitRow:
    """Say how one flagged set differs from what its share explains."""
    members = [entries[name] for name in misfit.set_ids]
    rows = [entry.rows for entry in members]
    stated = np.average([entry.stated for entry in members], axis=0, weights=rows)
    shares = [predicted_share(entry, judgement.assumption) for entry in members]
    predicted = np.average(shares, axis=0, weights=rows)
    # Two classes are told by the share of the positive one, more by the share that is off most.
    k, named = 1, ""
    if len(judgement.classes) > 2:
        k = int(np.argmax(abs(predicted - stated)))
        named = f"{shortened(judgement.classes[k], 24)} "
    return MisfitRow(
        names=tuple(shortened(name, NAME_CELLS) for name in misfit.set_ids[:NAMED_TOGETHER]),
        more=max(len(misfit.set_ids) - NAMED_TOGETHER, 0),
        rows=f"{misfit.rows:,}",
        stated=named + percent(share_of(_share(stated), k)),
        predicted=named + percent(share_of(_share(predicted), k)),
        p_value=p_value(misfit.adjusted_p_value),
        direction=_direction(misfit.residual, _share(stated), _share(predicted), k, judgement),
    )


def _direction(
    residual: float, stated: Share, predicted: Share, k: int, judgement: Judgement
) -> str:
    """Say in words in which way a set differs."""
    if math.isnan(residual):
        more = share_of(predicted, k) > share_of(stated, k)
        return f"{'more' if more else 'less'} {shortened(judgement.classes[k], 24)} than stated"
    if abs(residual) < CLEAR:
        return "its scores are distributed differently than in the other sets"
    if not judgement.assumption.set_posterior:  # the predicted share may lie on the other side
        side = "higher" if residual > 0 else "lower"
        return f"scores {side} than its stated share explains"
    positive = positive_class(judgement.classes)
    share = "a larger" if residual > 0 else "a smaller"
    return f"looks as if it had {share} share of {positive} than stated"


def _share(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Share:
    """Return an array as a share."""
    return tuple(values.tolist()) if values.ndim else float(values)


def _bar(estimate: Estimate) -> tuple[float, float, float]:
    """Return left end, width and value in percent."""
    if not all(map(math.isfinite, (estimate.low, estimate.high, estimate.value))):
        return (0.0, 0.0, 0.0)
    left, right = 100 * estimate.low, 100 * estimate.high
    return (round(left, 1), round(right - left, 1), round(100 * estimate.value, 1))


def left_out(total: int, one: str, many: str) -> str:
    """Say how many rows a table leaves out, or nothing."""
    rest = total - MOST_ROWS
    return f"{counted(rest, one, many)} more not shown." if rest > 0 else ""
