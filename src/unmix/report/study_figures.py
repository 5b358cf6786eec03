"""The pictures of a study, in the paper's layout: curves, boxes, and ours against the paper's.

Every `plot_` function takes entries of a summary and returns a figure. One colour per method in
all of them. What is drawn around a picture, and where it is stored, is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import (
    FixedLocator,
    MaxNLocator,
    NullLocator,
)

from unmix.report.plot_style import GREY, STYLE
from unmix.report.study_style import (
    INK,
    MARKERS,
    METHOD_COLORS,
    PLAIN,
    References,
    dashes,
    dot,
    from_zero,
    key,
    label,
    legend,
    log_errors,
    paper_key,
    reference_key,
    ring,
    ring_style,
    style_panel,
)
from unmix.report.study_tables import columns_are_sets, dataset_title
from unmix.studies.summary import Entry

__all__ = [
    "plot_against_paper",
    "plot_curves",
    "plot_methods",
    "plot_noise_boxes",
]

FloatArray = npt.NDArray[np.float64]

NOISE_ROWS = {
    "ssc": "ours, priors checked, estimated if wrong",
    "ssc-believing": "ours, priors assumed known",
    "ssc-refined": "ours, priors estimated, error size given",
}
RISK_TICKS = (-100, -30, -10, -3, -1, 0, 1, 3, 10, 30)
PANEL_WIDTH, PANEL_HEIGHT = 2.75, 1.9  # inches


def plot_curves(entries: Sequence[Entry], *, value: Literal["test_error", "train_risk"]) -> Figure:
    """Draw a quantity after each epoch: datasets from top to bottom, numbers of sets across.

    Lines are means over seeds, shades one standard deviation. For the test error, dashes on the
    right of each panel are the paper's final errors; risks have a line at zero.
    """
    entries = [entry for entry in entries if entry.runs]
    # Panels share their axes, so all go as far as the longest run.
    last = max((len(_history(entry, value)) for entry in entries), default=1)
    with rc_context(STYLE):
        figure, panels = _grid(entries, by="sets")
        for (dataset, num_sets), ax in panels.items():
            shown = [e for e in entries if (e.dataset, e.num_sets) == (dataset, num_sets)]
            for entry in shown:
                _draw_curve(ax, entry, value)
            _set_epoch_ticks(ax, last)
            if value == "test_error":
                log_errors(ax, "y")
            else:
                _scale_risks(ax)
        if value == "test_error":
            _draw_paper_marks(panels, entries, last)
            extra: list[Artist] = paper_key(entries, dashes, "dashes at the right: ")
        else:
            extra = [Patch(color=GREY, alpha=0.25, label="below zero: impossible for a true risk")]
            for ax in panels.values():  # when all is drawn, for panels share their limits
                limits = ax.get_ylim()
                ax.axhspan(-1e9, 0, color=GREY, alpha=0.12, linewidth=0)
                ax.set_ylim(limits)
        legend(figure, [*map(key, _rows(entries)), *extra])
        label(figure, "epoch", "test error (%)" if value == "test_error" else "training risk")
        return figure


def plot_methods(entries: Sequence[Entry], references: References) -> Figure:
    """Draw ours (dot) against the paper's (ring) for every method and number of sets.

    Datasets across; the dotted line is the supervised reference.
    """
    rows, sets = _rows(entries), sorted({entry.num_sets for entry in entries})
    datasets = _datasets(entries)
    step = 1 / (len(sets) + 1)
    with rc_context(STYLE):
        height = 0.9 + 0.16 * (len(sets) + 1) * len(rows)
        figure = Figure(figsize=(_width(len(datasets)), height), layout="constrained")
        panels = figure.subplots(1, len(datasets), sharey=True, squeeze=False)[0]
        for dataset, ax in zip(datasets, panels, strict=True):
            for entry in (e for e in entries if e.dataset == dataset):
                y = rows.index(entry.row) + (sets.index(entry.num_sets) + 1) * step
                _draw_pair(ax, entry, y)
            log_errors(ax, "x")
            style_panel(ax, dataset_title(dataset), grid="x")
            ax.set_xlabel("test error (%)")
            if dataset in references:
                ax.axvline(references[dataset], color=GREY, linestyle=":", linewidth=1.2, zorder=0)
            for y in range(1, len(rows)):
                ax.axhline(y, color=GREY, alpha=0.35, linewidth=0.6, zorder=0)
        first = panels[0]
        first.set_ylim(len(rows), 0)
        places = [r + (s + 1) * step for r in range(len(rows)) for s in range(len(sets))]
        first.set_yticks(places, [f"{number} sets" for _ in rows for number in sets], fontsize=7)
        for place, row in enumerate(rows):
            first.annotate(
                row,
                (0, place + 0.5),
                xycoords=first.get_yaxis_transform(),
                xytext=(-38, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                color=METHOD_COLORS.get(row, GREY),
                fontweight="bold",
            )
        for ax in panels:
            ax.tick_params(axis="y", length=0)
        legend(
            figure, [dot("ours"), *paper_key(entries, ring), *reference_key(entries, references)]
        )
        return figure


def plot_against_paper(entries: Sequence[Entry], references: References, *, x_label: str) -> Figure:
    """Draw the errors of ours and of the paper over the columns of a study.

    Datasets across; one line of panels per number of sets, unless the columns are those numbers.
    """
    with rc_context(STYLE):
        figure, panels = _grid(entries, by="datasets")
        for (dataset, num_sets), ax in panels.items():
            shown = _panel_entries(entries, dataset, num_sets)
            columns = _columns(shown)
            for row in _rows(shown):
                own = [entry for entry in shown if entry.row == row]
                _draw_errors(ax, own, columns, row)
            _draw_paper(ax, shown, columns)
            if dataset in references:
                ax.axhline(references[dataset], color=GREY, linestyle=":", linewidth=1.2)
            ax.set_xticks(range(len(columns)), [_short(column) for column in columns])
            ax.margins(x=0.1)
        ours = [dot(f"ours, {row}", METHOD_COLORS.get(row, GREY)) for row in _rows(entries)]
        legend(figure, [*ours, *paper_key(entries, ring), *reference_key(entries, references)])
        from_zero(panels.values())
        label(figure, x_label, "test error (%)")
        return figure


def plot_noise_boxes(entries: Sequence[Entry], references: References) -> Figure:
    """Draw a box over seeds for every error of the stated priors, and the paper's mean.

    Datasets across, numbers of sets from top to bottom. Dots are the single seeds.
    """
    rows = _rows(entries)
    width = 0.7 / max(len(rows), 1)
    with rc_context(STYLE):
        figure, panels = _grid(entries, by="datasets")
        for (dataset, num_sets), ax in panels.items():
            shown = _panel_entries(entries, dataset, num_sets)
            columns = _columns(shown)
            for entry in shown:
                if entry.errors:
                    offset = (rows.index(entry.row) - (len(rows) - 1) / 2) * width
                    _draw_box(ax, entry, columns.index(entry.column) + offset, 0.8 * width)
            for place, column in enumerate(columns):
                paper = next((e.paper for e in shown if e.column == column and e.paper), None)
                if paper is not None:
                    reach = [place - 0.42, place + 0.42]
                    ax.plot(reach, [paper.error] * 2, color=INK, linewidth=1.1, dashes=(3, 2))
            if dataset in references:
                ax.axhline(references[dataset], color=GREY, linestyle=":", linewidth=1.2)
            ax.set_xticks(range(len(columns)), [_short(column) for column in columns])
            ax.set_xlim(-0.6, len(columns) - 0.4)
        boxes: list[Artist] = [
            Patch(color=METHOD_COLORS.get(row, GREY), alpha=0.6, label=NOISE_ROWS.get(row, row))
            for row in rows
        ]
        legend(figure, [*boxes, *paper_key(entries, dashes), *reference_key(entries, references)])
        from_zero(panels.values())
        label(figure, "error of the stated priors", "test error (%)")
        return figure


def _grid(
    entries: Sequence[Entry], *, by: Literal["sets", "datasets"]
) -> tuple[Figure, dict[tuple[str, int | None], Axes]]:
    """Return a figure with a panel per dataset and number of sets; `by` says which go across."""
    datasets = _datasets(entries)
    sets: list[int | None] = [*sorted({entry.num_sets for entry in entries})]
    if by == "datasets" and columns_are_sets(entries):
        sets = [None]
    wide, high = (len(sets), len(datasets)) if by == "sets" else (len(datasets), len(sets))
    figure = Figure(figsize=(_width(wide), 0.7 + PANEL_HEIGHT * high), layout="constrained")
    share: Literal["row", "col"] = "row" if by == "sets" else "col"
    axes = figure.subplots(high, wide, sharex=True, sharey=share, squeeze=False)
    panels: dict[tuple[str, int | None], Axes] = {}
    for place, dataset in enumerate(datasets):
        for other, num_sets in enumerate(sets):
            ax = axes[place, other] if by == "sets" else axes[other, place]
            words = "" if num_sets is None else f", {num_sets} sets"
            style_panel(ax, dataset_title(dataset) + words, grid="y")
            panels[dataset, num_sets] = ax
    return figure, panels


def _panel_entries(entries: Sequence[Entry], dataset: str, num_sets: int | None) -> list[Entry]:
    """Return the entries of a panel; None: those of all numbers of sets."""
    return [e for e in entries if e.dataset == dataset and num_sets in (None, e.num_sets)]


def _draw_curve(ax: Axes, entry: Entry, value: str) -> None:
    """Draw the mean over seeds and its shade."""
    curves = _history(entry, value)  # (epochs, seeds)
    epochs = np.arange(1, len(curves) + 1)
    mean = curves.mean(axis=1)
    color = METHOD_COLORS.get(entry.row, GREY)
    marker = MARKERS.get(entry.row, "o")
    every = max(len(epochs) // 5, 1)
    # Methods mark other epochs, so that a line on top of another does not hide it.
    marked = (
        list(METHOD_COLORS).index(entry.row) % every if entry.row in METHOD_COLORS else 0,
        every,
    )
    ax.plot(epochs, mean, color=color, linewidth=1.5, marker=marker, markersize=3, markevery=marked)
    if curves.shape[1] > 1:
        spread = curves.std(axis=1, ddof=1)
        low, high = mean - spread, mean + spread
        if value == "test_error":
            low = np.maximum(low, 0.05)  # the axis is logarithmic
        ax.fill_between(epochs, low, high, color=color, alpha=0.18, linewidth=0)


def _history(entry: Entry, value: str) -> FloatArray:
    """Return a quantity after each epoch that all runs of an entry have, shape (epochs, seeds)."""
    scale = 100 if value == "test_error" else 1
    runs = [[scale * row[value] for row in run["history"]] for run in entry.runs]
    length = min(map(len, runs))
    return np.array([run[:length] for run in runs], dtype=np.float64).T


def _set_epoch_ticks(ax: Axes, last: int) -> None:
    """Number the epochs: the first, and a few round ones."""
    ticks = MaxNLocator(4, integer=True, steps=[1, 2, 5, 10]).tick_values(1, last)
    ax.set_xticks([1, *(tick for tick in ticks if 1 < tick <= last)])


def _scale_risks(ax: Axes) -> None:
    """Show risks around zero and far below it: linear between -1 and 1, logarithmic outside."""
    ax.set_yscale("symlog", linthresh=1)
    ax.yaxis.set_major_locator(FixedLocator(RISK_TICKS))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(PLAIN)
    ax.axhline(0, color=INK, linewidth=0.9, zorder=1)


def _draw_paper_marks(
    panels: dict[tuple[str, int | None], Axes], entries: Sequence[Entry], last: int
) -> None:
    """Draw the paper's final errors, if there are any, as dashes to the right of the last epoch."""
    if all(entry.paper is None for entry in entries):
        return
    reach = [last * 1.1, last * 1.22]
    for ax in panels.values():
        ax.axvline(last * 1.05, color=GREY, alpha=0.5, linewidth=0.6)
    for entry in entries:
        if entry.paper is not None:
            ax, color = panels[entry.dataset, entry.num_sets], METHOD_COLORS.get(entry.row, GREY)
            ax.plot(reach, [entry.paper.error] * 2, color=color, linewidth=1.8, dashes=(2.2, 1.1))
    # Once: panels share their epochs.
    ax.set_xticks([*ax.get_xticks(), last * 1.16], [*map(PLAIN, ax.get_xticks()), "paper"])
    ax.set_xlim(0.5, last * 1.27)


