"""Write the tables of docs/federated.md from benchmarks/results: python docs/build_federated.py

No number of theirs is typed by hand.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from readme_sections import with_section
from unmix.files import atomic_write_text
from unmix.report.study_tables import markdown_table

DOCS = Path(__file__).resolve().parent
AVERAGES = ("FedAvg, 1 epoch", "FedAvg, 5 epochs", "FedProx")
RESULTS, PAGE = DOCS.parent / "benchmarks/results", DOCS / "federated.md"


def main() -> int:
    """Write the tables into the page."""
    text = PAGE.read_text(encoding="utf-8")
    found = json.loads((RESULTS / "federated_rounds.json").read_text(encoding="utf-8"))
    atomic_write_text(PAGE, with_section(text, "rounds", rounds_section(found)))
    return 0


def rounds_section(found: Mapping[str, Any]) -> str:
    """Return how soon each way arrives, and what noise costs."""
    close, ways = found["close"], found["ways"]
    rows = [
        [
            name,
            str(way["close_from"] or f"not in {way['rounds']}"),
            f"{way['auc']:.4f}",
            f"{way['error']:.2%}",
            _chosen(way),
        ]
        for name, way in ways.items()
    ]
    headings = (
        "way",
        f"rounds to within {close}",
        "AUC in the end",
        "error",
        "chosen on test images",
    )
    noisy = ", ".join(
        f"{mean(scores):.3f} at epsilon {epsilon}" for epsilon, scores in found["noise"].items()
    )
    averaged = [error for name, way in ways.items() if name in AVERAGES for error in way["errors"]]
    central = f"AUC on test images is {found['central_auc']:.4f} and error "
    fits = len(next(iter(found["noise"].values())))
    return (
        f"{found['parties']} parties with one set of MNIST each, {found['rows']:,} rows, even "
        f"against odd digits on {found['components']} principal components; a linear model and "
        "the same loss for all (`benchmarks/federated_rounds.py`). The weights by unmix differ by "
        f"at most {found['apart']:.0e} from those of the fit to all rows in one place, whose "
        f"{central}{found['central_error']:.2%}. The others got the learning rate, and FedProx the "
        "pull, that is best for them on the test images themselves, which nobody has.\n\n"
        f"{markdown_table(headings, rows, words=1)}\n"
        "Averaging weights needs its rate: a party with one set drifts towards calling all its "
        "rows one class, and the more it learns between two rounds the further. Over all rates "
        f"that were tried, FedAvg and FedProx end with errors from {min(averaged):.1%} to "
        f"{max(averaged):.1%}. Fits by unmix have no rate.\n\n"
        f"With noise ({fits} fits each, rows cut to length 8, every party adds its own) the AUC "
        f"is {noisy}.\n"
    )


def _chosen(way: Mapping[str, Any]) -> str:
    """Say what was chosen for a way."""
    if "tried" not in way:
        return "nothing"
    pull = f", pull {way['pull']:g}" if "pull" in way else ""
    some = f"; {way['arrived']} of {way['tried']} tried arrive"
    return f"rate {way['rate']:g}{pull}{some}"


if __name__ == "__main__":
    sys.exit(main())
