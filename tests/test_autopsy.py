"""The autopsy: the first value that is not finite, which operation made it, of what, and how."""

import dataclasses
import math
from itertools import product

import numpy as np
import pytest
import torch
from made import recorded
from stacks import SMALL, TOKENS, VECTORS, experiment, shrunk
from test_lineage import VARIED

from core.autopsy import CELLS, ORIGINS, History, autopsy, examine
from core.causes import HOWS, TURNS, turning
from core.corpus import batch
from core.experiment import parse
from core.landscape import landscape
from core.lineage import LOSS, STEPS, lineage
from core.model import build
from core.passes import step
from core.presets import PRESETS, preset
from core.recorder import Recorder
from core.rules import is_recurrent
from core.sites import sites_of
from core.trace import NonFinite, Trace
from core.train import train
from pages.ui.text import LANGUAGES, Words, keys

OVERFLOWS = {"norm": "none", "init": "kaiming", "n_layers": 4, "init_gain": 5.0}
ZEROS = {"source": "scaled", "feature_scales": [0.0] * 16, "seq_len": 6, "batch": 3}


def run(described):
    return Trace(tuple(train(described)))


def case(described):
    """The autopsy of a run that must have one, checked against the laws that hold for all."""
    trace = run(described)
    found = autopsy(trace, described)
    assert found is not None
    holds(trace, described, found)
    return found


def spoiled(described, spoil, snapshots=()):
    """The trace of one step of a stack that `spoil` has done something to."""
    stack, data = build(described), batch(described, 0)
    spoil(stack)
    with Recorder(stack) as recorder:
        recorder.begin(data.mask)
        loss = step(stack, data, 0)
        return Trace((*snapshots, recorder.snapshot(0, float(loss))))


def holds(trace, described, found):
    """What is true of every autopsy."""
    snapshot = trace.snapshots[trace.steps.index(found.step)]
    first, order = snapshot.non_finite, list(lineage(described).operations)
    place = found.layer, found.site
    assert (found.step, *place, found.direction, found.kind) == dataclasses.astuple(first)
    assert found.origin in ORIGINS and found.how.code in HOWS
    assert not found.making.output.finite
    for cells, gradient in ((found.forward, False), (found.gradient, True)):
        drawn = landscape(trace, "n", gradient, trace.steps.index(found.step))
        assert (cells.sites, cells.layers) == (drawn.sites, drawn.layers)
        bad = {cell for cell in snapshot.layout.sites if drawn.non_finite[
            drawn.sites.index(cell[1]), drawn.layers.index(cell[0])] > 0}
        assert {*cells.places("made"), *cells.places("spread")} == bad
        absent = np.array([[drawn.state(site, layer) == "absent" for layer in cells.layers] for site in cells.sites])
        assert ((cells.states == "absent") == absent).all() and set(cells.states.flat) <= set(CELLS)
    if found.direction == "forward" and place[1] != LOSS:
        bad = [cell for cell in order[:-1] if found.forward.state(cell) in ("made", "spread")]
        assert bad[0] == place and found.forward.state(place) == "made"
    if found.direction == "gradient" and place in order[:-1]:
        bad = [cell for cell in order[:-1] if found.gradient.state(cell) in ("made", "spread")]
        assert bad[-1] == place and found.gradient.state(place) == "made"
        assert not found.forward.places("made") and not found.forward.places("spread")
    if found.direction != "weights":
        assert found.making.inputs_finite and found.making.weights_finite


GAINS = {"as it is": {}, "large weights": {"model.init_gain": 20.0}, "no norm": {"model.norm": "none"}}
BLOCKS = [name for name in PRESETS if not is_recurrent(preset(name))]
GAINED = [*product(BLOCKS, ["large weights"]), *product(BLOCKS[::4], ["as it is", "no norm"])]


@pytest.mark.parametrize(("name", "gain"), GAINED)
def test_what_is_not_finite_was_made_once_and_spread_from_there(name, gain):
    described = shrunk(name, 3, **{"protocol.dtype": "float16", **GAINS[gain]})
    trace = run(described)
    found = autopsy(trace, described)
    assert (found is None) == (trace.snapshots[0].non_finite is None)
    if found is not None:
        holds(trace, described, found)
        assert found.origin == "at_start" and found.earlier == History((), (), ()) and found.update is None


