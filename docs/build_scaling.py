"""Write the tables of docs/scaling.md from benchmarks/results: python docs/build_scaling.py

No number of theirs is typed by hand.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from readme_sections import with_section
from unmix.files import atomic_write_text
from unmix.report.study_tables import markdown_table

DOCS = Path(__file__).resolve().parent
RESULTS, PAGE = DOCS.parent / "benchmarks/results", DOCS / "scaling.md"
HALF = 0.5  # of its time in which a driver works: then it is the limit


def main() -> int:
    """Write the tables into the page."""
    found = json.loads((RESULTS / "scaling.json").read_text(encoding="utf-8"))
    text = PAGE.read_text(encoding="utf-8")
    for name, section in (
        ("constants", constants_section(found)),
        ("checked", checked_section(found)),
        ("told", told_section(found)),
        ("speed", speed_section(json.loads((RESULTS / "engine_speed.json").read_text("utf-8")))),
    ):
        text = with_section(text, name, section)
    atomic_write_text(PAGE, text)
    return 0


def constants_section(found: Mapping[str, Any]) -> str:
    """Return what was measured, and what is assumed."""
    known, assumed, machine = found["constants"], found["assumed"], found["machine"]
    rows = [
        ["rows in a pass, from memory", f"{1 / known['row']:,.0f} a second and core"],
        ["rows read and encoded", f"{1 / known['read']:,.0f} a second and core"],
        ["the driver asks", f"{1e3 * known['send']:.2f} ms a file"],
        ["the driver takes in an answer", f"{1e3 * known['take']:.2f} ms a file"],
        ["a worker, for a file of no rows", f"{1e3 * known['worker_call']:.2f} ms"],
        ["question and answer", f"{known['message']:,.0f} bytes a file"],
        ["start of Ray", f"{known['start']:.0f} s"],
        ["a worker that was killed answers again after", f"{known['recovery']:.0f} s"],
    ]
    return (
        f"{markdown_table(('measured', ''), rows, words=1)}\n"
        f"On {machine['processor']}, {assumed['features']} columns of numbers, one thread each; "
        "the first four are processor seconds. Assumed: "
        f"{8e-9 * assumed['bandwidth']:.0f} Gbit/s and {1e3 * assumed['latency']:.1f} ms to the "
        f"driver, {assumed['passes']} passes, files of {assumed['file_rows']:,} rows (or one for "
        f"each worker), {assumed['kept_bytes'] / 1e9:.0f} GB of rows kept by a worker, of whom "
        f"each dies every {assumed['hours_to_death']:,.0f} hours.\n"
    )


def checked_section(found: Mapping[str, Any]) -> str:
    """Return passes that were measured beside what the model says of them."""
    rows = [
        [
            f"{line['rows']:,}",
            str(line["files"]),
            str(line["workers"]),
            f"{line['seconds']:.3f}",
            f"{line['model']:.3f}",
            f"{line['seconds'] / line['model']:.2f}",
        ]
        for line in found["checked"]
    ]
    headings = ("rows", "files", "workers", "measured s", "model s", "ratio")
    ratios = [line["seconds"] / line["model"] for line in found["checked"]]
    return (
        "Passes that gave no constant: the fastest of several turns. The machine was busy with "
        "other work, which the model knows nothing of.\n\n"
        f"{markdown_table(headings, rows, words=0)}\n"
        f"Measured passes took {min(ratios):.1f} to {max(ratios):.1f} times as long as the model "
        "says; take what follows with a factor of that size.\n"
    )


def speed_section(found: Mapping[str, Any]) -> str:
    """Return how much faster two workers are than one, in passes that take long."""
    passes, names = found["passes"], ("in process", "1 worker", "2 workers")
    rows = [
        [
            name,
            f"{passes[name]['seconds']:.2f}",
            f"{passes[name]['median_seconds']:.2f}",
            f"{passes[name]['processor_seconds']:.2f}",
            f"{passes[name]['busiest_processor_seconds']:.2f}",
        ]
        for name in names
    ]
    headings = ("pass", "fastest s", "median s", "processor s", "of the busiest process")
    beside = found["ratios"]["1 worker"], found["ratios"]["in process"]
    clock, worked = (
        " and ".join(f"{ratio[kind]:.2f}" for ratio in beside)
        for kind in ("seconds", "busiest_processor_seconds")
    )
    return (
        f"Two workers beside one, and beside the fit in one process: passes over "
        f"{found['rows']:,} rows of {found['features']} columns in {found['files']} files, one "
        "thread each, in turns, the same bits (`benchmarks/engine_speed.py`).\n\n"
        f"{markdown_table(headings, rows, words=1)}\n"
        f"By the fastest passes two workers are {clock} times as fast. Other work ran on the "
        "machine's two cores; by processor seconds, those of one worker over those of the busier "
        f"of two, the factors are {worked}.\n"
    )


def told_section(found: Mapping[str, Any]) -> str:
    """Return what the model says of fits that nobody made."""
    rows = [
        [
            f"{line['rows']:.0e}".replace("e+", "e").replace("e0", "e").replace("1e", "10^"),
            f"{line['workers']:,}",
            f"{line['files']:,}",
            f"{line['kept']:.0%}",
            _time(line["reading"]),
            _time(line["pass"]),
            _time(line["fit"]),
            _time(line["fit"] * line["workers"]),
            _limit(line),
        ]
        for line in found["told"]
    ]
    headings = (
        "rows",
        "workers",
        "files",
        "kept in memory",
        "reading",
        "one pass",
        "fit",
        "worker time",
        "limit",
    )
    known, assumed = found["constants"], found["assumed"]
    row_bytes = 4 * assumed["features"] + 8
    enough = {n: -(-n * row_bytes // assumed["kept_bytes"]) for n in (10**9, 10**11)}
    per_file = known["send"] + known["take"]
    return (
        f"{markdown_table(headings, rows, words=0)}\n"
        f"All rows fit in memory from {enough[10**9]:,.0f} workers on for a billion rows, and from "
        f"{enough[10**11]:,.0f} for a hundred billion: the step from reading them in every pass to "
        f"keeping them is the largest in the table. The driver works {1e3 * per_file:.2f} ms a "
        f"file and pass, so that {1 / per_file:,.0f} files a second are what it can ask. A pass "
        f"brings it {known['message']:,.0f} bytes a file: "
        f"{max(line['bytes'] for line in found['told']) / 1e9:.1f} GB in the largest fit of the "
        "table, which no network minds.\n"
    )


def _limit(line: Mapping[str, Any]) -> str:
    """Say what a fit waits for most."""
    if line["driver"] > HALF:
        return "driver"
    return "rows" if line["kept"] == 1 else "reading"


def _time(seconds: float) -> str:
    """Say how long it takes, as people do."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.1f} s"


if __name__ == "__main__":
    sys.exit(main())
