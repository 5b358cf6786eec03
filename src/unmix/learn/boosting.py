"""Gradient boosting (LightGBM) on the SSC loss: the learner for tables.

The gradient is the closed form of `core.losses`, the Hessian the Fisher information, read off a
table. Because that Hessian is in units of information, not of rows, the same defaults suit sets
that say little and sets that say much. This file knows no labels, files or column names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

import lightgbm as lgb
import numpy as np
import torch

from unmix.core.losses import ssc_cross_entropy, ssc_cross_entropy_gradient
from unmix.core.transition import Transition
from unmix.data.sets import UnlabeledSets
from unmix.errors import InputError
from unmix.learn.fisher_table import FisherTable
from unmix.learn.refining import check_prior_errors, refine_priors

__all__ = ["BoostingFit", "BoostingOptions", "fit_boosting"]

Array = np.ndarray[Any, Any]
Progress = Callable[[int, int, str], None]

# Far below the information of any row that matters; it only keeps LightGBM from dividing by zero.
LEAST_HESSIAN = 1e-12


@dataclass(frozen=True)
class BoostingOptions:
    """How trees are grown. Sums of Hessians count information: a fair label is worth 1/4."""

    num_leaves: int = 7
    """Leaves of a tree; the set index is a noisy label, large trees learn the noise."""
    learning_rate: float = 0.1
    """Share of each tree that is added."""
    min_child_samples: int = 20
    """Least rows in a leaf."""
    min_sum_hessian_in_leaf: float = 5.0
    """Least information in a leaf, 5 being about 20 labels."""
    lambda_l2: float = 10.0
    """Information added to each leaf that says: change nothing."""
    bagging_fraction: float = 0.7
    """Share of the rows each tree sees."""
    feature_fraction: float = 1.0
    """Share of the columns each tree sees."""
    max_bin: int = 63
    """Steps a number is cut into."""
    patience: int = 50
    """Rounds without a better held-out loss before training stops."""


    def __post_init__(self) -> None:
        for option in fields(self):
            if not getattr(self, option.name) >= (option.name == "patience"):
                raise InputError(
                    f"{option.name} must not be negative; got {getattr(self, option.name)!r}"
                )


@dataclass(frozen=True, eq=False)
class BoostingFit:
    """A boosted model: everything prediction needs, as text and numbers."""

    model_text: str
    """LightGBM's own format; it does not hold the objective, so it predicts raw sums."""
    base_logits: Array
    """Where the trees start: logit of the target prior, shape (); K classes its log, (K,)."""
    num_rounds: int
    """Rounds in the model; those after the best one are left out."""
    set_priors: Array
    """As stated, or refined if standard errors were given."""
    history: list[dict[str, float]]
    """One row per round: round and, if rows were held out, held_out_loss."""
    num_features: int
    """Columns of x."""

    @cached_property
    def booster(self) -> lgb.Booster:
        """The model, read back from its text when it is first needed."""
        return lgb.Booster(model_str=self.model_text)

    def logits(self, x: Array) -> Array:
        """Return logits at the target prior, (n,) or (n, K), of rows (n, num_features)."""
        if x.ndim != 2 or x.shape[1] != self.num_features:
            raise InputError(
                f"the model was trained on {self.num_features} columns; got rows of shape "
                f"{x.shape[1:]}: give the same columns in the same order"
            )
        return np.asarray(self.booster.predict(x, raw_score=True) + self.base_logits)


