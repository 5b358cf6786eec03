"""Small sets with exact counts (MNIST, even or odd): count likelihood, ssc and proportion.

    python benchmarks/small_sets.py [--models mlp,linear,boosting] [--kinds 8,32] [--again]

16,384 training images in random sets of 8, 32 and 128, and 500 sets of 33 whose shares of even
digits lie between 0.1 and 0.9. No image has a label; the count of each set is exact. Test errors in
percent for seeds 0, 1 and 2, and the same model with all labels: one line each in
results/small_sets.jsonl.
"""

from __future__ import annotations

import time
import warnings
from functools import cache

import numpy as np
import pandas as pd
import torch
from measuring import open_runs

from unmix import UnmixClassifier
from unmix.data.benchmark_files import load_benchmark

ROWS, SEEDS = 16_384, (0, 1, 2)
KINDS = ("8", "32", "128", "U^m")
METHODS = {"mlp": ("ssc", "proportion", "count"), "linear": ("ssc", "proportion", "count")}
METHODS["boosting"] = ("ssc", "count")


def draw(mnist, kind, seed):
    """Images, the set of each and the shares of the sets."""
    rng = np.random.default_rng([seed, 5])
    labels = mnist.y_train
    if kind != "U^m":
        rows = rng.permutation(len(labels))[:ROWS]
        sets = np.arange(ROWS) // int(kind)
        return rows, sets, np.bincount(sets, labels[rows]) / int(kind)
    positive, negative = (iter(rng.permutation(np.flatnonzero(labels == y))) for y in (1, 0))
    counts = np.round(33 * rng.uniform(0.1, 0.9, 500)).astype(int)
    rows = [next(positive if i < count else negative) for count in counts for i in range(33)]
    return np.array(rows), np.repeat(np.arange(500), 33), counts / 33


@cache
def images():
    """Return the collection of digits."""
    return load_benchmark("mnist")


@cache
def principal(components=64):
    """Return images as principal components, for models of tables."""
    from sklearn.decomposition import PCA

    mnist = images()
    flat = [x.reshape(len(x), -1) / 255 for x in (mnist.x_train, mnist.x_test)]
    pca = PCA(components, random_state=0).fit(flat[0][:10_000])
    return [pca.transform(x) for x in flat]


def trained(model, sets, method, seed):
    """Train on one draw; return the test error in percent."""
    mnist = images()
    x_train, x_test = (mnist.x_train, mnist.x_test) if model == "mlp" else principal()
    rows, index, shares = draw(mnist, sets, seed)
    told = {"model": model, "random_state": seed, "hide_sets": False}
    started = time.perf_counter()
    if method == "all labels":
        clf = UnmixClassifier(**told).fit(x_train[rows], mnist.y_train[rows])
    else:
        priors = dict(enumerate(shares))
        clf = UnmixClassifier(priors, target_prior=0.49, method=method, **told)
        clf.fit(x_train[rows], index)
    seconds = round(time.perf_counter() - started, 1)
    error = 100 * np.mean(clf.predict(x_test) != mnist.y_test)
    return {"error": round(float(error), 2), "seconds": seconds}


def main():
    options, runs = open_runs(
        "small_sets", models="mlp,linear,boosting", kinds=",".join(KINDS), seeds=len(SEEDS)
    )
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    seeds = SEEDS[: 1 if options.quick else options.seeds]
    for model in options.models.split(","):
        for kind in options.kinds.split(","):
            for seed in seeds:
                for method in (*METHODS[model], "all labels"):
                    runs.once(trained, model=model, sets=kind, method=method, seed=seed)
    table = pd.DataFrame(runs.lines)
    print(table.groupby(["model", "sets", "method"])["error"].agg(["mean", "count"]).round(2))


if __name__ == "__main__":
    main()
