"""The code of now beside that of another version: the same work in turns, as ratios of time.

    git worktree add /tmp/old v0.1
    python benchmarks/against_version.py --old /tmp/old [--parts fit,streamed] [--repeats 3]

Processor seconds on one thread, medians over turns; every piece in a process of its own. `fit`:
tables of random numbers as in growth.py. `streamed`: `unmix fit --stream` on a Parquet file sorted
by set, the whole process. `growth`, `step_cost` and `bigger_than_memory`: what these benchmarks
measure, each version by its own copy of the script. A training step is told beside the same
operations as matrix products, a pass over shuffled rows beside a scan of the file, each of the same
turn. Results are kept one by one in results/against_version.jsonl; what is there is not run again.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from measuring import THREADS, open_runs

NEW = Path(__file__).parents[1]
WORK = {
    "linear": {"model": "linear", "rows": 80_000},
    "boosting": {"model": "boosting", "rows": 80_000},
    "mlp": {"model": "mlp", "rows": 10_000},
}
STREAMED_ROWS = 500_000
# Of growth.py: the base, and what of it grows how far, one at a time.
BASE = {"rows": 10_000, "sets": 20, "columns": 20, "epochs": 4}
GROWN = {"rows": 40_000, "sets": 5_000, "columns": 40}
QUICK_BASE, QUICK_GROWN = {"rows": 400, "sets": 4, "columns": 3, "epochs": 1}, {"rows": 800}
TABLE_ROWS = 2_200_000  # so many that the network is that of large tables
# Runs a script with the processor's clock for the one on the wall, which others make fast or slow.
BY_PROCESSOR = """
import runpy, sys, time
from pathlib import Path
time.perf_counter = time.process_time
sys.argv = sys.argv[1:]
sys.path.insert(0, str(Path(sys.argv[0]).parent))
runpy.run_path(sys.argv[0], run_name="__main__")
"""
# Pieces of bigger_than_memory.py that leave a number in `found`.
FIT = """
import bigger_than_memory as b
found = b.fit_command(folder, "{model}")["cpu_seconds"]
"""
PASS = """
import bigger_than_memory as b
from dataclasses import replace
rows = replace(b.prepared(folder, folder / "scratch").rows, target_prior=0.5)
found = b.bare_scan(folder / "rows.parquet") / b.{a_pass}(rows)
"""


def fit(model, rows, sets=20, columns=20, epochs=4):
    """Return processor seconds of a fit, without those of loading libraries."""
    import lightgbm  # noqa: F401
    import torch  # noqa: F401

    from unmix import UnmixClassifier

    rng = np.random.default_rng(0)
    priors = rng.uniform(0.1, 0.9, sets)
    index = rng.permutation(np.arange(rows) % sets)
    x = rng.normal(size=(rows, columns)).astype(np.float32)
    x[:, 0] += rng.random(rows) < priors[index]
    options = {"target_prior": 0.5, "method": "ssc", "model": model, "epochs": epochs}
    classifier = UnmixClassifier(dict(enumerate(priors)), random_state=0, **options)
    started = time.process_time()
    classifier.fit(x, index)
    return time.process_time() - started


def write_table(folder, rows):
    """Write a Parquet file sorted by set, and the shares of its sets."""
    import pandas as pd

    rng = np.random.default_rng(0)
    shares = rng.uniform(0.1, 0.9, 300)
    index = np.sort(np.arange(rows) % 300)
    x = rng.normal(size=(rows, 20)).astype(np.float32)
    x[:, 0] += rng.random(rows) < shares[index]
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(20)]).assign(region=index.astype(str))
    frame.to_parquet(folder / "rows.parquet")
    rates = pd.DataFrame({"region": np.arange(300), "share": shares})
    rates.to_csv(folder / "rates.csv", index=False)


def command(version, *args):
    """Run Python with the code of a version; return processor seconds and what it printed."""
    environment = os.environ | dict.fromkeys(THREADS, "1") | {"PYTHONPATH": str(version / "src")}
    process = subprocess.Popen(
        [sys.executable, *map(str, args)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    process.stdin.write("go\n" * 100)  # whenever a part of a benchmark waits for others
    process.stdin.close()
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{args} failed with the code of {version}")
    return usage.ru_utime + usage.ru_stime, printed


def part_of(version, script, **job):
    """Run a part of a benchmark of a version as its child; return what it found."""
    path = version / "benchmarks" / script
    _, printed = command(version, "-c", BY_PROCESSOR, path, "--child", json.dumps(job))
    return json.loads(printed.splitlines()[-1])


def in_folder(version, place, code):
    """Run code that knows the benchmarks of a version and a folder; return the number it found."""
    start = (
        "import sys, time; from pathlib import Path; time.perf_counter = time.process_time; "
        "sys.path.insert(0, sys.argv[1]); folder, found = Path(sys.argv[2]), 0.0"
    )
    code = f"{start}\n{code}\nprint(found)"
    _, printed = command(version, "-c", code, version / "benchmarks", place)
    shutil.rmtree(Path(place) / "scratch", ignore_errors=True)
    return float(printed.splitlines()[-1])


def compare(old, repeats, measure, **_):
    """Return the medians of a measure by both versions, taking turns, and their ratio."""
    found = {"old": [], "new": []}
    for _ in range(repeats):
        for name, version in (("old", old), ("new", NEW)):
            found[name].append(measure(version))
    medians = {name: statistics.median(values) for name, values in found.items()}
    return medians | {"ratio": medians["new"] / medians["old"]}


def step(version, seconds):
    """Return the time of a training step over that of the same operations as matrix products."""
    found = part_of(version, "step_cost.py", part="mlp", rounds=1, seconds=seconds, profiled=0)
    return max(found["sgemm"][0].values()) / found["now"][0]


def fits(runs, options, both):
    """Fits of each model."""
    for what, job in WORK.items():
        work = json.dumps(job | {"rows": 1_000} if options.quick else job)
        runs.once(
            partial(both, lambda v, w=work: float(command(v, __file__, "--fit", w)[1])),
            part="fit",
            what=f"fit, {what}, {job['rows']:,} rows",
        )


def streamed(runs, options, both):
    """A fit of a linear model to a file."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_table(folder, 5_000 if options.quick else STREAMED_ROWS)
        args = ["-m", "unmix.cli", "fit", folder / "rows.parquet", "--sets", "region"]
        args += ["--priors", folder / "rates.csv", "-o", folder / "model", "--model", "linear"]
        args += ["--method", "ssc", "--stream", "--overwrite", "--json"]
        what = f"`unmix fit --stream`, linear, {STREAMED_ROWS:,} rows"
        runs.once(partial(both, lambda v: command(v, *args)[0]), part="streamed", what=what)


