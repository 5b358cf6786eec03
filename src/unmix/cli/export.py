"""The command that writes a model for use without unmix: export."""

from __future__ import annotations

import click

from unmix.cli.group import (
    PathName,
    check_output,
    main,
    overwrite_option,
    target_of,
    target_option,
    tell,
)
from unmix.errors import InputError


@main.command()
@click.argument("model", type=PathName())
@click.option("-o", "--output", type=PathName(), help="File to write: .onnx or .sql.")
@click.option("--sql", is_flag=True, help="A SELECT instead of ONNX; printed without -o.")
@target_option
@overwrite_option
@click.option("--table", metavar="NAME", help="SQL: the table with the rows. [default: rows]")
@click.option("--keep", multiple=True, help="SQL: column to put before the scores, such as an id.")
@click.option(
    "--dialect", metavar="NAME", help="SQL: duckdb, postgres, sqlite or bigquery. [default: duckdb]"
)
def export(
    model: str,
    output: str | None,
    sql: bool,
    target_prior: float | dict[str, float] | None,
    overwrite: bool,
    table: str | None,
    keep: tuple[str, ...],
    dialect: str | None,
) -> None:
    """Write MODEL for use without unmix: as an ONNX file, or as SQL.

    ONNX takes the columns of a table by name and gives `label` and `probabilities`: linear,
    boosting and mlp models. SQL is one SELECT and takes linear models.
    """
    from unmix.classifier import UnmixClassifier
    from unmix.deploy.export_model import export_model
    from unmix.deploy.sql_query import sql_query

    sql = sql or (output is not None and output.lower().endswith(".sql"))
    if not sql and output is None:
        raise InputError("say where to: -o model.onnx, or --sql for a SELECT")
    if sql and output is not None and not output.lower().endswith(".sql"):
        raise InputError(f"--sql writes a file that ends in .sql; got {output}")
    if not sql and (table or keep or dialect):
        raise InputError("--table, --keep and --dialect are for --sql")
    check_output(output, overwrite)
    clf = UnmixClassifier.load(model)
    if target_prior is not None:
        clf.retarget(target_of(target_prior, clf.classes_))
    options = {"table": table or "rows", "dialect": dialect or "duckdb"}
    if output is None:
        click.echo(sql_query(clf, keep=keep, **options), nl=False)
        return
    export_model(clf, output, keep=keep, **options)
    tell(f"model written: {output}")
