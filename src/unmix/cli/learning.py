"""Commands that need shares: diagnose sets before training, fit a model to them."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import click

from unmix.cli.group import json_option, main
from unmix.cli.options import about_rows, priors_option, set_option, target_of, target_option
from unmix.errors import InputError

if TYPE_CHECKING:
    from unmix.assess.evaluation import Evaluation


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
    prior_error: float | None,
    drop: tuple[str, ...],
    held_out: float,
    allow_unused_priors: bool,
    overwrite: bool,
    seed: int,
    as_json: bool,
) -> None:
    """Train a classifier from ROWS and published shares, and report how good it is.

    The folder gets the model and report.html, which says in plain words whether to believe it.
    """
    import numpy as np

    from unmix.assess.estimates import plain
    from unmix.assess.judgement import judge
    from unmix.data.priors import match_sets, read_priors
    from unmix.data.sets import held_out_rows
    from unmix.data.tables import read_rows
    from unmix.files import atomic_folder
    from unmix.learn.encoding import TableEncoder
    from unmix.learn.estimator import UnbelievableWarning, UnmixClassifier
    from unmix.learn.saved import write_model
    from unmix.report.page import render_report

    # The folder is claimed first: an hour of training must not end at a full or read-only disk.
    with atomic_folder(output, overwrite=overwrite) as folder:
        priors = read_priors(priors_file, set_column)
        frame = read_rows(rows, columns=_features(rows, set_column, drop), set_column=set_column)
        sets = frame.pop(set_column).to_numpy()
        set_index, used = match_sets(
            sets, priors, unused="drop" if allow_unused_priors else "error"
        )
        out = np.zeros(len(frame), dtype=bool)
        if held_out:
            out = held_out_rows(set_index, held_out, np.random.default_rng([seed, 7]))
        clf = UnmixClassifier(
            priors.keep(used),
            target_prior=target_of(target_prior, priors.classes or (0, 1)),
            model=model,
            method=method,
            prior_error=prior_error,
            random_state=seed,
            verbose=not as_json,
        )
        with about_rows(rows, frame), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UnbelievableWarning)
            TableEncoder.fit(frame)  # held-out rows too must be fit for use, and before training
            clf.fit(frame[~out], sets[~out])
        judgement = judge(clf, frame[out], sets[out])
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
    numbers = frame.shape[1] - len(clf.encoder_.categorical)
    click.echo(f"{numbers} number and {len(clf.encoder_.categorical)} text columns.")
    for sentence in judgement.sentences:
        click.echo(sentence)
    if judgement.leave_sets_out:
        errors = ", ".join(f"{k} {v:.3f}" for k, v in judgement.leave_sets_out.items())
        click.echo(f"Share error on hidden sets: {errors}.")
    click.echo(f"Model and report: {output} (open {output.rstrip('/')}/report.html)")


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
