"""The command about the paper's study: reproduce."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unmix.cli.group import PathName, exit_code_of, fail, json_option, main, tell
from unmix.cli.shared_options import engine_of, timeout_option
from unmix.errors import InputError
from unmix.files import check_writable

if TYPE_CHECKING:
    from unmix.studies.cell import Cell
    from unmix.studies.store import RunStore
    from unmix.studies.summary import Summary


def _names(ctx: Any, param: Any, value: str | None) -> tuple[str, ...] | None:
    """Return a list such as a,b."""
    if value is None:
        return None
    return tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))


def _numbers(ctx: Any, param: Any, value: str | None) -> tuple[int, ...] | None:
    """Return a list such as 0,1,2."""
    if value is None:
        return None
    try:
        numbers = tuple(dict.fromkeys(int(part) for part in value.split(",")))
        if min(numbers) < 0:
            raise ValueError
    except ValueError:
        raise click.BadParameter(f"{value!r} is no list of whole numbers such as 0,1,2.") from None
    return numbers


@main.command()
@click.argument("studies", nargs=-1, required=True, metavar="STUDY...")
@click.option(
    "--datasets", callback=_names, help="Some of `unmix data`; the MNIST-like ones if left out."
)
@click.option(
    "--methods",
    callback=_names,
    help="Some of the study's rows, or methods that no study lists, such as your own (unmix "
    "--load); all rows if left out.",
)
@click.option("--seeds", callback=_numbers, help="Such as 0,1; 0,1,2 if left out.")
@click.option("--num-sets", callback=_numbers, help="Only these numbers of sets; all if left out.")
@click.option("--recipe", default="fast", show_default=True, help="fast, or paper (300 epochs).")
@click.option("--epochs", type=int, help="Instead of the recipe's.")
@click.option(
    "--scale",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    help="Share of the training rows to use.",
)
@click.option(
    "--workers", type=int, help="Runs side by side; as many as there are cores if left out."
)
@click.option("--threads", type=int, default=1, show_default=True, help="Of each run.")
@click.option(
    "--store",
    "store_folder",
    type=PathName(),
    default="runs",
    show_default=True,
    help="Folder of the run store; a study goes on from what is there.",
)
@click.option("--import", "import_file", type=PathName(), help="Exported runs to count as done.")
@click.option("--export", "export_file", type=PathName(), help="Write the runs as JSON lines.")
@click.option("--report", "report_folder", type=PathName(), help="Write tables and figures.")
@click.option("--again", is_flag=True, help="Run again what another version of the code ran.")
@click.option("--report-only", is_flag=True, help="Run nothing; use what the store holds.")
@click.option("--data", "data_folder", type=PathName(), help="Folder of the datasets.")
@click.option(
    "--engine",
    metavar="ENGINE",
    help="Run cells by ray (on this machine) or ray://HOST:PORT (a cluster, all of whose machines "
    "have the datasets); the store stays here.",
)
@timeout_option
@json_option
def reproduce(
    studies: tuple[str, ...],
    datasets: tuple[str, ...] | None,
    methods: tuple[str, ...] | None,
    seeds: tuple[int, ...] | None,
    num_sets: tuple[int, ...] | None,
    recipe: str,
    epochs: int | None,
    scale: float,
    workers: int | None,
    threads: int,
    store_folder: str,
    import_file: str | None,
    export_file: str | None,
    report_folder: str | None,
    again: bool,
    report_only: bool,
    data_folder: str | None,
    engine: str | None,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Run studies of the paper and set our numbers beside the published ones.

    STUDY is comparison, set-size, set-number, prior-noise, curves, noise-boxes or supervised;
    several share their runs, and the supervised reference unless --methods chooses others. Stop it
    at any moment: the same command resumes where it stopped.
    """
    from unmix.studies.grid import (
        DATASETS,
        SEEDS,
        STUDIES,
        cell_title,
        check_methods,
        running_order,
        studies_named,
    )
    from unmix.studies.store import RunStore
    from unmix.studies.summary import summarize

    chosen = [study.with_methods(methods or ()) for study in studies_named(studies)]
    check_methods(methods or (), chosen)
    datasets, seeds = datasets or DATASETS, seeds or SEEDS
    rows = [
        study.cells(datasets, methods, seeds, recipe, epochs, scale, num_sets) for study in chosen
    ]
    if not any(rows):
        raise InputError(
            f"no cell is left of {' and '.join(studies)}; widen --num-sets or --methods"
        )
    # A whole study says how far the reference still is; some methods are run for themselves.
    reference = STUDIES["supervised"].cells(datasets, None, seeds, recipe, epochs, scale)
    parts = rows if methods else [*rows, reference]
    cells = running_order(row for part in parts for row in part)
    if report_folder is not None and Path(report_folder).is_file():
        raise InputError(f"--report {report_folder} is a file; give the name of a folder")
    if export_file is not None:
        check_writable(export_file)  # now, not after all the cells
        if os.path.isfile(export_file) and not export_file.lower().endswith(".jsonl"):
            raise InputError(
                f"cannot write {export_file}: it exists and does not end in .jsonl; choose another "
                "name"
            )
    with RunStore(store_folder, create=import_file is not None or not report_only) as store:
        if import_file is not None:
            store.import_(import_file)
        if not report_only:
            with engine_of(engine, workers if engine else None, timeout) as carrier:
                options: dict[str, Any] = {"again": again, "engine": carrier}
                _run(cells, store, workers, threads, data_folder, show=not as_json, **options)
        if export_file is not None:
            store.export(export_file)
        results, failures = store.results(), store.failures()
    _tell_of_other_code(cells, results)
    summaries = [summarize(study, results, part) for study, part in zip(chosen, rows, strict=True)]
    failed = {cell_title(cell): failures[cell] for cell in cells if cell in failures}
    if report_folder is not None:
        from unmix.report.study_page import write_study_report

        write_study_report(summaries, report_folder)
    if as_json:
        numbers = {summary.study.name: _numbers_of(summary) for summary in summaries}
        click.echo(json.dumps({"studies": numbers, "failed": failed}))
    else:
        for summary in summaries:
            _print(summary)
        if report_folder is not None:
            tell(f"Tables and figures: {report_folder}")
    if failed:
        why = "; ".join(f"{title} ({line})" for title, line in failed.items())
        # A full disk, say, is for the user to mend.
        ours = not all(line.startswith(InputError.__name__) for line in failed.values())
        fail(f"{len(failed)} of {len(cells)} cells failed: {why}", 1 if ours else 2)


