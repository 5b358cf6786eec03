"""Rows on disk in random order, in parts that fit in memory: for tables larger than memory.

Each row goes to a part chosen at random, so every part is a random sample of the table, whatever
the order of its rows: visiting the parts one by one, shuffled inside, is as good as shuffling the
whole. Rows are stored as the learners take them, so that a pass decodes nothing. This file knows
no table and no model, and there is no place for a label.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from unmix.core.class_shares import ClassShares
from unmix.core.transition import Transition
from unmix.data.sets import UnlabeledSets
from unmix.errors import InputError
from unmix.files import atomic_write_text

__all__ = ["LEAST_PARTS", "ShuffledSets", "number_of_parts", "scatter_rows", "scattered_parts"]

Array = np.ndarray[Any, Any]

PART_BYTES = 64_000_000
# So that one part can be held out and most rows remain.
LEAST_PARTS = 10
# Two files each are open at once, and systems often allow 1024.
MOST_PARTS = 400
INDEX = "parts.json"


@dataclass(frozen=True, eq=False)
class ShuffledSets:
    """Sets whose rows `scatter_rows` wrote to a folder: `UnlabeledSets` part by part.

    Parameters
    ----------
    folder : path
    parts : dict
        Number of a part -> its rows.
    num_features : int
    set_sizes : array, shape (m,)
        Rows of each set in these parts.
    set_priors : ClassShares
    target_prior : float or array, shape (K,)
    set_ids : tuple
    """

    folder: Path
    parts: dict[int, int]
    num_features: int
    set_sizes: Array
    set_priors: ClassShares
    target_prior: Any
    set_ids: tuple[Hashable, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "set_priors", ClassShares.of(self.set_priors))

    def __len__(self) -> int:
        return sum(self.parts.values())

    @property
    def num_sets(self) -> int:
        """The number of sets m."""
        return len(self.set_priors)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return (self.num_features,)

    @property
    def part_sizes(self) -> tuple[int, ...]:
        """Rows in each part."""
        return tuple(self.parts.values())

    @cached_property
    def transition(self) -> Transition:
        """The transition these sets define; set weights are their shares of the rows."""
        return Transition(self.set_priors, self.set_sizes, self.target_prior)

    def part(self, position: int) -> UnlabeledSets:
        """Read a part into memory, by its position in `part_sizes`."""
        x_file, set_file = _part_files(self.folder, list(self.parts)[position])
        # Read, not mapped: pages of a mapped file would count as memory of this process.
        x, set_index = np.fromfile(x_file, np.float32), np.fromfile(set_file, np.int32)
        rows = self.part_sizes[position]
        grouping = self.set_priors.grouping
        shape = (rows,) if grouping is None else (rows, int(grouping[-1]) + 1)
        if len(set_index) != np.prod(shape) or len(x) != rows * self.num_features:
            raise InputError(f"{x_file} was changed or cut short; delete {self.folder}")
        x, set_index = x.reshape(rows, self.num_features), set_index.reshape(shape)
        return UnlabeledSets(x, set_index, self.set_priors, self.target_prior, self.set_ids)

    def hold_out(
        self, share: float, rng: np.random.Generator
    ) -> tuple[ShuffledSets, UnlabeledSets]:
        """Set one part aside and return (kept, held out).

        As `UnlabeledSets.hold_out`, but a part is what fits in memory: a tenth of the rows or
        less, whatever larger `share` is asked for.
        """
        position = int(rng.integers(len(self.parts)))
        out = self.part(position)
        kept = {k: n for i, (k, n) in enumerate(self.parts.items()) if i != position}
        sizes = self.set_sizes - out.set_sizes
        return replace(self, parts=kept, set_sizes=sizes), out


def number_of_parts(num_rows: int, num_features: int) -> int:
    """Return how many parts a table is cut into."""
    wanted = -(-num_rows * 4 * (num_features + 1) // PART_BYTES)
    return int(np.clip(wanted, LEAST_PARTS, MOST_PARTS))


def scatter_rows(
    folder: Path,
    blocks: Iterable[tuple[Array, Array]],
    num_parts: int,
    rng: np.random.Generator,
) -> dict[int, int]:
    """Write rows to parts chosen at random.

    Parameters
    ----------
    folder : path
        Of the parts; older ones in it are replaced.
    blocks : iterable of (x, set_index), arrays of shapes (n, d) and (n,) or (n, G)
    num_parts : int
    rng : Generator

    Returns
    -------
    dict
        Number of a part -> its rows, without parts that got none.
    """
    sizes = np.zeros(num_parts, dtype=np.int64)
    with ExitStack() as stack:
        files = [
            [stack.enter_context(path.open("wb", buffering=0)) for path in _part_files(folder, k)]
            for k in range(num_parts)
        ]
        for x, set_index in blocks:
            part = rng.integers(num_parts, size=len(x))
            order = np.argsort(part, kind="stable")
            counts = np.bincount(part, minlength=num_parts)
            ends = np.cumsum(counts)[:-1]
            x_pieces = np.split(np.asarray(x[order], dtype=np.float32), ends)
            set_pieces = np.split(set_index[order].astype(np.int32), ends)
            for (x_file, set_file), rows, sets in zip(files, x_pieces, set_pieces, strict=True):
                _write(x_file, rows)
                _write(set_file, sets)
            sizes += counts
    parts = {k: int(n) for k, n in enumerate(sizes) if n}
    atomic_write_text(folder / INDEX, json.dumps(list(parts.items())))
    return parts


def scattered_parts(folder: Path) -> dict[int, int] | None:
    """Return the parts of an earlier `scatter_rows`, or None if it did not come to its end."""
    if not (folder / INDEX).exists():
        return None
    return {int(k): int(n) for k, n in json.loads((folder / INDEX).read_text())}


def _part_files(folder: Path, number: int) -> tuple[Path, Path]:
    """Return the files of a part: its rows and their sets."""
    return folder / f"rows-{number:03}", folder / f"sets-{number:03}"


def _write(file: Any, array: Array) -> None:
    """Write an array; the system may take fewer bytes at once than it is given."""
    rest = memoryview(array.tobytes())
    while rest:
        rest = rest[file.write(rest) :]
