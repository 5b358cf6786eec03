"""Kills workers, nodes and drivers of fits on Ray at random moments: the same bits, nothing left.

python benchmarks/engine_kills.py                        10 workers, 3 nodes, 3 drivers
python benchmarks/engine_kills.py --workers 4 --nodes 1 --drivers 1

Two nodes run on the loopback addresses of this machine (Linux). The fits are commands of their own
that join them; a node that is killed is started again. Only processes of this script are killed.
"""

import contextlib
import hashlib
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import parse_options, write_results

FILES, SETS = 8, 40
HEAD, SECOND, PORT = "127.0.0.2", "127.0.0.3", 6399
BIN = Path(sys.executable).parent


def prepare(folder, rows):
    """Write a table of eight files and its rates."""
    rng = np.random.default_rng(0)
    shares = rng.uniform(0.05, 0.95, SETS)
    (folder / "rows").mkdir()
    for k in range(FILES):
        index = rng.integers(SETS, size=rows // FILES)
        positive = rng.random(len(index)) < shares[index]
        x = rng.normal(size=(len(index), 12)) + 0.3 * positive[:, None]
        frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(12)])
        frame["region"] = [f"r{j}" for j in index]
        frame.to_parquet(folder / "rows" / f"part-{k}.parquet", index=False)
    names = [f"r{j}" for j in range(SETS)]
    pd.DataFrame({"region": names, "share": shares}).to_csv(folder / "rates.csv", index=False)


class Cluster:
    """Two nodes on this machine, each a process group with folders of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.nodes = {}

    def start(self, address):
        """Start the node of an address, and wait until it has joined."""
        command = [str(BIN / "ray"), "start", "--block", "--num-cpus=2", "--disable-usage-stats"]
        command += [f"--node-ip-address={address}", "--object-store-memory=100000000"]
        if address == HEAD:
            command += ["--head", f"--port={PORT}", f"--temp-dir={self.folder}"]
            command += ["--include-dashboard=false"]
        else:
            command += [f"--address={HEAD}:{PORT}"]
        with (self.folder.parent / f"{address}.log").open("a") as log:
            self.nodes[address] = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + 120
        while not self.raylet(address):
            assert time.monotonic() < deadline, "the node did not start"
            time.sleep(0.5)

    def raylet(self, address):
        """Return the process that makes a node a node."""
        for process in below(self.nodes[address].pid):
            words = command_of(process)
            if words and words[0].endswith("/raylet") and f"--node_ip_address={address}" in words:
                return process
        return None

    def workers(self):
        """Return the processes of actors on all nodes."""
        found = [p for node in self.nodes.values() for p in below(node.pid)]
        return [p for p in found if command_of(p)[:1] and "_Actor" in command_of(p)[0]]

    def kill(self, address):
        """Kill a node with all that belongs to it."""
        node = self.nodes.pop(address)
        for process in [*below(node.pid), node.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        node.wait()

    def end(self):
        """End both nodes."""
        for address in list(self.nodes):
            self.kill(address)


def below(top):
    """Return the processes that a process started, and those that they started."""
    parents = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            parents.setdefault(int(parent), []).append(int(entry.name))
    found, waiting = [], [top]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def command_of(process):
    """Return the words of a process's command."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text().split("\0")
    except OSError:
        return []


def fit(folder, address, name="model"):
    """Start a fit that joins the nodes."""
    command = [sys.executable, "-m", "unmix.cli", "fit", "rows", "--sets", "region"]
    command += [
        "--priors",
        "rates.csv",
        "--model",
        "linear",
        "--method",
        "ssc",
        "-o",
        name,
        "--json",
    ]
    command += ["--overwrite", "--engine", address, "--timeout", "300"]
    return subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def weights_of(folder, name="model"):
    """Return the digest of what was learned."""
    return hashlib.sha256((folder / name / "weights.safetensors").read_bytes()).hexdigest()


