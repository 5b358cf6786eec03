"""The passes of the MLP with batch norm, ReLU and dropout in loops compiled by Numba.

What `unmix.learn.gradients` does, with one loop forward and one backward instead of torch's
operations; `dropped_tricks.py` measures what that gains.
"""

import numpy as np
import torch
from numba import njit

from unmix.learn import fast_ops
from unmix.learn.gradients import WrittenOut, _product
from unmix.learn.networks import squeeze

compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
NO_BITS = np.empty((0, 0), np.int16)


@compiled
def normalize(
    z,
    gain,
    bias,
    eps,
    momentum,
    running_mean,
    running_var,
    bits,
    least,
    h,
    mean,
    inverse,
):
    """Write h = relu(gain (z - mean) / deviation + bias), 0 where bits < least."""
    n, units = z.shape
    zero = z.dtype.type(0)
    total = np.zeros_like(mean)
    for i in range(n):
        for j in range(units):
            total[j] += z[i, j]
    for j in range(units):
        mean[j] = total[j] / n
        total[j] = 0
    for i in range(n):
        for j in range(units):
            total[j] += (z[i, j] - mean[j]) * (z[i, j] - mean[j])
    slope, level = np.empty_like(mean), np.empty_like(mean)
    for j in range(units):
        inverse[j] = 1 / np.sqrt(total[j] / n + eps)
        running_mean[j] += momentum * (mean[j] - running_mean[j])
        running_var[j] += momentum * (total[j] / (n - 1) - running_var[j])
        slope[j] = gain[j] * inverse[j]
        level[j] = bias[j] - mean[j] * slope[j]
    dropout = bits.size > 0
    for i in range(n):
        for j in range(units):
            h[i, j] = slope[j] * z[i, j] + level[j]
        if dropout:
            for j in range(units):
                h[i, j] = zero if (h[i, j] <= zero) | (bits[i, j] < least) else h[i, j]
        else:
            for j in range(units):
                h[i, j] = zero if h[i, j] <= zero else h[i, j]


@compiled
def normalize_backward(
    by_h,
    h,
    z,
    gain,
    mean,
    inverse,
    by_gain,
    by_bias,
    by_z,
):
    """Write the gradient by z, and add those by gain and bias to what is there."""
    n, units = z.shape
    zero = z.dtype.type(0)
    by_level, by_slope = np.zeros_like(mean), np.zeros_like(mean)
    for i in range(n):
        for j in range(units):
            g = zero if h[i, j] == zero else by_h[i, j]
            by_level[j] += g
            by_slope[j] += g * (z[i, j] - mean[j])
    slope, level, by_deviation = np.empty_like(mean), np.empty_like(mean), np.empty_like(mean)
    for j in range(units):
        by_slope[j] *= inverse[j]
        by_gain[j] += by_slope[j]
        by_bias[j] += by_level[j]
        slope[j] = gain[j] * inverse[j]
        by_deviation[j] = slope[j] * inverse[j] * by_slope[j] / n
        level[j] = by_deviation[j] * mean[j] - slope[j] * by_level[j] / n
    for i in range(n):
        for j in range(units):
            g = zero if h[i, j] == zero else by_h[i, j]
            by_z[i, j] = slope[j] * g + level[j] - by_deviation[j] * z[i, j]


class Compiled(WrittenOut):
    """As `WrittenOut`, of a model whose parameters are all trained and have gradients."""

    @torch.no_grad()
    def forward(self, x):
        h = x.flatten(1)
        last = len(self.norms) - 1
        bits = random_bits((last, len(h), len(self.weights[0]))).numpy()
        self.layers = []
        for i, (weight, norm) in enumerate(zip(self.weights, self.norms, strict=True)):
            z = _product(h, weight.t(), self.scale if i else 1.0)
            units, mean, inverse = (torch.empty_like(t) for t in (z, norm.weight, norm.weight))
            normalize(
                *arrays(z, norm.weight, norm.bias),
                norm.eps,
                norm.momentum,
                *arrays(norm.running_mean, norm.running_var),
                bits[i] if i < last else NO_BITS,
                round(2**16 * self.dropout) - 2**15,
                *arrays(units, mean, inverse),
            )
            self.layers.append((h, z, mean, inverse))
            h = units
        fast_ops.add_to_all(self.counts, 1)
        self.features = h
        return squeeze(torch.addmm(self.head.bias, h, self.head.weight.t()))

    @torch.no_grad()
    def backward(self, by_logits):
        h = self.features
        by_logits = by_logits.view(len(h), -1)
        self.head.weight.grad.addmm_(by_logits.t(), h)
        self.head.bias.grad.add_(by_logits.sum(0))
        gradient = by_logits @ self.head.weight
        for i in reversed(range(len(self.layers))):
            (inputs, z, mean, inverse), norm = self.layers[i], self.norms[i]
            by_z = torch.empty_like(h)
            normalize_backward(
                *arrays(gradient, h, z, norm.weight, mean, inverse),
                *arrays(norm.weight.grad, norm.bias.grad, by_z),
            )
            scale = self.scale if i else 1.0
            self.weights[i].grad.addmm_(by_z.t(), inputs, alpha=scale)
            if i:
                gradient = _product(by_z, self.weights[i], scale)
            h = inputs


def random_bits(shape):
    """Return 16 random bits for each unit."""
    units = torch.Size(shape).numel()
    return (
        torch.empty(-(-units // 4), dtype=torch.int64)
        .random_(-(2**63), None)
        .view(torch.int16)[:units]
        .view(*shape)
    )


def arrays(*tensors):
    """Return the same memory as arrays."""
    return [tensor.detach().numpy() for tensor in tensors]
