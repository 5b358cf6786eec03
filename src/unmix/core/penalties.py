"""Penalties: a scalar that needs the model itself, not only its logits."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div, log_softmax, logsigmoid

__all__ = ["vat_penalty"]


def vat_penalty(
    model: nn.Module,
    x: Tensor,
    *,
    radius: float,
    generator: torch.Generator | None = None,
    probe: float = 1e-3,
) -> Tensor:
    """Return how much the worst small perturbation changes the prediction (virtual adversary).

    Formula (Miyato et al., 2018, one power iteration)::

        mean KL(p(x) || p(x + r)),  r = radius * g / |g|,  g = gradient of that KL at a random r

    The direction is found in evaluation mode, since dropout noise would drown its gradient, and
    the statistics of batch norm are left alone by all of these passes.

    Parameters
    ----------
    model : module returning logits, (n,) or (n, K)
    x : Tensor, shape (n, ...)
    radius : float
        Euclidean norm of the perturbation of each row, in units of x.
    generator : torch.Generator, optional
        Source of the random direction.
    probe : float
        Length of the random step, as a share of the radius.
    """
    training = model.training
    model.eval()
    clean = model(x).detach()
    noise = torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
    step = (probe * radius * _unit(noise)).requires_grad_()
    (direction,) = torch.autograd.grad(_divergence(clean, model(x + step)), step)
    # A flat model has no worst direction; the random one is as good as any.
    flat = direction.flatten(1).norm(dim=1) == 0
    direction = torch.where(flat.view(-1, *[1] * (x.ndim - 1)), noise, direction)
    penalty = _divergence(clean, model(x + radius * _unit(direction)))
    model.train(training)
    return penalty


def _unit(x: Tensor) -> Tensor:
    """Scale each row to norm one."""
    norm: Tensor = x.flatten(1).norm(dim=1).clamp_min(1e-30)
    return x / norm.view(-1, *[1] * (x.ndim - 1))


def _divergence(clean: Tensor, other: Tensor) -> Tensor:
    """Return the mean KL divergence between two predictions given as logits."""
    clean, other = _log_probabilities(clean), _log_probabilities(other)
    return kl_div(other, clean, log_target=True, reduction="batchmean")


def _log_probabilities(logits: Tensor) -> Tensor:
    """Return log p of every class, (n, K)."""
    if logits.ndim == 1:
        return torch.stack((logsigmoid(-logits), logsigmoid(logits)), dim=-1)
    return log_softmax(logits, dim=-1)
