"""What the benchmarks share: child processes measured together, their peak memory, the results.

A script calls `measured_together` with jobs that name its own functions; each job runs in a new
process. Such a function gets `wait` and calls it when it is ready: it returns when all the others
are ready too. This file measures nothing itself.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
WINDOW = 0.1  # seconds
COPY = "UNMIX_COPY_OF_CODE"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Enough(Exception):  # noqa: N818  (nothing went wrong)
    """Training has gone on for long enough."""


class Clock:
    """Measures the steps of a training after a few to warm up, then ends it by `Enough`.

    Stands where training takes a function for its progress. The time of a step is that of the
    fastest tenth of a second, or of the fastest step if steps are longer: what others do on the
    machine comes and goes, and `best_seconds` measures in the same way.
    """

    def __init__(self, wait, seconds, warm_up=10):
        self.wait, self.seconds, self.warm_up = wait, seconds, warm_up
        self.per_step = float("inf")

    def __call__(self, done, total=0, text=""):
        if done == self.warm_up:
            self.wait()
        now = time.perf_counter()
        if done <= self.warm_up:
            self.end, self.since, self.steps = now + self.seconds, now, 0
            return
        self.steps += 1
        if now - self.since >= WINDOW:
            self.per_step = min(self.per_step, (now - self.since) / self.steps)
            self.since, self.steps = now, 0
        if now >= self.end and self.per_step < float("inf"):
            raise Enough


def best_seconds(call, seconds):
    """Return the seconds of a call in the fastest of all tenths of a second."""
    best, end = float("inf"), time.perf_counter() + seconds
    while (started := time.perf_counter()) < end:
        calls = 0
        while (passed := time.perf_counter() - started) < WINDOW or not calls:
            call()
            calls += 1
        best = min(best, passed / calls)
    return best


def measured_together(part, *jobs, threads, sleepless=False):
    """Run `part` of the calling script once per job, at the same time, in a process each.

    Sleepless threads wait for work in a busy loop: faster, on a machine of one's own.
    """
    environment = os.environ | dict.fromkeys(THREADS, str(threads))
    environment |= {"OMP_WAIT_POLICY": "active"} if sleepless else {}
    children = [
        subprocess.Popen(
            [sys.executable, sys.argv[0], "--child", json.dumps({"part": part, **job})],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for job in jobs
    ]
    results = []
    while len(results) < len(children):
        lines = [child.stdout.readline() for child in children]
        if not all(lines):
            sys.exit(f"{part} failed")
        results = [json.loads(line) for line in lines if line != "ready\n"]
        if not results:
            for child in children:
                child.stdin.write("go\n")
                child.stdin.flush()
    for child in children:
        child.communicate()
    return results


def measured(part, *, threads, sleepless=False, **job):
    """Run `part` of the calling script in a process of its own."""
    (result,) = measured_together(part, job, threads=threads, sleepless=sleepless)
    return result


# Starts a command and waits for it: a process of a few megabytes, as the peak that the kernel tells
# of a process begins with that of its parent.
LAUNCHER = """
import os, sys, time
began = time.perf_counter()
_, status, usage = os.wait4(os.spawnv(os.P_NOWAIT, sys.argv[2], sys.argv[2:]), 0)
with open(sys.argv[1], "w") as file:
    print(time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss, file=file)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def run_command(*args, threads=None, stdout=None):
    """Run a command of unmix; return seconds, processor seconds and peak memory in megabytes."""
    environment = os.environ | (dict.fromkeys(THREADS, str(threads)) if threads else {})
    with tempfile.NamedTemporaryFile("r") as told:
        command = [sys.executable, "-I", "-S", "-c", LAUNCHER, told.name, sys.executable]
        command += ["-m", "unmix.cli", *map(str, args)]
        if subprocess.run(command, env=environment, stdout=stdout).returncode:
            sys.exit(f"{args[0]} failed")
        seconds, cpu_seconds, peak = map(float, told.read().split())
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_mb": peak / 1024}


def run_as_child(*parts):
    """If this process is a child, run its part, print the result and leave."""
    if sys.argv[1:2] != ["--child"]:
        return
    job = json.loads(sys.argv[2])
    results, sys.stdout = sys.stdout, sys.stderr  # nothing else may come between the lines

    def wait():
        print("ready", file=results, flush=True)
        sys.stdin.readline()

    part = {part.__name__: part for part in parts}[job.pop("part")]
    print(json.dumps(part(wait, **job)), file=results, flush=True)
    sys.exit()


def peak_memory():
    """Return the most memory this process has held so far, in megabytes."""
    # Not getrusage: there a child starts with the peak of its parent.
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024


def by_a_copy_of_the_code():
    """Run this command again by a copy of the package, and end; a copy goes on.

    A change of the code meanwhile would look like another result, or like a crash.
    """
    if COPY in os.environ:
        return
    import unmix

    with tempfile.TemporaryDirectory() as name:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(unmix.__file__).parent, Path(name, "unmix"), ignore=ignored)
        environment = os.environ | {COPY: name, "PYTHONPATH": name}
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment).returncode)


def parse_options(name, ending="json", **defaults):
    """Read the options that all benchmarks have; more are added by their defaults."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    parser.add_argument("--output", type=Path, help=f"default {name}.{ending}; none with --quick")
    for key, value in defaults.items():
        if isinstance(value, bool):
            parser.add_argument(f"--{key}", action="store_true")
        else:
            parser.add_argument(f"--{key}", type=type(value), default=value)
    options = parser.parse_args()
    if options.output is None and not options.quick:
        options.output = RESULTS / f"{name}.{ending}"
    return options


class Runs:
    """Runs kept one to a line of a file of JSON lines: what is there already is not run again.

    Without a path, as with --quick, nothing is kept.
    """

    def __init__(self, path, again=False):
        self.path, self.lines = path, []
        if path and path.exists() and not again:
            # An interrupted run may have left half a line, which is then run again.
            text = path.read_text(encoding="utf-8")
            self.lines = [json.loads(line) for line in text.splitlines(True) if line[-1] == "\n"]
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(map(one_line, self.lines)), encoding="utf-8")

    def once(self, work, /, **key):
        """Return what `work(**key)` found, a dictionary: now, or when it was run before."""
        for line in self.lines:
            if key.items() <= line.items():
                return line
        line = key | work(**key)
        self.lines.append(line)
        if self.path:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(one_line(line))
        print(one_line(line), end="", flush=True)
        return line


def one_line(run):
    """Return a run as a line of JSON, its numbers with as many digits as anyone reads."""
    short = {k: round(v, 4) if isinstance(v, float) else v for k, v in run.items()}
    return json.dumps(short) + "\n"


def open_runs(name, **defaults):
    """Read the options of a benchmark that keeps its runs one by one; open what it has kept."""
    options = parse_options(name, ending="jsonl", again=False, **defaults)
    return options, Runs(options.output, options.again)


def write_results(options, results):
    """Write the results with a description of the machine, if they are to be kept."""
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"machine": machine(), **results}, indent=1)
        options.output.write_text(text + "\n")
        print(f"written: {options.output.name}")


def machine():
    """Describe this machine."""
    from importlib.metadata import version

    found = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    return {
        "processor": found[1] if found else "unknown",
        "cores": len(os.sched_getaffinity(0)),
        "torch": version("torch"),
    }
