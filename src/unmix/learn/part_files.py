"""A table in many Parquet files, of which workers read one each: what a worker does with its files.

Every file is a part. A worker summarises its files, keeps their rows encoded in memory as far as
they fit, and answers questions about them (`learn.sums`). What it does is a function of the file
alone, so that it does not matter which worker does it, when, or how often. Engines carry the calls;
they are not known here, and neither is torch.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import pandas as pd

from unmix.core.sums_by_set import set_rows
from unmix.data.joined_tables import JoinedTables
from unmix.data.priors import Priors
from unmix.data.set_columns import UnratedRows, how_to_read, sets_in
from unmix.data.tables import Table, naming, scan_rows
from unmix.learn.encoding import TableEncoder, TableSummary
from unmix.learn.models import model_row
from unmix.learn.sums import FloatArray, IntArray, Question, answer

if TYPE_CHECKING:
    from unmix.learn.models import Learner
    from unmix.learn.shards import Lesson, Reply, Shard
    from unmix.learn.trees_in_parts import Grove, Grower, Start

__all__ = [
    "Engine",
    "FileParts",
    "FilePlan",
    "FileWorker",
    "Known",
    "PartSummary",
    "Plan",
    "WorkerLostError",
    "one_by_one",
]

Array = np.ndarray[Any, Any]
Done = Callable[[int], None]

LEAST_MEMORY = 2_000_000_000  # bytes of encoded rows that a worker keeps on any machine
CONTAINER = Path("/sys/fs/cgroup/memory.max")  # where Linux says how much a container may have


@dataclass(frozen=True)
class FilePlan:
    """What every worker knows from the start."""

    tables: tuple[Table, ...]
    """One for each file; a file is a part."""
    columns: tuple[str, ...]
    """The features."""
    set_columns: tuple[str, ...]
    types: dict[str, str]
    """What each feature is read as: the same in all files."""
    priors: Priors
    """Of all sets."""
    judged_share: float
    """Of the rows that are held out to judge by."""
    sample_share: float
    """Of the rows that whoever asks wants to see."""
    seed: int

    def worker(self) -> FileWorker:
        """Return what does the work in its process."""
        return FileWorker(self)


class WorkerLostError(Exception):
    """A worker died while all worked together."""


class Plan(Protocol):
    """What workers are told at their start."""

    @property
    def tables(self) -> tuple[Table, ...]:
        """One for each file; a file is a part."""

    def worker(self) -> Any:
        """Return what does the work in its process, part by part, by methods of its own."""


@dataclass(frozen=True)
class PartSummary:
    """What one part tells before a fit."""

    columns: TableSummary
    """Of the training rows."""
    rows: int
    """Training rows."""
    sizes: IntArray
    """Training rows of each set (m,), for all priors."""
    all_sizes: IntArray
    """All rows of each set."""
    others: UnratedRows
    judged: pd.DataFrame
    """The sets of the rows that are held out."""
    sample: pd.DataFrame
    """Some of the training rows with their sets."""


@dataclass(frozen=True, eq=False)
class Known:
    """What was learned of all parts and every worker must know to encode its rows."""

    encoder: TableEncoder
    position: IntArray
    """The number of each prior among the sets that have rows; -1 where there are none."""
    view: Literal["matrix", "native"] = "matrix"
    """How a model takes its rows, see `unmix.learn.models.Model`."""
    band: tuple[float, float] = (0.0, 1.0)
    """Which rows are learned from, by a random number of each in [0, 1)."""

    @property
    def num_features(self) -> int:
        """Columns of the rows."""
        encoder = self.encoder
        return len(encoder.feature_names if self.view == "matrix" else encoder.columns)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows of a part that nothing is learned from, and what is left."""

    x: Array
    set_index: Array
    set_sizes: IntArray
    """Rows of each set that are left (m,)."""
    rows: int
    """All that are left."""


