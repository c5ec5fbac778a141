"""Judgements on any site, blocks, branches, tails, number formats and tokens: each calm and each alarmed."""

import math

import numpy as np
import pytest
from made import profile, recorded, trace
from stacks import SMALL

from core import verdicts
from core.drift import THRESHOLDS, drift, verdict
from core.expectations import of_ratio, of_site, of_tails, of_turn
from core.experiment import parse
from core.float16_range import saving_scale, worst_over, worst_under
from core.landscape import where_to_look
from core.presets import PRESETS
from core.trace import Outlier, Trace
from core.train import train
from core.vocabulary import HISTOGRAM_BINS, SITES

DEFAULT, BARE = parse({}), parse({"model": {"residual": False}})
DEPTH = np.arange(1, 13)


def run(model=None, source=None, protocol=None):
    described = parse({"model": {**SMALL, **(model or {})}, "input": {"seq_len": 8, "batch": 4, **(source or {})},
                       "protocol": protocol or {}})
    return Trace(tuple(train(described))), described


# any site over depth


@pytest.mark.parametrize(("values", "code", "alarm"), [
    (10.0 ** (DEPTH / 2), "exploding", True), (10.0 ** (-DEPTH / 2), "vanishing", True),
    (np.sqrt(1 + DEPTH), "growing", False), (np.ones(12), "steady", False), (1 - 0.03 * DEPTH, "shrinking", False),
    ([1, math.nan], "undefined", True), ([math.nan] * 3, "undefined", True), ([0, 1, 1], "undefined", True),
    ([0, 0, 0], "zero", False), ([2.5], "single", False), ([1e-200, 1, 1e100], "exploding", True),
])
@pytest.mark.parametrize("gradient", [False, True])
def test_any_site_gets_the_verdict_of_its_own_course(values, code, alarm, gradient):
    rows = {(layer, "attn_out"): {"rms": value} for layer, value in enumerate(values)}
    backward = {place: row for place, row in zip(rows, reversed(rows.values()), strict=True)}
    found = verdicts.site_drift(recorded(rows, backward if gradient else None), DEFAULT, "attn_out", gradient)
    prefix = "gradient_" if gradient else ""
    assert (found.code, found.alarm, found.site) == (f"{prefix}site_{code}", alarm, "attn_out")
    ends = (found.numbers["first_layer"], found.numbers["last_layer"])
    assert ends == ((len(values) - 1, 0) if gradient else (0, len(values) - 1))
    start, last = values[0], values[-1]
    assert (found.numbers["start_rms"], found.numbers["last_rms"]) == pytest.approx((start, last), nan_ok=True)


def test_the_streams_verdict_is_the_one_of_drift():
    for gradient, prefix in ((False, ""), (True, "gradient_")):
        profiled = trace(np.sqrt(1 + DEPTH), gradient=np.ones(12))
        found, known = verdicts.site_drift(profiled, DEFAULT, gradient=gradient), verdict(profiled, DEFAULT, gradient)
        assert (found.code, found.expected) == (prefix + known.code, known.expected)
        assert found.numbers == pytest.approx(known.numbers, nan_ok=True) and found.site == "resid_post"


def test_another_sites_growth_is_against_its_own_first_layer():
    rows = {(-1, "embed"): {"rms": 7.0}, **{(layer, "norm2"): {"rms": 2.0 + layer} for layer in range(3)}}
    assert drift(recorded(rows), "norm2").growth == 2.0


def test_depth_counts_layers_that_lack_the_site():
    rows = {(layer, "norm1"): {"rms": 2.0**layer} for layer in (0, 1, 4, 6)}
    for gradient in (False, True):
        measured = drift(recorded(rows, rows, n_layers=7), "norm1", gradient)
        assert measured.log_slope == pytest.approx(-math.log(2) if gradient else math.log(2))


