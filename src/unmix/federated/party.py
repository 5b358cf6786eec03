"""One party: the owner of some rows, who answers questions about them with sums and counts.

Whatever leaves a party leaves it here, as the reply to one of the kinds of question in `ANSWERS`.
The party looks at each question before it answers: sums over fewer rows than it allows are refused,
whoever asks. This file knows no transport.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from unmix.core.class_shares import ClassShares
from unmix.core.share_law import share_law
from unmix.core.share_precision import SharePrecision
from unmix.core.sums_by_set import set_rows
from unmix.data.priors import Priors
from unmix.data.sets import UnlabeledSets, held_out_rows
from unmix.data.wording import quoted
from unmix.errors import InputError
from unmix.federated.messages import Message, RefusedError, check_party_name
from unmix.federated.score_cells import ScoreGrid, cell_counts_of_sets
from unmix.federated.shared_columns import SharedColumn
from unmix.federated.sum_noise import SumNoise
from unmix.learn.columns import CategoryColumn
from unmix.learn.encoding import TableEncoder, TableSummary
from unmix.learn.methods import method_named
from unmix.learn.sums import Question, answer, weights_and_bias

__all__ = ["LEAST_CELL", "LEAST_ROWS", "RATE", "USES", "Party"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

LEAST_ROWS = 20  # of a set, and so of every sum
LEAST_CELL = 5  # of a count of scores, and of a word
CHECKED_SHARE = 0.2  # of the rows that are not held out, to choose a strength by if sets are few
FITTED, CHECKED, JUDGED = range(3)
USES = {
    "rows": (FITTED, CHECKED, JUDGED),
    "kept": (FITTED, CHECKED),
    "fitted": (FITTED,),
    "checked": (CHECKED,),
    "judged": (JUDGED,),
}
"""Rows that a question may be about."""
SUMMED = ("kept", "fitted", "checked")
"""Uses of rows that sums are told over; the last two over all sets at once, or not at all."""
RATE = -1.0  # in the place of infinitely many rows counted: the rate of a population


@dataclass(eq=False)
class Party:
    """Rows of one owner, in whole sets.

    Parameters
    ----------
    name : str
    frame : DataFrame
        The features of all rows.
    sets : array, shape (n,)
        The set id of each row.
    priors : Priors
        Of the sets of this party; others are left out.
    least_rows : int
        Rows that a set must have, and thereby every sum that is answered.
    least_cell : int
        Rows below which a count of scores, or a word, is not told.
    hidden_words : sequence of str
        Columns of which no word is told.
    noise : SumNoise, optional
        Added to sums of gradients.
    """

    name: str
    frame: pd.DataFrame
    sets: Any
    priors: Priors
    least_rows: int = LEAST_ROWS
    least_cell: int = LEAST_CELL
    hidden_words: Sequence[str] = ()
    noise: SumNoise | None = None
    model: dict[str, bytes] = field(default_factory=dict)
    """The files of the fitted model, once the server has sent them."""
    trouble: str = ""
    """Why the last question was not answered, for the owner; nothing if it was."""
    _use: npt.NDArray[np.int64] | None = None
    """What each row is for, by its place in `USES`."""
    _rows: UnlabeledSets | None = None
    _told: dict[str, SharedColumn] = field(default_factory=dict)
    """The columns, as they were told."""
    _counted: bool = False
    """Whether scores were told."""
    _drawn: tuple[tuple[str, tuple[int, ...]], UnlabeledSets] | None = None

    def __post_init__(self) -> None:
        check_party_name(self.name)
        if min(self.least_rows, self.least_cell) < 1:
            raise InputError("the least number of rows must be at least 1")
        self.set_index, used = self.priors.find_sets(self.sets, unused="drop")
        sizes = set_rows(self.set_index, len(used))
        kept = self.priors.keep(used).resolved(sizes)
        # As a table in one place is read: two classes have one share.
        self.priors = replace(kept, set_priors=kept.set_priors.of_positives())
        few = np.flatnonzero(sizes < self.least_rows)
        if len(few):
            raise InputError(
                f"set {quoted(used[few[0]])} has {sizes[few[0]]} rows, and party {self.name!r} "
                f"tells of no set with fewer than {self.least_rows:,}; leave it out, join it with "
                "another, or allow fewer (--least-rows)"
            )
        absent = [name for name in self.hidden_words if name not in self.frame.columns]
        if absent:
            raise InputError(f"there is no column {absent[0]!r} to hide the words of")

    @property
    def num_sets(self) -> int:
        """Sets of this party."""
        return len(self.priors)

    def reply(self, data: bytes) -> bytes:
        """Return the reply to the bytes of a question; a refusal if there is something wrong."""
        asked = Message("", -1, self.name)
        self.trouble = ""
        try:
            asked = Message.from_bytes(data)
            if asked.party != self.name:
                raise RefusedError(f"the question is for party {asked.party[:100]!r}")
            if asked.kind not in ANSWERS:
                raise RefusedError(f"nothing is told about {asked.kind[:100]!r}")
            return ANSWERS[asked.kind](self, asked).to_bytes()
        except RefusedError as error:
            self.trouble = str(error)
            return asked.refusal(self.trouble).to_bytes()
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            named = isinstance(error, InputError)
            self.trouble = str(error) if named else f"{type(error).__name__}: {error}"
            return asked.refusal("it cannot answer; its owner is told why").to_bytes()

    def table(self, asked: Message) -> Message:
        """Tell the columns, the sets with their rows and shares, and sums for standardisation."""
        if self._use is not None:
            raise RefusedError("a table is told once: two drawn otherwise could differ by a row")
        share, seed = float(asked.text["held_out"]), int(asked.text["seed"])
        out = np.zeros(len(self.frame), dtype=bool)
        if share:
            out = held_out_rows(self.set_index, share, np.random.default_rng([seed, 7]))
        self._use = np.where(out, JUDGED, FITTED)
        checked = held_out_rows(self.set_index[~out], CHECKED_SHARE, np.random.default_rng(seed))
        self._use[np.flatnonzero(~out)[checked]] = CHECKED
        sizes = {
            name: set_rows(self.set_index[np.isin(self._use, uses)], self.num_sets)
            for name, uses in USES.items()
        }
        few = int(sizes["kept"].argmin())
        if sizes["kept"][few] < self.least_rows:
            raise RefusedError(
                f"{sizes['judged'][few]} rows of set {quoted(self.priors.set_ids[few])} would be "
                f"held out and {sizes['kept'][few]} be left, fewer than {self.least_rows}; hold "
                "fewer out (--held-out), or join the set with another"
            )
        columns = self.shared_columns(self.frame[~out])
        self._told = {column.name: column for column in columns}
        shares, counted, errors = self._stated()
        text = {
            "sets": [str(name) for name in self.priors.set_ids],
            "classes": None if self.priors.classes is None else [*map(str, self.priors.classes)],
            "columns": [column.to_json() for column in columns],
            "noise": None if self.noise is None else self.noise.to_json(),
        }
        return asked.reply(text, **sizes, shares=shares, counted=counted, errors=errors)

    def shared_columns(self, frame: pd.DataFrame) -> list[SharedColumn]:
        """Return what is told of the columns of some rows."""
        summary = TableSummary()
        summary.add(frame)
        return [
            SharedColumn.of(
                seen, self.least_rows, self.least_cell, hidden=seen.name in self.hidden_words
            )
            for seen in summary.columns
        ]

    def encoder(self, asked: Message) -> Message:
        """Encode the rows as all parties have agreed; tell nothing.

        A word that was not told is one that nobody knows, and numbers that were not told are
        missing, whatever the encoder says: a sum over their rows would tell them.
        """
        if self._use is None:
            raise RefusedError("the encoder comes after the table")
        encoder = TableEncoder.from_dict(asked.text["encoder"])
        x = encoder.matrix(self.frame)
        for column, place in zip(encoder.summaries, encoder.places, strict=True):
            if place.value is None:
                continue
            told = self._told.get(column.name)
            if isinstance(column, CategoryColumn):
                words = {} if told is None else told.words
                secret = [i for i, word in enumerate(column.categories) if word not in words]
                x[:, place.value + np.array(secret, dtype=np.int64)] = 0
            elif told is None or told.kind != "number":
                x[:, place.value] = 0
                if place.missing is not None:
                    x[:, place.missing] = 1
        if self.noise is not None:
            x = self.noise.clipped(x)
        index, shares = self.set_index, self.priors.set_priors
        target = shares.pooled(set_rows(index, self.num_sets))
        self._rows, self._drawn = UnlabeledSets(x, index, shares, target), None
        return asked.reply()

    def sums(self, asked: Message) -> Message:
        """Tell sums of a loss and its gradient over the rows of training, or offsets of sets."""
        text, arrays = asked.text, asked.arrays
        chosen, uses = self._chosen(text["sets"]), str(text["rows"])
        if uses not in SUMMED:
            raise RefusedError(f"no sum is told over the rows that are {quoted(uses)}")
        # Whoever knows the sums over two of these knows that over the rows between them. Those of a
        # set that are kept are enough, or its table had not been told.
        if uses != "kept":
            if chosen != tuple(range(self.num_sets)):
                raise RefusedError(
                    f"sums over the rows that are {uses} are told of all sets at once"
                )
            few = min(self._num_rows("fitted"), self._num_rows("checked"))
            if few < self.least_rows:
                raise RefusedError(f"a sum over {few} rows is not told")
        rows = self._rows_for(uses, chosen)
        question = Question(
            text["about"],
            text["method"],
            _shares(arrays["shares"], arrays["counted"], arrays["errors"]),
            arrays["sizes"],
            int(text["num_rows"]),
            arrays["target"],
        )
        if "hidden" in text:
            if self.noise is not None:
                raise RefusedError("noise is for linear models: a row of a network has no bound")
            from unmix.learn.network_sums import network_sums

            hidden, slopes = text["hidden"], bool(text["slopes"])
            index, point = rows.set_index, arrays["point"]
            sums = network_sums(rows.x, index, question, hidden, point, slopes=slopes)
            return asked.reply(sums=sums)
        found = answer(rows.x, rows.set_index, question, arrays["point"])
        if self.noise is not None:
            found = self.noise.added(found, question, chosen)
        return asked.reply(sums=found)

    def shares(self, asked: Message) -> Message:
        """Tell how well a model predicts the shares of some sets that it was not fitted to."""
        if self.noise is not None:
            raise RefusedError("with noise no share is told that a model predicts")
        chosen = self._chosen(asked.text["sets"])
        rows = self._rows_for("kept", chosen)
        logits = self._logits(rows.x, asked)
        method, base = method_named(asked.text["method"]), asked.arrays["base"]
        # The shares of the others' sets are not told here: all there is to go by is their average.
        law = share_law(base[None])
        index, m = rows.set_index, len(chosen)
        priors = rows.set_priors
        stated = priors.matrix[:, 1] if logits.ndim == 1 else priors.matrix
        variances: Any = 0.0
        if priors.precision is not None:
            variances = priors.precision.error_variances(rows.set_sizes, stated)
        found, errors = method.assumption.share_rule(logits, index, m, base)
        told: dict[str, Any] = {
            "predicted": found,
            "errors": np.nan_to_num(errors, nan=1.0, posinf=1.0),
        }
        for i, rule in enumerate(method.residual_rules):
            of_rule = rule(logits, index, stated, base, law, variances)
            told |= {f"{name}{i}": array for name, array in of_rule._asdict().items()}
        return asked.reply(**told)

    def cells(self, asked: Message) -> Message:
        """Tell how many held-out rows of each set fall into each cell of the scores."""
        encoded, use = self._encoded()
        if self._counted:
            raise RefusedError("scores are counted once: two counts could differ by a row")
        self._counted = True
        chosen = np.isin(use, USES["judged"])
        logits = self._logits(encoded.x[chosen], asked) + float(asked.text["shift"])
        if logits.ndim != 1:
            raise RefusedError("scores are counted for two classes only")
        index, grid = encoded.set_index[chosen], ScoreGrid.of_json(asked.text["grid"])
        counts = cell_counts_of_sets(logits, index, self.num_sets, self.least_cell, grid)
        return asked.reply({"least_cell": self.least_cell}, cells=counts)

    def keep_model(self, asked: Message) -> Message:
        """Take the files of the fitted model; tell nothing."""
        self.model = {name: array.tobytes() for name, array in asked.arrays.items()}
        return asked.reply()

    def _logits(self, x: Any, asked: Message) -> FloatArray:
        """Return the logits (n,) or (n, K) of rows by a model that is told."""
        point = asked.arrays["point"]
        if "hidden" not in asked.text:
            return linear_logits(x, point)
        from unmix.learn.network_sums import network_logits

        return network_logits(x, self.priors.set_priors.num_classes, asked.text["hidden"], point)

    def _stated(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return shares (m, K), the rows of which they were counted (m,) and their errors (m,)."""
        shares = self.priors.set_priors
        assert shares.precision is not None  # `resolved` has settled it
        counted = np.where(shares.precision.exact, shares.precision.counted, RATE)
        return shares.matrix, counted, shares.precision.errors

    def _encoded(self) -> tuple[UnlabeledSets, IntArray]:
        """Return all rows, encoded, and what each is for."""
        if self._rows is None or self._use is None:
            raise RefusedError("rows are told of after the encoder was agreed on")
        return self._rows, self._use

    def _chosen(self, asked: Any) -> tuple[int, ...]:
        """Return the numbers of the sets that are asked about, of which each exists."""
        chosen = tuple(int(j) for j in asked)
        if not chosen or not 0 <= min(chosen) <= max(chosen) < self.num_sets:
            raise RefusedError("it is asked about no set, or about one that there is not")
        return chosen

    def _num_rows(self, uses: str) -> int:
        """Return how many rows are for a use."""
        _, use = self._encoded()
        return int(np.isin(use, USES[uses]).sum())

    def _rows_for(self, uses: str, chosen: tuple[int, ...]) -> UnlabeledSets:
        """Return the rows of some sets for a use; a set that is named twice is two sets."""
        if self._drawn is None or self._drawn[0] != (uses, chosen):
            encoded, use = self._encoded()
            rows = encoded.rows(np.isin(use, USES[uses]))
            if chosen != tuple(range(self.num_sets)):
                rows = rows.take_sets(np.array(chosen, dtype=np.int64))
            self._drawn = (uses, chosen), rows
        return self._drawn[1]


def _shares(matrix: FloatArray, counted: FloatArray, errors: FloatArray) -> ClassShares:
    """Return shares with their precision, as they came over the line."""
    known = SharePrecision(np.where(counted == RATE, np.inf, counted), errors)
    return ClassShares(matrix).of_positives().known(known)


def linear_logits(x: Any, point: FloatArray) -> FloatArray:
    """Return the logits (n,) or (n, K) of rows by weights and bias in one vector."""
    weights, bias = weights_and_bias(point, x.shape[1])
    return np.asarray(np.asarray(x, dtype=np.float64) @ weights + bias)


ANSWERS: dict[str, Callable[[Party, Message], Message]] = {
    "table": Party.table,
    "encoder": Party.encoder,
    "sums": Party.sums,
    "shares": Party.shares,
    "cells": Party.cells,
    "model": Party.keep_model,
}
"""What a party answers, and nothing else."""
