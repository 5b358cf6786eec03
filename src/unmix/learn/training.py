"""The training loop: one for all methods, models and recipes.

It sees `UnlabeledSets` and nothing else. A `monitor` may watch each epoch; what it returns is
written into the history and never read, so no label can steer training.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from unmix.core.losses import ssc_cross_entropy
from unmix.core.penalties import vat_penalty
from unmix.core.transition import Transition
from unmix.data.batching import row_order
from unmix.data.sets import UnlabeledSets
from unmix.data.shuffled import ShuffledSets
from unmix.errors import DivergenceError, InputError
from unmix.learn import fast_ops
from unmix.learn.augment import Augment
from unmix.learn.checkpoint import Checkpoint
from unmix.learn.gradients import Gradients, add_gradient
from unmix.learn.learned_priors import LearnedPriors
from unmix.learn.methods import Method
from unmix.learn.models import ResNet32
from unmix.learn.recipes import Recipe
from unmix.learn.state import Saved, TrainingState

__all__ = ["OWN_KEYS", "Trained", "held_out_loss", "logits_of", "pick_device", "train"]

Monitor = Callable[[nn.Module], dict[str, float]]
Judge = Callable[[nn.Module, UnlabeledSets], float]
Progress = Callable[[int, int, str], None]

# What the loop itself writes about an epoch whose end is judged by held-out rows.
OWN_KEYS = ("epoch", "train_risk", "seconds", "held_out_loss")
# Risks are of order one, at most of the order of the logits: beyond this they have run away.
RUNAWAY = 1e6


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
    set_priors: np.ndarray[Any, Any]
    """The stated ones, or those of `selected` if priors were refined."""
    state: Saved
    """Everything that another call of `train` needs to go on from here."""


def train(
    model: nn.Module,
    sets: UnlabeledSets | ShuffledSets,
    method: Method,
    recipe: Recipe,
    *,
    seed: int,
    held_out: UnlabeledSets | None = None,
    prior_errors: np.ndarray[Any, Any] | None = None,
    augment: Augment | None = None,
    monitor: Monitor | None = None,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
    checkpoint_seconds: float = 10.0,
    device: str = "auto",
    start: Saved | None = None,
    stop: int | None = None,
    judge: Judge | None = None,
) -> Trained:
    """Train a model on unlabeled sets.

    Parameters
    ----------
    model : module returning logits, (n,) or (n, K)
        Trained in place; if training fails it may be half trained.
    sets : UnlabeledSets or ShuffledSets
    method : Method
    recipe : Recipe
    seed : int
        Decides the order of rows and the noise of dropout and VAT.
    held_out : UnlabeledSets, optional
        Rows of the same sets that training does not see; chooses `Trained.selected`.
    prior_errors : array, shape (m,), optional
        Standard errors of the stated set priors: then the priors are learned with the model.
    augment : Augment, optional
        How images may be moved about; rows must be images.
    monitor : function of the model, optional
        Its numbers are recorded in the history each epoch, and used for nothing.
    progress : function (batches done, batches in all, text), optional
    checkpoint : Checkpoint, optional
        Where to save the state; if it holds one, training goes on from there, to the same bits.
    checkpoint_seconds : float
        Least time between two saves.
    device : 'auto', 'cpu', 'cuda', ...
    start : Saved, optional
        The state that another call left, to go on from; `checkpoint` goes before it.
    stop : int, optional
        Stop after this epoch; the recipe's last if left out.
    judge : function (model, held-out sets) -> float, optional
        What the chosen epoch has least of; `held_out_loss` if left out.

    Raises
    ------
    DivergenceError
        If the risk is not finite or grows without bound.
    """
    if recipe.half_size and not _is_convolutional(model):
        raise InputError("images at half their size are for networks of convolutions only")
    place = pick_device(device)
    _prepare_model(model, place)
    transition = sets.transition.to(place)
    risk = method.risk(transition)
    network = model
    if prior_errors is not None:
        network = LearnedPriors(network, transition, prior_errors, len(sets))
    vat_radius = method.vat.radius * _pixel_deviation(sets.part(0).x) if method.vat else 0.0
    rate = recipe.learning_rate or method.paper_rates[isinstance(model, ResNet32)]
    state = TrainingState(
        network,
        copy.deepcopy(network) if recipe.average else network,
        copy.deepcopy(network),
        recipe,
    )

    @lru_cache(maxsize=1)  # rows that are in memory anyway are one part
    def load(position: int) -> tuple[Tensor, Tensor]:
        part = sets.part(position)
        x = torch.from_numpy(part.x)
        return augment.pad(x) if augment else x, torch.from_numpy(part.set_index).long()

    batches = sum(_batches(rows, recipe) for rows in sets.part_sizes)
    precision = _precision(model, place)
    gradients = Gradients(network, precision)
    last_epoch = recipe.epochs if stop is None else min(stop, recipe.epochs)

    devices: list[int] | None = [] if place.type == "cpu" else None
    with torch.random.fork_rng(devices=devices), state.in_training():
        torch.manual_seed(_stream(seed, 1))
        saved = (checkpoint.load() if checkpoint else None) or start
        if saved is not None:
            state.restore(*saved)
        last_save = time.monotonic()
        while state.epoch < last_epoch:
            started = time.perf_counter()
            network.train()
            for x, set_index in _remaining_batches(
                load, sets.part_sizes, method, recipe, seed, state
            ):
                step = state.epoch * batches + state.batch
                x_batch = as_input((augment(x) if augment else x).to(place))
                radius = vat_radius
                if recipe.sees_half(step, batches):
                    x_batch, radius = functional.avg_pool2d(x_batch, 2), vat_radius / 2
                set_batch = set_index.to(place)
                if isinstance(network, LearnedPriors):
                    risk = method.risk(network.transition())
                loss = gradients.add(risk, x_batch, set_batch)
                if method.vat and radius:
                    weight = method.vat.weight_at(step / (recipe.epochs * batches))
                    with precision():
                        penalty = weight * vat_penalty(network, x_batch, radius=radius)
                    loss = loss + add_gradient(penalty)
                if isinstance(network, LearnedPriors):
                    loss = loss + add_gradient(network.penalty())
                for optimizer in state.optimizers:
                    optimizer.step(rate * recipe.rate_at(step, batches))
                state.move_average(step)
                _note_risk(state, loss.item(), rate)
                if progress:
                    text = f"epoch {state.epoch + 1}/{recipe.epochs}"
                    progress(step + 1, recipe.epochs * batches, text)
                if checkpoint and time.monotonic() - last_save >= checkpoint_seconds:
                    state.seconds += time.perf_counter() - started
                    started = time.perf_counter()
                    checkpoint.save(*state.saved())
                    last_save = time.monotonic()
            state.seconds += time.perf_counter() - started
            _end_epoch(state, batches, held_out, judge or held_out_loss, monitor)
        final = state.saved()
    if checkpoint is not None:
        checkpoint.save(*final)
    best, epoch = state.average, last_epoch
    if held_out is not None:
        best, epoch = state.best, state.best_epoch
    set_priors = sets.set_priors
    if isinstance(best, LearnedPriors):
        set_priors = best.set_priors().numpy(force=True)
    last, selected = _own(state.average).eval(), _own(best).eval()
    return Trained(last, state.history, selected, epoch, set_priors, final)


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
    """Return the mean set log-loss of held-out rows: the yardstick that needs no label."""
    set_index = torch.from_numpy(sets.set_index).long()
    transition = sets.scoring_transition
    if isinstance(model, LearnedPriors):  # judged by the priors it believes in
        priors = model.set_priors().numpy(force=True)
        transition = Transition(priors, sets.set_sizes, sets.target_prior, scoring=True)
    losses = ssc_cross_entropy(logits_of(model, sets.x).double(), set_index, transition)
    return float(losses.mean())


def as_input(x: Tensor) -> Tensor:
    """Return a batch as floats; bytes are pixels and go to [0, 1]."""
    x = x / 255 if x.dtype == torch.uint8 else x.float()
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


def pick_device(device: str = "auto") -> torch.device:
    """Return the device asked for; 'auto' takes a GPU where there is one."""
    if device != "auto":
        try:
            return torch.empty(0, device=device).device
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"device {device!r} is not available: {reason}") from None
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _batches(rows: int, recipe: Recipe) -> int:
    """Return how many batches a part of so many rows has."""
    return -(-rows // recipe.batch_size)


def _remaining_batches(
    load: Callable[[int], tuple[Tensor, Tensor]],
    part_sizes: Sequence[int],
    method: Method,
    recipe: Recipe,
    seed: int,
    state: TrainingState,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield rows and sets of each batch of this epoch that is still to come, part by part."""
    skipped = state.batch  # done before the checkpoint
    visits = np.random.default_rng([seed, 3, state.epoch]).permutation(len(part_sizes))
    for position in visits.tolist():
        batches = _batches(part_sizes[position], recipe)
        first, skipped = min(skipped, batches), max(0, skipped - batches)
        if first == batches:
            continue
        x, set_index = load(position)
        rng = np.random.default_rng(np.random.SeedSequence([seed, 2, state.epoch, position]))
        order = row_order(set_index.numpy(), recipe.batch_size, rng, by=method.batch_by)
        # Batches of nearly equal size: a last batch of one row would break batch norm.
        edges = np.linspace(0, len(order), batches + 1).round().astype(int)
        for b in range(first, batches):
            rows = torch.from_numpy(order[edges[b] : edges[b + 1]])
            yield x.index_select(0, rows), set_index.index_select(0, rows)