class FileWorker:
    """What a worker does: in this process, or as an actor of an engine.

    Parameters
    ----------
    plan : FilePlan
    memory : int, optional
        Bytes of encoded rows to keep; of a file that does not fit they are encoded each time.
    """

    def __init__(self, plan: FilePlan, memory: int | None = None) -> None:
        self.plan, self._memory = plan, memory_of_worker() if memory is None else memory
        self._kept: dict[int, tuple[Array, Array]] = {}
        self._judged: dict[int, tuple[str, Array]] = {}
        self._known: Known | None = None
        self._shards: dict[int, Shard] = {}
        self._lesson: Lesson | None = None
        self._start: Start | None = None
        self._grower: Grower | None = None

    def summarise(self, part: int) -> PartSummary:
        """Look at all rows of a part once."""
        plan, priors = self.plan, self.plan.priors
        summary, others = TableSummary(), UnratedRows(priors, whole=False)
        sizes = np.zeros(len(priors), dtype=np.int64)
        all_sizes, rows, judged, sample = sizes.copy(), 0, [], []
        end = plan.judged_share + plan.sample_share
        for frame, set_index, chance in self._blocks(part, others):
            all_sizes += set_rows(set_index, len(priors))
            kept = chance >= plan.judged_share
            rows += int(kept.sum())
            sizes += set_rows(set_index[kept], len(priors))
            if kept.any():
                with naming(plan.tables[part]):
                    summary.add(frame.loc[kept, list(plan.columns)])
            judged.append(frame.loc[~kept, list(plan.set_columns)])
            sample.append(frame[kept & (chance < end)])
        beside = _joined(judged), _joined(sample)
        return PartSummary(summary, rows, sizes, all_sizes, others, *beside)

    def check(self, part: int, known: Known) -> int:
        """Encode the rows of a part, held-out ones too, and return how many are for training."""
        return len(self._rows(part, known)[0])

    def answer(self, part: int, known: Known, question: Question, point: FloatArray) -> FloatArray:
        """Return what the training rows of a part answer."""
        x, set_index = self._rows(part, known)
        return answer(x, set_index, question, point)

    def hold_out(self, part: int, known: Known) -> HeldOut:
        """Return the rows below the band of those to learn from."""
        x, set_index, chance = self._encoded(part, known)
        out, kept = chance < known.band[0], _inside(chance, known.band)
        self._keep(part, known, (x[kept], set_index[kept]))
        num_sets = int((known.position >= 0).sum())
        sizes = set_rows(set_index[kept], num_sets)
        return HeldOut(x[out], set_index[out], sizes, int(kept.sum()))

    def judged(self, part: int, known: Known, learner: Learner) -> Array:
        """Return the logits of the rows of a part that are held out to judge by."""
        if self._judged.get(part, ("",))[0] != known.view:
            self._encoded(part, known)
        return learner.logits(self._judged[part][1])

    def gradient(
        self, number: int, known: Known, lesson: Lesson, point: Array, when: Array
    ) -> Reply:
        """Return the gradients of a network at a point for one batch of a shard.

        `when` holds the epoch and the batch.
        """
        from unmix.learn.shards import Shard

        if self._lesson is not lesson:
            self._lesson, self._shards = lesson, {}
        if number not in self._shards:
            self._shards[number] = Shard(lesson, number, lambda part: self._taken(part, known))
        epoch, batch = when.tolist()
        return self._shards[number].gradient(point, epoch, batch)

    def grow(self, rank: int, known: Known, grove: Grove, start: Start, rounds: Array) -> str:
        """Grow trees with the other workers of a group; return all of them as text."""
        from unmix.learn.trees_in_parts import Grower

        if self._start is not start:
            self._grower = None  # its sockets, before others are opened
            read = [
                self._rows(part, known)
                for part in range(rank, grove.num_parts, len(start.addresses))
            ]
            x, set_index = (np.concatenate(arrays) for arrays in zip(*read, strict=True))
            self._start, self._grower = start, Grower(grove, start, rank, x, set_index)
        assert self._grower is not None
        return self._grower.grow(int(rounds[0]))

    def run(self, number: int, task: Array) -> Any:
        """Do what depends on no rows of this worker; it comes in bytes, which nobody keeps."""
        return pickle.loads(task.tobytes())(number)

    def _taken(self, part: int, known: Known) -> tuple[Array, Array]:
        """Return the rows of a part, which are kept no longer: whoever takes them keeps them."""
        found = self._rows(part, known)
        self._kept.pop(part, None)
        return found

    def _rows(self, part: int, known: Known) -> tuple[Array, Array]:
        """Return the encoded training rows of a part and their sets, from memory if they fit."""
        if self._known is known and part in self._kept:
            return self._kept[part]
        x, set_index, chance = self._encoded(part, known)
        kept = _inside(chance, known.band)
        found = (x, set_index) if kept.all() else (x[kept], set_index[kept])
        self._keep(part, known, found)
        return found

    def _keep(self, part: int, known: Known, found: tuple[Array, Array]) -> None:
        """Keep the rows of a part if they fit in memory."""
        if self._known is not known:
            self._kept, self._known = {}, known
        used = sum(x.nbytes + index.nbytes for x, index in self._kept.values())
        if used + found[0].nbytes + found[1].nbytes <= self._memory:
            self._kept[part] = found

    def _encoded(self, part: int, known: Known) -> tuple[Array, Array, Array]:
        """Read and encode the training rows of a part, with a random number of each in [0, 1)."""
        position = np.append(known.position, -1)  # the last for rows without a set
        d, xs, indices = known.num_features, [], []
        judged = [np.empty((0, d), np.float32)]
        others = UnratedRows(self.plan.priors, whole=False)
        for frame, set_index, chance in self._blocks(part, others):
            with naming(self.plan.tables[part]):
                x = getattr(known.encoder, known.view)(frame)  # held-out rows must be fit for use
            kept = chance >= self.plan.judged_share
            xs.append(x[kept])
            indices.append(position[set_index[kept]])
            judged.append(x[~kept])
        self._judged[part] = known.view, np.concatenate(judged)
        if not xs:
            return np.empty((0, d), np.float32), np.empty(0, np.int64), np.empty(0)
        rows = np.concatenate(xs)
        chances = np.random.default_rng([self.plan.seed, 10, part]).random(len(rows))
        return rows, np.concatenate(indices), chances

    def _blocks(
        self, part: int, others: UnratedRows
    ) -> Iterator[tuple[pd.DataFrame, Array, Array]]:
        """Yield blocks of rows, the set of each row, and a random number of its own in [0, 1)."""
        plan = self.plan
        if plan.tables[part].num_rows == 0:
            return
        rng = np.random.default_rng([plan.seed, 8, part])
        how = how_to_read(plan.columns, plan.set_columns, plan.types)
        for frame in scan_rows(plan.tables[part], **how):
            frame.index += 1  # messages count rows from 1
            rated = others.rated(sets_in(frame, plan.set_columns))
            if rated is not None:
                frame = frame[rated]
            if not len(frame):
                continue
            set_index, _ = plan.priors.find_sets(sets_in(frame, plan.set_columns), unused="keep")
            yield frame, set_index, rng.random(len(frame))


