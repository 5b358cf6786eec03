"""Gradient boosting (LightGBM) on the SSC loss: the learner for tables.

The gradient is the closed form of `core.losses`, the Hessian the Fisher information, read off a
table. Because that Hessian counts information and not rows, the same defaults suit sets that say
little and sets that say much. This file knows no labels, files or column names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from operator import index
from typing import TYPE_CHECKING, Any, cast

import lightgbm as lgb
import numpy as np

from unmix.core.class_shares import ClassShares, check_errors, num_logits
from unmix.core.risks import MeanLoss
from unmix.core.row_losses import set_log_loss
from unmix.core.transition import Transition
from unmix.data.sets import UnlabeledSets
from unmix.errors import InputError
from unmix.learn.methods import METHODS, Method, method_named
from unmix.learn.models import HELD_OUT, Form, Learner, Model, Setup, Spread, tasks_here
from unmix.learn.saved_state import numbers
from unmix.learn.sets_in_parts import SetsInParts, refuse_whole_sets
from unmix.learn.sums import num_threads, one_thread
from unmix.learn.tree_text import checked_trees
from unmix.progress import Progress

if TYPE_CHECKING:
    from unmix.learn.checkpoint import Checkpoint
    from unmix.learn.part_files import FileParts

__all__ = [
    "ROWS",
    "BoostingFit",
    "BoostingOptions",
    "BoostingPlan",
    "evaluation",
    "fit_boosting",
    "learning_rate",
    "objective",
]

Array = np.ndarray[Any, Any]

# Far below the information of any row that matters; it only keeps sums of Hessians positive.
LEAST_HESSIAN = 1e-12
# The second pass refines with models that were trained on better priors; a third changes little.
REFINING_PASSES = 2
# Information of 80,000 labels. From here on, large steps cost nothing and halve the time.
MUCH_INFORMATION = 20_000
# Fewer leave none to hold out whole; then all rounds are trained.
LEAST_SETS = 10
MOST_ROUNDS = 500
MOST_FEATURES = 1_000_000  # of a saved model
BLOCK_ROWS = 16_384  # whose gradients are worked out at a time
# What LightGBM accepts, so that a mistake is told in our words.
RANGES = {
    "num_leaves": (2, 131_072),
    "learning_rate": (1e-6, 1),
    "min_child_samples": (1, np.inf),
    "min_sum_hessian_in_leaf": (0, np.inf),
    "lambda_l2": (0, np.inf),
    "bagging_fraction": (1e-6, 1),
    "feature_fraction": (1e-6, 1),
    "max_bin": (2, 65_535),
    "patience": (1, np.inf),
}


@dataclass(frozen=True)
class BoostingOptions:
    """How trees are grown. Hessians count information, of which one fair label holds 1/4."""

    num_leaves: int = 7
    """Leaves of a tree. The set index is a noisy label, and large trees learn the noise."""
    learning_rate: float | None = None
    """Share of each tree that is added: 0.1, or 0.2 where there is plenty of information."""
    min_child_samples: int = 5
    """Least rows in a leaf."""
    min_sum_hessian_in_leaf: float = 1.0
    """Least information in a leaf; 1 is that of 4 labels."""
    lambda_l2: float = 10.0
    """Information that speaks for no change, added to each leaf; 10 is that of 40 labels."""
    bagging_fraction: float = 0.7
    """Share of the rows each tree sees."""
    feature_fraction: float = 1.0
    """Share of the columns each tree sees."""
    max_bin: int = 63
    """Steps that a column of numbers is cut into."""
    patience: int = 50
    """Rounds without a better held-out loss before training stops."""

    def __post_init__(self) -> None:
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise InputError(f"{name} must lie between {low:g} and {high:g}; got {value!r}")


@dataclass(frozen=True, eq=False)
class BoostingFit:
    """A boosted model: all that prediction needs, as text and numbers."""

    model_text: str
    """LightGBM's own format. It does not hold the objective, so it predicts raw sums of trees."""
    base_logits: Array
    """Where the trees start: logit of the target prior, shape (); for K classes its log, (K,)."""
    num_rounds: int
    """Rounds in the model; those after the best one are left out."""
    set_priors: ClassShares
    """As stated, or refined if standard errors were given."""
    history: list[dict[str, float]]
    """One row per round: round and, if rows were held out, held_out_loss."""
    num_features: int
    """Columns of x."""

    @cached_property
    def booster(self) -> lgb.Booster:
        """The model, read back from its text when it is first needed."""
        return lgb.Booster(model_str=self.model_text)

    @property
    def form(self) -> Form:
        """The rows it takes and the logits it gives."""
        return (self.num_features,), self.base_logits.size

    def logits(self, x: Array) -> Array:
        """Return logits at the target prior, (n,) or (n, K), of rows (n, num_features)."""
        if x.ndim != 2 or x.shape[1] != self.num_features:
            raise InputError(
                f"the model takes rows of {self.num_features} columns; got an array of shape "
                f"{x.shape}: give the columns of training, in their order"
            )
        return np.asarray(self.booster.predict(x, raw_score=True) + self.base_logits)

    def facts(self) -> dict[str, Any]:
        """Return what a saved model needs besides the trees."""
        return {
            "base_logits": np.asarray(self.base_logits).tolist(),
            "num_rounds": self.num_rounds,
            "num_features": self.num_features,
        }

    def weights_file(self) -> bytes:
        """Return the trees as a file."""
        return self.model_text.encode()


