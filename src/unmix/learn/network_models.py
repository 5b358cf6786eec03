"""Networks as models: the MLP, ResNet-32 and a torch module of the user's own.

Rows may be a matrix or images. What is trained, with which recipe and for how long, is decided
here, and in which stages; `training` does it.
"""

from __future__ import annotations

import copy
import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import nn

from unmix.core.class_shares import ClassShares, as_stated, check_errors, check_prior, num_logits
from unmix.data.sets import UnlabeledSets
from unmix.errors import InputError
from unmix.learn.augment import Augment
from unmix.learn.checkpoint import Checkpoint
from unmix.learn.chosen_strength import train_choosing_strength
from unmix.learn.methods import Method, method_named
from unmix.learn.models import HELD_OUT, MODULE, Form, Learner, Model, Setup
from unmix.learn.networks import CONVOLUTIONAL, build_model
from unmix.learn.own_modules import describe_module
from unmix.learn.penalty_options import Vat
from unmix.learn.prior_check import train_checking_priors
from unmix.learn.recipes import (
    RECIPES,
    WITH_HIDDEN,
    Recipe,
    check_hidden,
    hidden_for,
    is_large,
    recipe_for,
)
from unmix.learn.saved_state import image_shape
from unmix.learn.sets_in_parts import SetsInParts, refuse_whole_sets
from unmix.learn.shards import Shards
from unmix.learn.training import Sets, Trained, is_convolutional, logits_of, train
from unmix.progress import Progress

__all__ = [
    "ROWS",
    "NetworkFit",
    "train_in_stages",
]

Array = np.ndarray[Any, Any]

# Of images: what the studies hold out.
HELD_OUT_IMAGES = 0.05
# A shift by one pixel in so many leaves the class alone, in grey pictures of signs and in photos.
PIXELS_PER_SHIFT = {2: 28, 3: 8}


@dataclass(frozen=True)
class NetworkFit:
    """A trained torch module."""

    module: nn.Module
    options: dict[str, Any] = field(default_factory=dict)
    """What `build_model` needs to build it again; empty for a module of the user's."""
    epoch: int | None = None
    """After which the weights were taken; a saved model does not tell."""

    @property
    def form(self) -> Form | None:
        """The rows it takes and the logits it gives; a module of the user's does not tell."""
        if not self.options:
            return None
        outputs = num_logits(len(self.options["prior"]))
        return tuple(self.options["row_shape"]), outputs

    def logits(self, x: Array) -> Array:
        """Return logits, (n,) or (n, K)."""
        return logits_of(self.module, x).numpy().astype(np.float64)

    def facts(self) -> dict[str, Any]:
        """Return how to build the network again."""
        return dict(self.options) or {"module": describe_module(self.module)}

    def weights_file(self) -> bytes:
        """Return the weights as a file."""
        state = self.module.state_dict()
        # Copies, for two names may share one tensor.
        return bytes(save_tensors({k: v.cpu().contiguous().clone() for k, v in state.items()}))


