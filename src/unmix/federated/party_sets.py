"""Sets whose rows are with the parties: sums that a fit asks for, and shares of hidden sets.

To the linear learner they are sets in parts like any others. What is asked of a party holds its own
sets, and of all others together only how many rows they have and their average share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from unmix.core.class_shares import ClassShares
from unmix.core.set_risks import SetEffectRisk
from unmix.core.share_density import ShareResiduals
from unmix.federated.agreement import Agreement
from unmix.federated.party import RATE
from unmix.federated.replies import Conversation, Field, Form, stop
from unmix.learn.hidden_sets import HiddenSets
from unmix.learn.linear_fit import fit_linear
from unmix.learn.methods import METHODS, method_named
from unmix.learn.models import Hidden, Learner, Setup
from unmix.learn.sets_in_parts import SetsInParts
from unmix.learn.sums import Question

__all__ = [
    "PartyFold",
    "PartySets",
    "fit_party_sets",
    "joined_others",
    "own_question",
    "point_of",
    "told_of",
    "with_effect",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

ROUNDING = 1e-3  # of encoded numbers and what follows, as a share


FitTo = Callable[["PartySets", Setup, Learner | None], Learner]


@dataclass(frozen=True, eq=False)
class PartyParts:
    """`Parts` whose rows are with parties, for all sets or some of them.

    Parameters
    ----------
    conversation : Conversation
    agreement : Agreement
    chosen : array of integers, shape (m,)
        The numbers of the sets; one that is named twice is two sets.
    rows : str
        What the rows are for: one of `unmix.federated.party.USES`.
    """

    conversation: Conversation
    agreement: Agreement
    chosen: IntArray
    rows: str = "kept"

    def own(self, party: int) -> IntArray:
        """Return which of the chosen sets are those of a party."""
        return np.flatnonzero(self.agreement.party_of_set[self.chosen] == party)

    @property
    def part_sets(self) -> list[IntArray]:
        """Rows of each set in each part (m,)."""
        kept, found = self.agreement.sizes[self.rows][self.chosen], []
        for party in range(len(self.agreement.parties)):
            own = np.zeros_like(kept)
            own[self.own(party)] = kept[self.own(party)]
            found.append(own)
        return found

    @property
    def part_rows(self) -> list[int]:
        """Rows in each part."""
        return [int(sizes.sum()) for sizes in self.part_sets]

    @property
    def num_features(self) -> int:
        """Columns of the matrix of a party."""
        return len(self.agreement.encoder.feature_names)

    def ask(
        self,
        question: Question,
        point: npt.NDArray[Any],
        answered: Callable[[int], None] = lambda part: None,
        *,
        hidden: Hidden | None = None,
        slopes: bool = True,
    ) -> list[FloatArray]:
        """Return the answer of every party that has some of the sets.

        Parameters are those of `Parts.ask`, and for a network its hidden layers, and whether the
        gradient is wanted.
        """
        asked = [i for i in range(len(self.agreement.parties)) if len(self.own(i))]
        texts, arrays, forms = [], [], []
        for party in asked:
            own = self.own(party)
            text, given = own_question(question, own)
            numbers = self.chosen[own] - self.agreement.first[party]
            text |= {"sets": numbers.tolist(), "rows": self.rows}
            if hidden is not None:
                text |= {"hidden": list(hidden), "slopes": slopes}
            texts.append(text)
            arrays.append(given | {"point": point})
            form = {"sums": Field((1 + slopes * len(point),), "float32")}
            forms.append(self._form(question, point, len(given["sizes"])) if not hidden else form)
        replies = self.conversation.ask("sums", texts, arrays, forms, asked)
        found = []
        for party, reply, given in zip(asked, replies, arrays, strict=True):
            sums = reply.arrays["sums"]
            if hidden is None:
                self._check(party, question, sums)
            if question.about == "offsets":
                sums = self._placed(sums, self.own(party), len(given["sizes"]))
            elif question.about == "effects":
                # A mean over sets, of which the party knows its own and one for all others.
                sums = sums * (len(given["sizes"]) / np.count_nonzero(question.set_sizes))
            found.append(sums)
            answered(party)
        return found

    def _check(self, party: int, question: Question, sums: FloatArray) -> None:
        """Refuse sums that no rows of this party can have; there are lies that nobody can see."""
        name = self.agreement.parties[party]
        if question.about == "offsets" and (sums[sums.size // 2 :] < 0).any():
            stop(name, "sent variances that are negative")
        if question.about != "losses" or self.agreement.noise is not None:
            return
        # By Cauchy and Schwarz: the derivative of a loss by a logit is at most 1, and the squares
        # of a standardised column add up to the number of all rows.
        rows, times = self.part_rows[party], int(np.bincount(self.chosen).max())
        most = np.sqrt(rows * times * self.agreement.sizes["kept"].sum()) / question.num_rows
        if sums[0] < -ROUNDING or (abs(sums[1:]) > most * (1 + ROUNDING)).any():
            stop(name, f"sent sums that its {rows:,} rows cannot have")

    def _form(self, question: Question, point: npt.NDArray[Any], num_sets: int) -> Form:
        """Return what the answer of a party must look like."""
        free = 1 if question.set_priors.num_classes == 2 else question.set_priors.num_classes - 1
        lengths = {
            "losses": 1 + len(point),
            "counts": 1 + len(point),
            "effects": len(point),  # which ends with tau
            "offsets": 2 * num_sets * free,
            "scores": 3,
        }
        return {"sums": Field((lengths[question.about],))}

    def _placed(self, offsets: FloatArray, own: IntArray, num_sets: int) -> FloatArray:
        """Put the offsets of a party's sets among those of all."""
        of_sets = offsets.reshape(2, num_sets, -1)
        found = np.zeros((2, len(self.chosen), of_sets.shape[2]))
        found[:, own] = of_sets[:, : len(own)]
        return found.ravel()


