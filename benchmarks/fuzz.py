"""Mutated model folders and rates files: read or refused, never a crash, a hang or much memory.

python benchmarks/fuzz.py --folders 5000 --rates 5000
python benchmarks/fuzz.py --seconds 3600 --seed 7      for as long as one likes

Each batch runs in a process of its own, which is watched: its end, its time and its peak memory,
beside that of a process that reads and uses the valid models.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from measuring import by_a_copy_of_the_code, parse_options, peak_memory, write_results

BATCH = 250
MOST_SECONDS = 300  # for a batch, on a busy machine
MODELS = ("linear", "boosting", "mlp")


def save_models(folder):
    """Fit small models and save them."""
    from test_foreign_models import fitted

    for model in MODELS:
        fitted(model).save(folder / model)


def fuzz_folders(valid, seed, start, number):
    """Try mutated folders; return how many were read and refused."""
    from mutated_models import generator, mutate
    from test_foreign_models import predicted
    from unmix.errors import InputError

    outcomes = Counter(read=0, refused=0, wrong=0)
    with tempfile.TemporaryDirectory() as name:
        for i in range(start, start + number):
            folder = shutil.copytree(valid / MODELS[i % len(MODELS)], Path(name) / str(i))
            what = mutate(folder, generator(seed, i))
            try:
                shares = predicted(folder)
                right = bool(((shares >= 0) & (shares <= 1)).all())
                outcomes["read" if right else "wrong"] += 1
            except InputError as error:
                outcomes["refused" if "\n" not in str(error) else "wrong"] += 1
            except Exception as error:
                outcomes["wrong"] += 1
                print(f"folder {i} of seed {seed}, {what}: {error!r}", file=sys.stderr)
            shutil.rmtree(folder)
    return outcomes


def fuzz_rates(valid, seed, start, number):
    """Try mutated rates files; return how many were read and refused."""
    from mutated_rates import mutated_rates
    from unmix import read_rates
    from unmix.errors import InputError

    outcomes = Counter(read=0, refused=0, wrong=0)
    with tempfile.TemporaryDirectory() as name:
        for i in range(start, start + number):
            path = mutated_rates(Path(name), seed, i)
            try:
                shares = read_rates(path, "region").set_priors.matrix
                right = bool(((shares >= 0) & (shares <= 1)).all())
                outcomes["read" if right else "wrong"] += 1
            except InputError as error:
                outcomes["refused" if "\n" not in str(error) else "wrong"] += 1
            except Exception as error:
                outcomes["wrong"] += 1
                print(f"rates {i} of seed {seed}: {error!r}", file=sys.stderr)
            path.unlink()
    return outcomes


PARTS = {"folders": fuzz_folders, "rates": fuzz_rates}


def child(job):
    """Run one batch and print what came of it, and the peak memory."""
    from test_foreign_models import predicted

    warnings.simplefilter("ignore")
    valid = Path(job["valid"])
    for model in MODELS:
        predicted(valid / model)
    before = peak_memory()
    outcomes = PARTS[job["part"]](valid, job["seed"], job["start"], job["number"])
    print(json.dumps(outcomes | {"more_memory_mb": peak_memory() - before}))


def run_batch(valid, part, seed, start, number):
    """Run a batch in a process of its own; a crash or a hang is an outcome."""
    job = {"valid": str(valid), "part": part, "seed": seed, "start": start, "number": number}
    command = [sys.executable, __file__, "--child", json.dumps(job)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=MOST_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"hangs": 1}
    if done.returncode:
        return {"crashes": 1}
    return json.loads(done.stdout.splitlines()[-1])


def campaign(valid, part, seed, wanted, seconds):
    """Run batches until there are enough of them, or the time is up."""
    total, most, tried = Counter(read=0, refused=0, wrong=0, crashes=0, hangs=0), 0.0, 0
    end = time.monotonic() + seconds if seconds else float("inf")
    while (tried < wanted or seconds) and time.monotonic() < end:
        number = min(BATCH, wanted - tried) if not seconds else BATCH
        found = run_batch(valid, part, seed, tried, number)
        most = max(most, found.pop("more_memory_mb", 0.0))
        total.update(found)
        tried += number
        print(f"{part}: {tried:,} tried, {dict(total)}, {most:.0f} MB more", flush=True)
    return {"tried": tried, **total, "most_memory_mb": round(most, 1)}


def run(folders, rates, seed, seconds=0):
    """Return the results of both campaigns."""
    with tempfile.TemporaryDirectory() as name:
        save_models(Path(name))
        return {
            "folders": campaign(Path(name), "folders", seed, folders, seconds / 2),
            "rates": campaign(Path(name), "rates", seed, rates, seconds / 2),
        }


def main():
    by_a_copy_of_the_code()
    options = parse_options("fuzz", folders=5000, rates=5000, seed=0, seconds=0)
    if options.quick:
        options.folders = options.rates = 60
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    found = run(options.folders, options.rates, options.seed, options.seconds)
    write_results(options, {"seed": options.seed, **found})
    sys.exit(any(part[key] for part in found.values() for key in ("wrong", "crashes", "hangs")))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(json.loads(sys.argv[2]))
    else:
        main()
