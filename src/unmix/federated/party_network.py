"""A network learned from the gradients of parties: FedSGD, with Adam and all weights at the server.

Every round is one step against the gradient over the rows of all parties, which is that of all rows
in one place. The loop is the one of any network (`unmix.learn.training`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from unmix.errors import InputError
from unmix.federated.party_sets import PartySets
from unmix.learn.methods import method_named
from unmix.learn.models import Hidden, Learner, Setup
from unmix.learn.network_models import NetworkFit
from unmix.learn.network_sums import build_plain, plain_options, weights_of
from unmix.learn.recipes import Recipe
from unmix.learn.sets_in_parts import asked_criterion
from unmix.learn.sums import Question
from unmix.learn.training import train
from unmix.learn.training_state import TrainingState

__all__ = ["HIDDEN", "METHOD", "fit_party_network"]

METHOD = "ssc"
HIDDEN: Hidden = (2, 128)
ROUNDS, RATE, DECAY = 100, 3e-3, 0.1
CHECKED_EVERY = 5  # rounds


@dataclass(frozen=True, eq=False)
class PartyGradients:
    """`Collective` of a network whose rows are with parties."""

    sets: PartySets
    question: Question
    network: nn.Module
    hidden: Hidden

    def learn(self, state: TrainingState) -> Tensor:
        """Ask all parties for the loss and its gradient at the weights of now."""
        found = self.asked(self.network, slopes=True)
        start = 1
        for p in self.network.parameters():
            assert p.grad is not None  # the loop has made room for it
            p.grad.copy_(torch.from_numpy(found[start : start + p.numel()]).view_as(p))
            start += p.numel()
        return torch.tensor(found[0])

    def asked(self, network: nn.Module, *, slopes: bool) -> npt.NDArray[np.float32]:
        """Return the sums of all parties."""
        answers = self.sets.asked.ask(
            self.question, weights_of(network), hidden=self.hidden, slopes=slopes
        )
        return np.asarray(np.sum(answers, axis=0, dtype=np.float64), dtype=np.float32)


def fit_party_network(sets: PartySets, setup: Setup, *, rounds: int | None = None) -> Learner:
    """Train a network on the rows of all parties.

    Parameters
    ----------
    sets : PartySets
    setup : Setup
    rounds : int, optional
        To train on all rows for; if left out, as many as leave the least loss on the rows that are
        checked, after a training on the others.
    """
    method, hidden = method_named(setup.method), setup.hidden or HIDDEN
    if not asked_criterion(method, sets, np.zeros(sets.num_sets)).in_blocks:
        raise InputError(f"networks of parties learn by method {METHOD}, not by {method.name}")
    if rounds is None:
        rounds = _best_rounds(sets, setup, hidden)
    base = method.base_prior(sets.transition)
    trained = _trained(sets, setup, hidden, stop=rounds)
    fit = NetworkFit(trained.model, plain_options(sets.row_shape, base, hidden), rounds)
    return Learner(setup, fit, base, sets.set_priors, trained.history)


def _best_rounds(sets: PartySets, setup: Setup, hidden: Hidden) -> int:
    """Return after how many rounds a network predicts the sets of rows best that it did not see."""
    checked = sets.rows_for("checked")
    question = checked.question("losses", method_named(setup.method))
    times = 0

    def loss(network: nn.Module, rows: Any) -> float:
        nonlocal times
        times += 1
        if times % CHECKED_EVERY:
            return np.inf
        asked = PartyGradients(checked, question, network, hidden)
        return float(asked.asked(network, slopes=False)[0])

    trained = _trained(sets.rows_for("fitted"), setup, hidden, held_out=checked, judge=loss)
    return trained.selected_epoch or ROUNDS


def _trained(sets: PartySets, setup: Setup, hidden: Hidden, **options: Any) -> Any:
    """Train a network of its own start; see `unmix.learn.training.train`."""
    method = method_named(setup.method)
    base = method.base_prior(sets.transition)
    network = build_plain(plain_options(sets.row_shape, base, hidden), seed=setup.seed)
    question = sets.question("losses", method)
    recipe = Recipe("parties", setup.epochs or ROUNDS, RATE, "cosine", weight_decay=DECAY)
    return train(
        network,
        sets,
        method,
        recipe,
        seed=setup.seed,
        batches=1,
        device="cpu",
        collective=lambda run: PartyGradients(sets, question, run.network, hidden),
        **options,
    )
