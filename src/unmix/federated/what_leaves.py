"""What would leave a party in a fit: its own replies to each kind of question, shown and not sent.

The other parties are not here. Where a question speaks of them, one stands for all: as many rows,
and the opposite average share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from unmix.core.class_shares import ClassShares
from unmix.core.share_precision import SharePrecision
from unmix.data.wording import listed
from unmix.errors import InputError
from unmix.federated.messages import REFUSAL, Message
from unmix.federated.party import RATE, Party
from unmix.federated.party_sets import own_question
from unmix.federated.score_cells import FIXED, NUM_CELLS
from unmix.federated.shared_columns import SharedColumn, agreed_encoder, read_columns
from unmix.learn.sums import Question

__all__ = ["WhatLeaves", "what_leaves"]

HELD_OUT = 0.2
STEP = 1.0  # length of the weights at which scores are counted


@dataclass(frozen=True, eq=False)
class WhatLeaves:
    """A reply of each kind that holds anything.

    Attributes
    ----------
    table, sums, shares, cells : Message
        Or a refusal, where the party would not answer.
    features : list of str
        That sums of gradients have a number for.
    """

    table: Message
    sums: Message
    shares: Message
    cells: Message
    features: list[str]
    party: Party

    def to_json(self) -> dict[str, Any]:
        """Return all replies as JSON values."""
        replies = (self.table, self.sums, self.shares, self.cells)
        kinds = ("table", "sums", "shares", "cells")
        return {"party": self.party.name} | {
            kind: dict(reply.text) | {name: a.tolist() for name, a in reply.arrays.items()}
            for kind, reply in zip(kinds, replies, strict=True)
        }

    def lines(self) -> Iterator[str]:
        """Yield the replies in words."""
        yield f"What party {self.party.name!r} would tell; no row leaves it."
        yield from self._of_table()
        yield from self._of_sums()
        yield from self._of_shares()
        yield from self._of_cells()

    def _of_table(self) -> Iterator[str]:
        """Say what is told before anything is fitted."""
        arrays, names = self.table.arrays, self.table.text["sets"]
        yield "Once, its sets:"
        shares = arrays["shares"]
        for j, name in enumerate(names):
            share = np.round(shares[j, 1] if shares.shape[1] == 2 else shares[j], 4).tolist()
            parts = f"{arrays['judged'][j]} of them held out"
            yield f"  {name}: {arrays['rows'][j]:,} rows ({parts}), share {share}"
        yield "Once, its columns, over the rows that are not held out:"
        for column in read_columns(self.party.name, self.table.text["columns"]):
            yield f"  {column.name}: {_words(column, self.party.least_cell)}"

    def _of_sums(self) -> Iterator[str]:
        """Say what is told at each step of a fit."""
        if self.sums.kind == REFUSAL:
            yield f"No sums: {self.sums.text['reason']}."
            return
        found, noise = self.sums.arrays["sums"], self.party.noise
        yield (
            f"At each step of the fit {len(found)} sums over the rows of all its sets or some, at "
            f"least {self.party.least_rows} rows: of the loss, and of its gradient by "
            f"{listed(self.features, 5)} and the bias; at weights of 0 {_numbers(found)}."
        )
        if noise is None:
            yield "If the model is a network: of the gradient by each of its weights instead."
        if noise is not None:
            yield (
                f"These sums have noise: at most {noise.answers} are told, and together they keep "
                f"a row secret up to epsilon {noise.epsilon:g} and delta {noise.delta:g}. "
                "Everything else is told as it is."
            )

    def _of_shares(self) -> Iterator[str]:
        """Say what is told of hidden sets."""
        if self.shares.kind == REFUSAL:
            return
        numbers = sum(array[0].size for array in self.shares.arrays.values())
        yield (
            f"While choosing, how a model that was fitted to other sets sees each of its sets: a "
            f"predicted share, its error and its residuals, {numbers} numbers."
        )

    def _of_cells(self) -> Iterator[str]:
        """Say what is told when the model is judged."""
        if self.cells.kind == REFUSAL:
            yield f"No counts of scores: {self.cells.text['reason']}."
            return
        counts = self.cells.arrays["cells"]
        yield (
            f"At the end how many held-out rows of each set have a score in each of {NUM_CELLS} "
            f"cells, none of them fewer than {self.party.least_cell}; after one step:"
        )
        for name, own in zip(self.table.text["sets"], counts, strict=True):
            yield f"  {name}: {' '.join(map(str, own[own > 0])) or 'nothing, too few rows'}"


def what_leaves(party: Party) -> WhatLeaves:
    """Ask a party one question of each kind, and return its replies.

    Parameters
    ----------
    party : Party
        That is not asked anything else before or after.
    """
    name, m = party.name, party.num_sets

    def ask(kind: str, text: Any, **arrays: Any) -> Message:
        return Message.from_bytes(party.reply(Message(kind, 0, name, text, arrays).to_bytes()))

    table = ask("table", {"held_out": HELD_OUT, "seed": 0})
    if table.kind == REFUSAL:
        raise InputError(party.trouble)
    encoder = agreed_encoder((name,), (read_columns(name, table.text["columns"]),))
    ask("encoder", {"encoder": encoder.to_dict()})
    kept, shares = table.arrays["kept"], table.arrays["shares"]
    K, d = shares.shape[1], len(encoder.feature_names)
    average = kept @ shares / kept.sum()
    sizes = np.append(kept, kept.sum())
    everybody = ClassShares(np.vstack((shares, average[::-1]))).of_positives()
    counted = np.append(table.arrays["counted"], RATE)
    known = SharePrecision(
        np.where(counted == RATE, np.inf, counted), np.append(table.arrays["errors"], 0.0)
    )
    target = everybody.pooled(sizes)
    question = Question("losses", "ssc", everybody.known(known), sizes, int(sizes.sum()), target)
    text, arrays = own_question(question, np.arange(m))
    of_all = {"sets": list(range(m)), "rows": "kept"}
    width = (d + 1) * (1 if K == 2 else K)
    sums = ask("sums", text | of_all, **arrays, point=np.zeros(width))
    point = np.zeros(width)
    if sums.kind != REFUSAL:
        slope = sums.arrays["sums"][1:]
        point = -STEP * slope / max(float(np.sqrt(slope @ slope)), 1e-300)
    base = np.asarray(target)
    shown = ask("shares", {"sets": of_all["sets"], "method": "ssc"}, point=point, base=base)
    cells = ask("cells", {"shift": 0.0, "grid": FIXED.to_json()}, point=point)
    return WhatLeaves(table, sums, shown, cells, list(encoder.feature_names), party)


def _words(column: SharedColumn, least: int) -> str:
    """Say what is told of a column."""
    about = "; some are missing" if column.missing else ""
    if column.kind == "empty":
        return "that it is empty"
    if column.kind == "number":
        spread = np.sqrt(column.variance)
        return f"{column.count:,} numbers, mean {column.mean:.6g}, deviation {spread:.6g}{about}"
    told = ", ".join(f"{word} {n:,}" for word, n in column.words.items())
    others = f"; words of fewer than {least} rows, or that you hide, are not told"
    return f"words {told or '(none)'}{others if column.others else ''}{about}"


def _numbers(found: Any) -> str:
    """Return the first few numbers of an array."""
    shown = ", ".join(f"{number:.4g}" for number in found[:6])
    return shown + (", ..." if len(found) > 6 else "")
