"""Penalties at work: what a step of training adds to the gradients, by a risk and a penalty."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from unmix.core.penalties import consistency_penalty, vat_penalty
from unmix.core.risks import Risk
from unmix.learn.augment import Changes
from unmix.learn.gradients import Gradients, add_gradient
from unmix.learn.penalty_options import Consistency, Penalty, Vat

__all__ = ["Learn", "learn_by"]

Learn = Callable[[Risk, Tensor, Tensor, float, float], Tensor]
"""From a risk, a batch and its sets, the share of its images' height that is left of them, and the
share of the training that is done, to the sum of risk and penalty, whose gradients were added."""


def learn_by(
    penalty: Penalty | None,
    gradients: Gradients,
    *,
    average: nn.Module,
    deviation: float,
    flip: bool,
) -> Learn:
    """Return what a step of training does with a batch.

    Parameters
    ----------
    penalty : Penalty, optional
    gradients : Gradients
        Of the network that is trained.
    average : module
        The averaged weights of that network, or itself.
    deviation : float
        Standard deviation of the input.
    flip : bool
        Whether left and right of an image may be exchanged.
    """
    if penalty is None or not penalty.strength:
        return lambda risk, x, set_index, size, done: gradients.add(risk, x, set_index)
    if isinstance(penalty, Vat):
        return _adversary(penalty, gradients, deviation)
    if isinstance(penalty, Consistency):
        return _agreement(penalty, gradients, average, Changes(flip))
    raise TypeError(f"there is no penalty {type(penalty).__name__}")


def _adversary(vat: Vat, gradients: Gradients, deviation: float) -> Learn:
    """Return what punishes answers that change under a small perturbation."""

    def learn(risk: Risk, x: Tensor, set_index: Tensor, size: float, done: float) -> Tensor:
        loss = gradients.add(risk, x, set_index)
        # The same change of each pixel is a shorter vector in a smaller image.
        radius = vat.radius * deviation * size
        with gradients.precision():
            return loss + add_gradient(
                vat.weight_at(done) * vat_penalty(gradients.network, x, radius=radius)
            )

    return learn


def _agreement(
    consistency: Consistency, gradients: Gradients, average: nn.Module, changes: Changes
) -> Learn:
    """Return what learns from changed rows, and punishes answers that differ from the average's.

    The risk sees the changed rows too: one pass through the network does for both.
    """

    def learn(risk: Risk, x: Tensor, set_index: Tensor, size: float, done: float) -> Tensor:
        teacher = _answers(average, x, gradients.precision)
        weight = consistency.weight_at(done)
        changed = changes(x)
        if x.ndim == 4:
            changed = changed.contiguous(memory_format=torch.channels_last)
        return gradients.add(
            lambda logits, sets: risk(logits, sets) + weight * consistency_penalty(logits, teacher),
            changed,
            set_index,
        )

    return learn


@torch.no_grad()
def _answers(
    model: nn.Module, x: Tensor, precision: Callable[[], AbstractContextManager[Any]]
) -> Tensor:
    """Return a model's logits as it would predict, whatever mode it is in."""
    training = model.training
    model.eval()
    with precision():
        logits: Tensor = model(x).float()
    model.train(training)
    return logits
