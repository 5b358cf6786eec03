"""The stages in which a network is trained: which there are follows from the method and the recipe.

A method whose VAT radius is to be chosen trains its candidates for a while; one that checks the
stated priors asks rows held out after some epochs; any other trains straight through.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torch import nn

from unmix.data.sets import UnlabeledSets
from unmix.data.shuffled import ShuffledSets
from unmix.errors import InputError
from unmix.learn.methods import Method
from unmix.learn.prior_check import train_checking_priors
from unmix.learn.recipes import Recipe
from unmix.learn.training import Trained, train
from unmix.learn.vat_radius import train_choosing_radius

__all__ = ["train_in_stages"]


def train_in_stages(
    model: nn.Module,
    sets: UnlabeledSets | ShuffledSets,
    method: Method,
    recipe: Recipe,
    *,
    check_priors: bool = False,
    held_out: UnlabeledSets | None = None,
    prior_errors: Any = None,
    **options: Any,
) -> tuple[Trained, dict[str, Any]]:
    """Train a network as its method wants it.

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
        What was found on the way: `chosen`, the VAT radius and what it was compared with;
        `noticed_error`, how far off the stated priors are.
    """
    radii = method.vat.candidates if method.vat else ()
    if radii:
        if held_out is None:
            raise InputError(
                f"{method.name} chooses its strength and its threshold by held-out rows; hold some "
                "out (0.1, say)"
            )
        trained, choice = train_choosing_radius(
            model,
            sets,
            method,
            recipe,
            radii,
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
