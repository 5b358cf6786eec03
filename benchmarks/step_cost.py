"""What a training step costs: its rate as a share of sgemm, and where its time goes.

    python benchmarks/step_cost.py [--quick]

The paper's MLP (batch 256, method ssc, recipe fast) on random images of MNIST's shape, as one
process of one thread, one of two, and two of one thread side by side; three versions in turns:
`plain` is the step as one writes it in eager torch, `now` is the loop as it is, `shifted` is `now`
with images moved about, as the recipe does where a benchmark allows it. Then ResNet-32 on random
images of CIFAR-10's shape against the fastest of its large convolutions. Operations are counted by
formula: forward, gradients of weights, gradients of inputs except those of the first layer. Both
sides of a ratio are the best of tenths of a second.
"""

import copy
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import count
from unittest.mock import patch

import numpy as np
import torch
from measuring import (
    Clock,
    Enough,
    best_seconds,
    measured,
    measured_together,
    parse_options,
    run_as_child,
    write_results,
)
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from unmix.core.risks import MeanLoss
from unmix.data.benchmarks import BENCHMARKS
from unmix.data.sets import UnlabeledSets
from unmix.learn import gradients, training
from unmix.learn.augment import Augment
from unmix.learn.methods import METHODS
from unmix.learn.networks import Dropout, build_model
from unmix.learn.recipes import RECIPES
from unmix.learn.training_state import Adam, TrainingState

BATCH, SETS = 256, 10
VERSIONS = ("plain", "now", "shifted")
RECIPE = replace(RECIPES["fast"], batch_size=BATCH)
# Of a forward product (n, k) @ (k, width) and its two gradients; and a large square one.
SHAPES = {
    f"{m}x{k}x{n}": (m, k, n)
    for m, k, n in (
        (BATCH, 784, 300),
        (784, BATCH, 300),
        (BATCH, 300, 300),
        (300, BATCH, 300),
        (1024, 1024, 1024),
    )
}
CONVOLUTIONS = {"16 x 32 x 32": (16, 32), "32 x 16 x 16": (32, 16), "64 x 8 x 8": (64, 8)}
PARTS = (
    "matrix products",
    "batch norm",
    "dropout",
    "optimizer",
    "weight average",
    "gathering rows",
    "loss",
    "rest",
)
# Beginnings of the names of torch's operations; the loop's own parts are marked in `mark_parts`.
OPERATIONS = {
    "aten::linear": "matrix products",
    "aten::matmul": "matrix products",
    "aten::mm": "matrix products",
    "aten::addmm": "matrix products",
    "aten::conv2d": "matrix products",
    "AddmmBackward": "matrix products",
    "MmBackward": "matrix products",
    "TBackward": "matrix products",
    "ConvolutionBackward": "matrix products",
    "aten::batch_norm": "batch norm",
    "aten::native_batch_norm": "batch norm",
    "NativeBatchNormBackward": "batch norm",
    "aten::dropout": "dropout",
    "aten::mul_": "dropout",
    "NativeDropoutBackward": "dropout",
    "MulBackward": "dropout",
    "Optimizer.": "optimizer",
    "aten::index": "gathering rows",
    "LogaddexpBackward": "loss",
    "MeanBackward": "loss",
    "SubBackward": "loss",
}


class Profile:
    """Profiles some steps of a training, then ends it."""

    def __init__(self, steps, warm_up=10):
        self.steps, self.warm_up = steps, warm_up
        self.profile = profile(activities=[ProfilerActivity.CPU])

    def __call__(self, done, total=0, text=""):
        if done == self.warm_up:
            self.profile.start()
            self.started = time.perf_counter()
        if done == self.warm_up + self.steps:
            self.per_step = (time.perf_counter() - self.started) / self.steps
            self.profile.stop()
            raise Enough

    def breakdown(self):
        """Return the share of each part in the time of a step."""
        total = Counter()
        for event in self.profile.events():
            if event.cpu_parent is None:
                _add_parts(event, total)
        shares = {part: total[part] / 1e6 / self.steps / self.per_step for part in PARTS[:-1]}
        return shares | {"rest": 1 - sum(shares.values())}


def _add_parts(event, total):
    """Add the time of an event to its part, or look for the parts inside it."""
    name = event.name.removeprefix("autograd::engine::evaluate_function: ")
    for beginning, part in (OPERATIONS | {part: part for part in PARTS}).items():
        if name.startswith(beginning):
            total[part] += event.cpu_time_total
            return
    for child in event.cpu_children:
        _add_parts(child, total)


