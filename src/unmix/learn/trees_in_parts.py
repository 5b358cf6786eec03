"""Boosting rows that lie with workers: these grow trees together, this process says how many.

Workers are a group of LightGBM, which adds up the histograms of all by sockets of its own. They
come back after a few rounds with the trees so far, by which rows that are held out here decide when
to stop. If one dies the group cannot go on: all begin anew, from those trees.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import lightgbm as lgb
import numpy as np

from unmix.core.transition import Transition
from unmix.data.sets import UnlabeledSets
from unmix.errors import InputError
from unmix.learn.boosting import BoostingFit, BoostingPlan, evaluation, learning_rate, objective
from unmix.learn.checkpoint import Checkpoint
from unmix.learn.part_files import FileParts, WorkerLostError
from unmix.learn.sets_in_parts import SetsInParts

__all__ = ["Grove", "Grower", "boost_in_parts"]

Array = np.ndarray[Any, Any]

ROUNDS = 10  # that a group grows before it comes back
MOST_LOSSES = 5  # in turn, without a round in between
TIME_OUT = 2  # minutes that the sockets of a group wait for each other at the start


@dataclass(frozen=True, eq=False)
class Grove:
    """What every worker of a group must know, beside its rows."""

    plan: BoostingPlan
    parameters: dict[str, Any]
    num_parts: int
    base: Array
    """Where the trees start, shape () or (K,)."""
    set_sizes: Array
    """Of all rows (m,)."""
    set_priors: Any
    target_prior: Any


@dataclass(frozen=True, eq=False)
class Start:
    """One beginning of a group."""

    addresses: tuple[str, ...]
    """HOST:PORT of each worker."""
    text: str
    """The trees so far; none at all the first time."""
    rounds: int
    """How many they are."""


class Grower:
    """A worker in its group.

    Parameters
    ----------
    grove : Grove
    start : Start
    rank : int
    x : array, shape (n, d)
    set_index : array of integers, shape (n,) or (n, G)
        The rows of this worker.
    """

    def __init__(self, grove: Grove, start: Start, rank: int, x: Array, set_index: Array) -> None:
        plan, known = grove.plan, (grove.set_priors, grove.target_prior)
        transition = Transition(grove.set_priors, grove.set_sizes, grove.target_prior)
        assert plan.method.information is not None  # it was refused before
        own = objective(
            UnlabeledSets(x, set_index, *known),
            grove.base,
            plan.method.risk(transition),
            plan.method.information(transition),
            plan,
        )
        # What a model is continued from replaces initial scores.
        self._objective = lambda scores, data: own(scores + grove.base, data)
        parameters = grove.parameters | {"seed": plan.seed + start.rounds}
        if len(start.addresses) > 1:
            parameters |= {
                "tree_learner": "data",
                "pre_partition": True,
                "machines": ",".join(start.addresses),
                "local_listen_port": int(start.addresses[rank].rpartition(":")[2]),
                "num_machines": len(start.addresses),
                "time_out": TIME_OUT,
            }
        self._start, self._parameters = start, parameters
        self._data: Any = lgb.Dataset(
            x, categorical_feature=list(plan.categorical), params=parameters
        )
        self._booster: Any = None

    def grow(self, rounds: int) -> str:
        """Grow so many rounds more, or until no leaf can be split; return all trees."""
        if self._booster is None:
            before = lgb.Booster(model_str=self._start.text) if self._start.text else None
            self._booster = lgb.train(
                self._parameters | {"objective": self._objective},
                self._data,
                num_boost_round=1,
                init_model=before,
                keep_training_booster=True,
            )
            self._data = None
            rounds -= 1
        for _ in range(rounds):
            if self._booster.update(fobj=self._objective):
                break
        return str(self._booster.model_to_string(num_iteration=-1))


def boost_in_parts(
    sets: SetsInParts,
    held_out: UnlabeledSets,
    plan: BoostingPlan,
    checkpoint: Checkpoint | None = None,
) -> BoostingFit:
    """Boost trees on rows that lie with the workers of an engine.

    Parameters
    ----------
    sets : SetsInParts
        As trees take them.
    held_out : UnlabeledSets
        Other rows, by which the best round is chosen.
    plan : BoostingPlan
    checkpoint : Checkpoint, optional
        Where the trees so far are saved; if it holds some, they are continued.
    """
    parts: Any = sets.parts
    prior = plan.method.base_prior(sets.transition)
    base = np.log(prior[1] / prior[0]) if sets.transition.binary else np.log(prior)
    known = sets.set_sizes, sets.set_priors, sets.target_prior
    one = np.zeros((1, *sets.part(0).set_index.shape[1:]), dtype=np.int64)
    rate = learning_rate(plan, sets.transition, base, one, len(sets))
    parameters = replace(plan, num_threads=1).parameters(base.size, rate)
    grove = Grove(plan, parameters, len(parts.part_rows), base, *known)
    grown = _Grown(held_out, evaluation(held_out, plan.method, sets.set_priors, prior), base, plan)
    if checkpoint is not None:
        _, state = checkpoint.load() or ({}, {"text": ""})
        grown.take(str(state["text"]))
    losses = 0
    while not grown.finished:
        try:
            for text in _together(parts, grove, grown):
                losses = 0
                grown.take(text)
                if checkpoint is not None:
                    checkpoint.save({}, {"text": text})
                if grown.finished:
                    break
        except WorkerLostError as lost:
            losses += 1
            if losses == MOST_LOSSES:
                raise RuntimeError(
                    f"workers that grow trees together died {losses} times in turn: {lost}"
                ) from None
    return grown.fit(parts.num_features)


def _together(parts: FileParts, grove: Grove, grown: _Grown) -> Any:
    """Let a new group grow trees from those so far; yield all trees again and again."""
    engine, started = parts.engine, time.monotonic()
    start = Start(tuple(engine.addresses()), grown.text, grown.rounds)
    before = grown.rounds
    while True:
        rounds = np.array([min(ROUNDS, grown.most - grown.rounds)])
        found: Sequence[str] = engine.together("grow", parts.known, grove, start, rounds)
        yield found[0]
        seconds = time.monotonic() - started
        speed = (grown.rounds - before) * sum(parts.part_rows) / max(seconds, 1e-9)
        grown.tell(f"{speed:,.0f} rows/s")


class _Grown:
    """The trees so far, and how good they are on held-out rows."""

    def __init__(self, held_out: UnlabeledSets, loss: Any, base: Array, plan: BoostingPlan) -> None:
        self.text, self.rounds, self.most = "", 0, plan.max_rounds
        self._held_out, self._loss, self._base, self._plan = held_out, loss, base, plan
        self._logits = np.full((len(held_out), *base.shape), base)
        self._history: list[dict[str, float]] = []
        self._best, self._least, self._ended = 0, np.inf, False

    @property
    def finished(self) -> bool:
        """Whether more rounds would be of no use."""
        late = self.rounds - self._best >= self._plan.options.patience
        return self._ended or late or self.rounds >= self.most

    def take(self, text: str) -> None:
        """Judge the rounds that are new."""
        if not text:
            return
        booster = lgb.Booster(model_str=text)
        rounds = booster.current_iteration()
        self._ended = rounds == self.rounds  # no leaf could be split
        for done in range(self.rounds, rounds):
            self._logits = self._logits + booster.predict(
                self._held_out.x, start_iteration=done, num_iteration=1, raw_score=True
            )
            loss = self._loss(self._logits, None)[1]
            self._history.append({"round": done + 1, "held_out_loss": loss})
            if loss < self._least:
                self._best, self._least = done + 1, loss
        self.text, self.rounds = text, rounds

    def tell(self, text: str) -> None:
        """Tell how far it is."""
        if self._plan.progress:
            self._plan.progress(self.rounds, self.most, f"boosting, {text}")

    def fit(self, num_features: int) -> BoostingFit:
        """Return the best of the rounds."""
        if self.text:
            text = lgb.Booster(model_str=self.text).model_to_string(num_iteration=self._best)
        else:
            raise InputError("no rounds were asked for")
        return BoostingFit(
            model_text=text,
            base_logits=np.asarray(self._base),
            num_rounds=self._best,
            set_priors=self._held_out.set_priors,
            history=self._history,
            num_features=num_features,
        )