CASES = {
    "a stack without a norm leaves float16": (
        {**OVERFLOWS}, TOKENS, {"dtype": "float16"}, ("forward", "inf", "overflow")),
    "the same where the lengths differ": (
        {**OVERFLOWS}, {**TOKENS, "lengths": "ragged"}, {"dtype": "float16"}, ("forward", "inf", "overflow")),
    "a gated MLP leaves float16": (
        {**OVERFLOWS, "activation": "swiglu", "residual": False, "sublayers": "mlp"}, TOKENS,
        {"dtype": "float16"}, ("forward", "inf", "overflow")),
    "a post-norm's sum leaves float16": (
        {"placement": "post", "output_gain": 100.0, "init_gain": 40.0}, TOKENS, {"dtype": "float16"},
        ("forward", "inf", "overflow")),
    "a norm on a branch hides what overflowed before it": (
        {"placement": "branch", "init_gain": 100.0, "value_gain": 100.0, "output_gain": 100.0}, TOKENS,
        {"dtype": "float16"}, ("forward", "nan", "overflow")),
    "constant tokens without an epsilon": (
        {"norm_eps": 0.0}, ZEROS, {}, ("forward", "nan", "zero_variance")),
    "zero tokens without an epsilon, root mean square": (
        {"norm": "rmsnorm", "norm_eps": 0.0}, ZEROS, {}, ("forward", "nan", "zero_variance")),
    "an epsilon that is 0 in float16": (
        {"norm_eps": 1e-9, "norm_dtype": "compute"}, ZEROS, {"dtype": "float16"}, ("forward", "nan", "zero_variance")),
    "squares beyond float32": (
        {"embed_scale": 3e37}, TOKENS, {}, ("forward", "nan", "square_overflow")),
    "an embedding beyond float16": (
        {"embed_scale": 6e4}, TOKENS, {"dtype": "float16"}, ("forward", "inf", "overflow_source")),
    "data beyond float16": (
        {}, {**ZEROS, "feature_scales": [6e4] * 16}, {"dtype": "float16"}, ("forward", "inf", "overflow_source")),
}


@pytest.mark.parametrize("name", CASES)
def test_real_cases_are_named_with_their_mechanism(name):
    model, source, protocol, expected = CASES[name]
    found = case(experiment(source, protocol, **model))
    assert (found.direction, found.kind, found.how.code) == expected
    assert found.origin == "at_start"


def test_the_card_of_a_score_that_overflows_says_all_that_went_in_and_came_out():
    described = experiment(TOKENS, {"dtype": "float16", "attention": "explicit"}, qk_gain=100.0, init_gain=10.0)
    found = case(described)
    assert (found.layer, found.site, found.making.kind, found.making.nodes) == (0, "attn_scores", "scores", ("attn",))
    assert [(one.site, one.finite, one.absmax < 65504) for one in found.making.inputs] == [
        ("q", True, True), ("k", True, True)]
    q, k = (one.absmax for one in found.making.inputs)
    assert found.how.code == "overflow" and found.how.numbers["limit"] == 65504
    assert 65504 < found.how.numbers["bound"] <= 1.02 * max(q, k) ** 2 * math.sqrt(8)
    assert found.shape == (("B", 3), ("H", 2), ("T", 6), ("T", 6)) and found.dtype == "float16"
    assert found.making.output.n_posinf + found.making.output.n_neginf > 0 and found.making.output.n_nan == 0
    assert found.making.weights == ()
    assert (found.turn.making.output.site, found.turn.how) == ("attn_pattern", "inf_minus_inf")


def test_the_parameters_that_took_part_are_listed_with_their_size():
    found = case(experiment(TOKENS, {"dtype": "float16"}, **OVERFLOWS))
    stack = build(experiment(TOKENS, {"dtype": "float16"}, **OVERFLOWS))
    weights = {name: parameter.detach() for name, parameter in stack.named_parameters()}
    assert found.making.weights
    for one in found.making.weights:
        assert one.weight_norm == pytest.approx(float(weights[one.name].norm()), rel=1e-5)
        assert one.weight_rms == pytest.approx(float(weights[one.name].square().mean().sqrt()), rel=1e-5)


READ = ("sandwich", "gated", "rotary and QK-norm", "soft caps", "rezero", "overrides")


def poisoned(names):
    for name in names:
        described = experiment(TOKENS, **VARIED[name])
        for parameter, _ in build(described).named_parameters():
            if ".1." not in parameter and (name == "sandwich" or not parameter.endswith("bias")):  # the rest is alike
                yield pytest.param(described, parameter, id=f"{name}, {parameter}")


