"""Parties of processes of their own, connected by Flower: the fit of one process, or one line.

Flower holds back libraries of others, so it lives in an environment of its own: `make
.venv-federated`, or another whose Python UNMIX_FLOWER names. Without it these tests are skipped.
"""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from test_federated import hospitals
from unmix import UnmixClassifier
from unmix.cli import main
from unmix.files import sha256_of

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "federated.md"
NAMES = ("north", "south", "west")
FIT = ("--method", "ssc", "--l2", "1e-3", "--resamples", "0")


def python_with_flower():
    """Return a Python that has Flower; None if there is none."""
    own = ROOT / ".venv-federated" / "bin" / "python"
    named = os.environ.get("UNMIX_FLOWER") or (str(own) if own.exists() else None)
    return named or (sys.executable if importlib.util.find_spec("flwr") else None)


PYTHON = python_with_flower()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PYTHON is None, reason="Flower is not here: make .venv-federated"),
]


@pytest.fixture
def started(tmp_path):
    """Return a function that starts a command in the folder; what still runs ends with the test."""
    paths = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    running = []

    def start(*args):
        process = subprocess.Popen(
            [PYTHON, "-m", "unmix.cli", "federated", *args],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def rows(tmp_path):
    """Three hospitals with two wards each, in a folder of its own."""
    _, table = hospitals(wards=2, rows=200)
    for j, name in enumerate(NAMES):
        own = table[table["ward"].str.startswith(f"ward {j}.")]
        (tmp_path / name).mkdir()
        own.drop(columns="y").to_csv(tmp_path / name / "rows.csv", index=False)
        shares = own.groupby("ward")["y"].mean().rename("share")
        shares.to_csv(tmp_path / name / "shares.csv")
    return tmp_path


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def joining(name, server, *more):
    rows, shares = f"{name}/rows.csv", f"{name}/shares.csv"
    asked = ("join", rows, "--sets", "ward", "--priors", shares, "--name", name)
    return (*asked, "--server", server, *more)


def ended(process, code):
    """Wait for a command; return what it printed, and its last line of complaint."""
    out, err = process.communicate(timeout=400)
    assert process.returncode == code, out + err
    assert "Traceback" not in err
    lines = [line for line in err.splitlines() if line.startswith("unmix: ")]
    return out, lines


def commands_of_page():
    """Return the commands of the page that make certificates."""
    text = PAGE.read_text().replace("\\\n", "")
    lines = [" ".join(line.split()) for line in text.splitlines() if line.startswith("openssl")]
    return [line.replace("DNS:unmix.example.org", "IP:127.0.0.1") for line in lines]


def test_three_parties_over_tls_fit_the_very_model_of_one_process(rows, started, monkeypatch):
    (authority, certificate, code) = commands_of_page()
    for command in (authority, certificate, code):
        subprocess.run(command, cwd=rows, shell=True, check=True, capture_output=True)
    server = f"127.0.0.1:{free_port()}"
    keys = ("--certificate", "server.pem", "--key", "server.key", "--code-file", "code.txt")
    serving = started(
        *("serve", "--parties", "3", "-o", "model", "--listen", server, *keys, *FIT),
        *("--give-model", "--json"),
    )
    know = ("--authority", "authority.pem", "--code-file", "code.txt")
    parties = [
        started(*joining(name, server, *know, "-o", f"copy-{name}", "--json")) for name in NAMES
    ]
    folders = [*NAMES, "--rows", "rows.csv", "--sets", "ward", "--priors", "shares.csv"]
    monkeypatch.chdir(rows)
    trying = CliRunner().invoke(
        main, ["federated", "try", *folders, "-o", "here", *FIT, "--json"], catch_exceptions=False
    )
    out, lines = ended(serving, 0)
    assert not lines
    told, here = json.loads(out), json.loads(trying.stdout)
    # The same replies, byte by byte, but for the copies of the model that are given here.
    copies = told["told"].pop("model")
    assert copies["replies"] == 3
    assert told["told"] == here["told"]
    assert told["rounds"] == here["rounds"]
    weights = {sha256_of(rows / f / "weights.safetensors") for f in ("model", "here")}
    for name, party in zip(NAMES, parties, strict=True):
        ended(party, 0)
        weights.add(sha256_of(rows / f"copy-{name}" / "weights.safetensors"))
    assert len(weights) == 1
    clf = UnmixClassifier.load(rows / "copy-south")
    frame = pd.read_csv(rows / "south" / "rows.csv").drop(columns="ward")
    assert np.ptp(clf.predict_proba(frame)[:, 1]) > 0.5
    assert "<html" in (rows / "model" / "report.html").read_text()


def test_a_party_that_dies_ends_the_fit_for_all_and_is_named(rows, started):
    server = f"127.0.0.1:{free_port()}"
    fit = ("--method", "ssc", "--held-out", "0")  # long enough to die in
    serving = started(
        "serve", "--parties", "3", "-o", "model", "--listen", server, "--timeout", "4", *fit
    )
    parties = {name: started(*joining(name, server)) for name in NAMES}
    joined = set()
    while len(joined) < 3:
        line = serving.stderr.readline()
        assert line, serving.communicate()
        joined |= {name for name in NAMES if f"{name!r} joined" in line}
    time.sleep(0.3)
    parties["south"].send_signal(signal.SIGKILL)
    _, (line,) = ended(serving, 2)
    assert "party 'south' did not answer round" in line
    assert "nothing of this fit is kept" in line
    for name in ("north", "west"):
        _, (line,) = ended(parties[name], 2)
        assert "the fit was ended: party 'south' did not answer" in line
    assert not [path for path in rows.iterdir() if "model" in path.name]


def test_who_does_not_know_the_code_is_not_let_in_and_told_so(rows, started):
    (rows / "code.txt").write_text("a code of ours")
    (rows / "other.txt").write_text("not their code")
    server = f"127.0.0.1:{free_port()}"
    serving = started(
        *("serve", "--parties", "2", "-o", "model", "--listen", server, *FIT),
        *("--code-file", "code.txt"),
    )
    assert "listening on" in serving.stderr.readline()
    for path in ("docs", "v1/control/list-nodes", "v1/control/start-run", "v1/runtime/get-run"):
        with pytest.raises(urllib.error.HTTPError, match="404"):  # Flower would answer anybody
            urllib.request.urlopen(f"http://{server}/{path}", data=b"")
    stranger = started(*joining("north", server, "--code-file", "other.txt"))
    for process in (serving, stranger):
        _, (line,) = ended(process, 2)
        assert "party 'north' does not know the code of this fit" in line
    assert not (rows / "model").exists()
