"""Layers of the MLP padded to whole cache lines, by units that are 0 and stay 0.

300 units are not a multiple of the 16 floats that a processor reads at once; a step with 304 takes
less time although it computes more (docs/growth.md). A unit whose weights, gain and bias are 0 is
0 for every row, passes on no gradient and gets none, so the network is the same.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from unmix.learn.networks import MLP

__all__ = ["padded", "unpad"]

LINE = 16
# Layers that would grow by a larger share have more to compute than to win.
MOST = 0.05


def padded(model: nn.Module) -> nn.Module:
    """Return an MLP like this one that is faster to train; other models as they are."""
    # What a subclass does is not known here.
    if not isinstance(model, MLP) or type(model) is not MLP:
        return model
    width = -(-model.width // LINE) * LINE
    if not 0 < width - model.width <= MOST * model.width:
        return model
    with torch.random.fork_rng(devices=[]):  # its first weights are not used
        wide = MLP(
            model.num_features,
            model.num_outputs,
            width=width,
            depth=model.depth,
            dropout=model.dropout,
        )
    for layer, first in zip(wide.body, model.body, strict=True):
        if isinstance(layer, nn.BatchNorm1d) and isinstance(first, nn.BatchNorm1d):
            layer.momentum, layer.eps = first.momentum, first.eps
    wide.to(next(model.parameters()).device)
    with torch.no_grad():
        for mine, theirs in _pairs(wide, model):
            mine.zero_()
            _corner(mine, theirs).copy_(theirs)
    for mine, theirs in zip(wide.parameters(), model.parameters(), strict=True):
        mine.requires_grad_(theirs.requires_grad)
    return wide


@torch.no_grad()
def unpad(wide: nn.Module, model: nn.Module) -> nn.Module:
    """Return a model of the first width with the weights of a padded one; others as they are."""
    if not isinstance(wide, MLP) or wide.width == model.width:
        return wide
    narrow = copy.deepcopy(model)
    for theirs, mine in _pairs(wide, narrow):
        mine.copy_(_corner(theirs, mine))
    return narrow


def _pairs(wide: nn.Module, model: nn.Module) -> zip[tuple[Tensor, Tensor]]:
    """Return the tensors of both models that belong together."""
    return zip(wide.state_dict().values(), model.state_dict().values(), strict=True)


def _corner(wide: Tensor, narrow: Tensor) -> Tensor:
    """Return the part of a padded tensor that is not padding."""
    return wide[tuple(slice(length) for length in narrow.shape)]
