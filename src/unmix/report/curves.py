"""Learning curves of runs whose test errors are known: for the demo, on white."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unmix.report.plot_style import axes_or_new, figure_of

__all__ = ["plot_learning_curves"]

Histories = Mapping[str, Sequence[Mapping[str, float]]]


def plot_learning_curves(
    histories: Histories, *, title: str = "", ax: Axes | None = None
) -> Figure:
    """Draw the test error after each epoch, one line per history.

    Parameters
    ----------
    histories : mapping from a name to the history of a run
        Rows with `epoch` and `test_error`.
    title : str
    ax : matplotlib Axes, optional
        Where to draw; a new figure if left out.
    """
    ax = axes_or_new(ax, (6, 3.6))
    for name, history in histories.items():
        epochs = [row["epoch"] for row in history]
        errors = [100 * row["test_error"] for row in history]
        (line,) = ax.plot(epochs, errors, marker="o", markersize=3, label=name)
        ax.annotate(
            f"{errors[-1]:.1f} %",
            (epochs[-1], errors[-1]),
            textcoords="offset points",
            xytext=(6, 0),
            va="center",
            color=line.get_color(),
        )
    ax.set(xlabel="epoch", ylabel="test error (%)", title=title)
    ax.set_ylim(bottom=0)
    ax.margins(x=0.12)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", alpha=0.3)
    ax.legend(frameon=False)
    return figure_of(ax)
