"""What was predicted for sets while they were hidden from training, beside what was stated."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from unmix.learn.saved_state import numbers

__all__ = ["HeldOutShares"]

FloatArray = npt.NDArray[np.float64]


class HeldOutShares(NamedTuple):
    """Shares of hidden sets; small sets of similar shares were taken together.

    Attributes
    ----------
    stated, predicted, errors, guessed : (m, K)
        What was stated, what the model predicted from the rows and its standard errors, and what
        the training sets suggest without these rows.
    rows : (m,)
    """

    stated: FloatArray
    predicted: FloatArray
    errors: FloatArray
    guessed: FloatArray
    rows: FloatArray

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists for JSON."""
        return {name: values.tolist() for name, values in self._asdict().items()}

    @classmethod
    def from_dict(cls, state: dict[str, Any], num_classes: int) -> HeldOutShares:
        """Return what `to_dict` described, or raise ValueError."""
        m = len(state["rows"])
        shapes = {name: (m, num_classes) for name in cls._fields} | {"rows": (m,)}
        found = cls(**{name: numbers(state, name, shape) for name, shape in shapes.items()})
        for name in ("stated", "predicted", "errors", "guessed"):
            values = getattr(found, name)
            if ((values < 0) | (values > 1)).any():
                raise ValueError(f"{name} must be shares")
        return found