@pytest.mark.parametrize(("described", "parameter"), list(poisoned(READ)))
def test_a_poisoned_weight_is_the_cause_and_the_first_to_read_it_shows_it(described, parameter):
    def poison(stack):
        stack.get_parameter(parameter).data.fill_(math.nan)

    trace = spoiled(described, poison)
    found = autopsy(trace, described)
    holds(trace, described, found)
    assert (found.direction, found.site, found.origin) == ("weights", parameter, "from_weights")
    assert found.making.kind == "update" and [one.name for one in found.making.weights] == [parameter]
    readers = [operation.output for operation in lineage(described).readers(parameter)]
    shown = found.first_read.output
    assert (shown.layer, shown.site) == readers[0] and parameter in {one.name for one in found.first_read.weights}
    assert found.first_read.inputs_finite and not found.first_read.weights_finite
    assert not found.forward.places("made") and not found.gradient.places("made")
    assert found.how.code == "unknown" and found.dtype == "float32"


def put(place, value):
    """Put a value into what passes a site."""
    def inject(_module, arguments):
        x = arguments[0].clone()
        x[(0,) * x.dim()] = value
        return (x,)

    def spoil(stack):
        sites_of(stack, len(stack.layers))[place].register_forward_pre_hook(inject)
    return spoil


def every_site(*names):
    for name in names:
        described = experiment(TOKENS, {"attention": "explicit"}, **VARIED[name])
        for place in list(lineage(described).operations)[:-1]:
            if name == "pre" or place[0] == 0:  # the other layers are like the first
                yield pytest.param(described, place, id=f"{name}, {place}")


PLACED = ("pre", "post", "gated", "no norm")
VALUES = (math.nan, math.inf, -math.inf)


@pytest.mark.parametrize(("described", "place"), list(every_site(*PLACED)))
def test_a_value_that_no_arithmetic_explains_is_found_where_it_was_put_and_its_cause_is_unknown(described, place):
    value = VALUES[len(place[1]) % len(VALUES)]
    trace = spoiled(described, put(place, value))
    found = autopsy(trace, described)
    assert (found.layer, found.site) == place
    holds(trace, described, found)
    assert found.how.code == "unknown" and found.how.numbers["bound"] < found.how.numbers["limit"]
    assert (found.turn is None) == (math.isnan(value) or not _has_nan(trace))
    made = found.making.output
    assert (made.n_nan, made.n_posinf, made.n_neginf) == (
        math.isnan(value), value == math.inf, value == -math.inf)


def _has_nan(trace):
    snapshot = trace.snapshots[0]
    return np.nansum(snapshot.activations["n_nan"]) > 0 or math.isnan(snapshot.loss)


def own_tensors(*names):
    """Every site that shows a tensor which no site before it has shown."""
    return [one for one in every_site(*names) if lineage(one.values[0]).operations[one.values[1]].kind != "same"]


@pytest.mark.parametrize(("described", "place"), own_tensors("post", "branch", "gated"))
def test_a_gradient_is_followed_backward_to_where_it_was_spoiled(described, place):
    value = VALUES[len(place[1]) % len(VALUES)]

    def spoil_gradient(gradient):
        spoilt = gradient.clone()
        spoilt[(0,) * spoilt.dim()] = value
        return spoilt

    def spoil(stack):
        site = sites_of(stack, len(stack.layers))[place]
        site.register_forward_hook(lambda _m, _i, y: y.register_hook(spoil_gradient) and None)

    trace = spoiled(described, spoil)
    found = autopsy(trace, described)
    holds(trace, described, found)
    shown = lineage(described).operations[found.layer, found.site]
    assert shown.output == place or (shown.kind == "same" and shown.inputs == (place,))  # one tensor, two names
    assert found.direction == "gradient" and found.how.code == "unknown"


def test_a_gradient_beyond_float16_is_an_overflow_and_under_a_loss_scale_no_case():
    described = experiment(TOKENS, {"dtype": "float16", "loss_scale": 1e9})
    trace = run(described)
    assert trace.snapshots[0].non_finite is not None and autopsy(trace, described) is None
    found = examine(trace, described, 0)
    holds(trace, described, found)
    assert (found.site, found.direction, found.making.kind) == ("logits", "gradient", "loss")
    assert (found.how.code, found.how.dtype) == ("overflow_gradient", "float16")
    assert found.how.numbers["scaled"] == found.how.numbers["loss_scale"] == 1e9 and found.how.numbers["absmax"] == 1


