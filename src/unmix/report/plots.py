"""The plots of a report: shares, ROC curves, histograms, gains, effects and learning curves.

Every function takes values and an optional `ax`, returns the figure, shows nothing and sets
nothing. This file knows no page and no judgement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from unmix.assess.histograms import uses_log_odds
from unmix.assess.roc import Roc
from unmix.learn.hidden_sets import Gain
from unmix.report.number_words import percent, shortened
from unmix.report.plot_style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    STYLE,
    axes_or_new,
    figure_of,
    show_shares,
    style_axes,
    visible_ticks,
)

__all__ = [
    "MOST_HISTOGRAMS",
    "MOST_LABELS",
    "MOST_POINTS",
    "MOST_VECTORS",
    "SetScores",
    "plot_effects",
    "plot_gain",
    "plot_history",
    "plot_roc",
    "plot_score_histograms",
    "plot_shares",
]

FloatArray = npt.NDArray[np.float64]

MOST_POINTS = 2000
MOST_VECTORS = 300  # more points than this become one image inside the picture
MOST_LABELS = 8
MOST_HISTOGRAMS = 30
MOST_NAMED_SETS = 60  # histograms of more sets are averages over sets of similar shares
BANDS = 20  # of sets of similar shares
LABEL_CELLS = 18
EFFECT_CELLS = 30
NAME_CELLS = 16  # of a set beside its histogram
TICKS = 6  # at most, on an axis of gains or weights: their labels are wide


class SetScores(NamedTuple):
    """Name, stated share and histogram of one set; `marked` draws it in the colour of misfits."""

    name: str
    stated: float
    shares: Sequence[float]
    marked: bool = False


def plot_shares(
    names: Sequence[str],
    stated: npt.ArrayLike,
    found: npt.ArrayLike,
    *,
    low: npt.ArrayLike | None = None,
    high: npt.ArrayLike | None = None,
    marked: Sequence[int] = (),
    x_label: str = "stated share",
    y_label: str = "predicted share",
    ax: Axes | None = None,
) -> Figure:
    """Draw one share of each set against the other, with the diagonal where they agree.

    Parameters
    ----------
    names : sequence of str, length m
    stated, found : (m,)
        The two shares; sets where one is nan are left out.
    low, high : (m,), optional
        Interval of `found`; drawn for up to `MOST_VECTORS` sets.
    marked : sequence of int
        Positions to draw in another colour; the first `MOST_LABELS` are named.
    x_label, y_label : str
    ax : matplotlib Axes, optional
        Where to draw; a new figure if left out.

    Of more than `MOST_POINTS` sets that many are drawn, evenly spread over the stated shares. More
    than `MOST_VECTORS` get a line through the averages of sets of similar stated shares. Where
    shares are near 0 or 1, the axes are those of log-odds.
    """
    x, y = np.asarray(stated, np.float64), np.asarray(found, np.float64)
    ends = None if low is None or high is None else np.array([low, high], np.float64)
    chosen = _points(x, y, marked)
    is_marked = np.isin(chosen, np.asarray(marked, dtype=int))
    with rc_context(STYLE):
        ax = axes_or_new(ax, (3.9, 3.75))
        many = len(chosen) > MOST_VECTORS
        drawn = [x[chosen], y[chosen], *([] if ends is None or many else ends[:, chosen])]
        log_odds = uses_log_odds(x[chosen])
        show_shares(ax, np.concatenate(drawn), log_odds=log_odds)
        reach = ax.get_xlim()
        if log_odds:  # shares of 0 and 1 stand at the edge
            x, y = np.clip(x, *reach), np.clip(y, *reach)
            ends = None if ends is None else np.clip(ends, *reach)
        ax.plot(reach, reach, color=GREY, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        size, alpha = (8.0, 0.5) if many else (22.0, 1.0)
        for mask, color, marker in ((~is_marked, BLUE, "o"), (is_marked, ORANGE, "D")):
            part = chosen[mask]
            if not len(part):
                continue
            if ends is not None and not many:  # hundreds of lines would hide the points
                ax.vlines(x[part], *ends[:, part], color=color, alpha=0.45, linewidth=1)
            ax.scatter(
                x[part],
                y[part],
                size,
                color=color,
                marker=marker,
                linewidth=0,
                rasterized=many,
                alpha=alpha if color == BLUE else 1.0,
            )
        if many:
            ax.plot(*_averages(x[chosen], y[chosen]), color=GREEN, linewidth=2, marker="o", ms=4)
        named = [j for j in marked if np.isfinite(x[j]) and np.isfinite(y[j])][:MOST_LABELS]
        _name_points(ax, x[named], y[named], [names[j] for j in named])
        style_axes(ax, x_label, y_label, grid="both")
        return figure_of(ax)


def plot_roc(
    roc: Roc,
    *,
    point: tuple[float, float] | None = None,
    labeled_point: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw a ROC curve with its band, the diagonal of chance and the point of decision.

    Parameters
    ----------
    roc : Roc
    point, labeled_point : (fpr, tpr), optional
        Rates of the classifier's decisions, estimated without and from labels.
    ax : matplotlib Axes, optional
        Where to draw; a new figure if left out.
    """
    with rc_context(STYLE):
        ax = axes_or_new(ax, (3.9, 3.75))
        ax.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=(0, (4, 3)))
        ax.fill_between(roc.fpr, roc.low, roc.high, color=BLUE, alpha=0.25, linewidth=0)
        ax.plot(roc.fpr, roc.tpr, color=BLUE, linewidth=1.8)
        at = 0.25 if point is not None and point[0] > 0.4 else 0.7  # clear of the other word
        ax.text(at + 0.02, at - 0.04, "chance", ha="left", va="top")
        if point is not None:
            ax.scatter(*point, 42, color=BLUE, zorder=3)
            below = point[1] > 0.2
            shift, align = (-0.03, "top") if below else (0.03, "bottom")
            ax.text(point[0] + 0.04, point[1] + shift, "this model", ha="left", va=align)
        if labeled_point is not None:
            ax.scatter(
                *labeled_point, 60, facecolor="none", edgecolor=ORANGE, linewidth=1.6, zorder=4
            )
        ax.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
        style_axes(
            ax,
            "false positive rate: negatives predicted positive",
            "true positive rate: positives predicted positive",
            grid="both",
        )
        return figure_of(ax)


