"""Which of K classes are predicted? The gain over guessing of each class against the rest.

From the shares that were predicted for sets while these were hidden. This file fits nothing but the
scatter of the shares.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from unmix.core.share_density import baseline_residuals, log_density
from unmix.core.share_law import inside_shares, log_ratios
from unmix.learn.hidden_sets import Gain, HeldOutShares, gain_of

__all__ = ["class_gains"]

FloatArray = npt.NDArray[np.float64]


def class_gains(held_out: HeldOutShares) -> tuple[Gain, ...]:
    """Return the gain of each class (K,): its predicted share against its mean over training sets.

    Formula, with s_jk the predicted share, e_jk its standard error, g_jk the guess, and tau fitted
    to each line::

        mean over j of  log N(logit pi_jk; logit s_jk, tau^2 + v_jk + (e_jk / (s_jk (1 - s_jk)))^2)
                      - log N(logit pi_jk; logit g_jk, tau^2 + v_jk),   v = 1 / (n pi (1 - pi))

    A threshold allows for looking at K classes. Shares of 0 and 1 are moved in by half a row.

    Parameters
    ----------
    held_out : HeldOutShares
    """
    num_classes = held_out.stated.shape[1]
    found = []
    for k in range(num_classes):
        stated, rows = held_out.stated[:, k], held_out.rows
        model, tau = _density(stated, held_out.predicted[:, k], held_out.errors[:, k], rows)
        guess, _ = _density(stated, held_out.guessed[:, k], np.zeros(len(rows)), rows)
        found.append(gain_of(model - guess, tau, num_classes))
    return tuple(found)


def _density(
    stated: FloatArray, predicted: FloatArray, errors: FloatArray, rows: FloatArray
) -> tuple[FloatArray, float]:
    """Return the log density of stated shares about predicted ones, and their scatter tau."""
    inside = inside_shares(predicted, rows)
    found = baseline_residuals(stated, rows, log_ratios(inside))
    of_model = (errors / (inside * (1 - inside))) ** 2
    return log_density(found._replace(variances=found.variances + of_model[:, None]))
