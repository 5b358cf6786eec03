"""How far rows of one set are told apart by a model of whole sets, as far as features can say.

What `unmix.core.stand_ins` finds for the rows of training goes to the learner: for rows of known
sets, and for those whose set nobody names.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from unmix.core.stand_ins import lone_row_move, stand_ins
from unmix.data.sets import UnlabeledSets, held_out_rows
from unmix.learn.encoding import TableEncoder
from unmix.learn.methods import method_named
from unmix.learn.models import Learner, model_row
from unmix.learn.training_rows import TrainingRows

__all__ = ["with_slopes_inside"]

MOST_NUMBERS = 4_000_000  # rows x features to look at


def with_slopes_inside(rows: TrainingRows, learner: Learner) -> Learner:
    """Return the learner with slopes inside sets as features among each other have them.

    As it is where nothing can be said: images, several groupings, labels that training knows, and
    methods whose assumption makes slopes inside sets those that were learned.

    Parameters
    ----------
    rows : TrainingRows
        Of sets that were seen to have effects of their own.
    learner : Learner
        Fitted to them.
    """
    by_class = method_named(learner.setup.method).assumption.set_posterior
    if by_class or rows.num_labels or not isinstance(rows.encoder, TableEncoder):
        return learner
    table = rows.in_memory(model_row("linear"))
    if table.set_index.ndim == 2:
        return learner
    some = _some_rows(table, learner.setup.seed)
    rng = np.random.default_rng([learner.setup.seed, 8])
    columns = rows.encoder.column_of_feature
    index, num_sets = table.set_index[some], table.num_sets
    inside = stand_ins(table.x[some], index, num_sets, columns, rng)
    if not inside.columns:
        return learner
    logits = learner.logits(rows.in_memory(model_row(learner.setup.model)).x[some])
    lone = lone_row_move(logits, index, num_sets, inside.slope, learner.tau)
    return replace(learner, inside=inside, lone=lone)


def _some_rows(table: UnlabeledSets, seed: int) -> Any:
    """Return which rows to look at: all, or a share of each set where there are many."""
    most = MOST_NUMBERS / max(table.row_shape[0], 1)
    if len(table) <= most:
        return slice(None)
    rng = np.random.default_rng([seed, 9])
    return held_out_rows(table.set_index, most / len(table), rng)
