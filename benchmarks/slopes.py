"""How fits grow with rows, sets, columns and classes; two threads beside one; memory over a table.

    python benchmarks/slopes.py [--quick] [--only rows] [--again]

`UnmixClassifier.fit` by method ssc with no set held out, a process for each fit. Slopes are those
between two sizes on logarithmic axes, of processor seconds on one thread: 1 where the work grows as
fast as what it is done to. Memory: the peak while fitting over that before it, beside the size of
the table, an array of float64. Threads: seconds of the main thread and of all, since those on the
clock say something only on a machine that does nothing else. One line for each fit in
results/slopes.jsonl.
"""

import time
from pathlib import Path

from beside_supervised import classifier, table
from measuring import measured, open_runs, peak_memory, run_as_child

BASE = {"rows": 1_000_000, "columns": 20, "sets": 100, "classes": 2}
# What grows -> model -> sizes, and what is not as in BASE.
GROWN = {
    "rows": {"linear": ((1_000_000, 10_000_000), {}), "boosting": ((300_000, 3_000_000), {})},
    "sets": {"linear": ((1_000, 1_000_000), {"rows": 3_000_000, "columns": 5})},
    "columns": {
        "linear": ((100, 1_000), {"rows": 30_000}),
        "boosting": ((100, 1_000), {"rows": 30_000}),
    },
    "classes": {
        "linear": ((5, 50), {"rows": 100_000}),
        "boosting": ((5, 50), {"rows": 30_000}),
    },
}
MEMORY = {"rows": 3_000_000, "columns": 20, "sets": 100, "classes": 2}
ROUNDS = 30


def fit(wait, model, rows, columns, sets, classes):
    """Fit once; return seconds of processors, of the main thread and of the clock, and memory."""
    from unmix.learn import boosting

    boosting.MOST_ROUNDS = ROUNDS  # the same work for each row, whatever the table
    options = {"model": model, "hide_sets": False} | ({"l2": 1e-4} if model == "linear" else {})
    # What is imported when it is first needed is not to be measured.
    few, few_sets, few_shares, _ = table(2_000, columns, max(classes, 10), classes)
    classifier(few_shares, **options).fit(few, few_sets)
    x, index, shares, _ = table(rows, columns, sets, classes)
    clf = classifier(shares, **options)
    wait()
    Path("/proc/self/clear_refs").write_text("5")  # the peak of memory begins again
    before = peak_memory()
    started = time.process_time(), time.thread_time(), time.perf_counter()
    clf.fit(x, index)
    ended = time.process_time(), time.thread_time(), time.perf_counter()
    cpu, main_thread, clock = (b - a for a, b in zip(started, ended, strict=True))
    return {
        "cpu_seconds": cpu,
        "main_seconds": main_thread,
        "seconds": clock,
        "over_table": (peak_memory() - before) * 2**20 / x.nbytes,
    }


def main():
    options, runs = open_runs("slopes", only="")
    small = 1_000 if options.quick else 1

    def run(what, threads, model, **size):
        if options.only in what:
            size["rows"] = max(size["rows"] // small, 2_000)
            size["sets"] = min(size["sets"], size["rows"] // 3)
            work = {"threads": threads, "model": model} | size
            runs.once(lambda what, **job: measured("fit", **job), what=what, **work)

    for what, models in GROWN.items():
        for model, (sizes, other) in models.items():
            for size in sizes:
                run(what, 1, model, **BASE | other | {what: size})
    for model in ("linear", "boosting"):
        for threads in (1, 2):
            run("memory and threads", threads, model, **MEMORY)


if __name__ == "__main__":
    run_as_child(fit)
    main()
