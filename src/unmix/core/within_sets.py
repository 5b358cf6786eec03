"""How far may rows of one set be told apart, when only differences between sets were shown?

The slopes of a model under set effects are learned from differences between sets, and are those
inside a set only by assumption: whatever else differs between sets along with the features is
taken for an effect of the features (the ecological fallacy). No score without labels can see it.
What can be said: if the slope inside sets is l times the learned one, a model that takes it to be
t times the learned one gains, in squared error and relative to what l = t = 1 would gain,

    l^2 - (l - t)^2 = t (2 l - t)                 above 0 for every l > t / 2

so that a cautious t forgives much and costs little. If what the features do not explain is as
much in line with them as what they do explain is with it (selection on unobserved causes in
proportion to that on observed ones), t should be the share of the differences between sets that
the features explain; `explained_share` takes what held-out sets have *shown* of it.

This file knows no model and no methods. `tests/reference_counts.py` holds the literal form.
"""

import math

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from unmix.core.class_shares import LEAST_SHARE
from unmix.core.joint_offsets import add_joint_offsets
from unmix.core.set_effects import mean_offsets
from unmix.core.sums_by_set import log_sums, row_copies, set_sums

__all__ = ["explained_share", "tempered_logits"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def explained_share(gain: float, error: float, threshold: float, num_classes: int = 2) -> float:
    """Return the share of the differences between sets that features were shown to explain.

    Formula::

        1 - exp(-2 max(gain - threshold error, 0) / (K - 1))

    If offsets of sets vary by tau_0^2 without features and by tau^2 with them, the gain in log
    density is log(tau_0 / tau), and this is 1 - tau^2 / tau_0^2, at the end of the interval of the
    gain that is the more cautious. It is 0 up to where a gain counts as shown.

    Parameters
    ----------
    gain : float
        Mean gain in log density of the shares of held-out sets over those of guessing.
    error : float
        Its standard error.
    threshold : float
        Standard errors from which a gain counts as shown.
    num_classes : int

    Examples
    --------
    >>> round(explained_share(0.5, 0.1, 2.5), 3)
    0.393
    >>> explained_share(0.5, 0.3, 2.5)
    0.0
    """
    shown = max(gain - threshold * error, 0.0) if math.isfinite(error) else 0.0
    return -math.expm1(-2 * shown / (num_classes - 1))


def tempered_logits(
    logits: npt.ArrayLike, set_index: npt.ArrayLike, num_sets: int, trust: float
) -> FloatArray:
    """Return logits that differ inside each set only `trust` times as much, at the same means.

    Formula (c_j such that the mean probability in set j stays what it is)::

        trust z_i + c_j

    Parameters
    ----------
    logits : (n,) or (n, K)
    set_index : (n,), or (n, G) for several groupings: then the means of all sets stay
    num_sets : int
    trust : float
        1: as they are; 0: all rows of a set alike.

    Returns
    -------
    of the shape of `logits`
    """
    z, index = np.asarray(logits, np.float64), np.asarray(set_index, np.int64)
    if trust == 1.0:
        return z
    q = expit(z) if z.ndim == 1 else log_sums(z)[1]
    copies, own_set = row_copies(index)
    rows = np.maximum(np.bincount(own_set, minlength=num_sets), 1)
    sums = set_sums(q[copies], own_set, num_sets)
    means = np.clip(sums / (rows if z.ndim == 1 else rows[:, None]), LEAST_SHARE, 1 - LEAST_SHARE)
    flat = trust * z
    if index.ndim == 2:
        return add_joint_offsets(
            flat, index, lambda z, own, sets, _: mean_offsets(z, own, means[sets])
        )
    return np.asarray(flat + mean_offsets(flat, index, means)[index])
