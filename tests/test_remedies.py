"""What to try after an autopsy: the most fitting first, and nothing that an experiment refuses."""

import dataclasses
from itertools import product

import pytest
from stacks import TOKENS, experiment
from test_autopsy import CASES, OVERFLOWS, TRAININGS
from test_lineage import VARIED

from core.autopsy import ORIGINS, autopsy
from core.causes import HOWS, How
from core.experiment import parse
from core.presets import PRESETS, preset
from core.remedies import ORDERS, REMEDIES, SITUATIONS, Remedy, remedies, situation
from core.trace import Trace
from core.train import train
from pages.ui.text import keys

TEXT = {"source": "text", "seq_len": 8, "batch": 2}


def examined(described):
    return autopsy(Trace(tuple(train(described))), described)


@pytest.fixture(scope="module")
def found():
    """An autopsy to be altered."""
    return examined(experiment(TOKENS, {"dtype": "float16"}, **OVERFLOWS))


def altered(found, direction, how, origin, kind):
    operations = (dataclasses.replace(found.making.operations[0], kind=kind),)
    return dataclasses.replace(found, direction=direction, how=How(how, {}), origin=origin,
                               making=dataclasses.replace(found.making, operations=operations))


DESCRIBED = [
    *(preset(name).with_values({"protocol.steps": steps, "protocol.dtype": dtype})
      for name in PRESETS for steps, dtype in ((0, "float16"), (50, "float16"), (50, "float32"))),
    *(experiment(TOKENS, {"steps": 7, "dtype": dtype, "loss_scale": scale}, norm_dtype="compute", norm_eps=eps, **model)
      for model in VARIED.values() for dtype, scale, eps in (("float16", 8.0, 0.0), ("bfloat16", None, 1e-5))),
    experiment(TOKENS, {"steps": 100, "lr": 0.0, "warmup": 10, "grad_clip": 1.0}, init="gpt2", qk_norm="layernorm"),
]


def test_every_remedy_is_accepted_and_changes_something_wherever_there_is_one():
    met = set()
    for described in DESCRIBED:
        for name, rule in REMEDIES.items():
            if changes := rule(described):
                met.add(name)
                changed = described.with_values(changes)
                assert changed.resolved() != described.resolved(), name
                assert rule(changed) != changes or name == "lower_rate"
    assert met == set(REMEDIES)


def test_every_situation_is_met_and_offers_all_of_its_order_that_there_is(found):
    kinds, met = ("norm", "attention", "add"), set()
    cases = [altered(found, *case) for case in product(("weights", "forward", "gradient"), HOWS, ORIGINS, kinds)]
    for described in DESCRIBED[::9]:
        there = {name: changes for name, rule in REMEDIES.items() if (changes := rule(described))}
        for one in cases:
            met.add(situation(described, one))
            order = ORDERS[situation(described, one)]
            assert remedies(described, one) == [Remedy(name, there[name]) for name in order if name in there]
    assert met == set(SITUATIONS)


def test_the_tables_name_each_other():
    assert set(ORDERS) == set(SITUATIONS)
    assert {name for order in ORDERS.values() for name in order} == set(REMEDIES)
    assert all(len(order) == len(set(order)) for order in ORDERS.values())


def test_at_step_0_nothing_about_the_rate_is_offered(found):
    rate = {"lower_rate", "warmup", "clipping"}
    for described in DESCRIBED[::9]:
        for direction, how, kind in product(("forward", "gradient"), HOWS, ("norm", "scores", "projection")):
            one = altered(found, direction, how, "at_start", kind)
            assert not rate & {remedy.name for remedy in remedies(described, one)}


