"""How much faster a pass of a linear fit is with two workers than with one, and than in process.

python benchmarks/engine_speed.py                 passes of a second and more; takes 10 GB of memory
python benchmarks/engine_speed.py --rows 20000000 --features 20   of .3 seconds, 5 GB

Passes are asked for in turns, so that what else the machine does hits all alike, and the fastest
and the median of each are told, with the processor seconds of the workers. One thread each. The
answers of all are compared bit by bit. A machine on which others work gives two workers less than
two cores: the ratio is therefore also worked out from processor seconds, those of one worker over
those of the busier of two. Also told: start-up, and the time until every worker has its rows.
"""

import hashlib
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import parse_options, write_results

from unmix.data.priors import Priors
from unmix.engines.choice import engine_named
from unmix.learn.methods import METHODS
from unmix.learn.models import model_row
from unmix.learn.sets_in_parts import asked_criterion
from unmix.learn.table_source import TableSource

SETS = 100


def prepare(folder, rows, features, files):
    """Write a table of several files, and return its rates."""
    rng = np.random.default_rng(0)
    shares = rng.uniform(0.05, 0.95, SETS)
    for k in range(files):
        index = rng.integers(SETS, size=rows // files)
        positive = (rng.random(len(index)) < shares[index])[:, None]
        x = rng.normal(size=(len(index), features)).astype(np.float32) + 0.3 * positive
        frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(features)])
        frame["region"] = pd.Categorical([f"r{j}" for j in index])
        frame.to_parquet(folder / f"part-{k:02}.parquet", index=False)
    names = tuple(f"r{j}" for j in range(SETS))
    return Priors(names, shares, source="rates.csv")


def processor_seconds(processes):
    """Return the processor seconds that each process has used."""
    found = []
    for process in processes:
        words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        found.append((int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK"))
    return np.array(found)


class Asked:
    """One engine with its rows, of which passes are asked for."""

    def __init__(self, name, engine, folder, priors, scratch):
        started = time.perf_counter()
        self.name, self.engine, self.priors = name, engine, priors
        source = TableSource.open(str(folder), "region", priors, engine=engine, held_out=0.01)
        self.context = source.rows(scratch / name.replace(" ", "-"), {})
        self.rows, _ = self.context.__enter__()
        self.sets = self.rows.all(model_row("linear"), METHODS["ssc"])
        self.prepared = time.perf_counter() - started
        criterion = asked_criterion(METHODS["ssc"], self.sets, np.zeros(len(priors)))
        self.sums = criterion.sums(self.sets, None)
        self.times, self.processor, self.busiest = [], [], []
        self.processes = [os.getpid()]

    def one_pass(self, point):
        """Ask for one pass; return the digest of its answers."""
        before, started = processor_seconds(self.processes), time.perf_counter()
        answers = list(self.sums.at(point[:-1], point[-1], np.empty(0))[2])
        self.times.append(time.perf_counter() - started)
        used = processor_seconds(self.processes) - before
        self.processor.append(used.sum())
        self.busiest.append(used.max())
        return hashlib.sha256(np.concatenate(answers).tobytes()).hexdigest()


def told_of(passes, rows):
    """Return what there is to say of passes (seconds, processor seconds, those of the busiest)."""
    seconds, processor, busiest = np.array(passes).T
    return {
        "seconds": float(seconds.min()),
        "median_seconds": float(np.median(seconds)),
        "processor_seconds": float(np.median(processor)),
        "busiest_processor_seconds": float(np.median(busiest)),
        "rows_per_second": float(rows / seconds.min()),
    }


def main():
    """Measure passes in turns."""
    options = parse_options("engine_speed", rows=120_000_000, features=5, files=24, turns=7, seed=0)
    rows = 200_000 if options.quick else options.rows
    rng = np.random.default_rng(options.seed)
    with tempfile.TemporaryDirectory() as place:
        folder, scratch = Path(place) / "rows", Path(place)
        folder.mkdir()
        priors = prepare(folder, rows, options.features, options.files)
        started = time.perf_counter()
        with engine_named("ray", workers=2) as two, engine_named("local") as local:
            start_up = time.perf_counter() - started
            import ray

            asked = [Asked("in process", local, folder, priors, scratch)]
            asked.append(Asked("2 workers", two, folder, priors, scratch))
            workers = [a.__ray_call__.remote(lambda self: os.getpid()) for a in two._actors]
            asked[1].processes = ray.get(workers)
            # One of the two does it all: the same actors and rows, in another distribution.
            print("passes begin", flush=True)
            found = {}
            for turn in range(options.turns + 1):
                point = rng.normal(size=options.features + 1) / 10
                digests = set()
                for which in asked:
                    digests.add(which.one_pass(point))
                two._count = 1
                before = len(asked[1].times)
                digests.add(asked[1].one_pass(point))
                told = asked[1].times, asked[1].processor, asked[1].busiest
                alone = tuple(of_passes.pop(before) for of_passes in told)
                two._count = 2
                found.setdefault("1 worker", []).append(alone)
                assert len(digests) == 1, "not the same bits"
                if turn == 0:  # the first fills caches
                    for which in asked:
                        for of_passes in (which.times, which.processor, which.busiest):
                            of_passes.clear()
                    found.clear()
            for which in asked:
                which.context.__exit__(None, None, None)
    of_pass = found | {
        w.name: list(zip(w.times, w.processor, w.busiest, strict=True)) for w in asked
    }
    results = {name: told_of(passes, rows) for name, passes in of_pass.items()}
    for name, result in results.items():
        print(name, {k: round(v, 3) for k, v in result.items()})
    ratios, kinds = {}, ("seconds", "median_seconds", "busiest_processor_seconds")
    for name in ("1 worker", "in process"):
        ratios[name] = {kind: results[name][kind] / results["2 workers"][kind] for kind in kinds}
        print("2 workers beside", name, {k: round(v, 2) for k, v in ratios[name].items()})
    prepared = {which.name: which.prepared for which in asked}
    print("start-up", round(start_up, 1), "prepared", {k: round(v, 1) for k, v in prepared.items()})
    about = {"rows": rows, "features": options.features, "files": options.files}
    write_results(
        options,
        about | {"passes": results, "ratios": ratios, "start_up": start_up, "prepared": prepared},
    )


if __name__ == "__main__":
    main()