@dataclass(frozen=True)
class BoostingPlan:
    """What is the same in all fits of one call."""

    options: BoostingOptions
    categorical: tuple[int, ...]
    max_rounds: int
    seed: int
    num_threads: int | None
    progress: Progress | None
    method: Method

    def parameters(self, num_outputs: int, learning_rate: float) -> dict[str, Any]:
        """Return LightGBM's parameters, with the given learning rate unless the user chose one."""
        options = asdict(self.options)
        del options["patience"]
        options["learning_rate"] = self.options.learning_rate or learning_rate
        return options | {
            "objective": "none",
            "metric": "none",
            "num_class": num_outputs,
            "bagging_freq": 1,
            "seed": self.seed,
            "num_threads": self.num_threads or 0,
            "deterministic": True,
            "force_col_wise": True,
            "feature_pre_filter": False,
            "verbosity": -1,
        }


def fit_boosting(
    sets: UnlabeledSets,
    *,
    method: str | Method = METHODS["ssc"],
    held_out: UnlabeledSets | None,
    categorical: Sequence[int] = (),
    max_rounds: int = MOST_ROUNDS,
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
    method : Method or its name
        One whose risk is a mean over rows and whose information is known.
    held_out : UnlabeledSets or None
        Other rows of the same sets. Training stops when their set log-loss gets no better, and
        the best round is kept. None: all rounds are trained and kept.
    categorical : sequence of int
        Columns that hold category codes: whole numbers from 0.
    max_rounds : int
    seed : int
        Decides the rows (and columns) that each tree sees.
    prior_errors : array, shape (m,), optional
        Standard errors of the stated set priors, 0 for exact ones. The priors are then refined
        before the model is trained, which takes about twice as long again.
    num_threads : int, optional
        All cores if left out. The same number gives the same model, to the bit.
    progress : function (rounds done, most rounds, text), optional
    **options
        Fields of `BoostingOptions`.
    """
    known = [option.name for option in fields(BoostingOptions)]
    for name in options:
        if name not in known:
            raise InputError(f"boosting has no option {name!r}; it has {', '.join(known)}")
    plan = BoostingPlan(
        BoostingOptions(**options),
        tuple(categorical),
        max_rounds,
        seed,
        num_threads,
        progress,
        method_named(method),
    )
    _check(sets, held_out, plan)
    priors, errors = sets.set_priors, check_errors(prior_errors, sets.num_sets)
    if plan.method.refines and errors.any():
        priors = _refined(sets, errors, plan)
    return _boost(sets, held_out, priors, plan, "boosting")


@dataclass(frozen=True, eq=False)
class _OtherHalf:
    """Trees for each half of some rows, which tell the logits of the other: a task for workers."""

    halves: tuple[UnlabeledSets, UnlabeledSets]
    priors: ClassShares
    plan: BoostingPlan

    def __getstate__(self) -> dict[str, Any]:
        """Return what goes to another process: of a method, its name."""
        plan = replace(self.plan, method=self.plan.method.name)  # type: ignore[arg-type]
        return {"halves": self.halves, "priors": self.priors, "plan": plan}

    def __call__(self, number: int) -> Array:
        """Return the logits of the half that the trees have not seen."""
        seen, unseen = self.halves[number], self.halves[1 - number]
        plan = replace(self.plan, method=method_named(self.plan.method))
        fit = _boost(seen, unseen, self.priors, plan, "refining set priors")
        return fit.logits(unseen.x)


def _refined(
    sets: UnlabeledSets, errors: Array, plan: BoostingPlan, spread: Spread = tasks_here
) -> ClassShares:
    """Refine set priors on logits that come, for each half of the rows, from the other half."""
    from unmix.learn.refined_priors import refine_priors

    rng = np.random.default_rng(np.random.SeedSequence([plan.seed, 1]))
    first, second = sets.hold_out(0.5, rng)
    set_index = np.concatenate((second.set_index, first.set_index))
    priors: ClassShares = sets.set_priors
    for _ in range(REFINING_PASSES):
        logits = spread(_OtherHalf((first, second), priors, plan), 2, lambda number: None)
        priors = refine_priors(
            np.concatenate(logits),
            set_index,
            sets.set_priors,
            errors,
            sets.set_sizes,
            sets.transition.arrays.target,
        )
    return priors


def _boost(
    sets: UnlabeledSets,
    held_out: UnlabeledSets | None,
    priors: ClassShares,
    plan: BoostingPlan,
    doing: str,
) -> BoostingFit:
    """Boost with the given set priors in place of those that the sets carry."""
    transition = Transition(priors, sets.set_sizes, sets.target_prior)
    prior = plan.method.base_prior(transition)
    base = np.log(prior[1] / prior[0]) if transition.binary else np.log(prior)
    assert plan.method.information is not None  # `_check` looked
    hessian, risk = plan.method.information(transition), plan.method.risk(transition)
    rate = learning_rate(plan, transition, base, sets.set_index, len(sets))
    parameters = plan.parameters(base.size, rate)
    train = _dataset(sets, base, parameters, plan)
    booster = lgb.Booster(parameters, train)
    gradients = objective(sets, base, risk, hessian, plan)
    if held_out is not None:
        booster.add_valid(_dataset(held_out, base, parameters, plan, train), "held_out")
        evaluate = evaluation(held_out, plan.method, priors, prior)

    history: list[dict[str, float]] = []
    best, least = 0, np.inf
    for done in range(1, plan.max_rounds + 1):
        if booster.update(fobj=gradients):
            break  # No leaf can be split any more.
        row: dict[str, float] = {"round": done}
        if held_out is None:
            best = done
        else:
            row["held_out_loss"] = booster.eval_valid(evaluate)[0][2]
            if row["held_out_loss"] < least:
                best, least = done, row["held_out_loss"]
        history.append(row)
        if plan.progress:
            plan.progress(done, plan.max_rounds, doing)
        if done - best >= plan.options.patience:
            break
    return BoostingFit(
        model_text=booster.model_to_string(num_iteration=best),
        base_logits=np.asarray(base),
        num_rounds=best,
        set_priors=priors,
        history=history,
        num_features=sets.x.shape[1],
    )


def learning_rate(
    plan: BoostingPlan, transition: Transition, base: Array, set_index: Array, num_rows: int
) -> float:
    """Return how large steps may be, by what so many rows like these say at the start."""
    assert plan.method.information is not None
    start = np.broadcast_to(base, (len(set_index), *base.shape))
    of_rows = plan.method.information(transition)(start, set_index)
    information = of_rows.reshape(len(set_index), -1).sum(axis=0).max()
    return 0.2 if information * num_rows / len(set_index) > MUCH_INFORMATION else 0.1


def objective(
    sets: UnlabeledSets,
    base: Array,
    risk: Any,
    hessian: Callable[[Array, Array], Array],
    plan: BoostingPlan,
) -> Callable[[Array, Any], tuple[Array, Array]]:
    """Return the function from logits to gradient and Hessian that LightGBM calls each round."""
    set_index = sets.set_index
    threads = num_threads() if plan.num_threads is None else plan.num_threads
    # As LightGBM takes them, so that it need not copy: in float32, a class of all rows together.
    gradient, information = (np.empty((*base.shape, len(sets)), np.float32).T for _ in range(2))
    # A risk of whole sets wants all rows at once; a mean over rows is worked out in the cache.
    step = BLOCK_ROWS if isinstance(risk, MeanLoss) else len(sets)
    blocks = [slice(first, first + step) for first in range(0, len(sets), step)]

    def gradient_and_hessian(logits: Array, _: Any) -> tuple[Array, Array]:
        def work(rows: slice) -> None:
            gradient[rows] = risk.row_gradients(logits[rows], set_index[rows])
            information[rows] = np.maximum(hessian(logits[rows], set_index[rows]), LEAST_HESSIAN)

        with one_thread(threads if len(blocks) > 1 else 1) as side_by_side:
            list(side_by_side(work, blocks))
        return gradient, information

    return gradient_and_hessian


def evaluation(
    held_out: UnlabeledSets, method: Method, priors: ClassShares, base: Array
) -> Callable[[Array, Any], tuple[str, float, bool]]:
    """Return the function from held-out logits, at a base prior, to their loss.

    The set log-loss of rows, or what the method itself minimises if whole sets are held out.
    """
    transition = Transition(priors, held_out.set_sizes, base, scoring=True)
    set_index = held_out.set_index
    risk: Any = method.risk(transition)

    def loss(logits: Array, _: Any) -> tuple[str, float, bool]:
        if method.holds_rows_out:
            value = set_log_loss(logits, set_index, transition)
        else:
            value, _gradient = risk.value_and_gradient(logits, set_index)
        return "held_out_loss", value, False

    return loss


def _dataset(
    sets: UnlabeledSets,
    base: Array,
    parameters: dict[str, Any],
    plan: BoostingPlan,
    reference: lgb.Dataset | None = None,
) -> lgb.Dataset:
    """Return the rows as LightGBM holds them, their logits started at the base."""
    return lgb.Dataset(
        sets.x,
        init_score=np.full((len(sets), *base.shape), base),
        categorical_feature=list(plan.categorical),
        params=parameters,
        reference=reference,
    )


def _check(sets: UnlabeledSets, held_out: UnlabeledSets | None, plan: BoostingPlan) -> None:
    """Refuse what cannot be boosted."""
    if plan.max_rounds < 1:
        raise InputError(f"max_rounds must be 1 or more; got {plan.max_rounds}")
    if plan.method.information is None:
        raise InputError(f"boosting cannot learn by {plan.method.name}: {_refuse(plan.method)}")
    if sets.x.ndim != 2 or sets.x.dtype.kind not in "fiub":
        raise InputError(
            f"boosting takes a matrix of numbers; rows have shape {sets.x.shape[1:]} and type "
            f"{sets.x.dtype}: flatten them, and turn text into category codes"
        )
    num_features = sets.x.shape[1]
    for column in plan.categorical:
        if not 0 <= column < num_features:
            raise InputError(f"categorical column {column} is not one of 0..{num_features - 1}")
    if held_out is not None and (
        held_out.x.shape[1:] != sets.x.shape[1:] or held_out.num_sets != sets.num_sets
    ):
        raise InputError(
            f"held-out rows must come from the same {sets.num_sets} sets of {num_features} "
            f"columns; got {held_out.num_sets} sets and rows of shape {held_out.x.shape[1:]}"
        )


def _fit_model(
    sets: UnlabeledSets | SetsInParts,
    setup: Setup,
    *,
    categorical: Sequence[int] = (),
    prior_errors: Array | None = None,
    progress: Progress | None = None,
    start: BoostingFit | None = None,
    checkpoint: Checkpoint | None = None,
    **_: Any,
) -> Learner:
    """Fit trees, the number of rounds chosen on held-out rows.

    It is known from `start`, a fit to some of these rows: then trees grow on all of them.
    """
    if isinstance(sets, SetsInParts):
        return _fit_in_parts(sets, setup, tuple(categorical), prior_errors, progress, checkpoint)
    kept, held_out, most = sets, None, MOST_ROUNDS
    if start is None:
        kept, held_out = _split(sets, method_named(setup.method), setup.seed)
    else:
        most = max(start.num_rounds, 1)
    fit = fit_boosting(
        kept,
        method=setup.method,
        held_out=held_out,
        max_rounds=most,
        categorical=categorical,
        seed=setup.seed,
        prior_errors=prior_errors,
        # On small tables threads wait for each other more than they work.
        num_threads=1 if len(kept) < 50_000 else None,
        progress=progress,
    )
    base = method_named(setup.method).base_prior(sets.transition)
    refined = fit.set_priors is not sets.set_priors
    return Learner(setup, fit, base, fit.set_priors, fit.history, refined)


def _fit_in_parts(
    sets: SetsInParts,
    setup: Setup,
    categorical: tuple[int, ...],
    prior_errors: Array | None,
    progress: Progress | None,
    checkpoint: Checkpoint | None,
) -> Learner:
    """Fit trees to rows that lie with the workers of an engine.

    Shares with errors are refined before, by trees on a sample of these rows.
    """
    from unmix.learn.trees_in_parts import boost_in_parts

    method, parts = method_named(setup.method), cast("FileParts", sets.parts)
    plan = BoostingPlan(
        BoostingOptions(), categorical, MOST_ROUNDS, setup.seed, None, progress, method
    )
    stated, errors = sets.set_priors, check_errors(prior_errors, sets.num_sets)
    if method.refines and errors.any():
        sample = sets.taken_as("native").part(0)
        alone = replace(plan, num_threads=1, progress=None)
        sets = replace(sets, set_priors=_refined(sample, errors, alone, parts.spread))
    sets = replace(sets, parts=parts.as_taken_by("native"))
    kept, held_out = sets.hold_out(HELD_OUT, np.random.default_rng([setup.seed, 4]))
    fit = boost_in_parts(kept, held_out, plan, checkpoint)
    base, refined = method.base_prior(sets.transition), sets.set_priors is not stated
    return Learner(setup, fit, base, sets.set_priors, fit.history, refined)


def _refuse_parts(sets: SetsInParts, method: Method, errors: Array) -> None:
    """Refuse what rows with workers cannot teach trees."""
    refuse_whole_sets("boosting", method)
    if method.refines and errors.any() and sets.set_priors.grouping is not None:
        raise InputError(
            "shares of several groupings cannot be refined by boosting with an engine; leave their "
            "errors out, or use one grouping"
        )


def _split(
    sets: UnlabeledSets, method: Method, seed: int
) -> tuple[UnlabeledSets, UnlabeledSets | None]:
    """Hold rows out to choose the number of rounds by: of each set, or those of whole sets."""
    rng = np.random.default_rng([seed, 4])
    if method.holds_rows_out:
        return sets.hold_out(HELD_OUT, rng)
    present = np.flatnonzero(sets.set_sizes)
    if len(present) < LEAST_SETS:
        return sets, None
    out = sets.rows_of_sets(rng.permutation(present)[: round(HELD_OUT * len(present))])
    return sets.rows(~out), sets.rows(out)


def _load(
    facts: dict[str, Any], weights: bytes, base_prior: Array, priors: ClassShares
) -> BoostingFit:
    """Build a fit again from a saved model."""
    outputs = num_logits(len(base_prior))
    base = numbers(facts, "base_logits", () if outputs == 1 else (outputs,))
    num_features, num_rounds = index(facts["num_features"]), index(facts["num_rounds"])
    # Column numbers are written out: no more of them than the encoder has, which were read.
    if not (0 < num_features <= MOST_FEATURES and num_rounds >= 0):
        raise ValueError(f"{num_features} features, {num_rounds} rounds")
    return BoostingFit(
        model_text=checked_trees(weights, num_features, outputs),
        base_logits=base,
        num_rounds=num_rounds,
        set_priors=priors,
        history=[],
        num_features=num_features,
    )


def _refuse(method: Method) -> str | None:
    """Say why trees cannot learn by a method."""
    return None if method.information else "trees need the information of its loss"


ROWS = {
    "boosting": Model(
        "boosting",
        _fit_model,
        _load,
        _refuse,
        view="native",
        weights_name="trees.txt",
        in_memory=True,
        in_parts=_refuse_parts,
        unit="",
    )
}
