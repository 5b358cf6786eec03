"""Adam and AdamW on a few large tensors.

All parameters of a kind live in one tensor, of which the model's own are views: a step is one pass
over memory and not one for each parameter, and so is an average of the weights. An optimizer of
torch's own would also load its compiler, which takes longer than many a fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unmix.learn import fast_ops

__all__ = ["Adam", "flatten", "unflatten"]

BETAS, EPSILON = (0.9, 0.999), 1e-8


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
