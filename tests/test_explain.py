"""Sentences made of codes: every refusal, verdict, expectation and pairing can be said in every language."""

import math
import re

import numpy as np
import pytest

from core import expectations
from core.comparison import Pairing
from core.drift import THRESHOLDS, VERDICTS, Verdict, expected, verdicts
from core.entropy_causes import CAUSES
from core.experiment import Experiment, parse
from core.fields import ExperimentError
from core.presets import PRESETS
from core.tables import NORMS, PLACEMENTS
from core.trace import Trace
from core.train import train
from pages.ui import explain, fields, link
from pages.ui.text import LANGUAGES, Words, keys
from tests.made import trace
from tests.stacks import SMALL
from tests.test_experiment import REFUSED
from tests.test_verdicts import everything

DEPTH = np.arange(1, 13)
STREAMS = [10.0 ** (DEPTH / 2), 10.0 ** (-DEPTH / 2), np.sqrt(1 + DEPTH), np.ones(12), 1 - 0.03 * DEPTH,
           np.array([1, np.nan]), np.full(3, np.nan), np.zeros(3), np.ones(1), np.full(12, 1e5)]


@pytest.fixture(params=LANGUAGES)
def t(request):
    return Words(request.param)


@pytest.mark.parametrize("document", [document for document, _ in REFUSED])
def test_every_refusal_can_be_said(t, document):
    with pytest.raises(ExperimentError) as refusal:
        parse(document)
    said = explain.refused(refusal.value, t)
    assert said
    assert "{" not in said.replace('{"3"', "").replace("{", "", document.count("{"))


@pytest.mark.parametrize("path", fields.schemas())
def test_what_a_field_allows_can_be_said(t, path):
    assert fields.allowed(path, t)


@pytest.mark.parametrize("stream", STREAMS, ids=range(len(STREAMS)))
@pytest.mark.parametrize("cosine", [0.1, 0.99, np.nan])
def test_every_verdict_can_be_said_with_its_numbers(t, stream, cosine):
    for verdict in verdicts(trace(stream, gradient=stream, cosine=cosine), parse({})):
        said = explain.sentence(verdict, t)
        assert t("drift.colon") in said


def test_every_verdict_code_has_words(t):
    for code in VERDICTS:
        assert f"verdict.{code}" in t
        assert f"verdict.gradient_{code}" in t
    assert set(THRESHOLDS)


CODES = [
    *(f"nothing_{reason}" for reason in ("absent", "not_here", "not_observed", "not_taken", "undefined")),
    *(f"{direction}time_{code}" for direction in ("", "gradient_") for code in (*VERDICTS, "zero", "single")),
    *(f"{direction}site_{code}" for direction in ("", "gradient_") for code in (*VERDICTS, "zero", "single")),
    *(f"input_{code}" for code in (*VERDICTS, "flat", "uneven", "zero") if code != "steady"),
    *(f"turn_{code}" for code in ("calm", "idle", "overwrites")),
    *(f"share_{code}" for code in ("branch", "first", "stream", "both", "none")),
    *(f"{direction}tails_{code}" for direction in ("", "gradient_") for code in ("gaussian", "heavy", "extreme")),
    *(f"{direction}range_{code}" for direction in ("", "gradient_") for code in ("fits", "small", "overflows")),
    "gradient_range_scalable", *(f"massive_{code}" for code in ("none", "some", "found")),
    *(f"headroom_{code}" for code in ("infinite", "overflows", "tight", "fits")),
    *(f"silent_{code}" for code in ("zero", "part", "off", "loud", "kept", "nothing")),
    *(f"sizes_{code}" for code in ("even", "differ", "first", "stand_out")), "look_zero", "gradient_look_zero",
    *(f"{direction}look_{code}" for direction in ("", "gradient_")
      for code in ("nan", "inf", "change", "power", "slow", "calm", "constant", "undefined", "not_observed")),
    *(f"gradient_role_{code}" for code in (*VERDICTS, "zero", "single")), "gradient_ratio", "gradient_ratio_site",
    *(f"clip_{code}" for code in ("clips", "idle", "off", "off_idle", "undefined")), "learning_non_finite",
    "learning_early", "attention_given", "attention_absent", *(f"attention_{cause}" for cause in CAUSES),
    *(f"learning_{code}{of}" for code in ("falls", "flat", "rises") for of in ("", "_tokens")),
    *(f"learning_{code}_tokens" for code in ("chance", "to_chance", "exploded")),
    *(f"leak_{code}" for code in ("none", "past", "samples", "both", "padding", "nobody", "undefined")),
    *(f"companions_{code}" for code in ("exact", "rounding", "tied", "refused", "two", "undefined")),
    *(f"padding_{code}" for code in ("exact", "rounding", "shifts", "none", "undefined")),
    *(f"gap_{code}" for code in ("none", "closed", "open", "undefined")),
]


def test_every_code_of_a_judgement_has_words_and_no_words_are_left_over(t):
    known = {*CODES, *VERDICTS, *(f"gradient_{code}" for code in VERDICTS)}
    known |= {f"float16_{code}" for code in ("fits", "limited", "overflows")}
    known |= {f"tokens_{code}" for code in ("collapsed", "differ", "undefined")}
    assert {key.removeprefix("verdict.") for key in keys(t.lang) if key.startswith("verdict.")} == known


