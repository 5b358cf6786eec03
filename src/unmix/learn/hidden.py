"""The hidden layers of the MLP in training, forward and backward written out.

The modules of `models.MLP` say what the layers are; this says the same in fewer passes over
memory and through Python, since for layers of 300 units those cost as much as the products. The
scale of dropout moves into batch norm, dropped and negative units fall away in one comparison, and
gradients are added straight to `.grad`: autograd does not see them, so this is for a loop that
calls `backward` and reads `.grad`, as ours does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

__all__ = ["hidden_layers", "kept_units"]

# Found once: looking for the overload takes longer than its work.
_relu_backward = torch.ops.aten.threshold_backward.default
_norm_backward = torch.ops.aten.native_batch_norm_backward.default


def hidden_layers(
    x: Tensor, layers: Sequence[tuple[nn.Linear, nn.BatchNorm1d]], dropout: float
) -> Tensor:
    """Return dropout(relu(norm(linear(.)))) of all layers, the last one without dropout.

    Parameters
    ----------
    x : Tensor, shape (n, d)
        Rows; no gradient is passed on to them.
    layers : sequence of (Linear without bias, BatchNorm1d)
        All of one width, in training mode.
    dropout : float
        Probability of dropping a unit.

    Returns
    -------
    Tensor, shape (n, width)
    """
    weights = [t for linear, norm in layers for t in (linear.weight, norm.weight, norm.bias)]
    hidden: Tensor = _Hidden.apply(  # type: ignore[no-untyped-call]
        x, [norm for _, norm in layers], dropout, *weights
    )
    return hidden


def kept_units(shape: Sequence[int], dropout: float, like: Tensor) -> Tensor:
    """Return 1 for units to keep and 0 for those to drop, at random.

    A unit takes 16 random bits; torch's own dropout spends a whole random number on each, which
    takes a tenth of a training step. The probability is met to within 2^-17.
    """
    units = torch.Size(shape).numel()
    words = torch.empty(-(-units // 4), dtype=torch.int64, device=like.device)
    bits = words.random_(-(2**63), None).view(torch.int16)[:units].view(*shape)
    # Compared as floats of 32 bits, which hold every such number and are fast.
    return bits.float().ge_(round(2**16 * dropout) - 2**15).to(like.dtype)


class _Hidden(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, norms: list[nn.BatchNorm1d], dropout: float, *weights: Tensor
    ) -> Tensor:
        depth, width = len(norms), len(weights[0])
        kept = kept_units((depth - 1, len(x), width), dropout, x)
        h, saved = x, []
        for i, norm in enumerate(norms):
            weight, gain, bias = weights[3 * i : 3 * i + 3]
            if i < depth - 1:
                # relu(a z) = a relu(z): scaling 2 x 300 numbers is cheaper than 256 x 300.
                gain, bias = gain / (1 - dropout), bias / (1 - dropout)
            z = h @ weight.t()
            norm.num_batches_tracked.add_(1)  # type: ignore[union-attr]
            y, mean, inverse_deviation = torch.native_batch_norm(
                z,
                gain,
                bias,
                norm.running_mean,
                norm.running_var,
                True,
                norm.momentum or 0.0,
                norm.eps,
            )
            y.relu_()
            if i < depth - 1:
                y.mul_(kept[i])
            saved += [h, z, gain, mean, inverse_deviation]
            h = y
        ctx.save_for_backward(*saved, h)
        ctx.weights, ctx.dropout, ctx.eps = weights, dropout, [norm.eps for norm in norms]
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        *saved, h = ctx.saved_tensors
        depth = len(ctx.eps)
        for i in reversed(range(depth)):
            inputs, z, gain, mean, inverse_deviation = saved[5 * i : 5 * i + 5]
            weight, *affine = ctx.weights[3 * i : 3 * i + 3]
            gradient = _relu_backward(gradient, h, 0)
            gradient, *by_affine = _norm_backward(
                gradient, z, gain, None, None, mean, inverse_deviation, True, ctx.eps[i], [True] * 3
            )
            scale = 1 / (1 - ctx.dropout) if i < depth - 1 else 1.0
            for parameter, by_it in zip(affine, by_affine, strict=True):
                if parameter.requires_grad:
                    _grad(parameter).add_(by_it, alpha=scale)
            if weight.requires_grad:
                _grad(weight).addmm_(gradient.t(), inputs)
            if i:
                gradient = gradient @ weight
            h = inputs
        return (None,) * (3 + 3 * depth)


def _grad(parameter: Tensor) -> Tensor:
    """Return where the gradient of a parameter is summed."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad
