"""Commands about your own tables: fit, predict, evaluate, diagnose, prevalence."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from unmix.cli.group import json_option, main
from unmix.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from unmix.assess.evaluation import Evaluation
    from unmix.learn.estimator import UnmixClassifier

set_option = click.option("--sets", "set_column", required=True, help="Column with the set id.")
priors_option = click.option(
    "--priors",
    "priors_file",
    required=True,
    type=click.Path(),
    help="Table with each set's share: CSV or Parquet.",
)


def _shares(ctx: Any, param: Any, value: str | None) -> float | dict[str, float] | None:
    """Return a share such as 0.2, or a dict from class to share for red=0.7,blue=0.3."""
    if value is None:
        return None
    try:
        parts = [part.rpartition("=") for part in value.split(",")]
        shares = {name.strip(): float(share) for name, _, share in parts}
    except ValueError:
        shares = {}
    total = 1 if set(shares) == {""} else sum(shares.values())
    if not all(0 < share < 1 for share in shares.values()) or abs(total - 1) > 1e-6:
        raise click.BadParameter(
            f"{value!r} is no share between 0 and 1 such as 0.2, nor one share per class that "
            "sum to 1 such as red=0.7,blue=0.3."
        )
    return shares.get("", shares)


target_option = click.option(
    "--target-prior",
    metavar="SHARE",
    callback=_shares,
    help="Share of positives where the classifier is used, or red=0.5,green=0.3,blue=0.2.",
)


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
            target_prior=_target(target_prior, priors.classes or (0, 1)),
            model=model,
            method=method,
            prior_error=prior_error,
            random_state=seed,
            verbose=not as_json,
        )
        with _about(rows, frame), warnings.catch_warnings(record=True) as caught:
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


@main.command()
@click.argument("model", type=click.Path())
@click.argument("rows", type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), help="CSV or Parquet to write.")
@target_option
@click.option("--keep", multiple=True, help="Column of ROWS to keep; repeat, or --keep all.")
@json_option
def predict(
    model: str,
    rows: str,
    output: str,
    target_prior: float | dict[str, float] | None,
    keep: tuple[str, ...],
    as_json: bool,
) -> None:
    """Score ROWS with a saved MODEL, in constant memory however large the file is."""
    from unmix.assess.estimates import plain
    from unmix.data.row_writer import is_csv
    from unmix.data.tables import count_rows, open_table, require_column, scan_rows, write_rows
    from unmix.learn.estimator import UnmixClassifier
    from unmix.progress import progress_bar

    clf = UnmixClassifier.load(model)
    if target_prior is not None:
        clf.retarget(_target(target_prior, clf.classes_))
    _require_features(clf, rows)
    table = open_table(rows)
    kept = list(table.columns if keep == ("all",) else dict.fromkeys(keep))
    for name in kept:
        require_column(table, name)
    taken = [name for name in kept if name in _output_columns(clf)]
    if taken:
        raise InputError(f"column {taken[0]!r} of {rows} would be overwritten; rename it")
    columns = list(dict.fromkeys([*clf.encoder_.columns, *kept]))
    features = clf.encoder_.dtypes
    types = {k: v for k, v in features.items() if v == "str" or k not in kept}
    if is_csv(rows) and is_csv(output):  # 007 stays 007
        types |= {name: "str" for name in kept if name not in features}
    unseen: dict[str, tuple[int, str]] = {}
    total = count_rows(rows)
    with progress_bar("predict", enabled=not as_json, unit="rows") as progress:

        def scored() -> Iterator[pd.DataFrame]:
            done = 0
            for frame in scan_rows(rows, columns=columns, dtypes=types):
                with _about(rows, frame):
                    scores = _scores(clf, frame, kept)
                for name, (count, example) in clf.encoder_.unseen(frame).items():
                    unseen[name] = (unseen.get(name, (0, example))[0] + count, example)
                done += len(frame)
                progress(done, total, "")
                yield scores

        written = write_rows(output, scored())
    for name, (count, example) in unseen.items():
        click.echo(
            f"note: column {name!r} holds categories that training did not see, such as "
            f"{example!r}, in {count:,} rows; they count as unknown",
            err=True,
        )
    if as_json:
        target = clf.target_prior_
        record = {
            "rows": written,
            "output": output,
            "target_prior": plain(target[1] if len(target) == 2 else target),
            "unseen": {name: count for name, (count, _) in unseen.items()},
        }
        click.echo(json.dumps(record))
        return
    click.echo(f"{written:,} rows scored: {output}")


@main.command()
@click.argument("model", type=click.Path())
@click.argument("rows", type=click.Path())
@set_option
@priors_option
@click.option("--labels", "label_column", help="Column with the classes, if you have it.")
@json_option
def evaluate(
    model: str,
    rows: str,
    set_column: str,
    priors_file: str,
    label_column: str | None,
    as_json: bool,
) -> None:
    """Judge a saved MODEL on ROWS it was not trained on, without labels.

    With --labels the same numbers from labels stand beside them.
    """
    from unmix.assess.judgement import evaluate_classifier
    from unmix.data.priors import read_priors
    from unmix.data.tables import read_rows
    from unmix.learn.estimator import UnmixClassifier

    clf = UnmixClassifier.load(model)
    priors = read_priors(priors_file, set_column)
    _require_features(clf, rows)
    types = dict(clf.encoder_.dtypes)
    columns = list(types)
    if label_column is not None and label_column not in types:
        columns.append(label_column)
        types[label_column] = "str"
    frame = read_rows(rows, columns=columns, set_column=set_column, dtypes=types)
    labels = None if label_column is None else frame[label_column]
    with _about(rows, frame):
        features, sets = frame[clf.encoder_.columns], frame[set_column].to_numpy()
        result = evaluate_classifier(clf, features, sets, priors=priors, labels=labels)
    if as_json:
        click.echo(json.dumps(result.to_dict()))
        return
    _print_evaluation(result, clf.classes_)


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
        target_prior=_target(target_prior, priors.classes or (0, 1)),
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
@click.argument("model", type=click.Path())
@click.argument("rows", type=click.Path())
@set_option
@json_option
def prevalence(model: str, rows: str, set_column: str, as_json: bool) -> None:
    """Estimate the class shares of new sets in ROWS, with intervals."""
    import numpy as np
    import pandas as pd

    from unmix.assess.prevalence import prevalence as estimate
    from unmix.data.tables import scan_rows
    from unmix.learn.estimator import UnmixClassifier

    clf = UnmixClassifier.load(model)
    _require_features(clf, rows)
    types = clf.encoder_.dtypes
    logits, names = [], []
    # Under covariate shift probabilities hold as they were learned, at no target prior.
    prior = clf.target_prior_ if clf.method_ == "ssc" else clf.learner_.base_prior
    for frame in scan_rows(rows, columns=list(types), set_column=set_column, dtypes=types):
        with _about(rows, frame):
            logits.append(clf.logits_at(frame[clf.encoder_.columns], prior))
        names.append(frame[set_column].to_numpy())
    codes, ids = pd.factorize(np.concatenate(names))
    result = estimate(
        np.concatenate(logits),
        codes,
        len(ids),
        float(prior[1]) if len(prior) == 2 else prior,
        set_ids=[str(i) for i in ids],
        assumption="label shift" if clf.method_ == "ssc" else "covariate shift",
    )
    if as_json:
        click.echo(json.dumps(result.to_dict()))
        return
    click.echo(f"{'set':24} {'rows':>9}  share (95 % interval)")
    for entry in result.sets:
        click.echo(f"{entry.set_id:24} {entry.rows:>9,}  {_share_text(entry, clf.classes_)}")


@contextmanager
def _about(rows: str, frame: pd.DataFrame) -> Iterator[None]:
    """Name the file in errors about its rows, which are counted from 1."""
    frame.index += 1
    try:
        yield
    except InputError as error:
        raise type(error)(f"{rows}: {error}") from error


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


def _require_features(clf: UnmixClassifier, rows: str) -> None:
    """Refuse a table that lacks a column of the model."""
    from unmix.data.tables import column_names
    from unmix.data.wording import listed

    available = column_names(rows)
    absent = [name for name in clf.encoder_.columns if name not in available]
    if absent:
        raise InputError(
            f"{rows} lacks {listed(absent)}, which the model needs; it has "
            f"{listed(available, 10)}: rename or add columns (empty cells are allowed)"
        )


def _target(given: float | dict[str, float] | None, classes: Any) -> Any:
    """Return the target prior as a share of the second class, or of each of K in their order."""
    names = [str(name) for name in classes]
    if given is None or (isinstance(given, float) and len(names) == 2):
        return given
    if isinstance(given, float) or set(given) != set(names):
        form = ",".join(f"{name}=..." for name in names)
        raise InputError(f"--target-prior must give a share of each class: write {form}")
    shares = [given[name] for name in names]
    return shares[1] if len(shares) == 2 else shares


def _output_columns(clf: UnmixClassifier) -> list[str]:
    """Return the names of the columns that scoring adds."""
    if len(clf.classes_) == 2:
        return ["probability", "prediction"]
    return [*(f"probability_{name}" for name in clf.classes_), "prediction"]


def _scores(clf: UnmixClassifier, frame: pd.DataFrame, kept: list[str]) -> pd.DataFrame:
    """Return the kept columns with the scores beside them."""
    features = frame[clf.encoder_.columns]
    probability = clf.predict_proba(features)
    scored = frame[kept].copy()
    columns = probability[:, 1:] if len(clf.classes_) == 2 else probability
    for name, values in zip(_output_columns(clf), columns.T, strict=False):
        scored[name] = values
    scored["prediction"] = clf.classes_[probability.argmax(axis=1)]
    return scored


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


def _print_evaluation(result: Evaluation, classes: Any) -> None:
    """Print the numbers, with labels beside them if there are any, and the verdict."""
    from unmix.data.wording import listed

    labeled = result.labeled
    beside = "" if labeled is None else "  with labels"
    click.echo(f"{result.rows:,} rows in {result.num_sets:,} sets; 95 % intervals.")
    click.echo(f"{'':18} without labels{'':12}{beside}")
    for name in ("accuracy", "balanced_accuracy", "auc", "tpr", "fpr"):
        estimate = getattr(result, name)
        if estimate is None:
            continue
        known = "" if labeled is None else f"  {getattr(labeled, name):.3f}"
        interval = f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"
        click.echo(f"{name.replace('_', ' '):18} {interval:26}{known}")
    if result.confusion is not None:
        click.echo("share of each decision (column) in each class (row):")
        for name, row in zip(classes, result.confusion.value, strict=True):
            click.echo(f"{name!s:18} " + "  ".join(f"{value:.3f}" for value in row))
    click.echo(result.fit_test.verdict)
    if result.fit_test.misfits:
        click.echo(f"Sets that do not fit: {listed(result.fit_test.misfits, 10)}")


def _share_text(entry: Any, classes: Any) -> str:
    """Return a share with its interval, or one per class."""
    if isinstance(entry.share, float):
        return f"{entry.share:.3f} ({entry.low:.3f} to {entry.high:.3f})"
    parts = zip(classes, entry.share, entry.low, entry.high, strict=True)
    return ", ".join(f"{c} {s:.3f} ({lo:.3f} to {hi:.3f})" for c, s, lo, hi in parts)