FIRST = {
    "no_spread": ("forward", "zero_variance", "made_here", "norm", "epsilon"),
    "naive_norm": ("gradient", "square_overflow", "made_here", "norm", "norm_float32"),
    "half_gradient": ("gradient", "overflow_gradient", "made_here", "head", "loss_scaling"),
    "attention_at_start": ("forward", "overflow", "at_start", "scores", "qk_norm"),
    "start": ("forward", "overflow", "at_start", "projection", "smaller_init"),
    "attention": ("forward", "score_overflow", "made_here", "attention", "qk_norm"),
    "training": ("forward", "overflow", "made_here", "projection", "lower_rate"),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_each_situation_has_its_first_remedy(found, name):
    *facts, first = FIRST[name]
    described = experiment(TOKENS, {"dtype": "float16", "steps": 40}, norm_dtype="compute", norm_eps=1e-8)
    one = altered(found, *facts)
    assert situation(described, one) == name
    assert remedies(described, one)[0].name == first


@pytest.mark.parametrize(("name", "protocol", "changes"), [
    ("lower_rate", {"lr": 0.03}, {"protocol.lr": 0.003}),
    ("lower_rate", {"lr": 0.0}, None),
    ("lower_rate", {"steps": 0}, None),
    ("warmup", {"steps": 1000}, {"protocol.warmup": 100}),
    ("warmup", {"steps": 20, "warmup": 3}, {"protocol.warmup": 10}),
    ("warmup", {"steps": 20, "warmup": 10}, None),
    ("clipping", {"grad_clip": 2.5}, {"protocol.grad_clip": 1.0}),
    ("clipping", {"grad_clip": 0.5}, None),
    ("bfloat16", {"dtype": "float16"}, {"protocol.dtype": "bfloat16"}),
    ("bfloat16", {}, None),
    ("loss_scaling", {"dtype": "float16", "loss_scale": 1024.0}, {"protocol.loss_scale": "dynamic"}),
    ("loss_scaling", {"dtype": "float16", "loss_scale": "dynamic"}, None),
])
def test_a_remedy_of_the_protocol_changes_what_it_says(name, protocol, changes):
    assert REMEDIES[name](parse({"protocol": {"steps": 50, **protocol}})) == changes


@pytest.mark.parametrize(("name", "model", "changes"), [
    ("qk_norm", {}, {"model.qk_norm": "rmsnorm"}),
    ("qk_norm", {"qk_norm": "layernorm"}, None),
    ("qk_norm", {"sublayers": "mlp"}, None),
    ("qk_norm", {"pattern": "uniform"}, None),
    ("norm", {"norm": "none"}, {"model.norm": "layernorm", "model.placement": "pre", "model.layer_norms": {}}),
    ("norm", {"norm": "none", "layer_norms": {0: "rmsnorm"}}, None),
    ("norm_float32", {"norm_dtype": "compute"}, {"model.norm_dtype": "float32"}),
    ("norm_float32", {"norm_dtype": "compute", "norm": "none"}, None),
    ("norm_float32", {}, None),
    ("smaller_init", {"init": "kaiming", "embed_scale": 9.0}, {
        "model.init": "normal", "model.init_std": 0.02, "model.embed_scale": 1.0}),
    ("smaller_init", {"init": "gpt2"}, None),
    ("smaller_init", {"init": "normal", "qk_gain": 5.0}, {"model.qk_gain": 1.0}),
    ("epsilon", {"norm_eps": 0.0}, {"model.norm_eps": 1e-5}),
    ("epsilon", {}, None),
])
def test_a_remedy_of_the_model_changes_what_it_says(name, model, changes):
    assert REMEDIES[name](parse({"model": model, "protocol": {"dtype": "float16"}})) == changes


HEALED = {
    "a stack without a norm leaves float16": {"norm", "bfloat16"},
    "constant tokens without an epsilon": {"epsilon"},
    "an embedding beyond float16": {"bfloat16", "smaller_init"},
}


@pytest.mark.parametrize("name", HEALED)
def test_what_is_offered_at_the_start_heals_it(name):
    model, source, protocol, _ = CASES[name]
    described = experiment(source, protocol, **model)
    offered = remedies(described, examined(described))
    healing = {remedy.name for remedy in offered if examined(described.with_values(remedy.changes)) is None}
    assert HEALED[name] <= healing and offered[0].name in healing


@pytest.mark.parametrize("name", TRAININGS)
def test_one_of_what_is_offered_lets_a_training_go_on(name):
    model, protocol, _ = TRAININGS[name]
    described = experiment(TEXT, {"steps": 30, **protocol}, **model)
    offered = remedies(described, examined(described))
    assert isinstance(offered[0], Remedy)
    assert any(examined(described.with_values(remedy.changes)) is None for remedy in offered)


def test_every_remedy_has_a_name_and_a_reason_in_words():
    assert [name for name in REMEDIES for part in ("remedy", "remedy_why") if f"{part}.{name}" not in keys("en")] == []
