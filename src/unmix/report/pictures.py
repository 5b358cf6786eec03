"""The pictures of the report, in one quiet style that is legible on white and on black.

Every function takes values and an optional `ax`, returns the figure, shows nothing and sets
nothing. This file knows no page and no judgement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from unmix.assess.roc import Roc
from unmix.report.number_words import percent, shortened

__all__ = [
    "MOST_HISTOGRAMS",
    "MOST_LABELS",
    "MOST_POINTS",
    "MOST_VECTORS",
    "STYLE",
    "SetScores",
    "plot_history",
    "plot_leave_sets_out",
    "plot_roc",
    "plot_score_histograms",
    "plot_shares",
]

FloatArray = npt.NDArray[np.float64]

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.titlelocation": "left",
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "svg.fonttype": "none",
}
# Middle tones, seen on white and on black alike. Text stays black: the writer of SVG leaves that
# colour out, so that a page can choose its own.
BLUE, ORANGE, GREY = "#4682d4", "#dd6b20", "#8b929c"

MOST_POINTS = 2000
MOST_VECTORS = 300  # more points than this become one image inside the picture
MOST_LABELS = 8
MOST_HISTOGRAMS = 30
LABEL_CELLS = 18


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

    Of more than `MOST_POINTS` sets that many are drawn, evenly spread over the stated shares.
    """
    x, y = np.asarray(stated, np.float64), np.asarray(found, np.float64)
    ends = None if low is None or high is None else np.array([low, high], np.float64)
    chosen = _points(x, y, marked)
    is_marked = np.isin(chosen, np.asarray(marked, dtype=int))
    with rc_context(STYLE):
        ax = _axes(ax, (3.9, 3.75))
        many = len(chosen) > MOST_VECTORS
        drawn = [x[chosen], y[chosen], *([] if ends is None or many else ends[:, chosen])]
        reach = _axis_limits(np.concatenate(drawn))
        ax.plot(reach, reach, color=GREY, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        size = 8.0 if many else 22.0
        for mask, color, marker in ((~is_marked, BLUE, "o"), (is_marked, ORANGE, "D")):
            part = chosen[mask]
            if not len(part):
                continue
            if ends is not None and not many:  # hundreds of lines would hide the points
                ax.vlines(x[part], *ends[:, part], color=color, alpha=0.45, linewidth=1)
            ax.scatter(
                x[part], y[part], size, color=color, marker=marker, linewidth=0, rasterized=many
            )
        named = [j for j in marked if np.isfinite(x[j]) and np.isfinite(y[j])][:MOST_LABELS]
        _name_points(ax, x[named], y[named], [names[j] for j in named], reach)
        ax.set(xlim=reach, ylim=reach, aspect="equal")
        _style_axes(ax, x_label, y_label, grid="both")
        return _figure(ax)


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
        ax = _axes(ax, (3.9, 3.75))
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
        _style_axes(
            ax,
            "false positive rate: negatives predicted positive",
            "true positive rate: positives predicted positive",
            grid="both",
        )
        return _figure(ax)


def plot_score_histograms(
    sets: Sequence[SetScores],
    *,
    x_label: str = "predicted probability",
    ax: Axes | None = None,
) -> Figure:
    """Draw how the scores of each set are spread, one row per set, highest stated share on top.

    Parameters
    ----------
    sets : sequence of SetScores
    x_label : str
    ax : matplotlib Axes, optional
        Where to draw; a new figure if left out.

    Of more than `MOST_HISTOGRAMS` sets that many are drawn, evenly spread over the stated shares,
    among them up to `MOST_LABELS` marked ones.
    """
    shown = _rows(sorted(sets, key=lambda entry: entry.stated))
    top = max((max(entry.shares) for entry in shown), default=1.0) or 1.0
    with rc_context(STYLE):
        ax = _axes(ax, (3.9, 0.8 + 0.18 * max(len(shown), 5)))
        for row, entry in enumerate(shown):
            edges = np.linspace(0, 1, len(entry.shares) + 1)
            heights = row + 0.92 * np.asarray(entry.shares) / top
            color = ORANGE if entry.marked else BLUE
            ax.stairs(heights, edges, baseline=row, fill=True, color=color, linewidth=0)
            ax.plot([0, 1], [row, row], color=GREY, linewidth=0.5)
            texts = [
                ax.text(-0.03, row + 0.1, shortened(entry.name, LABEL_CELLS), ha="right"),
                ax.text(1.03, row + 0.1, percent(entry.stated), ha="left"),
            ]
            for text in texts:
                text.set(parse_math=False, in_layout=False, fontsize=7.5)
        # Names stand inside the axes, where no measure of a font can cut them off.
        ax.set(xlim=(-0.56, 1.22), ylim=(-0.1, max(len(shown), 1)))
        ax.text(-0.03, 1.01, "set", ha="right", transform=ax.get_xaxis_transform())
        ax.text(1.03, 1.01, "stated", ha="left", transform=ax.get_xaxis_transform())
        _style_axes(ax, x_label, "", grid="x")
        ax.set_xticks([0, 0.25, 0.5, 0.75, 1])
        ax.set_yticks([])
        ax.spines[["left", "bottom"]].set_visible(False)
        return _figure(ax)


def plot_leave_sets_out(
    errors: Mapping[str, float], *, used: str = "", baseline: str = "", ax: Axes | None = None
) -> Figure:
    """Draw the error of the share predicted for held-out sets as bars, one per method.

    Parameters
    ----------
    errors : mapping from method to error
    used : str
        The method of the model, drawn in colour.
    baseline : str
        The key that stands for guessing, marked by a line through all bars.
    ax : matplotlib Axes, optional
        Where to draw; a new figure if left out.
    """
    names = sorted(errors, key=lambda name: (name == baseline, name != used, name))[::-1]
    with rc_context(STYLE):
        ax = _axes(ax, (3.9, 0.7 + 0.36 * max(len(names), 2)))
        for row, name in enumerate(names):
            color = BLUE if name == used else GREY
            ax.barh(row, errors[name], height=0.6, color=color)
            ax.annotate(
                f"{errors[name]:.3f}",
                (errors[name], row),
                textcoords="offset points",
                xytext=(5, 0),
                va="center",
            )
        if baseline in errors:
            ax.axvline(errors[baseline], color=ORANGE, linewidth=1.2, linestyle=(0, (4, 3)))
        words = {baseline: "guess: average share", used: f"{used} (this model)"}
        _style_axes(ax, "RMS error of the predicted share", "", grid="x")
        ax.set_yticks(range(len(names)), [words.get(name, name) for name in names])
        ax.tick_params(axis="y", length=0)
        finite = [error for error in errors.values() if np.isfinite(error)]
        ax.set_xlim(0, 1.22 * max(finite, default=1.0) or 1.0)
        return _figure(ax)


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
        ax = _axes(ax, (3.9, 2.6))
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
        _style_axes(ax, step, "loss", grid="y")
        if ax.get_legend_handles_labels()[0]:
            ax.legend(frameon=False, loc="upper right")
        return _figure(ax)


def _evenly_spaced(count: int, most: int) -> npt.NDArray[np.int64]:
    """Return at most `most` of the positions 0..count-1, evenly spread, with both ends."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, most).round().astype(int))


def _rows(ordered: Sequence[SetScores]) -> list[SetScores]:
    """Return the sets to draw of those in order: all, or some of the marked and of the others."""
    if len(ordered) <= MOST_HISTOGRAMS:
        return list(ordered)
    marked = [j for j, entry in enumerate(ordered) if entry.marked]
    others = [j for j, entry in enumerate(ordered) if not entry.marked]
    kept = [marked[j] for j in _evenly_spaced(len(marked), MOST_LABELS)]
    kept += [others[j] for j in _evenly_spaced(len(others), MOST_HISTOGRAMS - len(kept))]
    return [ordered[j] for j in sorted(kept)]


def _points(x: FloatArray, y: FloatArray, marked: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the positions to draw: those with numbers, thinned, and the named ones."""
    known = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    order = known[np.argsort(x[known], kind="stable")]
    thinned = order[_evenly_spaced(len(order), MOST_POINTS)]
    named = np.asarray(marked[:MOST_LABELS], dtype=int)
    return np.union1d(thinned, np.intersect1d(named, known))


def _axis_limits(values: FloatArray) -> tuple[float, float]:
    """Return limits that hold all values, a little wider, inside those of a share."""
    values = values[np.isfinite(values)]
    if not len(values):
        return -0.02, 1.02
    low, high = float(values.min()), float(values.max())
    margin = max(0.06 * (high - low), 0.005)
    return max(low - margin, -0.02), min(high + margin, 1.02)


def _name_points(
    ax: Axes, x: FloatArray, y: FloatArray, names: Sequence[str], reach: tuple[float, float]
) -> None:
    """Write names beside points, moved apart, away from the diagonal where there is room."""
    span = reach[1] - reach[0]
    order = np.argsort(y, kind="stable")
    heights = y.copy()
    gap, floor = 0.055 * span, reach[0] + 0.03 * span
    for j in order:
        heights[j] = floor = max(heights[j], floor)
        floor += gap
    # The highest may have been pushed out: push back down from the top.
    ceiling = reach[1] - 0.03 * span
    for j in order[::-1]:
        heights[j] = ceiling = min(heights[j], ceiling)
        ceiling -= gap
    for j, name in enumerate(names):
        text = shortened(name, LABEL_CELLS)
        width = (0.06 + 0.024 * len(text)) * span  # about what the letters take
        fits_left, fits_right = x[j] - width > reach[0], x[j] + width < reach[1]
        left = fits_left and (y[j] > x[j] or not fits_right)
        away = x[j] + (-0.05 if left else 0.05) * span
        ax.plot([x[j], away], [y[j], heights[j]], color=GREY, linewidth=0.7, zorder=1)
        ax.text(
            away,
            heights[j],
            text,
            ha="right" if left else "left",
            va="center",
            parse_math=False,
            in_layout=False,
        )


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Return the axes given, or those of a new figure."""
    return Figure(figsize=size, layout="constrained").add_subplot() if ax is None else ax


def _style_axes(ax: Axes, x_label: str, y_label: str, *, grid: str) -> None:
    """Give axes the look of all pictures; the label of y stands level above them."""
    ax.set_xlabel(x_label, parse_math=False)
    ax.set_title(y_label, parse_math=False, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(GREY)
    ax.tick_params(color=GREY, labelcolor="black", labelsize=8)
    ax.set_axisbelow(True)
    ax.grid(axis=grid, color=GREY, alpha=0.25, linewidth=0.6)  # type: ignore[arg-type]


def _figure(ax: Axes) -> Figure:
    """Return the figure that axes belong to."""
    figure = ax.get_figure(root=True)
    if figure is None:  # an Axes that was removed from its figure
        raise ValueError("ax belongs to no figure")
    return figure
