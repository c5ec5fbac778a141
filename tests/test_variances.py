"""Variances of data far from 0: each method beside torch's own arithmetic, and what the lessons say of them."""

import math

import numpy as np
import pytest
import torch

from core.formats import FORMATS, rounded
from core.variances import ARITHMETICS, METHODS, STORED, data, variances

RATIOS = (0.0, 1.0, 7.0, 30.0, 100.0, 1e3, 1e4, 1e6, 1e8)
TORCH = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}


def of_loop(method, x):
    """The same method, entry by entry, in the arithmetic of a torch type."""
    zero, n = torch.zeros((), dtype=x.dtype), torch.tensor(float(len(x)), dtype=x.dtype)
    if method == "shifted":
        return of_loop("naive", x - x[0])
    if method == "welford":
        mean, squares = x[0].clone(), zero.clone()
        for count, value in enumerate(x[1:], 2):
            away = value - mean
            mean = mean + away / torch.tensor(float(count), dtype=x.dtype)
            squares = squares + away * (value - mean)
        return squares / n
    total = zero.clone()
    for value in x:
        total = total + value
    mean, kept = total / n, zero.clone()
    for value in x:
        kept = kept + (value * value if method == "naive" else (value - mean) * (value - mean))
    return kept / n - mean * mean if method == "naive" else kept / n


@pytest.mark.parametrize("name", ARITHMETICS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_in_every_arithmetic_is_the_same_loop_in_torch_bit_for_bit(name, method):
    n, sigma, one = 40, 3.0, ARITHMETICS[name]
    found = variances(name, RATIOS, n, sigma, 5).found[method]
    for ratio, value in zip(RATIOS, found, strict=True):
        stored = torch.from_numpy(rounded(sigma * data(n, 5) + ratio * sigma, one.entries))
        expected = float(of_loop(method, stored.to(TORCH[one.works])))
        assert value == expected or (math.isnan(value) and math.isnan(expected)), ratio


@pytest.mark.parametrize("name", ["float32", "float64", "float16_in_float32"])
def test_the_naive_variance_cancels_where_welford_and_two_passes_do_not(name):
    limit = ARITHMETICS[name].unit ** -0.5
    far = min(10 * limit, 2e3 if name == "float16_in_float32" else math.inf)  # beyond, float16 holds no such data
    found = variances(name, (far,), 256, 1.0)
    if name != "float16_in_float32":
        assert found.fate("naive", 0) in ("negative", "lost")
    assert abs(found.errors("naive")[0]) > 10 * max(abs(found.errors(one)[0]) for one in ("two_pass", "welford",
                                                                                         "shifted"))


@pytest.mark.parametrize("name", ["bfloat16", "float16_in_float32", "float32", "float64"])
def test_the_naive_error_grows_as_theory_says(name):
    """The median over draws: a single difference of two rounded numbers is near 0 by chance."""
    unit = ARITHMETICS[name].unit
    ratios = tuple(unit**-0.5 * share for share in (0.03, 0.1, 0.3))
    errors = np.array([np.abs(variances(name, ratios, 64, 1.0, draw).errors("naive")) for draw in range(25)])
    expected = unit * np.square(ratios)
    middle = np.median(errors, 0)
    floor = np.median([np.abs(variances(name, ratios, 64, 1.0, draw).errors(STORED)) for draw in range(25)], 0)
    assert (middle < 64 * expected + 10 * floor + 64 * unit).all()  # n roundings at most
    assert (middle[1:] > expected[1:] / 30).all()


def test_a_float16_square_of_256_is_where_the_naive_variance_of_few_entries_becomes_inf_or_nan():
    found = variances("float16", (1.0, 300.0), 2, 1.0)
    assert found.fate("naive", 0) == "digits" and found.fate("naive", 1) == "broken"
    assert np.isfinite(found.found["welford"]).all()


def test_the_fate_of_a_variance_and_where_the_last_digit_is_lost():
    found = variances("float32", (0.0, 10.0, 1e2, 1e3, 1e6, 3e7, 1e8), 256, 1.0)
    assert [found.fate("naive", place) for place in range(4)] == ["digits"] * 4
    assert found.lost_from("naive") == 1e6
    assert (found.errors("naive") < 0).tolist() == (found.found["naive"] < 0).tolist()
    assert variances("float64", (0.0, 10.0), 256, 1.0).lost_from("welford") == math.inf


def test_the_chosen_ratio_may_stand_anywhere_among_the_others():
    ratios = (1.0, 1e6, 10.0)
    assert variances("float32", ratios, 64, 1.0).lost_from("naive") == variances(
        "float32", tuple(sorted(ratios)), 64, 1.0).lost_from("naive") == 1e6


def test_nothing_undoes_what_storing_lost():
    found = variances("float32", (1e8,), 256, 1.0)
    assert abs(found.errors(STORED)[0]) > 0.5
    assert variances("float64", (1e8,), 256, 1.0).errors(STORED)[0] < 1e-6


def test_the_truth_is_the_variance_before_any_shift():
    for sigma in (0.001, 1.0, 300.0):
        found = variances("float64", (0.0, 5.0), 256, sigma)
        assert found.truth == pytest.approx(np.var(sigma * data(256, 0)), rel=1e-12)
        assert found.found["two_pass"] == pytest.approx([found.truth] * 2, rel=1e-9)
    assert found.unit == FORMATS["float64"].unit


@pytest.mark.parametrize(("n", "sigma"), [(1, 1.0), (8, 0.0), (8, math.nan)])
def test_what_has_no_variance_is_refused_in_a_sentence(n, sigma):
    with pytest.raises(ValueError, match=f"^n is {n} and sigma {sigma:g}; allowed: n from 2 on, sigma above 0$"):
        variances("float32", (1.0,), n, sigma)
