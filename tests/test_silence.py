"""Nothing is sent over a network: no command opens a connection or asks for an address."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

# Python reports whatever touches a network to this, libraries in C aside.
WATCHED = """
import sys
TOUCHED = {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.bind",
           "socket.sendto", "urllib.Request", "http.client.connect"}
def watch(event, arguments):
    if event in TOUCHED:
        sys.stderr.write(f"NETWORK {event} {arguments}\\n")
sys.addaudithook(watch)
"""
COMMAND = WATCHED + "from unmix.cli import main\nmain()\n"


def watched(code, *words, folder=None):
    return subprocess.run(
        [sys.executable, "-c", code, *words], cwd=folder, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("silent")
    rng = np.random.default_rng(0)
    shares = {f"s{j}": share for j, share in enumerate(np.linspace(0.1, 0.9, 8))}
    sets = np.repeat(list(shares), 100)
    y = rng.random(800) < [shares[s] for s in sets]
    rows = pd.DataFrame(rng.normal(size=(800, 3)) + y[:, None], columns=list("abc"))
    rows.assign(region=sets).to_csv(folder / "rows.csv", index=False)
    pd.DataFrame({"region": shares.keys(), "share": shares.values()}).to_csv(
        folder / "rates.csv", index=False
    )
    return folder


def test_the_watch_sees_a_connection():
    ask = "import socket as s\ns.socket(s.AF_INET, s.SOCK_DGRAM).connect(('127.0.0.1', 9))"
    assert "NETWORK socket.connect" in watched(WATCHED + ask).stderr


def test_no_command_touches_a_network(files):
    table = ["rows.csv", "--sets", "region", "--priors", "rates.csv"]
    for words in (
        ["fit", *table, "-o", "model", "--model", "linear", "--method", "ssc"],
        ["predict", "model", "rows.csv", "-o", "scored.csv"],
        ["evaluate", "model", *table],
        ["prevalence", "model", "rows.csv", "--sets", "region"],
        ["diagnose", *table],
    ):
        done = watched(COMMAND, *words, folder=files)
        assert done.returncode == 0, f"{words}\n{done.stderr}"
        assert "NETWORK" not in done.stderr, words
    assert json.loads((files / "model" / "model.json").read_text())
