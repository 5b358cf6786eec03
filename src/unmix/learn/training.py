"""The training loop: one for all methods, models and recipes.

It sees `UnlabeledSets` and nothing else. A `monitor` may watch each epoch; what it returns is
written into the history and never read, so no label can steer training.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from unmix.core.class_shares import ClassShares
from unmix.core.row_losses import set_log_loss
from unmix.core.transition import Transition
from unmix.data.batching import batches_of
from unmix.data.sets import UnlabeledSets
from unmix.data.shuffled import ShuffledSets
from unmix.errors import DivergenceError, InputError
from unmix.learn import fast_ops
from unmix.learn.augment import Augment
from unmix.learn.checkpoint import Checkpoint
from unmix.learn.gradients import Gradients, add_gradient
from unmix.learn.methods import Method, risk_of
from unmix.learn.networks import ResNet32
from unmix.learn.penalising import learn_by
from unmix.learn.recipes import Recipe
from unmix.learn.refined_priors import RefiningNetwork
from unmix.learn.sets_in_parts import SetsInParts
from unmix.learn.training_state import Saved, TrainingState
from unmix.progress import Progress

__all__ = [
    "OWN_KEYS",
    "Collective",
    "Sets",
    "Trained",
    "TrainingOptions",
    "TrainingRun",
    "held_out_loss",
    "is_convolutional",
    "logits_of",
    "pick_device",
    "precision_of",
    "stream",
    "train",
]

Sets = UnlabeledSets | ShuffledSets | SetsInParts
Monitor = Callable[[nn.Module], dict[str, float]]
Judge = Callable[[nn.Module, UnlabeledSets], float]

# What the loop itself writes about an epoch whose end is judged by held-out rows.
OWN_KEYS = ("epoch", "train_risk", "seconds", "held_out_loss")
# Risks are of order one, at most of the order of the logits: beyond this they have run away.
RUNAWAY = 1e6


class Collective(Protocol):
    """Workers that have the rows, where this process has none."""

    def learn(self, state: TrainingState) -> Tensor:
        """Do what `TrainingRun.learn` does, for the next batch of a state: average over workers.

        The statistics of batch norm are averaged with the gradients.
        """


@dataclass(frozen=True)
class TrainingOptions:
    """What a call of `train` may be told beside the model, the sets, the method and the recipe."""

    seed: int
    """Decides the order of rows and the noise of dropout and penalties."""
    held_out: UnlabeledSets | None = None
    """Rows of the same sets that training does not see; they choose `Trained.selected`."""
    prior_errors: np.ndarray[Any, Any] | None = None
    """Standard errors of the stated set priors (m,): then the priors are learned with the model."""
    augment: Augment | None = None
    """How images may be moved about; rows must be images."""
    monitor: Monitor | None = None
    """A function of the model whose numbers are recorded each epoch, and used for nothing."""
    progress: Progress | None = None
    """A function (batches done, batches in all, text)."""
    checkpoint: Checkpoint | None = None
    """Where to save the state; if it holds one, training resumes from there, to the same bits."""
    checkpoint_seconds: float = 10.0
    """Least time between two saves."""
    device: str = "auto"
    start: Saved | None = None
    """The state that another call left, to continue from; `checkpoint` comes before it."""
    stop: int | None = None
    """Stop after this epoch; the recipe's last if left out."""
    judge: Judge | None = None
    """What the chosen epoch has least of; `held_out_loss` if left out."""
    batches: int | None = None
    """In an epoch: as many with every worker. By the recipe if left out."""
    deviation: float | None = None
    """Standard deviation of the input, by which penalties go; of the rows here if left out."""
    collective: Callable[[TrainingRun], Collective] | None = None
    """Who learns from the rows of a run, if they are not here."""


@dataclass(frozen=True)
class Trained:
    """What training leaves behind."""

    model: nn.Module
    """Of the last epoch, as in the paper; averaged weights if the recipe averages."""
    history: list[dict[str, float]]
    """One row per epoch: epoch, train_risk, seconds, held_out_loss, and what the monitor said."""
    selected: nn.Module
    """Of the epoch with the least held-out loss; the last one if nothing was held out."""
    selected_epoch: int
    set_priors: ClassShares
    """The stated ones, or those of `selected` if priors were refined."""
    state: Saved
    """Everything that another call of `train` needs to continue from here."""