def test_a_parameters_gradient_is_made_of_the_gradient_there_and_the_activation():
    described = experiment()
    name = "layers.1.mlp.out.weight"

    def spoil(stack):
        stack.get_parameter(name).register_hook(lambda gradient: gradient * math.inf)

    trace = spoiled(described, spoil)
    found = autopsy(trace, described)
    holds(trace, described, found)
    assert (found.layer, found.site, found.direction) == (1, name, "gradient")
    assert [(one.site, one.gradient) for one in found.making.inputs] == [
        ("mlp_out", True), ("mlp_act", False), ("mlp_out", False)]
    assert found.shape == (("D", 16), ("F", 32)) and found.dtype == "float32" and found.making.kind == "projection"


def test_a_loss_that_is_not_finite_is_made_of_finite_logits():
    described = experiment()
    trace = run(described)
    snapshot = dataclasses.replace(trace.snapshots[0], loss=math.inf, gradients={},
                                   non_finite=NonFinite(0, 2, LOSS, "forward", "inf"))
    found = autopsy(Trace((snapshot,)), described)
    assert (found.making.kind, [one.site for one in found.making.inputs]) == ("loss", ["logits"])
    assert found.shape == () and found.dtype == "float32" and found.how.code == "unknown"
    assert set(found.gradient.states.flat) <= {"absent", "not_observed"}


TRAININGS = {
    "plain gradient descent at a huge rate": (
        {"norm": "none"}, {"optimizer": "sgd", "lr": 1000.0}, None),
    "scores beyond float32 in a fused attention": (
        {"norm": "none", "n_layers": 3, "d_model": 32}, {"optimizer": "sgd", "lr": 1.0}, None),
    "a norm whose squares leave float32": (
        {"n_layers": 3, "d_model": 32}, {"optimizer": "sgd", "lr": 1000.0}, None),
    "float16 at a large rate": (
        {"norm": "none"}, {"dtype": "float16", "lr": 3.0}, ("forward", "inf", "overflow")),
}


@pytest.mark.parametrize("name", TRAININGS)
def test_a_training_that_blows_up_has_its_history(name):
    model, protocol, expected = TRAININGS[name]
    described = experiment({"source": "text", "seq_len": 8, "batch": 2}, {"steps": 30, **protocol}, **model)
    trace = run(described)
    found = autopsy(trace, described)
    holds(trace, described, found)
    assert found.origin == "made_here" and found.how.code != "unknown"
    assert expected in (None, (found.direction, found.kind, found.how.code))
    assert found.earlier.steps == tuple(trace.steps[:-1]) and found.step == trace.steps[-1]
    if found.site != LOSS:
        gradient, row = found.direction == "gradient", trace.layout.sites.index((found.layer, found.site))
        assert found.earlier.absmax == tuple(trace.site("absmax", gradient)[:-1, row])
        assert found.earlier.rms == tuple(trace.site("rms", gradient)[:-1, row])


def weights_case(previous_step, totals, norms=(1.0,), kind="inf"):
    """A training by hand in which the update after `previous_step` made a weight of step 5 not finite."""
    described = experiment(protocol={"steps": 10})
    before = run(experiment()).snapshots[0]
    name = (1, "layers.1.attn.q.weight")
    row = before.layout.parameters.index(name)
    grads = before.parameters["param_grad_norm"].copy()
    grads[row] = norms[0]
    before = dataclasses.replace(before, step=previous_step, totals=totals,
                                 parameters={**before.parameters, "param_grad_norm": grads})
    sick = before.parameters["weight_norm"].copy()
    sick[row] = math.inf if kind == "inf" else math.nan
    after = dataclasses.replace(before, step=5, parameters={
        **before.parameters, "weight_norm": sick, "weight_rms": sick},
        non_finite=NonFinite(5, *name, "weights", kind))
    return autopsy(Trace((before, after)), described), before, row


KNOWN = {"grad_total_norm": 3.0, "clip_factor": 0.5, "lr": 1e30}


@pytest.mark.parametrize(("previous", "totals", "norm", "kind", "code"), [
    (4, KNOWN, 2.0, "inf", "overflow_weights"),
    (4, KNOWN, 2.0, "nan", "unknown"),
    (4, KNOWN, math.inf, "nan", "gradient"),
    (4, {**KNOWN, "grad_total_norm": math.inf}, 2.0, "nan", "gradient"),
    (3, KNOWN, 2.0, "inf", "unknown"),
    (3, KNOWN, math.inf, "nan", "unknown"),
])
def test_weights_that_are_not_finite_come_of_the_update_before_where_that_was_recorded(
        previous, totals, norm, kind, code):
    found, before, row = weights_case(previous, totals, (norm,), kind)
    assert (found.origin, found.direction, found.how.code) == ("from_weights", "weights", code)
    assert found.shape == (("HK", 16), ("D", 16)) and found.making.kind == "update"
    assert found.earlier.rms == (before.parameters["weight_rms"][row],) and math.isnan(found.earlier.absmax[0])
    if previous == 4:
        assert dataclasses.astuple(found.update) == (
            4, norm, totals["grad_total_norm"], totals["clip_factor"], totals["lr"])
    else:
        assert found.update is None


