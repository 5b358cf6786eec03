"""One quiet style for all plots, legible on white and on black: fonts, colours and axes.

Axes of shares are in percent, and in log-odds where shares are near 0 or 1: a class of one in a
thousand has shares that a plain axis would put into one corner. This file knows no plot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from scipy.special import expit, logit

__all__ = [
    "BLUE",
    "GREEN",
    "GREY",
    "ORANGE",
    "STYLE",
    "axes_or_new",
    "figure_of",
    "share_text",
    "show_shares",
    "style_axes",
    "visible_ticks",
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
BLUE, ORANGE, GREY, GREEN = "#4682d4", "#dd6b20", "#8b929c", "#2f9e62"

SMALL = [m * 10.0**power for power in range(-6, -1) for m in (1, 2, 5)] + [0.1, 0.2]
TICKS = np.array([*SMALL, 0.5, *(1 - share for share in SMALL[::-1])])
MOST_TICKS = 6
LEAST = 1e-6  # nearest to 0 that an axis of log-odds goes


def axes_or_new(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Return the axes given, or those of a new figure."""
    return Figure(figsize=size, layout="constrained").add_subplot() if ax is None else ax


def style_axes(ax: Axes, x_label: str, y_label: str, *, grid: str) -> None:
    """Give axes the look of all pictures; the label of y stands level above them."""
    ax.set_xlabel(x_label, parse_math=False)
    ax.set_title(y_label, parse_math=False, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(GREY)
    ax.tick_params(color=GREY, labelcolor="black", labelsize=8)
    ax.set_axisbelow(True)
    ax.grid(axis=grid, color=GREY, alpha=0.25, linewidth=0.6)  # type: ignore[arg-type]


def figure_of(ax: Axes) -> Figure:
    """Return the figure that axes belong to."""
    figure = ax.get_figure(root=True)
    if figure is None:  # an Axes that was removed from its figure
        raise ValueError("ax belongs to no figure")
    return figure


def share_text(share: float) -> str:
    r"""Return a share as a tick label.

    Examples
    --------
    >>> share_text(0.002), share_text(0.5)
    ('0.2\xa0%', '50\xa0%')
    """
    return f"{100 * share:.6g}\N{NO-BREAK SPACE}%"


def show_shares(ax: Axes, values: FloatArray, *, log_odds: bool) -> None:
    """Give both axes the same limits, which hold all values, and labels in percent."""
    values = values[np.isfinite(values)]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    if log_odds:
        inside = values[(values > 0) & (values < 1)]
        ends = (float(inside.min()), float(inside.max())) if len(inside) else (0.01, 0.99)
        # Shares of 0 and 1 stand a little beyond the others.
        low, high = logit(np.clip(ends, LEAST, 1 - LEAST))
        margin = max(0.08 * (high - low), 0.2)
        low, high = (float(expit(end)) for end in (low - margin, high + margin))
        ax.set_xscale("logit")
        ax.set_yscale("logit")
    else:
        margin = max(0.06 * (high - low), 0.005)
        low, high = max(low - margin, -0.02), min(high + margin, 1.02)
    ax.set(xlim=(low, high), ylim=(low, high))
    ax.set_box_aspect(1)
    for axis in (ax.xaxis, ax.yaxis):
        locator: Any = MaxNLocator(6)
        if log_odds:
            locator = FixedLocator(_thinned(TICKS[(low <= TICKS) & (high >= TICKS)]).tolist())
        axis.set_major_locator(locator)
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda share, _: share_text(share)))


def visible_ticks(edges: Sequence[float] | None) -> tuple[list[float], list[str]]:
    """Return where on [0, 1] ticks of bins stand, and what they say.

    Parameters
    ----------
    edges : sequence of float, optional
        Of the bins, evenly spaced in log-odds; of equal bins of [0, 1] if left out.
    """
    plain = [0, 0.25, 0.5, 0.75, 1]
    if edges is None or edges[0] <= 0:
        return [float(tick) for tick in plain], [share_text(tick) for tick in plain]
    ticks = _thinned(TICKS[(edges[0] <= TICKS) & (edges[-1] >= TICKS)], 4)
    places = np.interp(logit(ticks), logit(np.asarray(edges)), np.linspace(0, 1, len(edges)))
    return places.tolist(), [share_text(float(tick)) for tick in ticks]


def _thinned(ticks: FloatArray, most: int = MOST_TICKS) -> FloatArray:
    """Return at most so many ticks, evenly spread."""
    step = -(-len(ticks) // most)
    return ticks[:: max(step, 1)]
