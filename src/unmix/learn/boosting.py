"""Gradient boosting (LightGBM) on the SSC loss: the learner for tables.

The gradient is the closed form of `core.losses`, the Hessian the Fisher information, read off a
table. Because that Hessian is in units of information, not of rows, the same defaults suit sets
that say little and sets that say much. This file knows no labels, files or column names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

import lightgbm as lgb
import numpy as np
import torch

from unmix.core.losses import ssc_cross_entropy, ssc_cross_entropy_gradient
from unmix.core.transition import Transition
from unmix.data.sets import UnlabeledSets
from unmix.errors import InputError
from unmix.learn.fisher_table import FisherTable
from unmix.learn.refining import check_prior_errors, refine_priors

__all__ = ["BoostingFit", "BoostingOptions", "fit_boosting"]

Array = np.ndarray[Any, Any]
Progress = Callable[[int, int, str], None]

# Far below the information of any row that matters; it only keeps LightGBM from dividing by zero.
LEAST_HESSIAN = 1e-12


@dataclass(frozen=True)
class BoostingOptions:
    """How trees are grown. Sums of Hessians count information: a fair label is worth 1/4."""

    num_leaves: int = 7
    """Leaves of a tree; the set index is a noisy label, large trees learn the noise."""
    learning_rate: float = 0.1
    """Share of each tree that is added."""
    min_child_samples: int = 20
    """Least rows in a leaf."""
    min_sum_hessian_in_leaf: float = 5.0
    """Least information in a leaf, 5 being about 20 labels."""
    lambda_l2: float = 10.0
    """Information added to each leaf that says: change nothing."""
    bagging_fraction: float = 0.7
    """Share of the rows each tree sees."""
    feature_fraction: float = 1.0
    """Share of the columns each tree sees."""
    max_bin: int = 255
    """Steps a number is cut into."""
    patience: int = 50
    """Rounds without a better held-out loss before training stops."""