@pytest.mark.parametrize(("sizes", "since"), [
    ((1, 2, 3), 0), ((3, 1, 2), 4), ((1, 2, 2), None), ((2, 1), None), ((5,), None), ((), None),
    ((1, math.nan, 2, 3), 8), ((math.nan,) * 2, None),
])
def test_growth_is_counted_back_from_the_last_step(sizes, since):
    steps = tuple(4 * place for place in range(len(sizes)))
    assert History(steps, tuple(map(float, sizes)), (1.0,) * len(sizes)).growing_since == since


def test_growth_of_a_parameter_is_that_of_its_root_mean_square():
    assert History((0, 1, 2), (math.nan,) * 3, (3.0, 1.0, 2.0)).growing_since == 1


def test_a_run_without_such_a_value_has_no_autopsy():
    described = experiment()
    trace = run(described)
    assert autopsy(trace, described) is None and examine(trace, described, 0) is None


def test_how_a_nan_came_of_an_inf_is_said_where_it_can_only_be_one_way():
    described = experiment(TOKENS, {"attention": "explicit"}, norm="rmsnorm")
    ways = {(0, "attn_scores"): ("attn_pattern", "inf_minus_inf"), (0, "resid_mid"): ("norm2", "inf_over_inf"),
            (0, "norm2"): ("mlp_pre", None), (0, "mlp_pre"): ("mlp_act", None)}
    for place, (site, code) in ways.items():
        found = autopsy(spoiled(described, put(place, math.inf)), described)
        assert code is None or (found.turn.making.output.site, found.turn.how) == (site, code)
        assert found.turn.how in {*TURNS.values(), "inf_over_inf", "unknown"}
        assert turning(found.turn.making) == found.turn.how
    assert set(TURNS) <= set(STEPS)


def test_padding_that_no_statistic_covers_leaves_a_nan_of_an_attention_unexplained():
    model = {"placement": "branch", "init_gain": 100.0, "value_gain": 100.0, "output_gain": 100.0}
    whole = case(experiment(TOKENS, {"dtype": "float16"}, **model))
    ragged = case(experiment({**TOKENS, "lengths": [6, 3, 2]}, {"dtype": "float16"}, **model))
    assert (whole.how.code, ragged.how.code) == ("overflow", "unknown")


def test_a_trace_may_leave_sites_out():
    described = parse({"model": SMALL, "input": VECTORS})
    trace = recorded({(0, "q"): {}, (0, "k"): None, (1, "resid_mid"): {"n_nan": 2.0}}, n_layers=2,
                     non_finite=NonFinite(0, 1, "resid_mid", "forward", "nan"))
    found = autopsy(trace, described)
    assert found.forward.state((1, "resid_mid")) == "made" and found.forward.state((0, "k")) == "not_observed"
    assert [one.site for one in found.making.inputs] == ["q"]
    assert torch.isnan(torch.tensor(found.making.output.absmax)) or found.making.output.absmax == 4.0


def test_every_code_of_an_autopsy_has_words():
    operations = {*STEPS, "same", "update", "attention", "mlp"}
    ways = {*TURNS.values(), "inf_over_inf", "unknown"}
    wanted = [*(f"origin_{code}" for code in ORIGINS), *(f"how_{code}" for code in HOWS),
              *(f"cell_{code}" for code in CELLS), *(f"operation_{code}" for code in operations),
              *(f"way_{code}" for code in ways),
              *(f"headline_{direction}" for direction in ("weights", "forward", "gradient"))]
    assert [code for code in wanted if f"autopsy.{code}" not in keys("en")] == []


@pytest.mark.parametrize("name", CASES)
def test_the_sentence_on_the_mechanism_finds_its_numbers(name):
    model, source, protocol, _ = CASES[name]
    found = case(experiment(source, protocol, **model))
    for lang in LANGUAGES:
        said = Words(lang)(f"autopsy.how_{found.how.code}", dtype=found.how.dtype, **found.how.numbers)
        assert "{" not in said
