"""The command that scores rows by a saved model: predict."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from unmix.cli.group import (
    PathName,
    about_rows,
    check_output,
    formulas_option,
    json_option,
    main,
    overwrite_option,
    rates_of,
    rows_argument,
    target_of,
    target_option,
    tell,
)
from unmix.cli.scoring import (
    ScorePlan,
    Scoring,
    features_of,
    names_of,
    refuse_other_scores,
    require_features,
    write_parts,
)
from unmix.cli.shared_options import (
    engine_of,
    engine_option,
    refuse_unread,
    tell_understood,
    timeout_option,
    with_rates_options,
    workers_option,
)
from unmix.errors import InputError

if TYPE_CHECKING:
    from unmix.assess.drift import DriftCount
    from unmix.data.priors import Priors
    from unmix.data.tables import Table
    from unmix.learn.estimator import SetClassifier

MOST_SENTENCES = 5  # about drift


@main.command()
@click.argument("model", type=PathName())
@rows_argument
@click.option("-o", "--output", required=True, type=PathName(), help="CSV or Parquet to write.")
@target_option
@click.option(
    "--keep",
    multiple=True,
    help="Column of ROWS to keep; repeat the option for more, or --keep all.",
)
@click.option(
    "--sets",
    "set_columns",
    multiple=True,
    help="Column with the set id: use the known shares of these sets. Repeat it for several "
    "groupings.",
)
@click.option(
    "--priors",
    "priors_files",
    multiple=True,
    type=PathName(),
    help="With --sets: newer shares, or those of sets that were not in training.",
)
@with_rates_options
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1),
    help="Probability from which a row counts as positive, instead of 0.5 (two classes).",
)
@engine_option
@workers_option
@timeout_option
@overwrite_option
@formulas_option
@json_option
def predict(
    model: str,
    rows: tuple[str, ...],
    output: str,
    target_prior: float | dict[str, float] | None,
    keep: tuple[str, ...],
    set_columns: tuple[str, ...],
    priors_files: tuple[str, ...],
    threshold: float | None,
    engine: str | None,
    workers: int | None,
    timeout: float | None,
    overwrite: bool,
    quote_formulas: bool,
    as_json: bool,
    reading: dict[str, Any],
) -> None:
    """Score ROWS with a saved MODEL, in constant memory for files of any size.

    With --sets a row is scored as one of a set whose share is known, which is more accurate; this
    reads ROWS twice and takes some twenty bytes of memory a row.

    With --engine workers score the files of ROWS, each into a file of its own: the output is then a
    folder, with manifest.json. It is there whole or not at all.
    """
    from unmix.assess.drift import DriftCount
    from unmix.assess.estimates import plain
    from unmix.core.class_shares import as_stated
    from unmix.data.tables import open_table, require_column
    from unmix.files import atomic_folder, refuse_folder_of
    from unmix.learn.estimator import SetClassifier
    from unmix.learn.models import score_names
    from unmix.learn.part_files import one_by_one
    from unmix.progress import progress_bar

    if not priors_files:
        refuse_unread(reading)
    table = open_table(rows)
    if engine is None:
        check_output(output, overwrite, *table.files, *priors_files)
    elif set_columns:
        raise InputError(
            "--sets scores a row by all rows of its set, which may lie in several files; leave "
            "--engine or --sets out"
        )
    else:
        refuse_folder_of(output, *table.files, model)
    clf = SetClassifier.load(model)
    if target_prior is not None:
        clf.retarget(target_of(target_prior, clf.classes_))
    require_features(clf, table)
    _check_scoring(clf, target_prior, set_columns, priors_files, threshold)
    kept = list(table.columns if keep == ("all",) else dict.fromkeys(keep))
    for name in kept:
        require_column(table, name)
    taken = [name for name in kept if name in score_names(clf.classes_)]
    if taken:
        raise InputError(f"column {taken[0]!r} of {table.path} would be overwritten; rename it")
    known, priors, drift = None, None, DriftCount.of_table(clf, table.num_rows or 0)
    if set_columns:
        if priors_files:
            priors = rates_of(set_columns, priors_files, reading)
        known = _known_set_scores(clf, table, set_columns, priors, drift)
    with progress_bar("predict", enabled=not as_json, unit="rows") as progress:
        if engine is None:
            scoring = Scoring(clf, tuple(kept), threshold, quote_formulas)
            written, unseen = scoring.write(table, output, drift, known=known, progress=progress)
        else:
            parts = one_by_one(table)
            plan = ScorePlan(
                parts,
                os.path.abspath(model),
                None if target_prior is None else target_of(target_prior, clf.classes_),
                tuple(kept),
                threshold,
                quote_formulas,
                drift.every,
                "",
                names_of(parts, ".parquet"),
            )
            with (
                atomic_folder(output, overwrite=overwrite, refuse=refuse_other_scores) as folder,
                engine_of(engine, workers, timeout) as carrier,
            ):
                written, unseen = write_parts(plan, carrier, folder, drift, progress)
    for name, (count, example) in unseen.items():
        tell(
            f"note: column {name!r} holds categories that training did not see, such as "
            f"{example!r}, in {count:,} rows; they are treated as unknown",
            err=True,
        )
    found = drift.result()
    if as_json:
        target = clf.target_prior_
        record = {
            "rows": written,
            "output": output,
            "target_prior": plain(as_stated(target)),
            "unseen": {name: count for name, (count, _) in unseen.items()},
            "drift": None if found is None else plain(found.to_dict()),
        }
        click.echo(json.dumps(record))
        return
    tell_understood(priors)
    tell(f"{written:,} rows scored: {output}")
    if found is not None and found.differs:
        tell("These rows differ from those of training:")
        for sentence in found.sentences[:MOST_SENTENCES]:
            tell(f"  {sentence}")
        more = len(found.sentences) - MOST_SENTENCES
        if more > 0:
            tell(f"  and {more} more; --json lists all.")


def _check_scoring(
    clf: SetClassifier,
    target_prior: Any,
    set_columns: tuple[str, ...],
    priors_files: tuple[str, ...],
    threshold: float | None,
) -> None:
    """Refuse options that do not go together."""
    if priors_files and not set_columns:
        raise InputError("--priors are the shares of sets: say with --sets which column names them")
    if set_columns and target_prior is not None:
        raise InputError(
            "--target-prior is for rows of sets that nobody knows, --sets for those of known sets; "
            "give one of them"
        )
    if threshold is not None and len(clf.classes_) != 2:
        raise InputError(f"--threshold is for two classes; the model has {len(clf.classes_)}")


def _known_set_scores(
    clf: SetClassifier,
    table: Table,
    set_columns: Sequence[str],
    priors: Priors | None,
    drift: DriftCount,
) -> Any:
    """Return the probabilities (n, K) of rows of known sets: all at once, as sets are scattered."""
    import numpy as np

    from unmix.data.set_columns import CodedColumns, as_taken, how_to_read
    from unmix.data.tables import scan_rows

    types, logits, sets = clf.encoder_.dtypes, [], CodedColumns()
    for frame in scan_rows(table, **how_to_read(list(types), set_columns, types)):
        with about_rows(table, frame):
            features = features_of(clf, frame)
            logits.append(clf.logits_at(features, clf.learner_.base_prior))
            drift.add(features, logits[-1], clf.learner_.base_prior)
        sets.add(frame[list(set_columns)])
    return clf.known_set_proba(np.concatenate(logits), as_taken(sets.joined()), priors)
