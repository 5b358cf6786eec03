"""What choosing costs: time to choose method, model and strength over one fit of what was chosen.

    python benchmarks/choosing_cost.py [--cases wide] [--again]

`UnmixClassifier` with all defaults, one thread, a process for each case and part: the fit that
chooses, then the same method, model and strength without choosing (`hide_sets=False`). Processor
seconds and the peak of memory over that of the rows. One line for each in
results/choosing_cost.jsonl.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
from measuring import measured, open_runs, peak_memory, run_as_child

# rows, columns, sets
CASES = {
    "small": (8_000, 20, 50),
    "wide": (36_000, 179, 25),
    "many sets": (400_000, 20, 8_000),
    "a million rows": (1_000_000, 20, 1_000),
}


def draw(case, quick):
    """Return rows, sets and exact shares of natural sets, each with an effect of its own."""
    rows, columns, num_sets = CASES[case]
    rows, num_sets = (rows // 40, num_sets // 4) if quick else (rows, num_sets)
    rng = np.random.default_rng(0)
    sets = np.sort(rng.integers(num_sets, size=rows))
    sets[:num_sets] = np.arange(num_sets)
    x = rng.normal(size=(rows, columns)).astype(np.float32)
    x += rng.normal(scale=0.4, size=(num_sets, columns)).astype(np.float32)[sets]
    slopes = np.linspace(1, -1, columns) / np.sqrt(columns / 4)
    logits = x @ slopes - 0.5 + rng.normal(scale=0.4, size=num_sets)[sets]
    labels = rng.random(rows) < 1 / (1 + np.exp(-logits))
    shares = np.bincount(sets, labels, num_sets) / np.bincount(sets, minlength=num_sets)
    return x, sets, dict(enumerate(shares))


def fit(wait, case, quick, told):
    """Fit as told; return what was used and what it cost."""
    from unmix import UnmixClassifier

    warnings.simplefilter("ignore")
    x, sets, shares = draw(case, quick)
    wait()
    before, started = peak_memory(), time.process_time()
    clf = UnmixClassifier(shares, random_state=0, **told).fit(x, sets)
    used = {"method": clf.method_, "model": clf.model_, "l2": clf.learner_.setup.l2}
    seconds = time.process_time() - started
    return used | {"seconds": seconds, "over_rows_mb": peak_memory() - before}


def compared(case, quick=False):
    """Fit with choosing and without."""
    auto = measured("fit", threads=1, case=case, quick=quick, told={})
    used = {key: auto.pop(key) for key in ("method", "model", "l2")}
    alone = measured("fit", threads=1, case=case, quick=quick, told=used | {"hide_sets": False})
    choosing = auto["seconds"] - alone["seconds"]
    size = dict(zip(("rows", "columns", "sets"), CASES[case], strict=True))
    return (
        size
        | used
        | {
            "fit_seconds": alone["seconds"],
            "choosing_seconds": choosing,
            "ratio": choosing / alone["seconds"],
            "fit_mb": round(alone["over_rows_mb"]),
            "all_mb": round(auto["over_rows_mb"]),
        }
    )


def main():
    run_as_child(fit)
    options, runs = open_runs("choosing_cost", cases="")
    for case in CASES:
        if options.cases in case:
            runs.once(compared, case=case, **({"quick": True} if options.quick else {}))


if __name__ == "__main__":
    main()
