"""What changes while a network is trained: its weights, their average, the optimizer, the place.

All of it can be saved and put back, and training then goes on to the same bits.

All parameters of a kind live in one tensor, of which the model's own are views: a step of Adam or
AdamW is one pass over memory and not one for each parameter, and so is an average of the weights.
An optimizer of torch's own would also load its compiler, which takes longer than many a fit.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from unmix.learn import fast_ops
from unmix.learn.recipes import Recipe
from unmix.learn.refined_priors import RefiningNetwork

__all__ = [
    "Adam",
    "Saved",
    "TrainingState",
    "flatten",
    "unflatten",
]

BETAS, EPSILON = (0.9, 0.999), 1e-8

Saved = tuple[dict[str, Tensor], dict[str, Any]]
"""Named tensors, and what goes into JSON."""


@dataclass
class TrainingState:
    """Everything that changes during training, so that it can be saved and restored."""

    model: nn.Module
    average: nn.Module
    best: nn.Module
    recipe: Recipe
    best_epoch: int = 0
    best_loss: float = math.inf
    epoch: int = 0
    batch: int = 0
    risk_sum: float = 0.0
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Listed once: walking through the modules at each step costs more than averaging.
        self.current, self.optimizers = _flat_weights(self.model, self.recipe)
        self.averaged = self.current
        if self.average is not self.model:
            self.averaged, _ = _flat_weights(self.average, self.recipe)

    @contextmanager
    def in_training(self) -> Iterator[None]:
        """Give all parameters memory of their own again when training is over."""
        try:
            yield
        finally:
            for model in (self.model, self.average):
                unflatten(model.parameters())

    def move_average(self, step: int) -> None:
        """Move the averaged weights towards the current ones; short runs average over less."""
        if not self.recipe.average:
            return
        decay = min(self.recipe.average, (1 + step) / (4 + step))
        with torch.no_grad():
            fast_ops.move_all(self.averaged, self.current, 1 - decay)

    def saved(self) -> Saved:
        """Return the state as named tensors and JSON."""
        tensors: dict[str, Tensor] = {"random": torch.get_rng_state()}
        for part in ("model", "average", "best"):
            module: nn.Module = getattr(self, part)
            tensors |= {f"{part}.{k}": v for k, v in module.state_dict().items()}
        for i, optimizer in enumerate(self.optimizers):
            tensors |= {f"optimizer.{i}.{k}": v for k, v in optimizer.state.items()}
        # The file knows no memory layouts; and without an average, two parts are one model.
        tensors = {k: v.clone(memory_format=torch.contiguous_format) for k, v in tensors.items()}
        plain = ("best_epoch", "best_loss", "epoch", "batch", "risk_sum", "seconds", "history")
        return tensors, {key: copy.copy(getattr(self, key)) for key in plain}

    def restore(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        """Put a saved state back in place."""
        torch.set_rng_state(tensors["random"])
        for part in ("model", "average", "best"):
            module: nn.Module = getattr(self, part)
            module.load_state_dict({k: tensors[f"{part}.{k}"] for k in module.state_dict()})
        for i, optimizer in enumerate(self.optimizers):
            for key, value in optimizer.state.items():
                value.copy_(tensors[f"optimizer.{i}.{key}"])
        for key, value in plain.items():
            setattr(self, key, copy.copy(value))  # several runs may start from one state


def _flat_weights(model: nn.Module, recipe: Recipe) -> tuple[list[Tensor], list[Adam]]:
    """Put the parameters into few large tensors.

    Returns
    -------
    list of Tensor
        These, and the statistics of batch norm: what is averaged.
    list of Adam
        An optimizer for each; only matrices and kernels decay, not biases and batch norm. Those
        that the model does not use decay too.
    """
    groups: dict[tuple[float, float, torch.dtype], list[Tensor]] = {}
    # The gradient of l2 |w|^2 is 2 l2 w.
    decay = recipe.weight_decay or 2 * recipe.l2
    for p in model.parameters():
        learned = isinstance(model, RefiningNetwork) and p is model.prior_steps
        # A prior has further to go than a weight, and sees fewer rows.
        kind = (decay * (p.ndim > 1 and not learned), 20.0 if learned else 1.0, p.dtype)
        if p.requires_grad:
            groups.setdefault(kind, []).append(p)
    optimizers = [
        Adam(flatten(group), weight_decay, decoupled=not recipe.l2, scale=scale)
        for (weight_decay, scale, _), group in groups.items()
    ]
    kept = model.state_dict()  # what a module keeps out of it is no statistic
    statistics = [t for k, t in model.named_buffers() if k in kept and t.is_floating_point()]
    return [optimizer.values for optimizer in optimizers] + statistics, optimizers


@dataclass
class Adam:
    """The state of Adam (Kingma and Ba, 2015) for one tensor of parameters."""

    values: Tensor
    """(size,), with its gradient in `values.grad`."""
    weight_decay: float = 0.0
    decoupled: bool = True
    """Decay as in AdamW; otherwise by the gradient, as a penalty on the risk."""
    scale: float = 1.0
    """Of the learning rate."""

    def __post_init__(self) -> None:
        self.mean, self.square = torch.zeros_like(self.values), torch.zeros_like(self.values)
        self.steps = torch.zeros((), device=self.values.device)

    @property
    def state(self) -> dict[str, Tensor]:
        """What changes from step to step, beside the values."""
        return {"mean": self.mean, "square": self.square, "steps": self.steps}

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Move the values against their gradient, and set the gradient to 0."""
        assert self.values.grad is not None
        self.steps += 1
        update = fast_ops.adamw if self.decoupled else fast_ops.adam
        update(
            [self.values],
            [self.values.grad],
            [self.mean],
            [self.square],
            [],
            [self.steps],
            lr=self.scale * rate,
            beta1=BETAS[0],
            beta2=BETAS[1],
            weight_decay=self.weight_decay,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )
        self.values.grad.zero_()


def flatten(parameters: Sequence[Tensor]) -> Tensor:
    """Move tensors of one type into one new tensor, of which they become views.

    Parameters
    ----------
    parameters : sequence of Tensor
        Changed in place. Gradients become views of the gradient of the whole, and are 0.

    Returns
    -------
    Tensor, shape (size of all,)
    """
    whole = parameters[0].detach().new_empty(sum(p.numel() for p in parameters))
    whole.grad = torch.zeros_like(whole)
    start = 0
    for p in parameters:
        # Kernels keep the memory layout in which convolutions are fast; gaps are closed.
        part = (p.shape, torch.empty_like(p).stride(), start)
        p.data = whole.as_strided(*part).copy_(p.detach())
        p.grad = whole.grad.as_strided(*part)
        start += p.numel()
    return whole


def unflatten(parameters: Iterable[Tensor]) -> None:
    """Give parameters memory of their own again, and drop their gradients."""
    for p in parameters:
        p.data, p.grad = p.detach().clone(), None
