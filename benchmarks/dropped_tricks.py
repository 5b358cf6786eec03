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

import numpy as np
import torch
from measuring import measured, parse_options, run_as_child

from unmix.core.losses import ssc_cross_entropy, ssc_cross_entropy_gradient
from unmix.core.risks import ssc_risk
from unmix.core.transition import Transition
from unmix.learn.adam import Adam, flatten
from unmix.learn.models import build_model
from unmix.learn.recipes import RECIPES

BATCH, SETS = 256, 10
RECIPE = RECIPES["fast"]
STEPS_OF_A_RUN = RECIPE.epochs * 235  # 60,000 rows in batches of 256
LEAST_GAIN = 0.05


class ClosedForm(torch.autograd.Function):
    """The mean loss, with its gradient by formula."""

    @staticmethod
    def forward(ctx, logits, set_index, transition):
        ctx.save_for_backward(ssc_cross_entropy_gradient(logits, set_index, transition))
        return ssc_cross_entropy(logits, set_index, transition).mean()

    @staticmethod
    def backward(ctx, gradient):
        (by_logits,) = ctx.saved_tensors
        return gradient / len(by_logits) * by_logits, None, None


def make_step(trick):
    """Return a function that takes one step."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.integers(256, size=(100 * BATCH, 28, 28), dtype=np.uint8))
    set_index = torch.from_numpy(rng.integers(SETS, size=len(x)))
    model = build_model("mlp", (28, 28), 0.5, seed=0)
    model.adds_gradients = trick != "compile"
    optimizer = Adam(flatten(list(model.parameters())), RECIPE.weight_decay)
    average = optimizer.values.clone()
    transition = Transition(np.linspace(0.1, 0.9, SETS), None, 0.5)
    risk = ssc_risk(transition)

    def loss_of(x_batch, set_batch):
        if trick == "closed form":
            return ClosedForm.apply(model(x_batch), set_batch, transition)
        return risk(model(x_batch), set_batch)

    if trick == "numba":
        from numba_layers import hidden_layers

        network = torch.nn.Sequential(*model.body)
        linears = [layer for layer in network if isinstance(layer, torch.nn.Linear)]
        norms = [layer for layer in network if isinstance(layer, torch.nn.BatchNorm1d)]
        layers = list(zip(linears, norms, strict=True))

        def loss_of(x_batch, set_batch):
            hidden = hidden_layers(x_batch.flatten(1), layers, model.dropout)
            return risk(model.head(hidden)[:, 0], set_batch)

    if trick == "compile":
        # The modules: the layers written out are what it would have to find by itself.
        network = torch.nn.Sequential(torch.nn.Flatten(), *model.body, model.head)
        loss_of = torch.compile(lambda x, s: risk(network(x)[:, 0], s))

    def step():
        rows = torch.from_numpy(rng.integers(len(x), size=BATCH))
        loss = loss_of(x.index_select(0, rows) / 255, set_index[rows])
        loss.backward()
        optimizer.step(RECIPE.learning_rate)
        with torch.no_grad():
            average.lerp_(optimizer.values, 1 - RECIPE.average)
        return loss.item()

    return step


def in_turns(wait, rounds, steps):
    """Return the seconds of a step of each kind: the best of the rounds."""
    tricks = ("as it is", "closed form", "numba", "compile")
    kinds = {trick: make_step(trick) for trick in tricks if trick != "numba" or has_numba()}
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
    turns = {"rounds": 1, "steps": 5} if options.quick else {"rounds": 20, "steps": 100}
    best = measured("in_turns", threads=options.threads, **turns)
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = (
            measured("start_up", threads=options.threads, folder=folder) for _ in range(2)
        )
    run = STEPS_OF_A_RUN * best["as it is"]
    gain = {trick: 1 - seconds / best["as it is"] for trick, seconds in best.items()}
    tried = [
        {
            "what": "the gradient of the loss by its closed form, not by autograd",
            "gain": f"{gain['closed form']:.1%} of a step",
            "why": verdict(gain["closed form"]),
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
