"""Cells of the study run again by the code of now, beside the test errors of docs/results.jsonl.

    python benchmarks/same_results.py [--again]

One cell of each method of the comparison on MNIST, 10 sets, seed 0. What is found stands in
results/same_results.jsonl, a line for each cell; a cell that stands there is not run again.
"""

import argparse
import json
from pathlib import Path

from measuring import RESULTS

from unmix.studies.cell import Cell, run_cell
from unmix.studies.code_version import code_version

EXPORT = Path(__file__).parents[1] / "docs" / "results.jsonl"
FOUND = RESULTS / "same_results.jsonl"
METHODS = ("mmc-u2-b", "mmc-u2", "mmc-u2-c", "llp-vat", "ssc", "ssc-vat")


def exported():
    """Return (cell, result) of the cells that are run again."""
    for text in EXPORT.read_text().splitlines():
        line = json.loads(text)
        cell = line["cell"]
        plain = cell.keys() <= {"dataset", "method", "epochs", "held_out", "num_sets", "seed"}
        first = not cell.get("seed") and cell.get("num_sets", 10) == 10
        if plain and first and cell["dataset"] == "mnist" and cell.get("method", "ssc") in METHODS:
            yield cell, line


def main():
    """Run what was not run yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", action="store_true", help="Run all, and forget what was found.")
    if parser.parse_args().again:
        FOUND.unlink(missing_ok=True)
    FOUND.touch()
    done = [json.loads(line)["cell"] for line in FOUND.read_text().splitlines()]
    for cell, line in exported():
        if cell in done:
            continue
        result = run_cell(Cell(**cell))
        found = {
            "cell": cell,
            "before": {"code": line["code"], "errors": line["result"]["history"]["test_error"]},
            "now": {
                "code": code_version(),
                "errors": [epoch["test_error"] for epoch in result["history"]],
            },
        }
        with FOUND.open("a") as file:
            file.write(json.dumps(found) + "\n")
        same = "the same" if found["before"]["errors"] == found["now"]["errors"] else "not the same"
        then, now = (100 * found[when]["errors"][-1] for when in ("before", "now"))
        print(f"{cell.get('method', 'ssc')}: {then:.2f} %, now {now:.2f} %, {same}", flush=True)


if __name__ == "__main__":
    main()
