"""Random changes of a batch that leave the class alone.

`Augment` moves images a little, for training as such. `Changes` is for a network that has to give
the same answer nevertheless, and goes as far as the class allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from unmix.errors import InputError

__all__ = ["Augment", "Changes"]

# By how much an image is changed at most: moved, and a square patch cut out, as shares of its
# height and width; its contrast and its brightness, as shares of what they are.
MOVED, PATCH = 1 / 14, 1 / 4
CONTRAST, BRIGHTNESS = 0.4, 0.4
# Grey images are drawings, whose strokes are a class's at every angle and width that a hand gives
# them. At most: turned by so many radians, scaled and sheared by so much, moved by a share of their
# width. And bent: at knots in rows and columns, by a share of their width as standard deviation.
TURNED, SCALED, SHEARED, STEP = math.radians(10), 0.1, 0.1, 1 / 28
KNOTS, BENT = 5, 1 / 28
# Share of a table's cells that come from another row.
EXCHANGED = 0.2


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


@dataclass(frozen=True)
class Changes:
    """Strong changes of a batch.

    Images without colour are turned, scaled, sheared, moved and bent a little, and mirrored if that
    is allowed. Images in colour are moved, mirrored if that is allowed, made brighter or darker,
    given more or less contrast, and a square patch is cut out of each. In rows of a table some
    cells are those of another row, so that every column keeps its distribution.
    """

    flip: bool = False
    """Whether left and right of an image may be exchanged."""

    def __call__(self, x: Tensor) -> Tensor:
        """Return rows (n, d) or images (n, ..., height, width) of floats, each changed at random.

        Draws from torch's own stream.
        """
        if x.ndim < 3:
            return _exchange_cells(x)
        if x.ndim == 3:
            return _warp(x, self.flip)
        shift = max(1, round(MOVED * min(x.shape[-2:])))
        mover = Augment(shift, self.flip)
        return _cut_patches(_relight(mover(mover.pad(x))))


def _warp(x: Tensor, flip: bool) -> Tensor:
    """Return images (n, height, width), each seen through a random map of the plane near 1."""
    n, height, width = x.shape
    turn, shear, *steps = torch.rand(4, n, device=x.device) * 2 - 1
    across, down = 1 + SCALED * (torch.rand(2, n, device=x.device) * 2 - 1)
    if flip:
        across = torch.where(torch.rand(n, device=x.device) < 0.5, -across, across)
    cos, sin, shear = (TURNED * turn).cos(), (TURNED * turn).sin(), SHEARED * shear
    moved = [2 * STEP * step for step in steps]  # images reach from -1 to 1
    rows = (cos * across, (shear - sin) * down, moved[0], sin * across, cos * down, moved[1])
    bends = 2 * BENT * torch.randn(n, 2, KNOTS**2, device=x.device)
    linear = torch.stack(rows, dim=1).view(n, 2, 3)
    # One product for all of it: half of the time of affine_grid.
    places = torch.cat((linear, bends), dim=2) @ _of_places(height, width).to(x.device)
    grid = places.view(n, 2, height, width).permute(0, 2, 3, 1)
    seen = grid_sample(x.unsqueeze(1), grid, padding_mode="reflection", align_corners=False)
    return seen.squeeze(1)


@lru_cache(maxsize=4)
def _of_places(height: int, width: int) -> Tensor:
    """Return what each pixel's place is made of, (3 + KNOTS^2, pixels): x, y, 1 and the bends."""
    y, x = (torch.arange(1.0, 2 * size, 2) / size - 1 for size in (height, width))
    smooth = []
    for size in (height, width):
        apart = torch.linspace(0, KNOTS - 1, size)[:, None] - torch.arange(KNOTS)
        smooth.append((-(apart**2)).softmax(dim=1))  # (size, KNOTS)
    bends = torch.einsum("ya,xb->abyx", *smooth).reshape(KNOTS**2, -1)
    plane = torch.stack((x.repeat(height), y.repeat_interleave(width), torch.ones(len(bends[0]))))
    return torch.cat((plane, bends))


def _relight(x: Tensor) -> Tensor:
    """Return images with another contrast and brightness each."""
    shape = (len(x), *[1] * (x.ndim - 1))
    contrast, brightness = torch.rand(2, len(x), device=x.device) * 2 - 1
    middle = x.mean(dim=tuple(range(1, x.ndim)), keepdim=True)
    gain = (1 + CONTRAST * contrast).view(shape)
    changed: Tensor = middle * (1 + BRIGHTNESS * brightness.view(shape)) + gain * (x - middle)
    return changed


def _cut_patches(x: Tensor) -> Tensor:
    """Return images with a square each that holds nothing but the image's mean."""
    n, (height, width) = len(x), x.shape[-2:]
    size = PATCH * min(height, width)
    places = torch.rand(2, n, 1, device=x.device)
    inside = [
        (torch.arange(length, device=x.device) - place * length).abs() < size / 2
        for length, place in zip((height, width), places, strict=True)
    ]
    patch = inside[0].unsqueeze(2) & inside[1].unsqueeze(1)  # (n, height, width)
    if x.ndim == 4:
        patch = patch.unsqueeze(1)
    return torch.where(patch, x.mean(dim=tuple(range(1, x.ndim)), keepdim=True), x)


def _exchange_cells(x: Tensor) -> Tensor:
    """Return rows some of whose cells are those of another row."""
    other = x[torch.randperm(len(x))]
    return torch.where(torch.rand(x.shape, device=x.device) < EXCHANGED, other, x)


def _mirrored(size: int, margin: int) -> Tensor:
    """Return indices 0..size-1 with a margin on both sides that runs back: 2 1 0 1 2 ..."""
    index = torch.arange(-margin, size + margin).abs()
    return torch.where(index < size, index, 2 * (size - 1) - index)
