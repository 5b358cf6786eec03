"""One cell of a study: a dataset, a method, its sets and a seed in; an error rate out.

This is where the labels of a benchmark meet a trained model: to draw the sets before training,
and to count errors afterwards.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from unmix.assess.effective_labels import worth_in_labels
from unmix.assess.labeled import test_error
from unmix.data.benchmark_files import Benchmark, load_benchmark
from unmix.data.benchmarks import BENCHMARKS
from unmix.data.draw import SetSizes, draw_sets, labeled_sets
from unmix.data.sets import UnlabeledSets
from unmix.errors import InputError
from unmix.learn.augment import Augment
from unmix.learn.checkpoint import Checkpoint
from unmix.learn.methods import METHODS, Method, method_named
from unmix.learn.network_models import train_in_stages
from unmix.learn.networks import CONVOLUTIONAL, build_model
from unmix.learn.recipes import RECIPES, WITH_HIDDEN, Recipe
from unmix.learn.training import logits_of, precision_of
from unmix.progress import Progress
from unmix.studies.code_version import code_version

__all__ = ["Cell", "augment_of_cell", "build_cell_model", "draw_cell", "run_cell"]

# Field -> least and greatest value; whole numbers where both are.
RANGES: dict[str, tuple[float, float]] = {
    "num_sets": (1, 1_000_000),
    "seed": (0, 2**32 - 1),
    "epochs": (1, 1_000_000),
    "learning_rate": (1e-12, 1e3),
    "tau": (1e-6, 1.0),
    "prior_noise": (0.0, 1.0),
    "prior_error": (0.0, 0.5),
    "width": (1, 10_000),
    "depth": (1, 20),
    "scale": (1e-6, 1.0),
    "held_out": (0.0, 0.99),
    "shift": (0, 1_000),
    "strength": (0.0, 1e6),
}


@dataclass(frozen=True)
class Cell:
    """What determines a benchmark run, all of it."""

    dataset: str
    method: str = "ssc"
    num_sets: int = 10
    seed: int = 0
    recipe: str = "fast"
    epochs: int | None = None
    """Instead of the recipe's."""
    learning_rate: float | None = None
    """Instead of the recipe's."""
    sizes: SetSizes = "uniform"
    tau: float = 1.0
    prior_noise: float = 0.0
    prior_error: float | None = None
    """Standard error of the stated priors: learn them with the model. 0: believe them. None: let
    rows held out say how large it is, as far as the method, the recipe and the rows allow."""
    model: str | None = None
    """Instead of the dataset's."""
    width: int | None = None
    depth: int | None = None
    """Of the MLP, instead of the paper's 300 and 3."""
    scale: float = 1.0
    """Share of the training rows to use."""
    held_out: float = 0.0
    """Share of the rows held out to choose an epoch without labels."""
    shift: int | None = None
    """Pixels to move images by at random, instead of the benchmark's; 0: not at all."""
    strength: float | None = None
    """Of the method's penalty, instead of its own or of choosing one; 0: without it."""

    def __post_init__(self) -> None:
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if value is None and type(self).__dataclass_fields__[name].default is None:
                continue
            whole = isinstance(high, int)
            if not isinstance(value, int if whole else int | float) or isinstance(value, bool):
                raise InputError(
                    f"{name} must be a {'whole number' if whole else 'number'}; got {value!r}"
                )
            if not low <= value <= high:
                said = [f"{end:,}" if whole else f"{end:g}" for end in (low, high)]
                raise InputError(f"{name} must lie between {said[0]} and {said[1]}; got {value!r}")

    @property
    def network(self) -> str | None:
        """The model: the one given, or the dataset's."""
        info = BENCHMARKS.get(self.dataset)
        return self.model or (info.model if info else None)

    def resolve_recipe(self) -> Recipe:
        """Return the recipe with this cell's changes."""
        if self.recipe not in RECIPES:
            raise InputError(f"recipe must be one of {', '.join(RECIPES)}; got {self.recipe!r}")
        recipe = RECIPES[self.recipe]
        if self.network in CONVOLUTIONAL:
            recipe = recipe.convolutional or recipe
        changes: dict[str, Any] = {"epochs": self.epochs, "learning_rate": self.learning_rate}
        given = {key: value for key, value in changes.items() if value is not None}
        return replace(recipe, **given)

    def resolve_method(self) -> Method:
        """Return the method with this cell's changes."""
        method = method_named(self.method)
        if self.strength is None:
            return method
        if method.penalty is None:
            able = ", ".join(name for name, row in METHODS.items() if row.penalty)
            raise InputError(
                f"strength is for methods with a penalty ({able}); the method is {self.method}"
            )
        # A choice of one, so that it is trained as it would be if it were chosen.
        only = (self.strength,) if method.penalty.candidates else ()
        penalty = replace(method.penalty.at(self.strength), candidates=only)
        return replace(method, penalty=penalty)