@pytest.mark.parametrize("gradient", [False, True])
def test_a_site_that_is_not_finite_names_the_first_layer_in_the_direction_of_flow(gradient):
    rows = {(layer, "v"): {"n_nan": float(layer in (1, 2))} for layer in range(4)}
    found = verdicts.site_drift(recorded(rows, rows), DEFAULT, "v", gradient)
    assert found.code.endswith("site_non_finite") and found.alarm
    assert found.numbers["first_non_finite"] == (2 if gradient else 1)


@pytest.mark.parametrize(("site", "alarm"), [("norm1", True), ("resid_mid", True), ("mlp_out", False), ("q", False)])
def test_zeros_everywhere_are_an_alarm_where_they_are_never_meant(site, alarm):
    found = verdicts.site_drift(profile([0, 0], site), DEFAULT, site)
    assert (found.code, found.alarm) == ("site_zero", alarm)


def test_there_is_nothing_to_judge_where_nothing_is():
    made = recorded({(0, "q"): None, (1, "q"): None, (0, "norm1"): {"kurtosis": math.nan, "rms": math.nan},
                     (0, "resid_post"): {}})
    assert verdicts.site_drift(made, DEFAULT, "mlp_sum").code == "nothing_absent"
    assert verdicts.site_drift(made, DEFAULT, "q").code == "nothing_not_observed"
    assert verdicts.site_drift(made, DEFAULT, "norm1", gradient=True).code == "nothing_not_observed"
    assert verdicts.tails(made, DEFAULT, "norm1").code == "nothing_undefined"
    assert verdicts.tails(made, DEFAULT, "norm1").alarm
    standard, described = run(protocol={"detail": "standard"})
    for found in (verdicts.tails(standard, described), verdicts.massive_activations(standard, described),
                  verdicts.token_sizes(standard, described)):
        assert (found.code, found.alarm) == ("nothing_not_taken", False)


# blocks and branches


@pytest.mark.parametrize(("cosine", "code", "layer"), [
    ([0.9, 0.7, 0.95], "turn_calm", 1), ([0.9, 0.49, 0.95], "turn_overwrites", 1), ([0.5, 1, 1], "turn_calm", 0),
    ([1, 0.999, 1], "turn_idle", 1), ([math.nan, -1, math.nan], "turn_overwrites", 1),
])
def test_the_block_that_turns_the_stream_furthest_decides(cosine, code, layer):
    made = profile(cosine, "resid_post", "layer_cosine")
    found, bare = verdicts.block_turn(made, DEFAULT), verdicts.block_turn(made, BARE)
    assert (found.code, found.numbers["layer"], found.numbers["cosine"]) == (code, layer, np.nanmin(cosine))
    assert found.alarm == (code == "turn_overwrites")
    assert not bare.alarm and bare.expected == "turn_without_residual"


def test_a_cosine_that_is_nowhere_defined_is_said():
    found = verdicts.block_turn(profile([math.nan] * 2, "resid_post", "layer_cosine"), DEFAULT)
    assert (found.code, found.alarm) == ("nothing_undefined", True)


def written(attn, mlp):
    rows = {(layer, site): {"branch_ratio": value} for site, values in (("attn_out", attn), ("mlp_out", mlp))
            for layer, value in enumerate(values)}
    return verdicts.branch_share(recorded(rows), DEFAULT)


@pytest.mark.parametrize(("attn", "mlp", "code", "site", "layer", "ratio"), [
    ([0.4, 0.3], [0.5, 0.2], "share_both", "mlp_out", 0, 0.5),
    ([0.4, 2.1], [0.5, 0.2], "share_branch", "attn_out", 1, 2.1),
    ([50, 0.3], [0.5, 0.2], "share_first", "attn_out", 0, 50), ([50, 0.3], [3, 0.2], "share_branch", "mlp_out", 0, 3),
    ([1e-3, 1e-4], [0.009, 0], "share_stream", "mlp_out", 0, 0.009),
    ([math.nan, 1], [1.5, math.nan], "share_both", "mlp_out", 0, 1.5),
])
def test_branches_are_weighed_against_the_stream(attn, mlp, code, site, layer, ratio):
    found = written(attn, mlp)
    assert (found.code, found.site, found.numbers["layer"], found.numbers["ratio"]) == (code, site, layer, ratio)
    assert found.alarm == (code == "share_branch")
    assert found.numbers["least"] == np.nanmin([*attn, *mlp])


