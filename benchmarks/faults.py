"""Kills, full disks and crowds: the same result, nothing lost, nothing left behind.

python benchmarks/faults.py                      all parts, some 50 minutes on two busy cores
python benchmarks/faults.py --part kills --number 20
python benchmarks/faults.py --part kills --which predict --number 80      one command alone;
    with --add --seed 1 to what was counted before, so that it can be run in pieces
python benchmarks/faults.py --part disks         as root, for file systems of a few megabytes
python benchmarks/faults.py --part load          100 million rows and a million sets
.venv-federated/bin/python benchmarks/faults.py --part parties            needs Flower

Results of parts that are not run stay as they are in the file. Each command runs in a process of
its own, forked from this one, which has imported everything: so that a kill hits the work and not
the imports. Only files are looked at. All of it runs by a copy of the code as it was at the start.
"""

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import lightgbm  # noqa: F401  (imported once, before processes are forked)
import numpy as np
import pandas as pd
import sklearn.linear_model  # noqa: F401
import torch
from measuring import by_a_copy_of_the_code, parse_options, run_command, write_results

import unmix.classifier
import unmix.cli
import unmix.report.page

SETS = {"a": 0.2, "b": 0.5, "c": 0.8, "d": 0.35}
LINEAR = ["fit", "rows.parquet", "--sets", "region", "--priors", "rates.csv", "--model", "linear"]
LINEAR += ["--method", "ssc", "--drop", "decade"]
FIT = [*LINEAR, "--drop", "known"]
STUDY = ["reproduce", "comparison", "--datasets", "digits", "--methods", "ssc,mmc-u2-c"]
STUDY += ["--seeds", "0", "--epochs", "5", "--workers", "1", "--num-sets", "10"]
PREDICT = ["predict", "old", "many.parquet", "--overwrite"]
TWO = ["fit", "rows.parquet", "--sets", "region", "--sets", "decade", "--priors", "rates.csv"]
TWO += ["--priors", "decades.csv", "--model", "linear", "--drop", "known"]
LABELS = [*LINEAR, "--labels", "known", "--labels-for", "training"]
FOLDER = ["fit", "parts", "--sets", "region", "--priors", "rates.csv", "--engine", "local"]
TRY = ["federated", "try", "north", "south", "--rows", "rows.parquet", "--sets", "region"]
TRY += ["--priors", "rates.csv", "--l2", "1e-3", "-o", "model", "--overwrite"]
# Command, what it writes, and what its result is judged by.
COMMANDS = {
    "fit": ([*FIT, "-o", "model", "--in-memory", "--overwrite"], "model"),
    "streamed fit": ([*FIT, "-o", "model", "--stream", "--overwrite"], "model"),
    "predict": ([*PREDICT, "-o", "scores.csv"], "scores.csv"),
    "reproduce": ([*STUDY, "--store", "runs", "--export", "runs.jsonl"], "runs.jsonl"),
    "fit with labels": ([*LABELS, "-o", "model", "--overwrite"], "model"),
    "fit to two groupings": ([*TWO, "-o", "model", "--overwrite"], "model"),
    "fit to a folder": ([*FOLDER, "-o", "model", "--overwrite"], "model"),
    "predict a folder": (
        ["predict", "old", "parts", "--engine", "local", "-o", "scored", "--overwrite"],
        "scored",
    ),
    "export": (["export", "old", "--sql", "-o", "model.sql", "--overwrite"], "model.sql"),
    "federated try": (TRY, "model"),
}
SHARE_OF_KILLS = {"fit": 0.2, "streamed fit": 0.2, "predict": 0.3, "reproduce": 0.15}
LATER = 0.04  # each of those that came later
KILLS_IN_A_ROW = 4


