"""Penalties: what a network is asked beside the risk of its sets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div, log_softmax, logsigmoid

__all__ = ["consistency_penalty", "vat_penalty"]


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

    All passes are without dropout, whose noise would drown the gradient, and normalise by the
    statistics of the batch, which are not recorded: by the running ones, the penalty would push
    weights about that batch norm does not hold in place.

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
    # Uniform, not normal: as random a direction at a third of the price.
    noise = torch.rand(x.shape, generator=generator, device=x.device, dtype=x.dtype) - 0.5
    with _quiet(model):
        with torch.no_grad():
            clean = model(x)
        step = (probe * radius * _unit(noise)).requires_grad_()
        (direction,) = torch.autograd.grad(_divergence(clean, model(x + step)), step)
        # A flat model has no worst direction; the random one is as good as any.
        flat = direction.flatten(1).norm(dim=1) == 0
        direction = torch.where(flat.view(-1, *[1] * (x.ndim - 1)), noise, direction)
        return _divergence(clean, model(x + radius * _unit(direction)))


def consistency_penalty(logits: Tensor, teacher: Tensor) -> Tensor:
    """Return how far predictions are from what a surer teacher says of the same rows.

    Formula, with q the teacher's class probabilities and eta those of the network::

        mean of w_i KL(q_i || eta_i),    w_i = (K max_k q_ik - 1) / (K - 1)

    The confidence w is 0 for a teacher who does not know and 1 for one who is certain.

    Parameters
    ----------
    logits : Tensor, shape (n,) or (n, K)
        Of the rows changed.
    teacher : Tensor, same shape
        Logits of the same rows as they are; no gradient is passed on to them.
    """
    if logits.shape != teacher.shape:
        raise ValueError(
            f"logits {tuple(logits.shape)} and those of the teacher {tuple(teacher.shape)} differ "
            "in shape"
        )
    q, eta = _log_probabilities(teacher.detach()), _log_probabilities(logits)
    classes = q.shape[-1]
    confidence = (classes * q.exp().amax(dim=-1) - 1) / (classes - 1)
    divergence = (q.exp() * (q - eta)).sum(dim=-1)
    return (confidence * divergence).mean()


@contextmanager
def _quiet(model: nn.Module) -> Iterator[None]:
    """Switch dropout off, and let batch norm use the batch but not remember it."""
    training = model.training
    model.eval()
    norms = [
        module
        for module in model.modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.track_running_stats
    ]
    for norm in norms:
        norm.training, norm.track_running_stats = True, False
    try:
        yield
    finally:
        model.train(training)
        for norm in norms:
            norm.track_running_stats = True


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
