"""Write docs/reliability.md from benchmarks/results: what unmix promises when things go wrong.

    python docs/build_reliability.py

No number on that page is typed by hand.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unmix.files import atomic_write_text
from unmix.report.study_tables import markdown_table

DOCS = Path(__file__).resolve().parent
RESULTS, PAGE = DOCS.parent / "benchmarks/results", DOCS / "reliability.md"
NOT_YET = "Not measured yet.\n"

Results = Mapping[str, Any]

PROMISES = """\
## What is promised

**A file or a folder is there whole or not at all.** Scores, models, reports, exports and
checkpoints are written under a hidden name beside their place, forced to the disk, and renamed. A
folder that is replaced takes two renames; after a crash between them the old one is put back by the
next write (`tests/test_files.py`). Who reads a model that is replaced meanwhile gets the old one
or the new one (`tests/test_saved.py`).

**What a killed process left is removed by the next run** in the same folder: the hidden name
holds the machine, the process and the moment it started. Names of living processes, of other
machines and of other containers are left alone, and so is every other file. SIGTERM, SIGHUP and
Ctrl-C remove it at once (`tests/test_files.py`, `tests/test_stopped.py`).

**Nothing of yours is replaced or emptied.** An output is never one of the inputs, by whatever
name or link. A file is replaced with `--overwrite` only, and a folder only if it is a model of
ours with nothing else in it. The scratch folder of a large fit (`.NAME.unfinished`) must bear our
mark (`tests/test_outputs.py`, `tests/test_saved.py`, `tests/test_streaming.py`).

**What can be resumed**: `unmix fit --stream`, `unmix train --resume` and `unmix reproduce`. The
same command resumes where it was killed and comes to the same result; `predict` and a fit in
memory begin again.

**What is deterministic**: the same rows, options and seed give the same bits on the same build
with the same number of threads, for every model. Across numbers of threads only small differences
in the last bits are promised; trees are bitwise the same for the same number of threads.

**A mistake of yours is one line and exit code 2**, with nothing written; 1 is for ours
(`tests/test_cli_mistakes.py`, `tests/test_hostile_files.py`, `tests/test_hostile_commands.py`,
`tests/test_properties.py`). Memory that is short is told so, with 2, unless a library of linear
algebra ends the process itself, with a line of its own and 1. In Python
it is an `InputError`, which is a `ValueError` (`tests/test_hostile_python.py`).

## What a model folder can do to you

A folder holds JSON, safetensors or the text of trees; no pickle, no code. It may come from a
stranger:

- sizes are compared with the files before anything is read, and digests after; members that are
  links, pipes or folders are refused;
- every entry of model.json that is read has its type, range and length checked;
- trees are checked in Python, and LightGBM's parser gets a text that was written anew from what
  was found right;
- a network takes no more memory than its file of weights, whatever sizes it states; weights must
  be finite;
- a torch module of your own is only named by the folder: the class comes from you (`load(folder,
  module=...)`) and is called with the arguments that the folder states, so give it to folders you
  trust.

What it can still do is predict wrongly: the digests find damage, not malice. Take models from
people you trust, or evaluate them on sets of your own.

## What is sent over a network

Nothing, but by `unmix data fetch`, which downloads a benchmark and checks its published SHA-256.
There is no telemetry and no look for a newer version. Rows and scores stay where you put them.
A test runs the commands under a watch that sees every connection (`tests/test_silence.py`); an
address such as `s3://` that you name yourself is read, of course.

## What is installed

Data comes by HTTPS and with its hash. `lock.txt` names one archive of every library that the tests
were run with, and its SHA-256: `pip install --require-hashes --no-deps -r lock.txt` installs these
or nothing. A new major version of a library that could change results is not installed on its own.
`make dist` writes `unmix.cdx.json` beside the wheel, a list of all that an installation holds
(CycloneDX), for scanners that look for known faults.

## What names may do

Names of sets, classes and columns are printed with control characters, line ends and marks of
direction escaped, and JSON output is ASCII. A CSV cell that begins with one of `= + - @` is a
formula for a spreadsheet: `--quote-formulas` puts a `'` before such text in `predict` and
`prevalence -o`.

## Limits

- Temporary files of a process that was killed stay until the next run in that folder; outside
  Linux, for good.
- Workers of `reproduce` and of `--engine ray` take code from the installed packages and PYTHONPATH,
  never from the working folder; files that you name with `--load` are run.
- A folder of rows is searched with all that lies below it; a whole disk (`/`) is refused.
- A value in a CSV file has at most 131,072 characters; a workbook of rates unpacks to at most
  500 MB and has at most 5,000,000 cells.
- `predict` takes the same memory for any number of rows. `evaluate` and `prevalence` hold a score
  and the number of the set of every row, and some hundred bytes for every set, its name among them
  (`tests/test_many_sets.py`); what they print of a set is written as it is made.
- A run store (SQLite) does not belong on a network file system.
- The text columns of a table keep their most frequent words in model.json, as names of
  categories.
