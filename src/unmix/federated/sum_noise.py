"""Gaussian noise on the sums of gradients that a party tells, and what it buys.

The row of a table moves a sum of gradients by at most the length of the row: the derivative of the
loss by a logit is at most 1 (`unmix.core.losses`). Rows are cut to a length first, then noise is
added to each sum, so that nobody can tell from all of them together whether a row was in it, up to
epsilon and delta. It covers these sums alone: how many rows there are, their means and variances,
words and counts of scores are told as they are.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from unmix.errors import InputError
from unmix.federated.messages import RefusedError
from unmix.learn.sums import Question

__all__ = ["NEEDS", "SumNoise", "epsilon_of"]

FloatArray = npt.NDArray[np.float64]

DELTA = 1e-5
METHOD = "ssc"  # whose loss has a derivative by the logit of at most 1
FINEST = 1e-6  # digit of a sum that is told, in standard deviations of its noise
ANSWERS = 20  # sums of gradients that a fit with noise asks for
NEEDS = "noise hides rows in sums over rows: it goes with two classes and method ssc"


@dataclass(eq=False)
class SumNoise:
    """Noise of one party for one fit.

    Parameters
    ----------
    epsilon, delta : float
        That all answers together stay within, for one row more or less.
    norm : float
        Length of a standardised row with its bias, to which longer ones are cut.
    answers : int
        Sums of gradients that are told; then the party stops.
    rng : random.Random, optional
        Of the noise; that of the system if left out, which nobody can guess and subtract.

    Examples
    --------
    >>> noise = SumNoise(epsilon=3.0, norm=8.0, answers=40)
    >>> round(noise.sigma, 1), round(epsilon_of(noise.sigma / 8.0, 40, noise.delta), 6)
    (85.9, 3.0)
    """

    epsilon: float
    delta: float = DELTA
    norm: float = 8.0
    answers: int = ANSWERS
    rng: random.Random = field(default_factory=random.SystemRandom)
    told: int = 0

    def __post_init__(self) -> None:
        if not (0 < self.epsilon < np.inf and 0 < self.delta < 1 and self.norm > 0):
            raise InputError("epsilon and the length of rows must be above 0, delta in (0, 1)")
        if self.answers < 1:
            raise InputError("with noise at least one sum must be told")

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise in each number of a sum over rows.

        Formula (Bun and Steinke 2016: T answers of sensitivity C are T C^2 / (2 sigma^2) = rho
        zero-concentrated, and epsilon = rho + 2 sqrt(rho log(1 / delta)))::

            C sqrt(T / (2 rho)),   sqrt(rho) = sqrt(epsilon + log(1 / delta)) - sqrt(log(1 / delta))
        """
        log = np.log(1 / self.delta)
        rho = (np.sqrt(self.epsilon + log) - np.sqrt(log)) ** 2
        return float(self.norm * np.sqrt(self.answers / (2 * rho)))

    def clipped(self, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return rows (n, d) no longer than the norm, together with the 1 of the bias."""
        most = np.sqrt(max(self.norm**2 - 1, 0.0)) * (1 - 1e-7)  # floats of 32 bits round up
        lengths = np.sqrt((x.astype(np.float64) ** 2).sum(axis=1))
        scale = most / np.maximum(lengths, max(most, 1e-300))
        return np.asarray(x * scale[:, None], dtype=x.dtype)

    def added(self, found: FloatArray, question: Question, sets: Sequence[int]) -> FloatArray:
        """Return a sum of gradients over sets with noise.

        Its value, of which nothing bounds what a row adds, is 0. Numbers end where they are a
        millionth of the noise: what lies behind could tell what they were without it.
        """
        if question.about != "losses" or question.method != METHOD:
            raise RefusedError(NEEDS)
        if question.set_priors.num_classes != 2:
            raise RefusedError(NEEDS)
        if len(set(sets)) < len(sets):
            raise RefusedError(
                "with noise a set counts once in a sum: its rows would move it twice"
            )
        if self.told == self.answers:
            raise RefusedError(f"all {self.answers} sums that the noise was made for are told")
        self.told += 1
        size = self.sigma / question.num_rows
        noise = [self.rng.gauss(0.0, size) for _ in range(found.size)]
        noisy = np.rint((found + noise) / (FINEST * size)) * (FINEST * size)
        noisy[0] = 0.0
        return np.asarray(noisy)

    def to_json(self) -> dict[str, float]:
        """Return what the server may know of it."""
        return {"epsilon": self.epsilon, "delta": self.delta, "answers": self.answers}


def epsilon_of(multiplier: float, answers: int, delta: float) -> float:
    """Return the epsilon of several answers with noise of `multiplier` times their sensitivity."""
    rho = answers / (2 * multiplier**2)
    return float(rho + 2 * np.sqrt(rho * np.log(1 / delta)))
