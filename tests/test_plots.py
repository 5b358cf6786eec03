"""Pictures hold the values given, name what matters and are the same clean SVG each time."""

from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import same_color
from matplotlib.figure import Figure
from scipy.special import logit

from unmix.assess.estimates import p_value
from unmix.assess.histograms import bin_edges
from unmix.assess.roc import Roc
from unmix.learn.hidden_sets import Gain
from unmix.report import plots
from unmix.report.number_words import percent, shortened
from unmix.report.plots import (
    SetScores,
    plot_gain,
    plot_history,
    plot_roc,
    plot_score_histograms,
    plot_shares,
)
from unmix.report.svg import figure_to_svg

GRID = np.linspace(0, 1, 11)
ROC = Roc(tuple(GRID), tuple(GRID**0.3), tuple(0.9 * GRID**0.3), tuple(np.minimum(1.1 * GRID, 1)))
NAMES = ("north", "south", "east", "west")
STATED = (0.1, 0.4, 0.6, 0.9)
FOUND = (0.12, 0.38, 0.2, 0.88)
HISTORY = [{"round": 5, "held_out_loss": 2.0}, {"round": 10, "held_out_loss": 1.5}]


def axes_of(figure):
    (ax,) = figure.axes
    return ax


def texts_of(figure):
    return [text.get_text() for text in axes_of(figure).texts]


def points_of(figure, color):
    """All points drawn in a colour, as (x, y)."""
    found = [
        artist.get_offsets()
        for artist in axes_of(figure).collections
        if isinstance(artist, PathCollection) and same_color(artist.get_facecolor()[0], color)
    ]
    return np.concatenate(found).round(6).tolist() if found else []


def drawn(figure, prefix="a-"):
    return ElementTree.fromstring(str(figure_to_svg(figure, label="a picture", prefix=prefix)))


ALL = {
    "shares": lambda ax=None: plot_shares(NAMES, STATED, FOUND, marked=[2], ax=ax),
    "roc": lambda ax=None: plot_roc(ROC, point=(0.1, 0.5), ax=ax),
    "scores": lambda ax=None: plot_score_histograms([SetScores("a", 0.3, [0.5] * 2)], ax=ax),
    "gain": lambda ax=None: plot_gain({"ssc": Gain(0.5, 0.1, 2.1, 0.2)}, used="ssc", ax=ax),
    "history": lambda ax=None: plot_history(HISTORY, ax=ax),
}


@pytest.mark.parametrize("plot", ALL.values(), ids=ALL)
def test_a_picture_is_drawn_on_the_axes_given_and_sets_nothing_global(plot):
    before = dict(matplotlib.rcParams)
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert plot(ax=right) is figure
    assert right.has_data()
    assert not left.has_data()
    assert dict(matplotlib.rcParams) == before
    assert len(plot().axes) == 1


@pytest.mark.parametrize("plot", ALL.values(), ids=ALL)
def test_equal_pictures_give_equal_bytes_without_a_date_or_an_address(plot):
    first, second = (figure_to_svg(plot(), label="a picture", prefix="a-") for _ in range(2))
    assert first == second
    assert "http" not in first
    assert "date" not in first.lower()
    root = ElementTree.fromstring(str(first))
    assert root.attrib["aria-label"] == "a picture"
    ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    assert ids
    assert len(set(ids)) == len(ids)
    assert all(name.startswith("a-") for name in ids)
    links = [element.attrib["href"] for element in root.iter() if "href" in element.attrib]
    assert {link.removeprefix("#") for link in links} <= set(ids)


def test_no_file_of_the_report_uses_pyplot_or_shows_a_window():
    for path in Path(plots.__file__).parent.glob("*.py"):
        assert "pyplot" not in path.read_text()
        assert ".show(" not in path.read_text()


def test_shares_are_points_and_only_marked_sets_are_named():
    figure = plot_shares(NAMES, STATED, FOUND, marked=[2])
    assert points_of(figure, plots.ORANGE) == [[0.6, 0.2]]
    assert points_of(figure, plots.BLUE) == [[0.1, 0.12], [0.4, 0.38], [0.9, 0.88]]
    assert texts_of(figure) == ["east"]


def test_intervals_are_upright_lines_through_the_points():
    low, high = np.array(FOUND) - 0.05, np.array(FOUND) + 0.1
    figure = plot_shares(NAMES, STATED, FOUND, low=low, high=high)
    (lines,) = (a for a in axes_of(figure).collections if isinstance(a, LineCollection))
    ends = np.array(lines.get_segments())  # (sets, 2 ends, 2)
    np.testing.assert_allclose(ends[:, 0], np.stack([STATED, low], axis=1))
    np.testing.assert_allclose(ends[:, 1], np.stack([STATED, high], axis=1))


