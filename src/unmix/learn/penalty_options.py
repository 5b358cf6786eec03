"""What a method may add to its risk: options of the penalties of `core.penalties`, as data.

Each has a strength, and may name candidates for it, of which `chosen_strength` picks one without
labels. Nothing here runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

__all__ = ["Consistency", "Penalty", "Vat"]


@dataclass(frozen=True)
class Penalty:
    """What all penalties have."""

    weight: float
    ramp: float = 0.0
    """Share of the training over which the weight grows from 0."""
    candidates: tuple[float, ...] = ()
    """Strengths to choose from without labels; 0 is no penalty."""
    compared: float = 0.5
    """Share of the training after which they are compared; the best one goes on alone."""

    knob: ClassVar[str] = "weight"
    """The field that says how strong it is."""
    moves_rows: ClassVar[bool] = False
    """Whether it takes the place of random shifts."""

    @property
    def strength(self) -> float:
        """How strong it is; 0 is no penalty."""
        return float(getattr(self, self.knob))

    def at(self, strength: float) -> Self:
        """Return the penalty with another strength."""
        changed: dict[str, Any] = {self.knob: strength}
        return replace(self, **changed)

    def weight_at(self, done: float) -> float:
        """Return the weight when a share of the training is done."""
        return self.weight * (min(1.0, done / self.ramp) if self.ramp else 1.0)


@dataclass(frozen=True)
class Vat(Penalty):
    """A virtual adversary (`core.penalties.vat_penalty`)."""

    radius: float = 1.0
    """In standard deviations of the input, since its authors standardise theirs."""

    knob: ClassVar[str] = "radius"
    # Both together did worse than the adversary alone (docs/results.md).
    moves_rows: ClassVar[bool] = True


@dataclass(frozen=True)
class Consistency(Penalty):
    """The averaged weights say what a row is, and the network shall say so of the row changed.

    `core.penalties.consistency_penalty`, on views by `augment.Changes`, which the risk sees too.
    """

    moves_rows: ClassVar[bool] = True
