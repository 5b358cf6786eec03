"""The cost of having no labels: fits of `UnmixClassifier` beside the same model with labels.

    python benchmarks/beside_supervised.py [--quick] [--repeats 3]

Each ratio is measured in one process, in which both sides take turns; processor seconds, medians,
so that a busy machine slows both alike. Plain: L-BFGS of the same loss as a user of scipy would
write it, on a matrix of float64. With labels: scikit-learn's LogisticRegression and LightGBM's own
objective, the same rounds. Ours is all of `fit`: encoding, checks, fits to resampled sets, and
what else it does; `ours_alone` without hiding sets in turn. Commands: whole processes, `unmix fit`
beside an import of scikit-learn, `unmix predict` beside a bare read, product and write, a fit to a
file that is read in pieces beside a bare scan of it.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measuring import measured, open_runs, run_as_child


def table(rows, columns, sets, classes=2, seed=0):
    """Return rows, the set of each, shares of the sets, and labels."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.ones(classes), sets) * 0.9 + 0.1 / classes
    index = rng.permutation(np.arange(rows) % sets)
    cumulated = shares.cumsum(axis=1)[index]
    labels = (rng.random(rows)[:, None] > cumulated[:, :-1]).sum(axis=1)
    x = rng.normal(size=(rows, columns))
    for k in range(1, classes):
        x[:, (k - 1) % columns] += labels == k
    x[:, 1 % columns] += 0.5 * (labels == classes - 1)
    return x, index, shares, labels


def priors_of(shares):
    if shares.shape[1] == 2:
        return dict(enumerate(shares[:, 1]))
    return {j: dict(enumerate(row)) for j, row in enumerate(shares)}


def seconds(call):
    started = time.process_time()
    call()
    return time.process_time() - started


def in_turns(repeats, **calls):
    """Return the median processor seconds of each call; they take turns."""
    found = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            found[name].append(seconds(call))
    return {name: statistics.median(times) for name, times in found.items()}


def classifier(shares, **options):
    from unmix import UnmixClassifier

    return UnmixClassifier(priors_of(shares), method="ssc", random_state=0, **options)


def plain_fit(x, index, shares, l2):
    """Minimise the SSC loss as one would write it down (two classes)."""
    from scipy.optimize import minimize
    from scipy.special import expit

    weights = np.bincount(index) / len(index)
    positive = shares[:, 1]
    pooled = weights @ positive
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    own = (np.log(positive / pooled) - np.log((1 - positive) / (1 - pooled)))[index]
    constant = np.log((1 - positive) / (1 - pooled))[index]

    def loss(point):
        z = x @ point[1:] + point[0]
        value = np.logaddexp(0, z) - np.logaddexp(0, z + own) - constant
        slope = (expit(z) - expit(z + own)) / len(x)
        gradient = np.concatenate(([slope.sum()], x.T @ slope + 2 * l2 * point[1:]))
        return value.mean() + l2 * (point[1:] ** 2).sum(), gradient

    start = np.zeros(x.shape[1] + 1)
    start[0] = np.log(pooled / (1 - pooled))
    options = {"ftol": 1e-10, "gtol": 1e-6}
    return minimize(loss, start, jac=True, method="L-BFGS-B", options=options)


def linear(wait, rows, columns, sets, repeats):
    from sklearn.linear_model import LogisticRegression

    x, index, shares, labels = table(rows, columns, sets)
    given = {"model": "linear", "l2": 1e-4}
    return in_turns(
        repeats,
        with_labels=lambda: LogisticRegression(max_iter=1000).fit(x, labels),
        plain=lambda: plain_fit(x, index, shares, 1e-4),
        ours_alone=lambda: classifier(shares, **given, hide_sets=False).fit(x, index),
        ours=lambda: classifier(shares, **given).fit(x, index),
    )


def boosting(wait, rows, columns, sets, classes, repeats, rounds=100):
    import lightgbm

    from unmix.data.sets import UnlabeledSets
    from unmix.learn.boosting import BoostingOptions, fit_boosting

    x, index, shares, labels = table(rows, columns, sets, classes)
    stated = shares[:, 1] if classes == 2 else shares
    unlabeled = UnlabeledSets(x, index, stated, None)
    grown = BoostingOptions()
    same = {
        "objective": "binary" if classes == 2 else "multiclass",
        "num_class": 1 if classes == 2 else classes,
        "num_leaves": grown.num_leaves,
        "min_child_samples": grown.min_child_samples,
        "min_sum_hessian_in_leaf": grown.min_sum_hessian_in_leaf,
        "lambda_l2": grown.lambda_l2,
        "bagging_fraction": grown.bagging_fraction,
        "bagging_freq": 1,
        "max_bin": grown.max_bin,
        "num_threads": 1,
        "deterministic": True,
        "force_col_wise": True,
        "verbosity": -1,
    }

    def with_labels():
        lightgbm.train(same, lightgbm.Dataset(x, label=labels), num_boost_round=rounds)

    def ours():
        fit_boosting(unlabeled, held_out=None, max_rounds=rounds, num_threads=1)

    return in_turns(repeats, with_labels=with_labels, ours=ours)


