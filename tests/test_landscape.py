"""The map over sites and layers, and the one place that it says to look at first."""

import math

import numpy as np
import pytest
from made import profile, recorded
from stacks import SMALL, experiment

from core.corpus import batch
from core.experiment import parse
from core.landscape import LOOKED_AT, changes, landscape, where_to_look
from core.model import build
from core.passes import step
from core.presets import PRESETS
from core.recorder import Recorder
from core.sites import sites_of
from core.trace import NonFinite, Trace
from core.train import train
from core.vocabulary import SITES, STATISTICS


def run(**described):
    return Trace(tuple(train(parse(described))))


def test_every_kind_of_nothing_is_told_apart():
    trace = recorded({(0, "norm1"): {"rms": 2.0}, (0, "attn_scores"): None, (1, "norm1"): {"rms": math.nan, "n_nan": 9},
                      (1, "attn_scores"): {"rms": 0.0}})
    found = landscape(trace, "rms")
    assert found.sites == ("norm1", "attn_scores") and found.layers == (-1, 0, 1, 2)
    states = {(site, layer): found.state(site, layer) for site in found.sites for layer in found.layers}
    assert states == {
        ("norm1", -1): "absent", ("norm1", 0): "measured", ("norm1", 1): "undefined", ("norm1", 2): "absent",
        ("attn_scores", -1): "absent", ("attn_scores", 0): "not_observed", ("attn_scores", 1): "measured",
        ("attn_scores", 2): "absent"}
    assert found.values[0, 1] == 2.0 and found.values[1, 2] == 0.0
    assert np.isnan(found.values[found.states != "measured"]).all()
    assert found.non_finite.tolist() == [[0, 0, 9, 0], [0] * 4]


def test_a_gradient_that_did_not_come_was_not_observed_and_what_a_detail_leaves_out_was_not_taken():
    trace = run(model=SMALL, protocol={"detail": "standard"})
    assert landscape(trace, "kurtosis").state("norm1", 0) == "not_taken"
    assert landscape(trace, "kurtosis", gradient=True).state("norm1", 0) == "not_taken"
    assert landscape(trace, "rms", gradient=True).state("norm1", 0) == "measured"
    assert landscape(profile([1, 1]), "rms", gradient=True).state("attn_out", 0) == "not_observed"


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("statistic", STATISTICS)
def test_the_map_holds_every_number_of_the_trace_at_its_place(statistic, gradient):
    trace = run(model={**SMALL, "placement": "sandwich"}, input={"seq_len": 6, "batch": 2})
    found, snapshot = landscape(trace, statistic, gradient), trace.snapshots[0]
    group = snapshot.gradients if gradient else snapshot.activations
    assert list(found.sites) == [site for site in SITES if site in found.sites]  # in the order of computation
    assert found.values.shape == found.states.shape == (len(found.sites), 4)
    for row, (layer, site) in enumerate(snapshot.layout.sites):
        only = STATISTICS[statistic].sites
        assert (site in found.sites) == (only is None or site in only)
        if site in found.sites and statistic in group:
            value = found.values[found.sites.index(site), layer + 1]
            assert value == pytest.approx(group[statistic][row], nan_ok=True)
    assert np.isnan(found.values[found.states != "measured"]).all()


# where to look


@pytest.mark.parametrize(("values", "code", "first", "last", "factor"), [
    ([1, 2, 4], "look_calm", 0, 2, 4), ([1, 30, 2], "look_change", 0, 1, 30),
    ([1, 1, 0.01], "look_change", 0, 2, 0.01), (np.sqrt(1 + 40 * np.arange(12)), "look_power", 0, 11, 21),
    (np.exp(0.03 * np.arange(96)), "look_slow", 0, 95, 17.3),
    ([1, 1, 0], "look_change", 1, 2, 0), ([0, 1, 1], "look_change", 0, 1, math.inf),
    ([0, 0, 0], "look_constant", 0, 0, 1),
    ([1, math.nan, 50], "look_change", 0, 2, 50), ([1e-300, 1e300], "look_change", 0, 1, math.inf),
])
def test_the_site_that_changes_most_is_named_with_factor_and_layers(values, code, first, last, factor):
    with np.errstate(over="ignore"):
        found = where_to_look(profile(values))
    assert (found.code, found.alarm, found.site) == (code, code == "look_change", "attn_out")
    assert (found.numbers["last_layer"] == last) or factor == 0
    assert found.numbers["first_layer"] in (first, 0)
    assert found.numbers["factor"] == pytest.approx(factor, rel=0.01)
    assert found.thresholds["alarm_growth"] == 10


