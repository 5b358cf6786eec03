"""Settings of the recipe `fast`, judged without a label on seeds that no table reports.

    python benchmarks/settle_recipe.py [--datasets kmnist,fashion-mnist,mnist] [--seeds 3]
        [--scale 0.3] [--share 0.2] [--only 2]

Each run draws ten sets, holds a twentieth of the images out, or the share given, and trains by
`ssc` or another method; what counts is the log-loss of the set index of the held-out images, after
the last epoch and at the best, and after the last epoch once the logits are calibrated. Test images
are not looked at. With --scale fewer images are drawn; --only runs one of the settings. Runs are
kept in results/settle_recipe.jsonl, and docs/results.md shows them.
"""

import time
from dataclasses import replace

import numpy as np
import torch
from measuring import open_runs

from unmix.data.benchmark_files import load_benchmark
from unmix.learn.chosen_strength import calibrated_loss
from unmix.learn.methods import METHODS
from unmix.learn.network_models import train_in_stages
from unmix.studies.cell import Cell, augment_of_cell, build_cell_model, draw_cell
from unmix.studies.grid import HELD_OUT

# What differs from the recipe, and from method ssc; the first is the recipe.
SETTINGS = (
    {},
    {"epochs": 30},
    {"learning_rate": 2e-3},
    {"weight_decay": 0.3},
    {"average": 0.999},
    {"epochs": 30, "weight_decay": 0.3},
    {"method": "ssc-consistency"},
    {"method": "ssc-consistency", "epochs": 20},
    {"epochs": 20},
    {"method": "ssc-vat", "epochs": 20},
)


def held_out(dataset, seed, scale, share, setting, quick=False):
    """Return the held-out log-loss of a setting."""
    changes = {"method": "ssc"} | setting
    method = changes.pop("method")
    cell = Cell(dataset, method, seed=seed, held_out=share, scale=0.02 if quick else scale)
    benchmark = load_benchmark(dataset)
    rng = np.random.default_rng(np.random.SeedSequence([seed, 3]))
    sets, out = draw_cell(cell, benchmark).hold_out(share, rng)
    recipe = replace(cell.resolve_recipe(), **changes)
    if quick:
        recipe = replace(recipe, epochs=2)
    started = time.process_time()
    trained, found = train_in_stages(
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
        "calibrated": calibrated_loss(trained.model, out),
        "candidates": {
            f"{c['strength']:g}": round(c["calibrated_loss"], 4)
            for c in found.get("chosen", {}).get("candidates", ())
        },
        "cpu_seconds": time.process_time() - started,
    }


def main():
    """Run the settings that have not been run."""
    torch.set_num_threads(1)
    options, runs = open_runs(
        "settle_recipe",
        datasets="kmnist,fashion-mnist,mnist",
        seeds="3",
        scale=1.0,
        share=HELD_OUT,
        only=-1,
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
                    share=options.share,
                    setting=setting,
                )


if __name__ == "__main__":
    main()
