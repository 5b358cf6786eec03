"""How long fits on many workers would take: constants measured here, and a model of what happens.

python benchmarks/scaling.py          measures, checks the model by 1 and 2 workers, extrapolates
python benchmarks/scaling.py --quick  tiny sizes, to see that it works

The model plays a pass event by event: the driver sends one question per file, one after the other;
each worker answers its own in turn; the driver takes the answers in as they come, once it has sent
all. What it is checked by was not used to measure its constants: those are the processor seconds of
one process, and the calls for files of a few rows. Bandwidth, latency and how often machines die
are assumed. `docs/build_scaling.py` writes the page.
"""

import heapq
import os
import pickle
import random
import signal
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from engine_speed import Asked, prepare
from measuring import parse_options, write_results

from unmix.engines.choice import engine_named

FEATURES, TINY_FILES, TINY_ROWS = 20, 100, 40
PASSES = 40  # of a linear fit: measured ones need 20 to 40
BANDWIDTH = 1.25e9  # bytes a second of one machine: 10 Gbit/s
LATENCY = 5e-4  # seconds, one way
KEPT_BYTES = 2_000_000_000  # of encoded rows, by each worker
HOURS_TO_DEATH = 1_000.0  # of a worker, on average
FILE_ROWS = 10_000_000  # the model's files, unless there would be fewer than workers
SAMPLE_BYTES = 260_000_000  # the two samples that the driver gets


@dataclass(frozen=True)
class Constants:
    """What a pass is made of, in seconds and bytes."""

    row: float
    """Seconds to answer for one row."""
    read: float
    """Seconds to read and encode one row."""
    send: float
    """Seconds of the driver to ask one question."""
    take: float
    """Seconds of the driver to take in one answer."""
    worker_call: float
    """Seconds of a worker for a question about no rows."""
    message: float
    """Bytes of a question and its answer."""
    start: float
    """Seconds until workers are there."""
    recovery: float
    """Seconds until a worker that died is there again."""


def pass_seconds(part_rows, workers, known, *, kept=1.0, latency=0.0, bandwidth=1e10, deaths=None):
    """Play one pass; return its seconds, and the share of them in which the driver works.

    Parameters
    ----------
    part_rows : sequence of int
        Rows of each file.
    workers : int
    known : Constants
    kept : float
        Share of the rows that workers hold in memory; others are read again.
    latency, bandwidth : float
        Of the network, seconds and bytes a second of the driver.
    deaths : function () -> seconds until a worker dies, optional
    """
    wire = known.message / bandwidth
    sent = [(known.send + wire / 2) * (k + 1) for k in range(len(part_rows))]
    driver = sent[-1]
    free, arrivals = [0.0] * workers, []
    death = [deaths() if deaths else float("inf") for _ in range(workers)]
    own = [0.0] * workers  # rows of a worker, to be read again if it dies
    for part, rows in enumerate(part_rows):
        own[part % workers] += rows
    events = [(moment + latency, part) for part, moment in enumerate(sent)]
    heapq.heapify(events)
    while events:
        moment, part = heapq.heappop(events)
        worker, rows = part % workers, part_rows[part]
        if moment < free[worker]:
            heapq.heappush(events, (free[worker], part))
            continue
        seconds = known.worker_call + rows * (known.row + (1 - kept) * known.read)
        if moment + seconds > death[worker]:
            again = death[worker] + known.recovery + kept * own[worker] * known.read
            death[worker] = again + deaths()
            free[worker] = again
            heapq.heappush(events, (again, part))
            continue
        free[worker] = moment + seconds
        arrivals.append(free[worker] + latency)
    for moment in sorted(arrivals):
        driver = max(driver, moment) + known.take + wire / 2
    busy = sent[-1] + len(part_rows) * (known.take + wire / 2)
    return driver, busy / driver