def test_a_gradient_is_read_downward_and_without_the_embedding():
    rows = {(layer, "resid_pre"): {"rms": 1.0} for layer in range(4)}
    gradients = {place: {"rms": value} for place, value in zip(rows, [1e6, 40, 2, 1], strict=True)}
    found = where_to_look(recorded(rows, gradients), gradient=True)
    assert (found.code, found.alarm) == ("gradient_look_change", True)
    assert (found.numbers["first_layer"], found.numbers["last_layer"], found.numbers["factor"]) == (3, 1, 40)
    assert where_to_look(recorded(rows, gradients)).code == "look_constant"


def test_what_happens_inside_a_branch_alone_is_no_place_to_look():
    rows = {(layer, site): {"rms": value} for site, values in {"q": [1, 1e6], "resid_post": [1, 2]}.items()
            for layer, value in enumerate(values)}
    assert where_to_look(recorded(rows)).site == "resid_post"
    assert {change.site: change.factor for change in changes(recorded(rows))} == {"q": 1e6, "resid_post": 2}
    stream = {"embed", "resid_pre", "attn_sum", "resid_mid", "mlp_sum", "resid_post", "hidden"}
    assert stream | {"attn_out", "mlp_out"} == LOOKED_AT


@pytest.mark.parametrize(("site", "code"), [("norm1", "look_zero"), ("resid_mid", "look_zero"),
                                            ("mlp_out", "look_constant"), ("q", "look_constant")])
def test_zeros_are_a_place_to_look_at_where_they_are_never_meant(site, code):
    rows = {(layer, name): {"rms": 0.0 if name == site else 1.0} for layer in range(2)
            for name in ("norm1", "q", "resid_mid", "mlp_out")}
    found = where_to_look(recorded(rows))
    assert found.code == code
    if code == "look_zero":
        assert (found.alarm, found.site, found.numbers["layer"]) == (True, site, 0)


@pytest.mark.parametrize("kind", ["nan", "inf"])
def test_the_first_value_that_is_not_finite_comes_before_everything(kind):
    forward = profile([1, 1e9], non_finite=NonFinite(0, 1, "mlp_act", "forward", kind))
    for gradient in (False, True):
        found = where_to_look(forward, gradient)
        assert (found.code, found.alarm, found.site, found.numbers) == (f"look_{kind}", True, "mlp_act", {"layer": 1.0})
    backward = profile([1, 1], non_finite=NonFinite(0, 1, "q", "gradient", kind))
    assert where_to_look(backward).code == "look_constant"
    assert where_to_look(backward, gradient=True).code == f"gradient_look_{kind}"


def test_nothing_to_compare_is_said():
    assert where_to_look(profile([1.0])).code == "look_undefined"
    assert where_to_look(profile([math.nan] * 4)).code == "look_undefined"
    assert where_to_look(profile([1, 1]), gradient=True).code == "gradient_look_not_observed"


@pytest.mark.parametrize(("layer", "site"), [(0, "norm1"), (1, "v"), (1, "mlp_act"), (-1, "embed"), (2, "logits")])
def test_a_value_that_is_put_into_a_real_stack_is_found_where_it_was_put(layer, site):
    described = experiment()
    stack, data = build(described), batch(described, 0)

    def put(_module, arguments):
        x = arguments[0].clone()
        x[(0,) * x.dim()] = math.inf
        return (x,)

    sites_of(stack, 2)[layer, site].register_forward_pre_hook(put)
    with Recorder(stack) as recorder:
        recorder.begin(data.mask)
        loss = step(stack, data, 0)
        found = where_to_look(Trace((recorder.snapshot(0, float(loss)),)))
    assert (found.code, found.site, found.numbers["layer"]) == ("look_inf", site, layer)


LOOKS = {"pre_layernorm": ("look_calm", "gradient_look_calm"), "exploding": ("look_change", "gradient_look_change"),
         "vanishing": ("look_change", "gradient_look_change"), "post_layernorm": ("look_calm", "gradient_look_calm"),
         "float16_overflow": ("look_inf", "look_inf")}


@pytest.mark.parametrize("name", LOOKS)
def test_real_runs_are_looked_at_where_something_is_wrong_and_left_alone_where_not(name):
    trace = run(**PRESETS[name])
    assert (where_to_look(trace).code, where_to_look(trace, gradient=True).code) == LOOKS[name]


def test_a_stack_that_changes_nothing_is_called_constant():
    experiment = parse({"model": {"n_layers": 3, "d_model": 16, "norm": "none", "branch_scale": 0.0},
                        "input": {"batch": 1, "seq_len": 8}})
    found = where_to_look(Trace(tuple(train(experiment))))
    assert (found.code, found.alarm) == ("look_constant", False)


def test_a_gradient_that_is_zero_from_a_site_on_is_where_to_look():
    found = PRESETS["float16_naive_norm"]
    run = Trace(tuple(train(parse(found))))
    verdict = where_to_look(run, gradient=True)
    assert (verdict.code, verdict.alarm, verdict.site) == ("gradient_look_zero", True, "resid_post")
    assert verdict.numbers["layer"] == run.layout.n_layers - 1
