"""The studies as data: which cells each table or figure of the paper is made of.

Nothing here runs. The same cell in two studies is one run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from unmix.data.benchmarks import benchmark_info
from unmix.data.wording import nearest
from unmix.errors import InputError
from unmix.learn.methods import METHODS, method_named
from unmix.studies.cell import Cell
from unmix.studies.published import Published, published

__all__ = [
    "DATASETS",
    "HELD_OUT",
    "NEEDLESS_ERROR",
    "SEEDS",
    "STUDIES",
    "Column",
    "Row",
    "Study",
    "cell_title",
    "check_methods",
    "has_sets",
    "running_order",
    "studies_named",
]

DATASETS = ("mnist", "fashion-mnist", "kmnist")
SEEDS = (0, 1, 2)
# Of the images: one run gives the error at the last epoch and at the epoch chosen without labels.
HELD_OUT = 0.05
# What ssc-refined is told of priors that are right: an error as large as any in the study.
NEEDLESS_ERROR = 0.2


@dataclass(frozen=True)
class Column:
    """One column of a table, for one number of sets."""

    name: str
    num_sets: int = 10
    fields: dict[str, Any] = field(default_factory=dict)
    """Further fields of the cell."""
    shift: float | str | None = None
    """As the paper's table is looked up; also `epsilon`."""
    epsilon: float | None = None


class Row(NamedTuple):
    """A run and where it belongs in a table."""

    cell: Cell
    row: str
    column: str
    paper: Published | None


@dataclass(frozen=True)
class Study:
    """One table or figure."""

    name: str
    title: str
    about: str
    table: str | None
    """The paper's table with the published numbers."""
    methods: tuple[str, ...]
    """Labels of the rows: methods, `ssc-believing`: ssc that takes the stated priors as true, or
    `ssc-refined`: ssc that is told how far off they may be. `ssc` itself is told nothing."""
    columns: tuple[Column, ...]

    def with_methods(self, methods: Iterable[str]) -> Study:
        """Return the study with a row for each of these methods that no study lists."""
        listed = {method for study in STUDIES.values() for method in study.methods}
        extra = (m for m in dict.fromkeys(methods) if m in METHODS and m not in listed)
        return replace(self, methods=(*self.methods, *extra))

    def cells(
        self,
        datasets: Sequence[str] = DATASETS,
        methods: Sequence[str] | None = None,
        seeds: Sequence[int] = SEEDS,
        recipe: str = "fast",
        epochs: int | None = None,
        scale: float = 1.0,
        num_sets: Sequence[int] | None = None,
    ) -> list[Row]:
        """Return the runs of this study, one per dataset, method, column and seed.

        Parameters
        ----------
        datasets : sequence of str
        methods : sequence of str, optional
            Some of the study's rows; those it does not have are passed over.
        seeds : sequence of int
        recipe : str
        epochs : int, optional
            Instead of the recipe's.
        scale : float
            Share of the training rows to use.
        num_sets : sequence of int, optional
            Only columns with so many sets.
        """
        chosen = [m for m in self.methods if methods is None or m in methods]
        may_take_longer = recipe == "fast" and epochs is None
        rows = []
        for dataset in datasets:
            name = benchmark_info(dataset).name
            plain = Cell(name, recipe=recipe, epochs=epochs, scale=scale, held_out=HELD_OUT)
            # The number itself, so that a recipe that changes its epochs means other runs.
            plain = replace(plain, epochs=plain.resolve_recipe().epochs)
            for method in chosen:
                for column in self.columns:
                    cell = _cell_of(plain, method, column)
                    longer = method_named(cell.method).longer
                    if longer and may_take_longer:
                        cell = replace(cell, epochs=longer)
                    if not (num_sets is None or cell.num_sets in num_sets or not has_sets(cell)):
                        continue
                    paper = self._paper(name, method, column)
                    rows += [
                        Row(replace(cell, seed=seed), method, column.name, paper) for seed in seeds
                    ]
        return rows

    def _paper(self, dataset: str, method: str, column: Column) -> Published | None:
        """Return the published number for a place in the table."""
        if self.table is None:
            return None
        return published(
            self.table,
            dataset,
            column.num_sets,
            method,
            shift=column.shift,
            epsilon=column.epsilon,
        )


def _cell_of(plain: Cell, method: str, column: Column) -> Cell:
    """Return the run of a method in a column."""
    cell = replace(plain, num_sets=column.num_sets, method=method, **column.fields)
    errors = {"ssc-believing": 0.0, "ssc-refined": cell.prior_noise or NEEDLESS_ERROR}
    if method not in errors:
        return cell
    return replace(cell, method="ssc", prior_error=errors[method])


