"""One root finder for many sets at once: Newton steps kept inside a shrinking bracket.

It knows only a decreasing function of one number per set, not what the number means.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

__all__ = ["decreasing_root"]

FloatArray = npt.NDArray[np.float64]


def decreasing_root(
    value_and_slope: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    low: FloatArray,
    high: FloatArray,
    start: FloatArray | None = None,
) -> FloatArray:
    """Find each set's root of a decreasing function in [low, high] by Newton or halving.

    Parameters
    ----------
    value_and_slope : callable
        Gives the function and its derivative, (m,) and (m,), at one point per set (m,).
    low, high : (m,)
        The bracket of each set; a bracket of no width is its own answer.
    start : (m,), optional
        First guess inside the bracket; its middle if not given.

    Returns
    -------
    (m,)
    """
    point = (low + high) / 2 if start is None else start
    step = last_step = high - low
    solved = step == 0
    for _ in range(200):
        value, slope = value_and_slope(point)
        solved |= value == 0  # on a plateau every point is a root: stay
        low = np.where(value >= 0, point, low)
        high = np.where(value < 0, point, high)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = point - value / slope
            # Newton must stay inside and at least halve the step before last.
            good = (newton >= low) & (newton <= high) & (2 * abs(value) < abs(last_step * slope))
        following = np.where(good, newton, (low + high) / 2)
        last_step, step = step, abs(following - point)
        # A solved set stays where it is: rounding would throw it back to halving.
        point = np.where(solved, point, following)
        solved |= step <= 1e-15 + 1e-12 * abs(point)
        if solved.all():
            break
    return point
