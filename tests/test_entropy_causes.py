"""The cause of a head's entropy: on presets of known cause, at its thresholds, and where there is none."""

import math

import numpy as np
import pytest
import torch
from stacks import SMALL

from core.drift import THRESHOLDS
from core.entropy_causes import CAUSES, EVIDENCE, USED, attention_verdict, entropy_causes
from core.experiment import parse
from core.presets import preset
from core.trace import Trace
from core.train import train
from pages.ui import explain
from pages.ui.text import LANGUAGES, Words

PRESETS = {"no_norm": "saturated", "vanishing": "small_scores", "deep_post": "collapsed", "rank_collapse": "collapsed",
           "saturated_softmax": "saturated", "uniform_softmax": "small_scores", "gpt2": "small_scores",
           "pre_layernorm": "healthy", "qwen3": "healthy", "no_softmax": "given", "float16_overflow": "saturated"}
"""Preset → what its heads' entropy comes from."""


def run(experiment):
    experiment = experiment.with_values({"protocol.device": "cpu", "protocol.detail": "standard"})
    return Trace(tuple(train(experiment))), experiment


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_of_known_cause_has_it_named_with_its_evidence_in_every_language(name):
    found = attention_verdict(*run(preset(name)))
    assert found.code == f"attention_{PRESETS[name]}"
    assert found.alarm == (PRESETS[name] in ("saturated", "collapsed"))
    for lang in LANGUAGES:
        said = explain.sentence(found, Words(lang))
        assert not {"{", "}", "NaN"} & set(said.split())
        assert PRESETS[name] == "given" or explain.number(found.numbers["count"]) in said


HEALTHY = {"entropy_norm": 0.9, "score_std": 1.0, "score_scale": 1.0, "token_cosine": 0.5, "q_rms": 1.0, "k_rms": 1.0,
           "qk_cosine": 0.0, "saturated_frac": 0.0}
UNIFORM = HEALTHY | {"entropy_norm": 0.99, "score_std": 0.1}


@pytest.mark.parametrize(("head", "cause"), [
    (HEALTHY, "healthy"), (UNIFORM, "healthy"), (HEALTHY | {"entropy_norm": 0.3}, "saturated"),
    (HEALTHY | {"entropy_norm": 0.301}, "healthy"), (UNIFORM | {"score_scale": 0.49}, "small_scores"),
    (UNIFORM | {"score_scale": 0.49, "token_cosine": 1.0}, "small_scores"),
    (UNIFORM | {"token_cosine": 0.96}, "collapsed"),
    (UNIFORM | {"token_cosine": 0.95}, "healthy"), (HEALTHY | {"entropy_norm": 0.979, "score_scale": 0.1}, "healthy"),
    (HEALTHY | {"entropy_norm": math.nan}, "undefined"), (HEALTHY | {"score_std": math.nan}, "undefined"),
    (UNIFORM | {"token_cosine": math.nan}, "healthy"),
])
def test_the_first_rule_that_holds_names_the_cause(head, cause):
    assert next(name for name, holds in CAUSES.items() if holds(head)) == cause


def test_evidence_is_that_of_the_trace():
    trace, experiment = run(parse({"model": {**SMALL, "attention_scale": 0.2}}))
    found, heads = entropy_causes(trace, experiment), trace.snapshots[-1].heads
    assert set(found.evidence) == set(EVIDENCE)
    assert found.names.shape == heads["entropy"].shape
    head_dim = experiment.resolved().model.head_dim
    np.testing.assert_allclose(found.evidence["score_scale"],
                               0.2 * math.sqrt(head_dim) * heads["q_rms"] * heads["k_rms"])
    np.testing.assert_array_equal(found.evidence["token_cosine"][:, 0], trace.profile("norm1", "token_cosine")[1])


def test_scores_of_unlike_tokens_spread_by_the_score_scale():
    trace, experiment = run(parse({"model": {**SMALL, "n_layers": 1, "d_model": 64, "n_heads": 1, "causal": False},
                                   "input": {"source": "gaussian", "batch": 4, "seq_len": 256}}))
    found = entropy_causes(trace, experiment)
    assert found.evidence["score_scale"] == pytest.approx(found.evidence["score_std"], rel=0.15)


@pytest.mark.parametrize(("model", "code"), [
    ({"sublayers": "mlp"}, "attention_absent"), ({"family": "lstm"}, "attention_absent"),
    ({"pattern": "uniform"}, "attention_given"), ({"pattern": "identity"}, "attention_given")])
def test_without_a_softmax_there_is_no_cause(model, code):
    trace, experiment = run(parse({"model": {**SMALL, **model}}))
    assert attention_verdict(trace, experiment).code == code
    assert entropy_causes(trace, experiment).layers == ()


def test_scores_that_are_not_finite_are_undefined_and_an_alarm():
    trace, experiment = run(parse({"model": {**SMALL, "qk_gain": 100.0, "init": "kaiming", "init_gain": 100.0},
                                   "protocol": {"dtype": "float16"}}))
    found = attention_verdict(trace, experiment)
    assert (found.code, found.alarm) == ("attention_undefined", True)
    assert torch.isnan(torch.tensor(found.numbers["entropy_norm"]))


def test_every_cause_says_its_thresholds_and_has_a_name_and_a_sentence():
    assert USED.keys() == CAUSES.keys()
    assert {name for names in USED.values() for name in names} <= THRESHOLDS.keys()
    for lang in LANGUAGES:
        assert all(f"cause.{cause}" in Words(lang) and f"verdict.attention_{cause}" in Words(lang) for cause in CAUSES)
        assert all(f"evidence.{name}" in Words(lang) for name in EVIDENCE)
