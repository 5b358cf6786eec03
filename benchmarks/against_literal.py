"""The literal m-output transition layer beside unmix: time per epoch and peak memory against m.

    python benchmarks/against_literal.py [--quick]

The paper's MLP on random images of MNIST's shape, batch 256, two threads, a new process for each
run. Literal: sigmoid, then the posteriors of all m sets by the matrix of Theorem 1, their logarithm
and `nll_loss`, in a plain loop with the same fused optimizer. Ours: `unmix.learn.training.train` as
it is, with its weight average. Epochs are extrapolated from some seconds of steps; best of all
rounds, taken in turns.
"""

from dataclasses import replace

import numpy as np
import torch
from measuring import (
    Clock,
    Enough,
    measured,
    parse_options,
    peak_memory,
    run_as_child,
    write_results,
)
from torch.nn import functional

from unmix.data.sets import UnlabeledSets
from unmix.learn.methods import METHODS
from unmix.learn.networks import build_model
from unmix.learn.recipes import RECIPES
from unmix.learn.training import train

BATCH, TARGET = 256, 0.5
RECIPE = replace(RECIPES["fast"], epochs=100_000, batch_size=BATCH)


def problem(num_sets, rows):
    """Random images in sets of equal size; all sets have rows."""
    rng = np.random.default_rng(0)
    x = rng.integers(256, size=(rows, 28, 28), dtype=np.uint8)
    set_index = rng.permutation(np.arange(rows) % num_sets)
    return UnlabeledSets(x, set_index, rng.uniform(0.1, 0.9, num_sets), TARGET)


def train_literally(model, sets, clock):
    """Train through all m set posteriors, as the paper writes them."""
    x, set_index = torch.from_numpy(sets.x), torch.from_numpy(sets.set_index)
    priors = torch.from_numpy(sets.set_priors).float()
    weights = torch.from_numpy(sets.set_sizes / len(sets)).float()
    # Columns of the matrix: positive and negative class, shape (m,) each.
    positive, negative = weights * priors / TARGET, weights * (1 - priors) / (1 - TARGET)
    optimizer = torch.optim.AdamW(model.parameters(), RECIPE.learning_rate, fused=True)
    model.train()
    done = 0
    while True:
        for rows in torch.randperm(len(x)).split(BATCH):
            posterior = torch.sigmoid(model(x[rows].float() / 255))[:, None]  # (n, 1)
            joint = posterior * positive + (1 - posterior) * negative  # (n, m)
            set_posterior = joint / joint.sum(dim=1, keepdim=True)
            loss = functional.nll_loss(torch.log(set_posterior), set_index[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            clock(done)


def run(wait, how, num_sets, rows, seconds):
    sets = problem(num_sets, rows)
    model = build_model("mlp", (28, 28), TARGET, seed=0)
    clock = Clock(wait, seconds)
    before = peak_memory()
    try:
        if how == "literal":
            train_literally(model, sets, clock)
        else:
            train(model, sets, METHODS["ssc"], RECIPE, seed=0, progress=clock)
    except Enough:
        epoch = clock.per_step * -(-rows // BATCH)
    return {"seconds_per_epoch": epoch, "peak_mb": peak_memory(), "before_mb": before}


def main():
    options = parse_options("against_literal", threads=2)
    quick = options.quick
    rows = 2_000 if quick else 100_000
    sizes = (10, 100, 2_000) if quick else (10, 1_000, 100_000)
    seconds, rounds = (0.1, 1) if quick else (2.0, 3)
    found = {}
    for _ in range(rounds):
        for num_sets in sizes:
            for how in ("ours", "literal"):
                job = {"how": how, "num_sets": num_sets, "rows": rows, "seconds": seconds}
                new = measured("run", threads=options.threads, **job)
                old = found.setdefault((how, num_sets), new)
                found[how, num_sets] = {key: min(old[key], new[key]) for key in new}
    lines = [
        {"how": how, "num_sets": m, **{key: round(value, 2) for key, value in numbers.items()}}
        for (how, m), numbers in found.items()
    ]
    for line in sorted(lines, key=lambda line: line["how"]):
        print(
            f"{line['how']:8} {line['num_sets']:>8,} sets: {line['seconds_per_epoch']:8.2f} s an "
            f"epoch, peak {line['peak_mb']:6.0f} MB"
        )
    flat = {}
    for key in ("seconds_per_epoch", "peak_mb"):
        ours = [line[key] for line in lines if line["how"] == "ours"]
        flat[key] = round(max(ours) / min(ours), 3)
    print(
        f"ours, largest over smallest: time {flat['seconds_per_epoch']}, memory {flat['peak_mb']}"
    )
    most = sizes[-1]
    ratio = {
        key: round(found["literal", most][key] / found["ours", most][key], 2)
        for key in ("seconds_per_epoch", "peak_mb")
    }
    print(
        f"literal over ours at {most:,} sets: time {ratio['seconds_per_epoch']}, "
        f"memory {ratio['peak_mb']}"
    )
    settings = {"rows": rows, "threads": options.threads}
    write_results(options, settings | {"lines": lines, "flat": flat, "literal_over_ours": ratio})


if __name__ == "__main__":
    run_as_child(run)
    main()