def _fit_model(
    sets: Sets,
    setup: Setup,
    *,
    prior_errors: Any = None,
    check_priors: bool = False,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
    start: NetworkFit | None = None,
    **_: Any,
) -> Learner:
    """Train a network, the epoch chosen on held-out rows if the method's loss can be held out.

    It is known from `start`, a network trained on some of these rows: then a new one learns from
    all of them until that epoch. Only what chooses more than an epoch holds rows out again.
    """
    method, images = method_named(setup.method), len(sets.row_shape) > 1
    base = method.base_prior(sets.transition)
    kept, held_out, stop = sets, None, None
    in_parts = isinstance(sets, SetsInParts)
    if start is not None and not (method.penalty and method.penalty.candidates):
        stop = start.epoch
    elif method.holds_rows_out:
        share = HELD_OUT_IMAGES if images else HELD_OUT
        # The same rows as a cell of a study with this seed and this share holds out.
        kept, held_out = sets.hold_out(share, np.random.default_rng([setup.seed, 3]))
    module, options = _build(sets, setup, base)
    recipe = _recipe(module, kept, setup, method)
    errors = check_errors(prior_errors, sets.num_sets)
    refining = method.refines and bool(errors.any())

    def rows_done(batches: int, all_batches: int, text: str) -> None:
        if progress is not None:
            total = recipe.epochs * len(kept)
            progress(total * batches // all_batches, total, text)

    trained, found = train_in_stages(
        module,
        kept,
        method,
        recipe,
        seed=setup.seed,
        check_priors=check_priors,
        held_out=held_out,
        prior_errors=errors if refining else None,
        augment=augment_of(sets.row_shape, setup) if recipe.augment and images else None,
        progress=rows_done if progress else None,
        checkpoint=checkpoint,
        collective=Shards.of if in_parts else None,
        **({} if stop is None else {"stop": stop}),
    )
    fit = NetworkFit(trained.selected, options, trained.selected_epoch)
    refined = trained.set_priors is not sets.set_priors
    noticed = found.get("noticed_error", 0.0)
    learner = Learner(setup, fit, base, trained.set_priors, trained.history, refined)
    return replace(learner, noticed_error=noticed)


def augment_of(row_shape: tuple[int, ...], setup: Setup) -> Augment | None:
    """Return how images of a shape are moved about."""
    shift = setup.shift
    if shift is None:
        shift = round(min(row_shape[-2:]) / PIXELS_PER_SHIFT[len(row_shape)])
    return Augment(shift, setup.flip) if shift or setup.flip else None


def _build(sets: Sets, setup: Setup, base: Array) -> tuple[nn.Module, dict[str, Any]]:
    """Return the module to train, started at the base prior, and how to build it again."""
    if isinstance(setup.model, nn.Module):
        return copy.deepcopy(setup.model), {}
    network: dict[str, Any] = {}
    if _is_mlp(setup):
        depth, width = setup.hidden or hidden_for(len(sets), math.prod(sets.row_shape))
        network = {"depth": depth, "width": width}
        if is_large(len(sets)):
            network["dropout"] = 0.0
    options = {
        "name": setup.model_name,
        "row_shape": list(sets.row_shape),
        "prior": base.tolist(),
        "network": network,
    }
    return _built(options, seed=setup.seed), options


def _built(options: dict[str, Any], *, seed: int) -> nn.Module:
    """Build a network by what was written down about it."""
    prior = np.array(options["prior"], dtype=float)
    name = options.get("name", WITH_HIDDEN[0])  # folders of 0.1 know no other
    return build_model(
        name, options["row_shape"], as_stated(prior), seed=seed, **options.get("network", {})
    )


def _recipe(module: nn.Module, sets: Sets, setup: Setup, method: Method) -> Recipe:
    """Return how to train: as in the studies for images, by the size of the table for rows."""
    if len(sets.row_shape) == 1:
        large = _is_mlp(setup) and is_large(len(sets))
        return recipe_for(sets, method, setup.epochs, fast=large)
    recipe = RECIPES["fast"]
    if is_convolutional(module):
        recipe = recipe.convolutional or recipe
    if isinstance(setup.model, nn.Module):  # which may take images of one size only
        recipe = replace(recipe, half_size=0.0)
    epochs = setup.epochs or max(recipe.epochs, method.longer or 0)
    # A few hundred images need small batches to take enough steps.
    batch_size = min(recipe.batch_size, max(32, len(sets) // 64))
    return replace(recipe, epochs=epochs, batch_size=batch_size)


def _is_mlp(setup: Setup) -> bool:
    """Say whether it is the network whose hidden layers can be chosen."""
    return setup.model_name in WITH_HIDDEN


def _load(
    facts: dict[str, Any], weights: bytes, base_prior: Array, priors: ClassShares
) -> NetworkFit:
    """Build a fit again from a saved model; the file of weights says how much memory it takes.

    A module of the user's own comes built in `facts`.
    """
    tensors = load_tensors(weights)
    for name, values in tensors.items():
        if not torch.isfinite(values).all() or (_is_variance(name) and (values < 0).any()):
            raise ValueError(f"{name[:80]} holds numbers that no training leaves")
    own = facts.get("module")
    if own is not None:
        return NetworkFit(_filled(own, tensors))
    options = _checked_options(facts, len(base_prior))
    with torch.device("meta"):  # shapes, and no memory yet
        module = _built(options, seed=0)
    expected = {k: (v.shape, v.dtype) for k, v in module.state_dict().items()}
    if {k: (v.shape, v.dtype) for k, v in tensors.items()} != expected:
        raise ValueError("the weights are not those of such a network")
    module.load_state_dict(tensors, assign=True)
    return NetworkFit(module.eval(), options)


def _filled(own: nn.Module, tensors: dict[str, torch.Tensor]) -> nn.Module:
    """Return a module of the user's own with saved weights."""
    try:
        own.load_state_dict(tensors)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"the weights of the folder are not those of this {type(own).__name__} ({reason}); "
            "build it with the arguments that it was trained with"
        ) from None
    return own.eval()


def _is_variance(name: str) -> bool:
    """Say whether a tensor is the running variance of a batch norm."""
    return name.endswith("running_var")


def _checked_options(facts: dict[str, Any], num_classes: int) -> dict[str, Any]:
    """Return what a network is built by, each value in its range."""
    name = facts.get("name", WITH_HIDDEN[0])  # folders of 0.1 know no other
    if name not in (*WITH_HIDDEN, *CONVOLUTIONAL):
        raise ValueError(f"there is no network {name!r}")
    network: dict[str, Any] = {}
    given = facts.get("network", {})
    if set(given) - {"depth", "width", "dropout", "norm"} or (given and name not in WITH_HIDDEN):
        raise ValueError("the network has unknown options")
    if "depth" in given or "width" in given:
        found = check_hidden((given["depth"], given["width"]), name)
        assert found is not None  # something was given
        network |= dict(zip(("depth", "width"), found, strict=True))
    if "dropout" in given:
        network["dropout"] = float(given["dropout"])
        if not 0 <= network["dropout"] < 1:
            raise ValueError("dropout must lie in [0, 1)")
    if "norm" in given:
        network["norm"] = bool(given["norm"])
    prior = check_prior(facts["prior"], num_classes, "prior")
    shape = image_shape(facts["row_shape"])
    return {"name": name, "row_shape": list(shape), "prior": prior.tolist(), "network": network}


def _refuse_parts(sets: SetsInParts, method: Method, errors: Array) -> None:
    """Refuse methods whose batches are not of any rows."""
    refuse_whole_sets("mlp", method, Vat)


def _takes_all(method: Method) -> None:
    """Networks learn by every method."""


def train_in_stages(
    model: nn.Module,
    sets: Sets,
    method: Method,
    recipe: Recipe,
    *,
    check_priors: bool = False,
    held_out: UnlabeledSets | None = None,
    prior_errors: Any = None,
    **options: Any,
) -> tuple[Trained, dict[str, Any]]:
    """Train a network in the stages that its method and its recipe ask for.

    A method whose penalty has a strength to be chosen trains its candidates for a while; one that
    checks the stated priors asks rows held out after some epochs; any other trains straight
    through.

    Parameters
    ----------
    model, sets, method, recipe
        As for `train`.
    check_priors : bool
        Ask rows held out whether the stated priors are right, and learn them if not: if the
        method and the recipe know how to, there are two classes and rows are held out.
    held_out : UnlabeledSets, optional
    prior_errors : array, shape (m,), optional
        Standard errors of the stated priors: then they are learned, and there is nothing to ask.
    **options
        Further `TrainingOptions`.

    Returns
    -------
    Trained
    dict
        What was found on the way: `chosen`, the strength and what it was compared with;
        `noticed_error`, how far off the stated priors are.
    """
    strengths = method.penalty.candidates if method.penalty else ()
    if strengths:
        if held_out is None:
            raise InputError(
                f"{method.name} chooses its strength and its threshold by held-out rows; hold some "
                "out (0.1, say)"
            )
        trained, choice = train_choosing_strength(
            model,
            sets,
            method,
            recipe,
            strengths,
            held_out=held_out,
            prior_errors=prior_errors,
            **options,
        )
        return trained, {"chosen": asdict(choice)}
    if (
        check_priors
        and prior_errors is None
        and method.checks_priors
        and recipe.look
        and held_out is not None
        and sets.set_priors.num_classes == 2
    ):
        trained, error = train_checking_priors(
            model, sets, method, recipe, held_out=held_out, **options
        )
        return trained, {"noticed_error": error}
    options |= {"held_out": held_out, "prior_errors": prior_errors}
    return train(model, sets, method, recipe, **options), {}


ROWS = {
    name: Model(
        name,
        _fit_model,
        _load,
        _takes_all,
        tables=name not in CONVOLUTIONAL,
        images=True,
        checks_priors=True,
        in_parts=_refuse_parts if name in WITH_HIDDEN else None,
    )
    for name in (*WITH_HIDDEN, *CONVOLUTIONAL, MODULE)
}
