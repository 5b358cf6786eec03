"""Small sets with exact counts (MNIST, even or odd): count likelihood, ssc and proportion.

    python benchmarks/small_sets.py [--models mlp,linear,boosting]

16,384 training images in random sets of 8, 32 and 128, and 500 sets of 33 whose shares of even
digits lie between 0.1 and 0.9. No image has a label; the count of each set is exact. Test errors in
percent over seeds 0, 1 and 2, and the same model with all labels.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
import torch
from measuring import parse_options, write_results

from unmix import UnmixClassifier
from unmix.data.benchmarks import load_benchmark

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


def principal(mnist, components=64):
    """Images as principal components, for models of tables."""
    from sklearn.decomposition import PCA

    flat = [x.reshape(len(x), -1) / 255 for x in (mnist.x_train, mnist.x_test)]
    pca = PCA(components, random_state=0).fit(flat[0][:10_000])
    return [pca.transform(x) for x in flat]


def main():
    options = parse_options("small_sets", models="mlp,linear,boosting", kinds=",".join(KINDS))
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    mnist = load_benchmark("mnist")
    vectors = principal(mnist)
    found = []
    for model in options.models.split(","):
        x_train, x_test = (mnist.x_train, mnist.x_test) if model == "mlp" else vectors
        for kind in options.kinds.split(","):
            for method in (*METHODS[model], "all labels"):
                errors, started = [], time.perf_counter()
                for seed in SEEDS:
                    rows, sets, shares = draw(mnist, kind, seed)
                    told = {"model": model, "random_state": seed, "hide_sets": False}
                    if method == "all labels":
                        clf = UnmixClassifier(**told).fit(x_train[rows], mnist.y_train[rows])
                    else:
                        priors = dict(enumerate(shares))
                        clf = UnmixClassifier(priors, target_prior=0.49, method=method, **told)
                        clf.fit(x_train[rows], sets)
                    errors.append(100 * np.mean(clf.predict(x_test) != mnist.y_test))
                row = {
                    "model": model,
                    "sets": kind,
                    "method": method,
                    "errors": [round(float(error), 2) for error in errors],
                    "mean": round(float(np.mean(errors)), 2),
                    "seconds": round((time.perf_counter() - started) / len(SEEDS), 1),
                }
                found.append(row)
                print(row, flush=True)
    write_results(options, {"runs": found})


if __name__ == "__main__":
    main()
