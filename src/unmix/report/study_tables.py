"""A study as tables: ours above the paper's, in the paper's layout; as Markdown and as CSV.

Arranges and words what `studies.summary` worked out. Knows no picture and no page.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from unmix.data.benchmarks import BENCHMARKS
from unmix.learn.methods import METHODS, Method
from unmix.report.number_words import counted
from unmix.studies.cell import Cell
from unmix.studies.grid import NEEDLESS_ERROR
from unmix.studies.published import Published
from unmix.studies.summary import Entry, Summary

__all__ = [
    "PAPER_EPOCHS",
    "StudyTable",
    "TableCell",
    "TableLine",
    "against_paper",
    "chosen_epoch_table",
    "columns_are_sets",
    "dataset_title",
    "error_table",
    "markdown_table",
    "mean_and_std",
    "notes_of",
    "to_csv",
    "to_markdown",
]

PAPER_EPOCHS = 300
MOST_NAMED = 5
CSV_COLUMNS = (
    "dataset",
    "sets",
    "row",
    "column",
    "seeds",
    "mean",
    "std",
    "selected_mean",
    "selected_std",
    "paper_error",
    "paper_std",
    "supervised_mean",
    "epochs",
    "best",
)


@dataclass(frozen=True)
class TableCell:
    """One number of a table as text; empty if it was not run or not published."""

    text: str = ""
    best: bool = False


@dataclass(frozen=True)
class TableLine:
    """One line of a table."""

    heads: tuple[str, ...]
    """Dataset, number of sets, whose numbers these are."""
    cells: tuple[TableCell, ...]
    published: bool = False
    """Whether the numbers are the paper's."""


@dataclass(frozen=True)
class StudyTable:
    """Lines under the names of their columns."""

    heads: tuple[str, ...]
    columns: tuple[str, ...]
    lines: tuple[TableLine, ...]

    @property
    def is_empty(self) -> bool:
        """Whether no line of ours has a number."""
        ours = (line for line in self.lines if not line.published)
        return not any(cell.text for line in ours for cell in line.cells)

    @property
    def shown_heads(self) -> list[tuple[str, ...]]:
        """The heads of each line, blank where they repeat those of the line above."""
        above = [(), *(line.heads for line in self.lines)]
        return [_blank_repeats(line.heads, up) for line, up in zip(self.lines, above, strict=False)]


def error_table(summary: Summary) -> StudyTable:
    """Return the errors at the last epoch, each line of ours above that of the paper."""
    lines = []
    # Once per dataset: it has nothing to do with the number of sets.
    references = {} if _is_reference(summary) else dict(summary.supervised)
    beside = bool(references)
    for group in _groups(summary):
        for label, entries in group.ours:
            cells = [_cell(entry) for entry in entries]
            if beside:
                cells.append(_cell(references.pop(group.dataset, None)))
            lines.append(TableLine((*group.heads, label), tuple(cells)))
        if any(group.paper):
            cells = [_paper_cell(paper) for paper in group.paper] + [TableCell()] * beside
            lines.append(TableLine((*group.heads, "paper"), tuple(cells), published=True))
    columns = (*_columns(summary), *(["supervised"] * beside))
    return StudyTable((*_head_names(summary), "from"), columns, tuple(lines))


def chosen_epoch_table(summary: Summary) -> StudyTable:
    """Return the errors at the epoch that was chosen without labels, and that epoch."""
    groups = _groups(summary)
    several = any(len(group.ours) > 1 for group in groups)
    lines = [
        TableLine(
            (*group.heads, *([label] * several)),
            tuple(_chosen_cell(entry) for entry in entries),
        )
        for group in groups
        for label, entries in group.ours
    ]
    heads = (*_head_names(summary), *(["from"] * several))
    return StudyTable(heads, _columns(summary), tuple(lines))


def to_markdown(table: StudyTable) -> str:
    """Return a table as Markdown; a head that repeats the line above is left out."""
    lines = [
        [*heads, *(f"**{cell.text}**" if cell.best else cell.text for cell in line.cells)]
        for heads, line in zip(table.shown_heads, table.lines, strict=True)
    ]
    return markdown_table((*table.heads, *table.columns), lines, words=len(table.heads))