def own_question(question: Question, own: IntArray) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a party is told of a question, as text and arrays: all other sets are one."""
    matrix, sizes, counted, errors = joined_others(question.set_priors, question.set_sizes, own)
    text = {"about": question.about, "method": question.method, "num_rows": question.num_rows}
    target = np.atleast_1d(np.asarray(question.target_prior, dtype=np.float64))
    return text, {
        "shares": matrix,
        "sizes": sizes.astype(np.int64),
        "counted": np.where(np.isfinite(counted), counted, RATE),
        "errors": errors,
        "target": target,
    }


def joined_others(
    shares: ClassShares, sizes: IntArray, own: IntArray
) -> tuple[FloatArray, IntArray, FloatArray, FloatArray]:
    """Return what a party may know of all sets: its own, and all others as one, if there are any.

    Returns
    -------
    shares (m', K), sizes (m',), rows of which shares were counted (m',), errors of shares (m',)
    """
    matrix, sizes, precision = shares.matrix, np.asarray(sizes), shares.precision
    assert precision is not None  # every party has told it
    counted = np.where(precision.exact, precision.counted, np.inf)[own]
    own_matrix, own_sizes, errors = matrix[own], sizes[own], precision.errors[own]
    others = np.ones(len(sizes), dtype=bool)
    others[own] = False
    if sizes[others].any():
        average = sizes[others] @ matrix[others] / sizes[others].sum()
        own_matrix = np.vstack((own_matrix, average / average.sum()))
        own_sizes = np.append(own_sizes, sizes[others].sum())
        counted, errors = np.append(counted, np.inf), np.append(errors, 0.0)
    return own_matrix, own_sizes, counted, errors


@dataclass(frozen=True, eq=False)
class PartySets(SetsInParts):
    """All sets of all parties, or some of them, at a target prior; no row of them is here."""

    @classmethod
    def of(cls, conversation: Conversation, agreement: Agreement, target_prior: Any) -> PartySets:
        """Return all sets of all parties."""
        everything = np.arange(len(agreement.set_ids))
        parts = PartyParts(conversation, agreement, everything)
        return cls(parts, None, agreement.shares, target_prior, agreement.set_ids)

    @property
    def asked(self) -> PartyParts:
        """Who is asked."""
        assert isinstance(self.parts, PartyParts)
        return self.parts

    def rows_for(self, rows: str) -> PartySets:
        """Return the same sets with the rows for another use."""
        return replace(self, parts=replace(self.asked, rows=rows))

    def take_sets(self, chosen: IntArray, target_prior: Any = None) -> PartySets:
        """Return some of the sets; one that is named twice is two sets."""
        parts = replace(self.asked, chosen=self.asked.chosen[chosen])
        ids = tuple(self.set_ids[j] for j in chosen)
        target = self.target_prior if target_prior is None else target_prior
        return PartySets(parts, None, self.set_priors.take(chosen), target, ids)


def fit_party_sets(
    sets: PartySets, setup: Setup, *, start: Learner | None = None, rough: bool = False
) -> Learner:
    """Fit a linear model of a given strength to the rows of all parties.

    Parameters
    ----------
    sets : PartySets
    setup : Setup
        With a strength of the penalty.
    start : Learner, optional
        Where to begin.
    rough : bool
        Stop early: the fit is one of many.
    """
    assert setup.l2 is not None
    method = method_named(setup.method)
    fit = fit_linear(
        sets,
        method=method,
        l2=setup.l2,
        start=None if start is None else start.fit,  # type: ignore[arg-type]
        rough=rough,
    )
    return with_effect(Learner(setup, fit, fit.base_prior, sets.set_priors, []), sets)


def _fit_roughly(sets: PartySets, setup: Setup, start: Learner | None) -> Learner:
    """Fit a linear model that is only compared with others."""
    return fit_party_sets(sets, setup, start=start, rough=True)


def with_effect(learner: Learner, sets: PartySets) -> Learner:
    """Return the learner with the size of the set effect, if its method has one."""
    method = method_named(learner.setup.method)
    if not isinstance(method.risk(sets.transition), SetEffectRisk):
        return learner
    return replace(learner, tau=sets.effect_size(point_of(learner.fit), method))


def point_of(fit: Any) -> FloatArray:
    """Return weights and bias of a linear fit in one vector."""
    return np.concatenate((np.ravel(fit.weights), np.ravel(fit.bias)))


def told_of(fit: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a party is told of a fit whose logits it is to work out, as text and arrays."""
    if not hasattr(fit, "module"):
        return {}, {"point": point_of(fit)}
    from unmix.learn.network_sums import weights_of

    network = fit.options["network"]
    return {"hidden": [network["depth"], network["width"]]}, {"point": weights_of(fit.module)}