def random_sets(shape, rows):
    rng = np.random.default_rng(0)
    x = rng.integers(256, size=(rows, *shape), dtype=np.uint8)
    return UnlabeledSets(x, rng.integers(SETS, size=rows), np.linspace(0.1, 0.9, SETS), 0.5)


def train_until(watch, info, sets, version):
    """Train the network of a benchmark until the watch has seen enough."""
    model = build_model(info.model, info.shape, 0.5, seed=0)
    augment = Augment(info.shift, info.flip) if version == "shifted" else None
    method = METHODS["ssc"]
    with ExitStack() as patches, suppress(Enough):
        if isinstance(watch, Profile):
            mark_parts(patches, augment)
        if version == "plain":
            train_plainly(model, sets, method, watch)
        else:
            recipe = replace(RECIPE, epochs=100_000)
            training.train(model, sets, method, recipe, seed=0, augment=augment, progress=watch)
    return model


def train_plainly(model, sets, method, watch):
    """The step as one writes it in eager torch; all parameters decay, statistics are let be."""
    layers = [nn.Dropout(m.probability) if isinstance(m, Dropout) else m for m in model.body]
    network = nn.Sequential(nn.Flatten(), *layers, model.head, nn.Flatten(0))
    average = copy.deepcopy(network)
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=RECIPE.learning_rate, weight_decay=RECIPE.weight_decay
    )
    x, set_index = torch.from_numpy(sets.x), torch.from_numpy(sets.set_index)
    risk = method.risk(sets.transition)
    for step in count(1):
        rows = torch.randint(len(x), (BATCH,))
        with record_function("gathering rows"):
            x_batch = x[rows].float() / 255
        loss = risk(network(x_batch), set_index[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad(), record_function("weight average"):
            for mine, now in zip(average.parameters(), network.parameters(), strict=True):
                mine.lerp_(now, 1 - RECIPE.average)
        watch(step, loss.item())


def mark_parts(patches, augment):
    """Mark the loop's own parts for the profiler."""

    def marked(function, part):
        def call(*args):
            with record_function(part):
                return function(*args)

        return call

    places = [
        (training, "as_input", "gathering rows"),
        (TrainingState, "move_average", "weight average"),
        (Adam, "step", "optimizer"),
        (gradients, "kept_units", "dropout"),
        (MeanLoss, "__call__", "loss"),
        (MeanLoss, "gradient", "loss"),
    ]
    if augment is not None:
        places.append((type(augment), "__call__", "gathering rows"))
    for owner, name, part in places:
        patches.enter_context(patch.object(owner, name, marked(getattr(owner, name), part)))


def operations_of(model, shape):
    """Count the floating point operations of a training step."""
    products = []  # multiplications per image, in the order of the layers

    def note(layer, args, output):
        products.append(layer.weight.numel() * output[0].numel() // len(layer.weight))

    layers = [m for m in model.modules() if isinstance(m, (nn.Linear, nn.Conv2d))]
    hooks = [layer.register_forward_hook(note) for layer in layers]
    with torch.no_grad():
        model.eval()(torch.zeros(1, *shape))
    for hook in hooks:
        hook.remove()
    return 2 * BATCH * (3 * sum(products) - products[0])


def sgemm_rates(seconds):
    rates = {}
    for name, (m, k, n) in SHAPES.items():
        a, b = torch.rand(m, k), torch.rand(k, n)
        out = torch.empty(m, n)
        best = best_seconds(lambda: torch.mm(a, b, out=out), seconds / len(SHAPES))  # noqa: B023
        rates[name] = 2 * m * k * n / best
    return rates


def convolution_rates(seconds):
    """Forward and backward of the network's large convolutions, as the network runs them."""
    rates = {}
    for name, (channels, size) in CONVOLUTIONS.items():
        layer = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        layer.to(memory_format=torch.channels_last)
        x = torch.rand(BATCH, channels, size, size).contiguous(memory_format=torch.channels_last)
        precision = training._precision(layer, torch.device("cpu"))

        def call():
            with precision():  # noqa: B023
                y = layer(x.requires_grad_())  # noqa: B023
            y.backward(y.detach())

        operations = 6 * BATCH * layer.weight.numel() * size**2
        rates[name] = operations / best_seconds(call, seconds / len(CONVOLUTIONS))
    return rates


def mlp(wait, rounds, seconds, profiled):
    """Rates of sgemm and of the three versions of training, in turns."""
    info = BENCHMARKS["mnist"]
    sets = random_sets(info.shape, 100 * BATCH)
    operations = operations_of(build_model(info.model, info.shape, 0.5, seed=0), info.shape)
    result = {"sgemm": [], "operations": operations, **{version: [] for version in VERSIONS}}
    for _ in range(rounds):
        wait()
        result["sgemm"].append(sgemm_rates(seconds))
        for version in VERSIONS:
            clock = Clock(wait, seconds)
            train_until(clock, info, sets, version)
            result[version].append(operations / clock.per_step)
    result["breakdown"] = {}
    for version in VERSIONS if profiled else ():
        watch = Profile(profiled)
        train_until(watch, info, sets, version)
        result["breakdown"][version] = watch.breakdown()
    return result


def resnet(wait, rounds, seconds):
    """Rates of the large convolutions alone and of training, in turns."""
    info = BENCHMARKS["cifar10"]
    sets = random_sets(info.shape, 4 * BATCH)
    operations = operations_of(build_model(info.model, info.shape, 0.5, seed=0), info.shape)
    result = {"convolution": [], "operations": operations, "shifted": []}
    for _ in range(rounds):
        wait()
        result["convolution"].append(convolution_rates(seconds))
        clock = Clock(wait, seconds, warm_up=1)
        train_until(clock, info, sets, "shifted")
        result["shifted"].append(operations / clock.per_step)
    return result


def summary(results, limit, versions):
    """Add up processes that ran side by side; return rates and their shares of the limit."""
    rounds = range(len(results[0][limit]))
    shapes = {
        shape: max(sum(r[limit][i][shape] for r in results) for i in rounds)
        for shape in results[0][limit][0]
    }
    best = max(shapes.values())
    rates = {v: max(sum(r[v][i] for r in results) for i in rounds) for v in versions}
    return {
        limit: {shape: round(rate / 1e9, 1) for shape, rate in shapes.items()},
        "limit": round(best / 1e9, 1),
        "rate": {v: round(rate / 1e9, 1) for v, rate in rates.items()},
        "milliseconds_per_step": {
            v: round(1e3 * len(results) * results[0]["operations"] / rate, 3)
            for v, rate in rates.items()
        },
        "percent": {v: round(100 * rate / best, 1) for v, rate in rates.items()},
        "breakdown_percent": {
            v: {part: round(100 * share, 1) for part, share in shares.items()}
            for v, shares in results[0].get("breakdown", {}).items()
        },
    }


def show(title, found, limit):
    print(f"\n{title}")
    for name, rate in found[limit].items():
        print(f"  {limit} {name:16} {rate:7.1f} Gflop/s")
    for version, percent in found["percent"].items():
        step, rate = found["milliseconds_per_step"][version], found["rate"][version]
        print(f"  {version:8} {step:8.2f} ms a step, {rate:6.1f} Gflop/s: {percent:5.1f} %")
    breakdown = found["breakdown_percent"]
    for part in PARTS if breakdown else ():
        numbers = "".join(f"{version} {breakdown[version][part]:5.1f} %   " for version in VERSIONS)
        print(f"    {part:16} {numbers}")


def main():
    options = parse_options("step_cost")
    quick = options.quick
    job = {"rounds": 1 if quick else 5, "seconds": 0.1 if quick else 1.5}
    profiled = 3 if quick else 100
    alone = {"profiled": profiled, **job}
    places = {
        "one_thread": lambda: [measured("mlp", threads=1, **alone)],
        "two_threads": lambda: [measured("mlp", threads=2, **alone)],
        "two_sleepless_threads": lambda: [measured("mlp", threads=2, sleepless=True, **alone)],
        "two_processes": lambda: measured_together("mlp", *[job | {"profiled": 0}] * 2, threads=1),
    }
    titles = (
        "one thread",
        "two threads",
        "two threads with OMP_WAIT_POLICY=active",
        "two processes of one thread, side by side",
    )
    found = {"mlp": {}, "resnet32": {}}
    for (name, run), title in zip(places.items(), titles, strict=True):
        found["mlp"][name] = summary(run(), "sgemm", VERSIONS)
        show(f"the paper's MLP, {title}", found["mlp"][name], "sgemm")
    job = {"rounds": 1 if quick else 2, "seconds": 0.1 if quick else 5.0}
    for name, runs, threads in (("two_threads", 1, 2), ("two_processes", 2, 1)):
        results = measured_together("resnet", *[job] * runs, threads=threads)
        found["resnet32"][name] = summary(results, "convolution", ("shifted",))
        title = titles[list(places).index(name)]
        show(f"ResNet-32, {title}", found["resnet32"][name], "convolution")
    write_results(options, found)


if __name__ == "__main__":
    run_as_child(mlp, resnet)
    main()
