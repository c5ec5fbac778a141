"""A copy of a copy: the law of growth, its chance, and numbers beyond those that float64 holds."""

import math
import re

import numpy as np
import pytest

from core.copies import copies, doubling

GAINS = (0.5, 1.0, 1.25, 2.0)


def test_the_sizes_are_those_of_a_loop_over_the_same_draws():
    generator, n = np.random.default_rng(3), 6
    x = generator.standard_normal(n).tolist()
    x = [entry / math.sqrt(sum(one * one for one in x) / n) for entry in x]
    expected = [1.0]
    for _ in range(5):
        unit = generator.standard_normal((n, n)).tolist()
        x = [sum(1.25 / math.sqrt(n) * weight * entry for weight, entry in zip(row, x, strict=True)) for row in unit]
        expected.append(math.sqrt(sum(one * one for one in x) / n))
    np.testing.assert_allclose(copies((1.25,), 5, n, 3).rms[0], expected, rtol=1e-12)


@pytest.mark.parametrize("width", [1, 16, 64])
def test_another_gain_is_the_same_draw_times_gain_to_the_copy(width):
    found = copies(GAINS, 48, width, 1)
    assert found.depth == 48 and found.rms[:, 0] == pytest.approx(np.ones(len(GAINS)), rel=1e-14)
    for gain, sizes in zip(GAINS, found.rms, strict=True):
        np.testing.assert_allclose(sizes, found.expected(gain) * found.rms[GAINS.index(1.0)], rtol=1e-10)
        assert found.growth(gain) == sizes[-1]


@pytest.mark.parametrize(("width", "depth"), [(16, 24), (32, 48)])
def test_draws_stray_from_gain_to_the_depth_as_far_as_chance_says(width, depth):
    """Bounds: four standard errors of 300 draws, beside the terms in 1/n² that the law leaves out."""
    found = [copies((1.25,), depth, width, draw) for draw in range(300)]
    strays = np.log([one.growth(1.25) / one.expected(1.25)[-1] for one in found])
    low, high = map(math.log, found[0].chance)
    mean, spread = (low + high) / 2, (high - low) / 2
    assert abs(strays.mean() - mean) < 4 * spread / math.sqrt(300) + depth / width**2
    assert abs(strays.std() / spread - 1) < 4 / math.sqrt(600) + 1 / width


def test_the_wider_the_closer_to_the_law():
    strays = [np.std([math.log(copies((1.0,), 8, width, draw).growth(1.0)) for draw in range(30)])
              for width in (4, 32, 256)]
    assert strays[0] > 2 * strays[1] > 4 * strays[2]


@pytest.mark.parametrize("gain", [0.5, 0.8, 1.25, 2.0])
def test_after_the_doubling_depth_the_law_has_doubled_or_halved(gain):
    assert gain ** doubling(gain) == pytest.approx(2.0 if gain > 1 else 0.5)


def test_a_gain_of_1_never_doubles():
    assert doubling(1.0) == math.inf


def test_no_square_overflows_or_vanishes_before_the_numbers_themselves_do():
    large, small = copies((1e200, 1e-200), 3, 8).rms
    assert 1e199 < large[1] < 1e201 and not np.isfinite(large[2:]).any()
    assert 1e-201 < small[1] < 1e-199 and small[2:].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("gains", "depth", "width"), [((), 1, 1), ((0.0,), 1, 1), ((1.0,), 0, 1), ((1.0,), 1, 0)])
def test_what_cannot_be_copied_is_refused(gains, depth, width):
    with pytest.raises(ValueError, match=re.escape(
            f"gains are {gains}, depth {depth} and width {width}; allowed: gains above 0, depth and width from 1 on")):
        copies(gains, depth, width)
