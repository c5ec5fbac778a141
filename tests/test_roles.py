"""Parameters by their role, what clipping makes of their gradients, and the judgements on both."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from made import recorded

from core import roles
from core.drift import rms_over_depth
from core.experiment import parse
from core.gradient_verdicts import clip, ratio, role_drift
from core.landscape import changes
from core.trace import Trace
from core.train import train
from core.verdicts import site_drift
from core.vocabulary import EMBED

SMALL = {"model.n_layers": 4, "model.d_model": 16, "input.batch": 2, "input.seq_len": 16}
KINDS = {
    "usual": {}, "gated": {"model.activation": "swiglu"}, "tied": {"model.tie_embeddings": True},
    "uniform": {"model.pattern": "uniform"}, "projection": {"protocol.loss": "projection"},
    "attention": {"model.sublayers": "attention"}, "sandwich": {"model.placement": "sandwich"},
}


@cache
def played(kind, **changes):
    described = {path.replace("__", "."): value for path, value in changes.items()}
    experiment = parse({}).with_values({**SMALL, **KINDS[kind], **described})
    return Trace(tuple(train(experiment))), experiment


@pytest.mark.parametrize("measure", roles.MEASURES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_map_of_roles_holds_every_parameter_once_and_no_other(kind, measure):
    trace, _ = played(kind)
    snapshot, found = trace.snapshots[-1], roles.by_role(trace, measure)
    values, seen = roles.measured(snapshot, measure), snapshot.observed_parameters(measure)
    for row, (layer, name) in enumerate(snapshot.layout.parameters):
        cell = found.sites.index(roles.role_of(layer, name)), layer - EMBED
        assert (found.states[cell] == "not_observed") == (not seen[row])
        np.testing.assert_array_equal(found.values[cell], values[row] if seen[row] else np.nan)
    assert (found.states != "absent").sum() == len(snapshot.layout.parameters)


@pytest.mark.parametrize("limit", [None, 0.01])
def test_a_step_of_plain_sgd_moves_weights_by_the_rate_times_the_ratio(limit):
    rate = 0.25
    trace, experiment = played("usual", protocol__steps=1, protocol__optimizer="sgd", protocol__lr=rate,
                               protocol__weight_decay=0.0, protocol__dtype="float64", protocol__grad_clip=limit)
    factor = roles.clipping(trace, experiment, step=0).factor
    assert (factor < 1) == (limit is not None)
    np.testing.assert_allclose(trace.snapshots[1].parameters["update_ratio"],
                               rate * factor * roles.measured(trace.snapshots[0], roles.RATIO), rtol=1e-6)


@pytest.mark.parametrize(("kind", "missing"), [("uniform", "attn.q.weight"), ("projection", "head.weight")])
def test_a_parameter_that_no_gradient_reaches_is_not_observed_and_never_zero(kind, missing):
    trace, _ = played(kind)
    for measure in ("param_grad_norm", roles.RATIO):
        found = roles.over_depth(trace, missing, measure)
        assert found.layers and not found.observed.any() and np.isnan(found.values).all()
    assert roles.over_depth(trace, missing, "weight_norm").observed.all()


def test_a_role_that_no_layer_has_is_empty():
    found = roles.over_depth(played("usual")[0], "mlp.gate.weight", "param_grad_norm")
    assert found.layers == () and not found.values.size
    assert roles.over_depth(played("gated")[0], "mlp.gate.weight", "param_grad_norm").layers == (0, 1, 2, 3)


@pytest.mark.parametrize("limit", [1e-3, 1.0, 1e6])
def test_after_clipping_the_whole_gradient_is_within_the_threshold_and_keeps_its_proportions(limit):
    trace, experiment = played("usual", protocol__grad_clip=limit)
    found, gradients = roles.clipping(trace, experiment), trace.snapshots[-1].parameters["param_grad_norm"]
    after = found.after(gradients)
    assert math.sqrt((after**2).sum()) == pytest.approx(min(limit, found.total), rel=1e-6)
    np.testing.assert_allclose(after / gradients, found.factor)
    assert found.clips == (found.total > limit)


def gradients_of(values, role="mlp.out.weight"):
    """A trace whose `role` has these gradient norms, layer by layer."""
    trace, experiment = played("usual")
    snapshot = trace.snapshots[-1]
    norms = snapshot.parameters["param_grad_norm"].copy()
    for layer, value in enumerate(values):
        norms[snapshot.layout.parameters.index((layer, f"layers.{layer}.{role}"))] = value
    return Trace((replace(snapshot, parameters={**snapshot.parameters, "param_grad_norm": norms}),)), experiment


@pytest.mark.parametrize(("values", "code", "alarm"), [
    ([1, 1, 1, 1], "steady", False), ([1000, 100, 10, 1], "exploding", True), ([1, 10, 100, 1000], "vanishing", True),
    ([2, 1.5, 1.2, 1], "growing", False), ([1, 1.2, 1.5, 2], "shrinking", False), ([0, 0, 0, 0], "zero", True),
    ([1, math.nan, math.inf, 1], "non_finite", True),
])
def test_the_gradient_of_a_parameter_is_judged_from_the_last_layer_down(values, code, alarm):
    found = role_drift(*gradients_of(values), "mlp.out.weight")
    assert (found.code, found.alarm, found.site) == (f"gradient_role_{code}", alarm, "mlp.out.weight")
    assert (found.numbers["start_rms"], found.numbers["last_rms"]) == (values[-1], values[0])
    if code == "non_finite":
        assert found.numbers["first_non_finite"] == 2  # the first on the way back


@pytest.mark.parametrize(("kind", "role", "code"), [
    ("usual", "mlp.gate.weight", "nothing_absent"), ("uniform", "attn.k.weight", "nothing_not_observed"),
    ("attention", "mlp.out.weight", "nothing_absent"),
])
def test_of_a_parameter_without_a_gradient_there_is_nothing_to_judge(kind, role, code):
    assert role_drift(*played(kind), role).code == code


def test_one_layer_has_no_depth_to_drift_over():
    assert role_drift(*played("usual", model__n_layers=1), "mlp.out.weight").code == "gradient_role_single"
    assert ratio(played("usual", model__n_layers=1)[0]) is None


SITES = ("embed", "resid_pre", "resid_post", "attn_out")


def stream(embedding, blocks):
    """A trace whose gradient is `embedding` at the embedding and `blocks` after it."""
    sites = [(-1, "embed"), *((layer, site) for layer in range(len(blocks)) for site in SITES[1:])]
    own = {(-1, "embed"), (0, "resid_pre")}
    rows = {place: {"rms": embedding if place in own else blocks[place[0]]} for place in sites}
    return recorded({place: {} for place in sites}, gradients=rows)


@pytest.mark.parametrize("site", ["resid_post", "resid_pre"])
def test_the_embedding_is_left_out_of_the_ratio_and_said_beside_it(site):
    trace = stream(1000.0, [4.0, 4.0, 2.0])
    found = ratio(trace, site)
    assert (found.code, found.alarm, found.numbers) == (
        "gradient_ratio", False, {"growth": 2.0, "with_embedding": 500.0})
    assert site_drift(trace, parse({}), site, gradient=True).numbers["growth"] == 2.0


def test_a_site_without_a_row_of_the_embedding_says_that_none_is_in_its_ratio():
    found = ratio(stream(1000.0, [4.0, 4.0, 2.0]), "attn_out")
    assert (found.code, found.numbers) == ("gradient_ratio_site", {"growth": 2.0})


@pytest.mark.parametrize("embedding", [1e-9, 1.0, 1e9])
def test_no_judgement_on_a_gradient_over_depth_depends_on_the_row_of_the_embedding(embedding):
    trace = stream(embedding, [3.0, 2.0, 1.0])
    for site in SITES[1:]:
        assert site_drift(trace, parse({}), site, gradient=True) == site_drift(
            stream(2.0, [3.0, 2.0, 1.0]), parse({}), site, gradient=True)
    assert changes(trace, gradient=True) == changes(stream(2.0, [3.0, 2.0, 1.0]), gradient=True)
    assert rms_over_depth(trace, "resid_pre", gradient=False)[0] == [0, 1, 2]


@pytest.mark.parametrize(("total", "limit", "code", "alarm"), [
    (4.0, 1.0, "clips", False), (0.5, 1.0, "idle", False), (4.0, None, "off", False), (0.5, None, "off_idle", False),
    (math.nan, 1.0, "undefined", True), (math.inf, None, "undefined", True),
])
def test_what_clipping_does_has_a_code_and_its_numbers(total, limit, code, alarm):
    trace, experiment = played("usual", protocol__grad_clip=limit)
    factor = 1.0 if limit is None or total <= limit else limit / total
    found = clip(Trace((replace(trace.snapshots[-1], totals={"grad_total_norm": total, "clip_factor": factor}),)),
                 experiment)
    assert (found.code, found.alarm) == (f"clip_{code}", alarm)
    if code == "off":
        assert found.numbers["would"] == 0.25
    if code == "clips":
        assert (found.numbers["factor"], found.thresholds) == (0.25, {"grad_clip": 1.0})


def test_a_run_without_gradients_has_nothing_to_clip():
    trace, experiment = played("usual")
    bare = replace(trace.snapshots[-1], gradients={}, totals={})
    assert clip(Trace((bare,)), experiment).code == "nothing_not_observed"


def test_an_infinite_gradient_is_nothing_after_clipping_and_not_zero():
    assert np.isnan(roles.Clipping(math.inf, 1.0, 0.0).after(np.array([math.inf])))