def _by_number(*numbers: int) -> tuple[Column, ...]:
    return tuple(Column(f"{m} sets", m) for m in numbers)


def _by_size(num_sets: int) -> tuple[Column, ...]:
    shrunk = tuple(
        Column(f"tau {tau}", num_sets, {"sizes": "shrunk", "tau": tau}, shift=tau)
        for tau in (0.8, 0.6, 0.4, 0.2)
    )
    return (*shrunk, Column("random", num_sets, {"sizes": "random"}, shift="random"))


def _by_noise(num_sets: int) -> tuple[Column, ...]:
    return tuple(
        Column(f"epsilon {epsilon:g}", num_sets, {"prior_noise": epsilon}, epsilon=epsilon)
        for epsilon in (0.0, 0.05, 0.1, 0.15, 0.2)
    )


_PRIOR_ROWS = ("ssc", "ssc-believing", "ssc-refined")
_PAPER_METHODS = ("mmc-u2-b", "mmc-u2", "mmc-u2-c", "llp-vat", "ssc")

STUDIES: dict[str, Study] = {
    s.name: s
    for s in (
        Study(
            "comparison",
            "Comparison of methods",
            "five methods of the paper and ours, 10, 25 and 50 sets",
            "comparison",
            (*_PAPER_METHODS, "ssc-vat", "ssc-consistency"),
            _by_number(10, 25, 50),
        ),
        Study(
            "set-size",
            "Sets of unequal size",
            "half of the sets shrunk to a share tau, or random sizes; 10 and 50 sets",
            "set-size",
            ("ssc",),
            _by_size(10) + _by_size(50),
        ),
        Study(
            "set-number",
            "Number of sets",
            "2, 100, 500 and 1000 sets; two sets have priors at least 0.5 apart",
            "set-number",
            ("ssc",),
            _by_number(2, 100, 500, 1000),
        ),
        Study(
            "prior-noise",
            "Inaccurate set priors",
            "stated priors off by epsilon, which ssc has to find out; 10 and 50 sets",
            "prior-noise",
            _PRIOR_ROWS,
            _by_noise(10) + _by_noise(50),
        ),
        Study(
            "curves",
            "Learning curves",
            "test error and training risk per epoch, 10 and 50 sets",
            "comparison",
            _PAPER_METHODS,
            _by_number(10, 50),
        ),
        Study(
            "noise-boxes",
            "Box plots for inaccurate set priors",
            "test errors over seeds, 50 sets with priors off by epsilon",
            "prior-noise",
            _PRIOR_ROWS,
            _by_noise(50),
        ),
        Study(
            "supervised",
            "Supervised reference",
            "the same model with all labels",
            None,
            ("supervised",),
            (Column("all labels"),),
        ),
    )
}


def studies_named(names: Iterable[str]) -> list[Study]:
    """Return studies by name, or say which names there are."""
    studies = []
    for name in dict.fromkeys(names):
        if name not in STUDIES:
            near = nearest(name, STUDIES)
            hint = f"; did you mean {near}?" if near else ""
            raise InputError(f"there is no study {name!r}{hint} (studies: {', '.join(STUDIES)})")
        studies.append(STUDIES[name])
    return studies


def check_methods(methods: Iterable[str], studies: Sequence[Study]) -> None:
    """Refuse a method that none of the studies has."""
    known = list(dict.fromkeys(method for study in studies for method in study.methods))
    for method in methods:
        if method not in known:
            where = " and ".join(study.name for study in studies)
            raise InputError(
                f"{where} has no method {method!r}; choose from {', '.join(known)}, or load one of "
                "your own with unmix --load FILE.py"
            )


def running_order(rows: Iterable[Row]) -> list[Cell]:
    """Return each run once, by seed: a study stopped early then has every cell at least once."""
    cells = list(dict.fromkeys(row.cell for row in rows))
    seeds = list(dict.fromkeys(cell.seed for cell in cells))
    return sorted(cells, key=lambda cell: seeds.index(cell.seed))


def has_sets(cell: Cell) -> bool:
    """Say whether a run learns from sets, and not from labels as the reference does."""
    return not method_named(cell.method).labeled


def cell_title(cell: Cell) -> str:
    """Return what a person would call a run."""
    told = {None: "", 0.0: "-believing"}.get(cell.prior_error, "-refined")
    words = [cell.dataset, cell.method + told]
    words += [f"{cell.num_sets} sets"] if has_sets(cell) else []
    if cell.sizes != "uniform":
        words.append(f"tau {cell.tau:g}" if cell.sizes == "shrunk" else f"{cell.sizes} sizes")
    if cell.prior_noise:
        words.append(f"epsilon {cell.prior_noise:g}")
    return ", ".join([*words, f"seed {cell.seed}"])
