"""Number formats: the exact rounding beside torch's, and the numbers at the ends that the lessons name."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.formats import FORMATS, fates, rounded, square

TORCH = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16,
         "float8_e5m2": torch.float8_e5m2, "float8_e4m3": torch.float8_e4m3fn}
"""Format → torch's type; torch rounds to float64 by itself."""

EDGES = [0.0, -0.0, math.inf, -math.inf, math.nan, 65504.0, 65519.996, 65520.0, 66246.0, 256.0, 255.875, 2.0**-14,
         2.0**-24, 2.0**-25, 1.5 * 2.0**-25, 448.0, 463.0, 57344.0, 61440.0, 3.4e38, 2.0**-133, 2.0**-149]


def by_torch(values, name):
    return torch.from_numpy(np.asarray(values, np.float32)).to(TORCH[name]).double().numpy()


@pytest.mark.parametrize("name", [name for name in TORCH if name != "float8_e4m3"])
def test_every_format_rounds_as_torch_does_over_all_of_float32(name):
    random = np.random.default_rng(3)
    bits = random.integers(0, 2**32, 200_000, dtype=np.uint64).astype(np.uint32)
    values = np.concatenate([bits.view(np.float32), np.array(EDGES, np.float32)])
    with np.errstate(invalid="ignore"):  # signalling NaN among the bits
        np.testing.assert_array_equal(rounded(values, name), by_torch(values, name))


def test_e4m3_rounds_as_torch_does_within_its_range_and_is_nan_beyond():
    random = np.random.default_rng(3)
    values = random.standard_normal(100_000) * np.exp2(random.integers(-14, 9, 100_000))
    inside = values[np.abs(values) <= 464].astype(np.float32)
    np.testing.assert_array_equal(rounded(inside, "float8_e4m3"), by_torch(inside, "float8_e4m3"))
    assert float(rounded(464.0, "float8_e4m3")) == 448  # the tie goes to the even number
    assert np.isnan(rounded([464.1, 480.0, math.inf], "float8_e4m3")).all()


@pytest.mark.parametrize("name", TORCH)
def test_the_ends_of_every_format_are_torch_s(name):
    one, info = FORMATS[name], torch.finfo(TORCH[name])
    assert (one.largest, one.epsilon, one.least_normal) == (info.max, info.eps, info.tiny)
    kept = float(rounded(one.least, name))
    assert kept == one.least and float(rounded(one.least / 2, name)) == 0
    assert one.unit == one.epsilon / 2


def test_float64_is_kept_as_it_is_and_ends_where_numpy_says():
    one, info = FORMATS["float64"], np.finfo(np.float64)
    assert (one.largest, one.epsilon, one.least_normal, one.least) == (
        info.max, info.eps, info.tiny, info.smallest_subnormal)
    values = np.random.default_rng(0).standard_normal(100)
    np.testing.assert_array_equal(rounded(values, "float64"), values)


@given(st.floats(allow_nan=False), st.sampled_from(list(FORMATS)))
def test_rounding_twice_is_rounding_once_and_keeps_the_order_and_the_sign(value, name):
    once = float(rounded(value, name))
    again = float(rounded(once, name))
    assert again == once or (math.isnan(again) and math.isnan(once))
    assert math.isnan(once) or math.copysign(1, once) == math.copysign(1, value)
    one = FORMATS[name]
    if one.least_normal <= abs(value) <= one.largest:
        assert abs(once - value) <= one.unit * abs(value)


def test_a_square_overflows_float16_from_256_on_and_255_875_is_the_last_that_does_not():
    below = float(np.nextafter(np.float16(256), np.float16(0)))
    assert below == 255.875
    assert math.isinf(square(256.0, "float16")) and math.isfinite(square(255.875, "float16"))
    assert float(np.float16(255.875) ** np.float16(2)) == square(255.875, "float16")
    assert math.isfinite(square(256.0, "bfloat16"))


@pytest.mark.parametrize(("value", "said"), [
    (66246.0, {"float32": "exact", "bfloat16": "rounded", "float16": "over", "float8_e4m3": "over"}),
    (0.0, dict.fromkeys(FORMATS, "exact")),
    (6e-8, {"float16": "subnormal", "bfloat16": "rounded", "float8_e5m2": "zero"}),
    (1e-8, {"float16": "zero", "float32": "rounded"}),
    (65519.0, {"float16": "rounded"}), (65520.0, {"float16": "over"}), (-1e39, {"bfloat16": "over"}),
])
def test_what_becomes_of_a_number_is_named(value, said):
    found = fates(value)
    assert {name: found[name] for name in said} == said
