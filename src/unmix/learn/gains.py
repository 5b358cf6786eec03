"""The gain of a candidate: how much better it predicts held-out sets than guessing does.

One scale for everything that is chosen, and for whether anything was learned at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, stdtrit

from unmix.core.within_sets import explained_share

__all__ = ["Gain", "gain_of", "z_of"]

Array = np.ndarray[Any, Any]

# Thresholds of z; with ten sets chance passes two less than once in 1,600 times, if gains of sets
# are about normal.
CLEAR = 2.0


@dataclass(frozen=True)
class Gain:
    """How much better a candidate predicts the shares of held-out sets than the baseline does."""

    gain: float
    """Mean over sets of log density of the stated share, minus that of the baseline."""
    error: float
    """Its standard error over sets."""
    threshold: float
    """Of z, below which a gain is not shown: a t quantile that allows for the choosing."""
    tau: float
    """Standard deviation of what is left of the log-odds of the shares: the set effect."""

    @property
    def z(self) -> float:
        """The gain in standard errors."""
        return self.gain / self.error if self.error > 0 else 0.0

    @property
    def shown(self) -> bool:
        """Whether the candidate predicts held-out sets better than chance would."""
        return self.z >= self.threshold

    @property
    def word(self) -> str:
        """What the gain amounts to: not shown, weak, or clear from twice the threshold on."""
        if not self.shown:
            return "not shown"
        return "clear" if self.z >= CLEAR * self.threshold else "weak"

    def explained(self, num_classes: int) -> float:
        """Return the share of the differences between sets that features were shown to explain."""
        return explained_share(self.gain, self.error, self.threshold, num_classes)


def gain_of(differences: Array, tau: float, num_candidates: int) -> Gain:
    """Return the mean of differences over sets with its error, and when it counts as shown."""
    m, error = np.isfinite(differences).sum(), _error(differences)
    # As likely by chance as two standard errors of a normal law, and shared by all that compete.
    threshold = -float(stdtrit(max(m - 1, 1), ndtr(-2.0) / num_candidates))
    return Gain(float(np.nanmean(differences)), error, threshold, float(tau))


def z_of(differences: Array) -> float:
    """Return the mean of differences over sets in standard errors."""
    error = _error(differences)
    return float(np.nanmean(differences)) / error if error > 0 else 0.0


def _error(differences: Array) -> float:
    """Return the standard error of the mean of differences over sets."""
    m = np.isfinite(differences).sum()
    return float(np.nanstd(differences, ddof=1) / np.sqrt(m)) if m > 1 else np.inf
