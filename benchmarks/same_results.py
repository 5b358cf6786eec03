"""Cells of the study run again by the code of now, beside the test errors of docs/results.jsonl.

    python benchmarks/same_results.py [--again]

One cell of each method of the comparison on MNIST, 10 sets, seed 0. Each run is kept in
results/same_results.jsonl: the test errors in percent and whether those of all epochs are the same.
"""

import json
from functools import partial
from pathlib import Path

from measuring import open_runs

from unmix.studies.cell import Cell, run_cell
from unmix.studies.code_version import code_version

EXPORT = Path(__file__).parents[1] / "docs" / "results.jsonl"
METHODS = ("mmc-u2-b", "mmc-u2", "mmc-u2-c", "llp-vat", "ssc", "ssc-vat")


def exported():
    """Return (cell, code, test errors of its epochs) of the cells that are run again."""
    for text in EXPORT.read_text().splitlines():
        line = json.loads(text)
        cell = {"method": "ssc"} | line["cell"]
        plain = cell.keys() <= {"dataset", "method", "epochs", "held_out", "num_sets", "seed"}
        first = not cell.get("seed") and cell.get("num_sets", 10) == 10
        if plain and first and cell["dataset"] == "mnist" and cell["method"] in METHODS:
            yield cell, line["code"], line["result"]["history"]["test_error"]


def again(code, errors, **cell):
    """Run a cell; return how it ends beside how it ended."""
    history = [epoch["test_error"] for epoch in run_cell(Cell(**cell))["history"]]
    return {
        "then": round(100 * errors[-1], 2),
        "now": round(100 * history[-1], 2),
        "same": history == errors,
        "code then": code,
        "code now": code_version(),
    }


def main():
    """Run what was not run yet."""
    _, runs = open_runs("same_results")
    for cell, code, errors in exported():
        runs.once(partial(again, code, errors), **cell)


if __name__ == "__main__":
    main()
