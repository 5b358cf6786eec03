"""Networks and trees by workers of Ray beside the fit in one process: AUC, and a worker killed.

python benchmarks/engine_models.py          200,000 rows in 8 files; runs that are there stay
python benchmarks/engine_models.py --quick  a few rows, to see that it works

Every fit of a model has the same rows, method, epochs and seed. AUC is that of the true classes of
100,000 other rows, which no fit sees. With `killed`, one worker gets SIGKILL in the middle.
"""

import hashlib
import os
import signal
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import open_runs
from sklearn.metrics import roc_auc_score

from unmix.data.priors import Priors
from unmix.engines.choice import engine_named
from unmix.learn.methods import METHODS
from unmix.learn.models import Setup, fit_learner, model_row
from unmix.learn.table_source import TableSource

SETS, FILES = 40, 8
SHARES = np.linspace(0.05, 0.95, SETS)
PRIORS = Priors(tuple(f"r{j}" for j in range(SETS)), SHARES, source="the benchmark")
IN_THE_MIDDLE = {"gradient": 100, "grow": 4}  # questions, after which a worker is killed


def table_of(seed, rows):
    """Return rows whose class a line sees in part and a network in full; and the classes."""
    rng = np.random.default_rng([7, seed])
    sets = rng.integers(SETS, size=rows)
    positive = rng.random(rows) < SHARES[sets]
    x = rng.normal(size=(rows, 8))
    x[:, 0] += 0.8 * positive
    x[:, 1] *= 1 + positive
    x[:, 2] += np.where(positive, x[:, 3], -x[:, 3])
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(8)])
    frame["town"] = rng.choice(["a", "b", "c"], rows)
    frame["region"] = np.array(PRIORS.set_ids)[sets]
    return frame, positive


def killing_one(engine):
    """Kill a worker of an engine in the middle of what it does."""
    asked = {}

    def watching(call):
        def asking(work, *arguments, **options):
            asked[work] = asked.get(work, 0) + 1
            if asked[work] == IN_THE_MIDDLE.get(work):
                import ray

                process = ray.get(engine._actors[0].__ray_call__.remote(lambda _: os.getpid()))
                os.kill(process, signal.SIGKILL)
            return call(work, *arguments, **options)

        return asking

    engine.each, engine.together = watching(engine.each), watching(engine.together)


def fit(folder, judged, model, epochs, workers, killed):
    """Fit a model; return its AUC, the digest of its weights and the seconds."""
    frame, positive = judged
    with (
        tempfile.TemporaryDirectory() as scratch,
        engine_named("ray", workers=workers) if workers else nullcontext() as engine,
    ):
        if killed:
            killing_one(engine)
        started = time.perf_counter()
        stream = None if workers else False
        source = TableSource.open(
            folder, "region", PRIORS, engine=engine, held_out=0, stream=stream
        )
        with source.rows(Path(scratch) / "model", {}) as (rows, _):
            rows.target = PRIORS.set_priors.pooled(rows.set_sizes)
            row = model_row(model)
            learner = fit_learner(
                rows.all(row, METHODS["ssc"]),
                Setup(model, "ssc", epochs=epochs),
                categorical=rows.encoder.categorical,
            )
            logits = learner.logits(getattr(rows.encoder, row.view)(frame))
    digest = hashlib.sha256(learner.fit.weights_file()).hexdigest()[:16]
    seconds = time.perf_counter() - started
    return {"auc": roc_auc_score(positive, logits), "weights": digest, "seconds": seconds}


def main():
    """Fit each model in one process and by workers."""
    options, runs = open_runs("engine_models", rows=200_000, epochs=4)
    rows = 8_000 if options.quick else options.rows
    judged = table_of(FILES, 100_000)
    with tempfile.TemporaryDirectory() as place:
        for k in range(FILES):
            table_of(k, rows // FILES)[0].to_parquet(f"{place}/part-{k}.parquet", index=False)
        for model in ("boosting", "mlp"):
            epochs = options.epochs if model == "mlp" else None
            for workers, killed in ((0, False), (1, False), (2, False), (2, True)):
                key = {"model": model, "rows": rows, "workers": workers, "killed": killed}

                def work(model, rows, workers, killed, epochs=epochs):
                    return fit(place, judged, model, epochs, workers, killed)

                runs.once(work, **key)


if __name__ == "__main__":
    main()