class PartyFold(HiddenSets):
    """Some sets hidden from the fit to the others; each party tells how its own are predicted.

    Parameters
    ----------
    sets : PartySets
    hidden : array of integers
    fit : function (sets, setup, start) -> Learner, optional
        How to fit to some sets; a linear model if left out.
    """

    def __init__(self, sets: PartySets, hidden: IntArray, fit: FitTo | None = None) -> None:
        super().__init__(sets.set_priors, sets.set_sizes, hidden, least_rows=1)
        self.hidden, self._fit = hidden, fit or _fit_roughly
        self._seen = np.setdiff1d(np.arange(sets.num_sets), hidden)

    def fitted(
        self, view: PartySets, setup: Setup, before: Learner | None, categorical: Sequence[int]
    ) -> Learner:
        """Fit to the sets that are not hidden, at their own average share."""
        return self._fit(view.take_sets(self._seen, self.pooled), setup, before)

    def predicted(
        self, view: PartySets, setup: Setup, learner: Learner
    ) -> tuple[FloatArray, FloatArray, list[ShareResiduals]]:
        """Ask the parties of the hidden sets for their predicted shares and residuals."""
        agreement, h = view.asked.agreement, len(self.hidden)
        K = agreement.shares.num_classes
        rules = METHODS[setup.method].residual_rules
        shape, free = (() if K == 2 else (K,)), K - 1
        owners = agreement.party_of_set[self.hidden]
        asked = sorted(set(owners.tolist()))
        places = [np.flatnonzero(owners == party) for party in asked]
        forms = [_shares_form(len(own), shape, free, len(rules)) for own in places]
        about, point = told_of(learner.fit)
        texts = [
            about
            | {"sets": (self.hidden[own] - agreement.first[party]).tolist(), "method": setup.method}
            for party, own in zip(asked, places, strict=True)
        ]
        arrays = point | {"base": np.asarray(learner.base_prior)}
        replies = view.asked.conversation.ask("shares", texts, arrays, forms, asked)
        found = {name: np.zeros((h, *field.shape[1:])) for name, field in forms[0].items()}
        for own, reply in zip(places, replies, strict=True):
            for name, array in reply.arrays.items():
                found[name][own] = array
        shares, errors = found["predicted"], found["errors"]
        if K == 2:
            shares = np.stack([1 - shares, shares], axis=1)
            errors = np.stack([errors, errors], axis=1)
        residuals = [
            ShareResiduals(*(found[f"{name}{i}"] for name in ShareResiduals._fields))
            for i in range(len(rules))
        ]
        return shares, errors, residuals


def _shares_form(num_sets: int, shape: tuple[int, ...], free: int, num_rules: int) -> Form:
    """Return what a party's reply about hidden sets must look like."""
    form = {
        "predicted": Field((num_sets, *shape), least=0.0, most=1.0),
        "errors": Field((num_sets, *shape), least=0.0),
    }
    for i in range(num_rules):
        form |= {
            f"residuals{i}": Field((num_sets, free)),
            f"variances{i}": Field((num_sets, free), least=0.0),
            f"log_slopes{i}": Field((num_sets,)),
        }
    return form
