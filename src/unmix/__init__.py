"""Train a classifier from sets whose class shares are known, and judge it without labels.

Names are imported when they are first used, so that `import unmix` does not load torch.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unmix.core.losses import ssc_cross_entropy as ssc_cross_entropy
    from unmix.core.losses import ssc_squared_error as ssc_squared_error
    from unmix.core.transition import Transition as Transition
    from unmix.data.draw import draw_sets as draw_sets
    from unmix.data.sets import UnlabeledSets as UnlabeledSets
    from unmix.learn.estimator import UnmixClassifier as UnmixClassifier

_PLACES = {
    "Transition": "unmix.core.transition",
    "UnlabeledSets": "unmix.data.sets",
    "UnmixClassifier": "unmix.learn.estimator",
    "draw_sets": "unmix.data.draw",
    "ssc_cross_entropy": "unmix.core.losses",
    "ssc_squared_error": "unmix.core.losses",
}

__all__ = [
    "Transition",
    "UnlabeledSets",
    "UnmixClassifier",
    "draw_sets",
    "ssc_cross_entropy",
    "ssc_squared_error",
]
__version__ = version("unmix")


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'unmix' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
