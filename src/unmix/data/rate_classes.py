"""One column per class: shares, percentages or counts of every class of a table of rates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unmix.core.class_shares import ClassShares
from unmix.data.rate_statement import RateStatement
from unmix.data.rate_table import RateColumns, RateTable, are_counts, noise_words, sums_to
from unmix.data.wording import listed
from unmix.errors import InputError

__all__ = ["per_class"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


def per_class(table: RateTable, classes: tuple[str, ...], *, binary: bool = False) -> RateColumns:
    """Read one column of shares, percentages or counts per class."""
    absent = [name for name in classes if name not in table.columns]
    if absent:
        raise InputError(
            f"{table.source} has no column {listed(absent)} for the class of that name; besides "
            f"the set column it has {listed(tuple(table.columns), 10)}."
        )
    columns = [table.numbers(name) for name in classes]
    rated = ~np.any([cells.suppressed | cells.ranges for cells in columns], axis=0)
    values = np.where(rated[:, None], np.stack([c.values for c in columns], axis=1), 0.0)
    noise = table.noise({})
    noisy = noise is not None
    as_counts = noisy or (are_counts(table, classes) and table.options.percent is None)
    if as_counts and not sums_to(values[rated], 100.0):
        return _class_counts(table, classes, values, rated, noise, binary=binary)
    signed = any(cells.percent.any() for cells in columns)
    hundred = (
        table.options.percent
        or signed
        or (table.options.percent is None and sums_to(values[rated], 100.0))
    )
    values = values / 100 if hundred else values
    ids = [table.set_ids[j] for j in np.flatnonzero(rated).tolist()]
    if ids:
        for name, column in zip(classes, values.T, strict=True):
            table.check_shares(name, column[rated], rated)
        ClassShares(values[rated], ids, source=table.source)  # says which set does not add up
    values = np.where(rated[:, None], values, 1 / len(classes))
    scale = " in percent" if hundred else ""
    words = f"shares{scale} of the classes {listed(classes, 8)}"
    statement = RateStatement(table.options.rates_are)
    if binary:
        words = f"{classes[1]!r} is the share of positives{scale}, {classes[0]!r} the rest"
        return RateColumns(values[:, 1], rated, statement, words, classes)
    return RateColumns(values, rated, statement, words, classes, classes)


def _class_counts(
    table: RateTable,
    classes: tuple[str, ...],
    values: FloatArray,
    rated: BoolArray,
    noise: FloatArray | None,
    *,
    binary: bool,
) -> RateColumns:
    """Return the shares of classes from their counts, which may be noisy."""
    if noise is None:
        for name, column in zip(classes, values.T, strict=True):
            table.refuse(name, column < 0, column, "the count {} is negative; correct it")
    totals = values.sum(axis=1)
    counts = values.clip(0, None)
    sums = counts.sum(axis=1)
    rated = rated & (sums > 0) & (totals > 0)
    safe = np.where(rated, sums, 1.0)
    shares = np.where(rated[:, None], counts / safe[:, None], 1 / len(classes))
    statement = RateStatement(
        table.options.rates_are, totals=np.where(rated, np.rint(totals), 1.0), noise=noise
    )
    with_noise = noise_words(table, {}, noise)
    words = f"counts{with_noise} of the classes {listed(classes, 8)}"
    if binary:
        words = f"counts{with_noise}: {classes[1]!r} are positive, {classes[0]!r} negative"
        return RateColumns(shares[:, 1], rated, statement, words, classes)
    return RateColumns(shares, rated, statement, words, classes, classes)