def markdown_table(heads: Sequence[str], lines: Iterable[Sequence[str]], *, words: int) -> str:
    """Return a table as Markdown; its first columns are words, the others numbers."""
    rule = ["---"] * words + ["---:"] * (len(heads) - words)
    rows = [heads, rule, *([cell.replace("|", "\\|") for cell in line] for line in lines)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def to_csv(summary: Summary) -> str:
    """Return one line per entry; an empty field where a cell was not run or not published."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for entry in summary.entries:
        reference = summary.supervised.get(entry.dataset)
        paper = entry.paper
        numbers = (
            entry.mean,
            entry.std,
            entry.selected_mean,
            entry.selected_std,
            None if paper is None else paper.error,
            None if paper is None else paper.std,
            None if reference is None else reference.mean,
        )
        writer.writerow(
            [
                entry.dataset,
                entry.num_sets,
                entry.row,
                entry.column,
                " ".join(map(str, entry.seeds)),
                *("" if number is None else f"{number:.4f}" for number in numbers),
                "" if entry.epochs is None else entry.epochs,
                "yes" if entry.best else "",
            ]
        )
    return text.getvalue()


def notes_of(summary: Summary) -> list[str]:
    """Return what a reader has to know about the numbers, one sentence or two each."""
    runs = [run for entry in summary.entries for run in entry.runs]
    if not runs:
        return ["Nothing of this study has been run yet."]
    notes = [
        "Test error in percent after the last epoch: mean (sample standard deviation) over seeds "
        f"{_seeds(summary.entries)}. {_reference(summary)}",
        f"Ours: {_how(runs)}. The paper: {PAPER_EPOCHS} epochs, mean over 3 trials.",
        against_paper(summary),
    ]
    if any(entry.best for entry in summary.entries):
        notes.append(
            "Bold: our smallest mean, and those that do not differ from it significantly (paired "
            "t-test at 5 %)."
        )
    if not _is_reference(summary):
        notes.append(_replacement(runs))
    if any(entry.num_sets == 2 for entry in summary.entries):
        notes.append(
            "The paper does not state the priors of its 2 sets; ours are drawn until they differ "
            "by at least 0.5."
        )
    for method in _methods_of(runs):
        if method.penalty is None or not method.penalty.candidates:
            continue
        how_long = "to the end" if method.penalty.compared == 1 else "for part of the run"
        notes.append(
            f"{method.name} trains two candidate networks {how_long} and keeps one: the "
            "epochs given are those of the network that is kept. If it was trained with the "
            "penalty, its logits are calibrated on held-out sets at the end; curves show it before "
            "that."
        )
    if any("noticed_error" in run for run in runs):
        notes.append(_noticed(runs))
    if any(entry.row == "ssc-refined" for entry in summary.entries):
        notes.append(
            "ssc-believing assumes that the stated priors are known exactly, as the paper does. "
            "ssc-refined estimates them along with the model; their standard error is given as "
            f"epsilon, and as {NEEDLESS_ERROR:g} where they are right."
        )
    notes.append(_versions(runs))
    return [note for note in notes if note]


def against_paper(summary: Summary) -> str:
    """Say in how many places ours is below the paper's mean, and where it is not."""
    both = [e for e in summary.entries if e.mean is not None and e.paper is not None]
    parts = []
    for row in dict.fromkeys(entry.row for entry in both):
        own = [entry for entry in both if entry.row == row]
        above = [e for e in own if e.paper and e.mean is not None and e.mean >= e.paper.error]
        places = (f"{dataset_title(e.dataset)}, {_place(e)}" for e in above)
        where = f" (exceptions: {'; '.join(places)})" if 0 < len(above) <= MOST_NAMED else ""
        parts.append(f"{row} in {len(own) - len(above)} of {len(own)} settings{where}")
    return f"Below the paper's mean: {', '.join(parts)}." if parts else ""


def mean_and_std(mean: float, std: float | None) -> str:
    """Return '2.36 (0.27)', or the mean alone if there is no deviation."""
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ({std:.2f})"


def dataset_title(name: str) -> str:
    """Return what tables and figures call a dataset."""
    return BENCHMARKS[name].title


def columns_are_sets(entries: Iterable[Entry]) -> bool:
    """Say whether the columns of a study are its numbers of sets."""
    pairs = {(entry.column, entry.num_sets) for entry in entries}
    return len(pairs) == len({column for column, _ in pairs}) == len({m for _, m in pairs})


def _is_reference(summary: Summary) -> bool:
    """Whether a study is the supervised reference itself."""
    rows = [METHODS.get(name) for name in summary.study.methods]
    return all(row is not None and row.labeled for row in rows)


def _methods_of(runs: Sequence[dict[str, Any]]) -> list[Method]:
    """Return the methods of runs; one that was registered elsewhere is not known here."""
    return [METHODS[name] for name in dict.fromkeys(r["method"] for r in runs) if name in METHODS]


@dataclass(frozen=True)
class _Group:
    """Lines that belong together: one or more of ours above one of the paper's."""

    dataset: str
    heads: tuple[str, ...]
    ours: tuple[tuple[str, tuple[Entry | None, ...]], ...]
    paper: tuple[Published | None, ...]


def _groups(summary: Summary) -> list[_Group]:
    """Return the lines of a table, in the order of the entries."""
    entries, columns = summary.entries, _columns(summary)
    across = _methods_across(entries)
    with_sets = "sets" in _head_names(summary)
    groups = []
    places = dict.fromkeys((e.dataset, e.num_sets if with_sets else None) for e in entries)
    for dataset, num_sets in sorted(places, key=lambda place: _order(place, entries)):
        members = [e for e in entries if e.dataset == dataset and num_sets in (None, e.num_sets)]
        rows = list(dict.fromkeys(e.row for e in members))
        found = {(e.row, e.row if across else e.column): e for e in members}
        labels = [""] if across else rows
        ours = tuple(
            (
                "ours" if across or len(summary.study.methods) == 1 else f"ours, {label}",
                tuple(found.get((column if across else label, column)) for column in columns),
            )
            for label in labels
        )
        paper = tuple(
            next((e.paper for e in members if e.paper and column in (e.row, e.column)), None)
            for column in columns
        )
        heads = (dataset_title(dataset), *(() if num_sets is None else (f"{num_sets:,}",)))
        groups.append(_Group(dataset, heads, ours, paper))
    return groups


def _order(place: tuple[str, int | None], entries: Sequence[Entry]) -> tuple[int, int]:
    """Sort by dataset as it first comes, then by number of sets."""
    datasets = list(dict.fromkeys(entry.dataset for entry in entries))
    return datasets.index(place[0]), place[1] or 0


def _methods_across(entries: Sequence[Entry]) -> bool:
    """Whether the rows of a study go across, as in the paper's comparison of methods."""
    return len({entry.row for entry in entries}) > 1 and columns_are_sets(entries)


def _columns(summary: Summary) -> tuple[str, ...]:
    """Return the names of the columns of numbers."""
    entries = summary.entries
    across = _methods_across(entries)
    return tuple(dict.fromkeys(entry.row if across else entry.column for entry in entries))


def _head_names(summary: Summary) -> tuple[str, ...]:
    """Return the names of the first columns."""
    entries = summary.entries
    stacked = _methods_across(entries) or not columns_are_sets(entries)
    return ("dataset", "sets") if stacked else ("dataset",)


def _blank_repeats(heads: tuple[str, ...], above: tuple[str, ...]) -> tuple[str, ...]:
    """Return heads, blank where all heads so far are those of the line above."""
    same = 0
    while same < min(len(heads) - 1, len(above)) and heads[same] == above[same]:
        same += 1
    return ("",) * same + heads[same:]


def _cell(entry: Entry | None) -> TableCell:
    """Return our number, if there is one."""
    if entry is None or entry.mean is None:
        return TableCell()
    return TableCell(mean_and_std(entry.mean, entry.std), entry.best)


def _paper_cell(paper: Published | None) -> TableCell:
    """Return the paper's number, if there is one."""
    return TableCell("" if paper is None else mean_and_std(paper.error, paper.std))


def _chosen_cell(entry: Entry | None) -> TableCell:
    """Return mean and deviation at the chosen epoch, and the epochs of the seeds on average."""
    if entry is None or entry.selected_mean is None:
        return TableCell()
    epochs = [run["selected_epoch"] for run in entry.runs if "selected_epoch" in run]
    number = mean_and_std(entry.selected_mean, entry.selected_std)
    return TableCell(f"{number} @ {sum(epochs) / len(epochs):.0f}" if epochs else number)


def _place(entry: Entry) -> str:
    """Return the column, with the number of sets if it does not say it."""
    words = f"{entry.num_sets:,} sets"
    return words if entry.column.endswith(" sets") else f"{words}, {entry.column}"


def _how(runs: Sequence[dict[str, Any]]) -> str:
    """Say which recipes and how many epochs the runs had."""
    scales = sorted({run["scale"] for run in runs})
    shares = "" if scales == [1.0] else f", {' and '.join(f'{s:g}' for s in scales)} of the rows"
    alike: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for run in runs:
        alike.setdefault((run["recipe"], run["epochs"]), []).append(run)
    datasets = dict.fromkeys(run["dataset"] for run in runs)
    words = []
    for (recipe, epochs), own in sorted(alike.items()):
        there = {run["dataset"] for run in own}
        where = [dataset_title(name) for name in datasets if name in there]
        whose = ", ".join(sorted({run["method"] for run in own}))
        whose += f" on {', '.join(where)}" if len(where) < len(datasets) else ""
        only = f" ({whose})" if len(alike) > 1 else ""
        words.append(f"recipe {recipe}, {counted(epochs, 'epoch', 'epochs')}{only}")
    return "; ".join(words) + shares


def _look(run: dict[str, Any]) -> float:
    """Return the share of the epochs after which a run checked the stated priors."""
    known = {field.name for field in fields(Cell)}
    return Cell(**{key: run[key] for key in known & run.keys()}).resolve_recipe().look


def _seeds(entries: Sequence[Entry]) -> str:
    """Say over which seeds means are taken."""
    seeds = {entry.seeds for entry in entries if entry.seeds}
    every = sorted({seed for some in seeds for seed in some})
    words = ", ".join(map(str, every))
    if len(seeds) == 1:
        return words
    partly = {entry.row: None for entry in entries if 0 < len(entry.seeds) < len(every)}
    return f"{words} (fewer in some settings: {', '.join(partly)})"


def _reference(summary: Summary) -> str:
    """Say what the supervised reference is, or how to get it."""
    if _is_reference(summary) or summary.supervised:
        return "Supervised: the same network trained with every label."
    return "For the same network trained with every label, run `unmix reproduce supervised` too."


def _replacement(runs: Sequence[dict[str, Any]]) -> str:
    """Say how many sets were drawn with replacement, because the images of a class ran out."""
    drawn = sum(run["with_replacement"] for run in runs)
    total = sum(run["num_sets"] for run in runs)
    touched = sum(run["with_replacement"] > 0 for run in runs)
    if not drawn:
        return f"None of the {total:,} sets of these runs was drawn with replacement."
    verb, why = ("was", "it asks") if drawn == 1 else ("were", "they ask")
    return (
        f"{drawn:,} of the {total:,} sets of these runs ({touched} of {len(runs)} runs) {verb} "
        f"drawn with replacement: {why} for more images of a class than the dataset has."
    )


def _noticed(runs: Sequence[dict[str, Any]]) -> str:
    """Say how often ssc rejected the stated priors and estimated them."""
    checking = {method.name for method in _methods_of(runs) if method.checks_priors}
    unaided = [r for r in runs if r["method"] in checking and r.get("prior_error") is None]
    asked = [run for run in unaided if "noticed_error" in run]
    rejected = sum(run["noticed_error"] > 0 for run in asked)
    shares = " or ".join(f"{look:.0%}" for look in sorted({_look(run) for run in asked}))
    older = len(unaided) - len(asked)
    again = (
        f"In {rejected} of {len(asked)} runs the check rejected them; these runs restarted and "
        "estimated the priors along with the model. Their epochs are those after the restart."
        if rejected
        else f"The check never rejected them ({counted(len(asked), 'run', 'runs')})."
    )
    return (
        f"ssc checks the stated priors on held-out images after {shares} of the epochs. {again}"
        + (f" {counted(older, 'run is', 'runs are')} older and made no check." if older else "")
    )


def _versions(runs: Sequence[dict[str, Any]]) -> str:
    """Say which code made the runs."""
    versions = {run["code_version"] for run in runs}
    if len(versions) == 1:
        return f"Code: {next(iter(versions))}."
    return f"Made with {len(versions)} versions of the code; an export gives that of each run."
