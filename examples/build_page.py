"""Run the commands of docs/worked-example.md and failure-modes.md and write in what they print.

    python examples/build_page.py

Every ```console block holds commands after "$ "; whatever stands below a command is replaced by
its output. Numbers in the text stand between <!--name--> and <!--/--> and are looked up in the
outputs. The pictures are taken from the report that the page's `unmix fit` writes.
"""

import os
import re
import subprocess
import sys
import tempfile
from html import unescape
from pathlib import Path

from unmix.report.svg import standalone_svg

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
STORY, FAILURES = DOCS / "worked-example.md", DOCS / "failure-modes.md"

BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
FACT = re.compile(r"<!--(\w+)-->.*?<!--/-->", re.DOTALL)
MEASURE = re.compile(r"^[a-z ]+ [\d.]+ \(([\d.]+) to ([\d.]+)\) +([\d.]+)$", re.MULTILINE)

# Where the numbers of the text are found in the outputs; the first match counts.
FACTS = {
    "held_out": r"predicted share on held-out sets:.*set-effects ([\d.]+\d)",
    "guess": r"predicted share on held-out sets:.*baseline ([\d.]+\d)",
    "ssc": r"predicted share on held-out sets: ssc ([\d.]+\d)",
    "auc": r"unmix, no label +([\d.]+)",
    "auc_known": r"unmix, share of the occupation known +([\d.]+)",
    "brier": r"unmix, share of the occupation known +[\d.]+ +([\d.]+)",
    "brier_new": r"unmix, no label +[\d.]+ +([\d.]+)",
    "brier_share": r"\nshare of the occupation +[\d.]+ +([\d.]+)",
    "z": r"set-effects +gain over guessing [^,]*, z ([\d.]+\d)",
    "auc_lines": r"logistic regression, 9,000 labels +([\d.]+)",
    "auc_trees": r"gradient boosting, 9,000 labels +([\d.]+)",
    "auc_share": r"\nshare of the occupation +([\d.]+)",
    "hits": r"letters that reach someone over \$50,000: +(\d+%)",
    "random": r"if sent at random: +(\d+%)",
    "promised": r"if the probabilities were right: +(\d+%)",
    "between": r"between occupations ([\d.]+\d)",
    "within": r"people of one occupation ([\d.]+\d)",
    "lists_method": r"was trained with method (\w+) on [\d,]+ rows in 10 sets",
    "headline": r"<p class=\"headline\"><span[^>]*>[^<]*</span>(.*?)</p>",
}

# The picture of the report whose heading holds these words, and its file here.
PICTURES = {
    "Predicted against stated": "worked-example-shares.svg",
    "Held-out sets": "worked-example-held-out-sets.svg",
}
PICTURE_SCALE = 1.6


def main():
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "examples").symlink_to(ROOT / "examples")
        page, outputs = run_blocks(STORY.read_text(encoding="utf-8"), work)
        # Its commands run where the story ended, and most of them are meant to fail.
        failures, _ = run_blocks(
            FAILURES.read_text(encoding="utf-8"), work / "story", exit_codes=(0, 2)
        )
        report = (work / "story" / "model" / "report.html").read_text(encoding="utf-8")
    page = fill_facts(page, facts(outputs, report))
    (DOCS / "images").mkdir(exist_ok=True)
    for words, name in PICTURES.items():
        (DOCS / "images" / name).write_text(picture(report, words), encoding="utf-8")
    STORY.write_text(page, encoding="utf-8")
    FAILURES.write_text(failures, encoding="utf-8")
    return 0


def commands(block):
    """Return the commands of a block."""
    return [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]


def run_blocks(text, folder, exit_codes=(0,)):
    """Return the page with fresh outputs, and the outputs."""
    outputs = []
    for block in BLOCK.findall(text):
        fresh = ""
        for command in commands(block):
            print("$", command, file=sys.stderr)
            if command.startswith("cd "):
                folder, output = folder / command.removeprefix("cd "), ""
            else:
                output = run(command, folder, exit_codes)
            fresh += f"$ {command}\n{output}"
            outputs.append(output)
        text = text.replace(f"```console\n{block}```", f"```console\n{fresh}```")
    return text, outputs


def run(command, folder, exit_codes=(0,)):
    """Run a command of the page and return what it prints; one that fails ends the build."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "LC_ALL": "C.UTF-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode not in exit_codes:
        sys.exit(f"this command of the page failed ({done.returncode}): {command}\n{done.stdout}")
    return done.stdout


def facts(outputs, report):
    """Return the numbers of the text: from the outputs, and how many intervals hold the truth."""
    text = "\n".join([*outputs, report])
    found = {}
    for name, pattern in FACTS.items():
        match = re.search(pattern, text)
        if match is None:
            sys.exit(f"no output of the page has the number {name!r} ({pattern})")
        found[name] = unescape(match[1])
    compared = [rows for output in outputs if (rows := MEASURE.findall(output))]
    for name, rows in zip(("lists",), compared, strict=True):
        misses = [max(float(low) - float(x), float(x) - float(high), 0) for low, high, x in rows]
        found[f"{name}_inside"] = f"{misses.count(0)} of {len(misses)}"
        found[f"{name}_miss"] = f"{max(misses):.3f}"
    return found


def fill_facts(page, found):
    """Return the page with the numbers of its text."""
    return FACT.sub(lambda match: f"<!--{match[1]}-->{found[match[1]]}<!--/-->", page)


def picture(report, words):
    """Return a picture of the report as an SVG file of its own: on white, with a font."""
    for figure in re.findall(r"<figure.*?</figure>", report, re.DOTALL):
        heading = re.search(r"<h3>(.*?)</h3>", figure, re.DOTALL)[1]
        if words in heading:
            drawing = re.search(r"<svg.*?</svg>", figure, re.DOTALL)[0]
            break
    else:
        sys.exit(f"the report has no picture whose heading holds {words!r}")
    return standalone_svg(drawing, scale=PICTURE_SCALE)


if __name__ == "__main__":
    sys.exit(main())