def prepare(folder, rows=12_000, many=100_000):
    """Write a table, rates and an older model into a folder."""
    rng = np.random.default_rng(0)
    region = rng.choice(list(SETS), rows)
    sick = rng.random(rows) < np.array([SETS[name] for name in region])
    frame = pd.DataFrame({f"x{i}": rng.normal(sick * (0.5 + 0.1 * i)) for i in range(6)})
    frame["colour"] = np.where(rng.random(rows) < 0.3 + 0.4 * sick, "warm", "cold")
    decade = np.where(rng.random(rows) < 0.3 + 0.3 * sick, "late", "early")
    known = pd.array(np.where(np.arange(rows) % 400 == 0, sick, 0), dtype="Int64")
    known[np.arange(rows) % 400 != 0] = pd.NA
    whole = frame.assign(region=region, decade=decade, known=known)
    whole.to_parquet(folder / "rows.parquet", row_group_size=4_000)
    shares = pd.Series(sick, dtype=float).groupby(decade).mean().rename("share")
    shares.rename_axis("decade").round(3).to_csv(folder / "decades.csv")
    (folder / "parts").mkdir()
    for number in range(4):
        part = whole.drop(columns=["decade", "known"]).iloc[number::4]
        part.to_parquet(folder / "parts" / f"part-{number}.parquet", index=False)
    copies = -(-many // rows)
    pd.concat([frame] * copies).iloc[:many].to_parquet(folder / "many.parquet")
    rates = "".join(f"{name},{share}\n" for name, share in SETS.items())
    (folder / "rates.csv").write_text("region,share\n" + rates)
    for party, own in {"north": ("a", "b"), "south": ("c", "d")}.items():
        (folder / party).mkdir()
        table = frame.assign(region=region)[np.isin(region, own)]
        table.to_parquet(folder / party / "rows.parquet")
        told = "".join(f"{name},{SETS[name]}\n" for name in own)
        (folder / party / "rates.csv").write_text("region,share\n" + told)
    finish([*FIT, "-o", "old"], folder)


class Command:
    """A command of unmix at work in a process of its own."""

    def __init__(self, command, folder):
        self.words_file = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `words`)
        self.returncode = None
        self.pid = os.fork()
        if self.pid:
            return
        # From here on in the new process, which must never come back.
        code = 1
        try:
            os.setsid()
            os.chdir(folder)
            nowhere = os.open(os.devnull, os.O_RDWR)
            for number, file in enumerate((nowhere, nowhere, self.words_file.fileno())):
                os.dup2(file, number)
            unmix.cli.main(command, prog_name="unmix")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stderr.flush()
            os._exit(code)

    def wait(self, seconds=float("inf")):
        """Wait for its end, but not longer; say whether it has ended."""
        end = time.monotonic() + seconds
        while self.returncode is None:
            if seconds == float("inf"):
                _, status = os.waitpid(self.pid, 0)
            else:
                found, status = os.waitpid(self.pid, os.WNOHANG)
                if not found:
                    if time.monotonic() > end:
                        return False
                    time.sleep(0.002)
                    continue
            self.returncode = os.waitstatus_to_exitcode(status)
        return True

    def words(self):
        """Return what it said on standard error, after its end."""
        self.wait()
        with self.words_file as file:
            file.seek(0)
            return file.read().decode(errors="replace")


def finish(command, folder):
    """Run a command to its end; return the seconds it took."""
    started = time.monotonic()
    process = Command(command, folder)
    words = process.words()
    if process.returncode:
        raise RuntimeError(f"{command[0]}: exit code {process.returncode}: {words}")
    return time.monotonic() - started


def result_of(path):
    """Return what must be the same: the bytes of a file or of a model, without its times."""
    if path.suffix == ".jsonl":
        return [without_times(json.loads(line)) for line in path.read_text().splitlines()]
    files = [path]
    if path.is_dir():
        # The card is for people and the report tells how long it took.
        files = sorted(p for p in path.iterdir() if p.suffix not in (".md", ".html"))
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]


def without_times(value):
    """Return a run without what differs each time it is made."""
    if isinstance(value, dict):
        skipped = ("seconds", "finished_at")
        return {k: without_times(v) for k, v in value.items() if k not in skipped}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def names_in(folder):
    """Return every name in a folder and below, but those of the files of SQLite."""
    found = sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))
    return [name for name in found if not name.endswith(("-shm", "-wal"))]


