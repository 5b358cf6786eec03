"""Settings of the recipe `fast`, judged without a label on seeds that no table reports.

    python benchmarks/settle_recipe.py [--datasets kmnist,fashion-mnist,mnist] [--seeds 3]
        [--scale 0.3] [--only 2]

Each run draws ten sets, holds a twentieth of the images out and trains by `ssc`; what counts is the
log-loss of the set index of the held-out images, after the last epoch and at the best. Test images
are not looked at. With --scale fewer images are drawn; --only runs one of the settings. Runs are
kept in results/settle_recipe.jsonl, and docs/results.md shows them.
"""

import time
from dataclasses import replace

import numpy as np
import torch
from measuring import open_runs

from unmix.data.benchmark_files import load_benchmark
from unmix.learn.methods import METHODS
from unmix.learn.training import train
from unmix.studies.cell import Cell, augment_of_cell, build_cell_model, draw_cell
from unmix.studies.grid import HELD_OUT

# What differs from the recipe; the first is the recipe.
SETTINGS = (
    {},
    {"epochs": 30},
    {"learning_rate": 2e-3},
    {"weight_decay": 0.3},
    {"average": 0.999},
    {"epochs": 30, "weight_decay": 0.3},
)


def held_out(dataset, seed, scale, setting, quick=False):
    """Return the held-out log-loss of a setting."""
    cell = Cell(dataset, seed=seed, held_out=HELD_OUT, scale=0.02 if quick else scale)
    benchmark = load_benchmark(dataset)
    rng = np.random.default_rng(np.random.SeedSequence([seed, 3]))
    sets, out = draw_cell(cell, benchmark).hold_out(HELD_OUT, rng)
    recipe = replace(cell.resolve_recipe(), **setting)
    if quick:
        recipe = replace(recipe, epochs=2)
    started = time.process_time()
    trained = train(
        build_cell_model(cell, benchmark),
        sets,
        METHODS[cell.method],
        recipe,
        seed=seed,
        held_out=out,
        augment=augment_of_cell(cell, recipe, benchmark),
    )
    losses = [row["held_out_loss"] for row in trained.history]
    return {
        "epochs": recipe.epochs,
        "loss": losses[-1],
        "least": min(losses),
        "at": trained.selected_epoch,
        "cpu_seconds": time.process_time() - started,
    }


def main():
    """Run the settings that have not been run."""
    torch.set_num_threads(1)
    options, runs = open_runs(
        "settle_recipe", datasets="kmnist,fashion-mnist,mnist", seeds="3", scale=1.0, only=-1
    )
    settings = SETTINGS if options.only < 0 else SETTINGS[options.only : options.only + 1]
    for seed in map(int, options.seeds.split(",")):
        for dataset in options.datasets.split(","):
            for setting in settings:
                runs.once(
                    lambda quick=options.quick, **key: held_out(quick=quick, **key),
                    dataset=dataset,
                    seed=seed,
                    scale=options.scale,
                    setting=setting,
                )


if __name__ == "__main__":
    main()
