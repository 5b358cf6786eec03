"""Every phase of a fit has a bar on a terminal, and nothing at all is drawn in a pipe."""

import os
import pty
import re
import select
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from unmix import UnmixClassifier
from unmix.learn.held_out_score import score_on_sets
from unmix.learn.models import Setup
from unmix.progress import progress_bar

SHARES = {f"s{j}": share for j, share in enumerate(np.linspace(0.1, 0.9, 12))}
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def people(rows=25):
    rng = np.random.default_rng(0)
    sets = np.repeat(list(SHARES), rows)
    positive = rng.random(len(sets)) < [SHARES[name] for name in sets]
    return pd.DataFrame({"a": rng.normal(size=len(sets)) + 3 * positive}), sets


@pytest.fixture
def command(tmp_path):
    """A fit that goes through every phase."""
    x, sets = people()
    x.assign(region=sets).to_csv(tmp_path / "rows.csv", index=False)
    pd.Series(SHARES, name="share").rename_axis("region").to_csv(tmp_path / "rates.csv")
    # Each word at once, and not only what stands there ten times a second.
    code = (
        "import rich.progress as r; u = r.Progress.update\n"
        "told = set()\n"
        "def now(self, *a, description, **o):\n"
        "    u(self, *a, description=description, **o)\n"
        "    if description not in told: self.refresh()\n"
        "    told.add(description)\n"
        "r.Progress.update = now\n"
        "from unmix.cli import main; main()"
    )
    fit = ["fit", "rows.csv", "--sets", "region", "--priors", "rates.csv", "-o", "model"]
    return {"args": [sys.executable, "-c", code, *fit], "cwd": tmp_path}


def seen_on_terminal(command):
    """Return what a command writes to a terminal of 120 columns as standard error."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(
        **command, stdout=subprocess.PIPE, stderr=theirs, env=environment, text=True
    )
    os.close(theirs)
    seen = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        seen += part
    os.close(ours)
    words, _ = process.communicate(timeout=60)
    assert process.returncode == 0, seen.decode()
    return ESCAPES.sub("", seen.decode()), words


def test_every_phase_of_a_fit_has_a_bar_with_time_to_go_on_a_terminal(command):
    seen, words = seen_on_terminal(command)
    phases = [
        "reading",
        "choosing: linear, ssc, fold 1 of 5",
        "choosing: linear, set-effects, fold 5 of 5",
        "fitting, linear, ",
        "resampling: 20 fits",
        "judging",
        "fitting again, linear, ",
        "resampling: 20 fits",
        "writing the report",
    ]
    places = [seen.find(phase) for phase in phases[:7]]
    assert min(places) >= 0, [phase for phase in phases if phase not in seen]
    assert places == sorted(places)
    again = seen[places[-1] :]
    assert all(phase in again for phase in phases[6:])
    choosing = [line for line in re.split(r"[\r\n]+", seen) if "choosing: " in line]
    assert any(re.search(r"\d:\d\d:\d\d", line) for line in choosing)
    assert "Model and report: model" in words


def test_in_a_pipe_no_bar_is_drawn(command):
    done = subprocess.run(**command, capture_output=True, text=True, check=True)
    assert not [line for line in done.stderr.splitlines() if "warning: " not in line]
    assert "\x1b" not in done.stdout
    assert "choosing" not in done.stdout
    assert "Model and report: model" in done.stdout


def test_a_classifier_is_silent_on_a_terminal_unless_verbose(monkeypatch, capfd):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    UnmixClassifier(SHARES, model="linear", method="ssc", l2=0.1).fit(*people())
    assert capfd.readouterr().err == ""


def test_without_a_terminal_a_bar_takes_what_it_is_told_and_shows_nothing(capfd):
    with progress_bar("choosing", unit="rows") as tell:
        tell(1, 2, "fold 1 of 2")
        tell(1, None, "")
    assert capfd.readouterr() == ("", "")


def test_choosing_tells_which_fit_comes_and_never_goes_back():
    told = []
    x, sets = people(rows=60)
    clf = UnmixClassifier(SHARES)
    rows, _ = clf._rows(x, sets, seed=0)
    rows.target = np.array([0.5, 0.5])
    from unmix.learn.models import model_row

    view = {"linear": rows.in_memory(model_row("linear"))}
    setups = [Setup("linear", "ssc"), Setup("linear", "count", l2=0.1)]
    score_on_sets(view, setups, folds=3, progress=lambda *now: told.append(now))
    done, totals, texts = zip(*told, strict=True)
    assert set(totals) == {3 * 6 + 3}  # each strength of the first, one of the second
    assert list(done) == sorted(done)
    assert done[-1] == totals[-1] - 1
    assert texts[1] == "linear, ssc, fold 1 of 3"
    assert texts[-1] == "linear, count, fold 3 of 3"
