"""The small network that tables of millions of rows get, beside larger ones: time and AUC.

    python benchmarks/small_network.py [--quick] [--rows 2500000] [--epochs 4]

Four tables of 20 columns whose surfaces differ: `plain` is that of bigger_than_memory.py, `waves`
has products and oscillations, `boxes` has edges, `teacher` is a random network of 30 and 15 tanh
units. Ten sets (plain: 300). Each network sees the same rows as often, on one thread: the one a
large table gets (two layers of 48 units), a wider one by the same schedule, and the paper's (three
layers of 300 units with dropout) by the schedule of smaller tables. Scored by the labels of
100,000 rows that nobody trained on; `best` is the AUC of the true surface.
"""

import time
from unittest.mock import patch

import numpy as np
import torch
from bigger_than_memory import SETS, draw
from measuring import parse_options, write_results
from sklearn.metrics import roc_auc_score

from unmix.data.sets import UnlabeledSets
from unmix.learn import recipes
from unmix.learn.models import Setup, fit_learner

COLUMNS, SCORED = 20, 100_000
NETWORKS = {"small": None, "wider": (2, 96), "paper": (3, 300)}


def waves(x):
    parts = np.sin(2 * x[:, 0]) * x[:, 1] + abs(x[:, 2]) - abs(x[:, 3]) + x[:, 4] * x[:, 5]
    return 2 * parts + np.cos(3 * x[:, 6])


def boxes(x):
    corner = np.sign(x[:, 0]) * np.sign(x[:, 1] - 0.5)
    return 1.5 * corner + 3.0 * (abs(x[:, 2]) < 0.7) + 3.0 * (x[:, 3] + x[:, 4] > 1) - 3.0


def teacher(x):
    rng = np.random.default_rng(12)
    first, second = rng.normal(size=(COLUMNS, 30)) * 0.6, rng.normal(size=(30, 15)) * 0.5
    return 1.2 * np.tanh(np.tanh(x @ first) @ second) @ rng.normal(size=15)


SURFACES = {"plain": None, "waves": waves, "boxes": boxes, "teacher": teacher}


def labeled_rows(rng, surface, num_rows):
    """Return rows of the whole population, their labels and the surface."""
    x = rng.standard_normal((num_rows, COLUMNS), dtype=np.float32)
    log_odds = surface(x)
    return x, rng.random(num_rows) < 1 / (1 + np.exp(-log_odds)), log_odds


def make_table(name, num_rows, seed):
    """Return sets to learn from, rows to score, their labels, and the best possible AUC."""
    rng = np.random.default_rng([seed, len(name)])
    if name == "plain":
        priors = np.random.default_rng(0).uniform(0.1, 0.9, SETS)
        index = rng.integers(SETS, size=num_rows)
        x, _ = draw(rng, index, priors)
        new, positive = draw(rng, rng.integers(SETS, size=SCORED), priors)
        best = 0.4 * new[:, :5].sum(1) + new[:, 5] ** 2 * (1 - 1 / 1.5**2) / 2  # log-odds
        return UnlabeledSets(x, index, priors, 0.5), new, positive, roc_auc_score(positive, best)
    priors = np.linspace(0.1, 0.9, 10)
    index = rng.integers(10, size=num_rows)
    wanted = rng.random(num_rows) < priors[index]
    pool, labels, _ = labeled_rows(rng, SURFACES[name], 2 * num_rows)
    rows = np.empty(num_rows, dtype=np.int64)
    for side in (False, True):
        rows[wanted == side] = np.flatnonzero(labels == side)[: np.sum(wanted == side)]
    new, positive, log_odds = labeled_rows(rng, SURFACES[name], SCORED)
    return (
        UnlabeledSets(pool[rows], index, priors, 0.5),
        new,
        positive,
        roc_auc_score(positive, log_odds),
    )


def main():
    options = parse_options("small_network", rows=2_500_000, epochs=4, seed=6)
    if options.quick:
        options.rows, options.epochs = 20_000, 1
    torch.set_num_threads(1)
    found = {"rows": options.rows, "epochs": options.epochs, "lines": []}
    for surface in SURFACES:
        sets, new, positive, best = make_table(surface, options.rows, options.seed)
        line = {"surface": surface, "best": best}
        for name, hidden in NETWORKS.items():
            setup = Setup("mlp", "ssc", epochs=options.epochs, hidden=hidden)
            many = 10**12 if name == "paper" else 0
            started = time.process_time()
            with patch.object(recipes, "MANY_ROWS", many):
                fit = fit_learner(sets, setup)
            seconds = time.process_time() - started
            line[name] = {"auc": roc_auc_score(positive, fit.logits(new)), "seconds": seconds}
        found["lines"].append(line)
        print(line, flush=True)
        write_results(options, found)


if __name__ == "__main__":
    main()
