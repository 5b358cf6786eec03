"""Drawing sets from labeled data, as in Appendix B of the paper.

Priors, sizes, noise and rows have a random stream each, so that changing one does not change the
others. Labels are read here and go no further: what leaves is `UnlabeledSets`.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from unmix.data.sets import UnlabeledSets
from unmix.errors import InputError

__all__ = ["SetSizes", "draw_priors", "draw_sets", "draw_sizes", "labeled_sets", "perturb_priors"]

Array = np.ndarray[Any, Any]
SetSizes = Literal["uniform", "shrunk", "random"]


def draw_sets(
    x: Array,
    labels: Array,
    *,
    num_sets: int,
    target_prior: float,
    seed: int,
    sizes: SetSizes = "uniform",
    tau: float = 1.0,
    prior_noise: float = 0.0,
    min_spread: float = 0.0,
    num_rows: int | None = None,
) -> UnlabeledSets:
    """Draw unlabeled sets from a labeled pool.

    Parameters
    ----------
    x : array, shape (n, ...)
    labels : array of bool, shape (n,)
    num_sets : int
    target_prior : float
    seed : int
        Decides priors, sizes, noise and rows, each by its own stream.
    sizes : 'uniform', 'shrunk' or 'random'
        See `draw_sizes`; `tau` goes with 'shrunk'.
    prior_noise : float
        epsilon: the stated priors are the true ones moved by +-epsilon; rows follow the true ones.
    min_spread : float
        Draw the priors again until the largest and the smallest differ by this much.
    num_rows : int, optional
        Rows in all sets together; as many as the pool has if left out.

    Examples
    --------
    >>> rows = np.arange(200.0)[:, None]
    >>> labels = np.arange(200) % 2 == 0
    >>> sets = draw_sets(rows, labels, num_sets=4, target_prior=0.5, seed=0)
    >>> sets.set_sizes, sets.set_priors.as_given.round(2)
    (array([50, 50, 50, 50]), array([0.85, 0.35, 0.68, 0.2 ]))
    """
    if num_sets < 2:
        raise InputError(f"at least 2 sets are needed; got {num_sets}")
    of_priors, of_sizes, of_noise, of_rows = (
        np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(4)
    )
    total = len(x) if num_rows is None else num_rows
    priors = draw_priors(num_sets, of_priors, min_spread=min_spread)
    counts = draw_sizes(num_sets, total, of_sizes, kind=sizes, tau=tau)
    source, set_index, replaced = _draw_rows(np.asarray(labels, bool), priors, counts, of_rows)
    return UnlabeledSets(
        x=x[source],
        set_index=set_index,
        set_priors=perturb_priors(priors, prior_noise, of_noise),
        target_prior=target_prior,
        set_ids=tuple(range(num_sets)),
        source=source,
        with_replacement=replaced,
    )


def labeled_sets(x: Array, labels: Array, *, target_prior: float) -> UnlabeledSets:
    """Return labeled rows as two sets with priors 0 and 1: supervised learning in one formula."""
    return UnlabeledSets(
        x=x,
        set_index=np.asarray(labels, np.int64),
        set_priors=np.array([0.0, 1.0]),
        target_prior=target_prior,
        set_ids=(0, 1),
        source=np.arange(len(x)),
    )


def draw_priors(num_sets: int, rng: np.random.Generator, *, min_spread: float = 0.0) -> Array:
    """Draw set priors uniformly from [0.1, 0.9], not all equal, shape (m,)."""
    if not 0 <= min_spread < 0.8:
        raise InputError(f"min_spread must lie in [0, 0.8); got {min_spread}")
    while True:
        priors = rng.uniform(0.1, 0.9, num_sets)
        if np.ptp(priors) > min_spread:
            return priors


def draw_sizes(
    num_sets: int,
    num_rows: int,
    rng: np.random.Generator,
    *,
    kind: SetSizes = "uniform",
    tau: float = 1.0,
) -> Array:
    """Draw how many rows each set gets, shape (m,).

    'uniform': n / m each. 'shrunk': a random half of the sets (rounded up) keeps tau n / m rows.
    'random': cut [0, n] at m - 1 uniform points, so the sizes sum to n; no set is left empty.
    """
    if num_rows < num_sets:
        raise InputError(f"{num_sets} sets need at least {num_sets} rows; got {num_rows}")
    sizes = np.full(num_sets, num_rows // num_sets)
    if kind == "uniform":
        return sizes
    if kind == "shrunk":
        if not 0 < tau <= 1:
            raise InputError(f"tau must lie in (0, 1]; got {tau}")
        half = rng.permutation(num_sets)[: -(-num_sets // 2)]
        sizes[half] = np.maximum(1, np.round(tau * sizes[half]))
        return sizes
    if kind == "random":
        cuts = np.sort(rng.choice(np.arange(1, num_rows), size=num_sets - 1, replace=False))
        return np.diff(cuts, prepend=0, append=num_rows)
    raise InputError(f"sizes must be 'uniform', 'shrunk' or 'random'; got {kind!r}")


def perturb_priors(set_priors: Array, epsilon: float, rng: np.random.Generator) -> Array:
    """Move each prior by +-epsilon at random and clip to [0, 1] (Section 4.4)."""
    if not 0 <= epsilon <= 1:
        raise InputError(f"prior noise must lie in [0, 1]; got {epsilon}")
    gamma = rng.choice([-1.0, 1.0], size=len(set_priors))
    return np.clip(set_priors + gamma * epsilon, 0, 1)


def _draw_rows(
    labels: Array, priors: Array, sizes: Array, rng: np.random.Generator
) -> tuple[Array, Array, tuple[int, ...]]:
    """Draw n_j pi_j positives and n_j (1 - pi_j) negatives for each set, independently."""
    pools = (labels.nonzero()[0], (~labels).nonzero()[0])
    if min(map(len, pools)) == 0:
        raise InputError("drawing sets needs rows of both classes")
    chosen: list[Array] = []
    replaced = []
    for j, (prior, size) in enumerate(zip(priors, sizes, strict=True)):
        positives = round(prior * size)
        wanted = (positives, int(size) - positives)
        too_few = any(k > len(pool) for k, pool in zip(wanted, pools, strict=True))
        if too_few:
            replaced.append(j)
        for k, pool in zip(wanted, pools, strict=True):
            chosen.append(rng.choice(pool, size=k, replace=k > len(pool)))
    set_index = np.repeat(np.arange(len(sizes)), sizes)
    return np.concatenate(chosen), set_index, tuple(replaced)
