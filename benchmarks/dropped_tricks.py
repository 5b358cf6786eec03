"""What tricks with the training step would gain that the loop does without.

    python benchmarks/dropped_tricks.py [--quick]

The step of the paper's MLP much as the loop takes it (rows, forward, loss, backward, one Adam for
all parameters, weight average), and with each trick, in turns in one process of two threads. What
torch.compile spends before the first step is measured in new processes, with an empty cache and
with the one that this leaves. Numba is measured where it is installed. Writes results/tried.json.
"""

import importlib.util
import json
import os
import tempfile
import time
from unittest.mock import patch

import numpy as np
import torch
from measuring import measured, parse_options, run_as_child

from unmix.core.risks import ssc_risk
from unmix.core.transition import Transition
from unmix.learn import gradients
from unmix.learn.gradients import Gradients, add_gradient
from unmix.learn.networks import MLP, build_model, kept_units
from unmix.learn.recipes import RECIPES
from unmix.learn.training_state import Adam, flatten

BATCH, SETS = 256, 10
RECIPE = RECIPES["fast"]
STEPS_OF_A_RUN = RECIPE.epochs * 235  # 60,000 rows in batches of 256
LEAST_GAIN = 0.05


def kept_by_bytes(shape, dropout, like):
    """As `networks.kept_units`, by 8 random bits a unit: 0.2 becomes 0.199."""
    units = torch.Size(shape).numel()
    words = torch.empty(-(-units // 8), dtype=torch.int64).random_(-(2**63), None)
    return words.view(torch.uint8)[:units].view(*shape).float().ge_(round(256 * dropout))


RANDOM = np.random.Generator(np.random.SFC64(0))


def kept_by_numpy(shape, dropout, like):
    """As `networks.kept_units`, by numpy's fastest generator."""
    units = torch.Size(shape).numel()
    words = RANDOM.integers(2**64, size=-(-units // 4), dtype=np.uint64)
    bits = torch.from_numpy(words.view(np.int16)[:units].reshape(shape))
    return bits.float().ge_(round(2**16 * dropout) - 2**15)


KEPT = {"bytes": kept_by_bytes, "numpy": kept_by_numpy}


def make_step(trick):
    """Return a function that takes one step."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.integers(256, size=(100 * BATCH, 28, 28), dtype=np.uint8))
    set_index = torch.from_numpy(rng.integers(SETS, size=len(x)))
    model = build_model("mlp", (28, 28), 0.5, seed=0)
    if trick == "padded":
        model = MLP(28 * 28, width=304)
    optimizer = Adam(flatten(list(model.parameters())), RECIPE.weight_decay)
    average = optimizer.values.clone()
    risk = ssc_risk(Transition(np.linspace(0.1, 0.9, SETS), None, 0.5))
    adder = Gradients(model)
    add = adder.add
    if trick == "autograd":
        adder.written_out = None
    if trick == "numba":
        from numba_layers import Compiled

        adder.written_out = Compiled(model)
    if trick == "compile":
        loss_of = torch.compile(lambda x, s: risk(model(x), s))

        def add(risk, x_batch, set_batch):
            return add_gradient(loss_of(x_batch, set_batch))

    def step():
        rows = torch.from_numpy(rng.integers(len(x), size=BATCH))
        x_batch, set_batch = x.index_select(0, rows) / 255, set_index[rows]
        with patch.object(gradients, "kept_units", KEPT.get(trick, kept_units)):
            loss = add(risk, x_batch, set_batch)
        optimizer.step(RECIPE.learning_rate)
        with torch.no_grad():
            average.lerp_(optimizer.values, 1 - RECIPE.average)
        return loss.item()

    return step


def in_turns(wait, rounds, steps):
    """Return the seconds of a step as it is and the share that each trick saves of it: medians."""
    tricks = ("as it is", "autograd", *KEPT, "padded", "numba", "compile")
    kinds = {trick: make_step(trick) for trick in tricks if trick != "numba" or has_numba()}
    for step in kinds.values():
        step(), step()
    wait()
    seconds = {trick: [] for trick in kinds}
    for _ in range(rounds):
        for trick, step in kinds.items():
            started = time.perf_counter()
            for _ in range(steps):
                step()
            seconds[trick].append((time.perf_counter() - started) / steps)
    # Each against its neighbours in time: a shared machine is fast at one moment and slow at the
    # next.
    base = np.array(seconds.pop("as it is"))
    gain = {trick: float(np.median(1 - np.array(times) / base)) for trick, times in seconds.items()}
    return {"seconds": float(np.median(base)), "gain": gain}


def has_numba():
    """Say whether Numba is here: the project does without it."""
    return importlib.util.find_spec("numba") is not None


def start_up(wait, folder):
    """Return the seconds that compiling takes before the first step is done."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    step = make_step("compile")
    wait()
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def verdict(gain):
    """Say whether a gain is enough."""
    if gain < LEAST_GAIN:
        return f"A trick has to gain {LEAST_GAIN:.0%} to be worth its lines."
    return f"Worth another look: it gains more than {LEAST_GAIN:.0%}."


def main():
    options = parse_options("tried", threads=2)
    turns = {"rounds": 1, "steps": 5} if options.quick else {"rounds": 60, "steps": 30}
    found = measured("in_turns", threads=options.threads, **turns)
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = (
            measured("start_up", threads=options.threads, folder=folder) for _ in range(2)
        )
    run, gain = STEPS_OF_A_RUN * found["seconds"], found["gain"]
    tried = [
        {
            "what": "no passes written out: the modules and autograd",
            "gain": f"{gain['autograd']:.1%} of a step",
            "why": "It would save a file, not time.",
        },
        {
            "what": "dropout from 8 random bits a unit instead of 16",
            "gain": f"{gain['bytes']:.1%} of a step",
            "why": verdict(gain["bytes"]),
        },
        {
            "what": "random bits from numpy's SFC64",
            "gain": f"{gain['numpy']:.1%} of a step",
            "why": f"{verdict(gain['numpy'])} A second generator to save and restore.",
        },
        {
            "what": "layers padded from 300 units to 304, whole cache lines",
            "gain": f"{gain['padded']:.1%} of a step",
            "why": verdict(gain["padded"]),
        },
        {
            "what": "torch.compile of forward, loss and backward",
            "gain": f"{gain['compile']:.1%} of a step",
            "why": f"Compiling takes {cold:.0f} s, and {warm:.0f} s when its cache is full. A "
            f"whole run of {RECIPE.epochs} epochs takes {run:.0f} s without it and "
            f"{(1 - gain['compile']) * run:.0f} s with it, compiling left out. It also needs a C++ "
            "compiler.",
        },
    ]
    if "numba" in gain:
        tried.append(
            {
                "what": "batch norm, ReLU and dropout in loops compiled by Numba",
                "gain": f"{gain['numba']:.1%} of a step",
                "why": f"{verdict(gain['numba'])} Numba is also 200 megabytes to install and most "
                "of a second to load.",
            }
        )
    for entry in tried:
        print(f"{entry['what']}: {entry['gain']}. {entry['why']}")
    if options.output:
        options.output.write_text(json.dumps(tried, indent=1) + "\n")


if __name__ == "__main__":
    run_as_child(in_turns, start_up)
    main()
