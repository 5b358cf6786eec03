"""The hidden layers of the MLP with batch norm, ReLU and dropout in loops compiled by Numba.

What `unmix.learn.hidden` does, with one loop forward and one backward instead of torch's
operations; `dropped_tricks.py` measures what that gains.
"""

import numpy as np
import torch
from numba import njit
from torch.autograd.function import once_differentiable

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
    scale,
    by_gain,
    by_bias,
    by_z,
):
    """Write the gradient by z, and add `scale` times those by gain and bias to what is there."""
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
        by_gain[j] += scale * by_slope[j]
        by_bias[j] += scale * by_level[j]
        slope[j] = gain[j] * inverse[j]
        by_deviation[j] = slope[j] * inverse[j] * by_slope[j] / n
        level[j] = by_deviation[j] * mean[j] - slope[j] * by_level[j] / n
    for i in range(n):
        for j in range(units):
            g = zero if h[i, j] == zero else by_h[i, j]
            by_z[i, j] = slope[j] * g + level[j] - by_deviation[j] * z[i, j]


class Hidden(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, norms, dropout, *weights):
        depth, width = len(norms), len(weights[0])
        bits = random_bits((depth - 1, len(x), width)).numpy()
        h, saved = x, []
        for i, norm in enumerate(norms):
            weight, gain, bias = weights[3 * i : 3 * i + 3]
            inner = i < depth - 1
            # relu(a z) = a relu(z): scaling 2 x 300 numbers is cheaper than 256 x 300.
            scale = 1 / (1 - dropout) if inner else 1.0
            gain, bias = gain * scale, bias * scale
            z = h @ weight.t()
            units, mean, inverse = (torch.empty_like(t) for t in (z, gain, gain))
            normalize(
                *arrays(z, gain, bias),
                norm.eps,
                norm.momentum or 0.0,
                *arrays(norm.running_mean, norm.running_var),
                bits[i] if inner else NO_BITS,
                round(2**16 * dropout) - 2**15,
                *arrays(units, mean, inverse),
            )
            norm.num_batches_tracked.add_(1)
            saved += [h, z, gain, mean, inverse]
            h = units
        ctx.save_for_backward(*saved, h)
        ctx.weights, ctx.dropout = weights, dropout
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        *saved, h = ctx.saved_tensors
        depth = len(saved) // 5
        for i in reversed(range(depth)):
            inputs, *layer = saved[5 * i : 5 * i + 5]
            weight, gain, bias = ctx.weights[3 * i : 3 * i + 3]
            by_z = torch.empty_like(h)
            normalize_backward(
                *arrays(gradient.contiguous(), h, *layer),
                1 / (1 - ctx.dropout) if i < depth - 1 else 1.0,
                *arrays(gain.grad, bias.grad, by_z),
            )
            weight.grad.addmm_(by_z.t(), inputs)
            if i:
                gradient = by_z @ weight
            h = inputs
        return (None,) * (3 + 3 * depth)


def hidden_layers(x, layers, dropout):
    """As `unmix.learn.hidden.hidden_layers`."""
    weights = [t for linear, norm in layers for t in (linear.weight, norm.weight, norm.bias)]
    return Hidden.apply(x, [norm for _, norm in layers], dropout, *weights)


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
