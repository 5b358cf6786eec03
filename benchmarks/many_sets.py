"""A million sets: time and peak resident memory of `unmix fit` and `unmix predict` as m grows.

    python benchmarks/many_sets.py FOLDER [--sets 1000 1000000] [--rows 3000000]

The rows are the same number for every m, so what grows is due to the sets: their ids, their priors
and what is said about them.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measuring import RESULTS, run_command, write_results

COLUMNS = 5


def write_files(folder, num_sets, num_rows):
    """Write rows.parquet and rates.parquet."""
    rng = np.random.default_rng(num_sets)
    priors = rng.uniform(0.1, 0.9, num_sets)
    sets = np.concatenate((np.arange(num_sets), rng.integers(num_sets, size=num_rows - num_sets)))
    rng.shuffle(sets)
    positive = rng.random(num_rows) < priors[sets]
    x = rng.normal(size=(num_rows, COLUMNS)) + positive[:, None]
    ids = pa.array([f"set {j}" for j in range(num_sets)])
    columns = {f"x{i}": x[:, i] for i in range(COLUMNS)} | {"set": ids.take(pa.array(sets))}
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    pq.write_table(pa.table({"set": ids, "share": priors}), folder / "rates.parquet")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", type=int, nargs="+", default=[1_000, 1_000_000])
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--model", default="linear")
    parser.add_argument("--output", type=Path, default=RESULTS / "many_sets.json")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    rows, rates = options.folder / "rows.parquet", options.folder / "rates.parquet"
    model, scored = options.folder / "model", options.folder / "scored.parquet"
    found = {"rows": options.rows, "columns": COLUMNS, "model": options.model, "lines": []}
    for num_sets in options.sets:
        write_files(options.folder, num_sets, options.rows)
        fit = ("fit", rows, "--sets", "set", "--priors", rates, "-o", model, "--overwrite")
        for command in (
            (*fit, "--model", options.model, "--method", "ssc"),
            ("predict", model, rows, "-o", scored),
        ):
            cost = run_command(*command, threads=1)
            found["lines"].append({"command": command[0], "num_sets": num_sets, **cost})
            print(found["lines"][-1], flush=True)
        print(f"report: {(model / 'report.html').stat().st_size / 1e6:.1f} MB", flush=True)
        write_results(options, found)


if __name__ == "__main__":
    main()
