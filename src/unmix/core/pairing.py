"""Which sets the MMC risks pair, and how much each pair counts (Scott and Zhang, 2020)."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["pair_sets", "pair_weights"]

Array = np.ndarray[Any, Any]


def pair_sets(set_priors: Array, set_sizes: Array) -> Array:
    """Pair sets so that the priors inside a pair differ as much as possible.

    Equal set sizes: the largest prior with the smallest, the second largest with the second
    smallest, and so on (their Proposition 9). Otherwise: maximum weight matching, whose cost
    grows with m^3. With an odd number of sets one set remains; it is paired once more with the
    set whose prior is farthest from its own, so no row is left out and every pair's risk stays
    unbiased.

    Parameters
    ----------
    set_priors : array, shape (m,)
    set_sizes : array, shape (m,)
        Numbers of rows or set weights: only their ratios matter.

    Returns
    -------
    array of integers, shape (ceil(m / 2), 2)
        Rows (first, second) with set_priors[first] >= set_priors[second].
    """
    priors, sizes = np.asarray(set_priors, float), np.asarray(set_sizes, float)
    num_sets = len(priors)
    if np.allclose(sizes, sizes[0], rtol=0.01):  # sizes of n/m may differ by rounding
        order = np.argsort(priors, kind="stable")
        half = num_sets // 2
        pairs = [*zip(order[::-1][:half].tolist(), order[:half].tolist(), strict=True)]
    else:
        pairs = _match(priors, sizes)
    left_over = set(range(num_sets)).difference(j for pair in pairs for j in pair)
    for j in left_over:
        pairs.append((j, int(np.abs(priors - priors[j]).argmax())))
    return np.array([(a, b) if priors[a] >= priors[b] else (b, a) for a, b in pairs])


def pair_weights(set_priors: Array, set_sizes: Array, pairs: Array) -> Array:
    """Return how much each pair counts, shape (number of pairs,), summing to one.

    Formula (their Theorem 5; n is the harmonic mean of the two set sizes)::

        omega proportional to n (pi_1 - pi_2)^2
    """
    first, second = np.asarray(pairs).T
    priors, sizes = np.asarray(set_priors, float), np.asarray(set_sizes, float)
    weights = _pair_value(priors[first], priors[second], sizes[first], sizes[second])
    return np.asarray(weights / weights.sum())


def _pair_value(prior_1: Array, prior_2: Array, size_1: Array, size_2: Array) -> Array:
    """Return n (pi_1 - pi_2)^2 with the harmonic mean of the sizes."""
    return np.asarray(2 / (1 / size_1 + 1 / size_2) * (prior_1 - prior_2) ** 2)


def _match(priors: Array, sizes: Array) -> list[tuple[int, int]]:
    """Return the maximum weight matching of all sets."""
    import networkx

    first, second = np.triu_indices(len(priors), k=1)
    value = _pair_value(priors[first], priors[second], sizes[first], sizes[second])
    graph = networkx.Graph()
    graph.add_weighted_edges_from(zip(first.tolist(), second.tolist(), value.tolist(), strict=True))
    return [*networkx.max_weight_matching(graph, maxcardinality=True)]
