"""Draw the pictures of docs/concepts.md: python docs/build_concepts.py

Simulated rows and curves, nothing measured. Equal code gives equal bytes.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy.special import expit
from scipy.stats import norm

from unmix.files import atomic_write_text
from unmix.report.plot_style import BLUE, GREY, ORANGE, STYLE
from unmix.report.svg import figure_to_svg, standalone_svg

DOCS = Path(__file__).resolve().parent
SHARES = {"north": 0.7, "south": 0.4, "east": 0.15}
NOT_FILLED = "none"


def main() -> int:
    """Write the pictures."""
    for name, drawing in pictures().items():
        atomic_write_text(DOCS / "images" / f"{name}.svg", drawing)
    return 0


def pictures() -> dict[str, str]:
    """Return the pictures by the names of their files."""
    found = {}
    for name, (draw, label) in PICTURES.items():
        with rc_context(STYLE):
            drawing = figure_to_svg(draw(), label=label, prefix=f"{name}-")
        found[name] = standalone_svg(drawing, scale=1.6)
    return found


def what_is_known() -> Figure:
    """Draw three sets of rows: above what one has, below what nobody sees."""
    figure, panels = _panels(2, 3, height=3.1, share="all")
    rng = np.random.default_rng(1)
    for column, (name, share) in enumerate(SHARES.items()):
        positive = np.arange(40) < round(40 * share)
        x = rng.normal(size=(40, 2)) + 1.1 * np.where(positive, 1, -1)[:, None]
        above, below = panels[:, column]
        above.scatter(*x.T, s=14, color=GREY)
        above.set_title(f"{name}: {share:.0%} positive")
        below.scatter(*x[positive].T, s=14, color=ORANGE, marker="D")
        below.scatter(*x[~positive].T, s=14, color=BLUE)
    panels[0, 0].set_ylabel("what you have")
    panels[1, 0].set_ylabel("what nobody sees")
    return _bare(figure, panels)


def label_shift() -> Figure:
    """Draw the same two classes mixed in other shares."""
    figure, panels = _panels(1, 3, height=1.9, share="all")
    x = np.linspace(-4.5, 4.5, 181)
    for ax, (name, share) in zip(panels[0], SHARES.items(), strict=True):
        parts = share * norm.pdf(x, 1.3), (1 - share) * norm.pdf(x, -1.3)
        for part, color, style in zip(parts, (ORANGE, BLUE), ("-", "--"), strict=True):
            ax.fill_between(x, part, color=color, alpha=0.25, linewidth=0)
            ax.plot(x, part, color=color, linestyle=style)
        ax.plot(x, sum(parts), color=GREY, linewidth=2)
        ax.set_title(f"{name}: {share:.0%} positive")
        ax.set_xlabel("feature")
    panels[0, 0].set_ylabel("rows")
    panels[0, 1].text(-1.35, 0.07, "negative", ha="center", fontsize=8)
    panels[0, 1].text(1.5, 0.04, "positive", ha="center", fontsize=8)
    return _bare(figure, panels)


def covariate_shift() -> Figure:
    """Draw one curve for all sets, then a curve that each set moves."""
    figure, panels = _panels(1, 2, height=2.3, share="all")
    x = np.linspace(-4.5, 4.5, 181)
    middles, effects = (1.6, 0.0, -1.8), (1.1, -0.2, -1.2)
    left, right = panels[0]
    for ax in (left, right):
        ax.set_ylim(0, 1.02)
        ax.set_xlabel("feature")
        ax.set_xlim(-4.5, 4.5)
    left.set_title("covariate shift: one curve")
    right.set_title("set effects: each set moves it")
    left.set_ylabel("probability of positive")
    left.plot(x, expit(1.4 * x), color=GREY, linewidth=2)
    colors = (ORANGE, "#7d8c2e", BLUE)
    for name, middle, effect, color in zip(SHARES, middles, effects, colors, strict=True):
        near = np.abs(x - middle) < 2
        left.fill_between(x, 0.35 * norm.pdf(x, middle, 0.8), color=color, alpha=0.35, linewidth=0)
        left.text(middle, 0.19, name, ha="center", fontsize=8)
        curve = expit(1.4 * x + 1.4 * effect)
        right.plot(x[near], curve[near], color=color, linewidth=2)
        place = {"north": (-1.9, 0.78), "south": (0.75, 0.45), "east": (0.4, 0.13)}[name]
        right.text(*place, name, fontsize=8)
    right.plot(x, expit(1.4 * x), color=GREY, linewidth=1, linestyle="--")
    return _bare(figure, panels, keep_y=True)


def groupings() -> Figure:
    """Draw rows in the cells of two groupings, with shares known only at the margins."""
    figure, panels = _panels(1, 1, height=2.9, width=4.6)
    ax = panels[0, 0]
    rng = np.random.default_rng(3)
    rows, columns = ("north", "south", "east"), ("January", "February", "March", "April")
    for i in range(len(rows)):
        for j in range(len(columns)):
            at = rng.random((9, 2)) * 0.76 + 0.12
            ax.scatter(j + at[:, 0], i + at[:, 1], s=9, color=GREY)
            ax.add_patch(_box(j, i))
    for i, (name, share) in enumerate(SHARES.items()):
        ax.text(-0.12, i + 0.5, f"{name}  {share:.0%}", ha="right", va="center")
    for j, (name, share) in enumerate(zip(columns, (0.31, 0.38, 0.46, 0.52), strict=True)):
        ax.text(j + 0.5, -0.12, f"{name}\n{share:.0%}", ha="center", va="bottom")
    ax.set_xlim(-1.25, len(columns) + 0.05)
    ax.set_ylim(len(rows) + 0.05, -0.75)
    ax.set_axis_off()
    return figure


def ecological_fallacy() -> Figure:
    """Draw sets whose shares rise with a feature that falls within each of them."""
    figure, panels = _panels(1, 2, height=2.3, share="all")
    left, right = panels[0]
    x = np.array([-2.2, -1.1, 0.0, 1.1, 2.2])
    share = expit(1.1 * x)
    for ax in (left, right):
        ax.set_ylim(0, 1)
        ax.set_xlabel("feature")
        ax.scatter(x, share, s=30, color=BLUE, zorder=3)
    left.plot(x, share, color=BLUE, linewidth=1.5)
    left.set_title("between sets: the share rises")
    right.set_title("within each set: it falls")
    left.set_ylabel("share of positives")
    for middle, height in zip(x, share, strict=True):
        near = np.linspace(middle - 0.7, middle + 0.7, 21)
        offset = np.log(height / (1 - height))
        right.plot(near, expit(offset - 1.2 * (near - middle)), color=ORANGE, linewidth=1.5)
    return _bare(figure, panels, keep_y=True)


def _panels(rows: int, columns: int, *, height: float, width: float = 6.4, share: str = "none"):
    """Return a figure and its axes, (rows, columns)."""
    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharex=share, sharey=share)
    return figure, panels


def _bare(figure: Figure, panels: np.ndarray, *, keep_y: bool = False) -> Figure:
    """Take away frames and ticks, which say nothing in a sketch."""
    for ax in panels.flat:
        ax.set_xticks([])
        if not keep_y:
            ax.set_yticks([])
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
        for side in ("left", "bottom"):
            ax.spines[side].set_color(GREY)
        ax.tick_params(color=GREY)
    return figure


def _box(x: float, y: float):
    """Return the frame of a cell."""
    return Rectangle((x, y), 1, 1, facecolor=NOT_FILLED, edgecolor=GREY, linewidth=0.6)


PICTURES = {
    "concepts-known": (what_is_known, "Three sets of rows, with and without their classes"),
    "concepts-label-shift": (label_shift, "The same two classes mixed in other shares"),
    "concepts-covariate-shift": (
        covariate_shift,
        "The probability of a positive against a feature: one curve, or one moved by each set",
    ),
    "concepts-groupings": (groupings, "Rows in the cells of regions and months"),
    "concepts-fallacy": (
        ecological_fallacy,
        "Shares of sets rise with a feature with which the class falls inside each set",
    ),
}


if __name__ == "__main__":
    sys.exit(main())