def _draw_pair(ax: Axes, entry: Entry, y: float) -> None:
    """Draw ours as a dot, the paper's as a ring, and what lies between."""
    color = METHOD_COLORS.get(entry.row, GREY)
    if entry.mean is not None and entry.paper is not None:
        ax.plot([entry.mean, entry.paper.error], [y, y], color=color, alpha=0.45, linewidth=1.2)
    if entry.paper is not None:
        ax.plot([entry.paper.error], [y], **ring_style(color))
    if entry.mean is not None:
        ax.plot([entry.mean], [y], marker="o", markersize=4.5, color=color, linestyle="")


def _draw_errors(ax: Axes, entries: Sequence[Entry], columns: list[str], row: str) -> None:
    """Draw our means with their standard deviations."""
    known = [entry for entry in entries if entry.mean is not None]
    ax.errorbar(
        [columns.index(entry.column) for entry in known],
        [entry.mean or 0.0 for entry in known],
        [entry.std or 0.0 for entry in known],
        color=METHOD_COLORS.get(row, GREY),
        marker="o",
        markersize=4.5,
        linewidth=1.5,
        elinewidth=1,
    )


def _draw_paper(ax: Axes, entries: Sequence[Entry], columns: list[str]) -> None:
    """Draw the paper's means with their standard deviations."""
    papers = {entry.column: entry.paper for entry in entries if entry.paper is not None}
    known = [(columns.index(column), paper) for column, paper in papers.items()]
    ax.errorbar(
        [place for place, _ in known],
        [paper.error for _, paper in known],
        [paper.std for _, paper in known],
        linewidth=1,
        elinewidth=0.8,
        **{**ring_style(INK), "linestyle": "--"},
    )