def fit_seconds(rows, workers, known, seed=0):
    """Return what a linear fit takes, phase by phase."""
    files = max(workers, -(-rows // FILE_ROWS))
    part_rows = [rows // files + (k < rows % files) for k in range(files)]
    kept = min(1.0, KEPT_BYTES * workers / (rows * (4 * FEATURES + 8)))
    rng = random.Random(seed)

    def deaths():
        return rng.expovariate(1 / (HOURS_TO_DEATH * 3600))

    network = {"latency": LATENCY, "bandwidth": BANDWIDTH}
    reading = Constants(**(asdict(known) | {"row": known.read}))
    read, _ = pass_seconds(part_rows, workers, reading, **network, deaths=deaths)
    one, busy = pass_seconds(part_rows, workers, known, kept=kept, **network)
    with_deaths, _ = pass_seconds(part_rows, workers, known, kept=kept, **network, deaths=deaths)
    sample = SAMPLE_BYTES / BANDWIDTH
    return {
        "rows": rows,
        "workers": workers,
        "files": files,
        "kept": kept,
        "reading": 2 * read + sample,
        "pass": one,
        "driver": busy,
        "passes": PASSES * one,
        "fit": known.start + 2 * read + sample + (PASSES - 1) * one + with_deaths,
        "bytes": 2 * files * known.message * PASSES,
    }


def question_bytes(asked, point):
    """Return the bytes of a question and its answer, as they are sent to a worker."""
    answer = next(iter(asked.sums.at(point[:-1], point[-1], np.empty(0))[2]))
    return len(pickle.dumps(point)) + len(pickle.dumps(answer)) + 1_000  # and what Ray adds


def fastest(asked, engine, workers, rng, turns):
    """Return the fewest seconds of a pass by some of an engine's workers."""
    engine._count = workers
    for _ in range(turns + 1):
        asked.one_pass(rng.normal(size=FEATURES + 1) / 10)
    times, asked.times = asked.times[1:], []
    return min(times)


def opened(name, engine, place, rows, files):
    """Write a table and have an engine read it."""
    folder = Path(place) / name
    folder.mkdir()
    return Asked(name, engine, folder, prepare(folder, rows, FEATURES, files), Path(place))


def measure(options, rows):
    """Return the constants, and each pass that was measured beside what the model says."""
    rng, turns = np.random.default_rng(options.seed), options.turns
    with tempfile.TemporaryDirectory() as place, engine_named("local") as local:
        before = time.process_time()
        asked = opened("alone", local, place, rows, 8)
        writing = time.process_time() - before  # with what follows, of which it is the most
        before = time.process_time()
        again = Asked("again", local, Path(place) / "alone", asked.priors, Path(place))
        read = (time.process_time() - before) / (2 * rows)
        points = rng.normal(size=(turns + 1, FEATURES + 1)) / 10
        seconds = []
        for point in points:
            before = time.process_time()
            again.one_pass(point)
            seconds.append(time.process_time() - before)
        row, message = min(seconds) / rows, question_bytes(again, points[0])
        print(
            f"in process {min(seconds):.2f} s, read {read:.2e}, wrote in {writing:.0f}", flush=True
        )
    before = time.perf_counter()
    with tempfile.TemporaryDirectory() as place, engine_named("ray", workers=2) as engine:
        start = time.perf_counter() - before
        tiny = opened("tiny", engine, place, TINY_FILES * TINY_ROWS, TINY_FILES)
        by_one = fastest(tiny, engine, 1, rng, 5 * turns) / TINY_FILES
        send, take = _of_driver(tiny, engine, rng)
        known = Constants(row, read, send, take, max(by_one - take, 0.0), message, start, 0.0)
        found = []
        for name, size, files in (("large", rows, 8), ("small", rows // 40, 64)):
            table = opened(name, engine, place, size, files)
            for workers in (1, 2):
                seconds = fastest(table, engine, workers, rng, turns)
                told, _ = pass_seconds([size // files] * files, workers, known)
                found.append(
                    {"rows": size, "files": files, "workers": workers, "seconds": seconds}
                    | {"model": told}
                )
                print(found[-1], flush=True)
        recovery = _after_a_kill(table, engine, rng) - 2 * rows // 40 * read
    return Constants(**(asdict(known) | {"recovery": max(recovery, 0.0)})), found


def _of_driver(asked, engine, rng):
    """Return the driver's processor seconds to ask a question, and to take in an answer."""
    import ray

    sent = [engine._sent(argument) for argument in (engine._start,)]
    before = time.process_time()
    point = rng.normal(size=FEATURES + 1)
    asked.one_pass(point)
    both = (time.process_time() - before) / TINY_FILES
    actor = engine._actors[0]
    before = time.process_time()
    calls = [actor.__ray_call__.remote(lambda _: None) for _ in range(TINY_FILES)]
    send = (time.process_time() - before) / TINY_FILES
    ray.get(calls)
    del sent
    return send, max(both - send, 0.0)


def _after_a_kill(asked, engine, rng):
    """Return how much longer a pass takes whose worker is killed at its beginning."""
    import ray

    usual = fastest(asked, engine, 2, rng, 2)
    actor = engine._actors[0]
    os.kill(ray.get(actor.__ray_call__.remote(lambda _: os.getpid())), signal.SIGKILL)
    before = time.perf_counter()
    asked.one_pass(rng.normal(size=FEATURES + 1))
    return time.perf_counter() - before - usual


def main():
    """Measure, check and extrapolate."""
    options = parse_options("scaling", rows=4_000_000, turns=5, seed=0)
    known, checked = measure(options, 80_000 if options.quick else options.rows)
    print(known)
    told = [
        fit_seconds(rows, workers, known)
        for rows in (10**9, 10**11)
        for workers in (10, 30, 100, 300, 1000)
    ]
    for line in told:
        print({k: round(v, 2) for k, v in line.items()})
    assumed = {
        "bandwidth": BANDWIDTH,
        "latency": LATENCY,
        "passes": PASSES,
        "kept_bytes": KEPT_BYTES,
        "file_rows": FILE_ROWS,
        "hours_to_death": HOURS_TO_DEATH,
        "features": FEATURES,
    }
    about = {"constants": asdict(known), "assumed": assumed, "checked": checked}
    write_results(options, about | {"told": told})


if __name__ == "__main__":
    main()
