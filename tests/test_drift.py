"""Drift measures and verdicts against profiles whose law is known."""

import math

import numpy as np
import pytest

from core.drift import THRESHOLDS, drift, expected, verdict, verdicts
from core.experiment import parse
from core.trace import Trace
from core.train import train
from tests.made import trace
from tests.stacks import SMALL

DEPTH = np.arange(1, 13)
DEFAULT = parse({})


def test_an_exponential_is_named_and_measured():
    measured = drift(trace(2.0 ** (DEPTH / 3)))
    assert measured.law == "exponential"
    assert measured.log_slope == pytest.approx(math.log(2) / 3)
    assert measured.doubling_depth == pytest.approx(3)
    assert measured.growth == pytest.approx(16)


@pytest.mark.parametrize(("offset", "slope"), [(1, 2), (1, 0.6), (0.0004, 0.2)])
def test_a_square_that_grows_linearly_is_a_power_law(offset, slope):
    measured = drift(trace(np.sqrt(offset + slope * DEPTH)))
    assert measured.law == "power"
    assert measured.square_slope == pytest.approx(slope)
    assert measured.power_error < 1e-9 < measured.exponential_error


def test_a_stream_held_at_one_is_flat_and_steady():
    measured = drift(trace(np.ones(12)))
    assert measured.law == "flat"
    assert measured.overflow16_layer == math.inf
    assert verdict(trace(np.ones(12)), DEFAULT).code == "steady"


def test_the_overflow_layer_is_where_the_exponential_passes_65504():
    profile = trace(10.0 ** (DEPTH / 4), crest=5.0)
    layer = drift(profile).overflow16_layer
    assert 5.0 * 10 ** ((layer + 1) / 4) == pytest.approx(65504)
    assert verdicts(profile, DEFAULT)[-2].code == "float16_limited"


def test_the_overflow_layer_is_where_the_power_law_passes_65504():
    layer = drift(trace(np.sqrt(1 + 2 * DEPTH), crest=4.0)).overflow16_layer
    assert 4 * math.sqrt(1 + 2 * (layer + 1)) == pytest.approx(65504)


def test_a_measured_overflow_comes_before_any_extrapolation():
    profile = trace(10.0 ** DEPTH, crest=3.0)
    assert drift(profile).overflow16_layer == 4
    assert verdicts(profile, DEFAULT)[-2].alarm


@pytest.mark.parametrize(("profile", "code", "alarm"), [
    (10.0 ** (DEPTH / 2), "exploding", True),
    (10.0 ** (-DEPTH / 2), "vanishing", True),
    (1e-30 * 10.0 ** (-DEPTH / 8), "vanishing", True),
    (1e30 * 10.0 ** (DEPTH / 2), "exploding", True),
    (np.sqrt(1 + 0.6 * DEPTH), "growing", False),
    (1 + 0.01 * DEPTH, "steady", False),
    (1 - 0.03 * DEPTH, "shrinking", False),
    ([1, 2, np.nan, np.nan], "non_finite", True),
    ([np.nan] * 4, "non_finite", True),
    ([0.0] * 4, "vanishing", True),
])
def test_each_profile_gets_its_verdict(profile, code, alarm):
    found = verdict(trace(np.array(profile, float)), DEFAULT)
    assert (found.code, found.alarm) == (code, alarm)
    assert set(found.thresholds) <= set(THRESHOLDS)


def test_the_first_non_finite_layer_is_named():
    assert drift(trace(np.array([1, 2, np.nan, np.nan]))).first_non_finite == 2
    assert drift(trace(np.ones(4))).first_non_finite is None


def test_gradients_are_read_in_the_direction_in_which_they_flow():
    profile = trace(np.ones(12), gradient=2.0 ** -DEPTH.astype(float))
    measured = drift(profile, gradient=True)
    assert measured.log_slope == pytest.approx(math.log(2))
    assert measured.growth == pytest.approx(2.0**11)
    codes = [found.code for found in verdicts(profile, DEFAULT)]
    assert codes[:2] == ["steady", "gradient_exploding"]


@pytest.mark.parametrize("layers", [1, 2])
def test_too_few_layers_for_a_law_leave_it_undetermined(layers):
    measured = drift(trace(np.full(layers, 3.0)))
    assert measured.law == "undetermined"
    assert measured.growth == 3
    assert isinstance(verdict(trace(np.full(layers, 3.0)), DEFAULT).code, str)


def test_tokens_that_point_the_same_way_are_collapsed():
    assert verdicts(trace(np.ones(4), cosine=0.99), DEFAULT)[-1].code == "tokens_collapsed"
    assert verdicts(trace(np.ones(4), cosine=0.5), DEFAULT)[-1].code == "tokens_differ"
    assert verdicts(trace(np.ones(4), cosine=np.nan), DEFAULT)[-1].code == "tokens_undefined"


