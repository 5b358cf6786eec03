"""Run what the pages of examples show and write in what it prints: python examples/build_page.py

Every ```console block holds commands after "$ "; whatever stands below a command is replaced by
its output, and so is a ```text block below Python. Numbers in the text stand between <!--name-->
and <!--/--> and are looked up in the outputs. Pictures are taken from the reports that a page's
`unmix fit` writes. Names of pages build only these: python examples/build_page.py tour
"""

import re
import sys
import tempfile
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path

from play_page import Player, steps_of, with_outputs
from unmix.report.svg import standalone_svg

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

FACT = re.compile(r"<!--(\w+)-->.*?<!--/-->", re.DOTALL)
MEASURE = re.compile(r"^[a-z ]+ [\d.]+ \(([\d.]+) to ([\d.]+)\) +([\d.]+)$", re.MULTILINE)
SHARE = re.compile(r"^([a-z ]+?) +[\d,]+ +[\d.]+ \(([\d.]+) to ([\d.]+)\)$", re.MULTILINE)
PICTURE_SCALE = 1.6


@dataclass(frozen=True)
class Picture:
    """A picture of a report, known by words of its heading, and its file here."""

    words: str
    file: str
    report: str
    """Below the folder in which the page starts."""


@dataclass(frozen=True)
class Page:
    """A page whose outputs are written in."""

    name: str
    after: str | None = None
    """The page whose folder it goes on in."""
    exit_codes: tuple[int, ...] = (0,)
    facts: dict[str, str] = field(default_factory=dict)
    """Where the numbers of the text are found in the outputs; the first match counts."""
    report: str = ""
    """The report that numbers of the text may stand in."""
    pictures: tuple[Picture, ...] = ()

    @property
    def path(self):
        return DOCS / f"{self.name}.md"

    @property
    def text(self):
        return self.path.read_text(encoding="utf-8")


STORY_FACTS = {
    "held_out": r"\nset-effects +[+-].* ([\d.]+\d)\n",
    "guess": r"\naverage share +([\d.]+\d)\n",
    "ssc": r"\nssc +[+-].* ([\d.]+\d)\n",
    "auc": r"unmix, no label +([\d.]+)",
    "auc_known": r"unmix, share of the occupation known +([\d.]+)",
    "brier": r"unmix, share of the occupation known +[\d.]+ +([\d.]+)",
    "brier_new": r"unmix, no label +[\d.]+ +([\d.]+)",
    "brier_share": r"\nshare of the occupation +[\d.]+ +([\d.]+)",
    "z": r"\nset-effects +[+-]\S+ \+- \S+ +([\d.]+\d) ",
    "auc_lines": r"logistic regression, 9,000 labels +([\d.]+)",
    "auc_trees": r"gradient boosting, 9,000 labels +([\d.]+)",
    "auc_share": r"\nshare of the occupation +([\d.]+)",
    "hits": r"letters that reach someone over \$50,000: +(\d+%)",
    "random": r"if sent at random: +(\d+%)",
    "promised": r"if the probabilities were right: +(\d+%)",
    "between": r"between occupations ([\d.]+\d)",
    "within": r"people of one occupation ([\d.]+\d)",
    "lists_method": r"trained with method (\w+) on [\d,]+ rows in 10 sets",
    "headline": r"<p class=\"headline\"><span[^>]*>[^<]*</span>(.*?)</p>",
}
BANK, LISTS = "story/model/report.html", "story/lists_model/report.html"

STORY = Page(
    "worked-example",
    facts=STORY_FACTS,
    report=BANK,
    pictures=(
        Picture("Predicted against stated", "worked-example-shares.svg", BANK),
        Picture("Held-out sets are", "worked-example-held-out-sets.svg", BANK),
        Picture("ROC curve", "report-roc.svg", LISTS),
        Picture("Predicted probabilities", "report-scores.svg", LISTS),
        Picture("Predicted against stated", "report-shares.svg", LISTS),
    ),
)
# Its commands run where the story ended, and most of them are meant to fail.
FAILURES = Page("failure-modes", after="worked-example", exit_codes=(0, 2))
PAGES = (STORY, FAILURES, Page("tour"), Page("election"), Page("ad-counts"), Page("hospitals"))


def main(names):
    unknown = set(names) - {page.name for page in PAGES}
    if unknown:
        sys.exit(f"no page {', '.join(unknown)}; there are {', '.join(p.name for p in PAGES)}")
    # A page that goes on after another needs what that one did.
    wanted = {p.name for p in PAGES if not names or p.name in names}
    wanted |= {p.after for p in PAGES if p.name in wanted and p.after}
    with tempfile.TemporaryDirectory() as folder:
        ends = {}
        for page in PAGES:
            if page.name in wanted:
                ends[page.name] = build(page, Path(folder), ends)
    return 0


def build(page, folder, ends):
    """Write a page and its pictures anew, and return the folder in which it ended."""
    start = ends[page.after] if page.after else folder / page.name
    prepare(start)
    player, outputs = Player(start), []
    for step in steps_of(page.text):
        if step.kind == "command":
            print("$", step.source, file=sys.stderr)
        code, output = player.play(step)
        if code not in page.exit_codes:
            sys.exit(f"this step of {page.name} failed ({code}): {step.source}\n{output}")
        outputs.append(output)
    text = with_outputs(page.text, outputs)
    report = (start / page.report).read_text(encoding="utf-8") if page.report else ""
    page.path.write_text(fill_facts(text, facts(page, outputs, report)), encoding="utf-8")
    for picture in page.pictures:
        drawing = taken((start / picture.report).read_text(encoding="utf-8"), picture.words)
        (DOCS / "images" / picture.file).write_text(drawing, encoding="utf-8")
    return player.folder


def prepare(folder):
    """Make a folder that looks like a clone, as far as the pages need it."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "examples").exists():
        (folder / "examples").symlink_to(ROOT / "examples")


def facts(page, outputs, report):
    """Return the numbers of the text: from the outputs, and how many intervals hold the truth."""
    text = "\n".join([*outputs, report])
    found = {}
    for name, pattern in page.facts.items():
        match = re.search(pattern, text)
        if match is None:
            sys.exit(f"no output of the page has the number {name!r} ({pattern})")
        found[name] = unescape(match[1])
    published = dict(re.findall(r"^([a-z ]+?) +[\d.]+ +([\d.]+)$", text, re.MULTILINE))
    held = [
        float(low) <= float(published[name]) <= float(high)
        for name, low, high in SHARE.findall(text)
        if name in published
    ]
    if held:
        found["new_inside"] = str(sum(held))
    compared = [rows for output in outputs if (rows := MEASURE.findall(output))]
    for rows in compared[:1] if page.facts else ():
        misses = [max(float(low) - float(x), float(x) - float(high), 0) for low, high, x in rows]
        found["inside"] = f"{misses.count(0)} of {len(misses)}"
        found["miss"] = f"{max(misses):.3f}"
    return found


def fill_facts(page, found):
    """Return the page with the numbers of its text."""
    return FACT.sub(lambda match: f"<!--{match[1]}-->{found[match[1]]}<!--/-->", page)


def taken(report, words):
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
    sys.exit(main(sys.argv[1:]))
