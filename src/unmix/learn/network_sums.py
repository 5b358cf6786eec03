"""Sums over rows of the loss of a network and its gradient, for rows that do not leave their place.

Of the weights there is one vector, in the order of the network's parameters. Batch norm would need
more than sums, and has none to offer here: see `networks.MLP`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from unmix.core.class_shares import as_stated
from unmix.core.risks import MeanLoss
from unmix.errors import InputError
from unmix.learn.models import Hidden
from unmix.learn.networks import build_model
from unmix.learn.recipes import check_hidden
from unmix.learn.sums import Question
from unmix.learn.training import logits_of

__all__ = ["build_plain", "network_logits", "network_sums", "plain_options", "weights_of"]

Array = npt.NDArray[Any]
Weights = npt.NDArray[np.float32]
MODEL = "mlp"
BLOCK_ROWS = 4096


def plain_options(row_shape: tuple[int, ...], base: Array, hidden: Hidden) -> dict[str, Any]:
    """Return what a network without norm and dropout is built by, see `network_models`."""
    depth, width = hidden
    network = {"depth": depth, "width": width, "dropout": 0.0, "norm": False}
    return {"name": MODEL, "row_shape": list(row_shape), "prior": base.tolist(), "network": network}


def build_plain(options: dict[str, Any], *, seed: int) -> nn.Module:
    """Build a network by its options."""
    prior = as_stated(np.asarray(options["prior"], dtype=np.float64))
    return build_model(MODEL, options["row_shape"], prior, seed=seed, **options["network"])


def weights_of(network: nn.Module) -> Weights:
    """Return all weights of a network in one vector."""
    found = parameters_to_vector(network.parameters())
    return np.asarray(found.numpy(force=True), dtype=np.float32).copy()


def network_sums(
    x: Array, set_index: Array, question: Question, hidden: Any, point: Array, *, slopes: bool
) -> Weights:
    """Return the loss / n summed over rows, and its derivatives by all weights unless left out.

    Parameters
    ----------
    x : array, shape (n, d)
    set_index : array of integers, shape (n,)
    question : Question
        About losses, by a method whose risk is the mean of a loss.
    hidden : (layers, units)
    point : array, shape (size of all weights,)
    slopes : bool
    """
    risk = question.risk
    if question.about != "losses" or not isinstance(risk, MeanLoss):
        raise InputError("a network learns from sums over rows by the mean of a loss only")
    network = _filled(x.shape[1], question.set_priors.num_classes, hidden, point)
    network.zero_grad()
    total = 0.0
    for first in range(0, len(x), BLOCK_ROWS):
        rows = torch.from_numpy(np.asarray(x[first : first + BLOCK_ROWS], dtype=np.float32))
        index = set_index[first : first + BLOCK_ROWS]
        with torch.set_grad_enabled(slopes):
            logits: Tensor = network(rows)
        value, gradient = risk.sum_and_gradient(logits.detach().numpy().astype(np.float64), index)
        total += value / question.num_rows
        if slopes:
            by_logits = torch.from_numpy(gradient / question.num_rows).float()
            logits.backward(by_logits)  # type: ignore[no-untyped-call]
    if not slopes:
        return np.array([total], dtype=np.float32)
    found = torch.cat([p.grad.ravel() for p in network.parameters() if p.grad is not None])
    return np.append(np.float32(total), found.numpy()).astype(np.float32)


def network_logits(x: Array, num_classes: int, hidden: Any, point: Array) -> Array:
    """Return the logits (n,) or (n, K) of rows by the weights of a network in one vector."""
    network = _filled(x.shape[1], num_classes, hidden, point)
    return logits_of(network, np.asarray(x, dtype=np.float32)).numpy().astype(np.float64)


def _filled(num_features: int, num_classes: int, hidden: Any, point: Array) -> nn.Module:
    """Return a network with these weights."""
    depth, width = check_hidden(hidden, MODEL) or (0, 0)
    if point.ndim != 1 or point.size < num_features * width:
        raise InputError("the weights are not those of such a network")
    network = _empty(num_features, num_classes, depth, width)
    if point.size != sum(p.numel() for p in network.parameters()):
        raise InputError("the weights are not those of such a network")
    vector = torch.from_numpy(np.array(point, dtype=np.float32))
    vector_to_parameters(vector, network.parameters())
    return network.train()


@lru_cache(maxsize=1)
def _empty(num_features: int, num_classes: int, depth: int, width: int) -> nn.Module:
    """Return a network of this form, whose weights do not count."""
    base = np.full(num_classes, 1 / num_classes)
    return build_plain(plain_options((num_features,), base, (depth, width)), seed=0)