def left_in(folder, name="model"):
    """Return what is there besides what was there before, and the model."""
    known = {"rows", "rates.csv", name, "ray", f"{HEAD}.log", f"{SECOND}.log", "local"}
    return sorted({entry.name for entry in folder.iterdir()} - known)


def finished(process):
    """Wait for a fit; return whether it ended well and said nothing else."""
    out, err = process.communicate(timeout=600)
    good = process.returncode == 0 and not err
    try:
        json.loads(out)
    except ValueError:
        good = False
    if not good:
        print(process.returncode, out[-1000:], err[-2000:], file=sys.stderr)
    return good


def at_work(cluster, process):
    """Wait until the workers of a fit are there; say whether they came before it ended."""
    while process.poll() is None:
        if cluster.workers():
            return True
        time.sleep(0.05)
    return False


def undisturbed(folder, cluster):
    """Run a fit without kills; return its digest, its seconds, and those of them with workers."""
    started = time.monotonic()
    process = fit(folder, f"ray://{HEAD}:{PORT}")
    assert at_work(cluster, process)
    came = time.monotonic()
    assert finished(process)
    ended = time.monotonic()
    return weights_of(folder), ended - started, ended - came


def with_kills(folder, cluster, expected, seconds, kinds, rng):
    """Run one fit and kill one thing after the other while its workers are there."""
    process, killed = fit(folder, f"ray://{HEAD}:{PORT}"), []
    for kind in kinds:
        if not at_work(cluster, process):
            break
        time.sleep(rng.uniform(0, 0.7) * seconds / len(kinds))
        if process.poll() is not None:
            break
        if kind == "node":
            cluster.kill(SECOND)
            cluster.start(SECOND)
        elif kind == "driver":
            process.kill()
            process.communicate()
            process = fit(folder, f"ray://{HEAD}:{PORT}")
        elif at_work(cluster, process):
            with contextlib.suppress(ProcessLookupError, IndexError):
                os.kill(rng.choice(cluster.workers()), signal.SIGKILL)
        killed.append(kind)
    same = finished(process) and weights_of(folder) == expected
    time.sleep(2)
    clean = not left_in(folder) and not cluster.workers()
    return killed, same, clean


def main():
    """Make the kills and count what came of them."""
    options = parse_options("engine_kills", workers=10, nodes=3, drivers=3, rows=800_000, seed=0)
    rng = random.Random(options.seed)
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    with tempfile.TemporaryDirectory(prefix="uk") as place:
        folder = Path(place)
        prepare(folder, 40_000 if options.quick else options.rows)
        (folder / "ray").mkdir()
        started = time.monotonic()
        assert finished(fit(folder, "local", "local"))
        in_process, expected = time.monotonic() - started, weights_of(folder, "local")
        cluster = Cluster(folder / "ray")
        try:
            cluster.start(HEAD)
            cluster.start(SECOND)
            found, seconds, working = undisturbed(folder, cluster)
            assert found == expected
            print(f"local {in_process:.0f} s, two nodes {seconds:.0f} s", flush=True)
            wanted = {"worker": options.workers, "node": options.nodes, "driver": options.drivers}
            counts = {kind: {"kills": 0, "fits": 0, "same": 0, "clean": 0} for kind in wanted}
            for kind, number in wanted.items():
                while (left := number - counts[kind]["kills"]) > 0:
                    kinds = [kind] * min(left, 3 if kind == "worker" else 1)
                    found = with_kills(folder, cluster, expected, working, kinds, rng)
                    killed, same, clean = found
                    for name, value in zip(
                        ("kills", "fits", "same", "clean"),
                        (len(killed), 1, same, clean),
                        strict=True,
                    ):
                        counts[kind][name] += value
                    print(kind, counts[kind], flush=True)
        finally:
            cluster.end()
    results = {"kills": counts, "rows": options.rows, "files": FILES}
    results |= {"seconds_local": in_process, "seconds_two_nodes": seconds}
    write_results(options, results)


if __name__ == "__main__":
    main()
