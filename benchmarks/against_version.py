"""The code of now beside that of another version: the same work in turns, as ratios of time.

    git worktree add /tmp/old v0.1
    python benchmarks/against_version.py /tmp/old/src [--repeats 3] [--quick]

Processor seconds of the work alone, in a process of its own each time, medians. `fit`: tables of
random numbers as in growth.py, where the network is the paper's MLP and its time that of its
training steps. `streamed`: `unmix fit --stream` on a Parquet file sorted by set, as in
bigger_than_memory.py, the whole process.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measuring import RESULTS, THREADS, machine

WORK = {
    "linear": {"model": "linear", "rows": 80_000},
    "boosting": {"model": "boosting", "rows": 80_000},
    "mlp": {"model": "mlp", "rows": 10_000},
}
STREAMED_ROWS = 500_000


def fit(model, rows, sets=20, columns=20, epochs=4):
    """Return processor seconds of a fit."""
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


def command(source, *args):
    """Run Python with the code of a folder; return processor seconds and what it printed."""
    environment = os.environ | dict.fromkeys(THREADS, "1") | {"PYTHONPATH": str(source)}
    process = subprocess.Popen(
        [sys.executable, *map(str, args)], env=environment, stdout=subprocess.PIPE, text=True
    )
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{args} failed with the code of {source}")
    return usage.ru_utime + usage.ru_stime, printed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("old", type=Path, help="the source folder of the other version")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    new = Path(__file__).parents[1] / "src"
    lines = []

    def compare(what, seconds_with):
        found = {"old": [], "new": []}
        for _ in range(options.repeats):
            for name, source in (("old", options.old), ("new", new)):
                found[name].append(seconds_with(source))
        line = {"what": what}
        line |= {name: round(statistics.median(times), 3) for name, times in found.items()}
        line["ratio"] = round(line["new"] / line["old"], 3)
        lines.append(line)
        print(json.dumps(line), flush=True)

    for what, job in WORK.items():
        job = job | {"rows": 1_000} if options.quick else job
        work = json.dumps(job)
        compare(what, lambda src, work=work: float(command(src, __file__, "--fit", work)[1]))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_table(folder, 5_000 if options.quick else STREAMED_ROWS)
        args = ["-m", "unmix.cli", "fit", folder / "rows.parquet", "--sets", "region"]
        args += ["--priors", folder / "rates.csv", "-o", folder / "model", "--model", "linear"]
        args += ["--method", "ssc", "--stream", "--overwrite", "--json"]
        compare("streamed linear", lambda source: command(source, *args)[0])
    output = options.output or (None if options.quick else RESULTS / "against_version.json")
    if output:
        output.write_text(json.dumps({"machine": machine(), "lines": lines}, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fit"]:
        print(fit(**json.loads(sys.argv[2])))
    else:
        main()
