"""The quadrature of a softmax over Gaussian scores against drawn rows, closed forms and its own laws."""

import math

import numpy as np
import pytest

from core.gaussian_softmax import LARGEST, gaussian_softmax

ROWS = 40_000


def drawn(sigma, n):
    """Entropy, Σp² and ‖J‖² of drawn rows, (3, ROWS)."""
    scores = np.random.default_rng(n).normal(size=(ROWS, n)) * sigma
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    squares, cubes = (p**2).sum(1), (p**3).sum(1)
    return np.stack([-(p * np.log(np.maximum(p, 1e-300))).sum(1), squares, squares - 2 * cubes + squares**2])


@pytest.mark.parametrize("sigma", [0.1, 0.7, 2.0, 5.0, 20.0, 60.0])
@pytest.mark.parametrize("n", [2, 7, 64])
def test_means_over_drawn_rows_are_the_quadrature_within_their_error(n, sigma):
    found, rows = gaussian_softmax(sigma, n), drawn(sigma, n)
    error = 4 * rows.std(1) / math.sqrt(ROWS) + 2e-5
    np.testing.assert_array_less(abs(rows.mean(1) - [found.entropy, found.squares, found.jacobian]), error)


@pytest.mark.parametrize("n", [1, 2, 64, 4096])
def test_without_spread_it_is_uniform_and_with_all_of_it_one_hot(n):
    flat, sharp = gaussian_softmax(0.0, n), gaussian_softmax(math.inf, n)
    np.testing.assert_allclose([flat.entropy, flat.squares, flat.jacobian], [math.log(n), 1 / n, 1 / n - 1 / n**2],
                               atol=1e-12)
    np.testing.assert_allclose([sharp.entropy, sharp.gain, sharp.jacobian], [0, 0, 0], atol=1e-12)


@pytest.mark.parametrize("n", [2, 16, 512])
def test_entropy_falls_as_scores_spread_and_nothing_jumps_where_the_rule_changes(n):
    sigma = np.concatenate([np.linspace(0, 10, 400), np.geomspace(10, 1e4, 400)[1:]])
    found = gaussian_softmax(sigma, n)
    assert (np.diff(found.entropy) < 0).all()
    assert (np.diff(found.squares) > 0).all()
    around = np.log(gaussian_softmax(np.array([0.97, 0.99, 1.01, 1.03]) * LARGEST, n).entropy)
    before, across, after = np.diff(around) / np.diff(np.log([0.97, 0.99, 1.01, 1.03]))
    assert across == pytest.approx((before + after) / 2, rel=0.01)


def test_the_beginning_of_the_series_is_right_for_small_scores_and_half_a_nat_off_at_two():
    for n in (32, 64):
        for sigma in (0.05, 0.1):
            series = math.log(n) - sigma**2 / 2 * (1 - 1 / n)
            assert gaussian_softmax(sigma, n).entropy == pytest.approx(series, abs=1e-4)
    assert gaussian_softmax(2.0, 64).entropy - (math.log(64) - 2.0) == pytest.approx(0.48, abs=0.01)


def test_the_jacobian_is_largest_in_between_not_at_an_end():
    sigma = np.linspace(0, 20, 2001)
    size = gaussian_softmax(sigma, 64).jacobian
    assert 2 < sigma[size.argmax()] < 5
    assert size.max() > 5 * size[0]


@pytest.mark.parametrize(("std", "n"), [(1.0, 0), (-0.1, 4), (math.nan, 4)])
def test_what_cannot_be_is_refused_with_what_came_and_what_is_allowed(std, n):
    with pytest.raises(ValueError, match=f"n is {n} and std {std}; allowed: n from 1, std from 0"):
        gaussian_softmax(std, n)
