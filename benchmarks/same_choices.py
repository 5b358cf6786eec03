"""What `auto` chooses, by the code of today and by that of another version.

    python benchmarks/same_choices.py [--version NAME] [--again]

24 small tables: label shift or covariate shift, 20 or 1,000 sets, three draws, lines or trees; the
method, and of a line the strength, are chosen without labels. And 8,000 sets of 50 rows under label
shift, where model and method are free; labels only score it. One line for each in
results/same_choices.jsonl, under the name of the version whose code runs (`PYTHONPATH=other/src`).
"""

import warnings

import numpy as np
from measuring import measured, open_runs, run_as_child

ROWS = {20: 6_000, 1_000: 20_000}
COLUMNS = 10
MANY, ROWS_OF_MANY = 8_000, 50


def table(shift, num_sets, rows, seed):
    """Return rows, the set of each, exact shares, labels."""
    rng = np.random.default_rng([seed, num_sets])
    sets = rng.permutation(np.arange(rows) % num_sets)
    x = rng.normal(size=(rows, COLUMNS))
    slopes = np.linspace(1, -1, COLUMNS)
    if shift == "label":
        labels = rng.random(rows) < rng.uniform(0.1, 0.9, num_sets)[sets]
        x += 0.5 * labels[:, None] * slopes
    else:
        x += rng.normal(scale=0.5, size=(num_sets, COLUMNS))[sets]
        labels = rng.random(rows) < 1 / (1 + np.exp(-x @ slopes))
    shares = np.bincount(sets, labels, num_sets) / np.bincount(sets, minlength=num_sets)
    return x, sets, dict(enumerate(shares)), labels


def choice(wait, shift, sets, seed, model):
    """Return what is chosen, and the squared error of the probabilities."""
    from unmix import UnmixClassifier

    warnings.simplefilter("ignore")
    rows = ROWS.get(sets, sets * ROWS_OF_MANY)
    x, index, shares, labels = table(shift, sets, rows, seed)
    clf = UnmixClassifier(shares, model=model, random_state=seed).fit(x, index)
    probability = clf.predict_proba(x)[:, 1]
    return {
        "method": clf.method_,
        "used": clf.model_,
        "l2": clf.learner_.setup.l2,
        "gains": {name: round(gain.gain, 5) for name, gain in clf.gains_.items()},
        "brier": float(np.mean((probability - labels) ** 2)),
    }


def main():
    options, runs = open_runs("same_choices", version="now", threads=1)

    def run(**key):
        runs.once(
            lambda version, **job: measured("choice", threads=options.threads, **job),
            version=options.version,
            **key,
        )

    if options.quick:
        run(shift="label", sets=20, seed=0, model="linear")
        return
    for model in ("linear", "boosting"):
        for shift in ("label", "covariate"):
            for sets in ROWS:
                for seed in range(3):
                    run(shift=shift, sets=sets, seed=seed, model=model)
    run(shift="label", sets=MANY, seed=0, model="auto")


if __name__ == "__main__":
    run_as_child(choice)
    main()
