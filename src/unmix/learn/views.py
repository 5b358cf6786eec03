"""The rows of a table as each model takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from unmix.core.transition import Transition
from unmix.data.priors import Priors
from unmix.data.sets import UnlabeledSets
from unmix.learn.encoding import TableEncoder

__all__ = ["Views", "features_for"]

Array = np.ndarray[Any, Any]


class Views(dict[str, UnlabeledSets]):
    """The same rows as each model takes them, encoded when they are first asked for."""

    def __init__(
        self,
        encoder: TableEncoder,
        frame: pd.DataFrame,
        set_index: Array,
        priors: Priors,
        target: Any,
    ) -> None:
        super().__init__()
        self._encoder, self._frame = encoder, frame
        self._sets = (set_index, priors.set_priors, target, priors.set_ids)
        self.transition = Transition(
            priors.set_priors, np.bincount(set_index, minlength=len(priors)), target
        )

    def __len__(self) -> int:
        return len(self._frame)

    def __missing__(self, model: str) -> UnlabeledSets:
        x = features_for(self._encoder, self._frame, model)
        self[model] = UnlabeledSets(x, *self._sets)
        return self[model]


def features_for(encoder: TableEncoder, frame: pd.DataFrame, model: str) -> Array:
    """Return rows as a model takes them: categories as such for boosting, else a matrix."""
    return encoder.native(frame) if model == "boosting" else encoder.matrix(frame)
