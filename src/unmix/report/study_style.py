"""What all pictures of a study share: colours, the look of a panel, the signs of a legend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import cycle
from typing import Any, Literal

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from unmix.learn.methods import METHODS, is_registered
from unmix.report.plot_style import BLUE, GREY, ORANGE
from unmix.report.study_tables import PAPER_EPOCHS
from unmix.studies.summary import Entry

__all__ = [
    "INK",
    "MARKERS",
    "METHOD_COLORS",
    "PLAIN",
    "References",
    "dashes",
    "dot",
    "from_zero",
    "key",
    "label",
    "legend",
    "log_errors",
    "paper_key",
    "reference_key",
    "ring",
    "ring_style",
    "style_panel",
]

References = dict[str, float]
"""Error of the supervised reference in percent, by dataset."""

METHOD_COLORS = {
    "mmc-u2-b": "#c79a1e",
    "mmc-u2": ORANGE,
    "mmc-u2-c": "#c9485b",
    "llp-vat": "#7d8c2e",
    "ssc": BLUE,
    "ssc-believing": "#b5651d",
    "ssc-refined": "#1f9e89",
    "ssc-vat": "#9a5fc4",
    "ssc-consistency": "#3c8f5a",
}
MARKERS = {
    "mmc-u2-b": "v",
    "mmc-u2": "^",
    "mmc-u2-c": "s",
    "llp-vat": "P",
    "ssc-vat": "D",
    "ssc-consistency": "*",
}
# Methods of the user's own, in the order in which they were registered.
SPARE = (("#3f6f6f", "X"), ("#a8477f", "<"), ("#5f6b1f", ">"), ("#4b5fb0", "h"))
for _row, (_color, _marker) in zip(filter(is_registered, METHODS), cycle(SPARE), strict=False):
    METHOD_COLORS.setdefault(_row, _color)
    MARKERS.setdefault(_row, _marker)
# Of the paper's numbers and of zero: not black, which is lost on a dark page.
INK = "#6d7580"
PLAIN = FuncFormatter(lambda value, _: f"{value:g}")
ERROR_TICKS = (0.5, 1, 2, 3, 5, 10, 15, 20, 30, 50)


def log_errors(ax: Axes, axis: Literal["x", "y"]) -> None:
    """Give an axis of errors plain numbers on a logarithmic scale."""
    one = ax.xaxis if axis == "x" else ax.yaxis
    ax.set(**{f"{axis}scale": "log"})
    one.set_major_locator(FixedLocator(ERROR_TICKS))
    one.set_major_formatter(PLAIN)
    one.set_minor_locator(NullLocator())
    one.set_minor_formatter(NullFormatter())


def style_panel(ax: Axes, title: str, *, grid: Literal["x", "y"]) -> None:
    """Give a panel its title and the look of all pictures."""
    ax.set_title(title, loc="left", fontweight="bold")
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(GREY)
    ax.tick_params(color=GREY, labelcolor="black", labelsize=8)
    ax.set_axisbelow(True)
    ax.grid(axis=grid, color=GREY, alpha=0.25, linewidth=0.6)


def from_zero(panels: Iterable[Axes]) -> None:
    """Begin the errors at zero, when all is drawn: panels share their limits."""
    for ax in panels:
        ax.set_ylim(bottom=0)


def label(figure: Figure, x_label: str, y_label: str) -> None:
    """Label the axes once for all panels."""
    figure.supxlabel(x_label, fontsize=9)
    figure.supylabel(y_label, fontsize=9)


def legend(figure: Figure, keys: Sequence[Artist]) -> None:
    """Write one legend above all panels."""
    columns = min(len(keys), 4)
    figure.legend(
        handles=keys, loc="outside upper left", ncols=columns, frameon=False, fontsize=8.5
    )


def key(row: str) -> Line2D:
    """Return the sign of a method in a legend."""
    color, marker = METHOD_COLORS.get(row, GREY), MARKERS.get(row, "o")
    return Line2D([], [], color=color, linewidth=1.5, marker=marker, markersize=4, label=row)


def dot(label: str, color: str = INK) -> Line2D:
    """Return the sign of our numbers."""
    return Line2D([], [], color=color, marker="o", markersize=4.5, linestyle="", label=label)


def ring(label: str) -> Line2D:
    """Return the sign of the paper's numbers."""
    return Line2D([], [], label=label, **ring_style(INK))


def ring_style(color: str) -> dict[str, Any]:
    """Return how a ring is drawn."""
    return {
        "color": color,
        "marker": "o",
        "markersize": 4.5,
        "markerfacecolor": "none",
        "linestyle": "",
    }


def dashes(label: str) -> Line2D:
    """Return the sign of the paper's numbers where they are dashes."""
    return Line2D([], [], color=INK, linewidth=1.3, dashes=(3, 2), label=label)


def paper_key(
    entries: Sequence[Entry], sign: Callable[[str], Line2D], words: str = ""
) -> list[Artist]:
    """Return the sign of the paper's numbers, if there are any."""
    published = any(entry.paper is not None for entry in entries)
    return [sign(f"{words}the paper, {PAPER_EPOCHS} epochs")] if published else []


def reference_key(entries: Sequence[Entry], references: References) -> list[Artist]:
    """Return the sign of the supervised reference, if there is one."""
    known = any(entry.dataset in references for entry in entries)
    label = "supervised, all labels"
    return [Line2D([], [], color=GREY, linewidth=1.2, linestyle=":", label=label)] if known else []