def plot_score_histograms(
    sets: Sequence[SetScores],
    *,
    edges: Sequence[float] | None = None,
    x_label: str = "predicted probability",
    most: int = MOST_HISTOGRAMS,
    ax: Axes | None = None,
) -> Figure:
    """Draw how the scores of each set are spread, one row per set, highest stated share on top.

    Parameters
    ----------
    sets : sequence of SetScores
    edges : sequence of float, optional
        Of the bins, evenly spaced in log-odds; equal bins of [0, 1] if left out.
    x_label : str
    most : int
        Rows, at most.
    ax : matplotlib Axes, optional
        Where to draw; a new figure if left out.

    Of more than `most` sets that many are drawn, evenly spread over the stated shares, among them
    up to `MOST_LABELS` marked ones. Of more than `MOST_NAMED_SETS` sets, a row is the average of
    several with similar stated shares.
    """
    ordered = sorted(sets, key=lambda entry: entry.stated)
    shown = _bands(ordered, most) if len(ordered) > MOST_NAMED_SETS else _rows(ordered, most)
    top = max((max(entry.shares) for entry in shown), default=1.0) or 1.0
    with rc_context(STYLE):
        ax = axes_or_new(ax, (3.9, 0.8 + 0.18 * max(len(shown), 5)))
        for row, entry in enumerate(shown):
            places = np.linspace(0, 1, len(entry.shares) + 1)
            heights = row + 0.92 * np.asarray(entry.shares) / top
            color = ORANGE if entry.marked else BLUE
            ax.stairs(heights, places, baseline=row, fill=True, color=color, linewidth=0)
            ax.plot([0, 1], [row, row], color=GREY, linewidth=0.5)
            texts = [
                ax.text(-0.03, row + 0.1, shortened(entry.name, NAME_CELLS), ha="right"),
                ax.text(1.03, row + 0.1, percent(entry.stated), ha="left"),
            ]
            for text in texts:
                text.set(parse_math=False, in_layout=False, fontsize=7.5)
        # Names stand inside the axes, where no measure of a font can cut them off.
        ax.set(xlim=(-0.6, 1.22), ylim=(-0.1, max(len(shown), 1)))
        ax.text(-0.03, 1.01, "set", ha="right", transform=ax.get_xaxis_transform())
        ax.text(1.03, 1.01, "stated", ha="left", transform=ax.get_xaxis_transform())
        style_axes(ax, x_label, "", grid="x")
        ax.set_xticks(*visible_ticks(edges))
        ax.set_yticks([])
        ax.spines[["left", "bottom"]].set_visible(False)
        return figure_of(ax)


