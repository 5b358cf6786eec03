"""Which pictures a judgement calls for, and the words around each.

Draws with `pictures`, chooses what is shown where there is too much, and says so. Knows no HTML.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from unmix.assess.estimates import Estimate
from unmix.assess.evaluate import Evaluation
from unmix.assess.judge import Judgement
from unmix.assess.roc import Roc
from unmix.learn.choose import BASELINE
from unmix.report import pictures
from unmix.report.headline import beats_guessing
from unmix.report.number_words import (
    class_names,
    counted,
    decimal,
    interval,
    percent_level,
    share_of,
)
from unmix.report.pictures import SetScores
from unmix.report.report_tables import (
    MOST_CLASSES,
    ConfusionRow,
    confusion_rows,
    largest_classes,
    predicted_share,
)
from unmix.report.svg import figure_to_svg

__all__ = ["Picture", "pictures_of"]

MOST_PANELS = 6  # classes with a panel of their own
VERY_WIDE = 0.5  # width of an interval that says next to nothing about a share


@dataclass(frozen=True)
class Picture:
    """A heading that says what to look at, one or more drawings or a table, and how to read it."""

    heading: str
    how: str
    drawings: tuple[Markup, ...] = ()
    confusion: tuple[ConfusionRow, ...] = ()
    notes: tuple[str, ...] = ()


def pictures_of(judgement: Judgement) -> list[Picture]:
    """Return the pictures of a judgement, in the order in which one would look at them."""
    found = []
    evaluation = judgement.evaluation
    if evaluation is not None:
        found.append(_shares(judgement, evaluation))
        if judgement.rates_hold:
            found += _roc_or_confusion(judgement, evaluation)
    if judgement.histograms:
        found.append(_histograms(judgement))
    if judgement.leave_sets_out:
        found.append(_leave_sets_out(judgement))
    if judgement.refined and judgement.prior_errors is not None:
        found.append(_refined(judgement, judgement.prior_errors))
    if judgement.history:
        found.append(_history(judgement))
    return found


def _draw(figures: Iterator[tuple[Figure, str]], prefix: str) -> tuple[Markup, ...]:
    """Return figures as SVG, each with its label."""
    return tuple(
        figure_to_svg(figure, label=label, prefix=f"{prefix}{number}-")
        for number, (figure, label) in enumerate(figures)
    )


def _shares(judgement: Judgement, evaluation: Evaluation) -> Picture:
    """Stated against predicted shares."""
    entries = evaluation.calibration
    by_likelihood = judgement.assumption.set_posterior
    rank = {name: place for place, name in enumerate(evaluation.fit_test.misfits)}
    marked = sorted(
        (j for j, entry in enumerate(entries) if entry.set_id in rank),
        key=lambda j: rank[entries[j].set_id],
    )
    names = class_names(judgement.classes)
    shown = largest_classes(judgement.target_prior, len(names), MOST_PANELS)

    def draw() -> Iterator[tuple[Figure, str]]:
        for k in shown:
            figure = pictures.plot_shares(
                [entry.set_id for entry in entries],
                [share_of(entry.stated, k) for entry in entries],
                [share_of(predicted_share(entry, judgement.assumption), k) for entry in entries],
                low=[share_of(entry.low, k) for entry in entries] if by_likelihood else None,
                high=[share_of(entry.high, k) for entry in entries] if by_likelihood else None,
                marked=marked,
                x_label=f"stated share of {names[k]}",
                y_label=f"predicted share of {names[k]}",
            )
            yield figure, f"Stated against predicted share of {names[k]}, one point per set"

    if marked:
        flagged = counted(len(marked), "set is", "sets are")
        heading = f"Predicted against stated shares: {flagged} flagged"
    elif by_likelihood and _median_width(evaluation) > VERY_WIDE:
        heading = "Predicted against stated shares: the intervals are very wide"
    elif evaluation.fit_test.sets:
        heading = "Predicted against stated shares: no set is flagged"
    else:
        heading = "Predicted against stated shares"
    how = (
        "Each point is a set: its stated share across, and upwards the share that the model "
        "predicts from its held-out rows. Sets should lie on the dashed diagonal, where the two "
        "agree."
    )
    if by_likelihood and len(entries) <= pictures.MOST_VECTORS:
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
    return Picture(heading, how, _draw(draw(), "shares"), notes=_share_notes(judgement, marked))


def _median_width(evaluation: Evaluation) -> float:
    """Return how wide the interval of a middling set is."""
    known = [entry for entry in evaluation.calibration if entry.rows]
    widths = [np.max(np.subtract(entry.high, entry.low)) for entry in known]
    return float(np.median(widths)) if widths else 0.0


def _share_notes(judgement: Judgement, marked: list[int]) -> tuple[str, ...]:
    """Say what the picture of shares leaves out."""
    notes = []
    total = len(judgement.evaluation.calibration) if judgement.evaluation else 0
    if total > pictures.MOST_POINTS:
        notes.append(
            f"Shows {pictures.MOST_POINTS:,} of {total:,} sets, evenly spread over the stated "
            "shares."
        )
    if len(marked) > pictures.MOST_LABELS:
        notes.append(
            f"Names the {pictures.MOST_LABELS} worst of {len(marked):,} sets; the table below "
            "has more."
        )
    if len(judgement.classes) > MOST_PANELS:
        notes.append(f"Shows the {MOST_PANELS} most common of {len(judgement.classes):,} classes.")
    if not judgement.assumption.set_posterior:
        notes.append("No intervals are shown: the available ones assume label shift.")
    return tuple(notes)


def _roc_or_confusion(judgement: Judgement, evaluation: Evaluation) -> list[Picture]:
    """ROC curve of two classes, confusion matrix of more."""
    notes: tuple[str, ...] = ()
    if not judgement.assumption.set_posterior:
        notes = ("This estimate assumes label shift, which the method of this model does not.",)
    if evaluation.roc is not None and evaluation.auc is not None:
        return [_roc(evaluation, evaluation.roc, evaluation.auc, notes)]
    if evaluation.confusion is None:
        return []
    if len(judgement.classes) > MOST_CLASSES:
        notes += (
            f"Shows the {MOST_CLASSES} most common of {len(judgement.classes):,} classes; rows "
            "do not sum to 100 %.",
        )
    level = percent_level(evaluation.confidence)
    how = (
        "Each row is an actual class, each column a prediction; the outlined diagonal is correct. "
        f"Small numbers are {level} intervals. No label was used: the table is estimated from the "
        "shares of the sets."
    )
    rows = tuple(confusion_rows(evaluation, judgement.classes))
    return [Picture("Confusion matrix", how, confusion=rows, notes=notes)]


def _roc(evaluation: Evaluation, roc: Roc, auc: Estimate, notes: tuple[str, ...]) -> Picture:
    """ROC curve with its band."""
    point = labeled_point = None
    if evaluation.tpr is not None and evaluation.fpr is not None:
        point = (evaluation.fpr.value, evaluation.tpr.value)
    labeled = evaluation.labeled
    if labeled is not None and labeled.tpr is not None and labeled.fpr is not None:
        labeled_point = (labeled.fpr, labeled.tpr)
    figure = pictures.plot_roc(roc, point=point, labeled_point=labeled_point)
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
        _draw(iter([(figure, f"ROC curve estimated without labels, area {area}")]), "roc"),
        notes=notes,
    )


def _histograms(judgement: Judgement) -> Picture:
    """Scores of each set."""
    stated = dict(zip(judgement.set_ids, judgement.stated_priors, strict=True))
    last = len(judgement.classes) - 1
    evaluation = judgement.evaluation
    misfits = set(evaluation.fit_test.misfits) if evaluation is not None else set()
    sets = [
        SetScores(
            entry.set_id,
            share_of(stated[entry.set_id], last),
            entry.shares,
            entry.set_id in misfits,
        )
        for entry in judgement.histograms
    ]
    name = class_names(judgement.classes)[-1]
    figure = pictures.plot_score_histograms(sets, x_label=f"predicted probability of {name}")
    notes: tuple[str, ...] = ()
    total = len(sets) if evaluation is None else evaluation.num_sets
    if len(sets) > pictures.MOST_HISTOGRAMS:
        notes = (
            f"Shows at most {pictures.MOST_HISTOGRAMS} of {total:,} sets, evenly spread over "
            "the stated shares.",
        )
    how = (
        f"Each row is a set, sorted by its stated share of {name}; the height shows how many of "
        "its held-out rows get that probability. From bottom to top, the mass should move to the "
        "right. Two humps far apart mean that the model separates the classes well; a single hump "
        "in the middle means that it does not."
    )
    if any(entry.marked for entry in sets):
        how += " Orange sets are flagged by the test of label shift."
    return Picture(
        "Predicted probabilities, set by set",
        how,
        _draw(iter([(figure, f"Predicted probability of {name} in each set")]), "scores"),
        notes=notes,
    )


def _leave_sets_out(judgement: Judgement) -> Picture:
    """Error of each method on held-out sets."""
    better = beats_guessing(judgement)
    heading = (
        "Held-out sets are predicted better than by guessing"
        if better
        else "Held-out sets are predicted no better than by guessing"
    )
    how = (
        "Some sets were held out in turn; a model was trained on the others and predicted the "
        "shares of the held-out ones. Bars show the root-mean-square error: shorter is better. A "
        "bar that reaches the orange line is no better than guessing the average share for every "
        "set."
    )
    figure = pictures.plot_leave_sets_out(
        judgement.leave_sets_out, used=judgement.method, baseline=BASELINE
    )
    label = "RMS error of the predicted share of held-out sets, by method"
    return Picture(heading, how, _draw(iter([(figure, label)]), "held-out"))


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
    figure = pictures.plot_shares(
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
    if len(stated) > pictures.MOST_POINTS:
        notes = (
            f"Shows {pictures.MOST_POINTS:,} of {len(stated):,} sets, evenly spread over the "
            "stated shares.",
        )
    return Picture(
        f"Estimated against stated shares: changes of up to {largest} percentage points",
        how,
        _draw(iter([(figure, "Stated against estimated shares, one point per set")]), "refined"),
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
    figure = pictures.plot_history(history)
    return Picture(heading, how, _draw(iter([(figure, label)]), "history"))