def test_branches_without_a_stream_or_a_value_are_said():
    assert written([math.nan], [math.nan]).code == "nothing_undefined"
    assert verdicts.branch_share(run({"residual": False})[0], BARE).code == "share_none"
    assert verdicts.branch_share(run({"sublayers": "attention"})[0], DEFAULT).site == "attn_out"


@pytest.mark.parametrize(("model", "ratio", "falls"), [
    ({}, "ratio_pre", True), ({"placement": "sandwich"}, "ratio_unit", True),
    ({"placement": "branch"}, "ratio_unit", True), ({"placement": "post"}, "ratio_post", False),
    ({"norm": "none"}, "", None), ({"norm": "dyt"}, "", None),
    ({"branch_scale": 0.5}, "", None), ({"residual": False}, "", None),
])
def test_what_is_expected_of_the_ratio_is_what_a_real_run_shows(model, ratio, falls):
    recorded_run, described = run({"n_layers": 12, "d_model": 32, **model})
    assert of_ratio(described) == verdicts.branch_share(recorded_run, described).expected == ratio
    if falls is not None:
        ratios = recorded_run.profile("mlp_out", "branch_ratio")[1]
        stream = recorded_run.profile("resid_mid", "rms")[1]
        assert (ratios[-1] < 0.6 * ratios[0]) == falls
        if ratio == "ratio_unit":
            assert ratios == pytest.approx(1 / stream, rel=1e-3)
        if ratio == "ratio_post":
            assert ratios == pytest.approx(recorded_run.profile("mlp_out", "rms")[1], rel=1e-3)


# tails


@pytest.mark.parametrize(("kurtosis", "code"), [([3, 2.8], "gaussian"), ([1, 1], "gaussian"), ([3, 4.1], "heavy"),
                                                ([100, 3], "heavy"), ([math.nan, 101], "extreme"),
                                                ([1e9, 3], "extreme")])
def test_the_heaviest_tail_decides(kurtosis, code):
    rows = {(layer, "resid_post"): {"kurtosis": value, "absmax": 12.0, "std": 2.0}
            for layer, value in enumerate(kurtosis)}
    forward = verdicts.tails(recorded(rows), DEFAULT)
    assert (forward.code, forward.alarm) == (f"tails_{code}", code == "extreme")
    assert forward.numbers == {"kurtosis": np.nanmax(kurtosis), "layer": int(np.nanargmax(kurtosis)), "crest": 6.0}
    backward = verdicts.tails(recorded(rows, rows), DEFAULT, gradient=True)
    assert (backward.code, backward.alarm) == (f"gradient_tails_{code}", False)


def test_heavy_tails_after_an_activation_function_are_expected_and_come():
    for activation, expected in (("gelu", "tails_activation"), ("relu", "tails_activation"),
                                 ("swiglu", "tails_activation"), ("tanh", ""), ("identity", "")):
        made, described = run({"n_layers": 4, "d_model": 64, "activation": activation})
        found = verdicts.tails(made, described, "mlp_act")
        assert found.expected == of_tails(described, "mlp_act") == expected
        assert (found.code != "tails_gaussian") == bool(expected), activation
        assert of_tails(described, "norm1") == ""


# float16


def shares(gradient=False, histograms=None, **row):
    rows = {(0, "norm1"): {}, (0, "mlp_act"): {"subnormal_frac16": 0.9}, (1, "norm1"): row}
    kept = {} if histograms is None else {"gradients": np.array(histograms)}
    return recorded(rows, rows if gradient else None, histograms=kept)


