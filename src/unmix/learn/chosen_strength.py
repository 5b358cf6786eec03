"""Choosing how strong a penalty should be, without labels and inside one training run.

All candidates share the first epochs, in which the penalty is weak anyway. Then each goes on for
some epochs by itself, or to the end, and the one with the least held-out set log-loss is kept. A
penalty makes a network timid and moves its threshold, so each is calibrated before it is judged,
and so is the network that goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import nn

from unmix.core.losses import ssc_cross_entropy_gradient
from unmix.core.row_losses import set_log_loss
from unmix.data.sets import UnlabeledSets
from unmix.errors import InputError
from unmix.learn.augment import Augment
from unmix.learn.checkpoint import Checkpoint
from unmix.learn.methods import Method
from unmix.learn.recipes import Recipe
from unmix.learn.training import OWN_KEYS, Monitor, Sets, Trained, logits_of, train
from unmix.progress import Progress

__all__ = ["Choice", "calibrate", "calibrated_loss", "train_choosing_strength"]

PART = 0.1  # share of the epochs after which the candidates part


@dataclass(frozen=True)
class Choice:
    """A strength and what it was compared with."""

    strength: float
    """0: no penalty."""
    candidates: list[dict[str, float]]
    """For each strength its `calibrated_loss` and the history's row when they were compared."""
    calibration: list[float]
    """Scale and shift (one per class) that the last network's logits were given."""


def train_choosing_strength(
    model: nn.Module,
    sets: Sets,
    method: Method,
    recipe: Recipe,
    strengths: Sequence[float],
    *,
    held_out: UnlabeledSets,
    augment: Augment | None = None,
    monitor: Monitor | None = None,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> tuple[Trained, Choice]:
    """Train with the strength of a penalty that suits the data.

    Parameters
    ----------
    model : module with a `head`, an affine map to its logits
    sets, method, recipe, monitor, checkpoint, progress
        As for `train`; the method has a penalty.
    strengths : sequence of float
        Candidates; 0 is no penalty.
    held_out : UnlabeledSets
        Rows of the same sets that appear in no set that is trained on: they decide.
    augment : Augment, optional
        How images are moved about where no penalty does it.
    **options
        Passed to `train`.
    """
    penalty = method.penalty
    if penalty is None or not strengths:
        raise InputError(f"{method.name} has no penalty whose strength could be chosen")
    if recipe.epochs < 2:
        raise InputError(f"{method.name} chooses its strength on the way; give it 2 epochs or more")
    head = getattr(model, "head", None)
    if not isinstance(head, nn.Linear):
        raise InputError(
            f"{method.name} calibrates a network by its last layer, a Linear called `head`, and "
            f"this {type(model).__name__} has none; name it so, or use method ssc"
        )
    # Candidates are compared on images of full size; let them get used to it before.
    recipe = replace(recipe, half_size=min(recipe.half_size, penalty.compared / 2))
    unmoved = replace(augment, shift=0) if augment and augment.flip else None
    part = max(1, round(PART * recipe.epochs))
    compare = max(part + 1, round(penalty.compared * recipe.epochs))
    ends = [part, *[compare - part] * len(strengths), recipe.epochs - compare]
    before = [sum(ends[:i]) for i in range(len(ends))]

    def stage(number: int, name: str, strength: float, **more: Any) -> Trained:
        moved = strength and penalty.moves_rows

        def tell(done: int, total: int, text: str) -> None:
            if progress:
                epochs = before[number] + done / total * recipe.epochs - first
                progress(round(1000 * epochs), 1000 * sum(ends), f"{name}, {text}")

        first = 0 if number == 0 else compare if number == len(ends) - 1 else part
        return train(
            model,
            sets,
            replace(method, penalty=penalty.at(strength)),
            recipe,
            held_out=held_out,
            augment=unmoved if moved else augment,
            monitor=monitor,
            judge=calibrated_loss if strength else None,
            checkpoint=checkpoint.part(name) if checkpoint else None,
            progress=tell,
            **options,
            **more,
        )

    shared = stage(0, "start", 0.0, stop=part).state
    states, candidates, losses = [], [], []
    for i, strength in enumerate(strengths, 1):
        name = f"{penalty.knob} {strength:g}"
        branch = stage(i, name, strength, start=shared, stop=compare)
        # At once: without a weight average the next branch trains this very model.
        losses.append(calibrated_loss(branch.model, held_out))
        states.append(branch.state)
        row = dict(branch.history[-1])
        if monitor and strength:  # of the network as it would be kept
            calibrate(branch.model, held_out)
            row = monitor(branch.model) | {key: row[key] for key in OWN_KEYS}
        candidates.append(row | {"strength": strength, "calibrated_loss": losses[-1]})
    # By the losses alone: the history holds what a monitor says, which may know labels.
    best = int(np.argmin(losses))
    strength = strengths[best]
    trained = stage(len(ends) - 1, f"chosen {strength:g}", strength, start=states[best])
    calibration = [1.0] + [0.0] * head.out_features
    if strength:
        calibrate(trained.selected, held_out)
        calibration = calibrate(trained.model, held_out)
    return trained, Choice(strength, candidates, calibration)


@torch.no_grad()
def calibrate(model: nn.Module, sets: UnlabeledSets) -> list[float]:
    """Scale and shift a model's logits to the least log-loss of these sets, by way of its head."""
    scale, *shift = _calibration(model, sets)[0]
    head: Any = model.get_submodule("head")
    head.weight.mul_(scale)
    head.bias.mul_(scale).add_(head.bias.new_tensor(shift))
    return [scale, *shift]


def calibrated_loss(model: nn.Module, sets: UnlabeledSets) -> float:
    """Return the mean set log-loss of a model whose logits are first scaled and shifted to fit.

    The scale and the shift (one per class) are fitted to these very rows, which are many.
    """
    return _calibration(model, sets)[1]


def _calibration(model: nn.Module, sets: UnlabeledSets) -> tuple[list[float], float]:
    """Return the best scale and shifts of a model's logits, and the log-loss they lead to."""
    z = logits_of(model, sets.x).double().numpy()
    set_index = torch.from_numpy(sets.set_index).long()
    transition = sets.scoring_transition

    def loss(parameters: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        shift = parameters[1:] if z.ndim > 1 else parameters[1]
        logits = torch.from_numpy(parameters[0] * z + shift)
        gradient = ssc_cross_entropy_gradient(logits, set_index, transition).numpy()
        slope = np.hstack([(gradient * z).sum() / len(z), gradient.mean(axis=0)])
        return set_log_loss(logits, set_index, transition), slope

    start = np.zeros(1 + (z.shape[1] if z.ndim > 1 else 1))
    start[0] = 1.0
    bounds = [(0.0, None)] + [(None, None)] * (len(start) - 1)  # no network is turned around
    found = minimize(
        loss,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"ftol": 1e-13, "gtol": 1e-9},  # it is a handful of numbers
    )
    return found.x.tolist(), float(found.fun)
