"""Choosing how strong the VAT penalty should be, without labels and inside one training run.

All candidates share the first epochs, in which the penalty is weak anyway. Then each goes on for
a few epochs by itself, and the one with the least held-out set log-loss goes on to the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from unmix.data.sets import UnlabeledSets
from unmix.errors import InputError
from unmix.learn.checkpoint import Checkpoint
from unmix.learn.methods import Method
from unmix.learn.recipes import Recipe
from unmix.learn.training import Progress, Trained, train

__all__ = ["Choice", "train_choosing_radius"]

# Shares of the epochs after which the candidates part, and after which they are compared.
PART, COMPARE = 0.2, 0.5


@dataclass(frozen=True)
class Choice:
    """A radius and what it was compared with."""

    radius: float
    candidates: list[dict[str, float]]
    """For each radius the last row of its history when they were compared."""


def train_choosing_radius(
    model: nn.Module,
    sets: UnlabeledSets,
    method: Method,
    recipe: Recipe,
    radii: Sequence[float],
    *,
    held_out: UnlabeledSets,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> tuple[Trained, Choice]:
    """Train with the VAT radius that suits the data.

    Parameters
    ----------
    model, sets, method, recipe, checkpoint, progress
        As for `train`; the method has a VAT penalty.
    radii : sequence of float
        Candidates, in standard deviations of the input; 0 is no penalty.
    held_out : UnlabeledSets
        Rows of the same sets that appear in no set that is trained on: they decide.
    **options
        Passed to `train`.
    """
    if method.vat is None or not radii:
        raise InputError(f"{method.name} has no VAT penalty whose radius could be chosen")
    part, compare = (max(1, round(share * recipe.epochs)) for share in (PART, COMPARE))
    ends = [part, *[compare - part] * len(radii), recipe.epochs - compare]
    before = [sum(ends[:i]) for i in range(len(ends))]

    def stage(number: int, name: str, radius: float, **more: Any) -> Trained:
        vat = replace(method.vat, radius=radius) if method.vat else None

        def tell(done: int, total: int, text: str) -> None:
            if progress:
                epochs = before[number] + done / total * recipe.epochs - first
                progress(round(1000 * epochs), 1000 * sum(ends), f"{name}, {text}")

        first = 0 if number == 0 else compare if number == len(ends) - 1 else part
        return train(
            model,
            sets,
            replace(method, vat=vat),
            recipe,
            held_out=held_out,
            checkpoint=checkpoint.part(name) if checkpoint else None,
            progress=tell,
            **options,
            **more,
        )

    shared = stage(0, "start", 0.0, stop=part).state
    branches = [
        stage(i, f"radius {radius:g}", radius, start=shared, stop=compare)
        for i, radius in enumerate(radii, 1)
    ]
    rows = [branch.history[-1] for branch in branches]
    best = min(range(len(radii)), key=lambda i: rows[i]["held_out_loss"])
    trained = stage(
        len(ends) - 1, f"chosen {radii[best]:g}", radii[best], start=branches[best].state
    )
    candidates = [{"radius": radius} | row for radius, row in zip(radii, rows, strict=True)]
    return trained, Choice(radii[best], candidates)
