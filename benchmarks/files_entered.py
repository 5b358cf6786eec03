"""Which files of unmix a call enters: how many a reader must open to follow it.

Counts the files in which a function is called, imports and class bodies aside, room by room. Run it
with `python benchmarks/files_entered.py`; CONTRIBUTING.md says why some are files of their own.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

import unmix

ROOT = Path(unmix.__file__).parent


def files_entered(call: Callable[[], object]) -> list[str]:
    """Return the files of unmix in which the call runs a function, relative to the package."""
    found: set[str] = set()
    importing = 0  # modules whose body is being run: what that calls is no step of the work

    def note(frame, event, _):
        nonlocal importing
        code = frame.f_code
        if code.co_name == "<module>":
            importing += {"call": 1, "return": -1}.get(event, 0)
        if importing:
            return
        name, ours = code.co_name, code.co_filename.startswith(str(ROOT))
        ours = ours and code.co_filename.endswith(".py")  # templates are compiled too
        # A class body runs at import and is named after its class, in capitals.
        if event == "call" and ours and not name.startswith("<") and not name[0].isupper():
            found.add(code.co_filename)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return sorted(str(Path(name).relative_to(ROOT)) for name in found)


def example(rows: int = 60) -> tuple[pd.DataFrame, np.ndarray, dict[str, float]]:
    """Return rows, their sets and the shares of the sets."""
    rng = np.random.default_rng(0)
    priors = {f"set {j}": p for j, p in enumerate(np.linspace(0.1, 0.9, 6))}
    sets = np.repeat(list(priors), rows)
    positive = rng.random(len(sets)) < [priors[s] for s in sets]
    x = rng.normal(size=(len(sets), 3)) + positive[:, None]
    return pd.DataFrame(x, columns=["a", "b", "c"]), sets, priors


def walks(folder: Path) -> dict[str, Callable[[], object]]:
    """Return the calls that are counted, by name."""
    from unmix import UnmixClassifier
    from unmix.cli import main

    x, sets, priors = example()
    rows, rates = folder / "rows.csv", folder / "rates.csv"
    x.assign(region=sets).to_csv(rows, index=False)
    pd.Series(priors, name="share").rename_axis("region").to_csv(rates)
    command = ["fit", str(rows), "--sets", "region", "--priors", str(rates), "--model", "linear"]
    plain = {"method": "ssc", "hide_sets": False, "random_state": 0}
    return {
        "UnmixClassifier.fit, linear, nothing to choose": lambda: UnmixClassifier(
            priors, model="linear", **plain
        ).fit(x, sets),
        "UnmixClassifier.fit, linear, method auto": lambda: UnmixClassifier(
            priors, model="linear", random_state=0
        ).fit(x, sets),
        "UnmixClassifier.fit, mlp": lambda: UnmixClassifier(
            priors, model="mlp", epochs=1, **plain
        ).fit(x, sets),
        "unmix fit, in memory": lambda: main(
            [*command, "-o", str(folder / "model")], standalone_mode=False
        ),
    }


def main() -> None:
    """Print the files that each call enters, room by room."""
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of so few rows nothing can be shown
        for title, walk in walks(Path(name)).items():
            entered = [Path(file) for file in files_entered(walk)]
            rooms = Counter(str(file.parent) if len(file.parts) > 1 else "top" for file in entered)
            print(f"\n{title}: {len(entered)} files ({dict(rooms)})")
            print("  " + ", ".join(map(str, entered)))


if __name__ == "__main__":
    main()
