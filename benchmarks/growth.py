"""What `UnmixClassifier.fit` costs as rows, sets, columns and epochs grow.

    python benchmarks/growth.py [--quick]

Random tables of numbers, method ssc, two threads, a new process for each fit: seconds of the fit
alone, and the peak memory of the process, which includes about as much for the libraries as the
line `base_mb` says. One of the four grows at a time, the others stay as they are in `BASE`.
"""

import time

import numpy as np
from measuring import measured, parse_options, peak_memory, run_as_child, write_results

MODELS = ("linear", "mlp", "boosting")
BASE = {"rows": 20_000, "sets": 20, "columns": 20, "epochs": 4}
GROWTH = {
    "rows": (5_000, 20_000, 80_000),
    "sets": (20, 500, 10_000),
    "columns": (5, 20, 80),
    "epochs": (2, 4, 8),
}
QUICK_BASE = {"rows": 400, "sets": 4, "columns": 3, "epochs": 1}
QUICK_GROWTH = {"rows": (400, 800), "sets": (4,), "columns": (3,), "epochs": (1, 2)}


def fit(wait, model, rows, sets, columns, epochs):
    import lightgbm  # noqa: F401  (libraries are loaded before the clock starts)
    import torch  # noqa: F401

    from unmix import UnmixClassifier

    rng = np.random.default_rng(0)
    priors = rng.uniform(0.1, 0.9, sets)
    set_index = rng.permutation(np.arange(rows) % sets)
    positive = rng.random(rows) < priors[set_index]
    x = rng.normal(size=(rows, columns)).astype(np.float32)
    x[:, 0] += positive
    classifier = UnmixClassifier(
        dict(enumerate(priors)),
        target_prior=0.5,
        method="ssc",
        model=model,
        epochs=epochs,
        random_state=0,
    )
    base = peak_memory()
    wait()
    started = time.perf_counter()
    classifier.fit(x, set_index)
    return {"seconds": time.perf_counter() - started, "peak_mb": peak_memory(), "base_mb": base}


def main():
    options = parse_options("growth", threads=2)
    base, growth = (QUICK_BASE, QUICK_GROWTH) if options.quick else (BASE, GROWTH)
    lines = []
    known = {}  # the base is part of every curve and measured once
    for what, sizes in growth.items():
        for model in MODELS if what != "epochs" else ("mlp",):
            for size in sizes:
                job = base | {what: size}
                key = (model, *job.values())
                if key not in known:
                    known[key] = measured("fit", threads=options.threads, model=model, **job)
                result = {name: round(value, 3) for name, value in known[key].items()}
                lines.append({"what": what, "model": model, "size": size, **result})
                print(
                    f"{what:8} {model:9} {size:>9,}: {result['seconds']:8.2f} s, "
                    f"peak {result['peak_mb']:6.0f} MB",
                    flush=True,
                )
    write_results(options, {"base": base, "threads": options.threads, "lines": lines})


if __name__ == "__main__":
    run_as_child(fit)
    main()
