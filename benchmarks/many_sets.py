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
from measuring import run_command

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
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    rows, rates = options.folder / "rows.parquet", options.folder / "rates.parquet"
    model, scored = options.folder / "model", options.folder / "scored.parquet"
    for num_sets in options.sets:
        write_files(options.folder, num_sets, options.rows)
        fit = ("fit", rows, "--sets", "set", "--priors", rates, "-o", model, "--overwrite")
        said = [
            run_command(*fit, "--model", options.model, "--method", "ssc"),
            run_command("predict", model, rows, "-o", scored),
        ]
        page = (model / "report.html").stat().st_size / 1e6
        for command, (seconds, memory) in zip(("fit", "predict"), said, strict=True):
            print(
                f"{num_sets:>9,} sets, {options.rows:,} rows, {command:7} {seconds:5.0f} s, "
                f"peak {memory:5.0f} MB" + (f", report {page:.1f} MB" if command == "fit" else ""),
                flush=True,
            )


if __name__ == "__main__":
    main()