def run_cell(
    cell: Cell,
    *,
    data_folder: str | Path | None = None,
    resume: str | Path | None = None,
    progress: Progress | None = None,
    device: str = "auto",
) -> dict[str, Any]:
    """Draw the sets of a cell, train, count the errors on the test rows.

    Returns
    -------
    dict
        The cell's fields, and `test_error` (a fraction, last epoch), `history`, `seconds`,
        `selected_epoch` and `selected_test_error` if rows were held out, `worth_in_labels`,
        `with_replacement` (how many sets were drawn so), and `chosen` if the method chooses its
        strength: a `chosen_strength.Choice`. `noticed_error` if rows held out were asked about
        priors.
        The history is that of training; a network that was calibrated afterwards has another error
        than its last epoch.
    """
    started = time.perf_counter()
    recipe = cell.resolve_recipe()
    method = cell.resolve_method()
    benchmark = load_benchmark(cell.dataset, data_folder)
    sets = draw_cell(cell, benchmark)
    held_out = None
    if cell.held_out:
        rng = np.random.default_rng(np.random.SeedSequence([cell.seed, 3]))
        sets, held_out = sets.hold_out(cell.held_out, rng)
    model = build_cell_model(cell, benchmark)
    checkpoint = None
    if resume is not None:
        threads = torch.get_num_threads()  # other threads, other bits
        checkpoint = Checkpoint(resume, asdict(cell) | {"threads": threads, "code": code_version()})
    options: dict[str, Any] = {
        "seed": cell.seed,
        "held_out": held_out,
        "augment": augment_of_cell(cell, recipe, benchmark),
        "monitor": partial(_errors, benchmark),
        "progress": progress,
        "checkpoint": checkpoint,
        "device": device,
    }
    trained, found = train_in_stages(
        model,
        sets,
        method,
        recipe,
        check_priors=cell.prior_error is None,
        prior_errors=_prior_errors(cell, sets),
        **options,
    )
    result = asdict(cell) | {
        "num_sets": sets.num_sets,
        "epochs": recipe.epochs,
        **_errors(benchmark, trained.model),
        # A run that went on after a kill knows only the time of its epochs.
        "seconds": max(
            time.perf_counter() - started, sum(epoch["seconds"] for epoch in trained.history)
        ),
        "worth_in_labels": worth_in_labels(sets.set_priors, sets.set_sizes),
        "num_rows": len(sets),
        "with_replacement": len(sets.with_replacement),
        "history": trained.history,
        **found,
    }
    if held_out is not None:
        result["selected_epoch"] = trained.selected_epoch
        if trained.selected_epoch == recipe.epochs:  # the same weights
            result["selected_test_error"] = result["test_error"]
        else:
            result["selected_test_error"] = _errors(benchmark, trained.selected)["test_error"]
    return result


def draw_cell(cell: Cell, benchmark: Benchmark) -> UnlabeledSets:
    """Return the sets a cell trains on."""
    num_rows = round(cell.scale * len(benchmark.x_train))
    if method_named(cell.method).labeled:
        rows = np.random.default_rng(cell.seed).permutation(len(benchmark.x_train))[:num_rows]
        return labeled_sets(
            benchmark.x_train[rows], benchmark.y_train[rows], target_prior=benchmark.target_prior
        )
    return draw_sets(
        benchmark.x_train,
        benchmark.y_train,
        num_sets=cell.num_sets,
        target_prior=benchmark.target_prior,
        seed=cell.seed,
        sizes=cell.sizes,
        tau=cell.tau,
        prior_noise=cell.prior_noise,
        # The paper does not state its two priors; two that nearly agree teach nothing.
        min_spread=0.5 if cell.num_sets == 2 else 0.0,
        num_rows=num_rows,
    )


def _prior_errors(cell: Cell, sets: UnlabeledSets) -> np.ndarray[Any, Any] | None:
    """Return one standard error per set if the priors are to be learned."""
    if not cell.prior_error:
        return None
    if not method_named(cell.method).refines:
        able = ", ".join(name for name, method in METHODS.items() if method.refines)
        raise InputError(f"priors are refined by method {able} only; the method is {cell.method}")
    return np.full(sets.num_sets, cell.prior_error)


def augment_of_cell(cell: Cell, recipe: Recipe, benchmark: Benchmark) -> Augment | None:
    """Return how images are moved about, if they are."""
    info = benchmark.info
    if cell.shift is not None:
        return Augment(cell.shift, info.flip) if cell.shift else None
    return Augment(info.shift, info.flip) if recipe.augment and info.shift else None


def build_cell_model(cell: Cell, benchmark: Benchmark) -> nn.Module:
    """Return the cell's model with its initial weights."""
    sizes = {"width": cell.width, "depth": cell.depth}
    options = {key: value for key, value in sizes.items() if value is not None}
    name = cell.network or WITH_HIDDEN[0]
    if options and name not in WITH_HIDDEN:
        raise InputError(f"width and depth are for the mlp; the model is {name}")
    shape = benchmark.x_train.shape[1:]
    return build_model(name, shape, benchmark.target_prior, seed=cell.seed, **options)


def _errors(benchmark: Benchmark, model: nn.Module) -> dict[str, float]:
    """Count errors on the test rows: recorded, never used."""
    with precision_of(model)():
        logits = logits_of(model, benchmark.x_test).numpy()
    return {"test_error": test_error(logits, benchmark.y_test)}
