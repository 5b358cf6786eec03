"""One, two and three groupings of the same rows, of 8 sets each: the AUC of what is learned.

    python benchmarks/several_groupings.py [--draws 20]

4,000 rows with 6 features; each grouping cuts them into 8 sets by a score of its own. Shares are
those of the rows. Two kinds of sets:

label shift      the score of a grouping is the class and noise, so that p(x | class) is shared: ssc
covariate shift  it is a random direction of the features and noise: set-effects

A linear model whose strength is fixed (l2 = 0.01; `--strengths chosen`: by held-out sets, of which
there are few). AUC over all rows, whose labels nothing
else sees. Writes results/several_groupings.json.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from unmix import UnmixClassifier

ROWS, DIM, SETS, MOST = 4000, 6, 8, 3
METHODS = {"label shift": "ssc", "covariate shift": "set-effects"}
RESULTS = Path(__file__).parent / "results" / "several_groupings.json"


def draw(kind, rng):
    """Return rows, labels, the sets of each grouping and their shares."""
    x = rng.normal(size=(ROWS, DIM))
    if kind == "label shift":
        labels = rng.random(ROWS) < 0.4
        slope = rng.normal(size=DIM)
        x += 0.6 * labels[:, None] * slope / np.linalg.norm(slope) * np.sqrt(DIM)
    else:
        slope = rng.normal(size=DIM)
        labels = rng.random(ROWS) < 1 / (1 + np.exp(-1.5 * x @ slope / np.linalg.norm(slope)))
    sets, shares = {}, {}
    for name in ("first", "second", "third")[:MOST]:
        if kind == "label shift":
            score = 0.4 * labels + rng.normal(size=ROWS)
        else:
            direction = rng.normal(size=DIM)
            score = 0.5 * x @ direction / np.linalg.norm(direction) + rng.normal(size=ROWS)
        cuts = np.quantile(score, np.arange(1, SETS) / SETS)
        sets[name] = np.digitize(score, cuts)
        shares[name] = pd.Series(labels).groupby(sets[name]).mean()
    return x, labels.astype(int), pd.DataFrame(sets), shares


def aucs(kind, seed, l2):
    """Return the AUC with one, two and three groupings."""
    x, labels, sets, shares = draw(kind, np.random.default_rng(seed))
    found = []
    for number in range(1, MOST + 1):
        columns = list(sets.columns[:number])
        clf = UnmixClassifier(
            {name: shares[name] for name in columns},
            model="linear",
            method=METHODS[kind],
            l2=l2,
            hide_sets=l2 is None,
            random_state=0,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            clf.fit(x, sets[columns])
        found.append(float(roc_auc_score(labels, clf.decision_function(x))))
    return found


def main():
    """Run the draws and write their means."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--strengths", default="fixed", help="fixed, chosen or both")
    options = parser.parse_args()
    strengths = {"fixed": 0.01, "chosen": None}
    names = list(strengths) if options.strengths == "both" else [options.strengths]
    table = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for kind in METHODS:
        for name in names:
            found = np.array([aucs(kind, seed, strengths[name]) for seed in range(options.draws)])
            table[f"{kind}, strength {name}"] = {
                "draws": options.draws,
                "auc": found.mean(axis=0).round(4).tolist(),
                "error": (found.std(axis=0, ddof=1) / np.sqrt(len(found))).round(4).tolist(),
            }
            print(kind, name, table[f"{kind}, strength {name}"], flush=True)
            RESULTS.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
