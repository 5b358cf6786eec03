"""Adult income in 26 ways of forming sets, beside eight published methods (needs the data).

    python benchmarks/llp_adult.py [--runs 3] [--variants naive-small] [--again]

The collection of "The Complex Landscape of LLP Evaluation" under UNMIX_DATA/llp-adult: its rows,
its sets and what it published. Run e divides all rows by `ShuffleSplit(test_size=.25)` with the
e-th seed of that study; the shares are those of the training rows of each set. `UnmixClassifier`
with all its defaults; labels only score the test rows. One line for each run in
results/llp_adult.jsonl, and a run that is there is not made again; docs/build_llp_adult.py makes
the page of it.
"""

from __future__ import annotations

import os
import time
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import open_runs
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.model_selection import ShuffleSplit

from unmix import UnmixClassifier

DATA = Path(os.environ.get("UNMIX_DATA", "data")) / "llp-adult"
SEEDS = (189395, 962432364, 832061813, 316313123, 1090792484)  # of the published runs
ROWS_TO_TRY = 2_000  # with --quick


@cache
def read(name):
    """Return a table of the collection."""
    return pd.read_parquet(DATA / f"{name}.parquet")


def published(variant):
    """Return the best accuracy that was published, by whom, and the best F1."""
    table = pd.read_csv(DATA / "published.csv")
    table = table[table["variant"] == variant]
    best = table.loc[table["accuracy"].idxmax()]
    return {
        "published": float(best["accuracy"]),
        "published_by": best["model"],
        "published_f1": float(table["f1"].max()),
    }


def trained(variant, run, quick=False):
    """Train on three quarters of the rows and score the others by their labels."""
    rows, sets = read("adult"), read("bags")[variant].to_numpy()
    x, y = rows.drop(columns="y"), rows["y"].to_numpy()
    if quick:
        x, y, sets = x[:ROWS_TO_TRY], y[:ROWS_TO_TRY], sets[:ROWS_TO_TRY]
    majority_of_all = float(max(y.mean(), 1 - y.mean()))
    split = ShuffleSplit(n_splits=1, test_size=0.25, random_state=SEEDS[run])
    train, test = next(split.split(x))
    shares = pd.Series(y[train]).groupby(sets[train]).mean()
    started = time.perf_counter()
    clf = UnmixClassifier(shares, random_state=run).fit(x.iloc[train], sets[train])
    seconds = time.perf_counter() - started
    known = np.isin(sets[test], shares.index)
    x, y, sets = x.iloc[test][known], y[test][known], sets[test][known]
    chosen = clf.predict(x)
    aware = clf.predict_proba(x, sets=sets)[:, 1]
    gain = clf.gains_.get(clf.method_)
    return {
        "sets": len(shares),
        "accuracy": float(np.mean(chosen == y)),
        "f1": float(f1_score(y, chosen)),
        "auc": float(roc_auc_score(y, clf.predict_proba(x)[:, 1])),
        "aware_accuracy": float(np.mean((aware > 0.5) == y)),
        "aware_f1": float(f1_score(y, aware > 0.5)),
        "method": clf.method_,
        "model": clf.model_,
        "z": gain.z if gain else None,
        "shown": bool(gain and gain.shown),
        "gains": {k: [round(g.gain, 3), round(g.z, 2)] for k, g in clf.gains_.items()},
        "tau": float(clf.learner_.tau),
        "majority": float(max(y.mean(), 1 - y.mean())),
        "majority_of_all": majority_of_all,
        "seconds": round(seconds, 1),
    } | published(variant)


def main():
    options, runs = open_runs("llp_adult", runs=3, variants="")
    warnings.simplefilter("ignore")
    variants = [name for name in read("bags").columns if options.variants in name]
    quick = {"quick": True} if options.quick else {}
    for e in range(options.runs):
        for variant in variants:
            runs.once(trained, variant=variant, run=e, **quick)


if __name__ == "__main__":
    main()
