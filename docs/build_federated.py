"""Write the tables of docs/federated.md from benchmarks/results: python docs/build_federated.py

No number of theirs is typed by hand.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from readme_sections import with_section
from unmix.files import atomic_write_text
from unmix.report.study_tables import markdown_table

DOCS = Path(__file__).resolve().parent
AVERAGES = ("FedAvg, 1 epoch", "FedAvg, 5 epochs", "FedProx")
CLOSE = 0.005  # of the AUC of a network in one place
RESULTS, PAGE = DOCS.parent / "benchmarks/results", DOCS / "federated.md"


def main() -> int:
    """Write the tables into the page."""
    atomic_write_text(PAGE, render_page(PAGE.read_text(encoding="utf-8")))
    return 0


def render_page(text: str) -> str:
    """Return the page with the tables of what was measured."""
    found = json.loads((RESULTS / "federated_rounds.json").read_text(encoding="utf-8"))
    text = with_section(text, "rounds", rounds_section(found))
    evaluated = json.loads((RESULTS / "federated_evaluation.json").read_text(encoding="utf-8"))
    text = with_section(text, "evaluation", evaluation_section(evaluated))
    lines = (RESULTS / "federated_network.jsonl").read_text(encoding="utf-8").splitlines()
    return with_section(text, "networks", networks_section([json.loads(line) for line in lines]))


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
    steps = ways["FedSGD"]
    late = steps["tried"] - steps["arrived"]
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
        f"{max(averaged):.1%}. Steps against the whole gradient (FedSGD) do not drift; the best "
        f"rate, {steps['rate']:g}, arrives in {steps['close_from']} rounds, and {late} of "
        f"{steps['tried']} not in {steps['rounds']}. Fits by unmix have no rate.\n\n"
        f"With noise ({fits} fits each, rows cut to length 8, every party adds its own) the AUC "
        f"is {noisy}.\n"
    )


def evaluation_section(found: Mapping[str, Any]) -> str:
    """Return how far counts are from the rows they count."""
    rows = [
        [
            str(line["held_out"]),
            str(line["least_cell"]),
            f"{mean(line['auc']):.4f} \u00b1 {mean(line['width']):.3f}",
            f"{mean(line['off']):+.4f}".replace("-", "\u2212"),
            f"{max(map(abs, line['off'])):.4f}",
            f"{line['same_rates']} of {line['draws']}",
        ]
        for line in found["lines"]
    ]
    headings = (
        "held-out rows of a set",
        "least rows of a cell",
        "AUC by all rows, 95% interval",
        "by counts: off on average",
        "at most",
        "rates the same",
    )
    return (
        f"Models of {found['parties']} parties with one set of MNIST each, judged without labels "
        "by the scores of all held-out rows in one place, and by the counts that the parties tell "
        "(`benchmarks/federated_evaluation.py`):\n\n"
        f"{markdown_table(headings, rows, words=0)}"
    )


def networks_section(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return what networks of parties reach, and in how many rounds."""
    by_way: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        by_way.setdefault(run["way"], []).append(run)
    rows = [
        [
            f"of {way}",
            ", ".join(f"{run['auc']:.4f}" for run in own),
            ", ".join(f"{run['error']:.2%}" for run in own),
        ]
        for way, own in by_way.items()
    ]
    ours, central = by_way["parties"], by_way["one place"]
    pairs = [(p, c) for p in ours for c in central if c["seed"] == p["seed"]]
    apart = max(c["auc"] - p["auc"] for p, c in pairs)
    close = [_close_from(p["path"], c["auc"]) for p, c in pairs]
    said = ", ".join(map(str, close))
    return (
        f"A network by parties (`--model mlp`), beside networks of the same layers that see all "
        f"{ours[0]['rows']:,} rows in one place, from {len(ours)} starts "
        "(`benchmarks/federated_network.py`). Rows that were held out chose when to stop; no label "
        "chose anything.\n\n"
        f"{markdown_table(('network', 'AUC', 'error'), rows, words=1)}\n"
        f"The network by parties is at most {max(apart, 0):.4f} below the one of one place without "
        f"batch norm, and stays within {CLOSE} of its AUC from round {said} on. A training took "
        f"{mean(p['rounds'] for p in ours):.0f} questions and "
        f"{mean(p['bytes'] for p in ours) / 1e6:.0f} MB of answers, more than half of them to find "
        "out when to stop.\n"
    )


def _close_from(path: Sequence[float], central: float) -> int:
    """Return the round from which on the AUC is not far below that of one place."""
    far = [n for n, auc in enumerate(path, 1) if auc < central - CLOSE]
    return (far[-1] if far else 0) + 1


def _chosen(way: Mapping[str, Any]) -> str:
    """Say what was chosen for a way."""
    if "tried" not in way:
        return "nothing"
    pull = f", pull {way['pull']:g}" if "pull" in way else ""
    some = f"; {way['arrived']} of {way['tried']} tried arrive"
    return f"rate {way['rate']:g}{pull}{some}"


if __name__ == "__main__":
    sys.exit(main())