def test_every_expectation_that_a_judgement_names_has_words(t):
    named = {*expectations._INPUTS, *expectations._RATIOS, "norm_output", "turn_without_residual", "tails_activation",
             "running", "gradient_running"} - {""}
    assert [code for code in named if f"expected.{code}" not in t] == []


@pytest.mark.parametrize("described", [
    {}, {"model": {"norm": "none", "init": "kaiming"}}, {"model": {"norm": "none", "residual": False}},
    {"model": {"placement": "branch", "layer_norms": {"1": "none"}}}, {"protocol": {"detail": "standard"}},
    {"model": {"norm": "batchnorm"}, "protocol": {"mode": "eval"}}, {"input": {"source": "gaussian"}},
    {"model": {"norm": "none", "init": "kaiming", "n_layers": 60}, "protocol": {"dtype": "float16"}},
    {"input": {"source": "scaled", "feature_scales": [5000.0] + [1.0] * 15}}, {"model": {"n_layers": 1}},
], ids=str)
def test_every_judgement_on_a_real_run_can_be_said(t, described):
    experiment = parse({**described, "model": {**SMALL, **described.get("model", {})}})
    made = Trace(tuple(train(experiment)))
    for found in everything(made, experiment):
        _said(found, t)


@pytest.mark.parametrize("stream", STREAMS, ids=range(len(STREAMS)))
def test_every_judgement_on_a_made_up_run_can_be_said(t, stream):
    for found in everything(trace(stream, gradient=stream, cosine=math.nan), parse({})):
        _said(found, t)


def _said(found, t):
    said = explain.sentence(found, t)
    assert "{" not in said and not re.search(r"“\s*”", said), said
    assert t("drift.colon") in said
    if found.expected:
        assert t(f"expected.{found.expected}")


@pytest.mark.parametrize(("site", "layer", "en", "zh"), [
    ("norm1", 3, "norm before attention (layer 3)", "注意力前的归一化（第 3 层）"),
    ("norm1", None, "norm before attention", "注意力前的归一化"),
    ("logits", 12, "logits", "logits"), ("embed", -1, "embedding", "嵌入"), ("loss", 12, "the loss", "损失"),
    ("layers.0.attn.q.weight", 0, "parameter layers.0.attn.q.weight", "参数 layers.0.attn.q.weight"),
    ("attention", None, "attention", "注意力"), ("mlp", 2, "the MLP", "MLP"), ("", None, "any site", "所有位置"),
])
def test_a_place_is_named_with_its_layer_where_it_has_one(site, layer, en, zh):
    found = Verdict("look_nan", True, {} if layer is None else {"layer": float(layer)}, {}, site=site)
    assert [explain.place(found, Words(lang)).replace("\\", "") for lang in ("en", "zh")] == [en, zh]


def test_a_token_is_named_by_its_symbol_or_its_place_and_shown_as_it_is():
    numbers = {"position": 4.0, "sequence": 1.0, "ratio": 12.0, "kept": 8.0, "layer": 2.0}
    limits = {name: THRESHOLDS[name] for name in ("token_stands_out", "even_tokens")}
    for token, part in (("*", "token “\\*” at position 4 of sequence 1"),
                        ("", "the vector at position 4 of sequence 1")):
        found = Verdict("sizes_stand_out", True, numbers, limits, site="resid_post", token=token)
        assert part in explain.sentence(found, Words("en"))


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("gradient", [True, False])
def test_every_expectation_has_words(t, residual, gradient):
    for norm in NORMS:
        for placement in PLACEMENTS:
            experiment = Experiment().with_values(
                {"model.norm": norm, "model.placement": placement, "model.residual": residual})
            assert f"expected.{expected(experiment, gradient)}" in t


@pytest.mark.parametrize("code", explain.PAIRING_LOOK)
def test_every_pairing_has_words(t, code):
    pairing = Pairing(code, ("model.init",))
    assert t(f"pairing.{pairing.code}", fields="x")
    assert t(f"pairing_help.{pairing.code}", fields="x")


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_a_name_and_a_sentence(t, name):
    assert t(f"preset.{name}")
    assert t(f"preset_help.{name}")


def test_every_field_has_a_label_and_a_help_text(t):
    for name in fields.paths():
        assert t(f"field.{name}")
        assert t(f"help.{name}")


def test_every_change_can_be_said(t):
    for code in fields.all_codes():
        assert "{" not in fields.spoken(code, t)


def test_a_refused_variant_names_the_reason(t):
    _, (notice,) = link.compared(link.View(variants=({"model.n_heads": 3},)))
    assert "3" in explain.notice(notice, t)


@pytest.mark.parametrize(("value", "text"), [
    (0, "0"), (1.04, "1.04"), (389.2, "389"), (65504, "65\u202f504"), (1e-5, "1.00·10⁻⁵"), (5.46e6, "5.46·10⁶"),
    (float("nan"), "NaN"), (float("inf"), "∞"), (-0.5, "−0.5"), (999.7, "1\u202f000"), (1e-300, "1.00·10⁻³⁰⁰"),
])
def test_numbers_in_sentences_are_short_and_exact(value, text):
    assert explain.number(value) == text