def _run(
    cells: list[Cell],
    store: RunStore,
    workers: int | None,
    threads: int,
    data_folder: str | None,
    *,
    show: bool,
    **options: Any,
) -> None:
    """Run what has no result yet, or say how to go on."""
    from unmix.progress import progress_bar
    from unmix.studies.runner import run_study

    try:
        with progress_bar("cells", enabled=show) as progress:
            run_study(
                cells,
                store,
                workers=max((os.cpu_count() or 1) // max(threads, 1), 1)
                if workers is None
                else workers,
                threads=threads,
                data_folder=data_folder,
                progress=progress,
                **options,
                note=(lambda line: tell(line, err=True)) if show else None,
            )
    except KeyboardInterrupt as stop:
        left = len(store.unfinished(cells))
        line = f"stopped with {left} of {len(cells)} cells to go; the same command goes on"
        fail(line, exit_code_of(stop))


def _tell_of_other_code(cells: list[Cell], results: dict[Cell, dict[str, Any]]) -> None:
    """Say how many results of the user's own methods and datasets another version of them made."""
    from unmix.data.benchmarks import is_registered as is_own_dataset
    from unmix.learn.methods import is_registered as is_own_method
    from unmix.studies.code_version import code_version

    own = [c for c in cells if is_own_method(c.method) or is_own_dataset(c.dataset)]
    old = sum(c in results and results[c]["code_version"] != code_version() for c in own)
    if old:
        tell(
            f"{old} of {len(cells)} results were measured with another version of your files or of "
            "unmix; --again measures them again",
            err=True,
        )


def _numbers_of(summary: Summary) -> list[dict[str, Any]]:
    """Return the entries of a study for programs, without the runs behind them."""
    entries = []
    for entry in summary.all_entries:
        numbers = {f.name: getattr(entry, f.name) for f in fields(entry) if f.name != "runs"}
        entries.append(numbers | {"paper": entry.paper and entry.paper._asdict()})
    return entries


def _print(summary: Summary) -> None:
    """Print the errors of a study, ours beside the paper's; what was not run is blank."""
    from unmix.report.study_tables import mean_and_std

    tell(f"{summary.study.title}: test error in percent, mean (deviation) over seeds")
    line = "{:14} {:>9} {:14} {:14} {:>14} {:>18} {:>14}"
    head = ("dataset", "", "", "", "last epoch", "chosen label-free", "paper")
    tell(line.format(*head).rstrip())
    for entry in summary.all_entries:
        sets = f"{entry.num_sets} sets" if entry.num_sets else ""
        column = "" if entry.column == sets else entry.column
        pairs = (
            (entry.mean, entry.std),
            (entry.selected_mean, entry.selected_std),
            entry.paper or (None, None),
        )
        numbers = ("" if mean is None else mean_and_std(mean, std) for mean, std in pairs)
        tell(line.format(entry.dataset, sets, column, entry.row, *numbers).rstrip())
