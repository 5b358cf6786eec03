"""Commands that judge rows by a saved model, set by set: evaluate, prevalence."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from unmix.cli.group import (
    PathName,
    about_rows,
    check_figures,
    check_output,
    check_report,
    figure_format_option,
    figures_option,
    formulas_option,
    json_option,
    main,
    overwrite_option,
    priors_option,
    rates_of,
    rows_argument,
    set_option,
    tell,
)
from unmix.cli.row_logits import LogitPlan, logits_of_files
from unmix.cli.scoring import require_features
from unmix.cli.shared_options import (
    engine_of,
    engine_option,
    refuse_unread,
    tell_left_out,
    tell_understood,
    timeout_option,
    with_rates_options,
    workers_option,
)
from unmix.errors import InputError

if TYPE_CHECKING:
    from unmix.assess.evaluate import Evaluation
    from unmix.assess.judge import Judgement
    from unmix.assess.model_based import ModelBased

RATES = ("accuracy", "balanced_accuracy", "auc", "tpr", "fpr")


@main.command()
@click.argument("model", type=PathName())
@rows_argument
@set_option
@priors_option
@with_rates_options
@click.option("--labels", "label_column", help="Column with the true classes, if you have them.")
@click.option("--report", type=PathName(), metavar="FILE", help="Also write a report to this file.")
@figures_option
@figure_format_option
@engine_option
@workers_option
@timeout_option
@json_option
def evaluate(
    model: str,
    rows: tuple[str, ...],
    set_columns: tuple[str, ...],
    priors_files: tuple[str, ...],
    label_column: str | None,
    report: str | None,
    figures: str | None,
    figure_format: str,
    engine: str | None,
    workers: int | None,
    timeout: float | None,
    as_json: bool,
    reading: dict[str, Any],
) -> None:
    """Evaluate a saved MODEL without labels, on ROWS it was not trained on.

    With --labels, the same metrics computed from the labels are printed beside them. With --engine
    workers score the files of ROWS; the answer is the same.
    """
    from unmix.assess.judge import evaluate_logits, judge_logits
    from unmix.assess.sentences import rates_hold
    from unmix.data.set_columns import as_taken
    from unmix.data.tables import open_table, require_column
    from unmix.learn.estimator import SetClassifier
    from unmix.learn.part_files import one_by_one
    from unmix.progress import progress_bar

    table = open_table(rows)
    check_report(report, *table.files, *priors_files)
    check_figures(figures)
    clf = SetClassifier.load(model)
    priors = rates_of(set_columns, priors_files, reading)
    require_features(clf, table)
    beside = () if label_column is None else (label_column,)
    for name in (*set_columns, *beside):
        require_column(table, name)
    plan = LogitPlan(one_by_one(table), os.path.abspath(model), set_columns, beside, False, priors)
    with (
        engine_of(engine, workers, timeout) as carrier,
        progress_bar("scoring", enabled=not as_json, unit="rows") as progress,
    ):
        found = logits_of_files(clf, plan, carrier, progress)
    if found.others is not None and found.others.rows:
        tell_left_out(str(found.others))
    labels = None if label_column is None else found.beside[label_column]
    with about_rows(table, found.beside, *priors_files):
        given = (found.logits, as_taken(found.sets))
        result = evaluate_logits(clf, *given, priors=priors, labels=labels)
        if report is not None or figures is not None:
            judgement = judge_logits(clf, *given, priors=priors, labels=labels)
            _write_pictures(judgement, report, figures, figure_format)
    hold = rates_hold(clf.method_row_.assumption, result, clf.gains_.get(clf.method_))
    if as_json:
        record = {field.name: getattr(result, field.name) for field in fields(result)}
        record["rates_hold"] = hold
        if not hold:  # they would assume what is not so
            record |= dict.fromkeys((*RATES, "roc", "confusion"))
        _tell_json(record)
        return
    tell_understood(priors)
    _print_evaluation(result, clf.classes_, hold=hold)


@main.command()
@click.argument("model", type=PathName())
@rows_argument
@click.option(
    "--sets",
    "set_columns",
    multiple=True,
    help="Column of ROWS that names the set of each row; repeat it for several groupings.",
)
@click.option(
    "--by",
    multiple=True,
    metavar="COLUMN",
    help="Tell the shares of groups of rows by this column; several times for several columns.",
)
@click.option(
    "--priors",
    "priors_files",
    multiple=True,
    type=PathName(),
    help="Known shares of the sets in ROWS; with --by those of training if left out.",
)
@with_rates_options
@click.option("-o", "--output", type=PathName(), help="Write the table to a .csv or .parquet.")
@engine_option
@workers_option
@timeout_option
@overwrite_option
@formulas_option
@json_option
def prevalence(
    model: str,
    rows: tuple[str, ...],
    set_columns: tuple[str, ...],
    by: tuple[str, ...],
    priors_files: tuple[str, ...],
    output: str | None,
    engine: str | None,
    workers: int | None,
    timeout: float | None,
    overwrite: bool,
    quote_formulas: bool,
    as_json: bool,
    reading: dict[str, Any],
) -> None:
    """Estimate the class shares of new sets, or of groups of rows, in ROWS, with intervals.

    With --engine workers score the files of ROWS; the answer is the same.
    """
    from unmix.assess.predicted_shares import prevalence_of_logits
    from unmix.data.row_writer import write_rows
    from unmix.data.set_columns import as_taken
    from unmix.data.tables import open_table, require_column
    from unmix.data.wording import listed
    from unmix.learn.estimator import SetClassifier
    from unmix.learn.part_files import one_by_one
    from unmix.progress import progress_bar

    if not set_columns and not by:
        raise InputError("say what the shares are by: --sets COLUMN, --by COLUMN, or both")
    if priors_files and not set_columns:
        raise InputError("--priors are the shares of sets: say with --sets which column names them")
    if not priors_files:
        refuse_unread(reading)
    table = open_table(rows)
    check_output(output, overwrite, *table.files, *priors_files)
    clf = SetClassifier.load(model)
    require_features(clf, table)
    available, by = table.columns, tuple(dict.fromkeys(by))
    for name in by:
        if name not in available:
            raise InputError(
                f"{table.path} has no column {name!r} for --by; it has {listed(available)}"
            )
    priors = rates_of(set_columns, priors_files, reading) if priors_files else None
    for name in set_columns:
        require_column(table, name)
    plan = LogitPlan(one_by_one(table), os.path.abspath(model), set_columns, by, True, None)
    with (
        engine_of(engine, workers, timeout) as carrier,
        progress_bar("scoring", enabled=not as_json, unit="rows") as progress,
    ):
        found = logits_of_files(clf, plan, carrier, progress)
    result = prevalence_of_logits(
        clf,
        found.logits,
        found.resampled,
        as_taken(found.sets),
        by=found.beside if by else None,
        set_priors=priors,
    )
    if output is not None:
        shares = result.to_frame(clf.classes_.tolist())
        write_rows(output, [shares], quote_formulas=quote_formulas)
    if as_json:
        _tell_json(result)
        return
    tell_understood(priors)
    what = " x ".join(result.by) if result.groups else "set"
    tell(f"{what:24} {'rows':>9}  share (95 % interval)")
    for entry in result.groups:
        name = ", ".join(entry.group)
        tell(f"{name:24} {entry.rows:>9,}  {_share_text(entry, clf.classes_)}")
    for one in result.sets:
        tell(f"{one.set_id:24} {one.rows:>9,}  {_share_text(one, clf.classes_)}")


def _tell_json(record: Any) -> None:
    """Print a JSON object, which may be of a million sets."""
    from unmix.assess.estimates import json_pieces

    for piece in json_pieces(record):
        click.echo(piece, nl=False)
    click.echo()


def _write_pictures(
    judgement: Judgement, report: str | None, figures: str | None, figure_format: str
) -> None:
    """Write the report and its pictures, if they are wanted."""
    from unmix.files import atomic_write_text
    from unmix.report.figure_files import write_figures
    from unmix.report.page import render_report

    if report is not None:
        atomic_write_text(report, render_report(judgement))
    if figures is not None:
        write_figures(judgement, figures, figure_format)


def _print_evaluation(result: Evaluation, classes: Any, *, hold: bool) -> None:
    """Print the numbers, with labels beside them if there are any, and the verdict.

    Numbers that need no labels only if what they assume holds.
    """
    from unmix.data.wording import listed

    labeled = result.labeled
    beside = "" if labeled is None else "  with labels"
    tell(f"{result.rows:,} rows in {result.num_sets:,} sets; 95 % intervals.")
    tell(f"{'':18} without labels{'':12}{beside}")
    for name in RATES:
        estimate = getattr(result, name)
        if estimate is None:
            continue
        known = "" if labeled is None else f"  {getattr(labeled, name):.3f}"
        interval = f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"
        shown = interval if hold else "not shown"
        tell(f"{name.replace('_', ' '):18} {shown:26}{known}")
    if not hold:
        tell(
            "Not shown: numbers without labels, which assume label shift; it does not hold, "
            "was not tested, or the model does not beat guessing."
        )
        _print_model_based(result.model_based)
    if result.confusion is not None and hold:
        tell("share of each prediction (column) in each class (row):")
        for name, row in zip(classes, result.confusion.value, strict=True):
            tell(f"{name!s:18} " + "  ".join(f"{value:.3f}" for value in row))
    tell(result.fit_test.verdict)
    if result.fit_test.misfits:
        tell(f"Flagged sets: {listed(result.fit_test.misfits, 10)}")


def _print_model_based(found: ModelBased | None) -> None:
    """Print what the model promises of itself, beside its rivals."""
    from unmix.assess.model_based import HOW_FAR_OFF

    if found is None:
        return
    tell(f"{'model-based':42} accuracy Brier  AUC")
    for one in found.contestants:
        for source, scores in (("", one.expected), (", by labels", one.measured)):
            if scores is not None:
                auc = "" if scores.auc is None else f"{scores.auc:.3f}"
                name = f"{one.name}{source}"
                tell(f"{name:42} {scores.accuracy:.3f}    {scores.brier:.3f}  {auc}")
    tell(HOW_FAR_OFF)


def _share_text(entry: Any, classes: Any) -> str:
    """Return a share with its interval, or one per class."""
    if isinstance(entry.share, float):
        return f"{entry.share:.3f} ({entry.low:.3f} to {entry.high:.3f})"
    parts = zip(classes, entry.share, entry.low, entry.high, strict=True)
    return ", ".join(f"{c} {s:.3f} ({lo:.3f} to {hi:.3f})" for c, s, lo, hi in parts)