def test_sets_without_a_prediction_are_left_out():
    figure = plot_shares(NAMES, STATED, (0.1, np.nan, 0.5, 0.9), marked=[1])
    assert len(points_of(figure, plots.BLUE)) == 3
    assert texts_of(figure) == []
    nothing = plot_shares(["a"], [0.5], [np.nan])
    assert points_of(nothing, plots.BLUE) == []


def test_rare_classes_fill_the_picture():
    figure = plot_shares(["a", "b", "c"], [0.001, 0.01, 0.02], [0.002, 0.012, 0.0])
    ax = axes_of(figure)
    assert ax.get_xscale() == ax.get_yscale() == "logit"
    low, high = ax.get_xlim()
    assert 0 < low < 0.001
    assert 0.02 < high < 0.05
    assert ax.get_xlim() == ax.get_ylim()
    # A share of 0 has no log-odds: its set stands at the edge.
    assert points_of(figure, plots.BLUE)[2] == pytest.approx([0.02, low], abs=1e-6)
    figure.draw_without_rendering()
    assert "1\xa0%" in [label.get_text() for label in ax.get_xticklabels()]


def test_histograms_of_rare_classes_have_ticks_in_log_odds():
    edges = bin_edges(np.geomspace(1e-4, 0.05, 1000))
    ax = axes_of(plot_score_histograms([SetScores("a", 0.01, [0.05] * 20)], edges=edges))
    names = [label.get_text().replace("\xa0", " ") for label in ax.get_xticklabels()]
    assert "0.1 %" in names or "0.2 %" in names
    shares = np.array([float(name.removesuffix(" %")) / 100 for name in names])
    expected = np.interp(logit(shares), logit(edges), np.linspace(0, 1, 21))
    np.testing.assert_allclose(ax.get_xticks(), expected)
    assert np.diff(logit(edges)) == pytest.approx(np.diff(logit(edges))[0])


def test_histograms_of_thousands_of_sets_are_averages_over_sets_of_similar_shares():
    sets = [SetScores(f"s{j}", j / 2000, [j / 2000, 1 - j / 2000]) for j in range(2000)]
    shown = texts_of(plot_score_histograms(sets))
    assert [text for text in shown if text.endswith(" sets")] == ["100 sets"] * plots.BANDS
    stated = [text.replace("\xa0", " ") for text in shown if "%" in text]
    assert (stated[0], stated[-1]) == ("2.5 %", "97.5 %")


def test_the_line_through_many_sets_joins_averages():
    x = np.linspace(0, 1, 1000)
    y = np.where(np.arange(1000) % 2, 0.9, 0.1)
    figure = plot_shares([str(j) for j in range(1000)], x, y)
    line = axes_of(figure).lines[-1]
    np.testing.assert_allclose(line.get_ydata(), 0.5)
    np.testing.assert_allclose(line.get_xdata(), x.reshape(20, 50).mean(axis=1))


def test_at_most_two_thousand_points_are_drawn_the_named_ones_among_them():
    shares = np.linspace(0, 1, 50_000)
    marked = [7, 49_993, *range(100, 300)]
    figure = plot_shares([str(j) for j in range(50_000)], shares, shares, marked=marked)
    # Many points let each other shine through.
    blue, orange = (points_of(figure, c) for c in ((plots.BLUE, 0.5), plots.ORANGE))
    assert 1990 <= len(blue) + len(orange) <= 2000 + plots.MOST_LABELS
    assert texts_of(figure) == ["7", "49993", *map(str, range(100, 106))]
    assert [round(shares[49_993], 6)] * 2 in orange
    svg = figure_to_svg(figure, label="many", prefix="a-")
    assert "data:image/png;base64," in svg
    assert len(svg) < 150_000


@pytest.mark.parametrize("scale", [1.0, 0.01], ids=["plain", "log-odds"])
def test_names_keep_their_distance(scale):
    names = [f"set {j}" for j in range(8)]
    shares = scale * np.linspace(0.5, 0.52, 8)
    figure = plot_shares(names, [0.3 * scale] * 8, shares, marked=range(8))
    heights = sorted(text.get_position()[1] for text in axes_of(figure).texts)
    assert min(np.diff(heights)) > 0.05
    assert heights[0] > 0
    assert heights[-1] < 1


def test_a_dollar_is_no_mathematics_and_a_foreign_script_no_warning():
    names = ["$\\frac{1}{0}$", "$5 & $6 <b>", "שלום", "😀 家"]
    figure = plot_shares(names, STATED, FOUND, marked=range(4), x_label="share of $x^2$")
    shown = [element.text for element in drawn(figure).iter("text")]
    assert {*names, "share of $x^2$"} <= set(shown)
    ridge = plot_score_histograms([SetScores(n, 0.5, [0.2] * 5) for n in names], x_label="$p$")
    assert {*names, "$p$"} <= {element.text for element in drawn(ridge).iter("text")}


