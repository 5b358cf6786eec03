"""The gradients of a risk, added to those of a network's parameters.

Autograd does it for any network. For the MLP on a CPU forward and backward are written out: the
modules of `models.MLP` say what its layers are, this says the same in fewer passes over memory and
through Python, since for layers of 300 units those cost as much as the products. The scale of
dropout moves into the products, and dropped and negative units fall away in one comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor, nn

from unmix.core.risks import MeanLoss, Risk
from unmix.learn import fast_ops
from unmix.learn.networks import MLP, kept_units, squeeze
from unmix.learn.refined_priors import RefiningNetwork

__all__ = ["Gradients", "WrittenOut", "add_gradient"]


class Gradients:
    """Adds the gradients of risks to `.grad` of the parameters, as is fastest for the network.

    Parameters
    ----------
    network : module returning logits, (n,) or (n, K)
        Used in training mode.
    precision : function returning a context, optional
        In which autograd's forward pass runs.
    """

    def __init__(
        self,
        network: nn.Module,
        precision: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.network, self.precision = network, precision
        model = network.model if isinstance(network, RefiningNetwork) else network
        self.written_out = WrittenOut(model) if WrittenOut.suits(model) else None

    def add(self, risk: Risk, x: Tensor, set_index: Tensor) -> Tensor:
        """Add the gradients of the risk of a batch; return the risk.

        Parameters
        ----------
        risk : Risk
        x : Tensor, shape (n, ...)
            Rows; no gradient is passed on to them.
        set_index : Tensor of integers, shape (n,)
        """
        if self.written_out is None or len(x) < 2:
            with self.precision():
                loss = risk(self.network(x).float(), set_index)
            return add_gradient(loss)
        logits = self.written_out.forward(x)
        if isinstance(risk, MeanLoss) and not risk.learns:
            loss, by_logits = risk(logits, set_index), risk.gradient(logits, set_index)
        else:
            loss = add_gradient(risk(logits.requires_grad_(), set_index))
            assert logits.grad is not None
            by_logits = logits.grad
        self.written_out.backward(by_logits)
        return loss


def add_gradient(loss: Tensor) -> Tensor:
    """Add the gradients of a scalar to those of what it depends on; return it without them."""
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


class _Layer(NamedTuple):
    """What backward needs of a hidden layer."""

    inputs: Tensor
    z: Tensor
    mean: Tensor
    inverse_deviation: Tensor


class WrittenOut:
    """Forward and backward pass of an MLP in training: head, dropout(relu(norm(linear(.)))).

    Parameters
    ----------
    model : MLP
        On a CPU. Its parameters and statistics are used where they are.
    """

    def __init__(self, model: MLP) -> None:
        self.weights = [layer.weight for layer in model.body if isinstance(layer, nn.Linear)]
        self.norms = [layer for layer in model.body if isinstance(layer, nn.BatchNorm1d)]
        self.counts = [t for norm in self.norms if (t := norm.num_batches_tracked) is not None]
        self.head, self.dropout = model.head, model.dropout
        self.scale = 1 / (1 - model.dropout)

    @staticmethod
    def suits(model: nn.Module) -> TypeGuard[MLP]:
        """Say whether a model is one whose passes are known here."""
        # What a subclass does is not, nor what a norm does that was changed.
        if type(model) is not MLP or model.head.weight.device.type != "cpu" or not model.norm:
            return False
        norms = [layer for layer in model.body if isinstance(layer, nn.BatchNorm1d)]
        return all(n.momentum is not None and n.track_running_stats and n.affine for n in norms)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of rows, (n,) or (n, K), and remember what `backward` needs."""
        h = x.flatten(1)
        last = len(self.norms) - 1
        if self.dropout:
            kept = kept_units((last, len(h), len(self.weights[0])), self.dropout, h)
        self.layers: list[_Layer] = []
        for i, (weight, norm) in enumerate(zip(self.weights, self.norms, strict=True)):
            z = _product(h, weight.t(), self.scale if i else 1.0)
            y, mean, inverse_deviation = fast_ops.batch_norm(
                z,
                norm.weight,
                norm.bias,
                norm.running_mean,
                norm.running_var,
                True,
                norm.momentum or 0.0,
                norm.eps,
            )
            y.relu_()
            if self.dropout and i < last:
                y.mul_(kept[i])
            self.layers.append(_Layer(h, z, mean, inverse_deviation))
            h = y
        fast_ops.add_to_all(self.counts, 1)
        self.features = h
        return squeeze(torch.addmm(self.head.bias, h, self.head.weight.t()))

    @torch.no_grad()
    def backward(self, by_logits: Tensor) -> None:
        """Add to the gradients of the parameters, given those of the logits."""
        outputs = self.features
        by_logits = by_logits.view(len(outputs), -1)  # (n, K)
        _add_product(self.head.weight, by_logits.t(), outputs)
        vectors, by_vectors = [self.head.bias], [by_logits.sum(0)]
        gradient = by_logits @ self.head.weight
        for i in reversed(range(len(self.layers))):
            layer, weight, norm = self.layers[i], self.weights[i], self.norms[i]
            gradient, by_gain, by_bias = fast_ops.batch_norm_backward(
                fast_ops.relu_backward(gradient, outputs, 0),
                layer.z,
                norm.weight,
                None,
                None,
                layer.mean,
                layer.inverse_deviation,
                True,
                norm.eps,
                [True] * 3,
            )
            vectors += [norm.weight, norm.bias]
            by_vectors += [by_gain, by_bias]
            scale = self.scale if i else 1.0
            _add_product(weight, gradient.t(), layer.inputs, scale)
            if i:
                gradient = _product(gradient, weight, scale)
            outputs = layer.inputs
        trained = [(p, by) for p, by in zip(vectors, by_vectors, strict=True) if p.requires_grad]
        if trained:
            fast_ops.add_to_all([_grad(p) for p, _ in trained], [by for _, by in trained])


def _product(a: Tensor, b: Tensor, scale: float) -> Tensor:
    """Return scale * a @ b; scaling inside the product costs nothing."""
    return torch.addmm(a.new_empty(()), a, b, beta=0, alpha=scale)


def _add_product(parameter: Tensor, a: Tensor, b: Tensor, scale: float = 1.0) -> None:
    """Add scale * a @ b to the gradient of a parameter that is trained."""
    if parameter.requires_grad:
        _grad(parameter).addmm_(a, b, alpha=scale)


def _grad(parameter: Tensor) -> Tensor:
    """Return where the gradient of a parameter is summed."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad
