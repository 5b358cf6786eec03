"""Penalties at work: what a step of training adds to the gradients beside those of the risk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from unmix.core.penalties import consistency_penalty, vat_penalty
from unmix.learn.augment import Changes
from unmix.learn.gradients import Gradients, add_gradient
from unmix.learn.penalty_options import Consistency, Penalty, Vat

__all__ = ["Penalise", "penalise_by"]

Penalise = Callable[[Tensor, float, float], Tensor]
"""From a batch, the share of its images' height that is left of them, and the share of the training
that is done, to the penalty, whose gradient was added."""


def penalise_by(
    penalty: Penalty | None,
    gradients: Gradients,
    *,
    average: nn.Module,
    deviation: float,
    flip: bool,
) -> Penalise | None:
    """Return what adds a penalty in each step, or None if there is nothing to add.

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
        return None
    if isinstance(penalty, Vat):
        return _adversary(penalty, gradients, deviation)
    if isinstance(penalty, Consistency):
        return _agreement(penalty, gradients, average, Changes(flip))
    raise TypeError(f"there is no penalty {type(penalty).__name__}")


def _adversary(vat: Vat, gradients: Gradients, deviation: float) -> Penalise:
    """Return what punishes answers that change under a small perturbation."""

    def penalise(x: Tensor, size: float, done: float) -> Tensor:
        # The same change of each pixel is a shorter vector in a smaller image.
        radius = vat.radius * deviation * size
        with gradients.precision():
            return add_gradient(
                vat.weight_at(done) * vat_penalty(gradients.network, x, radius=radius)
            )

    return penalise


def _agreement(
    consistency: Consistency, gradients: Gradients, average: nn.Module, changes: Changes
) -> Penalise:
    """Return what punishes answers on changed rows that differ from the averaged weights'."""

    def penalise(x: Tensor, size: float, done: float) -> Tensor:
        teacher = _answers(average, x, gradients.precision)
        weight = consistency.weight_at(done)
        changed = changes(x)
        if x.ndim == 4:
            changed = changed.contiguous(memory_format=torch.channels_last)
        with _unrecorded(gradients.network):
            return gradients.add(
                lambda logits, _: weight * consistency_penalty(logits, teacher),
                changed,
                torch.empty(0, dtype=torch.long),
            )

    return penalise


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


@contextmanager
def _unrecorded(model: nn.Module) -> Iterator[None]:
    """Let batch norm use a batch but not remember it: predictions are for rows as they are."""
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
