"""Write docs/checks.md from benchmarks/results: what is claimed without labels, put to the test.

    python docs/build_checks.py

No number on that page is typed by hand.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from unmix.files import atomic_write_text
from unmix.report.study_tables import markdown_table

DOCS = Path(__file__).resolve().parent
RESULTS, PAGE = DOCS.parent / "benchmarks/results", DOCS / "checks.md"
NOT_YET = "Not measured yet.\n"

Run = Mapping[str, Any]
Runs = Sequence[Run]


def main() -> int:
    """Write the page."""
    atomic_write_text(PAGE, render_page(read_results(RESULTS)))
    return 0


def read_results(folder: Path) -> dict[str, Runs]:
    """Return the runs of each benchmark that has been run."""
    paths = {name: folder / f"{name}.jsonl" for _, name, _ in SECTIONS}
    return {
        name: [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for name, path in paths.items()
        if path.exists()
    }


def render_page(results: Mapping[str, Runs]) -> str:
    """Return the page as Markdown."""
    parts = [
        "# Put to the test\n",
        "<!-- Written by docs/build_checks.py from benchmarks/results; do not edit. -->\n",
        "What unmix chooses and claims without labels, on data where the truth is known. Labels "
        "only score, but for slopes inside sets and, on one natural table, a rule of choosing. "
        "Each section names its benchmark. Small sets with boosting (32 and 128 rows) and mlp (all "
        "but count, 8 rows) were measured with an earlier version.\n",
    ]
    for title, name, section in SECTIONS:
        parts += [f"## {title}\n", section(results[name]) if results.get(name) else NOT_YET]
    return "\n".join(parts)


def _simulated(runs: Runs) -> str:
    """Return how often the right family was chosen, and how often intervals hold."""
    lines = []
    drawn = [run for run in runs if run["part"] == "chosen"]
    for (kind, model), found in _grouped(drawn, "kind", "model"):
        right = sum(run["right"] for run in found)
        lines.append(
            [
                kind,
                model,
                _counted(run["method"] for run in found),
                f"{right} of {len(found)}",
                _held(found, "new_sets"),
                _held(found, "by_group"),
            ]
        )
    head = ("sets", "model", "chosen", "right", "new sets", "groups")
    text = (
        "Draws of simulated sets with method `auto`: is the right family chosen, and how many of "
        "the 95 % intervals of `prevalence` hold the true share: of a new set, and of a group of "
        "rows that crosses the known sets? Sets put together by chance meet every assumption; "
        "there `count` is right, since it uses all that is known. "
        "`python benchmarks/simulated_sets.py`.\n\n" + markdown_table(head, lines, words=3)
    )
    lines = [
        [
            f"{sets} sets",
            model,
            f"{sum(run['shown'] for run in found)} of {len(found)}",
            f"{sum(run.get('word') == 'clear' for run in found)} of {len(found)}",
        ]
        for (sets, model), found in _grouped(
            [run for run in runs if run["part"] == "nothing"], "sets", "model"
        )
    ]
    head = ("no signal", "model", "shown", "clear")
    return (
        f"{text}\nRows that have nothing to do with the shares of their sets: how often is "
        f"something claimed?\n\n{markdown_table(head, lines, words=2)}"
    )


def _natural(runs: Runs) -> str:
    """Return how well rows of new and known groups are predicted on real tables."""
    before = {run["table"]: run for run in runs if run["code"] == "before"}
    now = [run for run in runs if run["code"] == "now"]
    lines = []
    for run in now:
        old = before.get(run["table"])
        known = f"{run['known_brier']:.4f}"
        lines.append(
            [
                run["table"],
                run["method"],
                str(run["groups"]),
                f"{run['z']:.1f}",
                run["verdict"],
                f"{run['tau']:.2f}",
                "" if old is None else f"{old['new_auc']:.3f}",
                f"{run['new_auc']:.3f}",
                f"{run['known_auc']:.3f}",
                f"{run['share_auc']:.3f}",
                f"{run['new_brier']:.4f}",
                known if run["known_brier"] > run["share_brier"] else f"**{known}**",
                f"{run['share_brier']:.4f}",
            ]
        )
    head = ("table", "method", "groups", "z", "verdict", "tau", "AUC before", "AUC, new groups")
    head += ("known groups", "share", "Brier, new groups", "known groups", "share")
    better = sum(run["known_brier"] <= run["share_brier"] for run in now)
    compared = [run for run in now if run["table"] in before]
    above = sum(run["new_auc"] >= before[run["table"]]["new_auc"] for run in compared)
    label_shift = [run["table"] for run in now if run["assumes_label_shift"]]
    shown = ", ".join(label_shift) if label_shift else "no table"
    return (
        "Real tables in groups that nobody made up for this purpose. *Share*: every row gets the "
        "share of its group, which needs no model. *Known groups*: `predict --sets`. *AUC before*: "
        "the version that chose between `ssc` and `proportion` by the error of the predicted "
        "share.\n\n"
        f"Known groups are predicted at least as well as by their share (Brier, bold) on {better} "
        f"of {len(now)} tables; AUC for new groups is at least what it was on {above} of "
        f"{len(compared)}. Numbers that assume label shift are shown for {shown}. One rule was set "
        "after the labels of doctors had been seen: where features refute label shift, it must be "
        "ahead by two standard errors to be chosen. "
        "`python benchmarks/natural_groups.py`.\n\n" + markdown_table(head, lines, words=2)
    )


def _small_sets(runs: Runs) -> str:
    """Return test errors on small sets with exact counts."""
    methods = ("ssc", "proportion", "count", "all labels")
    lines = []
    for (model, sets), found in _grouped(runs, "model", "sets"):
        errors = [[run["error"] for run in found if run["method"] == m] for m in methods]
        seeds = str(len({run["seed"] for run in found}))
        lines.append([model, sets, seeds, *(f"{mean(e):.2f}" if e else "" for e in errors)])
    return (
        "MNIST, even or odd, 16,384 images in sets put together by chance whose counts are known "
        "(`U^m`: 500 sets of 33 with shares between .1 and .9). Test errors in percent, means "
        "over seeds; the models of tables see 64 principal components. "
        "`python benchmarks/small_sets.py`.\n\n"
        + markdown_table(("model", "rows a set", "seeds", *methods), lines, words=2)
    )


def _cost(runs: Runs) -> str:
    """Return what choosing costs."""
    head = ("case", "chosen", "rows", "columns", "sets", "one fit, s", "choosing, s")
    head += ("choosing / fit", "memory of a fit, MB", "with choosing, MB")
    lines = [
        [
            run["case"],
            f"{run['method']} {run['model']}",
            *(f"{run[key]:,}" for key in ("rows", "columns", "sets")),
            *(f"{run[key]:.1f}" for key in ("fit_seconds", "choosing_seconds", "ratio")),
            *(f"{run[key]:,}" for key in ("fit_mb", "all_mb")),
        ]
        for run in runs
    ]
    return (
        "Processor seconds of a fit with all defaults, on one thread, less those of one fit of "
        "what was chosen; memory beyond that of the rows. `python benchmarks/choosing_cost.py`."
        f"\n\n{markdown_table(head, lines, words=2)}"
    )


def _grouped(runs: Runs, *keys: str) -> Iterator[tuple[tuple[Any, ...], list[Run]]]:
    """Return the runs by the values of some keys, in the order in which they come."""
    found: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        found.setdefault(tuple(run[key] for key in keys), []).append(run)
    yield from found.items()


def _held(runs: Runs, name: str) -> str:
    """Return how many intervals hold the truth, in percent; each run has some of so many."""
    pairs = [run[name] for run in runs if name in run]
    if not pairs:
        return ""
    held, total = (sum(column) for column in zip(*pairs, strict=True))
    return f"{100 * held / total:.0f} % of {total}"


def _counted(values: Iterator[str]) -> str:
    """Return what there is, and how often if not always the same."""
    counts = Counter(values)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{name} ({number})" for name, number in counts.most_common())


def _slopes_inside(runs: Runs) -> str:
    """Return how long slopes are inside sets, by labels and by what features say."""
    lines = [
        [
            f"{run['table']} ({run['source']})",
            *(f"{run[key]:,}" for key in ("rows", "groups", "columns")),
            f"{run['stand_ins']:.2f}",
            f"{run['by_labels']:.2f}" if run["told"] else "not told",
        ]
        for run in runs
    ]
    told = [run for run in runs if run["told"]]
    true, said = ([run[key] for run in told] for key in ("by_labels", "stand_ins"))
    error = mean((a - b) ** 2 for a, b in zip(said, true, strict=True))
    head = ("table", "rows", "groups", "columns that say it", "features", "labels")
    return (
        "A model of sets learns its slopes from differences between sets. How long are slopes "
        "inside them? *Labels*: that of the class, relative to the slope by which the means of "
        "the features tell its share, on groups held out. *Features*: what unmix takes it to be, "
        "by letting every feature stand in for the class. How this is done was settled on these "
        "tables with their labels in view; no other section has them. "
        "`python benchmarks/slopes_inside.py`.\n\n"
        f"On the {len(told)} tables whose shares the features tell, slopes are {mean(true):.2f} "
        f"times as long inside groups as between them, and features say {mean(said):.2f}. The "
        f"squared error of that is {error:.2f}; of taking slopes inside to be those between, "
        f"{mean((1 - a) ** 2 for a in true):.2f}.\n\n" + markdown_table(head, lines, words=1)
    )


SECTIONS: tuple[tuple[str, str, Callable[[Runs], str]], ...] = (
    ("Simulated sets", "simulated_sets", _simulated),
    ("Natural groups", "natural_groups", _natural),
    ("Slopes inside sets", "slopes_inside", _slopes_inside),
    ("Small sets with exact counts", "small_sets", _small_sets),
    ("What choosing costs", "choosing_cost", _cost),
)


if __name__ == "__main__":
    sys.exit(main())
