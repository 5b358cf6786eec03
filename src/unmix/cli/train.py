"""Commands about the benchmarks of the paper: train, methods, data, demo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from unmix.cli.group import PathName, json_option, main, tell


@main.command()
@click.argument("dataset")
@click.option("--method", default="ssc", show_default=True, help="A row of `unmix methods`.")
@click.option("--num-sets", default=10, show_default=True, help="How many sets to draw.")
@click.option("--seed", default=0, show_default=True)
@click.option("--recipe", default="fast", show_default=True, help="fast, or paper (300 epochs).")
@click.option("--epochs", type=int, help="Instead of the recipe's.")
@click.option("--learning-rate", type=float, help="Instead of the recipe's.")
@click.option("--sizes", type=click.Choice(["uniform", "shrunk", "random"]), default="uniform")
@click.option("--tau", default=1.0, help="With --sizes shrunk: what half of the sets keep.")
@click.option("--prior-noise", default=0.0, help="Move each stated prior by plus or minus this.")
@click.option(
    "--prior-error",
    type=float,
    help="Standard error of the priors: learn them. 0: believe them. Left out: ssc asks rows held "
    "out.",
)
@click.option("--model", help="linear, mlp or resnet32, instead of the dataset's.")
@click.option("--width", type=int, help="Units in a hidden layer of the mlp (300).")
@click.option("--depth", type=int, help="Hidden layers of the mlp (3).")
@click.option("--scale", default=1.0, help="Share of the training rows to use.")
@click.option("--held-out", default=0.0, help="Share of rows to choose an epoch by, label-free.")
@click.option("--shift", type=int, help="Pixels to move images by, instead of the benchmark's.")
@click.option(
    "--strength",
    type=float,
    help="Of a method's penalty, instead of its own or of choosing one; 0: without it.",
)
@click.option("--resume", type=PathName(), help="Folder to save the state in and go on from.")
@click.option("--data", "data_folder", type=PathName(), help="Folder of the datasets.")
@click.option(
    "--threads", type=click.IntRange(1, 1024), help="Threads to use; all cores if left out."
)
@click.option("--device", default="auto", show_default=True)
@json_option
def train(
    as_json: bool,
    resume: str | None,
    data_folder: str | None,
    threads: int | None,
    device: str,
    **cell: Any,
) -> None:
    """Draw sets from a benchmark, train one method, count its errors on the test rows.

    DATASET is one of `unmix data`; digits needs no download.
    """
    import torch

    from unmix.progress import progress_bar
    from unmix.studies.cell import Cell, run_cell

    if threads is not None:
        torch.set_num_threads(threads)
    with progress_bar(f"{cell['dataset']} {cell['method']}", enabled=not as_json) as progress:
        result = run_cell(
            Cell(**cell),
            data_folder=data_folder,
            resume=resume,
            progress=progress,
            device=device,
        )
    if as_json:
        click.echo(json.dumps(result))
        return
    tell(
        f"{result['dataset']}, {result['method']}, {result['num_sets']} sets, "
        f"seed {result['seed']}: test error {100 * result['test_error']:.2f} % after "
        f"{result['epochs']} epochs in {result['seconds']:.0f} s"
    )
    if result.get("noticed_error"):
        tell(
            f"the stated priors seemed off by about {result['noticed_error']:g}, so they were "
            "learned too"
        )
    if "selected_epoch" in result:
        tell(
            f"epoch {result['selected_epoch']}, chosen without labels: "
            f"{100 * result['selected_test_error']:.2f} %"
        )


@main.command()
@json_option
def methods(as_json: bool) -> None:
    """List the methods."""
    from unmix.learn.methods import METHODS

    if as_json:
        click.echo(json.dumps({m.name: m.about for m in METHODS.values()}))
        return
    for method in METHODS.values():
        tell(f"{method.name:12} {method.title:24} {method.about}")


@main.group(invoke_without_command=True)
@click.option("--data", "folder", type=PathName(), help="Folder of the datasets.")
@json_option
@click.pass_context
def data(ctx: click.Context, folder: str | None, as_json: bool) -> None:
    """List the benchmark datasets and whether they are here; `unmix data fetch NAME` gets one."""
    if ctx.invoked_subcommand is not None:
        return
    from unmix.data.benchmark_files import dataset_folder, is_present
    from unmix.data.benchmarks import BENCHMARKS

    rows = [
        {
            "dataset": name,
            "title": info.title,
            "present": is_present(name, folder),
            "folder": str(dataset_folder(name, folder)),
        }
        for name, info in BENCHMARKS.items()
    ]
    if as_json:
        click.echo(json.dumps(rows))
        return
    for row in rows:
        state = "here" if row["present"] else f"not in {row['folder']}"
        tell(f"{row['dataset']:14} {row['title']:18} {state}")


@data.command()
@click.argument("name")
@click.option("--data", "folder", type=PathName(), help="Folder of the datasets.")
def fetch(name: str, folder: str | None) -> None:
    """Download a benchmark dataset, with its checksum."""
    from unmix.data.fetch import fetch_benchmark

    tell(f"{name} is in {fetch_benchmark(name, folder)}")


DRAWS = 10  # of the sets: what one draw of a thousand digits gives hangs on chance
# Of 5, 8, 11, 15 and 22 those with the least calibrated log-loss of held-out sets, in other draws.
DEMO_EPOCHS = 11


@main.command()
@click.option("--output", default="demo", show_default=True, help="Folder for the picture.")
@click.option("--seed", default=0, show_default=True, help="Of the first draw.")
@json_option
def demo(output: str, seed: int, as_json: bool) -> None:
    """Learn even from odd digits without a label: sets of real images, a minute at most.

    Ten draws of ten sets, and the mean of their errors.
    """
    from unmix.files import atomic_path
    from unmix.progress import progress_bar
    from unmix.report.curves import plot_learning_curves
    from unmix.studies.cell import Cell, run_cell

    means = []
    for method in ("ssc", "supervised"):
        runs = []
        with progress_bar(f"digits {method}", enabled=not as_json) as progress:
            for draw in range(DRAWS):
                cell = Cell("digits", method, seed=seed + draw, epochs=DEMO_EPOCHS)
                runs.append(run_cell(cell))
                progress(draw + 1, DRAWS, f"draw {draw + 1} of {DRAWS}")
        means.append(_mean_of(runs))
    ours, labeled = means
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / "learning-curve.png"
    curves = {
        "10 sets, only their shares known": ours["history"],
        "all labels": labeled["history"],
    }
    figure = plot_learning_curves(curves, title=f"Even or odd digit? Mean of {DRAWS} draws")
    with atomic_path(picture) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
    if as_json:
        told = {"ssc": ours, "supervised": labeled, "picture": str(picture)}
        click.echo(json.dumps(told))
        return
    rows, worth = labeled["num_rows"], ours["worth_in_labels"]
    tell(f"10 sets of about {rows / 10:.0f} digits; only the share of even ones in each is known.")
    tell(f"Test error without a single label: {100 * ours['test_error']:.1f} %")
    tell(f"Test error with all {rows:,.0f} labels:  {100 * labeled['test_error']:.1f} %")
    tell(f"Means of {DRAWS} draws. The effective number of labels is about {worth:,.0f}.")
    tell(f"Learning curves: {picture}")


def _mean_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the means of what several runs found, epoch by epoch."""
    found = {
        key: sum(run[key] for run in runs) / len(runs)
        for key in ("test_error", "num_rows", "worth_in_labels")
    }
    errors = zip(*([row["test_error"] for row in run["history"]] for run in runs), strict=True)
    history = [
        {"epoch": epoch, "test_error": sum(of) / len(of)} for epoch, of in enumerate(errors, 1)
    ]
    return found | {"history": history}
