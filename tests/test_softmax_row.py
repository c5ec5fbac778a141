"""One row through a softmax: laws of its weights, Jacobian and gradient, against naive loops, at every size."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from core.attention_measures import measures_of_scores
from core.gaussian_softmax import beginning, gaussian_softmax
from core.softmax_row import (
    SCALES,
    UNIFORM,
    drawn_rows,
    gaussian_scores,
    softmax_row,
    upstream_key,
    upstream_normal,
)
from core.vocabulary import SATURATED

ROWS = hnp.arrays(np.float64, st.integers(1, 12), elements=st.floats(-30, 30))
TEMPERATURES = st.sampled_from([0.05, 0.5, 1.0, 3.0, 20.0])


def naive(scores, temperature):
    """Weights, entropy, gain and Jacobian in loops, without any care."""
    powers = [math.exp(score / temperature) for score in scores]
    p = [power / math.fsum(powers) for power in powers]
    jacobian = [[(p[i] * (i == j) - p[i] * p[j]) / temperature for j in range(len(p))] for i in range(len(p))]
    return p, -math.fsum(one * math.log(one) for one in p if one), 1 - math.fsum(one**2 for one in p), jacobian


@given(ROWS, st.sampled_from([0.5, 1.0, 3.0]))
def test_a_row_is_what_naive_loops_say(scores, temperature):
    row = softmax_row(scores, temperature)
    p, entropy, gain, jacobian = naive(scores.tolist(), temperature)
    np.testing.assert_allclose(row.p, p, rtol=1e-12)
    np.testing.assert_allclose([row.entropy, row.gain], [entropy, gain], rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(row.jacobian, jacobian, rtol=1e-9, atol=1e-15)
    assert row.jacobian_norm == pytest.approx(np.linalg.norm(row.jacobian), rel=1e-9, abs=1e-300)


@given(hnp.arrays(np.float64, st.integers(2, 8), elements=st.floats(-4, 4)), st.sampled_from([0.5, 1.0, 5.0]))
def test_the_jacobian_is_the_difference_quotient(scores, temperature):
    step = 1e-5
    moved = [(softmax_row(scores + step * one, temperature).p - softmax_row(scores - step * one, temperature).p)
             / (2 * step) for one in np.eye(len(scores))]
    np.testing.assert_allclose(softmax_row(scores, temperature).jacobian, np.transpose(moved), atol=1e-8)


@given(ROWS, TEMPERATURES)
def test_rows_and_columns_of_the_jacobian_and_the_gradient_sum_to_zero(scores, temperature):
    row = softmax_row(scores, temperature)
    size = 1e-14 * np.abs(row.jacobian).max()
    assert np.abs(row.jacobian.sum(0)).max() <= size
    assert np.abs(row.jacobian.sum(1)).max() <= size
    upstream = upstream_normal(len(scores), 3)
    found = row.gradient(upstream)
    np.testing.assert_allclose(found, row.jacobian.T @ upstream, rtol=1e-9, atol=1e-14 * np.abs(row.jacobian).max())
    assert abs(found.sum()) <= 1e-14 * max(1, np.abs(found).max())


@given(hnp.arrays(np.float64, st.integers(1, 9), elements=st.integers(-40, 40).map(float)), st.integers(-2**40, 2**40))
def test_the_same_added_to_every_score_changes_nothing(scores, shift):
    row, moved = softmax_row(scores), softmax_row(scores + shift)
    assert (row.p == moved.p).all()
    assert (row.entropy, row.gain, row.jacobian_norm) == (moved.entropy, moved.gain, moved.jacobian_norm)


@given(ROWS, TEMPERATURES)
def test_the_scores_over_the_temperature_are_all_that_the_weights_know(scores, temperature):
    hot, plain = softmax_row(scores, temperature), softmax_row(scores / temperature)
    np.testing.assert_allclose(hot.p, plain.p, rtol=1e-12)
    assert hot.jacobian_norm * temperature == pytest.approx(plain.jacobian_norm, rel=1e-9, abs=1e-300)
    assert hot.jacobian_norm <= 0.5 / temperature * (1 + 1e-12)


@given(ROWS)
def test_a_row_has_the_numbers_of_a_query_in_the_engine(scores):
    assume(len(scores) > 1)
    row, measured = softmax_row(scores), measures_of_scores(torch.from_numpy(scores)[None])
    np.testing.assert_allclose([row.entropy, row.entropy_norm, row.max_prob, row.gain, row.spread],
                               [measured[name].item() for name in ("entropy", "entropy_norm", "max_prob",
                                                                   "softmax_gain", "score_std")], atol=1e-12)


@pytest.mark.parametrize("masked", [(0,), (3,), (1, 2)])
def test_a_masked_key_has_no_weight_and_counts_nowhere(masked):
    scores = np.array([0.3, -1.0, 2.0, 0.5])
    scores[list(masked)] = -np.inf
    row, rest = softmax_row(scores, 0.7), softmax_row(np.delete(scores, masked), 0.7)
    kept = np.delete(np.arange(4), masked)
    assert (row.p[list(masked)] == 0).all() and row.n == 4 - len(masked)
    np.testing.assert_allclose(row.p[kept], rest.p, rtol=1e-14)
    np.testing.assert_allclose(
        [row.entropy, row.entropy_norm, row.gain, row.jacobian_norm, row.spread, *row.sweep.norm],
        [rest.entropy, rest.entropy_norm, rest.gain, rest.jacobian_norm, rest.spread, *rest.sweep.norm], rtol=1e-13)
    assert (row.jacobian[list(masked)] == 0).all() and (row.jacobian[:, list(masked)] == 0).all()


@pytest.mark.parametrize("temperature", [0.05, 1.0, 20.0])
@pytest.mark.parametrize("scores", [[1e308, -1e308, 0.0, -np.inf], [-1e308, -1e308], [1e308, 1e308, 0.0], [5e-324, 0],
                                    [1e308], [-np.inf, -1e308]])
def test_scores_of_any_size_give_finite_numbers_and_the_limits(scores, temperature):
    row = softmax_row(np.array(scores), temperature)
    top = np.array(scores) == max(scores) if max(map(abs, scores)) > 1 else np.ones(len(scores), bool)
    np.testing.assert_array_equal(row.p, top / top.sum())
    assert row.entropy == pytest.approx(math.log(top.sum()), rel=1e-14)
    assert row.gain == pytest.approx(1 - 1 / top.sum(), rel=1e-14)
    for numbers in (row.jacobian, row.gradient(upstream_key(len(scores), row.top)), row.sweep.norm, row.sweep.entropy):
        assert np.isfinite(numbers).all()


def test_what_a_saturated_row_leaves_is_exact_however_small_it_is():
    gap = 200.0
    row = softmax_row(np.array([gap, 0.0]))
    rest = math.exp(-gap)
    assert row.p[0] == 1
    assert row.entropy == pytest.approx((1 + gap) * rest, rel=1e-12)
    assert row.gain == pytest.approx(2 * rest, rel=1e-12)
    assert row.jacobian_norm == pytest.approx(2 * rest, rel=1e-12)
    np.testing.assert_allclose(row.gradient(np.array([1.0, 0.0])), [rest, -rest], rtol=1e-12)


def test_a_single_key_leaves_no_choice():
    row = softmax_row(np.array([3.0]))
    assert (row.kind, row.p[0], row.entropy, row.gain, row.jacobian_norm) == ("single", 1, 0, 0, 0)
    assert math.isnan(row.entropy_norm)
    assert row.sweep.shape == "flat"


@pytest.mark.parametrize(("scores", "kind", "shape"), [
    (np.zeros(64), "uniform", "flat"), (gaussian_scores(64, 0.1, 0), "uniform", "between"),
    (gaussian_scores(64, 1.0, 0), "between", "between"), (gaussian_scores(64, 8.0, 5), "saturated", "between"),
    (np.array([1.0, 0.0]), "between", "start"), (np.array([4.0, 4.0, 0.0, -1.0]), "between", "end"),
])
def test_a_row_is_named_and_its_norm_peaks_where_it_does(scores, kind, shape):
    row = softmax_row(scores)
    assert (row.kind, row.sweep.shape) == (kind, shape)
    assert (row.kind == "saturated") == (row.max_prob > SATURATED)
    assert row.kind != "uniform" or row.entropy_norm >= UNIFORM


def test_the_sweep_is_the_row_at_each_scale_and_not_monotone():
    scores = gaussian_scores(32, 1.0, 1)
    sweep = softmax_row(scores, 2.0).sweep
    for place in (0, 300, sweep.top, 800):
        one = softmax_row(scores * SCALES[place], 2.0)
        assert sweep.norm[place] == pytest.approx(one.jacobian_norm, rel=1e-9)
        assert sweep.entropy[place] == pytest.approx(one.entropy, rel=1e-9)
    assert sweep.norm[0] < 0.6 * sweep.norm[sweep.top] and sweep.norm[-1] < 0.01 * sweep.norm[sweep.top]
    assert (np.diff(sweep.entropy) <= 0).all()
    assert sweep.norm[0] == pytest.approx(math.sqrt(31) / 32 / 2, rel=1e-3)


def test_drawn_rows_agree_with_the_quadrature_within_their_own_errors():
    stds = np.array([0.0, 0.5, 1.0, 2.0, 5.0])
    drawn, exact = drawn_rows(48, stds, 2000, 4), gaussian_softmax(stds, 48)
    assert (abs(drawn.entropy - exact.entropy) <= 4 * drawn.entropy_error + 1e-5).all()
    assert (abs(drawn.gain - exact.gain) <= 4 * drawn.gain_error + 1e-5).all()
    assert (drawn.entropy_error[1:] > 0).all()
    few = drawn_rows(48, stds, 20, 4)
    assert (few.entropy_error[1:] > 3 * drawn.entropy_error[1:]).all()


def test_another_spread_rescales_the_same_draws_and_the_gradient_has_its_own():
    np.testing.assert_allclose(gaussian_scores(9, 3.0, 7), 3 * gaussian_scores(9, 1.0, 7))
    assert not np.isclose(gaussian_scores(9, 1.0, 7), upstream_normal(9, 7)).any()
    assert upstream_key(4, 2).tolist() == [0, 0, 1, 0]


def test_the_beginning_of_the_series_is_too_low_at_two():
    for n in (2, 64, 512):
        assert beginning(0.0, n) == pytest.approx(math.log(n))
        assert gaussian_softmax(2.0, n).entropy > beginning(2.0, n) + 0.1


@pytest.mark.parametrize(("scores", "temperature", "said"), [
    ([1.0, math.nan], 1.0, "score 1 is nan; allowed: finite numbers, and −inf for a masked key"),
    ([math.inf, 0.0], 1.0, "score 0 is inf; allowed: finite numbers, and −inf for a masked key"),
    ([-math.inf, -math.inf], 1.0, "no key is visible; a row needs at least one finite score"),
    ([], 1.0, "no key is visible; a row needs at least one finite score"),
    ([[1.0, 2.0]], 1.0, "a row of scores has one axis, these have 2"),
    ([1.0], 0.0, "the temperature is 0.0; allowed: finite numbers above 0"),
    ([1.0], math.nan, "the temperature is nan; allowed: finite numbers above 0"),
])
def test_what_cannot_be_is_refused_in_a_sentence(scores, temperature, said):
    with pytest.raises(ValueError, match=f"^{said}$"):
        softmax_row(np.array(scores), temperature)
