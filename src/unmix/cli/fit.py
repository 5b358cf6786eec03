"""Commands that need shares: diagnose sets before training, fit a model to them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from unmix.cli.fit_results import brief_judgement, tell_fit, write_fit
from unmix.cli.group import (
    PathName,
    check_figures,
    exit_code_of,
    fail,
    figure_format_option,
    figures_option,
    json_option,
    main,
    priors_option,
    rates_of,
    rows_argument,
    set_option,
    target_of,
    target_option,
    tell,
)
from unmix.cli.shared_options import (
    engine_of,
    engine_option,
    tell_left_out,
    tell_understood,
    timeout_option,
    with_rates_options,
    workers_option,
)

if TYPE_CHECKING:
    from unmix.assess.audit import LabelAudit
    from unmix.assess.evaluate import Evaluation
    from unmix.assess.judge import Judgement
    from unmix.data.priors import Priors
    from unmix.learn.estimator import SetClassifier


@main.command()
@rows_argument
@set_option
@priors_option
@with_rates_options
@target_option
@json_option
def diagnose(
    rows: tuple[str, ...],
    set_columns: tuple[str, ...],
    priors_files: tuple[str, ...],
    target_prior: float | dict[str, float] | None,
    as_json: bool,
    reading: dict[str, Any],
) -> None:
    """Check before training whether these sets can work."""
    import numpy as np

    from unmix.assess.diagnose_groupings import diagnose_groupings
    from unmix.core.sums_by_set import set_rows
    from unmix.data.set_columns import UnratedRows, how_to_read, sets_in
    from unmix.data.tables import scan_rows

    priors = rates_of(set_columns, priors_files, reading)
    others = UnratedRows(priors)
    sizes = np.zeros(len(priors), dtype=np.int64)
    for frame in scan_rows(rows, **how_to_read(set_columns, set_columns)):
        named = sets_in(frame, set_columns)
        rated = others.rated(named)
        named = named if rated is None else named[rated]
        set_index, _ = priors.find_sets(named, unused="keep")
        sizes += set_rows(set_index, len(priors))
    tell_left_out(str(others) if others.rows else "")
    priors = priors.resolved(sizes)
    found = diagnose_groupings(
        priors.set_priors,
        sizes,
        set_columns,
        set_ids=[str(i) for i in priors.set_ids],
        prior_errors=priors.standard_errors,
        target_prior=target_of(target_prior, priors.classes or (0, 1)),
    )
    if as_json:
        click.echo(json.dumps(found.to_dict()))
        return
    tell_understood(priors)
    tell(f"{found.num_rows:,} rows in {found.num_sets:,} sets.")
    tell(found.expectation)
    for finding in found.findings:
        cure = f" {finding.cure}" if finding.cure and finding.level != "ok" else ""
        tell(f"{finding.level:8} {finding.message}{cure}")


def _layers(ctx: Any, param: Any, value: str | None) -> tuple[int, int] | None:
    """Return (layers, units) for LAYERSxUNITS."""
    if value is None:
        return None
    try:
        layers, units = (int(number) for number in value.lower().split("x"))
    except ValueError:
        raise click.BadParameter(f"{value[:20]!r} is not LAYERSxUNITS, such as 2x64.") from None
    return layers, units


def _standard_error(ctx: Any, param: Any, value: str | None) -> float | str | None:
    """Return a standard error between 0 and 0.5, or 'auto'."""
    if value is None or value == "auto":
        return value
    try:
        error = float(value)
    except ValueError:
        error = -1.0
    if not 0 <= error <= 0.5:
        raise click.BadParameter(f"{value!r} is not a standard error from 0 to 0.5, nor auto.")
    return error


@main.command()
@rows_argument
@set_option
@priors_option
@with_rates_options
@click.option("-o", "--output", required=True, type=PathName(), help="Folder for the model.")
@target_option
@click.option("--model", default="auto", show_default=True, help="auto, linear, boosting or mlp.")
@click.option(
    "--method",
    default="auto",
    show_default=True,
    help="auto, or a method listed by `unmix methods`.",
)
@click.option(
    "--hidden",
    metavar="LAYERSxUNITS",
    callback=_layers,
    help="Hidden layers of the mlp, such as 2x64. Default: chosen by the size of the table.",
)
@click.option(
    "--prior-error",
    callback=_standard_error,
    metavar="ERROR",
    help="Standard error of the shares, which are then estimated along with the model. "
    "auto: estimate the error, too.",
)
@click.option(
    "--hide-sets/--no-hide-sets",
    default=None,
    help="Hold sets out in turn and predict their shares. Default: if --method is auto or the "
    "model is cheap to fit.",
)
@click.option("--list-columns", is_flag=True, help="List every column and what becomes of it.")
@click.option(
    "--labels",
    "label_column",
    metavar="COLUMN",
    help="Column with the classes of a few rows, empty for all others.",
)
@click.option(
    "--labels-for",
    type=click.Choice(["audit", "training"]),
    default="audit",
    show_default=True,
    help="audit: nothing is trained by the labels, which judge the model. training: these rows "
    "are learned from, beside their sets.",
)
@click.option("--drop", multiple=True, help="Column to leave out; repeat the option for more.")
@click.option(
    "--held-out",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.2,
    show_default=True,
    help="Share of rows to hold out for evaluation.",
)
@click.option(
    "--keep-split",
    is_flag=True,
    help="Keep the model that was judged. Default: once judged, it is fitted again to all rows.",
)
@click.option(
    "--allow-unused-priors", is_flag=True, help="Accept shares of sets that have no rows."
)
@click.option(
    "--stream/--in-memory",
    default=None,
    help="Read Parquet in pieces, or all at once. Default: large tables in pieces.",
)
@engine_option
@workers_option
@timeout_option
@click.option("--overwrite", is_flag=True, help="Replace an existing model.")
@figures_option
@figure_format_option
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
@json_option
def fit(
    rows: tuple[str, ...],
    set_columns: tuple[str, ...],
    priors_files: tuple[str, ...],
    output: str,
    target_prior: float | dict[str, float] | None,
    model: str,
    method: str,
    hidden: tuple[int, int] | None,
    prior_error: float | str | None,
    hide_sets: bool | None,
    label_column: str | None,
    labels_for: str,
    drop: tuple[str, ...],
    list_columns: bool,
    held_out: float,
    keep_split: bool,
    allow_unused_priors: bool,
    stream: bool | None,
    engine: str | None,
    workers: int | None,
    timeout: float | None,
    overwrite: bool,
    figures: str | None,
    figure_format: str,
    seed: int,
    as_json: bool,
    reading: dict[str, Any],
) -> None:
    """Train a classifier from ROWS and published shares, and report how good it is.

    The folder gets the model and report.html, which says in plain words whether it can be trusted.

    Once judged by the rows held out, the model is fitted again to all rows; the report stays that
    of the model that was judged. A table that is read in pieces keeps the split.

    Large Parquet files are read in pieces and shuffled on disk beside the folder, in constant
    memory. If interrupted, the same command resumes where it stopped. With --engine ray the files
    of ROWS are read by workers, on this machine or on many, that only send sums; the model is the
    same, bit by bit, whatever their number.
    """
    from unmix.assess.estimates import plain
    from unmix.assess.judge import judge_logits
    from unmix.data.set_columns import UnratedWarning
    from unmix.files import atomic_folder
    from unmix.learn.choose import check_choice
    from unmix.learn.estimator import NotShownWarning, SetClassifier
    from unmix.learn.models import refuse_engine
    from unmix.learn.recipes import check_hidden
    from unmix.learn.saved import refuse_other_folder
    from unmix.learn.table_source import TableSource
    from unmix.progress import progress_bar
    from unmix.report.figure_files import write_figures

    # Before anything is read.
    check_figures(figures, output)
    check_choice(model, method)
    if hidden is not None:
        check_hidden(hidden, model)
    if engine is not None:
        refuse_engine(model, f"--engine {engine}")
    # The folder is claimed first: an hour of training must not end at a full or read-only disk.
    with (
        atomic_folder(output, overwrite=overwrite, refuse=refuse_other_folder) as folder,
        engine_of(engine, workers, timeout) as carrier,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always", NotShownWarning)
        warnings.simplefilter("always", UnratedWarning)
        priors = rates_of(set_columns, priors_files, reading)
        learned, audited = label_column, None
        if labels_for == "audit":
            learned, audited = None, label_column
        source = TableSource.open(
            rows,
            set_columns,
            priors,
            # Labels are no feature, and those for an audit are never seen by what is trained.
            drop=drop if audited is None else (*drop, audited),
            label_column=learned,
            allow_unused=allow_unused_priors,
            held_out=held_out,
            seed=seed,
            stream=stream,
            verbose=not as_json,
            engine=carrier,
        )
        options: dict[str, Any] = {
            "target_prior": target_of(target_prior, priors.classes or (0, 1)),
            "model": model,
            "method": method,
            "hidden": hidden,
            "prior_error": prior_error,
            "hide_sets": hide_sets,
            "held_out": held_out,
            "keep_split": keep_split,
            "random_state": seed,
        }
        settings = {"options": plain(options)}
        with _resumable(source.stream), source.rows(output, settings) as (training, judged):
            clf = SetClassifier(training.priors, **options, verbose=not as_json).fit(training)
            if audited is not None:
                with progress_bar("auditing by labels", enabled=not as_json):
                    clf.audit_ = _audited(clf, rows, set_columns, audited, priors)
            again = None if keep_split else training.everything
            number = 0 if again is None else again.num_rows
            with progress_bar("judging", enabled=not as_json):
                logits = judged.logits(clf)
                judgement = judge_logits(clf, logits, judged.sets, then_fitted_to=number)
            if again is not None:
                clf.fit_again(again)
            with progress_bar("writing the report", enabled=not as_json):
                write_fit(folder, clf, judgement)
                if figures is not None:
                    write_figures(judgement, figures, figure_format)
    if clf.sampled_rows_:
        tell(
            f"note: {clf.model_} with {clf.method_} trains in memory, on a random sample of "
            f"{clf.sampled_rows_:,} of {training.num_rows:,} training rows",
            err=True,
        )
    for warning in caught:
        tell(f"warning: {warning.message}", err=True)
    if as_json:
        click.echo(json.dumps(plain(_record(clf, judgement) | {"output": output})))
        return
    tell_understood(priors)
    _tell_columns(clf, len(source.columns), list_columns)
    tell_fit(judgement, output)


def _record(clf: SetClassifier, judgement: Judgement) -> dict[str, Any]:
    """Return what a fit says as JSON."""
    evaluation = judgement.evaluation
    return brief_judgement(judgement) | {
        "model": judgement.model,
        "worth_in_labels": judgement.diagnosis.worth_in_labels,
        "set_priors": {str(name): share for name, share in clf.set_priors_.items()},
        "fitted_again": clf.fitted_again_,
        "training_labels": clf.training_labels_,
        "audit": judgement.audit,
        "evaluation": None if evaluation is None else _brief(evaluation),
    }


def _tell_columns(clf: SetClassifier, columns: int, list_columns: bool) -> None:
    """Say what became of the columns."""
    left_out, categorical = clf.encoder_.left_out, len(clf.encoder_.categorical)
    tell(f"{columns - categorical - len(left_out)} numeric and {categorical} text columns.")
    for name, reason in left_out.items():
        tell(f"Column {name!r} is left out: {reason}.")
    if list_columns:
        for name, kind, becomes in clf.encoder_.listing():
            tell(f"  {name:24} {kind:8} {becomes}")


def _audited(
    clf: SetClassifier,
    rows: tuple[str, ...],
    set_columns: tuple[str, ...],
    label_column: str,
    priors: Priors,
) -> LabelAudit:
    """Read the rows once more, now with their labels, and audit the classifier by these."""
    import numpy as np
    import pandas as pd

    from unmix.assess.judge import audit_logits
    from unmix.data.set_columns import UnratedRows, how_to_read, sets_in
    from unmix.data.tables import naming, scan_rows

    types = clf.encoder_.dtypes | {label_column: "str"}
    others, logits, sets, labels = UnratedRows(priors), [], [], []
    for frame in scan_rows(rows, **how_to_read(list(types), set_columns, types)):
        frame.index += 1  # messages count rows from 1
        rated = others.rated(sets_in(frame, set_columns))
        kept = frame if rated is None else frame[rated]
        with naming(rows):
            logits.append(clf.logits_at(kept[clf.encoder_.columns], clf.learner_.base_prior))
        sets.append(kept[list(set_columns)])
        labels.append(kept[label_column])
    with naming(rows):
        of_rows = sets_in(pd.concat(sets, ignore_index=True), set_columns)
        return audit_logits(clf, np.concatenate(logits), of_rows, pd.concat(labels))


@contextmanager
def _resumable(streamed: bool) -> Iterator[None]:
    """Say that a fit which was stopped can be resumed, if it can."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if not streamed:
            raise
        fail("stopped; the same command resumes where it stopped", exit_code_of(stop))


def _brief(evaluation: Evaluation) -> dict[str, Any]:
    """Return the numbers of an evaluation without its curves."""
    from unmix.assess.estimates import plain

    names = ("accuracy", "balanced_accuracy", "auc", "tpr", "fpr")
    test = evaluation.fit_test
    return {name: plain(getattr(evaluation, name)) for name in names} | {
        "rows": evaluation.rows,
        "p_value": plain(test.p_value),
        "misfits": list(test.misfits),
    }