"""


def main() -> int:
    """Write the page."""
    atomic_write_text(PAGE, render_page(read_results(RESULTS)))
    return 0


def read_results(folder: Path) -> dict[str, Results]:
    """Return what the benchmarks of faults and of mutated files found."""
    paths = {name: folder / f"{name}.json" for name in ("faults", "fuzz")}
    return {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name, path in paths.items()
        if path.exists()
    }


def render_page(results: Mapping[str, Results]) -> str:
    """Return the page as Markdown."""
    faults, fuzz = results.get("faults", {}), results.get("fuzz", {})
    sections = [
        ("Kills", "benchmarks/faults.py --part kills", _kills, faults.get("kills")),
        ("Parties", "benchmarks/faults.py --part parties", _parties, faults.get("parties")),
        ("Full disks", "benchmarks/faults.py --part disks", _disks, faults.get("disks")),
        ("Crowds", "benchmarks/faults.py --part together", _together, faults.get("together")),
        ("Load", "benchmarks/faults.py --part load", _load, faults.get("load")),
        ("Files from strangers", "benchmarks/fuzz.py", _fuzz, fuzz),
        (
            "Cases in the repository",
            "benchmarks/faults.py --part cases",
            _cases,
            faults.get("cases"),
        ),
    ]
    parts = [
        "# When things go wrong\n",
        "<!-- Written by docs/build_reliability.py from benchmarks/results; do not edit. -->\n",
        "Kills, full disks, files from strangers and mistakes: what unmix promises, what shows it, "
        "and how often it was tried.\n",
        PROMISES,
        "## How often it was tried\n",
    ]
    for title, script, section, found in sections:
        parts.append(f"### {title}\n")
        parts.append(f"`{script}`\n\n{section(found)}" if found else NOT_YET)
    return "\n".join(parts)


def _kills(found: Results) -> str:
    """Return how often commands were killed, and what came of it."""
    rows = [
        (which, str(n["kills"]), str(n["ends"]), str(n["same"]), str(n["clean"]))
        for which, n in found.items()
    ]
    total = sum(n["kills"] for n in found.values())
    header = ("command", "kills", "brought to an end", "same result", "nothing left behind")
    return (
        f"{total} kills with SIGKILL at random moments. After a few each command was let run to "
        "its end, and its result compared with that of an undisturbed run.\n\n"
        + markdown_table(header, rows, words=1)
    )


def _parties(found: Results) -> str:
    """Return what came of killed servers and parties of a fit together."""
    return (
        f"{found['kills']} times the server or a party of a fit together was killed. The others "
        f"ended by themselves, with exit code 0 or 2, in {found['told']}. The fit that followed "
        f"had the same models in {found['same']}, and left no file behind in {found['clean']}.\n"
    )


def _disks(found: Results) -> str:
    """Return what came of full disks."""
    return (
        f"{found['disks']} times a disk of a few kilobytes or megabytes was full on the way. "
        f"Told in one line with exit code 2: {found['one_line']}. Nothing half-written: "
        f"{found['nothing_half_written']}, and an older output was whole in "
        f"{found['older_output_whole']}. With room made, the same command came to its end: "
        f"{found['went_on']}.\n"
    )


def _together(found: Results) -> str:
    """Return what came of many processes at one model folder."""
    return (
        f"{found['processes']} processes, eight at a time, replaced, read and used one model "
        f"folder: {found['ended_well']} ended well, {found['told_in_one_line']} said in one line "
        "that the folder was taken or away for a moment, "
        f"{found['wrong']} ended otherwise or with other scores.\n"
    )


def _load(found: Results) -> str:
    """Return time and memory as tables grow."""
    rows = []
    for name, runs in found.items():
        for n in runs:
            sets = f"{n['sets']:,}" if "sets" in n else "-"
            rows.append((name, f"{n['rows']:,}", sets, f"{n['seconds']:,.0f}", f"{n['peak_mb']:,}"))
    return markdown_table(("command", "rows", "sets", "seconds", "peak memory, MB"), rows, words=1)


def _fuzz(found: Results) -> str:
    """Return what came of mutated files."""
    names = {"folders": "model folders", "rates": "rates files"}
    keys = ("tried", "read", "refused", "wrong", "crashes", "hangs")
    rows = [
        (title, *(f"{found[part][key]:,}" for key in keys), f"{found[part]['most_memory_mb']:.0f}")
        for part, title in names.items()
        if part in found
    ]
    header = ("mutated", "tried", "read", "refused", "other errors", "crashes", "hangs")
    return markdown_table((*header, "memory over the valid ones, MB"), rows, words=1)


def _cases(found: Results) -> str:
    """Return how many cases the tests hold."""
    rows = [(f"tests/{name}", str(count)) for name, count in sorted(found.items())]
    total = sum(found.values())
    return f"{total} cases, all answered.\n\n" + markdown_table(("tests", "cases"), rows, words=1)


if __name__ == "__main__":
    sys.exit(main())
