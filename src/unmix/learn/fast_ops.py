"""Operators that torch keeps to itself, and the plain form of each for a torch that lacks it.

They save passes over memory and calls through Python that a small network feels. Torch may rename
them in any release; where one is missing, the plain form does the same, more slowly. Nothing else
in this package calls what torch keeps to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

__all__ = [
    "adam",
    "adamw",
    "add_to_all",
    "batch_norm",
    "batch_norm_backward",
    "bf16_on_cpu",
    "move_all",
    "relu_backward",
]


def _plain_relu_backward(gradient: Tensor, outputs: Tensor, threshold: float) -> Tensor:
    """Return the gradient by what went into a ReLU, given its outputs."""
    return gradient.masked_fill(outputs <= threshold, 0)


def _plain_batch_norm(
    z: Tensor,
    gain: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_variance: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the normalised units, (n, units), and the mean and inverse deviation of each."""
    y = functional.batch_norm(
        z, running_mean, running_variance, gain, bias, training, momentum, eps
    )
    return y, z.mean(0), (z.var(0, unbiased=False) + eps).rsqrt()


def _plain_batch_norm_backward(
    gradient: Tensor,
    z: Tensor,
    gain: Tensor,
    running_mean: None,
    running_variance: None,
    mean: Tensor,
    inverse_deviation: Tensor,
    training: bool,
    eps: float,
    wanted: list[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients by z, gain and bias, in training."""
    normed = (z - mean) * inverse_deviation
    by_gain, by_bias = (gradient * normed).sum(0), gradient.sum(0)
    by_z = gradient - (by_bias + normed * by_gain) / len(z)
    return by_z * (gain * inverse_deviation), by_gain, by_bias


def _plain_add_to_all(tensors: Sequence[Tensor], values: Sequence[Tensor] | float) -> None:
    """Add to each tensor its own value, or the same number."""
    for i, tensor in enumerate(tensors):
        tensor.add_(values[i] if isinstance(values, Sequence) else values)


def _plain_move_all(tensors: Sequence[Tensor], goals: Sequence[Tensor], share: float) -> None:
    """Move each tensor a share of the way to its goal."""
    for tensor, goal in zip(tensors, goals, strict=True):
        tensor.lerp_(goal, share)


def _plain_adam_of(decoupled: bool) -> Callable[..., None]:
    """Return Adam's step on lists of tensors, or AdamW's."""

    def step(
        values: list[Tensor],
        gradients: list[Tensor],
        means: list[Tensor],
        squares: list[Tensor],
        largest_squares: list[Tensor],
        steps: list[Tensor],
        *,
        lr: float,
        beta1: float,
        beta2: float,
        weight_decay: float,
        eps: float,
        amsgrad: bool,
        maximize: bool,
    ) -> None:
        """Move the values against their gradients; AMSGrad and maximising are not done here."""
        lists = zip(values, gradients, means, squares, steps, strict=True)
        for value, gradient, mean, square, taken in lists:
            count = float(taken)
            if decoupled:
                value.mul_(1 - lr * weight_decay)
            else:
                gradient = gradient.add(value, alpha=weight_decay)
            mean.lerp_(gradient, 1 - beta1)
            square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            deviation = (square / (1 - beta2**count)).sqrt_().add_(eps)
            value.sub_(lr / (1 - beta1**count) * mean / deviation)

    return step


# Our name: torch's, and the plain form.
_FORMS: dict[str, tuple[str, Callable[..., Any]]] = {
    "relu_backward": ("ops.aten.threshold_backward.default", _plain_relu_backward),
    "batch_norm": ("native_batch_norm", _plain_batch_norm),
    "batch_norm_backward": (
        "ops.aten.native_batch_norm_backward.default",
        _plain_batch_norm_backward,
    ),
    "add_to_all": ("_foreach_add_", _plain_add_to_all),
    "move_all": ("_foreach_lerp_", _plain_move_all),
    "adam": ("_fused_adam_", _plain_adam_of(decoupled=False)),
    "adamw": ("_fused_adamw_", _plain_adam_of(decoupled=True)),
    "bf16_on_cpu": ("ops.mkldnn._is_mkldnn_bf16_supported", lambda: False),
}


def _found(name: str) -> Callable[..., Any]:
    """Return torch's own operator, or the plain form where this torch has none."""
    operator, plain = _FORMS[name]
    try:
        found: Callable[..., Any] = attrgetter(operator)(torch)
    except AttributeError:
        return plain
    return found


# Found once: looking for an overload takes longer than its work.
relu_backward = _found("relu_backward")
batch_norm = _found("batch_norm")
batch_norm_backward = _found("batch_norm_backward")
add_to_all = _found("add_to_all")
move_all = _found("move_all")
adam = _found("adam")
adamw = _found("adamw")
bf16_on_cpu = _found("bf16_on_cpu")