@pytest.mark.parametrize(("row", "code", "share"), [
    ({"subnormal_frac16": 0.01}, "range_fits", 0.01), ({"subnormal_frac16": 0.011}, "range_small", 0.011),
    ({"subnormal_frac16": 0.5, "overflow_frac16": 1e-6}, "range_overflows", 1e-6),
    ({"n_neginf": 1.0, "subnormal_frac16": 0.5}, "range_overflows", 0.01),
    ({"n_posinf": 100.0, "overflow_frac16": math.nan, "subnormal_frac16": math.nan}, "range_overflows", 1.0),
    ({"n_nan": 50.0, "overflow_frac16": 0.5}, "range_overflows", 0.25),
])
def test_what_float16_would_lose_is_said_with_share_and_place(row, code, share):
    found = verdicts.float16_range(shares(**row), DEFAULT)
    assert (found.code, found.alarm) == (code, code != "range_fits")
    assert found.numbers["share"] == pytest.approx(share)
    assert (found.site, found.numbers["layer"]) == ("norm1", 1)


@pytest.mark.parametrize(("protocol", "alarm"), [({}, False), ({"dtype": "float16"}, True),
                                                 ({"dtype": "bfloat16"}, False),
                                                 ({"dtype": "float16", "loss_scale": 1024.0}, False)])
def test_gradients_are_an_alarm_only_where_float16_holds_them_unscaled(protocol, alarm):
    made = shares(gradient=True, subnormal_frac16=0.5)
    found = verdicts.float16_range(made, parse({"protocol": protocol}), gradient=True)
    assert (found.code, found.alarm) == ("gradient_range_small", alarm)
    assert math.isnan(found.numbers["loss_scale"])


def counts(**exponents):
    """A row of log2_hist with these counts: e_14=3 for the exponent −14, p_3 for 3."""
    row = np.zeros(len(HISTOGRAM_BINS), np.int64)
    for name, count in exponents.items():
        place = {"e": "-", "p": ""}.get(name[0])
        row[HISTOGRAM_BINS.index(name if place is None else place + name[2:])] = count
    return row


@pytest.mark.parametrize(("row", "scale"), [
    (counts(e_14=100), 1.0), (counts(e_20=100), 64.0), (counts(e_20=1, e_14=99), 1.0),
    (counts(e_20=2, e_14=98), 64.0),
    (counts(e_20=100, p_9=1), 64.0), (counts(e_20=100, p_10=1), math.nan), (counts(e_149=100), 2.0**135),
    (counts(zero=500, e_30=1), 1.0), (counts(zero=50, e_30=50), 2.0**16), (counts(zero=100), math.nan),
    (counts(e_20=100, nonfinite=50), 64.0),
])
def test_the_loss_scale_is_the_least_power_of_two_that_saves_all_but_a_hundredth(row, scale):
    made = shares(True, [counts(zero=100), counts(), row], subnormal_frac16=0.5)
    assert saving_scale(made.snapshots[0]) == pytest.approx(scale, nan_ok=True)
    found = verdicts.float16_range(made, DEFAULT, gradient=True)
    if not math.isnan(scale):
        assert (found.code, found.numbers["loss_scale"]) == ("gradient_range_scalable", scale)


def test_one_loss_scale_must_do_for_all_sites():
    assert math.isnan(saving_scale(shares(True, [counts(e_40=100), counts(), counts(e_10=100)]).snapshots[0]))
    assert saving_scale(shares(True, [counts(e_38=100), counts(), counts(e_10=100)]).snapshots[0]) == 2.0**24


def test_the_loss_scale_that_is_found_saves_a_real_run():
    plain, described = run({"d_model": 64}, protocol={"dtype": "float16"})
    found = verdicts.float16_range(plain, described, gradient=True)
    assert (found.code, found.alarm) == ("gradient_range_scalable", True)
    wide, described = run({"d_model": 64})
    scale = verdicts.float16_range(wide, described, gradient=True).numbers["loss_scale"]
    for tried, saved in ((scale, True), (scale / 4, False)):
        held, _ = run({"d_model": 64}, protocol={"dtype": "float16", "loss_scale": tried})
        counts_held = held.snapshots[0].histograms["gradients"]
        least = HISTOGRAM_BINS.index(str(-14 - round(math.log2(tried))))  # of the unscaled gradient: 2⁻¹⁴ in the run
        lost = counts_held[:, :least].sum(1) / np.maximum(counts_held.sum(1), 1)
        assert (lost.max() <= 0.012) == saved


