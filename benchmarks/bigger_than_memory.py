"""`unmix fit` on a Parquet table larger than memory: time, memory, speed of a pass, same result.

    python benchmarks/bigger_than_memory.py FOLDER [--rows 50000000] [--models linear mlp]

Makes a table of 20 columns in 300 sets, sorted by set (the worst order for a stream), fits it as a
user would and notes seconds and peak resident memory. Then, in turns so that a busy machine slows
all alike, the speed of a pass of the linear fit and of an epoch of the network beside a bare
pyarrow scan that turns the same columns into tensors, all on one thread. Last, on tables that fit
in memory, in random order and sorted by set: the streamed result beside the one in memory, with the
spread over seeds that noise alone makes.
"""

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from measuring import RESULTS, run_command, write_results
from sklearn.metrics import roc_auc_score

from unmix.data.rates_file import read_rates
from unmix.data.sets import UnlabeledSets
from unmix.learn.linear_fit import fit_linear
from unmix.learn.models import Setup, fit_learner
from unmix.learn.streaming import StreamedTable

COLUMNS, SETS, CHUNK = 20, 300, 250_000
NAMES = [f"x{i}" for i in range(COLUMNS)]


def draw(rng, sets, priors):
    positive = rng.random(len(sets)) < priors[sets]
    x = rng.standard_normal((len(sets), COLUMNS), dtype=np.float32)
    x[:, :5] += 0.4 * positive[:, None]
    x[:, 5] *= np.where(positive, 1.5, 1.0)
    return x, positive


def write_table(folder, num_rows, *, in_order, seed=1):
    """Write rows.parquet and rates.csv; return the priors."""
    priors = np.random.default_rng(0).uniform(0.1, 0.9, SETS)
    lines = [f"s{j},{p:.6f}" for j, p in enumerate(priors)]
    (folder / "rates.csv").write_text("set,share\n" + "\n".join(lines) + "\n")
    rng = np.random.default_rng(seed)
    ids = pa.array([f"s{j}" for j in range(SETS)])
    writer = None
    for first in range(0, num_rows, CHUNK):
        n = min(CHUNK, num_rows - first)
        sets = (first + np.arange(n)) * SETS // num_rows if in_order else rng.integers(SETS, size=n)
        x, _ = draw(rng, sets, priors)
        columns = {name: x[:, i].astype(np.float64) for i, name in enumerate(NAMES)}
        table = pa.table(columns | {"set": ids.take(pa.array(sets))})
        writer = writer or pq.ParquetWriter(folder / "rows.parquet", table.schema)
        writer.write_table(table)
    writer.close()
    return priors


def fit_command(folder, model):
    """Run `unmix fit` on one thread; return its cost and the AUC without labels."""
    rows, rates, output = (str(folder / name) for name in ("rows.parquet", "rates.csv", model))
    args = ["fit", rows, "--sets", "set", "--priors", rates, "-o", output, "--model", model]
    args += ["--method", "ssc", "--json", "--overwrite"]
    with tempfile.TemporaryFile() as printed:
        cost = run_command(*args, threads=1, stdout=printed)
        printed.seek(0)
        found = json.loads(printed.read())
    return {"model": model, **cost, "auc": found["evaluation"]["auc"]["value"]}


def prepared(folder, scratch):
    """Return a table that is shuffled on disk."""
    priors = read_rates(folder / "rates.csv", "set")
    path = str(folder / "rows.parquet")
    table = StreamedTable(path, NAMES, ("set",), priors, False, 0.0, 0, scratch, lambda *_: None)
    table.prepare()
    return table


def bare_scan(path):
    """Return rows per second of reading the columns as float32 tensors, on one thread."""
    done, started = 0, time.perf_counter()
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 16) as file:
        for batch in file.iter_batches(65_536, columns=NAMES, use_threads=False):
            x = np.empty((batch.num_rows, COLUMNS), dtype=np.float32)
            for i, column in enumerate(batch.columns):
                x[:, i] = column.to_numpy()
            done += len(torch.from_numpy(x))
    return done / (time.perf_counter() - started)


def linear_pass(rows):
    """Return rows per second of the passes of a linear fit."""
    done = 0

    def count(in_pass, total, text):
        nonlocal done
        done += total if in_pass == total else 0

    started = time.perf_counter()
    fit_linear(rows, method="ssc", l2=1e-4, max_iter=1, progress=count)
    return done / (time.perf_counter() - started)


def network_pass(rows):
    """Return rows per second of an epoch of the network, in batches as large as many rows get."""
    history = fit_learner(rows, Setup("mlp", "ssc", epochs=10)).history
    seconds = np.median([epoch["seconds"] for epoch in history])
    return (len(rows) - rows.part_sizes[0]) / seconds  # one part is held out


def in_memory(rows):
    """Return all parts as one."""
    parts = [rows.part(i) for i in range(len(rows.parts))]
    x, index = (np.concatenate([getattr(p, name) for p in parts]) for name in ("x", "set_index"))
    return UnlabeledSets(x, index, rows.set_priors, rows.target_prior)


def compare(folder, num_rows, seeds, models):
    """Return streamed results beside those in memory."""
    lines = []
    for in_order in (False, True):
        folder.mkdir(exist_ok=True)
        priors = write_table(folder, num_rows, in_order=in_order)
        rng = np.random.default_rng(2)
        x, positive = draw(rng, rng.integers(SETS, size=100_000), priors)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            table = prepared(folder, Path(scratch))
            streamed = replace(table.rows, target_prior=0.5)
            new = table.encoder.matrix(x)
            for model in models:
                line = {"model": model, "rows": num_rows, "sorted": in_order}
                for name, sets in (("streamed", streamed), ("in_memory", in_memory(streamed))):
                    fits = [
                        fit_learner(sets, Setup(model, "ssc", l2=1e-4, epochs=3, seed=seed))
                        for seed in (range(seeds) if model == "mlp" else [0])
                    ]
                    line[name] = [roc_auc_score(positive, fit.logits(new)) for fit in fits]
                print(line, flush=True)
                lines.append(line)
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--models", nargs="*", default=["linear", "mlp"])
    parser.add_argument("--compare-rows", type=int, nargs="*", default=[300_000, 2_500_000])
    parser.add_argument("--pass-rows", type=int, default=5_000_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--output", type=Path, default=RESULTS / "bigger_than_memory.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "rows.parquet"
    if not path.exists():
        write_table(folder, options.rows, in_order=True)
    found = {
        "rows": pq.read_metadata(path).num_rows,
        "columns": COLUMNS,
        "gigabytes": path.stat().st_size / 1e9,
        "fits": [],
    }
    print(found, flush=True)
    for model in options.models:
        found["fits"].append(fit_command(folder, model))
        print(found["fits"][-1], flush=True)
        write_results(options, found)  # of what takes so long nothing is lost
    small = folder / "passes"
    small.mkdir(exist_ok=True)
    write_table(small, options.pass_rows, in_order=True)
    with tempfile.TemporaryDirectory(dir=small) as scratch:
        rows = replace(prepared(small, Path(scratch)).rows, target_prior=0.5)
        turns = [
            (bare_scan(small / "rows.parquet"), linear_pass(rows), network_pass(rows))
            for _ in range(5)
        ]
        names = ("scan", "linear", "mlp")
        found["rates"] = dict(zip(names, np.median(turns, axis=0).tolist(), strict=True))
        print(found["rates"], flush=True)
    found["compare"] = [
        line
        for num_rows in options.compare_rows
        for line in compare(folder / "compare", num_rows, options.seeds, options.models)
    ]
    write_results(options, found)


if __name__ == "__main__":
    main()
