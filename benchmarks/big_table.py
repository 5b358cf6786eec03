"""A table of a million rows from file to model, and of five gigabytes from file to scores.

    python benchmarks/big_table.py FOLDER [--rows 1000000] [--score-gigabytes 5]

Makes the files in FOLDER, runs `unmix fit --model boosting --method ssc` and `unmix predict` on
them as a user would, and prints seconds and peak resident memory of each command.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measuring import run_command

COLUMNS, SETS, CHUNK = 20, 1000, 250_000


def write_rows(path, num_rows, priors, seed):
    rng = np.random.default_rng(seed)
    names = [f"x{i}" for i in range(COLUMNS)]
    writer = None
    for first in range(0, num_rows, CHUNK):
        n = min(CHUNK, num_rows - first)
        sets = rng.integers(SETS, size=n)
        positive = rng.random(n) < priors[sets]
        x = rng.normal(size=(n, COLUMNS))
        x[:, :5] += 0.5 * positive[:, None]
        x[:, 5] *= np.where(positive, 1.5, 1.0)
        columns = {name: x[:, i] for i, name in enumerate(names)}
        table = pa.table(columns | {"region": [f"r{j}" for j in sets]})
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def told(cost):
    return f"{cost['seconds']:6.0f} s, peak {cost['peak_mb']:6.0f} MB"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--score-gigabytes", type=float, default=5.0)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    rows, rates = options.folder / "rows.parquet", options.folder / "rates.csv"
    model, new = options.folder / "model", options.folder / "new.parquet"
    priors = np.random.default_rng(0).uniform(0.1, 0.9, SETS)
    lines = [f"r{j},{p:.6f}" for j, p in enumerate(priors)]
    rates.write_text("region,share\n" + "\n".join(lines) + "\n")
    write_rows(rows, options.rows, priors, seed=1)
    fit = ("fit", str(rows), "--sets", "region", "--priors", str(rates), "-o", str(model))
    cost = run_command(*fit, "--model", "boosting", "--method", "ssc", "--overwrite")
    print(f"fit      {options.rows:>12,} rows: {told(cost)}", flush=True)
    per_row = rows.stat().st_size / options.rows
    num_new = int(options.score_gigabytes * 1e9 / per_row)
    write_rows(new, num_new, priors, seed=2)
    size = new.stat().st_size / 1e9
    scored = str(options.folder / "scored.parquet")
    cost = run_command("predict", str(model), str(new), "-o", scored)
    rate = num_new / cost["seconds"]
    print(f"predict  {num_new:>12,} rows ({size:.1f} GB): {told(cost)}, {rate:,.0f} rows/s")


if __name__ == "__main__":
    main()
