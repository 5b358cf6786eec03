"""How large a network a table gets and how it is trained, by its rows and columns alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from unmix.learn.recipes import RECIPES, Recipe

__all__ = ["is_large", "recipe_for", "small_network"]

# Rows that a network sees in all its epochs, if there are so many: beyond it they are fewer.
ENOUGH_ROWS = 50_000_000
# From so many rows on a small network that learns fast does at least as well as the paper's, in a
# tenth of the time (docs/growth.md).
MANY_ROWS = 2_000_000
LEAST_WIDTH, MOST_WIDTH = 48, 304
LARGE_BATCH, LARGE_RATE = 4096, 6e-3


def is_large(rows: int, method: str) -> bool:
    """Say whether a table is one for the small network; by `proportion` it was not tried."""
    return rows >= MANY_ROWS and method == "ssc"


def small_network(columns: int) -> dict[str, Any]:
    """Return the options of the MLP for a large table of so many columns."""
    width = 16 * -(-2 * columns // 16)  # 16 floats are a cache line
    # Nobody learns millions of rows by heart, so that dropout would only hold it back.
    return {"width": int(np.clip(width, LEAST_WIDTH, MOST_WIDTH)), "depth": 2, "dropout": 0.0}


def recipe_for(rows: int, method: str, epochs: int, *, small: bool) -> Recipe:
    """Return how to train a network on a table.

    Parameters
    ----------
    rows : int
        To train on.
    method : 'ssc' or 'proportion'
    epochs : int
        At most.
    small : bool
        Whether it is the small network of a large table.
    """
    recipe = replace(RECIPES["fast"], epochs=min(epochs, max(1, round(ENOUGH_ROWS / rows))))
    if small:
        return replace(recipe, batch_size=LARGE_BATCH, learning_rate=LARGE_RATE)
    # Small tables need small batches to take enough steps, tables of millions take enough of them
    # anyway; proportion matching needs many rows of a set in a batch (see `methods.METHODS`).
    least = np.clip(rows // 64, 32, 256)
    batch_size = int(np.clip(rows // 4096, least, 1024)) if method == "ssc" else 1024
    return replace(recipe, batch_size=batch_size)
