"""The BatchNorm page as a visitor meets it: each view cold from its link, in both languages, the engine's numbers."""

import re

import numpy as np
import pytest
from browser import Visit
from playwright.sync_api import expect

from core.experiment import Experiment
from core.look import CompanionShift, EvaluationGap, PaddingShift, TokenLeak
from core.presets import PRESETS, preset
from core.rules import is_recurrent
from core.train import train
from pages.ui import link, shown
from pages.ui.link import Variant, View
from pages.ui.places import BATCHNORM
from pages.ui.text import LANGUAGES, Words, keys
from pages.ui.views.batchnorm import BATCHNORM_VIEWS

SMALL = {"model.n_layers": 2, "model.d_model": 16, "model.n_heads": 2, "input.batch": 3, "input.seq_len": 20,
         "protocol.device": "cpu"}
NORMS = ("layernorm", "batchnorm")


def address(lang="en", changes=SMALL, **what):
    origin = BATCHNORM.origin("pre_layernorm")
    view = View(base=origin.with_values(changes), variants=({"model.norm": "batchnorm"},),
                shown=BATCHNORM.defaults | what)
    return f"/batchnorm?lang={lang}&" + "&".join(f"{name}={value}" for name, value in
                                                 link.write(view, BATCHNORM).items())


def looks(look, norm, **changes):
    return list(train(Experiment().with_values(SMALL | {"model.norm": norm} | changes), look=look))


def drawn(visit: Visit, index: int, attribute: str):
    visit.page.wait_for_function("n => document.querySelectorAll('.driftscope-chart')[n]?.data?.length", arg=index)
    visit.settle()
    return visit.page.evaluate(
        "([n, name]) => document.querySelectorAll('.driftscope-chart')[n].data.map(d => "
        "JSON.parse(JSON.stringify(d[name]?._inputArray ?? d[name] ?? null, (k, v) => ArrayBuffer.isView(v) ? "
        "Array.from(v) : v)))", [index, attribute])


@pytest.mark.browser
@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_leak_probe_shows_the_engines_maps_and_says_what_leaks(visit: Visit, lang: str) -> None:
    t = Words(lang)
    visit.open(address(lang, sample="1", position="7"))
    maps = [one for one in drawn(visit, 0, "customdata") if one]
    seen = [looks(TokenLeak(1, 7), norm)[0].looks for norm in NORMS]
    for one, found in zip(maps, seen, strict=True):
        np.testing.assert_allclose(one, found["map"], rtol=1e-4)
    lines = [y for y, name in zip(drawn(visit, 1, "customdata"), drawn(visit, 1, "name"), strict=True) if y and name]
    np.testing.assert_allclose(lines, [found["earlier"] / found["level"] for found in seen], rtol=1e-4)
    assert t("batchnorm.exactly_zero") in visit.chart("return gd.layout.yaxis.ticktext", 1)
    for code in ("leak_none", "leak_both"):
        said = t(f"verdict.{code}", own="", earlier="", others="").partition(t("drift.colon"))[0]
        expect(visit.page.get_by_text(said, exact=False).first).to_be_visible()


@pytest.mark.browser
def test_in_evaluation_nothing_leaks_and_a_click_on_the_mode_is_in_the_link(visit: Visit) -> None:
    visit.open(address(changes=SMALL | {"protocol.mode": "eval"}))
    for one in [one for one in drawn(visit, 0, "customdata") if one]:
        others = np.delete(np.array(one), 2, axis=0)
        assert (others == 0).all()
    expect(visit.page.get_by_text("Expected with BatchNorm in evaluation")).to_be_visible()
    visit.page.get_by_text("a whole sequence", exact=True).click()
    visit.page.wait_for_url(re.compile("exchange=sample"))


@pytest.mark.browser
@pytest.mark.parametrize("lang", LANGUAGES)
def test_smaller_batches_down_to_a_refused_token_are_shown_and_explained(visit: Visit, lang: str) -> None:
    t = Words(lang)
    visit.open(address(lang, view="batch"))
    found = looks(CompanionShift(), "batchnorm", **{"input.batch": 32, "input.seq_len": 1})[0].looks
    lines = {name: y for name, y in zip(drawn(visit, 0, "name"), drawn(visit, 0, "y"), strict=True) if len(y) > 1}
    assert t("norm.batchnorm") in lines and t("norm.layernorm") in lines
    largest = [y for name, y in zip(drawn(visit, 0, "name"), drawn(visit, 0, "y"), strict=True)
               if name == t("norm.batchnorm")][-1]
    assert largest[0] is None
    np.testing.assert_allclose(largest[1:], found["norm_largest"][1:], rtol=1e-4)
    (mark,) = [said for name, said in zip(drawn(visit, 0, "name"), drawn(visit, 0, "hovertemplate"), strict=True)
               if t("batchnorm.refused") in name]
    assert "%{y" not in mark  # where it stands is no number
    expect(visit.page.get_by_text(t("batchnorm.why_refused", reason="").partition(t("drift.colon"))[0],
                                  exact=False).first).to_be_visible()
    assert visit.page.get_by_text(t("refused.one_token"), exact=False).count() == 1
    assert visit.page.get_by_test_id("stAlertContentError").count() == 0