def test_no_share_is_known_where_nothing_was_recorded_or_finite():
    nothing = recorded({(0, "norm1"): None})
    assert worst_over(nothing.snapshots[0], False) is None and worst_under(nothing.snapshots[0], True) is None
    assert verdicts.float16_range(nothing, DEFAULT).code == "nothing_undefined"
    assert verdicts.float16_range(nothing, DEFAULT, gradient=True).code == "nothing_not_observed"


@pytest.mark.parametrize(("model", "code"), [({}, "range_fits"), ({"norm": "none", "init": "kaiming", "n_layers": 12},
                                             "range_overflows"),
                                             ({"norm": "none", "residual": False, "n_layers": 16}, "range_small")])
def test_real_runs_are_told_whether_float16_would_hold_them(model, code):
    made, described = run({"d_model": 64, **model})
    assert verdicts.float16_range(made, described).code == code


# single entries and tokens


def outliers(*entries):
    return recorded({(layer, "resid_post"): {} for layer in range(4)}, batch_shape=(2, 4),
                    tokens=np.arange(97, 105, dtype=np.int32), outliers=tuple(
                        Outlier(layer, "resid_post", token, dim, value, ratio)
                        for layer, token, dim, value, ratio in entries))


@pytest.mark.parametrize(("entries", "code", "numbers"), [
    ((), "massive_none", {}),
    ([(2, 5, 7, 30.0, 25.0), (1, 0, 0, 1.0, 21.0)], "massive_some",
     {"count": 2, "ratio": 25, "sequence": 1, "position": 1}),
    ([(2, 5, 7, -3000.0, 2500.0), (3, 5, 7, -2900.0, 2400.0), (0, 1, 1, 2.0, 9000.0)], "massive_found",
     {"count": 1, "value": -3000, "ratio": 2500, "layer": 2, "dim": 7, "depth": 2}),
])
def test_massive_activations_are_told_from_outliers_and_from_none(entries, code, numbers):
    found = verdicts.massive_activations(outliers(*entries), DEFAULT)
    assert (found.code, found.alarm) == (code, code == "massive_found")
    assert {name: found.numbers[name] for name in numbers} == numbers
    assert found.token == ("f" if entries else "")
    assert found.thresholds == {name: THRESHOLDS[name] for name in ("outlier_ratio", "massive_ratio", "massive_value")}


def sizes(*rows, shape=(2, 4), **settings):
    return recorded({(layer, "resid_post"): {} for layer in range(len(rows) - 1)}, batch_shape=shape,
                    token_rms=np.array(rows, np.float32), **settings)


EVEN = [1.0] * 8
SINK = [50.0, 1, 1, 1] * 2


@pytest.mark.parametrize(("rows", "code", "layer", "token"), [
    ([EVEN, EVEN], "sizes_even", -1, 0), ([EVEN, [1, 1, 1, 1, 1, 5, 1, 1]], "sizes_differ", 0, 5),
    ([EVEN, [1, 1, 1, 1, 1, 11, 1, 1]], "sizes_stand_out", 0, 5), ([EVEN, EVEN, SINK], "sizes_first", 1, 0),
    ([EVEN, [50, 1, 1, 1, 1, 1, 1, 1]], "sizes_stand_out", 0, 0),  # in one sequence of two, which is not more than half
    ([[1, 1, 20, math.nan, 1, math.nan, math.nan, math.nan], EVEN], "sizes_stand_out", -1, 2),
    ([[0] * 8, EVEN], "sizes_even", 0, 0),
])
def test_the_largest_token_is_compared_with_the_median_one(rows, code, layer, token):
    found = verdicts.token_sizes(sizes(*rows), DEFAULT)
    assert (found.code, found.alarm) == (code, code in ("sizes_first", "sizes_stand_out"))
    assert (found.numbers["layer"], found.numbers["token"]) == (layer, token)
    assert (found.numbers["sequence"], found.numbers["position"]) == divmod(token, 4)
    assert found.site == ("embed" if layer < 0 else "resid_post")