def kills(number, seed=0, only=""):
    """Kill each command at random moments; let it end after a few kills and compare."""
    counts = {}
    with tempfile.TemporaryDirectory() as name:
        whole = Path(name, "whole")
        whole.mkdir()
        prepare(whole)
        for which, (command, output) in COMMANDS.items():
            if only not in ("", which):
                continue
            moments = random.Random(f"{which} {seed}")
            share = 1.0 if only else SHARE_OF_KILLS.get(which, LATER)
            folder = Path(name, which.replace(" ", "-"))
            shutil.copytree(whole, folder)
            seconds = finish(command, folder)
            expected, names = result_of(folder / output), names_in(folder)
            counts[which] = Counter(kills=0, ends=0, same=0, clean=0)
            for _ in range(max(1, round(number * share / KILLS_IN_A_ROW))):
                remove(folder / output)
                remove(folder / "runs")
                killed = kill_often(command, folder, seconds, moments)
                counts[which]["kills"] += killed
                finish(command, folder)
                counts[which]["ends"] += 1
                counts[which]["same"] += result_of(folder / output) == expected
                left = set(names_in(folder)) - set(names)
                counts[which]["clean"] += not left
                if left:
                    print(f"{which}: left {sorted(left)}", flush=True)
            print(which, dict(counts[which]), flush=True)
            shutil.rmtree(folder)
    return {which: dict(count) for which, count in counts.items()}


def kill_often(command, folder, seconds, moments):
    """Start a command and kill it, several times; return how often it was hit at work."""
    hit = 0
    for _ in range(2 * KILLS_IN_A_ROW):  # one that had ended already does not count
        process = Command(command, folder)
        if not process.wait(moments.uniform(0.0, 1.0) * seconds):
            os.kill(process.pid, signal.SIGKILL)
            hit += 1
        process.words()
        if hit == KILLS_IN_A_ROW:
            break
        if process.returncode == 0 and "--overwrite" not in command:
            break  # there is nothing left to do for it
    return hit