def plot_gain(gains: Mapping[str, Gain], *, used: str = "", ax: Axes | None = None) -> Figure:
    """Draw the gain over guessing of each method on held-out sets, with what chance allows.

    Parameters
    ----------
    gains : mapping from method to Gain
    used : str
        The method of the model, drawn in colour.
    ax : matplotlib Axes, optional
        Where to draw; a new figure if left out.

    A line reaches as far as the threshold on both sides of its gain: one that stays clear of 0 is
    shown.
    """
    names = sorted(gains, key=lambda name: (name != used, -gains[name].gain))[::-1]
    half = {name: gains[name].threshold * gains[name].error for name in names}
    right = max((gains[name].gain + half[name] for name in names), default=1.0)
    left = min((gains[name].gain - half[name] for name in names), default=-1.0)
    if right > 0:  # a method that fails badly must not hide the others
        left = max(min(left, 0.0), -1.5 * right)
    span = max(max(right, 0.0) - left, 1e-6)
    with rc_context(STYLE):
        ax = axes_or_new(ax, (3.9, 0.75 + 0.42 * max(len(names), 2)))
        ax.axvline(0, color=ORANGE, linewidth=1.2, linestyle=(0, (4, 3)))
        for row, name in enumerate(names):
            gain, color = gains[name], BLUE if name == used else GREY
            place = max(gain.gain, left)
            ends = np.clip([gain.gain - half[name], gain.gain + half[name]], left, None)
            ax.plot(ends, [row, row], color=color, linewidth=2.5, solid_capstyle="butt")
            ax.scatter(place, row, 42, color=color, marker="o" if gain.gain >= left else "<")
            text = f"{gain.gain:+.2f}, z = {gain.z:.1f}: {gain.word}"
            side = "left" if place < left + span / 2 else "right"
            start = min(place, max(ends[0], left)) if side == "left" else ends[1]
            ax.text(start, row + 0.22, text, ha=side, va="bottom", fontsize=8, in_layout=False)
        style_axes(ax, "gain over guessing", "", grid="x")
        words = {used: f"{used} (this model)"}
        labels = [words.get(name, shortened(name, LABEL_CELLS)) for name in names]
        ax.set_yticks(range(len(names)), labels, parse_math=False)
        ax.tick_params(axis="y", length=0)
        ax.set(xlim=(left - 0.05 * span, max(right, 0.0) + 0.05 * span))
        ax.xaxis.set_major_locator(MaxNLocator(TICKS))
        ax.set_ylim(-0.5, max(len(names), 1) - 0.2)
        return figure_of(ax)