def fit_boosting(
    sets: UnlabeledSets,
    *,
    held_out: UnlabeledSets | None,
    categorical: Sequence[int] = (),
    max_rounds: int = 500,
    seed: int = 0,
    prior_errors: Array | None = None,
    num_threads: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> BoostingFit:
    """Boost trees on the SSC loss.

    Parameters
    ----------
    sets : UnlabeledSets
        Its x is a matrix (n, d) of numbers; NaN means missing.
    held_out : UnlabeledSets or None
        Rows of the same sets: training stops when their set log-loss gets no better, and the best
        round is kept. None: all rounds are trained and kept.
    categorical : sequence of int
        Columns that hold category codes: whole numbers from 0.
    max_rounds : int
    seed : int
        Decides the rows (and columns) each tree sees.
    prior_errors : array, shape (m,), optional
        Standard errors of the stated set priors, 0 for exact ones (two classes only). The priors
        are then refined on rows that the refining models did not see, at three times the cost.
    num_threads : int, optional
        All cores if left out. The same number gives the same model, to the bit.
    progress : function (rounds done, most rounds, text), optional
    **options
        Fields of `BoostingOptions`.
    """
    unknown = set(options) - {option.name for option in fields(BoostingOptions)}
    if unknown:
        known = ", ".join(option.name for option in fields(BoostingOptions))
        raise InputError(f"boosting has no option {sorted(unknown)[0]!r}; its options are {known}")
    boost = _Boosting(
        BoostingOptions(**options), tuple(categorical), max_rounds, seed, num_threads, progress
    )
    _check(sets, held_out, boost)
    stated = np.asarray(sets.set_priors, dtype=np.float64)
    if prior_errors is None:
        return boost(sets, held_out, stated)
    errors = check_prior_errors(prior_errors, stated)
    return boost(sets, held_out, _refined_by_halves(sets, stated, errors, boost))


def _refined_by_halves(
    sets: UnlabeledSets, stated: Array, errors: Array, boost: _Boosting
) -> Array:
    """Refine the priors, the logits of each half of the rows coming from the other half's model."""
    halves = sets.hold_out(0.5, np.random.default_rng(np.random.SeedSequence([boost.seed, 1])))
    set_index = np.concatenate([half.set_index for half in halves])
    priors = stated
    for _ in range(REFINEMENTS):
        fits = [boost(half, other, priors) for half, other in (halves, halves[::-1])]
        logits = [fit.logits(half.x) for fit, half in zip(fits[::-1], halves, strict=True)]
        priors = refine_priors(
            np.concatenate(logits), set_index, stated, errors, sets.set_sizes, sets.target_prior
        )
    return priors


@dataclass(frozen=True)
class _Boosting:
    """How to boost; calling it does so."""

    options: BoostingOptions
    categorical: tuple[int, ...]
    max_rounds: int
    seed: int
    num_threads: int | None
    progress: Progress | None

    def __call__(
        self, sets: UnlabeledSets, held_out: UnlabeledSets | None, set_priors: Array
    ) -> BoostingFit:
        """Boost with the given set priors in place of the stated ones."""
        transition = Transition(set_priors, sets.set_sizes, sets.target_prior)
        target = transition.target.numpy()
        base = np.log(target[1] / target[0]) if transition.binary else np.log(target)
        train = self._dataset(sets, base)
        booster = lgb.Booster(self._parameters(transition), train)
        objective = _objective(sets, transition)
        if held_out is not None:
            booster.add_valid(self._dataset(held_out, base, reference=train), "held out")
            loss = _held_out_loss(held_out, set_priors)
        history: list[dict[str, float]] = []
        best = 0
        for done in range(1, self.max_rounds + 1):
            if booster.update(fobj=objective):
                break  # no leaf can be split any more
            history.append({"round": done})
            if held_out is None:
                best = done
            else:
                history[-1]["held_out_loss"] = booster.eval_valid(loss)[0][2]
                if best == 0 or history[-1]["held_out_loss"] < history[best - 1]["held_out_loss"]:
                    best = done
                if done - best >= self.options.patience:
                    break
            if self.progress:
                self.progress(done, self.max_rounds, f"round {done}")
        return BoostingFit(
            model_text=booster.model_to_string(num_iteration=best),
            base_logits=np.asarray(base),
            num_rounds=best,
            set_priors=set_priors,
            history=history,
            num_features=sets.x.shape[1],
        )

    def _dataset(
        self, sets: UnlabeledSets, base: Array, reference: lgb.Dataset | None = None
    ) -> lgb.Dataset:
        """Return the rows as LightGBM holds them, started at the base logits."""
        return lgb.Dataset(
            sets.x,
            init_score=np.broadcast_to(base, (len(sets), *np.shape(base))),
            reference=reference,
            categorical_feature=list(self.categorical),
            params=self._parameters(None),
        )

