"""`unmix fit` and `predict` on 40 Parquet files beside the same rows in one file.

    python benchmarks/folder_of_files.py [--rows 5000000] [--quick]

Impressions in 400 campaigns with the counts of their conversions, to which noise of a known
standard deviation was added: what an advertising platform publishes. The rows of a campaign lie
next to each other, so most files hold ten campaigns each. Both are fitted and scored as a user
would, on one thread; printed are seconds, peak memory, and whether model and scores are the same.
"""

import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measuring import parse_options, run_command, write_results

CAMPAIGNS, FILES, COLUMNS, NOISE = 400, 40, 8, 25.0


def write_tables(folder, num_rows):
    """Write parts/00.parquet to parts/39.parquet, all.parquet and conversions.csv."""
    rng = np.random.default_rng(0)
    shares = rng.uniform(0.02, 0.3, CAMPAIGNS)
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    counts, whole = np.zeros(CAMPAIGNS), None
    sizes = np.zeros(CAMPAIGNS, dtype=int)
    names = np.array([f"c{j:03}" for j in range(CAMPAIGNS)])
    for part, rows in enumerate(np.array_split(np.arange(num_rows), FILES)):
        campaign = rows * CAMPAIGNS // num_rows
        bought = rng.random(len(rows)) < shares[campaign]
        x = rng.standard_normal((len(rows), COLUMNS)) + 0.4 * bought[:, None]
        table = pa.table({f"x{i}": x[:, i] for i in range(COLUMNS)} | {"campaign": names[campaign]})
        pq.write_table(table, folder / "parts" / f"{part:02}.parquet")
        whole = whole or pq.ParquetWriter(folder / "all.parquet", table.schema)
        whole.write_table(table)
        counts += np.bincount(campaign, bought, CAMPAIGNS)
        sizes += np.bincount(campaign, minlength=CAMPAIGNS)
    whole.close()
    noisy = counts + rng.normal(0, NOISE, CAMPAIGNS)
    lines = [f"{c},{k:.1f},{n}" for c, k, n in zip(names, noisy, sizes, strict=True)]
    text = "campaign,conversions,impressions\n" + "\n".join(lines) + "\n"
    (folder / "conversions.csv").write_text(text)


def fitted_and_scored(folder, name, rows):
    """Fit and predict; return both costs."""
    model, scores = str(folder / f"{name}-model"), str(folder / f"{name}-scores.parquet")
    rates = ["--priors", str(folder / "conversions.csv"), "--count-noise", str(NOISE)]
    fit = ["fit", str(rows), "--sets", "campaign", *rates, "-o", model, "--model", "linear"]
    predict = ["predict", model, str(rows), "-o", scores]
    return {
        "fit": run_command(*fit, "--json", threads=1, stdout=subprocess.DEVNULL),
        "predict": run_command(*predict, "--json", threads=1, stdout=subprocess.DEVNULL),
    }


def compared(rows):
    """Write the tables, run both, compare."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_tables(folder, rows)
        found = {
            "rows": rows,
            "folder": fitted_and_scored(folder, "folder", folder / "parts"),
            "file": fitted_and_scored(folder, "file", folder / "all.parquet"),
        }
        fits = [
            json.loads((folder / f"{name}-model" / "model.json").read_text())["fit"]
            for name in ("folder", "file")
        ]
        scores = [
            pq.read_table(folder / f"{name}-scores.parquet")["probability"].to_numpy()
            for name in ("folder", "file")
        ]
    found["same model"] = fits[0] == fits[1]
    found["largest difference of a score"] = float(np.abs(scores[0] - scores[1]).max())
    return found


def main():
    """Compare, print and write."""
    options = parse_options("folder_of_files", rows=5_000_000)
    found = compared(40_000 if options.quick else options.rows)
    print(json.dumps(found, indent=1))
    write_results(options, found)


if __name__ == "__main__":
    main()
