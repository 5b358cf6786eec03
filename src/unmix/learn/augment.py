"""Random shifts and mirror images of a batch: they change the picture, not its class."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unmix.errors import InputError

__all__ = ["Augment"]


@dataclass(frozen=True)
class Augment:
    """What may be done to an image without changing its class."""

    shift: int = 0
    """Pixels to move it by at most, up or down and left or right; edges are mirrored."""
    flip: bool = False
    """Whether left and right may be exchanged."""

    def pad(self, x: Tensor) -> Tensor:
        """Return images (n, ..., height, width) with a mirrored margin, done once for all."""
        if x.ndim not in (3, 4):
            raise InputError(f"only images can be shifted; rows have shape {tuple(x.shape[1:])}")
        for axis in (-2, -1):
            x = x.index_select(axis, _mirrored(x.shape[axis], self.shift)) if self.shift else x
        return x

    def __call__(self, padded: Tensor) -> Tensor:
        """Return a batch of padded images at their old size, each moved at random.

        Pieces of the batch share a shift, since copying a piece is several times faster than
        copying single images; rows come in random order, so the shift of each is still random.
        """
        n, places = len(padded), 2 * self.shift + 1
        height, width = padded.shape[-2] - places + 1, padded.shape[-1] - places + 1
        shifts = torch.randint(0, places**2, (n,)).bincount(minlength=places**2).tolist()
        x = padded.new_empty(*padded.shape[:-2], height, width)
        start = 0
        for place, count in enumerate(shifts):
            piece = slice(start, start + count)
            down, right = divmod(place, places)
            x[piece] = padded[piece, ..., down : down + height, right : right + width]
            start += count
        if self.flip:
            mirror = torch.rand(n) < 0.5
            x = torch.where(mirror.view(-1, *[1] * (x.ndim - 1)), x.flip(-1), x)
        return x


def _mirrored(size: int, margin: int) -> Tensor:
    """Return indices 0..size-1 with a margin on both sides that runs back: 2 1 0 1 2 ..."""
    index = torch.arange(-margin, size + margin).abs()
    return torch.where(index < size, index, 2 * (size - 1) - index)
