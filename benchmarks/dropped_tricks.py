"""What tricks with the training step would gain that the loop does without.

    python benchmarks/dropped_tricks.py [--quick]

The step of the paper's MLP written out (rows, forward, loss, backward, optimizer, weight average),
plain and with each trick, in turns in one process of two threads. What torch.compile spends before
the first step is measured in new processes, with an empty cache and with the one that this leaves.
Writes results/tried.json.
"""

import copy
import json
import os
import tempfile
import time

import numpy as np
import torch
from measuring import measured, parse_options, run_as_child

from unmix.core.risks import ssc_risk
from unmix.core.transition import Transition
from unmix.learn.models import build_model
from unmix.learn.recipes import RECIPES

BATCH, SETS = 256, 10
RECIPE = RECIPES["fast"]
STEPS_OF_A_RUN = RECIPE.epochs * 235  # 60,000 rows in batches of 256
LEAST_GAIN = 0.05
ADAM = {"lr": RECIPE.learning_rate, "weight_decay": RECIPE.weight_decay, "fused": True}


def plain(model):
    """Return the optimizer, and what is averaged: two lists of tensors."""
    average = copy.deepcopy(model)
    lists = [
        [t for t in m.state_dict().values() if t.is_floating_point()] for m in (average, model)
    ]
    return torch.optim.AdamW(model.parameters(), **ADAM), lists


def flat(model):
    """The same with all parameters, and all their gradients, in one tensor."""
    parameters = list(model.parameters())
    whole = torch.nn.Parameter(torch.cat([p.detach().flatten() for p in parameters]))
    whole.grad = torch.zeros_like(whole)
    start = 0
    for p in parameters:
        part = slice(start, start + p.numel())
        p.data = whole.detach()[part].view_as(p)
        p.grad = whole.grad[part].view_as(p)
        start += p.numel()
    statistics = [t for t in model.buffers() if t.is_floating_point()]
    current = [whole.detach(), *statistics]
    return torch.optim.AdamW([whole], **ADAM), [[t.clone() for t in current], current]


def make_step(trick):
    """Return a function that takes one step."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.integers(256, size=(100 * BATCH, 28, 28), dtype=np.uint8))
    set_index = torch.from_numpy(rng.integers(SETS, size=len(x)))
    model = build_model("mlp", (28, 28), 0.5, seed=0)
    optimizer, (averaged, current) = (flat if trick == "flat" else plain)(model)
    risk = ssc_risk(Transition(np.linspace(0.1, 0.9, SETS), None, 0.5))

    def loss_of(x_batch, set_batch):
        return risk(model(x_batch), set_batch)

    if trick == "compile":
        loss_of = torch.compile(loss_of)

    def step():
        rows = torch.from_numpy(rng.integers(len(x), size=BATCH))
        loss = loss_of(x.index_select(0, rows) / 255, set_index[rows])
        optimizer.zero_grad(set_to_none=trick != "flat")
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(averaged, current, 1 - RECIPE.average)
        return loss.item()

    return step


def in_turns(wait, rounds, steps):
    """Return the seconds of a step of each kind: the best of the rounds."""
    kinds = {trick: make_step(trick) for trick in ("plain", "flat", "compile")}
    for step in kinds.values():
        step(), step()
    wait()
    best = dict.fromkeys(kinds, np.inf)
    for _ in range(rounds):
        for trick, step in kinds.items():
            started = time.perf_counter()
            for _ in range(steps):
                step()
            best[trick] = min(best[trick], (time.perf_counter() - started) / steps)
    return best


def start_up(wait, folder):
    """Return the seconds that compiling takes before the first step is done."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    step = make_step("compile")
    wait()
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def main():
    options = parse_options("tried", threads=2)
    turns = {"rounds": 1, "steps": 5} if options.quick else {"rounds": 20, "steps": 100}
    best = measured("in_turns", threads=options.threads, **turns)
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = (
            measured("start_up", threads=options.threads, folder=folder) for _ in range(2)
        )
    run = STEPS_OF_A_RUN * best["plain"]
    gain = {trick: 1 - best[trick] / best["plain"] for trick in ("flat", "compile")}
    tried = [
        {
            "what": "all parameters in one flat tensor for the optimizer and the average",
            "gain": f"{gain['flat']:.1%} of a step",
            "why": f"A trick has to gain {LEAST_GAIN:.0%} to be worth its lines."
            if gain["flat"] < LEAST_GAIN
            else f"Worth another look: it gains more than {LEAST_GAIN:.0%}.",
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
    for entry in tried:
        print(f"{entry['what']}: {entry['gain']}. {entry['why']}")
    if options.output:
        options.output.write_text(json.dumps(tried, indent=1) + "\n")


if __name__ == "__main__":
    run_as_child(in_turns, start_up)
    main()
