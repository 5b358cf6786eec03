"""Train a classifier from sets whose class shares are known, and judge it without labels.

Names are imported when they are first used, so that `import unmix` does not load torch.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unmix.assess.diagnose import diagnose as diagnose
    from unmix.assess.evaluate import evaluate as evaluate
    from unmix.assess.judge import judge as judge
    from unmix.assess.prevalence import prevalence as prevalence
    from unmix.classifier import UnmixClassifier as UnmixClassifier
    from unmix.core.losses import ssc_cross_entropy as ssc_cross_entropy
    from unmix.core.losses import ssc_squared_error as ssc_squared_error
    from unmix.core.transition import Transition as Transition
    from unmix.data.benchmarks import register_dataset as register_dataset
    from unmix.data.draw import draw_sets as draw_sets
    from unmix.data.priors import Priors as Priors
    from unmix.data.rates_file import read_rates as read_rates
    from unmix.data.sets import UnlabeledSets as UnlabeledSets
    from unmix.errors import InputError as InputError
    from unmix.learn.methods import METHODS as METHODS
    from unmix.learn.methods import register_method as register_method
    from unmix.learn.own_modules import register_module as register_module
    from unmix.learn.recipes import RECIPES as RECIPES
    from unmix.learn.training import train as train

_PLACES = {
    "METHODS": "unmix.learn.methods",
    "RECIPES": "unmix.learn.recipes",
    "InputError": "unmix.errors",
    "Priors": "unmix.data.priors",
    "Transition": "unmix.core.transition",
    "UnlabeledSets": "unmix.data.sets",
    "UnmixClassifier": "unmix.classifier",
    "diagnose": "unmix.assess.diagnose",
    "draw_sets": "unmix.data.draw",
    "evaluate": "unmix.assess.evaluate",
    "judge": "unmix.assess.judge",
    "prevalence": "unmix.assess.prevalence",
    "read_rates": "unmix.data.rates_file",
    "register_dataset": "unmix.data.benchmarks",
    "register_method": "unmix.learn.methods",
    "register_module": "unmix.learn.own_modules",
    "ssc_cross_entropy": "unmix.core.losses",
    "ssc_squared_error": "unmix.core.losses",
    "train": "unmix.learn.training",
}

__all__ = [*_PLACES]
__version__ = version("unmix")


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'unmix' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
