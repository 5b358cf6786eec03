"""Choosing a method, a model and a strength without labels, by one score on held-out sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from unmix.core.row_losses import set_log_loss
from unmix.data.sets import UnlabeledSets, held_out_rows
from unmix.errors import InputError
from unmix.learn.held_out_score import SEEN, Scored, score_on_sets, thinned
from unmix.learn.hidden_sets import Gain, HeldOutShares
from unmix.learn.methods import METHODS, method_named
from unmix.learn.models import (
    AUTO_MODELS,
    MODELS,
    Setup,
    Spread,
    fit_learner,
    model_row,
    move_logits,
    refuse_method,
    tasks_here,
)
from unmix.learn.training_rows import RowsOfModel, TrainingRows
from unmix.progress import Progress

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "AUTO",
    "BASELINE",
    "HeldOutSets",
    "check_choice",
    "choice_of",
    "choose_setup",
    "hides_sets",
]

Array = np.ndarray[Any, Any]

AUTO = "auto"
BASELINE = "baseline"
LEAST_ROWS_FOR_TREES = 1_000  # with fewer they have nothing to gain over a line
REFUTED = 2.0  # standard errors, by which label shift must be ahead where features refute it
CAUTIOUS = 100.0  # times the strongest penalty, where nothing was learned
# What model 'auto' means for images: the networks of the paper.
IMAGE_MODELS = {"grey": "mlp", "colour": "resnet32"}


@dataclass(frozen=True)
class HeldOutSets:
    """What hiding sets in turn has shown."""

    errors: dict[str, float] = field(default_factory=dict)
    """Method, and 'baseline', -> error of the predicted share."""
    gains: dict[str, Gain] = field(default_factory=dict)
    """Method -> its gain over the baseline."""
    shares: HeldOutShares | None = None
    """What the chosen setup predicted for the hidden sets."""
    effect_seen: bool = False
    """Whether these differ from what was predicted by more than their rows: a set effect."""


def choose_setup(
    rows: TrainingRows,
    model: str | nn.Module,
    method: str,
    *,
    labeled: bool = False,
    hide_sets: bool | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> tuple[Setup, HeldOutSets]:
    """Return what to fit, and how well the candidates predict sets that they have not seen.

    Parameters
    ----------
    rows : TrainingRows
    model : str or torch module
        'auto': the better of those that say so; for images the network of the studies.
    method : str
        'auto' or a name of `METHODS`.
    labeled : bool
        Whether the sets are classes: then nothing is hidden, and the method is the first.
    hide_sets : bool, optional
        Whether sets are hidden in turn. If left out, only where something is to be chosen or
        a few more fits cost little.
    seed : int
    progress : function (fits done, fits at most, text), optional
    **options
        Further fields of the setup.
    """
    default = next(iter(METHODS))
    if labeled:
        wanted = [default if _is_auto(method) else method_named(method).name]
        if wanted != [default] and not METHODS[wanted[0]].labeled:
            raise InputError(f"method {method!r} needs set_priors: without them sets are labels")
    elif _is_auto(method):
        able = {name: row for name, row in METHODS.items() if row.in_auto}
        wanted = [name for name, row in able.items() if row.suits(rows.transition)]
    else:
        wanted = [_checked_method(method)]
    options |= {"seed": seed}
    if not _is_auto(model):
        _refuse_rows(model, images=rows.images)
    setups = [
        Setup(one, name, **options)
        for name in wanted
        for one in _models_for(rows, model, name, only=not _is_auto(method))
    ]
    if labeled:
        return _by_rows(rows, setups, seed, progress), HeldOutSets()
    if not hides_sets(hide_sets, model, method):
        # Of several methods the first is then taken: the paper's.
        first = [s for s in setups if s.method == wanted[0]]
        return _by_rows(rows, first, seed, progress), HeldOutSets()
    views = _views(rows, setups)
    categories = rows.encoder.categorical
    found = score_on_sets(
        views,
        setups,
        categorical=categories,
        seed=seed,
        progress=progress,
        spread=rows.spread,
    )
    if not found:
        # Without enough sets to hide any, the paper's assumption is taken.
        first = setups[: len(setups) // len(wanted)]
        return _by_rows(rows, first, seed, progress), HeldOutSets()
    return choice_of(found)


def choice_of(found: Sequence[Scored]) -> tuple[Setup, HeldOutSets]:
    """Return which of the setups that were scored is to be fitted, and what their scores show."""
    best = _in_doubt(found, max(found, key=lambda entry: entry.gain.gain))
    if best.gain.gain <= 0:
        best = _cautious(found, best)
    # Of each method its best model; the baseline is the same for all.
    of_method: dict[str, Scored] = {}
    for entry in found:
        name = entry.setup.method
        if name not in of_method or entry.gain.gain > of_method[name].gain.gain:
            of_method[name] = entry
    errors = {name: entry.share_error for name, entry in of_method.items()}
    errors[BASELINE] = best.baseline_error
    gains = {k: entry.gain for k, entry in of_method.items()}
    return best.setup, HeldOutSets(errors, gains, best.shares, best.effect > SEEN)


def _in_doubt(found: Sequence[Scored], best: Scored) -> Scored:
    """Return what the features of the sets speak for, of all that is as good as the best.

    As good: within one standard error of its gain. Where features differ between sets by no more
    than rows and classes, it is a method that assumes label shift, and else one that does not; of
    several such methods that of counts, which knows most. An assumption that features speak
    against must be ahead by two standard errors.
    """
    refuted = METHODS[best.setup.method].assumption.set_posterior and not best.alike
    least = best.gain.gain - (REFUTED if refuted else 1.0) * best.gain.error
    spoken_for = [
        entry
        for entry in found
        if entry.gain.gain >= least
        and METHODS[entry.setup.method].assumption.set_posterior == entry.alike
    ]
    of_counts = [e for e in spoken_for if e.alike and METHODS[e.setup.method].random_sets]
    return max(of_counts or spoken_for or [best], key=lambda entry: entry.gain.gain)


def _cautious(found: Sequence[Scored], best: Scored) -> Scored:
    """Return what to fit where nothing predicts held-out sets better than the average share.

    A line under set effects with so strong a penalty that it says hardly more than the average
    share, and of a known set its own share; the order of rows is what little there is.
    """
    for entry in found:
        row, method = model_row(entry.setup.model), METHODS[entry.setup.method]
        if row.strength is not None and not method.assumption.set_posterior and entry.l2_free:
            return replace(entry, setup=replace(entry.setup, l2=CAUTIOUS * method.strengths[0]))
    return best


def _models_for(
    rows: TrainingRows, model: str | nn.Module, method: str, *, only: bool
) -> list[str | nn.Module]:
    """Return the models to try with a method.

    With `only` the user asked for this very method, and a model that cannot is refused.
    """
    if _is_auto(model):
        return [*_auto_models(rows, method)]
    if only:
        refuse_method(model, method)
    able = model_row(model).refuse(METHODS[method]) is None
    return [model if able else next(iter(MODELS))]


def _auto_models(rows: TrainingRows, method: str) -> list[str]:
    """Return the models that suit the rows and can learn by the method."""
    if rows.images:
        grey = len(rows.x.shape) == 3
        return [IMAGE_MODELS["grey" if grey else "colour"]]
    # With few rows trees have nothing to gain over a line; set effects are learned by a line.
    few = len(rows.x) < LEAST_ROWS_FOR_TREES or not METHODS[method].assumption.set_posterior
    tried = _able(AUTO_MODELS, method)
    return list(islice(tried, 1) if few else tried) or list(islice(_able(MODELS, method), 1))


def _able(models: Iterable[str], method: str) -> Iterator[str]:
    """Yield the models that can learn by a method; none is imported before it is its turn."""
    return (name for name in models if model_row(name).refuse(METHODS[method]) is None)


def _views(rows: TrainingRows, setups: Sequence[Setup]) -> dict[str, UnlabeledSets | RowsOfModel]:
    """Return the rows as each model takes them; all at once only for the first, the cheapest."""
    first, *others = {setup.model_name: model_row(setup.model) for setup in setups}.items()
    later = {name: rows.view(row) for name, row in others}
    return {first[0]: rows.in_memory(first[1])} | later


def _by_rows(
    rows: TrainingRows, setups: Sequence[Setup], seed: int, progress: Progress | None
) -> Setup:
    """Return the setup that predicts the set of held-out rows best, where no set can be hidden."""
    if len(setups) < 2:
        return setups[0]
    views = _views(rows, setups)
    categories = rows.encoder.categorical
    how: dict[str, Any] = {"seed": seed, "progress": progress, "spread": rows.spread}
    name = _best_model(views, setups, categorical=categories, **how)
    return next(setup for setup in setups if setup.model_name == name)


@dataclass(frozen=True, eq=False)
class _RowLoss:
    """The set log-loss of each setup on rows that are hidden from it: a task for who is free."""

    views: Mapping[str, UnlabeledSets]
    setups: Sequence[Setup]
    categorical: tuple[int, ...]
    out: Array

    def __call__(self, number: int) -> float:
        """Return the loss of a setup."""
        setup = self.setups[number]
        view = self.views[setup.model_name]
        learner = fit_learner(view.rows(~self.out), setup, categorical=self.categorical)
        part = view.rows(self.out)
        transition = part.scoring_transition
        logits = learner.logits(part.x)
        logits = move_logits(logits, learner.base_prior, transition.arrays.target)
        return set_log_loss(logits, part.set_index, transition)


def _best_model(
    views: Mapping[str, UnlabeledSets | RowsOfModel],
    setups: Sequence[Setup],
    *,
    categorical: Sequence[int] = (),
    max_rows: int = 50_000,
    seed: int = 0,
    progress: Progress | None = None,
    spread: Spread | None = None,
) -> str:
    """Return the model with the least set log-loss on rows hidden from it (label shift)."""
    rng = np.random.default_rng([seed, 6])
    few = thinned(views, setups, max_rows, rng)
    out = held_out_rows(few[setups[0].model_name].set_index, 0.25, rng)

    def told(number: int) -> None:
        if progress:
            setup = setups[number]
            progress(number, len(setups), f"{setup.model_name}, {setup.method}")

    task = _RowLoss(few, setups, tuple(categorical), out)
    losses = (spread or tasks_here)(task, len(setups), told)
    return setups[int(np.argmin(losses))].model_name


def hides_sets(asked: bool | None, model: str | nn.Module, method: str) -> bool:
    """Say whether sets are hidden in turn: if asked for, to choose by, or if it is cheap."""
    if asked is not None:
        return asked
    return _is_auto(method) or _is_auto(model) or model_row(model).cheap


def _refuse_rows(model: str | nn.Module, *, images: bool) -> None:
    """Refuse images for a model of tables, and a table for a model of images."""
    kind, other = ("images", "rows of a table") if images else ("rows of a table", "images")
    field, row = "images" if images else "tables", model_row(model)
    if not getattr(row, field):
        able = ", ".join(name for name in MODELS if getattr(model_row(name), field))
        raise InputError(
            f"{row.name} takes {other}, not {kind}; use model {able} or a torch module"
        )


def check_choice(model: str | nn.Module, method: str) -> None:
    """Refuse a model or a method that does not exist, or that do not go together."""
    if not _is_auto(method):
        _checked_method(method)
    if not _is_auto(model):
        model_row(model)
        if not _is_auto(method):
            refuse_method(model, method)


def _is_auto(choice: Any) -> bool:
    """Say whether a model or method is to be chosen; a torch module compares with nothing."""
    return isinstance(choice, str) and choice == AUTO


def _checked_method(method: str) -> str:
    """Return the name of a method that learns from sets."""
    try:
        row = method_named(method)
    except InputError as error:
        raise InputError(f"method must be 'auto' or one of the methods; {error}") from None
    if row.labeled:
        raise InputError(f"method {row.name!r} needs labels: leave set_priors out")
    return row.name