def _note_risk(state: TrainingState, value: float, rate: float) -> None:
    """Add the risk of a batch to the epoch's sum, or stop if it has run away."""
    if not math.isfinite(value) or abs(value) > RUNAWAY:
        raise DivergenceError(
            f"the risk became {value:g} in epoch {state.epoch + 1}, batch {state.batch + 1}; "
            f"lower the learning rate (it is {rate:g}), or look for extreme values in the rows"
        )
    state.risk_sum += value
    state.batch += 1


def _end_epoch(
    state: TrainingState,
    batches: int,
    held_out: UnlabeledSets | None,
    judge: Judge,
    monitor: Monitor | None,
) -> None:
    """Record the epoch, remember the model if it is the best so far, and start the next."""
    row = {
        "epoch": state.epoch + 1,
        "train_risk": state.risk_sum / batches,
        "seconds": state.seconds,
    }
    if held_out is not None:
        row["held_out_loss"] = judge(state.average, held_out)
        if row["held_out_loss"] < state.best_loss:
            state.best_loss, state.best_epoch = row["held_out_loss"], state.epoch + 1
            state.best.load_state_dict(state.average.state_dict())
    if monitor is not None:
        # A copy, so that it cannot meddle; and what it says replaces nothing.
        row = monitor(copy.deepcopy(state.average).eval()) | row
    state.history.append(row)
    state.epoch, state.batch, state.risk_sum, state.seconds = state.epoch + 1, 0, 0.0, 0.0


def _own(network: nn.Module) -> nn.Module:
    """Return the model itself, without the priors that were learned with it."""
    return network.model if isinstance(network, LearnedPriors) else network


def _is_convolutional(model: nn.Module) -> bool:
    """Say whether a model has convolutions."""
    return any(isinstance(m, nn.Conv2d) for m in model.modules())


def _prepare_model(model: nn.Module, place: torch.device) -> None:
    """Move the model, in the memory layout in which convolutions are fast."""
    model.to(place)
    if _is_convolutional(model):
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _precision(model: nn.Module, place: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    """Return bf16 autocast where the hardware has it and it pays: convolutions, not small MLPs."""
    if place.type == "cuda":
        supported = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        supported = place.type == "cpu" and fast_ops.bf16_on_cpu()
    if _is_convolutional(model) and supported:
        return lambda: torch.autocast(place.type, dtype=torch.bfloat16)
    return nullcontext


def _pixel_deviation(x: np.ndarray[Any, Any]) -> float:
    """Return the standard deviation of the inputs over (at most) the first 10,000 rows."""
    return float(as_input(torch.from_numpy(x[:10_000])).std())


def _stream(seed: int, number: int) -> int:
    """Return the seed of one of the independent random streams of a run."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