def test_an_absent_site_is_an_error_that_names_what_is_there():
    with pytest.raises(ValueError, match=r"mlp_sum is absent.*resid_post"):
        drift(trace(np.ones(4)), site="mlp_sum")


@pytest.mark.parametrize(("model", "code"), [
    ({}, "pre"), ({"placement": "post"}, "post"), ({"norm": "none", "placement": "post"}, "none"),
    ({"residual": False, "norm": "none"}, "none_without_residual"),
    ({"branch_scale": "rezero"}, "scaled"), ({"residual_alpha": 2.0, "placement": "branch"}, "scaled"),
    ({"norm": "none", "branch_scale": "inv_sqrt_2L"}, "scaled"), ({"placement": "post", "branch_scale": 0.5}, "post"),
    ({"norm": "none", "placement": "post", "branch_scale": 0.5}, "scaled"),
    ({"residual": False, "branch_scale": 0.5}, "pre_without_residual"),
])
def test_what_is_expected_follows_the_configuration(model, code):
    assert expected(parse({"model": model})) == code
    assert expected(parse({"model": model}), gradient=True) == "gradient_" + code


@pytest.mark.parametrize(("model", "least", "most"), [
    ({"branch_scale": "rezero"}, 1, 1), ({"norm": "none", "branch_scale": "inv_sqrt_2L"}, 1, 1.25),
    ({"residual_alpha": 2.0}, 4.0**6 * 0.9, math.inf),
])
def test_a_factor_on_stream_or_branch_does_to_a_real_stream_and_its_gradient_what_is_expected(model, least, most):
    described = parse({"model": {**SMALL, "n_layers": 6, **model}})
    made = Trace(tuple(train(described)))
    assert verdict(made, described).expected == "scaled"
    assert least * (1 - 1e-6) <= drift(made).growth <= most * (1 + 1e-6)
    assert (drift(made, gradient=True).growth > 100) == (most == math.inf)


def test_a_stream_of_zeros_is_infinitely_far_below_the_largest_float16():
    found = verdicts(trace(np.zeros(4)), DEFAULT)
    (float16,) = [one for one in found if one.code.startswith("float16")]
    assert (float16.code, float16.numbers["headroom"]) == ("float16_fits", math.inf)


def test_moderate_growth_of_gradients_is_no_alarm():
    profile = trace(np.ones(12), gradient=1.085 ** -DEPTH.astype(float))
    assert [found.alarm for found in verdicts(profile, DEFAULT)[:2]] == [False, False]


@pytest.mark.parametrize("stream", [np.ones(12), np.ones(1), np.zeros(4), 1 + 1e-9 * DEPTH])
def test_a_stream_without_a_trend_fits_float16(stream):
    assert verdicts(trace(stream), DEFAULT)[-2].code == "float16_fits"


def test_what_no_measured_layer_passes_is_no_overflow_yet():
    profile = trace(np.array([1.0, 25.0, 600.0, 15000.0]), crest=4.0)
    found = verdicts(profile, DEFAULT)[-2]
    assert (found.code, found.alarm) == ("float16_limited", False)
    assert found.numbers["overflow16_layer"] >= 4


def test_minus_infinity_is_an_overflow_too():
    profile = trace(np.array([1.0, 2.0, 4.0, 8.0]))
    profile.snapshots[0].activations["n_neginf"][3] = 1
    assert drift(profile).overflow16_layer == 2


def test_a_stream_without_a_finite_entry_fits_no_number_format():
    experiment = parse({"model": {"n_layers": 2, "d_model": 16, "embed_scale": 1e30},
                        "input": {"batch": 1, "seq_len": 8}, "protocol": {"dtype": "float16"}})
    codes = [one.code for one in verdicts(Trace(tuple(train(experiment))), experiment)]
    assert codes[0] == "non_finite" and not [code for code in codes if code.startswith("float16")]


def test_a_single_jump_is_no_law_and_no_explosion():
    assert drift(trace(np.array([1e-5] + [1.0] * 11))).law != "exponential"
    assert verdict(trace(np.array([1e-5] + [1.0] * 11)), DEFAULT).code != "exploding"


def test_growth_that_both_laws_fit_alike_is_undetermined():
    rms = np.sqrt(np.exp(0.2 * DEPTH) * (1 + 0.6 * DEPTH))
    fits = drift(trace(rms))
    assert (fits.law == "undetermined") == (min(fits.exponential_error, fits.power_error)
                                            > 0.9 * max(fits.exponential_error, fits.power_error))
