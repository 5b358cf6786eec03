"""Simulated sets: is the right assumption chosen, do the intervals hold, is nothing claimed?

    python benchmarks/simulated_sets.py [--parts chosen,nothing] [--again]

Five kinds of sets, 20 draws each, method 'auto' and model 'linear' or 'auto':

label shift      40 sets of 200 rows, p(x | class) shared, shares of a population in [.1, .9]
covariate shift  40 sets of 200 rows, p(class | x) shared, exact shares
set effects      the same, and each set adds N(0, .4^2) to every logit
random sets      300 sets of 16 rows put together by chance, exact counts
noise            300 sets of 32 rows under label shift, counts with Laplace noise of scale 2, as
                 the table of rates says

The right family is the assumption. Sets put together by chance meet every assumption, and only
`count` uses all they tell: there it is `count`. Intervals: the share of the rows of 5 new sets in
each draw, and of 3 groups that cross the known sets, by a feature that matters. Without signal: 100
draws each with 12 and 40 sets whose rows have nothing to do with their shares.
One line for each draw in results/simulated_sets.jsonl.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
import pandas as pd
from measuring import open_runs

from unmix import UnmixClassifier, read_rates

DIM, NEW_SETS = 5, 5
NOISE = 2.0  # scale of Laplace noise in counts
SLOPES = np.array([1.0, -0.8, 0.5, 0.0, 0.0])
KINDS = {
    "label shift": {"ssc", "count"},
    "covariate shift": {"set-effects", "proportion"},
    "set effects": {"set-effects"},
    "random sets": {"count"},
    "noise": {"ssc", "count"},
}
MODELS = ("linear", "auto")
COLUMNS = ["part", "kind", "sets", "model", "method", "right", "new_sets", "by_group"]
COLUMNS += ["shown", "word", "seconds"]


def logistic(z):
    return 1 / (1 + np.exp(-z))


def draw(kind, rng):
    """Return rows, sets, labels, stated shares and the number of sets; the last sets are new."""
    num_sets, rows = {"random sets": (300, 16), "noise": (300, 32)}.get(kind, (40, 200))
    new_rows = 200
    sizes = np.repeat([rows, new_rows], [num_sets, NEW_SETS])
    sets = np.repeat(np.arange(len(sizes)), sizes)
    rates = None
    if kind in ("label shift", "noise"):
        rates = rng.uniform(0.1, 0.9, len(sizes))
        labels = rng.random(len(sets)) < rates[sets]
        x = rng.normal(size=(len(sets), DIM)) + 1.5 * labels[:, None] * SLOPES
    else:
        spread, tau = {"covariate shift": (0.4, 0), "set effects": (0.4, 0.4)}.get(kind, (0, 0))
        x = rng.normal(size=(len(sets), DIM))
        x += rng.normal(scale=spread, size=(len(sizes), DIM))[sets]
        effect = rng.normal(scale=tau, size=len(sizes))[sets] if tau else 0
        labels = rng.random(len(sets)) < logistic(1.5 * x @ SLOPES - 0.5 + effect)
    counts = np.bincount(sets, labels).astype(float)
    if kind == "noise":
        counts += rng.laplace(scale=NOISE, size=len(counts))
    stated = rates if kind == "label shift" else counts / sizes
    return x, sets, labels, stated, num_sets


def fitted(kind, model, rng, seed):
    """Draw sets and fit to all but the new ones; how large the noise is, the user says."""
    x, sets, labels, stated, num_sets = draw(kind, rng)
    seen = sets < num_sets
    rates = pd.DataFrame({"set": range(num_sets), "share": stated[:num_sets]})
    if kind == "noise":
        rows = np.bincount(sets)[:num_sets]
        rates = pd.DataFrame({"set": range(num_sets), "positives": rates["share"] * rows})
        rates = rates.assign(total=rows, laplace_noise=NOISE)
    clf = UnmixClassifier(read_rates(rates), model=model, random_state=seed)
    return clf.fit(x[seen], sets[seen]), x, sets, labels, seen


def chosen(part, kind, model, draw):
    """Say what was chosen, and how many intervals hold the share they are for."""
    started = time.perf_counter()
    rng = np.random.default_rng([draw, [*KINDS].index(kind)])
    clf, x, sets, labels, seen = fitted(kind, model, rng, draw)
    gain = clf.gains_[clf.method_]
    found = clf.prevalence(x[~seen], sets[~seen])
    truth = pd.Series(labels[~seen]).groupby(sets[~seen]).mean()
    # Groups that cross the known sets, by a feature that matters.
    group = np.digitize(x[seen, 0], [-0.7, 0.7])
    by_group = clf.prevalence(x[seen], sets[seen], by=group)
    of_group = pd.Series(labels[seen]).groupby(group).mean()
    return {
        "method": clf.method_,
        "fitted": clf.model_,
        "right": clf.method_ in KINDS[kind],
        "z": gain.z,
        "shown": bool(gain.shown),
        "gains": {k: [round(g.gain, 3), round(g.z, 2)] for k, g in clf.gains_.items()},
        "tau": float(clf.learner_.tau),
        "new_sets": held(found.sets, truth),
        "by_group": held(by_group.groups, of_group),
        "seconds": round(time.perf_counter() - started, 1),
    }


def held(found, truth):
    """Return how many intervals hold the true share, and how many there are."""
    return [
        int(sum(s.low <= t <= s.high for s, t in zip(found, truth, strict=True))),
        len(truth),
    ]


def nothing(part, sets, model, draw):
    """Fit to sets whose rows say nothing about their shares."""
    started = time.perf_counter()
    rng = np.random.default_rng([draw, sets])
    index = np.repeat(np.arange(sets), 100)
    x, shares = rng.normal(size=(len(index), 4)), rng.uniform(0.3, 0.7, sets)
    clf = UnmixClassifier(dict(enumerate(shares)), model=model, random_state=draw).fit(x, index)
    best = max(clf.gains_.values(), key=lambda gain: gain.z)
    return {
        "method": clf.method_,
        "fitted": clf.model_,
        "z": best.z,
        "shown": bool(best.shown),
        "word": best.word,
        "seconds": round(time.perf_counter() - started, 1),
    }


def main():
    options, runs = open_runs(
        "simulated_sets", parts="chosen,nothing", draws=20, models=",".join(MODELS), kinds=""
    )
    warnings.simplefilter("ignore")
    draws = 1 if options.quick else options.draws
    for model in options.models.split(","):
        for number in range(draws):
            for kind in KINDS if "chosen" in options.parts else ():
                if options.kinds in kind:
                    runs.once(chosen, part="chosen", kind=kind, model=model, draw=number)
        for number in range(5 * draws):
            for sets in (12, 40) if "nothing" in options.parts else ():
                runs.once(nothing, part="nothing", sets=sets, model=model, draw=number)
    summary(runs.lines)


def summary(lines):
    """Print how often the right family was chosen, intervals held and nothing was claimed."""
    # Either part may not have been run.
    table = pd.DataFrame(lines).reindex(columns=COLUMNS)
    for (kind, model), rows in table[table.part == "chosen"].groupby(["kind", "model"]):
        share, by_group = (
            np.mean([held / total for held, total in rows[name].dropna()])
            for name in ("new_sets", "by_group")
        )
        print(
            f"{kind}, {model}: right in {rows['right'].sum()} of {len(rows)} "
            f"{rows['method'].value_counts().to_dict()}, intervals of new sets hold {share:.0%}, "
            f"of groups {by_group:.0%}, {rows['seconds'].mean():.1f} s"
        )
    for (sets, model), rows in table[table.part == "nothing"].groupby(["sets", "model"]):
        clear = (rows["word"] == "clear").sum()
        print(
            f"no signal, {sets:.0f} sets, {model}: shown in {rows['shown'].sum()} and clear in "
            f"{clear} of {len(rows)}"
        )


if __name__ == "__main__":
    main()
