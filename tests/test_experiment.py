"""The experiment: what is accepted, what is refused and how, what its canonical form and key are."""

import json
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.experiment import Experiment, json_schema, parse
from core.fields import ExperimentError
from core.presets import PRESETS, preset
from core.tables import NORMS, Norm


def test_an_empty_object_is_the_default_experiment():
    assert parse("{}") == parse({}) == parse(b"{}") == Experiment()


def test_defaults_are_those_of_the_specification():
    canonical = json.loads(parse("{}").canonical_json())
    assert canonical["model"]["head_dim"] == 32
    assert canonical["model"]["d_ff"] == 512
    assert canonical["model"]["attention_scale"] == pytest.approx(32**-0.5)
    assert canonical["model"]["final_norm"] is True
    assert canonical["input"]["vocab"] == 256
    assert canonical["protocol"]["loss"] == "next_token"
    assert canonical["protocol"]["attention"] == "fused"
    assert canonical["protocol"]["detail"] == "full"


REFUSED = [
    ('{"model":{"norm":"foo"}}', 'model.norm is "foo"; allowed: layernorm, none, rmsnorm'),
    ('{"model":{"n_layers":0}}', "model.n_layers is 0; allowed: a whole number from 1 to 512"),
    ('{"model":{"n_layers":true}}', "model.n_layers is true"),
    ('{"model":{"n_layers":"12"}}', 'model.n_layers is "12"'),
    ('{"model":{"n_layers":12.5}}', "model.n_layers is 12.5"),
    ('{"model":{"bias":1}}', "model.bias is 1; allowed: true, false"),
    ('{"model":{"branch_scale":"x"}}', "inv_sqrt_2L, rezero, layerscale"),
    ('{"model":{"residual_alpha":11}}', "model.residual_alpha is 11; allowed: a finite number from 0 to 10 or"),
    ('{"model":{"nrom":"none"}}', "model.nrom is not a field; allowed: family, n_layers"),
    ('{"modle":{}}', "modle is not a field; allowed: model, input, protocol"),
    ('{"model":null}', "model is null; allowed: an object"),
    ("[]", "the experiment is []; allowed: an object"),
    ("{", "the experiment is not valid JSON"),
    ('{"model":{"norm_eps":NaN}}', "model.norm_eps is NaN; allowed: a finite number from 0 to 1"),
    ('{"model":{"norm_eps":1e999}}', "model.norm_eps is Infinity"),
    ('{"model":{"layer_norms":{"12":"none"}}}', "model.layer_norms is 12; allowed: layers 0 to 11"),
    ('{"model":{"layer_norms":{"0":"bad"}}}', 'model.layer_norms is "bad"'),
    ('{"model":{"n_heads":3}}', "model.n_heads is 3; allowed: a divisor of model.d_model (128)"),
    ('{"model":{"n_kv_heads":3}}', "model.n_kv_heads is 3; allowed: a divisor of model.n_heads (4)"),
    ('{"model":{"norm":"groupnorm","norm_groups":5}}', "model.norm_groups is 5; allowed: a divisor"),
    ('{"model":{"depth_scaling":"inv_sqrt_layer","placement":"post"}}', "needs pre or sandwich"),
    ('{"model":{"positions":"rotary","head_dim":5}}', "even head dimension"),
    ('{"model":{"family":"lstm","norm":"batchnorm"}}', "on each token alone"),
    ('{"model":{"family":"gru","causal":false}}', "model.causal is false; allowed: true with model.family gru"),
    ('{"model":{"family":"rnn"}}', 'model.family is "rnn"; allowed: transformer, lstm, gru'),
    ('{"protocol":{"steps":-1}}', "protocol.steps is -1; allowed: a whole number from 0 to 100000"),
    ('{"protocol":{"seed":4294967296}}', "protocol.seed is 4294967296"),
    ('{"protocol":{"betas":[0.9]}}', "protocol.betas is [0.9]"),
    ('{"protocol":{"betas":[0.9,1]}}', "protocol.betas is 1"),
    ('{"protocol":{"device":"tpu"}}', "allowed: auto, cpu, cuda, cuda:N, mps"),
    ('{"protocol":{"attention":"fused"},"model":{"attn_softcap":30}}', "explicit or null with model.attn_softcap"),
    ('{"protocol":{"attention":"fused"},"model":{"pattern":"uniform"}}', "with model.pattern uniform"),
    ('{"protocol":{"loss":"next_token"},"model":{"causal":false}}', "where model.causal is false"),
    ('{"protocol":{"loss":"next_token"},"input":{"source":"gaussian"}}', "with source gaussian"),
    ('{"protocol":{"loss_scale":0}}', "protocol.loss_scale is 0; allowed: a finite number above 0 or dynamic or null"),
    ('{"input":{"source":"scaled"}}', "input.feature_scales is null; allowed: a list of model.d_model (128) numbers"),
    ('{"input":{"feature_scales":[1]}}', "null with source text"),
    ('{"input":{"vocab":32}}', "null or 256 for text"),
    ('{"input":{"source":"gaussian","vocab":32}}', "gives vectors, not tokens"),
    ('{"input":{"source":"markov","vocab":60000}}', "input.vocab is 60000; allowed: 2 to 2048 states for markov"),
    ('{"input":{"lengths":[1,2]}}', "input.lengths is [1, 2]; allowed: input.batch (8) whole numbers, or ragged"),
    ('{"input":{"lengths":[65,1],"batch":2}}', "lengths up to input.seq_len (64)"),
    ('{"input":{"text":"abc","source":"tokens"}}', "null with source tokens"),
    ('{"model":{"norm":"batchnorm"},"input":{"batch":1,"seq_len":1}}', "one token in all"),
]


