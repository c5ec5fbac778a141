"""LayerNorm in whole numbers: beside a loop in Python's own integers, and beside its bound."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.fixed_point import (
    ACCUMULATOR_BITS,
    EPSILON,
    INVERSE_BITS,
    MULTIPLIER_BITS,
    ROOTS,
    TABLE_BITS,
    WIDER,
    Scheme,
    integer_layernorm,
    layernorm,
    newton_root,
    requantized,
)

STEPS = np.geomspace(0.002, 4, 40)


def by_hand(x, step, scheme):
    """The output's whole numbers, one entry at a time, in Python integers."""
    n, scale = len(x), 2**scheme.fraction
    q = [min(max(round(value / step), -scheme.top - 1), scheme.top) for value in x.tolist()]
    total = sum(q) * scale
    mean = math.floor((2 * total + n) / (2 * n))
    centred = [value * scale - mean for value in q]
    squares = sum(value * value for value in centred) + round(n * EPSILON / step**2 * scale**2)
    inverse = {"newton": inverse_root, "table": looked_up}[scheme.root](squares, scheme.fraction)
    factor, exponent = math.frexp(math.sqrt(n) / scheme.output_step)
    multiplier, shift = round(factor * 2**MULTIPLIER_BITS), INVERSE_BITS + MULTIPLIER_BITS - exponent
    out = [(value * inverse * multiplier + 2 ** (shift - 1)) // 2**shift for value in centred]
    return [min(max(value, -scheme.top - 1), scheme.top) for value in out], squares


def inverse_root(squares, _fraction):
    return 2**INVERSE_BITS // max(math.isqrt(squares), 1)


def looked_up(squares, fraction):
    if squares == 0:
        return 0
    address = fraction + WIDER
    even = -(-squares.bit_length() // 2) * 2
    place = math.floor(squares * 2.0 ** (address - even))
    entry = round(2**TABLE_BITS / math.sqrt((place + 0.5) / 2**address))
    return (entry << (INVERSE_BITS - TABLE_BITS)) >> (even // 2)


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("fraction", [0, 1, 4, 8])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_every_whole_number_is_that_of_a_loop_in_python(bits, fraction, root):
    scheme = Scheme(bits, fraction, root)
    x = np.random.default_rng(bits).standard_normal(37) * 1.3 + 0.4
    found = integer_layernorm(x, STEPS, scheme)
    for place, step in enumerate(STEPS.tolist()):
        expected, squares = by_hand(x, step, scheme)
        assert found.accumulated[place] == squares.bit_length()
        if squares.bit_length() <= ACCUMULATOR_BITS:
            np.testing.assert_array_equal(found.y[place] / scheme.output_step, expected)
        else:
            assert np.isnan(found.y[place]).all()


@given(st.integers(0, 2**45))
def test_the_root_of_a_whole_number_is_exact(value):
    assert newton_root(np.array([value]))[0] == math.isqrt(value)


@pytest.mark.parametrize("value", [0, 1, 2, 3, 4, 24, 25, 26, 2**30 - 1, 2**30, 2**31 - 1])
def test_the_root_is_exact_at_the_edges(value):
    assert newton_root(np.array([value]))[0] == math.isqrt(value)


@given(st.integers(-(2**30), 2**30), st.floats(0.5, 1000))
def test_the_multiplier_and_its_shift_round_to_the_nearest(value, factor):
    exact = value * factor / 2**INVERSE_BITS
    assert abs(requantized(np.array([value]), factor)[0] - exact) <= 0.5 + 1e-6


@given(st.integers(0, 2**32 - 1), st.sampled_from([16, 64, 256]), st.floats(-3, 3), st.sampled_from([0, 2, 4]),
       st.sampled_from(sorted(ROOTS)), st.integers(4, 8))
def test_the_error_never_exceeds_its_bound_where_nothing_is_cut_off(seed, n, shift, fraction, root, bits):
    x = np.random.default_rng(seed).standard_normal(n) + shift
    found = integer_layernorm(x, STEPS, Scheme(bits, fraction, root))
    judged = np.isfinite(found.bound) & np.isfinite(found.y).all(-1)
    assert (found.largest_error[judged] <= found.bound[judged]).all()
    assert np.isnan(found.bound[(found.saturated > 0) | (found.output_saturated > 0)]).all()


def test_the_error_of_int8_is_of_the_order_of_the_step_and_least_where_saturation_begins():
    x = np.random.default_rng(0).standard_normal(256)
    found = integer_layernorm(x, STEPS, Scheme())
    free = found.saturated == 0
    noise = np.hypot(STEPS, Scheme().output_step) / math.sqrt(12)  # of rounding once on the way in and once out
    fine = free & (STEPS < 0.5)
    assert fine.sum() > 10
    assert (found.rms_error[fine] < 1.6 * noise[fine]).all() and (found.rms_error[fine] > 0.4 * noise[fine]).all()
    assert found.rms_error[0] > 10 * found.rms_error.min()
    assert (np.diff(found.saturated) <= 0).all()


def test_saturation_is_counted_entry_by_entry():
    x = np.array([0.0, 1.0, 2.0, -2.0])
    found = integer_layernorm(x, np.array([0.01, 0.1]), Scheme())
    assert found.saturated.tolist() == [0.5, 0.0]  # 127 and −128 steps of 0.01 are less than 2
    one_far = np.append(np.zeros(255), 100.0)
    assert integer_layernorm(one_far, np.array([1.0]), Scheme()).output_saturated.tolist() == [1 / 256]  # √255 > 8


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("value", [0.0, 1.0, -3.0])
def test_a_constant_token_gives_zeros_and_no_division_by_zero(value, root):
    found = integer_layernorm(np.full(8, value), np.array([0.1, 1.0]), Scheme(8, 4, root))
    assert (found.y == 0).all() and (found.exact == 0).all()


def test_the_reference_is_the_worked_example():
    np.testing.assert_allclose(layernorm(np.array([3.0, 1, -2, 8, 5])), [0, -0.587, -1.468, 1.468, 0.587], atol=5e-4)


@pytest.mark.parametrize(("scheme", "steps", "said"), [
    (Scheme(bits=9), [1.0], "bits are 9, fractional bits 4, steps from 1; allowed: 2 to 8, 0 to 8, above 0"),
    (Scheme(fraction=9), [1.0], "bits are 8, fractional bits 9, steps from 1; allowed: 2 to 8, 0 to 8, above 0"),
    (Scheme(), [0.0, 1.0], "bits are 8, fractional bits 4, steps from 0; allowed: 2 to 8, 0 to 8, above 0"),
])
def test_what_cannot_be_is_refused_in_a_sentence(scheme, steps, said):
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        integer_layernorm(np.ones(4), np.array(steps), scheme)
