"""CIFAR-10, ten classes, random sets of 16 to 128 images with exact counts: count, ssc and labels.

    python benchmarks/cifar_bags.py [--sizes 16,32,64,128] [--methods count,ssc] [--epochs 6]

The protocol of papers on learning from label proportions: the 50,000 training images in random
sets, the count of each of the ten classes known for every set, test accuracy. Theirs is a ResNet-18
on whole images for many epochs; here it is three convolutions on images at half their height and
width for a few, beside the same network with every label. A twentieth of the sets is held out, and
their count likelihood chooses an epoch. Runs are kept in results/cifar_bags.jsonl, an interrupted
one resumes, and docs/results.md shows them.
"""

import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from measuring import open_runs
from torch import nn
from torch.nn import functional

from unmix.core.set_risks import CountRisk
from unmix.data.benchmark_files import dataset_folder
from unmix.data.benchmarks import CIFAR_NAMES
from unmix.data.formats import read_cifar_binary
from unmix.data.sets import UnlabeledSets
from unmix.learn.augment import Augment
from unmix.learn.checkpoint import Checkpoint
from unmix.learn.methods import METHODS
from unmix.learn.recipes import Recipe
from unmix.learn.training import logits_of, train

CLASSES = 10
EVEN = np.full(CLASSES, 1 / CLASSES)
ALL_LABELS = "all labels"
HELD_OUT = 0.05  # of the sets


class Convolutions(nn.Module):
    """Three convolutions with batch norm, each halving the image, and the mean of what is left."""

    def __init__(self):
        super().__init__()
        layers, channels = [], 3
        for width, stride in ((32, 1), (64, 2), (128, 2)):
            layers += [nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)]
            layers += [nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
        self.body, self.head = nn.Sequential(*layers), nn.Linear(channels, CLASSES)

    def forward(self, x):
        """Return logits (n, 10)."""
        return self.head(self.body(x).mean(dim=(2, 3)))


def half_size(x):
    """Return images at half their height and width, as bytes."""
    return functional.avg_pool2d(torch.from_numpy(x).float(), 2).round().byte().numpy()


def images():
    """Return training images and classes, and those for testing."""
    folder = dataset_folder("cifar10")
    *batches, test = (read_cifar_binary(folder / name) for name in CIFAR_NAMES)
    x, y = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    return half_size(x), y.astype(int), half_size(test[0]), test[1].astype(int)


def random_sets(x, y, size, seed):
    """Return images in random sets of a size, whose counts are known."""
    order = np.random.default_rng([seed, 5]).permutation(len(y))
    order = order[: len(y) // size * size]
    index = np.arange(len(order)) // size
    counts = np.zeros((index[-1] + 1, CLASSES))
    np.add.at(counts, (index, y[order]), 1)
    return UnlabeledSets(x[order], index, counts / size, EVEN)


def count_loss(model, sets):
    """Return the mean negative log-likelihood, per image, of the counts of whole sets."""
    logits = logits_of(model, sets.x).double().numpy()
    return CountRisk(sets.scoring_transition).value_and_gradient(logits, sets.set_index)[0]


def accuracy(size, method, epochs, seed, rows=None):
    """Train on sets of a size, or with all labels; return test accuracies in percent."""
    x, y, x_test, y_test = images()
    x, y = x[:rows], y[:rows]
    held_out = None
    if method == ALL_LABELS:
        sets = UnlabeledSets(x, y, np.eye(CLASSES), EVEN)
    else:
        whole = random_sets(x, y, size, seed)
        mixed = np.random.default_rng([seed, 3]).permutation(whole.num_sets)
        number = max(1, round(HELD_OUT * whole.num_sets))
        sets, held_out = whole.take_sets(mixed[number:]), whole.take_sets(mixed[:number])
    torch.manual_seed(seed)
    recipe = Recipe(
        "cifar-bags",
        epochs,
        4e-3,
        "cosine",
        batch_size=256,
        weight_decay=0.01,
        average=0.99,
        augment=True,
    )

    def hits(model):
        return {
            "accuracy": 100 * float((logits_of(model, x_test).argmax(1).numpy() == y_test).mean())
        }

    key = {"size": size, "method": method, "epochs": epochs, "seed": seed, "rows": rows}
    folder = Path(tempfile.gettempdir(), "unmix-cifar-bags", "-".join(map(str, key.values())))
    started = time.process_time()
    trained = train(
        Convolutions(),
        sets,
        METHODS["supervised" if method == ALL_LABELS else method],
        recipe,
        seed=seed,
        held_out=held_out,
        judge=count_loss,
        augment=Augment(2, flip=True),
        monitor=hits,
        checkpoint=Checkpoint(folder, key),
    )
    shutil.rmtree(folder)  # what was learned is of this version of the code
    by_epoch = [row["accuracy"] for row in trained.history]
    return {
        "last": by_epoch[-1],
        "chosen": by_epoch[trained.selected_epoch - 1],
        "at": trained.selected_epoch,
        "held_out": [round(row["held_out_loss"], 4) for row in trained.history if held_out],
        "cpu_seconds": time.process_time() - started,
    }


def main():
    """Run what has not been run."""
    torch.set_num_threads(1)
    options, runs = open_runs(
        "cifar_bags", sizes="16,32,64,128", methods="count,ssc", epochs=6, seed=0
    )
    epochs, rows = (1, 2048) if options.quick else (options.epochs, None)
    places = [(0, ALL_LABELS)]
    places += [(int(s), m) for s in options.sizes.split(",") for m in options.methods.split(",")]
    for size, method in places:
        runs.once(
            lambda **key: accuracy(rows=rows, **key),
            size=size,
            method=method,
            epochs=epochs,
            seed=options.seed,
        )


if __name__ == "__main__":
    main()