def remove(path):
    """Remove a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# Parties ----------------------------------------------------------------------------------------

ADDRESS = "127.0.0.1:39217"
SERVE = ["serve", "--parties", "2", "--listen", ADDRESS, "--l2", "1e-3", "--wait", "60"]
SERVE += ["--timeout", "20", "-o", "model", "--overwrite", "--method", "ssc", "--resamples", "2"]
JOIN = ["join", "rows.parquet", "--sets", "region", "--priors", "rates.csv", "--server", ADDRESS]
JOIN += ["--timeout", "20", "-o", "copy", "--overwrite"]


def start_parties(folder):
    """Start a server and two parties, each a process of its own (Flower does not bear a fork)."""
    started = []
    for place, words in ((".", [*SERVE, "--give-model"]), ("north", JOIN), ("south", JOIN)):
        name = [] if place == "." else ["--name", place]
        command = [sys.executable, "-m", "unmix.cli", "federated", *words, *name]
        log = open(folder / f"{place.strip('.')}.log", "w+b")  # noqa: SIM115  (closed by `ended`)
        started.append((subprocess.Popen(command, cwd=folder / place, stderr=log), log))
    return started


def ended(process, log):
    """Wait for the end of a process; return its exit code and what it said."""
    process.wait()
    with log:
        log.seek(0)
        return process.returncode, log.read().decode(errors="replace")


def parties(number, seed=0):
    """Kill a server or a party at a random moment; then let all of them fit once more."""
    moments, counts = random.Random(seed), Counter(kills=0, told=0, same=0, clean=0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)

        def whole_run():
            began = time.monotonic()
            for process, log in start_parties(folder):
                code, words = ended(process, log)
                if code:
                    raise RuntimeError(f"exit code {code}: {words}")
            return time.monotonic() - began

        seconds = whole_run()
        results = [folder / "model", folder / "north" / "copy"]
        expected, names = list(map(result_of, results)), names_in(folder)
        for turn in range(number):
            for path in results:
                remove(path)
            started = start_parties(folder)
            time.sleep(moments.uniform(0.3, 1.0) * seconds)
            victim = started[turn % 3][0]
            counts["kills"] += victim.poll() is None
            victim.kill()
            others = [ended(*one) for one in started]
            del others[turn % 3]
            bad = [(code, words) for code, words in others if code not in (0, 2)]
            counts["told"] += not bad
            for code, words in bad:
                print(f"turn {turn}: {code}: {words[-600:]}", flush=True)
            whole_run()
            counts["same"] += list(map(result_of, results)) == expected
            left = set(names_in(folder)) - set(names)
            counts["clean"] += not left
            print(f"turn {turn}: {dict(counts)} {sorted(left)}", flush=True)
    return dict(counts)


# Full disks ---------------------------------------------------------------------------------------

# Command and size of the disk in kilobytes, too small for what it writes, beside what it reads.
FULL = [
    *(("fit", size) for size in (4, 8, 12, 20)),
    *(("streamed fit", size) for size in (4, 8, 100, 400, 800, 1200)),
    *(("predict", size) for size in (4, 100, 1000, 3000)),
    *(("predict to parquet", size) for size in (4, 100, 1000)),
    *(("predict over", size) for size in (8, 200, 2000)),
    *(("reproduce", size) for size in (4, 20, 60, 120, 200)),
]


@contextmanager
def small_disk(kilobytes):
    """Yield a folder on a file system of so many kilobytes (for root on Linux)."""
    with tempfile.TemporaryDirectory() as name:
        options = f"size={kilobytes}k,nr_inodes=2000"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", name], check=True)
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", "-l", name], check=True)


def on_disk(which, folder, disk):
    """Return a command that writes to a small disk and reads from a folder."""
    if which == "reproduce":
        return [*STUDY, "--store", str(disk / "runs")]
    if which.startswith("predict"):
        suffix = "parquet" if which.endswith("parquet") else "csv"
        output = str(disk / f"scores.{suffix}")
        return [*PREDICT, "-o", output]
    way = "--stream" if which == "streamed fit" else "--in-memory"
    return [*FIT, "-o", str(disk / "model"), way, "--overwrite"]


def disks(number, seed=0):
    """Let each command meet a full disk; then make room and give the same command again."""
    counts = Counter(disks=0, one_line=0, older_output_whole=0, nothing_half_written=0, went_on=0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        for which, size in FULL[:number]:
            with small_disk(size) as disk:
                older = disk / "scores.csv"
                if which == "predict over":
                    older.write_text("older scores\n")
                command = on_disk(which, folder, disk)
                process = Command(command, folder)
                words = process.words()
                lines = [line for line in words.splitlines() if line.startswith("unmix: ")]
                if process.returncode == 0:
                    print(f"{which}, {size} kB: there was room", flush=True)
                    continue
                counts["disks"] += 1
                told = process.returncode == 2 and len(lines) == 1 and "Traceback" not in words
                counts["one_line"] += told
                if not told:
                    print(f"{which}, {size} kB: {process.returncode}: {words[-600:]}", flush=True)
                whole = which != "predict over" or older.read_text() == "older scores\n"
                counts["older_output_whole"] += whole
                left = [n for n in names_in(disk) if not resumable(n)]
                counts["nothing_half_written"] += left == ["scores.csv"] * (which == "predict over")
                subprocess.run(["mount", "-o", "remount,size=400m", str(disk)], check=True)
                finish(command, folder)
                counts["went_on"] += 1
            print(f"{which}, {size} kB: {lines}", flush=True)
    return dict(counts)


def resumable(name):
    """Say whether a name is of what the same command goes on from."""
    return name.split("/")[0] in (".model.unfinished", "runs")


# Crowds -------------------------------------------------------------------------------------------


def together(number, seed=0):
    """Let processes fit, predict and read the same model folder at once, over and over."""
    counts = Counter(processes=0, ended_well=0, told_in_one_line=0, wrong=0)
    scores = ["predict", "model", "rows.parquet", "--overwrite", "-o"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, rows=20_000, many=20_000)
        fit = [*FIT, "-o", "model", "--overwrite"]
        finish(fit, folder)
        expected = None
        for turn in range(max(number // 8, 1)):
            jobs = [fit, fit, *([*scores, f"scores-{i}.csv"] for i in range(4))]
            jobs += [["prevalence", "model", "rows.parquet", "--sets", "region"]] * 2
            processes = [Command(job, folder) for job in jobs]
            for process in processes:
                words = process.words()
                counts["processes"] += 1
                lines = words.strip().splitlines()
                if process.returncode == 0:
                    counts["ended_well"] += 1
                # The folder is away for the moment between two renames, or another fit has it.
                elif process.returncode == 2 and len(lines) == 1:
                    counts["told_in_one_line"] += 1
                else:
                    counts["wrong"] += 1
                    print(f"turn {turn}: {process.returncode}: {words[-600:]}", flush=True)
            for path in folder.glob("scores-*.csv"):
                expected = expected or path.read_bytes()
                counts["wrong"] += path.read_bytes() != expected
                path.unlink()
        hidden = [n for n in os.listdir(folder) if n.startswith(".")]
        counts["left_behind"] = len(hidden)
    return dict(counts)


# Load ---------------------------------------------------------------------------------------------


def write_many(path, rows, sets=None, block=1_000_000):
    """Write a long Parquet file block by block."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, writer = np.random.default_rng(1), None
    for first in range(0, rows, block):
        n = min(block, rows - first)
        sick = rng.random(n) < 0.5
        columns = {f"x{i}": rng.normal(sick * 0.8).astype(np.float32) for i in range(3)}
        if sets:
            columns["region"] = pa.array(np.arange(first, first + n) % sets).cast(pa.string())
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def load(number, seed=0, only=""):
    """Score many rows, and evaluate with many sets: seconds and peak memory as they grow."""
    every = ("predict", "evaluate", "prevalence")
    found = {name: [] for name in every if only in ("", name)}
    with tempfile.TemporaryDirectory(dir=os.environ.get("UNMIX_LARGE_FILES")) as name:
        os.chdir(name)
        write_many("fit.parquet", 40_000, sets=4)
        Path("rates.csv").write_text("region,share\n0,.2\n1,.5\n2,.8\n3,.4\n")
        options = ["--model", "linear", "--method", "ssc", "-o", "model"]
        run_command("fit", "fit.parquet", "--sets", "region", "--priors", "rates.csv", *options)
        for rows in (number // 100, number // 10, number) if "predict" in found else ():
            write_many("rows.parquet", rows)
            usage = run_command("predict", "model", "rows.parquet", "-o", "scores.parquet")
            found["predict"].append({"rows": rows} | rounded(usage))
            print(found["predict"][-1], flush=True)
            remove(Path("scores.parquet"))
        judging = [name for name in found if name != "predict"]
        for sets in (number // 10_000, number // 1000, number // 100) if judging else ():
            write_many("rows.parquet", 2 * sets, sets=sets)
            shares = np.random.default_rng(2).uniform(0.1, 0.9, sets).round(3)
            pd.DataFrame({"region": np.arange(sets), "share": shares}).to_csv("m.csv", index=False)
            arguments = ("model", "rows.parquet", "--sets", "region", "--json")
            for name in judging:
                rates = ("--priors", "m.csv") if name == "evaluate" else ()
                with open(os.devnull, "w") as nowhere:
                    usage = run_command(name, *arguments, *rates, stdout=nowhere)
                found[name].append({"sets": sets, "rows": 2 * sets} | rounded(usage))
                print(name, found[name][-1], flush=True)
        os.chdir("/")
    return found


def rounded(usage):
    return {"seconds": round(usage["seconds"], 1), "peak_mb": round(usage["peak_mb"])}


# What was tried by hand and by kind, and is a case of its own in the tests.
CASES = "foreign_models hostile_files hostile_python files saved cli_mistakes outputs stopped "
CASES += "properties streaming store runner fetch hostile_commands"


def cases(number=0, seed=0):
    """Count the cases of faults and bad input in the tests."""
    counts = {}
    for name in CASES.split():
        file = Path(__file__).parents[1] / "tests" / f"test_{name}.py"
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        counts[file.name] = sum("::" in line for line in done.stdout.splitlines())
    return counts


PARTS = {"kills": (kills, 208), "disks": (disks, 22), "together": (together, 64)}
PARTS |= {"parties": (parties, 9)}
PARTS |= {"load": (load, 100_000_000), "cases": (cases, 1)}


def added(before, now):
    """Return the sums of two counts."""
    return {name: before.get(name, 0) + count for name, count in now.items()}


def main():
    by_a_copy_of_the_code()
    torch.set_num_threads(1)
    options = parse_options("faults", part="", which="", add=False, number=0, seed=0)
    path, known = options.output, {}
    if path and path.exists():
        known = json.loads(path.read_text())
    quick = {"kills": 8, "disks": 2, "parties": 1, "together": 8, "load": 100_000, "cases": 1}
    for name, (part, number) in PARTS.items():
        if options.part in ("", name) and (name != "parties" or find_spec("flwr")):
            number = options.number or (quick[name] if options.quick else number)
            if options.which:
                found, before = part(number, options.seed, options.which), known.get(name, {})
                if options.add:
                    found = {k: added(before.get(k, {}), v) for k, v in found.items()}
                known[name] = before | found
            else:
                known[name] = part(number, options.seed)
            write_results(options, {k: v for k, v in known.items() if k != "machine"})
    print(json.dumps({k: v for k, v in known.items() if k != "machine"}))


if __name__ == "__main__":
    main()