def test_tokens_of_no_size_at_all_are_undefined():
    assert verdicts.token_sizes(sizes([math.nan] * 8, [0.0] * 8), DEFAULT).code == "nothing_undefined"


# whole runs


@pytest.mark.parametrize(("placement", "site", "scaling", "expected"), [
    ("pre", "norm1", "none", "norm_output"), ("pre", "norm2", "inv_sqrt_layer", "input_scaled"),
    ("sandwich", "norm2", "none", "norm_output"), ("sandwich", "norm2_out", "none", "norm_output"),
    ("sandwich", "norm1", "inv_sqrt_layer", "input_scaled"), ("sandwich", "norm1_out", "inv_sqrt_layer", "norm_output"),
    ("branch", "norm1_out", "none", "norm_output"),
])
def test_what_is_expected_of_a_norms_output_is_what_a_real_run_shows(placement, site, scaling, expected):
    made, described = run({"n_layers": 8, "placement": placement, "depth_scaling": scaling})
    assert verdicts.site_drift(made, described, site).expected == of_site(described, site) == expected
    divisor = np.sqrt(1 + np.arange(8)) if expected == "input_scaled" else 1.0
    assert made.profile(site, "rms")[1] * divisor == pytest.approx(np.ones(8), abs=1e-3)


@pytest.mark.parametrize(("model", "protocol"), [
    ({"norm": "dyt"}, {}), ({"norm": "batchnorm"}, {"mode": "eval"}),
    ({"layer_norms": {"2": "batchnorm"}}, {"mode": "eval"}),
])
def test_nothing_is_promised_of_a_norm_that_does_not_hold_the_size(model, protocol):
    described = parse({"model": model, "protocol": protocol})
    assert of_site(described, "norm1") == of_site(described, "norm1_out") == of_ratio(described) == ""
    assert of_site(described, "v") == ""


def everything(made, described):
    """Every judgement there is on a run, in both directions and at every site."""
    yield from verdicts.branch_feed(made, described)
    for judge in (verdicts.block_turn, verdicts.branch_share, verdicts.massive_activations, verdicts.token_sizes):
        yield judge(made, described)
    for gradient in (False, True):
        yield where_to_look(made, gradient)
        yield verdicts.float16_range(made, described, gradient)
        for site in SITES:
            yield verdicts.site_drift(made, described, site, gradient)
            yield verdicts.tails(made, described, site, gradient)


NOT_A_NUMBER = {"model": {**SMALL, "norm": "none", "init": "kaiming", "n_layers": 60}, "protocol": {"dtype": "float16"}}


@pytest.mark.parametrize("described", [*PRESETS.values(), NOT_A_NUMBER, {"model": {"n_layers": 1}},
                                       {"protocol": {"detail": "standard"}}], ids=str)
def test_every_judgement_on_every_preset_is_a_verdict_with_its_thresholds(described):
    experiment = parse(described)
    made = Trace(tuple(train(experiment)))
    for found in everything(made, experiment):
        assert all(THRESHOLDS[name] == value for name, value in found.thresholds.items())
        assert all(isinstance(value, float) for value in found.numbers.values())
        assert isinstance(found.alarm, bool)


def test_a_healthy_default_run_raises_no_alarm_but_for_what_inner_gradients_do():
    made = Trace(tuple(train(DEFAULT)))
    alarms = {(found.code, found.site) for found in everything(made, DEFAULT) if found.alarm}
    assert {code for code, _ in alarms} <= {"gradient_site_exploding"}
    assert {site for _, site in alarms} <= {"q", "k", "attn_scores", "attn_pattern"}
    assert of_turn(DEFAULT) == ""