def train(
    model: nn.Module,
    sets: Sets,
    method: Method,
    recipe: Recipe,
    **options: Any,
) -> Trained:
    """Train a network on unlabeled sets.

    Parameters
    ----------
    model : module returning logits, (n,) or (n, K)
        Trained in place; if training fails it may be half trained, or as it was.
    sets : UnlabeledSets, ShuffledSets or, with a collective, SetsInParts
    method : Method
    recipe : Recipe
    **options
        Fields of `TrainingOptions`; a seed is needed.

    Raises
    ------
    DivergenceError
        If the risk is not finite or grows without bound.

    Examples
    --------
    >>> from unmix import METHODS, RECIPES, draw_sets
    >>> rng = np.random.default_rng(0)
    >>> positive = rng.random(1000) < 0.5
    >>> rows = (rng.normal(size=(1000, 2)) + 3 * positive[:, None]).astype(np.float32)
    >>> sets = draw_sets(rows, positive, num_sets=5, target_prior=0.5, seed=0)
    >>> network = nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))
    >>> trained = train(network, sets, METHODS["ssc"], RECIPES["fast"], seed=0)
    >>> len(trained.history)
    15
    """
    run = TrainingRun(model, sets, method, recipe, TrainingOptions(**options))
    with run.randomness(), run.state.in_training():
        run.resume()
        while run.state.epoch < run.last_epoch:
            run.begin_epoch()
            for learn in run.remaining_batches():
                run.step(learn())
                run.save_now_and_then()
            run.end_epoch()
        final = run.state.saved()
    return run.result(final)


