"""Sentences made of codes: every refusal, verdict, expectation and pairing can be said in every language."""

import numpy as np
import pytest

from core.comparison import Pairing
from core.drift import THRESHOLDS, VERDICTS, expected, verdicts
from core.experiment import Experiment, parse
from core.fields import ExperimentError
from core.presets import PRESETS
from core.tables import NORMS, PLACEMENTS
from pages.ui import explain, fields, link
from pages.ui.text import LANGUAGES, Words
from tests.made import trace
from tests.test_experiment import REFUSED

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