def whole_process(*command):
    """Return the processor seconds of a process."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{command} failed")
    return usage.ru_utime + usage.ru_stime


BARE = """
import sys
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
weights, writer = np.linspace(-1, 1, 20), None
names = [f"x{i}" for i in range(20)]
for batch in pq.ParquetFile(sys.argv[1]).iter_batches(65536, columns=names):
    x = np.stack([batch.column(i).to_numpy() for i in range(20)], axis=1)
    probability = 1 / (1 + np.exp(-(x @ weights)))
    table = pa.table({"probability": probability, "prediction": (probability > 0.5).astype(int)})
    writer = writer or pq.ParquetWriter(sys.argv[2], table.schema)
    writer.write_table(table)
writer.close()
"""


def commands(wait, rows, new_rows, repeats):
    """Return what whole commands take, beside an import and beside a bare read and write."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        names = [f"x{i}" for i in range(20)]

        def write(name, count):
            x, index, shares, _ = table(count, 20, 20)
            columns = dict(zip(names, x.T, strict=True)) | {"region": index.astype(str)}
            pq.write_table(pa.table(columns), folder / name)
            return shares[:, 1]

        shares = write("rows.parquet", rows)
        write("new.parquet", new_rows)
        lines = [f"{j},{share:.6f}" for j, share in enumerate(shares)]
        (folder / "rates.csv").write_text("region,share\n" + "\n".join(lines) + "\n")
        unmix = (sys.executable, "-m", "unmix.cli")
        model, new = str(folder / "model"), str(folder / "new.parquet")
        fit = (*unmix, "fit", str(folder / "rows.parquet"), "--sets", "region", "--priors")
        fit += (str(folder / "rates.csv"), "-o", model, "--model", "linear", "--method", "ssc")
        predict = (*unmix, "predict", model, new, "-o", str(folder / "scored.parquet"), "--json")
        jobs = {
            "import": (sys.executable, "-c", "import sklearn.linear_model"),
            "fit": (*fit, "--overwrite", "--json"),
            "bare": (sys.executable, "-c", BARE, new, str(folder / "bare.parquet")),
            "predict": (*predict, "--overwrite"),
        }
        found = {name: [] for name in jobs}
        for _ in range(repeats):
            for name, job in jobs.items():
                found[name].append(whole_process(*job))
        return {name: statistics.median(times) for name, times in found.items()}


def streamed(wait, rows, columns, repeats):
    """Return what `unmix fit` takes for a file read in pieces, beside a bare scan of it."""
    from bigger_than_memory import bare_scan, fit_command, write_table

    with tempfile.TemporaryDirectory() as place:
        folder, found = Path(place), {"scan": [], "fit": []}
        write_table(folder, rows, in_order=True)
        for _ in range(repeats):
            found["scan"].append(seconds(lambda: bare_scan(folder / "rows.parquet")))
            found["fit"].append(fit_command(folder, "linear")["cpu_seconds"])
        return {name: statistics.median(times) for name, times in found.items()}


def main():
    options, runs = open_runs("beside_supervised", threads=1, repeats=3)

    def run(part, **key):
        work = {"threads": options.threads, "repeats": options.repeats}
        runs.once(lambda part, **key: measured(part, **work, **key), part=part, **key)

    if options.quick:
        run("linear", rows=2_000, columns=5, sets=20)
        run("boosting", rows=2_000, columns=5, sets=20, classes=3)
        run("commands", rows=500, new_rows=1_000)
        return
    run("linear", rows=100_000, columns=20, sets=100)
    run("commands", rows=2_000, new_rows=10_000_000)
    run("boosting", rows=100_000, columns=20, sets=100, classes=2)
    run("linear", rows=1_000_000, columns=20, sets=100)
    run("linear", rows=30_000, columns=1_000, sets=100)
    run("boosting", rows=1_000_000, columns=20, sets=100, classes=2)
    run("streamed", rows=10_000_000, columns=20)


if __name__ == "__main__":
    run_as_child(linear, boosting, commands, streamed)
    main()