def test_text_has_the_colour_and_the_font_of_the_page():
    for element in drawn(plot_shares(NAMES, STATED, FOUND, marked=[2])).iter("text"):
        assert "fill" not in element.attrib["style"]
        assert "font-family" not in element.attrib["style"]


def test_the_curve_the_band_and_both_points_are_drawn():
    figure = plot_roc(ROC, point=(0.1, 0.5), labeled_point=(0.12, 0.52))
    ax = axes_of(figure)
    chance, curve = ax.lines
    np.testing.assert_allclose(chance.get_xydata(), [[0, 0], [1, 1]])
    np.testing.assert_allclose(curve.get_ydata(), ROC.tpr)
    offsets = [a.get_offsets().tolist() for a in ax.collections if isinstance(a, PathCollection)]
    assert offsets == [[[0.1, 0.5]], [[0.12, 0.52]]]


def test_histograms_are_sorted_by_stated_share_and_at_most_thirty():
    sets = [SetScores(f"s{j}", (7 * j % 60) / 100, [0.1] * 10, j == 50) for j in range(60)]
    figure = plot_score_histograms(sets)
    rows = [text for text in axes_of(figure).texts if text.get_text()[1:].isdigit()]
    names = [text.get_text() for text in sorted(rows, key=lambda text: text.get_position()[1])]
    assert len(names) == plots.MOST_HISTOGRAMS
    stated = [(7 * int(name[1:]) % 60) / 100 for name in names]
    assert stated == sorted(stated)
    assert (stated[0], stated[-1]) == (0.0, 0.59)
    assert "s50" in names


def test_a_gain_is_a_point_and_its_bar_touches_guessing_unless_it_is_shown():
    gains = {
        "ssc": Gain(0.5, 0.1, 2.0, 0.2),
        "count": Gain(0.1, 0.1, 2.0, 0.2),
        "proportion": Gain(-40.0, 1.0, 2.0, 0.2),
    }
    figure = plot_gain(gains, used="ssc")
    ax = axes_of(figure)
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["proportion", "count", "ssc (this model)"]
    guess, *bars = ax.lines
    assert guess.get_xdata() == [0, 0]
    ends = {name: bar.get_xdata() for name, bar in zip(labels, bars, strict=True)}
    assert list(ends["ssc (this model)"]) == pytest.approx([0.3, 0.7])
    assert list(ends["count"]) == pytest.approx([-0.1, 0.3])
    assert points_of(figure, plots.BLUE) == [[0.5, 2]]
    # One that fails badly stands at the edge and does not squeeze the others.
    assert ax.get_xlim()[0] > -2
    assert "-40.00, z = -40.0: not shown" in texts_of(figure)


@pytest.mark.parametrize("step", ["round", "epoch"])
@pytest.mark.parametrize("train", ["train_loss", "train_risk"])
def test_the_learning_curve_marks_the_lowest_held_out_loss(step, train):
    losses = [3.0, 1.5, 2.0]
    history = [{step: 10 * j, train: 1.0, "held_out_loss": losses[j]} for j in range(3)]
    figure = plot_history(history)
    assert points_of(figure, plots.ORANGE) == [[10, 1.5]]
    assert axes_of(figure).get_xlabel() == step
    assert [line.get_label() for line in axes_of(figure).lines] == [
        "training rows",
        "held-out rows",
    ]


def test_a_history_without_held_out_rows_or_of_one_row_is_drawn():
    figure = plot_history([{"epoch": 1, "train_risk": 0.7}])
    assert axes_of(figure).lines[0].get_xydata().tolist() == [[1, 0.7]]
    assert axes_of(figure).lines[0].get_marker() == "o"
    assert axes_of(plot_history([])).lines[:] == []


@pytest.mark.parametrize(
    ("name", "cells", "expected"),
    [
        ("north", 5, "north"),
        ("northern", 5, "nort…"),
        ("北海道", 5, "北海…"),
        ("  \n ", 5, "(no name)"),
        ("a\x00b\ud800c\td", 9, "a\ufffdb\ufffdc d"),
        ("\u202elive", 9, "\ufffdlive"),
        ("שלום", 9, "שלום"),
    ],
)
def test_names_are_cut_to_their_width_and_hold_nothing_a_page_cannot(name, cells, expected):
    assert shortened(name, cells) == expected


def test_small_shares_keep_two_digits_and_unknown_ones_are_a_dash():
    written = [percent(share).replace("\xa0", " ") for share in (0.5, 0.00123, 0, 1, np.nan)]
    assert written == ["50.0 %", "0.12 %", "0.0 %", "100.0 %", "–"]
    assert p_value(0.0312) == "0.031"
    assert p_value(1e-9) == "< 0.0001"
    assert p_value(np.nan) == "–"
