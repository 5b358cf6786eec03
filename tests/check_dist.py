"""Builds the wheel and the sdist, tries the wheel in a new environment, lists what came with it.

python tests/check_dist.py FOLDER      what `make dist` does; installs every dependency
"""

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Sets with known shares, from fit to an export, as a stranger would after `pip install`.
TRIAL = """
import numpy as np
import pandas as pd
from unmix import UnmixClassifier, __version__

rng = np.random.default_rng(0)
priors = {"north": 0.8, "south": 0.3, "east": 0.5, "west": 0.1}
sets = np.repeat(list(priors), 300)
sick = rng.random(1200) < [priors[s] for s in sets]
X = pd.DataFrame(rng.normal(size=(1200, 3)) + 2.0 * sick[:, None], columns=list("abc"))
clf = UnmixClassifier(priors, method="ssc", model="linear", random_state=0).fit(X, sets)
assert (clf.predict(X) == sick).mean() > 0.85
clf.save("model")
clf.report("report.html")
assert "<html" in open("report.html", encoding="utf-8").read()
X.assign(region=sets).to_csv("rows.csv", index=False)
print(__version__)
"""


def build(folder, *, isolated):
    """Build both archives; the wheel is made of the sdist, as installers make it."""
    options = [] if isolated else ["--no-isolation"]
    subprocess.run(
        [sys.executable, "-m", "build", *options, "--outdir", str(folder), str(ROOT)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (wheel,), (sdist,) = Path(folder).glob("*.whl"), Path(folder).glob("*.tar.gz")
    return wheel, sdist


def try_out(python, folder, environment=None):
    """Run the trial and the command in a folder; return what they print."""
    run = {"cwd": folder, "env": environment, "text": True, "capture_output": True}
    printed = []
    for words in (
        ["-c", TRIAL],
        ["-m", "unmix.cli", "--version"],
        ["-m", "unmix.cli", "methods"],
        ["-m", "unmix.cli", "predict", "model", "rows.csv", "-o", "scored.csv"],
    ):
        done = subprocess.run([str(python), *words], **run)
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        printed.append(done.stdout)
    return "".join(printed)


def bill_of_materials(python, place, target):
    """Write what is installed beside a Python, versions and licences, in the words of CycloneDX."""
    venv.create(place, with_pip=True)  # a place of its own, or it would list itself
    tool = place / ("Scripts" if os.name == "nt" else "bin") / "python"
    subprocess.run([tool, "-m", "pip", "install", "--quiet", "cyclonedx-bom >= 5"], check=True)
    make = [tool, "-m", "cyclonedx_py", "environment", str(python), "--output-file", str(target)]
    subprocess.run(make, check=True)


def main(folder):
    for old in Path(folder).glob("unmix-*"):
        old.unlink()
    wheel, sdist = build(folder, isolated=True)
    with tempfile.TemporaryDirectory() as place:
        venv.create(Path(place) / "venv", with_pip=True)
        python = Path(place) / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", str(wheel)], check=True)
        bill_of_materials(python, Path(place) / "tool", Path(folder) / "unmix.cdx.json")
        clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        print(try_out(python, place, clean))
    print(f"built, installed and tried: {wheel} and {sdist}; all it needs: unmix.cdx.json")


if __name__ == "__main__":
    main(*sys.argv[1:])
