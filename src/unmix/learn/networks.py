"""Networks: modules that map rows to logits, (n,) for two classes or (n, K).

The output starts at the target prior, so that training does not begin by unlearning a wrong
base rate. Initialisation draws from its own random stream.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from unmix.errors import InputError

__all__ = [
    "CONVOLUTIONAL",
    "MLP",
    "NETWORKS",
    "Dropout",
    "Linear",
    "ResNet32",
    "build_model",
    "kept_units",
    "squeeze",
]


class Linear(nn.Module):
    """One affine map."""

    def __init__(self, num_features: int, num_outputs: int = 1) -> None:
        super().__init__()
        self.head = nn.Linear(num_features, num_outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, (n,) or (n, K), of rows of any shape (n, ...)."""
        return squeeze(self.head(x.flatten(1)))


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


class Dropout(nn.Module):
    """Dropout with cheaper random numbers than torch's own."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        """Return x with some entries set to 0 and the others scaled up, if training."""
        if not self.training or not self.probability:
            return x
        return x * (kept_units(x.shape, self.probability, x) / (1 - self.probability))


class MLP(nn.Module):
    """The paper's perceptron d-300-300-300-1: batch norm, ReLU, dropout 0.2 (Appendix B).

    Parameters
    ----------
    num_features, num_outputs : int
    width, depth : int
        Units in a hidden layer, and number of hidden layers. The text of the paper has 3; the
        authors' demonstration program has 4.
    dropout : float
        Between hidden layers.
    norm : bool
        Whether there is batch norm. It goes where every batch is a sample of all sets: what one set
        has in common, which is all that there is to learn, it would take away.
    """

    def __init__(
        self,
        num_features: int,
        num_outputs: int = 1,
        *,
        width: int = 300,
        depth: int = 3,
        dropout: float = 0.2,
        norm: bool = True,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i in range(depth):
            if i:
                layers.append(Dropout(dropout))
            # Batch norm has a bias of its own.
            layers.append(nn.Linear(width if i else num_features, width, bias=not norm))
            layers += [nn.BatchNorm1d(width)] if norm else []
            layers.append(nn.ReLU(inplace=True))
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, num_outputs)
        self.num_features, self.num_outputs = num_features, num_outputs
        self.width, self.depth, self.dropout, self.norm = width, depth, dropout, norm

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, (n,) or (n, K), of rows of any shape (n, ...)."""
        return squeeze(self.head(self.body(x.flatten(1))))


class Block(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return features, (n, channels, height / stride, width / stride)."""
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet32(nn.Module):
    """The paper's 32-layer residual network: stages of five blocks with 16, 32, 64 channels."""

    def __init__(self, num_channels: int = 3, num_outputs: int = 1) -> None:
        super().__init__()
        widths = (16, 32, 64)
        self.stem = nn.Sequential(
            nn.Conv2d(num_channels, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
        )
        blocks: list[nn.Module] = []
        channels = 16
        for stage, width in enumerate(widths):
            for i in range(5):
                blocks.append(Block(channels, width, stride=2 if stage and i == 0 else 1))
                channels = width
        self.body = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, num_outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, (n,) or (n, K), of images (n, channels, height, width)."""
        return squeeze(self.head(self.body(self.stem(x)).mean(dim=(2, 3))))


NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "linear": lambda shape, outputs, **options: Linear(math.prod(shape), outputs, **options),
    "mlp": lambda shape, outputs, **options: MLP(math.prod(shape), outputs, **options),
    "resnet32": lambda shape, outputs, **options: ResNet32(_channels(shape), outputs, **options),
}


# Networks of convolutions, which recipes treat by themselves.
CONVOLUTIONAL = ("resnet32",)


def build_model(
    name: str,
    row_shape: Sequence[int],
    target_prior: Any,
    *,
    seed: int,
    **options: Any,
) -> nn.Module:
    """Build a model by name, its output started at the target prior.

    Parameters
    ----------
    name : 'linear', 'mlp' or 'resnet32'
    row_shape : sequence of int
        Shape of one row.
    target_prior : float or array, shape (K,)
    seed : int
        Decides the initial weights and nothing else.
    **options
        Passed to the model: for the MLP `width`, `depth`, `dropout`, `norm`.
    """
    if name not in NETWORKS:
        raise InputError(f"model must be one of {', '.join(NETWORKS)}; got {name!r}")
    target = np.atleast_1d(np.asarray(target_prior, float))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(np.random.SeedSequence([seed, 0]).generate_state(1)[0]))
        model = NETWORKS[name](tuple(row_shape), len(target), **options)
    bias = np.log(target / (1 - target)) if len(target) == 1 else np.log(target)
    with torch.no_grad():
        model.head.bias.copy_(torch.from_numpy(bias))  # type: ignore[operator,union-attr]
    return model


def squeeze(logits: Tensor) -> Tensor:
    """Return (n,) for a single output."""
    return logits.squeeze(-1) if logits.shape[-1] == 1 else logits


def _channels(shape: tuple[int, ...]) -> int:
    """Return the channels of an image, or say that rows are no images."""
    if len(shape) != 3:
        raise InputError(
            f"resnet32 takes images of shape (channels, height, width); rows have shape {shape}. "
            "Use mlp, or give grey images a channel: x[:, None]"
        )
    return shape[0]