def growth(runs, options, both):
    """Fits as their table grows."""
    base, grown = (QUICK_BASE, QUICK_GROWN) if options.quick else (BASE, GROWN)
    for model in ("linear", "boosting", "mlp"):
        for name, size in grown.items():
            job = {"part": "fit", "model": model, **base, name: size}
            runs.once(
                partial(both, lambda v, job=job: part_of(v, "growth.py", **job)["seconds"]),
                part="growth",
                what=f"growth, {model}, {size:,} {name}",
            )


def step_cost(runs, options, both):
    """The step of the paper's MLP."""
    seconds = 0.1 if options.quick else 1.5
    what = "a training step, over its operations as matrix products"
    runs.once(partial(both, lambda version: step(version, seconds)), part="step_cost", what=what)


def bigger_than_memory(runs, options, both):
    """Fits of a table on disk, and passes over it when it is shuffled."""
    rows = 5_000 if options.quick else TABLE_ROWS
    with tempfile.TemporaryDirectory() as place:
        code = f"import bigger_than_memory as b; b.write_table(folder, {rows}, in_order=True)"
        in_folder(NEW, place, code)
        for model, a_pass in (("linear", "linear_pass"), ("mlp", "network_pass")):
            for code, what in (
                (FIT.format(model=model), f"`unmix fit`, {model}, {rows:,} rows of Parquet"),
                (PASS.format(a_pass=a_pass), f"a pass of {model} over shuffled rows, over a scan"),
            ):
                measure = partial(both, lambda v, code=code: in_folder(v, place, code))
                runs.once(measure, part="bigger_than_memory", what=what)


PARTS = {
    "fit": fits,
    "streamed": streamed,
    "growth": growth,
    "step_cost": step_cost,
    "bigger_than_memory": bigger_than_memory,
}


def main():
    """Run the parts asked for."""
    options, runs = open_runs("against_version", old="/tmp/old", parts=",".join(PARTS), repeats=3)
    for name in options.parts.split(","):
        PARTS[name](runs, options, partial(compare, Path(options.old), options.repeats))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fit"]:
        print(fit(**json.loads(sys.argv[2])))
    else:
        main()
