"""How large a network a table gets and how it is trained, by its rows and columns alone."""

from __future__ import annotations

from dataclasses import replace
from operator import index
from typing import Any

import numpy as np

from unmix.data.batching import SETS_PER_BATCH
from unmix.data.sets import UnlabeledSets
from unmix.data.shuffled import ShuffledSets
from unmix.errors import InputError
from unmix.learn.methods import Method
from unmix.learn.models import Hidden
from unmix.learn.recipes import RECIPES, Recipe

__all__ = ["check_hidden", "hidden_for", "is_large", "recipe_for"]

# Rows that a network sees in all its epochs, if there are so many: beyond it they are fewer.
ENOUGH_ROWS = 50_000_000
# From so many rows on a small network that learns fast is about as good as the paper's, in a
# fraction of the time: docs/growth.md has both.
MANY_ROWS = 2_000_000
PAPER: Hidden = (3, 300)
WITH_HIDDEN = ("mlp",)  # models whose hidden layers can be chosen
EPOCHS = 30
# Of a set in a batch, at least and at most: a share needs some, and no more than so many.
ROWS_OF_A_SET = (32, 128)
LARGE_RATE, LARGE_BATCH, ENOUGH_STEPS = 6e-3, 8192, 6000


def is_large(rows: int) -> bool:
    """Say whether a table has so many rows that a network should learn fast, without dropout.

    Nobody learns millions of rows by heart, so that dropout would only hold it back.
    """
    return rows >= MANY_ROWS


def hidden_for(rows: int, columns: int) -> Hidden:
    """Return the hidden layers of the network for a table of so many rows and columns."""
    if not is_large(rows):
        return PAPER
    width = 16 * -(-2 * columns // 16)  # two for each column; 16 floats are a cache line
    return 2, int(np.clip(width, 48, 304))


def recipe_for(
    sets: UnlabeledSets | ShuffledSets, method: Method, epochs: int | None, *, fast: bool
) -> Recipe:
    """Return how to train a network on a table.

    Parameters
    ----------
    sets : UnlabeledSets or ShuffledSets
        The rows to train on; only their number and that of each set counts.
    method : Method
    epochs : int, optional
        At most; 30 if left out.
    fast : bool
        Whether it is our network on a large table, which can take a high rate.
    """
    rows = len(sets)
    epochs = min(epochs or EPOCHS, max(1, round(ENOUGH_ROWS / rows)))
    recipe = replace(RECIPES["fast"], epochs=epochs)
    if method.batch_by != "rows":
        # Whole sets if they are small: more rows of one set teach nothing, more steps do.
        sizes, known = sets.set_sizes, sets.set_priors.precision
        if known is not None and known.labels is not None and sizes[~known.labels].any():
            sizes = sizes[~known.labels]  # sets of one say nothing of what others are like
        whole = int(np.clip(np.median(sizes[sizes > 0]), *ROWS_OF_A_SET))
        return replace(recipe, batch_size=SETS_PER_BATCH * whole)
    # Small tables need small batches to take enough steps.
    least = int(np.clip(rows // 64, 32, 256))
    if fast:
        batch_size = int(np.clip(epochs * rows // ENOUGH_STEPS, least, LARGE_BATCH))
        return replace(recipe, batch_size=batch_size, learning_rate=LARGE_RATE)
    return replace(recipe, batch_size=int(np.clip(rows // 4096, least, 1024)))


def check_hidden(hidden: Any, model: Any) -> Hidden | None:
    """Return hidden layers as they may be, or say what is wrong with them."""
    if hidden is None:
        return None
    if model not in WITH_HIDDEN:
        name = repr(model) if isinstance(model, str) else f"a {type(model).__name__}"
        raise InputError(f"hidden is for model 'mlp'; the model is {name}")
    try:
        depth, width = (index(number) for number in hidden)
    except (TypeError, ValueError):
        depth = width = 0
    if not (1 <= depth <= 20 and 1 <= width <= 10_000):
        raise InputError(
            f"hidden must be (layers, units), at most (20, 10000), such as (2, 64); got {hidden!r}"
        )
    return depth, width
