"""The root finder of all sets: signs, plateaus, brackets of no width."""

import numpy as np
import pytest

from unmix.core.sums_by_set import decreasing_root


def test_a_negative_root_costs_no_more_than_its_mirror_image():
    calls = {1.0: 0, -1.0: 0}

    def value_and_slope(point, sign):
        calls[sign] += 1
        return sign * 3.7 - point - point**3 / 9, -1 - point**2 / 3

    bounds = np.array([-10.0]), np.array([14.0])
    up = decreasing_root(lambda x: value_and_slope(x, 1.0), *bounds)
    mirrored = -bounds[1], -bounds[0]
    down = decreasing_root(lambda x: value_and_slope(x, -1.0), *mirrored)
    assert down == pytest.approx(-up, rel=1e-12)
    assert up + up**3 / 9 == pytest.approx([3.7])
    assert calls[-1.0] <= calls[1.0] + 1 < 20


def test_a_plateau_is_not_left_and_a_bracket_of_no_width_is_its_own_answer():
    def value_and_slope(point):
        return np.where(abs(point) < 5, 0.0, -point), np.where(abs(point) < 5, 0.0, -1.0)

    start = np.array([2.0, 1.5])
    low, high = np.array([-20.0, 1.5]), np.array([20.0, 1.5])
    assert decreasing_root(value_and_slope, low, high, start).tolist() == [2.0, 1.5]
