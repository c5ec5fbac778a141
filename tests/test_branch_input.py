"""What feeds the branches: the right site in every layer, and both answers, of the stream and of the input, true."""

import math

import numpy as np
import pytest
from made import recorded
from stacks import SMALL

from core.branch_input import branch_input, branch_inputs
from core.drift import verdict
from core.expectations import of_input
from core.experiment import parse
from core.trace import Trace
from core.train import train
from core.verdicts import branch_feed

DEEP = {"n_layers": 12, "d_model": 32, "n_heads": 2}


def run(model=None, **parts):
    described = parse({"model": {**SMALL, **(model or {})}, "input": {"seq_len": 8, "batch": 4}, **parts})
    return described, Trace(tuple(train(described)))


@pytest.mark.parametrize(("model", "attention", "mlp"), [
    ({}, "norm1", "norm2"), ({"placement": "sandwich"}, "norm1", "norm2"),
    ({"placement": "post"}, "resid_pre", "resid_mid"), ({"placement": "branch"}, "resid_pre", "resid_mid"),
    ({"norm": "none"}, "resid_pre", "resid_mid"),
    ({"sublayers": "attention"}, "norm1", None), ({"sublayers": "mlp"}, None, "norm2"),
    ({"sublayers": "mlp", "norm": "none"}, None, "resid_pre"), ({"residual": False}, "norm1", "norm2"),
])
def test_each_branch_is_fed_by_the_site_that_really_enters_it(model, attention, mlp):
    _, trace = run(model)
    sites = {one.sublayer: set(one.sites) for one in branch_inputs(trace)}
    assert sites == {name: {site} for name, site in (("attention", attention), ("mlp", mlp)) if site}
    for one in branch_inputs(trace):
        assert one.layers == (0, 1) and one.observed.all() and not one.non_finite.any()


def test_layers_that_differ_are_each_read_where_they_are_fed():
    _, trace = run({"n_layers": 4, "layer_norms": {"1": "none", "2": "none"}})
    attention, mlp = branch_inputs(trace)
    assert attention.sites == ("norm1", "resid_pre", "resid_pre", "norm1")
    assert mlp.sites == ("norm2", "resid_mid", "resid_mid", "norm2")
    for layer, (site, value) in enumerate(zip(attention.sites, attention.values, strict=True)):
        layers, values = trace.profile(site, "rms")
        assert value == values[layers.index(layer)]


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("statistic", ["rms", "kurtosis", "token_cosine", "layer_cosine"])
def test_any_statistic_can_be_asked_for_and_is_nan_where_it_is_not_taken(statistic, gradient):
    _, trace = run()
    found = branch_input(trace, "attention", statistic, gradient)
    wanted = trace.profile("norm1", statistic, gradient)[1]
    assert np.array_equal(found.values, wanted, equal_nan=True)
    assert np.isnan(found.values).all() == (statistic == "layer_cosine")


def test_a_sublayer_that_is_left_out_has_no_input():
    _, trace = run({"sublayers": "mlp"})
    assert branch_input(trace, "attention").layers == ()
    assert [one.sublayer for one in branch_inputs(trace)] == ["mlp"]


def test_under_pre_norm_the_stream_grows_while_the_branch_input_is_flat_at_one():
    described, trace = run(DEEP)
    stream, feed = verdict(trace, described), branch_feed(trace, described)
    assert (stream.code, stream.law, stream.alarm, stream.expected) == ("growing", "power", False, "pre")
    for one, sublayer in zip(feed, ("attention", "mlp"), strict=True):
        assert (one.code, one.site, one.alarm, one.expected) == ("input_flat", sublayer, False, "input_before")
        assert one.numbers["level"] == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(("model", "protocol", "expected", "codes"), [
    ({}, {}, "input_before", {"input_flat"}), ({"placement": "sandwich"}, {}, "input_before", {"input_flat"}),
    ({"residual": False}, {}, "input_before", {"input_flat"}),
    ({"norm": "rmsnorm"}, {}, "input_before", {"input_flat"}),
    ({"norm": "batchnorm"}, {}, "input_before", {"input_flat"}),
    ({"norm": "scalenorm"}, {}, "input_before", {"input_flat"}),
    ({"norm": "batchnorm", "init": "kaiming"}, {"mode": "eval"}, "input_running", {"input_exploding"}),
    ({"norm": "dyt"}, {}, "input_dyt", {"input_growing", "input_flat"}),
    ({"depth_scaling": "inv_sqrt_layer"}, {}, "input_scaled", {"input_shrinking"}),
    ({"placement": "post"}, {}, "input_post", {"input_flat"}),
    ({"placement": "post", "residual": False}, {}, "input_post", {"input_flat"}),
    ({"placement": "branch"}, {}, "input_branch", {"input_growing"}),
    ({"placement": "branch", "residual": False}, {}, "input_branch_without_residual", {"input_flat"}),
    ({"norm": "none", "init": "kaiming"}, {}, "input_none", {"input_exploding"}),
    ({"norm": "none", "residual": False}, {}, "input_none", {"input_vanishing"}),
    ({"norm": "none", "init": "normal"}, {}, "input_none", {"input_flat"}),
    ({"layer_norms": {"5": "none"}}, {}, "input_mixed", {"input_uneven"}),
    ({"layer_norms": {"5": "batchnorm"}}, {"mode": "eval"}, "input_mixed", {"input_uneven"}),
    ({"layer_norms": {"5": "none"}, "placement": "post", "init": "kaiming"}, {}, "", {"input_uneven"}),
    ({"layer_norms": {"5": "rmsnorm"}}, {}, "input_before", {"input_flat"}),
])
def test_what_is_expected_of_the_branch_input_is_what_a_real_run_shows(model, protocol, expected, codes):
    described, trace = run({**DEEP, **model}, protocol=protocol)
    assert of_input(described) == expected
    found = branch_feed(trace, described)
    assert {one.code for one in found} <= codes and {one.expected for one in found} == {expected}


def fed(values, **row):
    rows = {(layer, site): {"rms": value if site == "norm1" else 1.0, **row}
            for layer, value in enumerate(values) for site in ("norm1", "q")}
    (found,) = branch_feed(recorded(rows), parse({}))
    return found


@pytest.mark.parametrize(("values", "code", "alarm"), [
    ([1, 1.1, 0.95], "input_flat", False), ([1, 3, 1], "input_uneven", False), ([1, 2, 3], "input_growing", False),
    ([1, 0.6, 0.5], "input_shrinking", False), ([1, 10, 100], "input_exploding", True),
    ([1, 0.1, 0.01], "input_vanishing", True), ([0, 0, 0], "input_zero", True), ([0, 1, 1], "input_undefined", True),
    ([math.nan] * 3, "input_undefined", True), ([1.0], "input_flat", False),
])
def test_each_course_of_the_input_gets_its_verdict(values, code, alarm):
    assert (fed(values).code, fed(values).alarm) == (code, alarm)


def test_an_input_that_is_not_finite_or_was_not_seen_is_said():
    found = fed([1, 1, 1], n_nan=2)
    assert (found.code, found.numbers["first_non_finite"]) == ("input_non_finite", 0)
    (unseen,) = branch_feed(recorded({(0, "norm1"): None, (0, "q"): None}), parse({}))
    assert (unseen.code, unseen.site) == ("nothing_not_observed", "attention")
