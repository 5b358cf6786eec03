"""How do new rows differ from those of training? Columns and scores, without labels.

The population stability index (PSI) compares two distributions cell by cell::

    sum over cells of (q - p) log(q / p)        p the share of training rows, q of new ones

Below 0.1 is usually called stable, above 0.25 a large change. Few rows make it large by chance, so
that a difference is only claimed above what chance explains. Other class shares alone move columns
and scores too: `prevalence` tells them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import chdtri, ndtri

from unmix.learn.columns import CategoryColumn, Column, NumberColumn, column_numbers
from unmix.learn.models import move_logits
from unmix.learn.training_summary import (
    Distribution,
    cells_of_column,
    cells_of_numbers,
    class_log_odds,
)

if TYPE_CHECKING:
    import pandas as pd

    from unmix.learn.estimator import SetClassifier

__all__ = ["Drift", "DriftCount", "Drifted", "drift_of", "stability_index"]

Array = np.ndarray[Any, Any]

STABLE = 0.1
OUTSIDE = 0.01  # share of values beyond those of training, or of new categories, to speak of
MORE_MISSING = 0.05
LEAST_ROWS = 5  # beyond those of training, to speak of
CHANCE = 0.01  # that anything at all is claimed of rows like those of training
SHOWN_MOVE = 0.05  # of the share above the median, to be the way in which a column differs
BLOCK_ROWS = 100_000  # of a large table that are compared


@dataclass(frozen=True)
class Drifted:
    """How one column, or the scores of one class, differ from training."""

    name: str
    psi: float
    """Population stability index, missing values being a cell of their own."""
    missing: float
    """Share of missing values."""
    missing_in_training: float
    above: float | None
    """Share of the numbers that are larger than any in training; None for categories."""
    below: float | None
    """Share of the numbers that are smaller than any in training."""
    other: float | None
    """Share of rows with categories that training did not keep; None for numbers."""
    differs: bool
    """Whether there is more to it than chance."""
    sentence: str
    """What to say of it; empty if it does not differ."""


@dataclass(frozen=True)
class Drift:
    """How new rows differ from those of training."""

    rows: int
    """New rows that were compared."""
    columns: tuple[Drifted, ...]
    """In the order of training."""
    scores: tuple[Drifted, ...]
    """One for two classes, else one per class."""

    @property
    def differs(self) -> bool:
        """Whether any column or score differs by more than chance explains."""
        return any(one.differs for one in (*self.columns, *self.scores))

    @property
    def sentences(self) -> list[str]:
        """What to say, the scores first, then columns from the largest change on."""
        columns = sorted(self.columns, key=lambda one: -one.psi)
        return [one.sentence for one in (*self.scores, *columns) if one.sentence]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "rows": self.rows,
            "differs": self.differs,
            "sentences": self.sentences,
            "columns": [asdict(one) for one in self.columns],
            "scores": [asdict(one) for one in self.scores],
        }


class DriftCount:
    """Counts new rows as they come, in the cells of training.

    Parameters
    ----------
    clf : UnmixClassifier
    every : int
        Only each so many-th row is counted.
    """

    def __init__(self, clf: SetClassifier, *, every: int = 1) -> None:
        self._clf, self.every, self._offset = clf, every, 0
        summary = clf.training_summary_
        self.known = summary is not None
        self._columns = [_Count(d) for d in summary.columns] if summary else []
        self._scores = [_Count(d) for d in summary.scores] if summary else []
        self._rows = 0

    @classmethod
    def of_table(cls, clf: SetClassifier, rows: int) -> DriftCount:
        """Return one for a table of so many rows, of which enough are counted."""
        return cls(clf, every=max(1, rows // BLOCK_ROWS))

    def add(self, frame: Any, logits: Array, prior: Array) -> None:
        """Count rows: a table, or images, and their logits (n,) or (n, K) at a class prior (K,)."""
        if not self.known:
            return
        kept = slice(self._offset, None, self.every)
        self._offset = (self._offset - len(logits)) % self.every
        at_base = move_logits(logits[kept], prior, self._clf.learner_.base_prior)
        self._rows += len(at_base)
        for score, values in zip(self._scores, class_log_odds(at_base).T, strict=True):
            score.add_numbers(values)
        if self._columns:
            encoder = self._clf.encoder_
            table = encoder.chosen(frame).iloc[kept]
            places = {column.name: i for i, column in enumerate(encoder.summaries)}
            for count in self._columns:
                i = places[count.known.name]
                count.add_column(table.iloc[:, i], encoder.summaries[i])

    def counted(self) -> tuple[int, list[tuple[Array, int, int]]]:
        """Return what was counted so far, as numbers."""
        counts = [*self._columns, *self._scores]
        return self._rows, [(one.counts, one.above, one.below) for one in counts]

    def add_counted(self, found: tuple[int, list[tuple[Array, int, int]]]) -> None:
        """Add what was counted of other rows."""
        rows, counts = found
        self._rows += rows
        for one, (cells, above, below) in zip([*self._columns, *self._scores], counts, strict=True):
            one.counts += cells
            one.above += above
            one.below += below

    def result(self) -> Drift | None:
        """Return what was found; None if the model kept no summary of training, or without rows."""
        if not self.known or not self._rows:
            return None
        looks = len(self._columns) + len(self._scores)
        words = (
            {
                column.name: column.categories
                for column in self._clf.encoder_.summaries
                if isinstance(column, CategoryColumn)
            }
            if self._columns
            else {}
        )
        columns = tuple(one.compared(looks, words.get(one.known.name, ())) for one in self._columns)
        scores = tuple(one.compared(looks, ()) for one in self._scores)
        return Drift(self._rows, columns, scores)


def drift_of(clf: SetClassifier, rows: Any) -> Drift | None:
    """Say how rows differ from those of training; None if the model has no summary of them."""
    count = DriftCount.of_table(clf, len(rows))
    prior = clf.learner_.base_prior
    if count.known:
        count.add(rows, clf.logits_at(rows, prior), prior)
    return count.result()


def stability_index(new: Array, known: Array, chance: float) -> tuple[float, float]:
    """Return the PSI of two counts of cells, and what it exceeds by chance this rarely.

    Empty cells count half a row. PSI / (1/n + 1/N) of rows from one distribution is about
    chi-square with one degree less than cells.
    """
    used = (new + known) > 0
    if used.sum() < 2:
        return 0.0, 0.0
    q, p = (_shares(counts[used]) for counts in (new, known))
    bound = chdtri(int(used.sum()) - 1, chance) * (1 / new.sum() + 1 / known.sum())
    return float(((q - p) * np.log(q / p)).sum()), float(bound)


def _shares(counts: Array) -> Array:
    """Return shares of counts, none of them 0."""
    filled = np.maximum(counts, 0.5)
    return np.asarray(filled / filled.sum())


class _Count:
    """New rows in the cells of one distribution of training."""

    def __init__(self, known: Distribution) -> None:
        self.known = known
        self.counts = np.zeros(len(known.counts), dtype=np.int64)
        self.above = self.below = 0

    def add_column(self, series: pd.Series[Any], column: Column) -> None:
        """Count the values of a column."""
        if isinstance(column, NumberColumn):
            self.add_numbers(column_numbers(series, column.name))
        else:
            self._add(cells_of_column(series, column, ()))

    def add_numbers(self, values: Array) -> None:
        """Count numbers."""
        self._add(cells_of_numbers(values, self.known.edges))
        self.above += int((values > self.known.high).sum())
        self.below += int((values < self.known.low).sum())

    def _add(self, cells: Array) -> None:
        self.counts += np.bincount(cells, minlength=len(self.counts))

    def compared(self, looks: int, categories: tuple[str, ...]) -> Drifted:
        """Compare with training; `looks` such comparisons together may claim little by chance."""
        known, rows = np.array(self.known.counts), int(self.counts.sum())
        chance = CHANCE / looks
        psi, bound = stability_index(self.counts, known, chance)
        new, old = self.counts / rows, known / known.sum()
        numbers = self.known.low is not None
        reasons = []
        if numbers:
            # The largest of N values is passed by a share of about 1 / N, exponentially so.
            enough = max(OUTSIDE, -np.log(chance) / known.sum(), LEAST_ROWS / rows)
            for count, side, end in (
                (self.above, "above", self.known.high),
                (self.below, "below", self.known.low),
            ):
                if count / rows > enough:
                    limit = f"{'at most' if side == 'above' else 'at least'} {end:.6g}"
                    reasons.append(
                        f"{_percent(count / rows)} of values are {side} anything seen in training "
                        f"({limit})"
                    )
        elif new[-2] - old[-2] > max(OUTSIDE, _bound_of_share(old[-2], rows, chance)):
            reasons.append(
                f"{_percent(new[-2])} of rows hold categories that the model does not know, "
                f"{_percent(old[-2])} in training"
            )
        if abs(new[-1] - old[-1]) > max(MORE_MISSING, _bound_of_share(old[-1], rows, chance)):
            reasons.append(
                f"{_percent(new[-1])} of values are missing, {_percent(old[-1])} in training"
            )
        if not reasons and psi > max(STABLE, bound):
            reasons.append(_how_moved(self.known, new, old, categories, psi))
        sentence = f"{self.known.name}: {'; '.join(reasons)}." if reasons else ""
        return Drifted(
            self.known.name,
            psi,
            missing=float(new[-1]),
            missing_in_training=float(old[-1]),
            above=self.above / rows if numbers else None,
            below=self.below / rows if numbers else None,
            other=None if numbers else float(new[-2]),
            differs=bool(reasons),
            sentence=sentence,
        )


def _how_moved(
    known: Distribution, new: Array, old: Array, categories: tuple[str, ...], psi: float
) -> str:
    """Say in which way the shares of cells moved: the middle of numbers, or one category."""
    if categories:
        most = int(np.abs(new - old)[: len(categories)].argmax())
        word, moved = repr(categories[most]), new[most] - old[most]
        if abs(moved) > SHOWN_MOVE:
            return f"{_percent(new[most])} of rows are {word}, {_percent(old[most])} in training"
    elif len(known.edges):
        inside = old[:-1].cumsum()[:-1] / old[:-1].sum()  # up to each edge
        middle = int(np.abs(inside - 0.5).argmin())
        above = 1 - new[:-1].cumsum()[middle] / max(new[:-1].sum(), 1e-300)
        before = 1 - inside[middle]
        if abs(above - before) > SHOWN_MOVE:
            return (
                f"{_percent(above)} of values are above {known.edges[middle]:.4g}, "
                f"{_percent(before)} in training"
            )
    return f"values are spread differently than in training (PSI {psi:.2f})"


def _percent(share: float) -> str:
    """Return a share as a percentage; below 1 % with a digit more."""
    return f"{100 * share:.0f} %" if share >= 0.01 or share == 0 else f"{100 * share:.1f} %"


def _bound_of_share(share: float, rows: int, chance: float) -> float:
    """Return how far a share of so many rows strays from one of training by chance."""
    return float(-ndtri(chance) * np.sqrt(max(share * (1 - share), 1 / rows) / rows))