def _draw_box(ax: Axes, entry: Entry, x: float, width: float) -> None:
    """Draw the box of an entry's seeds from the smallest to the largest, and the seeds."""
    color = METHOD_COLORS.get(entry.row, GREY)
    line = {"color": color, "linewidth": 1}
    ax.boxplot(
        [list(entry.errors)],
        positions=[x],
        widths=width,
        whis=(0, 100),
        manage_ticks=False,
        patch_artist=True,
        boxprops={"facecolor": color, "alpha": 0.45, "edgecolor": color},
        medianprops={"color": color, "linewidth": 1.6},
        whiskerprops=line,
        capprops=line,
    )
    ax.plot([x] * len(entry.errors), entry.errors, ".", color=color, markersize=3.5)


def _width(panels: int) -> float:
    """Return the width of a figure with this many panels side by side."""
    return 0.6 + PANEL_WIDTH * max(panels, 2)


def _short(column: str) -> str:
    """Return what tells a column from its neighbours: '0.8' of 'tau 0.8'."""
    return column.removeprefix("tau ").removeprefix("epsilon ").removesuffix(" sets")


def _rows(entries: Sequence[Entry]) -> list[str]:
    """Return the rows in their order."""
    return list(dict.fromkeys(entry.row for entry in entries))


def _columns(entries: Sequence[Entry]) -> list[str]:
    """Return the columns in their order."""
    return list(dict.fromkeys(entry.column for entry in entries))


def _datasets(entries: Sequence[Entry]) -> list[str]:
    """Return the datasets in their order."""
    return list(dict.fromkeys(entry.dataset for entry in entries))