class TrainingRun:
    """One call of `train`: what does not change in it, its state, and its step."""

    def __init__(
        self,
        model: nn.Module,
        sets: Sets,
        method: Method,
        recipe: Recipe,
        options: TrainingOptions,
    ) -> None:
        if recipe.half_size and not is_convolutional(model):
            raise InputError("images at half their size are for networks of convolutions only")
        self.model, self.sets, self.method, self.recipe = model, sets, method, recipe
        self.options = options
        self.place = pick_device(options.device)
        _prepare_model(model, self.place)
        transition = sets.transition.to(self.place)
        self.risk = risk_of(method, transition)
        self.network = model
        if options.prior_errors is not None:
            errors = options.prior_errors
            self.network = RefiningNetwork(self.network, transition, errors, len(sets))
        self.rate = recipe.learning_rate or method.paper_rates[isinstance(model, ResNet32)]
        self.state = TrainingState(
            self.network,
            copy.deepcopy(self.network) if recipe.average else self.network,
            copy.deepcopy(self.network),
            recipe,
        )
        # Who has the rows divides them, into about as many batches.
        sizes = sets.part_sizes if options.collective is None else (len(sets),)
        self.part_batches = _batches_of_parts(sizes, recipe, options.batches)
        self.batches = sum(self.part_batches)
        self.precision = precision_of(model)
        self.gradients = Gradients(self.network, self.precision)
        self.deviation = options.deviation or 0.0
        if method.penalty and options.deviation is None:
            self.deviation = _pixel_deviation(sets.part(0).x)
        self.learn_from = learn_by(
            method.penalty,
            self.gradients,
            average=self.state.average,
            deviation=self.deviation,
            flip=options.augment is not None and options.augment.flip,
        )
        last = recipe.epochs if options.stop is None else options.stop
        self.last_epoch = min(last, recipe.epochs)
        # Rows that are in memory anyway are one part.
        self.load = lru_cache(maxsize=1)(self._load)
        self.collective = options.collective and options.collective(self)

    def learn(self, x: Tensor, set_index: Tensor) -> Tensor:
        """Add the gradients of the risk of a batch, and of its penalties; return their sum."""
        state, recipe, augment, size = self.state, self.recipe, self.options.augment, 1.0
        step, steps = state.epoch * self.batches + state.batch, recipe.epochs * self.batches
        x = as_input((augment(x) if augment else x).to(self.place))
        set_index = set_index.to(self.place)
        if recipe.sees_half(step, self.batches):
            x, size = functional.avg_pool2d(x, 2), 0.5
        refining = self.network if isinstance(self.network, RefiningNetwork) else None
        risk = risk_of(self.method, refining.transition()) if refining else self.risk
        loss = self.learn_from(risk, x, set_index, size, step / steps)
        if refining:
            loss = loss + add_gradient(refining.penalty())
        return loss

    def step(self, risk: Tensor) -> None:
        """Move the weights against the gradients of a batch with this risk."""
        state, recipe = self.state, self.recipe
        step, steps = state.epoch * self.batches + state.batch, recipe.epochs * self.batches
        for optimizer in state.optimizers:
            optimizer.step(self.rate * recipe.rate_at(step, self.batches))
        state.move_average(step)
        _note_risk(state, risk.item(), self.rate, self.method)
        if self.options.progress:
            self.options.progress(step + 1, steps, f"epoch {state.epoch + 1}/{recipe.epochs}")

    @contextmanager
    def randomness(self) -> Iterator[None]:
        """Draw dropout and views from a stream of the seed's own, and leave the user's alone."""
        devices: list[int] | None = [] if self.place.type == "cpu" else None
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(stream(self.options.seed, 1))
            yield

    def resume(self) -> None:
        """Put back the state of a checkpoint, or of another call."""
        checkpoint = self.options.checkpoint
        saved = (checkpoint.load() if checkpoint else None) or self.options.start
        if saved is not None:
            self.state.restore(*saved)
        self.last_save = time.monotonic()

    def remaining_batches(self) -> Iterator[Callable[[], Tensor]]:
        """Yield what learns from each batch of this epoch that is still to come."""
        if self.collective is not None:
            for _ in range(self.state.batch, self.batches):
                yield partial(self.collective.learn, self.state)
            return
        for x, set_index in self.remaining_rows():
            yield partial(self.learn, x, set_index)

    def remaining_rows(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield rows and sets of each batch of this epoch that is still to come, part by part."""
        seed, epoch = self.options.seed, self.state.epoch
        skipped = self.state.batch  # done before the checkpoint
        sizes = self.sets.part_sizes
        visits = np.random.default_rng([seed, 3, epoch]).permutation(len(sizes))
        for position in visits.tolist():
            batches = self.part_batches[position]
            first, skipped = min(skipped, batches), max(0, skipped - batches)
            if first == batches:
                continue
            x, set_index = self.load(position)
            rng = np.random.default_rng(np.random.SeedSequence([seed, 2, epoch, position]))
            size, by = self.recipe.batch_size, self.method.batch_by
            for rows, index in batches_of(set_index.numpy(), size, batches, rng, by, epoch, first):
                yield x.index_select(0, torch.from_numpy(rows)), torch.from_numpy(index)

    def _load(self, position: int) -> tuple[Tensor, Tensor]:
        """Return the rows of a part, images with a margin to be shifted in, and their sets."""
        part, augment = self.sets.part(position), self.options.augment
        x = torch.from_numpy(part.x)
        return augment.pad(x) if augment else x, torch.from_numpy(part.set_index).long()

    def begin_epoch(self) -> None:
        """Start the clock."""
        self.network.train()
        self.started = time.perf_counter()

    def end_epoch(self) -> None:
        """Record the epoch, remember the model if it is the best so far, and start the next."""
        state = self.state
        state.seconds += time.perf_counter() - self.started
        row = {
            "epoch": state.epoch + 1,
            "train_risk": state.risk_sum / self.batches,
            "seconds": state.seconds,
        }
        with self.precision():
            row = self.judged(row)
        state.history.append(row)
        state.epoch, state.batch, state.risk_sum, state.seconds = state.epoch + 1, 0, 0.0, 0.0

    def judged(self, row: dict[str, float]) -> dict[str, float]:
        """Return an epoch's row with what held-out rows and the monitor say."""
        state, held_out, monitor = self.state, self.options.held_out, self.options.monitor
        if held_out is not None:
            judge = self.options.judge or held_out_loss
            row["held_out_loss"] = judge(state.average, held_out)
            if row["held_out_loss"] < state.best_loss:
                state.best_loss, state.best_epoch = row["held_out_loss"], state.epoch + 1
                state.best.load_state_dict(state.average.state_dict())
        if monitor is not None:
            # A copy, so that it cannot meddle; and what it says replaces nothing.
            row = monitor(copy.deepcopy(state.average).eval()) | row
        return row

    def save_now_and_then(self) -> None:
        """Save the state if the last time is long enough ago."""
        checkpoint = self.options.checkpoint
        if checkpoint and time.monotonic() - self.last_save >= self.options.checkpoint_seconds:
            self.state.seconds += time.perf_counter() - self.started
            self.started = time.perf_counter()
            checkpoint.save(*self.state.saved())
            self.last_save = time.monotonic()

    def result(self, final: Saved) -> Trained:
        """Return what was learned; the model passed in gets the last weights."""
        if self.options.checkpoint is not None:
            self.options.checkpoint.save(*final)
        state, best, epoch = self.state, self.state.average, self.last_epoch
        if self.options.held_out is not None:
            best, epoch = state.best, state.best_epoch
        set_priors = self.sets.set_priors
        if isinstance(best, RefiningNetwork):
            set_priors = set_priors.with_matrix(best.set_priors().numpy(force=True))
        last, selected = _own(state.average), _own(best)
        return Trained(last.eval(), state.history, selected.eval(), epoch, set_priors, final)


@torch.no_grad()
def logits_of(model: nn.Module, x: np.ndarray[Any, Any]) -> Tensor:
    """Return the model's logits for all rows, (n,) or (n, K), on the CPU in float32."""
    model.eval()
    # Images in colour go to convolutions, whose layers are many times larger than the rows.
    batch_size = 256 if x.ndim == 4 else 4096
    place = next(model.parameters()).device
    for start in range(0, max(len(x), 1), batch_size):
        rows = torch.from_numpy(x[start : start + batch_size]).to(place)
        part = model(as_input(rows)).float().cpu()
        if start == 0:
            logits: Tensor = part.new_empty(len(x), *part.shape[1:])
        # Into one tensor: small results kept between large ones would tear the heap to pieces,
        # which took a gigabyte for a million rows.
        logits[start : start + batch_size] = part
    return logits


@torch.no_grad()
def held_out_loss(model: nn.Module, sets: UnlabeledSets) -> float:
    """Return the mean set log-loss of held-out rows."""
    transition = sets.scoring_transition
    if isinstance(model, RefiningNetwork):  # judged by the priors it has learned
        priors = sets.set_priors.with_matrix(model.set_priors().numpy(force=True))
        transition = Transition(priors, sets.set_sizes, sets.target_prior, scoring=True)
    return set_log_loss(logits_of(model, sets.x), sets.set_index, transition)


def as_input(x: Tensor) -> Tensor:
    """Return a batch as floats; bytes are pixels and go to [0, 1]."""
    x = x / 255 if x.dtype == torch.uint8 else x.float()
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


def pick_device(device: str = "auto") -> torch.device:
    """Return the device asked for; 'auto' takes a GPU where there is one."""
    if device != "auto":
        try:
            torch.empty(1, device=device).item()  # the device 'meta' holds no numbers
            return torch.empty(0, device=device).device
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"device {device!r} is not available: {reason}") from None
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _batches_of_parts(sizes: Sequence[int], recipe: Recipe, batches: int | None) -> list[int]:
    """Return how many batches parts of so many rows have: as the recipe says, or so many in all."""
    if batches is None:
        return [-(-rows // recipe.batch_size) for rows in sizes]
    ends = np.cumsum(sizes) / sum(sizes) * batches
    return [int(of_part) for of_part in np.diff(ends.round(), prepend=0)]


def _note_risk(state: TrainingState, value: float, rate: float, method: Method) -> None:
    """Add the risk of a batch to the epoch's sum, or stop if it has run away."""
    if not math.isfinite(value) or abs(value) > RUNAWAY:
        raise DivergenceError(
            f"the risk of method {method.name} became {value:g} in epoch {state.epoch + 1}, batch "
            f"{state.batch + 1}; lower the learning rate (it is {rate:g}), or look for extreme "
            "values in the rows"
        )
    state.risk_sum += value
    state.batch += 1


def _own(network: nn.Module) -> nn.Module:
    """Return the model itself, without the priors that were learned with it."""
    return network.model if isinstance(network, RefiningNetwork) else network


def is_convolutional(model: nn.Module) -> bool:
    """Say whether a model has convolutions."""
    return any(isinstance(m, nn.Conv2d) for m in model.modules())


def _prepare_model(model: nn.Module, place: torch.device) -> None:
    """Move the model, in the memory layout in which convolutions are fast."""
    model.to(place)
    if is_convolutional(model):
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def precision_of(model: nn.Module) -> Callable[[], AbstractContextManager[Any]]:
    """Return bf16 autocast where the hardware has it and it pays: convolutions, not small MLPs."""
    place = next(model.parameters()).device
    if place.type == "cuda":
        supported = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        supported = place.type == "cpu" and fast_ops.bf16_on_cpu()
    if is_convolutional(model) and supported:
        return lambda: torch.autocast(place.type, dtype=torch.bfloat16)
    return nullcontext


def _pixel_deviation(x: np.ndarray[Any, Any]) -> float:
    """Return the standard deviation of the inputs over (at most) the first 10,000 rows."""
    return float(as_input(torch.from_numpy(x[:10_000])).std())


def stream(seed: int, *numbers: int) -> int:
    """Return the seed of one of the independent random streams of a run."""
    return int(np.random.SeedSequence([seed, *numbers]).generate_state(1)[0])
