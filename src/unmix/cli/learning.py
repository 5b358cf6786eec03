"""Commands that need shares: diagnose sets before training, fit a model to them."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from unmix.cli.group import fail, json_option, main
from unmix.cli.options import about_rows, priors_option, set_option, target_of, target_option
from unmix.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from unmix.assess.evaluation import Evaluation
    from unmix.data.priors import Priors
    from unmix.learn.estimator import UnmixClassifier


@main.command()
@click.argument("rows", type=click.Path())
@set_option
@priors_option
@target_option
@json_option
def diagnose(
    rows: str,
    set_column: str,
    priors_file: str,
    target_prior: float | dict[str, float] | None,
    as_json: bool,
) -> None:
    """Say whether these sets can work at all, before any training."""
    import numpy as np

    from unmix.assess.diagnosis import diagnose as diagnose_sets
    from unmix.data.priors import match_sets, read_priors
    from unmix.data.tables import scan_rows

    priors = read_priors(priors_file, set_column)
    sizes = np.zeros(len(priors), dtype=np.int64)
    for frame in scan_rows(rows, columns=[set_column], set_column=set_column):
        set_index, _ = match_sets(frame[set_column].to_numpy(), priors, unused="keep")
        sizes += np.bincount(set_index, minlength=len(priors))
    shares = priors.set_priors
    found = diagnose_sets(
        shares[:, 1] if shares.shape[1:] == (2,) else shares,
        sizes,
        set_ids=[str(i) for i in priors.set_ids],
        prior_errors=priors.standard_errors,
        target_prior=target_of(target_prior, priors.classes or (0, 1)),
    )
    if as_json:
        click.echo(json.dumps(found.to_dict()))
        return
    click.echo(f"{found.num_rows:,} rows in {found.num_sets:,} sets.")
    click.echo(found.expectation)
    for finding in found.findings:
        cure = f" {finding.cure}" if finding.cure and finding.level != "ok" else ""
        click.echo(f"{finding.level:8} {finding.message}{cure}")


def _layers(ctx: Any, param: Any, value: str | None) -> tuple[int, int] | None:
    """Return (layers, units) for LAYERSxUNITS."""
    if value is None:
        return None
    try:
        layers, units = (int(number) for number in value.lower().split("x"))
    except ValueError:
        raise click.BadParameter(f"{value[:20]!r} is not LAYERSxUNITS, such as 2x64.") from None
    return layers, units


@main.command()
@click.argument("rows", type=click.Path())
@set_option
@priors_option
@click.option("-o", "--output", required=True, type=click.Path(), help="Folder for the model.")
@target_option
@click.option(
    "--model",
    type=click.Choice(["auto", "linear", "boosting", "mlp"]),
    default="auto",
    show_default=True,
)
@click.option(
    "--method", type=click.Choice(["auto", "ssc", "proportion"]), default="auto", show_default=True
)
@click.option(
    "--hidden",
    metavar="LAYERSxUNITS",
    callback=_layers,
    help="Hidden layers of the mlp, such as 2x64; by the size of the table if left out.",
)
@click.option(
    "--prior-error",
    type=click.FloatRange(0, 0.5),
    help="Standard error of the shares: refine them.",
)
@click.option("--drop", multiple=True, help="Column to leave out; repeat for more.")
@click.option(
    "--held-out",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.2,
    show_default=True,
    help="Share of rows to judge it by.",
)
@click.option("--allow-unused-priors", is_flag=True, help="Accept shares of sets without rows.")
@click.option(
    "--stream/--in-memory",
    default=None,
    help="Read Parquet in pieces, or whole; large tables are read in pieces by default.",
)
@click.option("--overwrite", is_flag=True, help="Replace a model that is there.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
@json_option
def fit(
    rows: str,
    set_column: str,
    priors_file: str,
    output: str,
    target_prior: float | dict[str, float] | None,
    model: str,
    method: str,
    hidden: tuple[int, int] | None,
    prior_error: float | None,
    drop: tuple[str, ...],
    held_out: float,
    allow_unused_priors: bool,
    stream: bool | None,
    overwrite: bool,
    seed: int,
    as_json: bool,
) -> None:
    """Train a classifier from ROWS and published shares, and report how good it is.

    The folder gets the model and report.html, which says in plain words whether to believe it.

    Parquet that is large is read in pieces and shuffled on disk beside the folder, in constant
    memory. If that is interrupted, the same command goes on where it was.
    """
    from unmix.assess.estimates import plain
    from unmix.assess.judgement import judge
    from unmix.data.priors import read_priors
    from unmix.files import atomic_folder
    from unmix.learn.estimator import UnbelievableWarning
    from unmix.learn.saved import write_model
    from unmix.learn.sizing import check_hidden
    from unmix.learn.streaming import fits_in_memory, is_parquet
    from unmix.report.page import render_report

    check_hidden(hidden, model)  # before anything is read
    # The folder is claimed first: an hour of training must not end at a full or read-only disk.
    with (
        atomic_folder(output, overwrite=overwrite) as folder,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always", UnbelievableWarning)
        priors = read_priors(priors_file, set_column)
        table = _Table(
            rows,
            set_column,
            _features(rows, set_column, drop),
            priors,
            allow_unused_priors,
            held_out,
            seed,
            not as_json,
        )
        options: dict[str, Any] = {
            "target_prior": target_of(target_prior, priors.classes or (0, 1)),
            "model": model,
            "method": method,
            "hidden": hidden,
            "prior_error": prior_error,
            "random_state": seed,
        }
        if stream and not is_parquet(rows):
            raise InputError(f"--stream reads Parquet only; convert {rows} or leave --stream out")
        if stream is None:
            stream = not fits_in_memory(rows, table.features)
        fitted = _fitted_in_pieces if stream else _fitted_in_memory
        with fitted(table, options, output) as (clf, judged, sets):
            judgement = judge(clf, judged, sets)
            write_model(clf, folder)
            (folder / "report.html").write_text(render_report(judgement), encoding="utf-8")
    for warning in caught:
        click.echo(f"warning: {warning.message}", err=True)
    if as_json:
        keys = ("method", "model", "target_prior", "leave_sets_out", "believable", "sentences")
        record = {key: plain(getattr(judgement, key)) for key in keys}
        record["worth_in_labels"] = judgement.diagnosis.worth_in_labels
        record["set_priors"] = dict(zip(judgement.set_ids, judgement.refined_priors, strict=True))
        evaluation = judgement.evaluation
        record["evaluation"] = None if evaluation is None else _brief(evaluation)
        record["output"] = output
        click.echo(json.dumps(plain(record)))
        return
    numbers = len(table.features) - len(clf.encoder_.categorical)
    click.echo(f"{numbers} number and {len(clf.encoder_.categorical)} text columns.")
    for sentence in judgement.sentences:
        click.echo(sentence)
    if judgement.leave_sets_out:
        errors = ", ".join(f"{k} {v:.3f}" for k, v in judgement.leave_sets_out.items())
        click.echo(f"Share error on hidden sets: {errors}.")
    click.echo(f"Model and report: {output} (open {output.rstrip('/')}/report.html)")


@dataclass(frozen=True)
class _Table:
    """What the user said about the rows to fit."""

    rows: str
    set_column: str
    features: list[str]
    priors: Priors
    allow_unused: bool
    held_out: float
    seed: int
    verbose: bool


Fitted = tuple["UnmixClassifier", "pd.DataFrame", Any]


@contextmanager
def _fitted_in_memory(table: _Table, options: dict[str, Any], output: str) -> Iterator[Fitted]:
    """Read all rows, fit, and yield the classifier with the held-out rows and their sets."""
    import numpy as np

    from unmix.data.priors import match_sets
    from unmix.data.sets import held_out_rows
    from unmix.data.tables import read_rows
    from unmix.learn.encoding import TableEncoder
    from unmix.learn.estimator import UnmixClassifier

    frame = read_rows(table.rows, columns=table.features, set_column=table.set_column)
    sets = frame.pop(table.set_column).to_numpy()
    unused: Literal["drop", "error"] = "drop" if table.allow_unused else "error"
    set_index, used = match_sets(sets, table.priors, unused=unused)
    out = np.zeros(len(frame), dtype=bool)
    if table.held_out:
        out = held_out_rows(set_index, table.held_out, np.random.default_rng([table.seed, 7]))
    clf = UnmixClassifier(table.priors.keep(used), **options, verbose=table.verbose)
    with about_rows(table.rows, frame):
        TableEncoder.fit(frame)  # held-out rows too must be fit for use, and before training
        clf.fit(frame[~out], sets[~out])
    yield clf, frame[out], sets[out]


@contextmanager
def _fitted_in_pieces(table: _Table, options: dict[str, Any], output: str) -> Iterator[Fitted]:
    """Do the same in constant memory, going on with what an interrupted run left behind."""
    from importlib.metadata import version

    from unmix.assess.estimates import plain
    from unmix.data.tables import naming
    from unmix.learn.estimator import UnmixClassifier
    from unmix.learn.streaming import StreamedTable, scratch_folder
    from unmix.progress import progress_bar

    run = {
        "rows": _identity(table.rows),
        "priors": _identity(table.priors.source),
        "table": [table.features, table.set_column, table.allow_unused, table.held_out],
        "options": plain(options),
        # Another version may encode or train otherwise: then nothing is taken up.
        "versions": {name: version(name) for name in ("unmix", "torch", "numpy", "pandas")},
    }
    try:
        with scratch_folder(output, run) as scratch:
            with progress_bar("fit", enabled=table.verbose, unit="rows") as progress:
                streamed = StreamedTable(
                    table.rows,
                    table.features,
                    table.set_column,
                    table.priors,
                    table.allow_unused,
                    table.held_out,
                    table.seed,
                    scratch,
                    progress,
                )
                streamed.prepare()
            clf = UnmixClassifier(streamed.used_priors, **options, verbose=table.verbose)
            sample = streamed.sample()
            sets = sample.pop(table.set_column).to_numpy()
            with naming(table.rows):
                clf.fit_shuffled(sample, sets, streamed.rows, streamed.encoder, streamed.checkpoint)
            if clf.model_ == "boosting":
                click.echo(
                    f"note: boosting trains in memory, on a random sample of {len(sample):,} of "
                    f"{streamed.num_rows:,} rows; linear and mlp take all of them",
                    err=True,
                )
            judged = streamed.judged()
            sets = judged.pop(table.set_column).to_numpy()
            yield clf, judged, sets
    except KeyboardInterrupt:
        fail("stopped; the same command goes on where it was", 130)


def _identity(path: str) -> list[Any]:
    """Return what tells a file from another one, or from itself after a change."""
    status = os.stat(path)
    return [os.path.realpath(path), status.st_size, status.st_mtime_ns]


def _features(rows: str, set_column: str, drop: tuple[str, ...]) -> list[str]:
    """Return the columns to learn from: all but the set column and what the user leaves out."""
    from unmix.data.tables import open_table, require_column

    table = open_table(rows)
    for name in (set_column, *drop):
        require_column(table, name)
    features = [name for name in table.columns if name not in (set_column, *drop)]
    if not features:
        raise InputError(f"{rows} has no column to learn from besides the set column; add some")
    return features


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