def plot_effects(
    names: Sequence[str],
    values: npt.ArrayLike,
    *,
    low: npt.ArrayLike | None = None,
    high: npt.ArrayLike | None = None,
    x_label: str = "change of the log-odds",
    ax: Axes | None = None,
) -> Figure:
    """Draw how much features move the prediction, with intervals, the first on top.

    Parameters
    ----------
    names : sequence of str, length d
    values : (d,)
    low, high : (d,), optional
        Intervals; nan where there is none.
    x_label : str
    ax : matplotlib Axes, optional
        Where to draw; a new figure if left out.
    """
    at, rows = np.asarray(values, np.float64), np.arange(len(names))[::-1]
    with rc_context(STYLE):
        ax = axes_or_new(ax, (3.9, 0.7 + 0.22 * max(len(names), 3)))
        ax.axvline(0, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
        if low is not None and high is not None:
            ax.hlines(rows, low, high, color=BLUE, alpha=0.45, linewidth=2.5)
        ax.scatter(at, rows, 24, color=BLUE, linewidth=0, zorder=3)
        style_axes(ax, x_label, "", grid="x")
        ax.set_yticks(rows, [shortened(name, EFFECT_CELLS) for name in names], parse_math=False)
        ax.tick_params(axis="y", length=0)
        ax.set_ylim(-0.6, max(len(names), 1) - 0.4)
        ax.xaxis.set_major_locator(MaxNLocator(TICKS))
        return figure_of(ax)


def plot_history(history: Sequence[Mapping[str, float]], *, ax: Axes | None = None) -> Figure:
    """Draw the loss of training and of held-out rows, and mark the lowest held-out one.

    Parameters
    ----------
    history : sequence of rows
        With `round` or `epoch`, and `held_out_loss`, `train_risk` or `train_loss`.
    ax : matplotlib Axes, optional
        Where to draw; a new figure if left out.
    """
    step = "round" if history and "round" in history[0] else "epoch"
    at = np.array([row.get(step, place + 1) for place, row in enumerate(history)], np.float64)
    lines = (
        ("train_risk", "training rows", GREY),
        ("train_loss", "training rows", GREY),
        ("held_out_loss", "held-out rows", BLUE),
    )
    with rc_context(STYLE):
        ax = axes_or_new(ax, (3.9, 2.6))
        for key, label, color in lines:
            loss = np.array([row.get(key, np.nan) for row in history], np.float64)
            if not np.isfinite(loss).any():
                continue
            # One row alone is a point; a line would not be seen.
            marker = "o" if len(loss) == 1 else ""
            ax.plot(at, loss, color=color, linewidth=1.6, marker=marker, label=label)
            if key == "held_out_loss":
                best = int(np.nanargmin(loss))
                ax.scatter(at[best], loss[best], 42, color=ORANGE, zorder=3, label="lowest")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        style_axes(ax, step, "loss", grid="y")
        if ax.get_legend_handles_labels()[0]:
            ax.legend(frameon=False, loc="upper right")
        return figure_of(ax)


def _evenly_spaced(count: int, most: int) -> npt.NDArray[np.int64]:
    """Return at most `most` of the positions 0..count-1, evenly spread, with both ends."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, most).round().astype(int))


def _rows(ordered: Sequence[SetScores], most: int) -> list[SetScores]:
    """Return the sets to draw of those in order: all, or some of the marked and of the others."""
    if len(ordered) <= most:
        return list(ordered)
    marked = [j for j, entry in enumerate(ordered) if entry.marked]
    others = [j for j, entry in enumerate(ordered) if not entry.marked]
    kept = [marked[j] for j in _evenly_spaced(len(marked), min(MOST_LABELS, most // 2))]
    kept += [others[j] for j in _evenly_spaced(len(others), most - len(kept))]
    return [ordered[j] for j in sorted(kept)]


def _bands(ordered: Sequence[SetScores], most: int) -> list[SetScores]:
    """Return averages over sets of similar stated shares."""
    parts = np.array_split(np.arange(len(ordered)), min(BANDS, most))
    return [
        SetScores(
            f"{len(part)} sets",
            float(np.mean([ordered[j].stated for j in part])),
            np.mean([ordered[j].shares for j in part], axis=0).tolist(),
        )
        for part in parts
    ]


def _averages(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the means of `BANDS` groups of points with similar x."""
    parts = np.array_split(np.argsort(x, kind="stable"), BANDS)
    means = np.array([[x[part].mean(), y[part].mean()] for part in parts])
    return means[:, 0], means[:, 1]


def _points(x: FloatArray, y: FloatArray, marked: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the positions to draw: those with numbers, thinned, and the named ones."""
    known = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    order = known[np.argsort(x[known], kind="stable")]
    thinned = order[_evenly_spaced(len(order), MOST_POINTS)]
    named = np.asarray(marked[:MOST_LABELS], dtype=int)
    return np.union1d(thinned, np.intersect1d(named, known))


def _name_points(ax: Axes, x: FloatArray, y: FloatArray, names: Sequence[str]) -> None:
    """Write names beside points, moved apart, away from the diagonal where there is room."""
    if not len(names):
        return
    # In parts of the axes, so that names stand alike on every scale.
    to_axes = ax.transData - ax.transAxes
    across, up = to_axes.transform(np.column_stack([x, y])).T
    order = np.argsort(up, kind="stable")
    heights = up.copy()
    gap, floor = 0.055, 0.03
    for j in order:
        heights[j] = floor = max(heights[j], floor)
        floor += gap
    # The highest may have been pushed out: push back down from the top.
    ceiling = 0.97
    for j in order[::-1]:
        heights[j] = ceiling = min(heights[j], ceiling)
        ceiling -= gap
    for j, name in enumerate(names):
        text = shortened(name, LABEL_CELLS)
        width = 0.06 + 0.024 * len(text)  # about what the letters take
        fits_left, fits_right = across[j] - width > 0, across[j] + width < 1
        left = fits_left and (up[j] > across[j] or not fits_right)
        away = across[j] + (-0.05 if left else 0.05)
        ends = [across[j], away], [up[j], heights[j]]
        ax.add_line(Line2D(*ends, color=GREY, linewidth=0.7, zorder=1, transform=ax.transAxes))
        ax.text(
            away,
            heights[j],
            text,
            ha="right" if left else "left",
            va="center",
            parse_math=False,
            in_layout=False,
            transform=ax.transAxes,
        )