class Engine(Protocol):
    """Who carries calls to workers: in this process, or on many machines."""

    name: str

    def start(self, plan: Plan) -> None:
        """Have workers for the files of a plan."""

    def each(
        self, work: str, num_parts: int, *arguments: Any, done: Done = lambda part: None
    ) -> list[Any]:
        """Return what the method `work` of the worker says of every part, in their order.

        Arguments may be large and the same in many calls, so that workers should keep them, all
        but arrays. `done` is called with each part as it is finished, in any order.
        """

    def addresses(self) -> list[str]:
        """Return HOST:PORT of each worker, where nobody listens yet."""

    def together(self, work: str, *arguments: Any) -> list[Any]:
        """Return what the method `work` of all workers says, who speak with each other meanwhile.

        Each is called once, with its number and the arguments. If one dies all begin anew, and
        `WorkerLostError` is raised.
        """


@dataclass(frozen=True, eq=False)
class FileParts:
    """`unmix.learn.sums.Parts` that an engine asks."""

    engine: Engine
    known: Known
    part_sets: Sequence[IntArray]
    part_rows: Sequence[int]
    num_features: int

    def ask(
        self, question: Question, point: FloatArray, answered: Done = lambda part: None
    ) -> list[FloatArray]:
        """Return the answer of every part, in the order of the parts."""
        parts = len(self.part_rows)
        return self.engine.each("answer", parts, self.known, question, point, done=answered)

    def spread(self, task: Callable[[int], Any], number: int, told: Done) -> list[Any]:
        """Return task(0), task(1), ..., each made by a worker that is free."""
        sent = np.frombuffer(pickle.dumps(task), dtype=np.uint8)
        return self.engine.each("run", number, sent, done=told)

    def judged(self, learner: Learner) -> FloatArray:
        """Return the logits of the rows that are held out to judge by, part after part."""
        asked = self.as_taken_by(model_row(learner.setup.model).view)
        found = self.engine.each("judged", len(self.part_rows), asked.known, learner)
        return np.concatenate([logits for logits in found if len(logits)] or found[:1])

    def as_taken_by(self, view: Literal["matrix", "native"]) -> FileParts:
        """Return the same rows as a model takes them."""
        if view == self.known.view:
            return self  # which workers have encoded
        known = replace(self.known, view=view)
        return replace(self, known=known, num_features=known.num_features)

    def hold_out(self, share: float, most_rows: int) -> tuple[FileParts, Array, Array]:
        """Hold a share of the rows out, and leave so many of the others that they fit.

        Returns
        -------
        FileParts
            Rows to learn from, at most about `most_rows`.
        x (n, d), set_index (n,) or (n, G)
            Of the rows that are held out.
        """
        rows = sum(self.part_rows)
        end = min(1.0, share + most_rows / max(rows, 1))
        known = replace(self.known, band=(share, end))
        found = self.engine.each("hold_out", len(self.part_rows), known)
        sizes, part_rows = [held.set_sizes for held in found], [held.rows for held in found]
        parts = replace(self, known=known, part_sets=sizes, part_rows=part_rows)
        some = [held for held in found if len(held.x)] or found[:1]
        x = np.concatenate([held.x for held in some])
        return parts, x, np.concatenate([held.set_index for held in some])


def memory_of_worker() -> int:
    """Return the bytes of rows that a worker keeps: half of what each processor has here."""
    try:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on Linux or macOS
        return LEAST_MEMORY
    with suppress(OSError, ValueError):  # no container, or one without a limit
        there = min(there, int(CONTAINER.read_text()))
    return max(LEAST_MEMORY, there // 2 // (os.cpu_count() or 1))


def one_by_one(table: Table) -> tuple[Table, ...]:
    """Return each file of a table as a table of the same columns."""
    if not isinstance(table, JoinedTables):
        return (table,)
    return tuple(
        replace(table, path=part.path, parts=(part,), partitions=(folders,), _starts=[])
        for part, folders in zip(table.parts, table.partitions, strict=True)
    )


def _inside(chance: Array, band: tuple[float, float]) -> Array:
    """Say which rows are in the band of those to learn from, (n,)."""
    return np.asarray((chance >= band[0]) & (chance < band[1]))


def _joined(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return frames as one, without those that have no rows if any have."""
    filled = [frame for frame in frames if len(frame)] or list(frames[:1])
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame()