@pytest.mark.parametrize(("document", "words"), REFUSED, ids=[document for document, _ in REFUSED])
def test_a_refusal_is_one_sentence_with_field_value_and_what_is_allowed(document, words):
    with pytest.raises(ExperimentError) as refusal:
        parse(document)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("document", [
    {"model": {"norm": "batchnorm"}, "input": {"batch": 1, "seq_len": 1}, "protocol": {"mode": "eval"}},
    {"model": {"norm": "batchnorm"}, "input": {"batch": 2, "seq_len": 1}},
    {"model": {"norm": "groupnorm", "norm_groups": 128}},
    {"model": {"norm": "none", "norm_groups": 5}},
    {"model": {"n_heads": 3, "head_dim": 10}},
    {"input": {"lengths": "ragged"}},
    {"input": {"lengths": [3, 64], "batch": 2}},
    {"protocol": {"record_every": "log", "loss_scale": "dynamic"}},
    {"model": {"branch_scale": 2, "residual_alpha": 1, "attention_scale": "1/K"}},
])
def test_what_the_specification_allows_is_accepted(document):
    parse(document)


@pytest.mark.parametrize(("one", "other"), [
    ({"model": {"d_ff": 512}}, {}),
    ({"model": {"head_dim": 32, "n_kv_heads": 4}}, {}),
    ({"model": {"final_norm": True}}, {}),
    ({"model": {"norm": "none", "placement": "post"}}, {"model": {"norm": "none"}}),
    ({"model": {"norm": "none", "final_norm": True}}, {"model": {"norm": "none"}}),
    ({"model": {"placement": "post", "final_norm": False}}, {"model": {"placement": "post"}}),
    ({"model": {"embed_scale": 1}}, {}),
    ({"input": {"vocab": 256}}, {}),
    ({"input": {"text": "abc"}},
     {"input": {"text": "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}}),
    ({"protocol": {"device": "cpu", "loss": "next_token", "attention": "fused", "detail": "full"}}, {}),
])
def test_nulls_and_auto_are_resolved_before_the_key(one, other):
    assert parse(one).key() == parse(other).key()


@pytest.mark.parametrize("change", [
    {"protocol": {"seed": 1}}, {"model": {"norm": "rmsnorm"}}, {"model": {"norm_eps": 0}}, {"input": {"batch": 7}},
    {"protocol": {"attention": "explicit"}}, {"protocol": {"detail": "standard"}},
    {"model": {"layer_norms": {"3": "none"}}},
])
def test_a_change_changes_the_key(change):
    assert parse(change).key() != parse({}).key()


def test_the_key_depends_on_the_device_kind():
    assert parse({}).key("cpu") != parse({}).key("cuda")


@pytest.mark.parametrize("name", PRESETS)
def test_the_canonical_form_is_a_fixed_point(name):
    canonical = preset(name).resolved()
    assert canonical.resolved() == canonical
    assert parse(canonical.model_dump(mode="json")).key() == preset(name).key()


def test_an_experiment_cannot_be_changed_and_survives_pickling():
    experiment = parse({"model": {"layer_norms": {"3": "none"}}})
    with pytest.raises(ValueError, match="frozen"):
        experiment.model.norm = "none"
    assert pickle.loads(pickle.dumps(experiment)) == experiment


def test_differences_rebuild_the_experiment():
    experiment = parse({"model": {"norm": "rmsnorm", "layer_norms": {"1": "none"}}, "input": {"lengths": "ragged"}})
    assert experiment.differences() == {
        "model.norm": "rmsnorm", "model.layer_norms": {"1": "none"}, "input.lengths": "ragged"}
    assert Experiment().with_values(experiment.differences()) == experiment


def test_a_norm_added_to_the_table_is_accepted_and_in_the_schema(monkeypatch):
    monkeypatch.setitem(NORMS, "mine", Norm("core.norms:NoNorm"))
    assert parse({"model": {"norm": "mine"}}).model.norm == "mine"
    assert "mine" in json_schema()["$defs"]["Model"]["properties"]["norm"]["enum"]


JSON = st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3))
FIELDS = st.sampled_from(list(Experiment().paths()))


@given(FIELDS, JSON)
def test_any_value_in_any_field_is_accepted_or_refused_in_one_sentence(path, value):
    try:
        experiment = Experiment().with_values({path: value})
    except ExperimentError as refusal:
        assert "\n" not in str(refusal)
        return
    assert experiment.resolved().resolved() == experiment.resolved()
    assert len(experiment.key()) == 64


def test_describing_an_experiment_imports_neither_torch_nor_numpy():
    code = "import core.experiment, core.presets, core.cost, sys; print({'torch', 'numpy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