@pytest.mark.browser
def test_padding_shifts_a_batchnorm_that_counts_it_and_no_other_norm(visit: Visit) -> None:
    visit.open(address(view="lengths", share="80"))
    shares, values = drawn(visit, 0, "x")[:3], drawn(visit, 0, "y")[:3]
    pooled = looks(PaddingShift(), "batchnorm", **{"model.bn_padding": "pooled"})[0].looks
    np.testing.assert_allclose(shares[2], 100 * pooled["shares"], rtol=1e-5)
    np.testing.assert_allclose(values[2], pooled["norm"], rtol=1e-4)
    assert set(values[0]) == {0} and max(values[1]) < 1e-5
    expect(visit.page.get_by_text("Shifts: with 80 % padding")).to_be_visible()


@pytest.mark.browser
def test_a_training_shows_the_gap_shrink_and_its_numbers_are_the_engines(visit: Visit) -> None:
    visit.open(address(view="gap", steps="20"))
    visit.page.get_by_role("button", name="Start").click()
    expect(visit.page.get_by_text("done, 20 updates")).to_have_count(2, timeout=120_000)
    visit.settle()
    visit.page.wait_for_function("() => document.querySelectorAll('.driftscope-chart').length === 5")
    expected = looks(EvaluationGap(), "batchnorm", **{"protocol.steps": 20})
    ends = dict(zip(drawn(visit, 0, "name"), drawn(visit, 0, "customdata"), strict=True))
    for step in (0, 20):
        np.testing.assert_allclose(ends[f"BatchNorm, step {step}"], expected[step].looks["gap"], rtol=1e-3)
    assert set(ends["LayerNorm, every step"]) == {0}
    losses = {name: y for name, y in zip(drawn(visit, 2, "name"), drawn(visit, 2, "y"), strict=True) if y}
    np.testing.assert_allclose(losses["BatchNorm, evaluation"], [one.looks["loss"][1] for one in expected], rtol=1e-3)
    expect(visit.page.get_by_text("No gap: at every recorded step")).to_be_visible()
    visit.page.reload()
    assert drawn(visit, 0, "name") == list(ends)


@pytest.mark.browser
@pytest.mark.parametrize(("query", "said"), [
    ("sample=x", "Allowed: the number of a sequence"), ("position=-1", "Allowed: the number of a position"),
    ("share=55", "share"), ("steps=7", "steps"), ("view=nonsense", "view"), ("exchange=all", "exchange"),
])
def test_a_bad_link_is_said_and_the_page_opens(visit: Visit, query: str, said: str) -> None:
    visit.open("/batchnorm?lang=en")
    drawn(visit, 0, "z")  # computed once; a page that waits for its runs is drawn anew without its notices
    visit.open(f"/batchnorm?lang=en&{query}")
    expect(visit.page.get_by_text(said, exact=False).first).to_be_visible()
    assert visit.page.get_by_test_id("stException").count() == 0


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_opens_on_the_page_compared_with_batchnorm(name: str) -> None:
    view, notices = link.read({"preset": name}, BATCHNORM)
    variants, refused = link.compared(view)
    takes_it = not is_recurrent(preset(name))  # whose norms act on each token alone
    assert notices == refused == []
    assert ("batchnorm" in {one.experiment.model.norm for one in variants}) == takes_it
    assert all(one.experiment.protocol.steps == 0 for one in variants)
    own = preset(name).differences()
    assert {path: view.base.paths()[path] for path in own} == own


def test_every_view_has_its_words_and_its_place() -> None:
    assert set(BATCHNORM_VIEWS) == set(BATCHNORM.views)
    for view, looked in BATCHNORM_VIEWS.items():
        assert {f"batchnorm_view.{view}", f"batchnorm_view_help.{view}"} <= keys("en").keys()
        assert set(looked.asks) <= BATCHNORM.shown.keys() and not set(looked.at_hand) & BATCHNORM.withheld


@pytest.mark.parametrize(("name", "value", "fitted"), [
    ("sample", "9", "1"), ("position", "99", "4"), ("sample", "0", "0")])
def test_what_is_exchanged_is_brought_into_the_smallest_variant(monkeypatch, name, value, fitted) -> None:
    state = {**BATCHNORM.defaults, name: value}
    monkeypatch.setattr(shown.st, "session_state", state)
    bases = [Experiment().with_values({"input.batch": batch, "input.seq_len": length}) for batch, length in
             ((2, 30), (8, 5))]
    shown._fit(BATCHNORM, [Variant({}, base) for base in bases], Words("en"))
    assert state[name] == fitted
