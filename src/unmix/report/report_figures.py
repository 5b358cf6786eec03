"""Which pictures a judgement calls for, and the words around each.

Draws with `plots`, chooses what is shown where there is too much, and says so. Knows no HTML.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from unmix.assess.estimates import Estimate, largest_classes
from unmix.assess.evaluate import Evaluation
from unmix.assess.histograms import ClassHistograms
from unmix.assess.judge import Judgement
from unmix.assess.roc import Roc
from unmix.report import plots
from unmix.report.headline import beats_guessing
from unmix.report.number_words import (
    class_names,
    counted,
    decimal,
    interval,
    percent_level,
    share_of,
)
from unmix.report.plots import SetScores
from unmix.report.report_tables import (
    MOST_CLASSES,
    ConfusionRow,
    confusion_rows,
    labeled_confusion_rows,
    predicted_share,
)
from unmix.report.svg import figure_to_svg

__all__ = ["Drawing", "Picture", "class_share_points", "pictures_of", "roc_points"]

Point = tuple[float, float]

MOST_PANELS = 6  # classes with a panel of their own
VERY_WIDE = 0.5  # width of an interval that says next to nothing about a share
MOST_EFFECTS = 12
MOST_GAINS = 12  # classes with a gain of their own
ROWS_OF_A_PANEL = 15  # histograms of one of several classes


@dataclass(frozen=True)
class Drawing:
    """One figure, with a name for its file and a label for people who cannot see it."""

    name: str
    figure: Figure
    label: str


@dataclass(frozen=True)
class Picture:
    """A heading that says what to look at, one or more drawings or a table, and how to read it."""

    heading: str
    how: str
    figures: tuple[Drawing, ...] = ()
    confusion: tuple[ConfusionRow, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def drawings(self) -> tuple[Markup, ...]:
        """The figures as SVG."""
        return tuple(
            figure_to_svg(drawing.figure, label=drawing.label, prefix=f"{drawing.name}-")
            for drawing in self.figures
        )


def pictures_of(judgement: Judgement) -> list[Picture]:
    """Return the pictures of a judgement, in the order in which one would look at them."""
    found = []
    evaluation = judgement.evaluation
    if evaluation is not None:
        found.append(_shares(judgement, evaluation))
        if judgement.rates_hold:
            found += _roc_or_confusion(judgement, evaluation)
        if evaluation.labeled is not None and not (judgement.rates_hold and evaluation.confusion):
            found.append(_labeled_confusion(judgement, evaluation))
    if judgement.gains:
        found.append(_gain(judgement))
    if judgement.histograms:
        found.append(_histograms(judgement))
    if judgement.effects:
        found.append(_effects(judgement))
    if judgement.refined and judgement.prior_errors is not None:
        found.append(_refined(judgement, judgement.prior_errors))
    if judgement.history:
        found.append(_history(judgement))
    return found


def _marked(judgement: Judgement) -> dict[str, int]:
    """Return the flagged sets with their places, worst first; none where they are no surprise.

    A method that does not assume label shift expects sets to differ.
    """
    if judgement.evaluation is None or not judgement.assumption.set_posterior:
        return {}
    return {name: place for place, name in enumerate(judgement.evaluation.fit_test.misfits)}


def _panels(judgement: Judgement) -> list[int]:
    """Return the positions of the classes with a panel of their own; 0 stands for two classes."""
    if len(judgement.classes) == 2:
        return [0]
    return largest_classes(judgement.target_prior, MOST_PANELS)


def _shares(judgement: Judgement, evaluation: Evaluation) -> Picture:
    """Stated against predicted shares."""
    entries = evaluation.calibration
    by_likelihood = judgement.assumption.set_posterior
    marked = _marked_places(judgement, evaluation)
    names = class_names(judgement.classes)
    drawings = []
    for k in _panels(judgement):
        figure = plots.plot_shares(
            **class_share_points(judgement, evaluation, k),
            x_label=f"stated share of {names[k]}",
            y_label=f"predicted share of {names[k]}",
        )
        label = f"Stated against predicted share of {names[k]}, one point per set"
        drawings.append(Drawing(_numbered("shares", k, names), figure, label))
    if marked:
        flagged = counted(len(marked), "set is", "sets are")
        heading = f"Predicted against stated shares: {flagged} flagged"
    elif by_likelihood and _median_width(evaluation) > VERY_WIDE:
        heading = "Predicted against stated shares: the intervals are very wide"
    elif by_likelihood and evaluation.fit_test.sets:
        heading = "Predicted against stated shares: no set is flagged"
    else:
        heading = "Predicted against stated shares"
    how = (
        "Each point is a set: its stated share across, and upwards the share that the model "
        "predicts from its held-out rows. Sets should lie on the dashed diagonal, where the two "
        "agree."
    )
    if len(entries) > plots.MOST_VECTORS:
        how += " The green line joins the averages of sets with similar stated shares."
    elif by_likelihood:
        level = percent_level(evaluation.confidence)
        how += (
            f" Lines are {level} intervals that treat the model as fixed, so expect some to miss "
            "the diagonal a little."
        )
    if marked:
        how += (
            " Orange diamonds are flagged by the test of label shift: their stated share is wrong, "
            "or their rows differ from those of other sets."
        )
    notes = _share_notes(judgement, marked)
    return Picture(heading, how, tuple(drawings), notes=notes)


def class_share_points(judgement: Judgement, evaluation: Evaluation, k: int) -> dict[str, Any]:
    """Return what `plot_shares` draws of one class: stated and predicted shares, flagged sets."""
    entries, assumption = evaluation.calibration, judgement.assumption
    points: dict[str, Any] = {
        "names": [entry.set_id for entry in entries],
        "stated": [share_of(entry.stated, k) for entry in entries],
        "found": [share_of(predicted_share(entry, assumption), k) for entry in entries],
        "marked": _marked_places(judgement, evaluation),
    }
    if assumption.set_posterior:  # other methods have no interval that could be shown
        points |= {end: [share_of(getattr(e, end), k) for e in entries] for end in ("low", "high")}
    return points


def _marked_places(judgement: Judgement, evaluation: Evaluation) -> list[int]:
    """Return the positions of flagged sets, worst first."""
    rank, entries = _marked(judgement), evaluation.calibration
    flagged = [j for j, entry in enumerate(entries) if entry.set_id in rank]
    return sorted(flagged, key=lambda j: rank[entries[j].set_id])


def _numbered(name: str, k: int, names: Sequence[str]) -> str:
    """Return the name of a drawing, with the number of its class where there are several."""
    return name if len(names) == 1 else f"{name}-{k + 1}"


def _median_width(evaluation: Evaluation) -> float:
    """Return how wide the interval of a middling set is."""
    known = [entry for entry in evaluation.calibration if entry.rows]
    widths = [np.max(np.subtract(entry.high, entry.low)) for entry in known]
    return float(np.median(widths)) if widths else 0.0


def _share_notes(judgement: Judgement, marked: list[int]) -> tuple[str, ...]:
    """Say what the picture of shares leaves out."""
    notes = []
    total = len(judgement.evaluation.calibration) if judgement.evaluation else 0
    if total > plots.MOST_POINTS:
        notes.append(
            f"Shows {plots.MOST_POINTS:,} of {total:,} sets, evenly spread over the stated shares."
        )
    if len(marked) > plots.MOST_LABELS:
        notes.append(
            f"Names the {plots.MOST_LABELS} worst of {len(marked):,} sets; the table below "
            "has more."
        )
    if len(judgement.classes) > MOST_PANELS:
        notes.append(f"Shows the {MOST_PANELS} most common of {len(judgement.classes):,} classes.")
    if not judgement.assumption.set_posterior:
        notes.append("No intervals are shown: the available ones assume label shift.")
    return tuple(notes)


def _means_something(auc: Estimate | None) -> bool:
    """Say whether a ROC curve says more than chance: its area is above 0.5 and not very wide."""
    return auc is not None and auc.low > 0.5 and auc.high - auc.low < VERY_WIDE


def _roc_or_confusion(judgement: Judgement, evaluation: Evaluation) -> list[Picture]:
    """ROC curve of two classes, confusion matrix of more."""
    if evaluation.roc is not None and evaluation.auc is not None:
        if _means_something(evaluation.auc):
            return [_roc(evaluation, evaluation.roc, evaluation.auc)]
        area = interval(evaluation.auc, in_percent=False)
        how = f"The AUC may be no better than chance ({area}; 0.5 is chance)."
        return [Picture("No ROC curve is drawn", how)]
    if evaluation.confusion is None:
        return []
    level = percent_level(evaluation.confidence)
    how = (
        "Each row is an actual class, each column a prediction; the outlined diagonal is correct. "
        f"Small numbers are {level} intervals. No label was used: the table is estimated from the "
        "shares of the sets."
    )
    rows = tuple(confusion_rows(evaluation, judgement.classes))
    return [Picture("Confusion matrix", how, confusion=rows, notes=_class_note(judgement))]


def _class_note(judgement: Judgement) -> tuple[str, ...]:
    """Say that a confusion matrix leaves classes out, if it does."""
    if len(judgement.classes) <= MOST_CLASSES:
        return ()
    return (
        f"Shows the {MOST_CLASSES} most common of {len(judgement.classes):,} classes; rows "
        "do not sum to 100 %.",
    )


def _labeled_confusion(judgement: Judgement, evaluation: Evaluation) -> Picture:
    """Confusion matrix from labels."""
    rows = 0 if evaluation.labeled is None else evaluation.labeled.rows
    how = (
        "Each row is an actual class, each column a prediction; the outlined diagonal is correct. "
        f"Counted on {counted(rows, 'labeled row', 'labeled rows')} that were not trained on."
    )
    return Picture(
        "Confusion matrix, by labels",
        how,
        confusion=tuple(labeled_confusion_rows(evaluation, judgement.classes)),
        notes=_class_note(judgement),
    )


def roc_points(evaluation: Evaluation) -> tuple[Point | None, Point | None]:
    """Return (fpr, tpr) of the decisions, without labels and by labels."""
    point = labeled_point = None
    if evaluation.tpr is not None and evaluation.fpr is not None:
        point = (evaluation.fpr.value, evaluation.tpr.value)
    labeled = evaluation.labeled
    if labeled is not None and labeled.tpr is not None and labeled.fpr is not None:
        labeled_point = (labeled.fpr, labeled.tpr)
    return point, labeled_point


def _roc(evaluation: Evaluation, roc: Roc, auc: Estimate) -> Picture:
    """ROC curve with its band."""
    point, labeled_point = roc_points(evaluation)
    figure = plots.plot_roc(roc, point=point, labeled_point=labeled_point)
    area = decimal(auc.value)
    level = percent_level(evaluation.confidence)
    how = (
        "Each point of the curve is a threshold. The upper left corner would be perfect, the "
        f"dashed diagonal is chance. The shaded band is the {level} interval of each point, the "
        "dot the threshold that this model uses. No label was used: the curve is estimated from "
        "the shares of the sets."
    )
    if labeled_point is not None:
        how += " The orange ring is the same threshold, measured with labels."
    return Picture(
        f"ROC curve: AUC {area} ({interval(auc, in_percent=False)})",
        how,
        (Drawing("roc", figure, f"ROC curve estimated without labels, area {area}"),),
    )


def _histograms(judgement: Judgement) -> Picture:
    """Scores of each set, a panel for each class."""
    stated = dict(zip(judgement.set_ids, judgement.stated_priors, strict=True))
    if judgement.evaluation is not None:  # of sets that may be others than those of training
        stated |= {entry.set_id: entry.stated for entry in judgement.evaluation.calibration}
    flagged, names = _marked(judgement), class_names(judgement.classes)
    several = len(judgement.histograms) > 1
    most = ROWS_OF_A_PANEL if several else plots.MOST_HISTOGRAMS

    def panel(found: ClassHistograms) -> Drawing:
        k = 0 if len(names) == 1 else found.class_index
        sets = [
            SetScores(
                one.set_id, share_of(stated[one.set_id], k), one.shares, one.set_id in flagged
            )
            for one in found.sets
        ]
        figure = plots.plot_score_histograms(
            sets,
            edges=found.edges,
            x_label=f"predicted probability of {names[k]}",
            most=most,
        )
        label = f"Predicted probability of {names[k]} in each set"
        return Drawing(_numbered("scores", k, names), figure, label)

    count = len(judgement.histograms[0].sets)
    bands = count > plots.MOST_NAMED_SETS
    what = (
        "Each row is an average over sets with similar stated shares"
        if bands
        else "Each row is a set, sorted by its stated share"
    )
    how = (
        f"{what}; the height shows how many of its held-out rows get that probability. From bottom "
        "to top, the mass should move to the right. Two humps far apart mean that the model "
        "separates the classes well; a single hump in the middle means that it does not."
    )
    if flagged and not bands:
        how += " Orange sets are flagged by the test of label shift."
    notes: tuple[str, ...] = ()
    if most < count and not bands:
        notes = (
            f"Shows at most {most} of {_total(judgement):,} sets, evenly spread over the stated "
            "shares.",
        )
    heading = "Predicted probabilities, set by set"
    return Picture(heading, how, tuple(map(panel, judgement.histograms)), notes=notes)


def _total(judgement: Judgement) -> int:
    """Return how many sets have held-out rows."""
    if judgement.evaluation is None:
        return len(judgement.histograms[0].sets)
    return judgement.evaluation.num_sets


def _gain(judgement: Judgement) -> Picture:
    """Gain over guessing of each method on held-out sets, and of each class by the one used."""
    better = beats_guessing(judgement)
    figure = plots.plot_gain(judgement.gains, used=judgement.method)
    drawings = [Drawing("gain", figure, "Gain over guessing on held-out sets, by method")]
    how = (
        "Further right is better; the orange line is guessing, and a bar shows what chance allows. "
        "A bar that touches the line is not shown to beat guessing. The gain is in log density of "
        "the stated share: 0.7 means that it was twice as likely by the model as by guessing."
    )
    if judgement.class_gains:
        shown = largest_classes(judgement.target_prior, MOST_GAINS)
        of_class = {judgement.classes[k]: judgement.class_gains[k] for k in shown}
        by_class = plots.plot_gain(of_class)
        label = "Gain over guessing on held-out sets, by class"
        drawings.append(Drawing("gain-by-class", by_class, label))
        how += " On the right, each class against the rest, by this model."
    return Picture(
        "Held-out sets are predicted better than by guessing"
        if better
        else "Held-out sets are predicted no better than by guessing",
        how,
        tuple(drawings),
    )


def _effects(judgement: Judgement) -> Picture:
    """What the model goes by: the largest weights or importances, a panel for each class."""
    weights = judgement.effects[0].class_index >= 0
    panels = [1] if len(judgement.classes) == 2 else _panels(judgement)
    names = class_names(judgement.classes)
    drawings, total = [], 0
    for k in panels if weights else [-1]:
        of_class = [effect for effect in judgement.effects if effect.class_index == k]
        total = len(of_class)
        shown = sorted(of_class, key=lambda effect: -abs(effect.value))[:MOST_EFFECTS]
        place = 0 if len(names) == 1 else k
        what = f"log-odds of {names[place]}" if weights else "share of what all columns gained"
        figure = plots.plot_effects(
            [effect.feature for effect in shown],
            [effect.value for effect in shown],
            low=[effect.low for effect in shown],
            high=[effect.high for effect in shown],
            x_label=what,
        )
        name = _numbered("effects", place, names) if weights else "effects"
        drawings.append(Drawing(name, figure, f"Largest effects on the {what}"))
    if weights:
        resampled = any(math.isfinite(effect.low) for effect in judgement.effects)
        lines = "Lines are 95 % intervals from fits to resampled sets. " if resampled else ""
        how = (
            "How much one standard deviation of a number, or a category, moves the log-odds; above "
            f"0 makes the class more likely. {lines}An effect says what the model goes by, not "
            "what causes the class."
        )
    else:
        how = (
            "How much each column added to the fit of the trees, in all 1. It says what the model "
            "goes by, not what causes the class."
        )
    notes: tuple[str, ...] = ()
    if total > MOST_EFFECTS:
        notes = (f"Shows the {MOST_EFFECTS} largest of {total:,}.",)
    return Picture("What the model goes by", how, tuple(drawings), notes=notes)


def _refined(judgement: Judgement, prior_errors: tuple[float, ...]) -> Picture:
    """Stated against refined shares."""
    names = class_names(judgement.classes)
    last = len(judgement.classes) - 1
    stated = np.array([share_of(prior, last) for prior in judgement.stated_priors])
    refined = np.array([share_of(prior, last) for prior in judgement.refined_priors])
    errors = np.asarray(prior_errors, dtype=np.float64)
    moved = abs(refined - stated)
    scaled = np.divide(moved, errors, out=np.zeros_like(moved), where=errors > 0)
    marked = [j for j in np.argsort(-scaled, kind="stable").tolist() if scaled[j] > 2]
    figure = plots.plot_shares(
        judgement.set_ids,
        stated,
        refined,
        marked=marked,
        x_label=f"stated share of {names[-1]}",
        y_label=f"estimated share of {names[-1]}",
    )
    largest = f"{100 * moved.max():.1f}" if len(moved) else "0"
    how = (
        "The stated shares came with errors, so they were estimated along with the model. Points "
        "off the dashed diagonal changed. Orange diamonds changed by more than twice their stated "
        "error: check where those shares come from."
    )
    notes: tuple[str, ...] = ()
    if len(stated) > plots.MOST_POINTS:
        notes = (
            f"Shows {plots.MOST_POINTS:,} of {len(stated):,} sets, evenly spread over the "
            "stated shares.",
        )
    return Picture(
        f"Estimated against stated shares: changes of up to {largest} percentage points",
        how,
        (Drawing("refined", figure, "Stated against estimated shares, one point per set"),),
        notes=notes,
    )


def _history(judgement: Judgement) -> Picture:
    """Learning curve."""
    history = judgement.history
    step = "round" if "round" in history[0] else "epoch"
    losses = [row.get("held_out_loss", float("nan")) for row in history]
    label = "Loss during training"
    if np.isfinite(losses).any():
        best = int(np.nanargmin(losses))
        lowest = history[best].get(step, best + 1)
        heading = f"The loss on held-out rows was lowest in {step} {lowest:.0f}"
        how = (
            f"The model of that {step} is used. The loss should fall before it and rise or level "
            f"out after it; if it is the last {step}, longer training might help."
        )
    else:
        heading = "The loss should fall and level out"
        how = "If it still falls at the end, longer training might help."
    figure = plots.plot_history(history)
    return Picture(heading, how, (Drawing("history", figure, label),))
