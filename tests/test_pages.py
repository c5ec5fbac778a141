"""The pages as a visitor meets them: the real app, its real workers, a real browser."""

import json

import numpy as np
import pytest
from browser import Visit
from playwright.sync_api import expect

from core.experiment import parse
from core.train import train
from pages.ui import link
from pages.ui.link import View
from pages.ui.places import DRIFT
from pages.ui.text import Words

pytestmark = pytest.mark.browser

SMALL = {"model.n_layers": 3, "model.d_model": 16, "input.batch": 2, "input.seq_len": 16}
POINTS = "return gd.data.filter(d => d.yaxis !== 'y2').map(d => Array.from(d.y._inputArray ?? d.y))"


def query(base=SMALL, variants=None, **shown):
    chosen = View().variants if variants is None else tuple(variants)
    view = View(base=parse({}).with_values(base), variants=chosen,
                shown=DRIFT.defaults | {"view": "profile"} | shown)
    return "/drift?lang=en&" + "&".join(f"{name}={value}" for name, value in link.write(view).items())


def drawn(visit, lines):
    visit.page.wait_for_function("n => document.querySelector('.driftscope-chart')?.data?.length >= n", arg=lines)
    visit.settle()
    return visit.chart(POINTS)


def measured(document, statistic="rms", gradient=False, **changes):
    experiment = parse({}).with_values(document | changes)
    trace = next(iter([train(experiment)]))
    (snapshot,) = list(trace)
    rows = [row for row, (_, site) in enumerate(snapshot.layout.sites) if site in ("embed", "resid_post")]
    return (snapshot.gradients if gradient else snapshot.activations)[statistic][rows]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_home_page_has_a_live_figure_of_three_variants(visit, lang):
    visit.open(f"/?lang={lang}")
    lines = drawn(visit, 3)
    assert [len(line) for line in lines] == [13, 13, 13]
    without, layernorm = lines[1], lines[0]
    assert without[-1] / without[0] > 100
    assert layernorm[-1] / layernorm[0] < 10
    expect(visit.page.get_by_text(Words(lang)("home.question"))).to_be_visible()


def test_a_way_in_opens_the_drift_page_with_its_preset(visit):
    visit.open("/?lang=en")
    visit.page.get_by_role("link", name=Words("en")("home.way_vanishing")).click()
    visit.page.wait_for_url("**/drift?*preset=vanishing*")
    visit.settle()
    lines = drawn(visit, 2)
    assert lines[0][-1] < lines[0][0] / 10


@pytest.mark.parametrize(("shown", "statistic", "gradient"), [
    ({}, "rms", False), ({"stat": "absmax"}, "absmax", False), ({"of": "gradient"}, "rms", True),
    ({"stat": "q99", "scale": "linear"}, "q99", False),
])
def test_the_chart_shows_the_numbers_that_the_engine_measures(visit, shown, statistic, gradient):
    visit.open(query(**shown))
    lines = drawn(visit, 3)
    for line, norm in zip(lines, ("layernorm", "none", "rmsnorm"), strict=True):
        expected = measured(SMALL, statistic, gradient, **{"model.norm": norm})
        np.testing.assert_allclose(line, expected, rtol=1e-5)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_cold_deep_link_gives_page_language_values_and_picture(visit, lang):
    visit.open(query({**SMALL, "model.n_layers": 5}, [{"model.placement": "post"}]).replace("lang=en", f"lang={lang}"))
    assert [len(line) for line in drawn(visit, 2)] == [6, 6]
    t = Words(lang)
    expect(visit.page.get_by_role("heading", name=t("drift.title"))).to_be_visible()
    expect(visit.page.get_by_text(t("pairing.same_weights")).first).to_be_visible()
    names = visit.chart("return gd.data.map(d => d.name)")
    assert names[:2] == [t("placement.pre"), t("placement.post")]


def test_a_changed_control_changes_the_chart_the_link_and_nothing_else(visit):
    visit.open(query())
    drawn(visit, 3)
    placement = visit.page.get_by_role("combobox", name="Placement")
    placement.scroll_into_view_if_needed()  # a menu closes when what it belongs to is scrolled
    placement.click()
    visit.page.get_by_role("option", name="post-norm").click()
    visit.page.wait_for_url("**placement=post**")
    visit.settle()
    visit.page.wait_for_function(
        "() => { const y = document.querySelector('.driftscope-chart').data[0].y; "
        "return Math.abs(Array.from(y._inputArray ?? y).at(-1) - 1) < 1e-3 }")
    lines = drawn(visit, 3)
    assert lines[0][1:] == pytest.approx([1, 1, 1], abs=1e-3)
    expect(visit.page.get_by_text("same weights").first).to_be_visible()


def test_the_state_survives_a_visit_to_another_page(visit):
    visit.open(query({**SMALL, "model.n_layers": 4}))
    drawn(visit, 3)
    visit.page.get_by_role("link", name="Home").click()
    visit.page.wait_for_url("**/?*")
    visit.settle()
    visit.page.get_by_role("button", name="Measure").click()
    visit.page.get_by_role("menuitem", name="Drift").click()
    visit.page.wait_for_url("**/drift?*layers=4*")
    visit.settle()
    assert [len(line) for line in drawn(visit, 3)] == [5, 5, 5]


def test_the_language_switch_keeps_the_state(visit):
    visit.open(query({**SMALL, "model.n_layers": 4}))
    drawn(visit, 3)
    visit.page.get_by_test_id("stSidebar").get_by_text("中文").click()
    visit.page.wait_for_url("**lang=zh**")
    visit.settle()
    assert "layers=4" in visit.page.url
    assert [len(line) for line in drawn(visit, 3)] == [5, 5, 5]
    assert visit.chart("return gd.data[1].name") == Words("zh")("norm.none")


@pytest.mark.parametrize("bad", ["layers=5000", "layers=hello", "norm=foo", "preset=nope", "x=garbage", "stat=<b>",
                                 "who=9", "layer=-5"])
def test_a_bad_link_is_answered_with_a_notice_and_a_whole_page(visit, bad):
    visit.open(f"/drift?lang=en&view=profile&{bad}")
    expect(visit.page.get_by_test_id("stAlert").first).to_be_visible()
    assert len(drawn(visit, 3)) == 3
    assert bad not in visit.page.url


def test_everything_not_finite_leaves_a_whole_page(visit):
    broken = {**SMALL, "model.norm": "none", "model.init_gain": 100, "protocol.dtype": "float16"}
    visit.open(query(broken, [{"model.init": "kaiming"}]))
    visit.page.wait_for_function("() => document.querySelector('.driftscope-chart')?.data?.length >= 2")
    visit.settle()
    values = visit.chart("return gd.data.filter(d => d.yaxis === 'y2').map(d => d.text.length)")
    assert sum(values) > 0
    assert visit.page.get_by_test_id("stException").count() == 0


def test_a_refused_setting_says_why_and_keeps_the_picture(visit):
    visit.open(query())
    drawn(visit, 3)
    visit.page.get_by_text("All settings").click()
    heads = visit.page.get_by_role("spinbutton", name=Words("en")("field.n_heads"))
    heads.fill("3")
    heads.press("Enter")
    expect(visit.page.get_by_test_id("stAlert").first).to_contain_text("does not divide")
    visit.settle()
    assert len(drawn(visit, 3)) == 3


def test_a_long_run_waits_for_the_visitors_word(visit):
    visit.open(query({"model.n_layers": 96, "input.seq_len": 16, "input.batch": 1, "model.d_model": 32}, []))
    run = visit.page.get_by_role("button", name=Words("en")("drift.run"))
    expect(run).to_be_visible()
    run.click()
    visit.settle()
    assert len(drawn(visit, 1)[0]) == 97


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("path", ["/?", "/drift?view=profile&"])
def test_no_key_is_left_unspoken(visit, lang, path):
    visit.open(f"{path}lang={lang}")
    drawn(visit, 3)
    text = visit.page.inner_text("body")
    assert "{" not in text
    assert visit.page.get_by_test_id("stException").count() == 0


def test_the_packed_link_is_short_enough_for_a_chat_window():
    variants = [{"model.norm": norm, "model.placement": "post", "model.init": "kaiming"} for norm in
                ("none", "rmsnorm", "batchnorm", "groupnorm", "scalenorm", "dyt")]
    assert len(json.dumps(query(variants=variants))) < 500


def test_a_cancelled_run_stays_cancelled_until_it_is_asked_for_again(visit):
    t = Words("en")
    visit.open(query({"model.n_layers": 200, "input.batch": 4, "model.norm": "groupnorm"}, []))
    visit.page.get_by_role("button", name=t("drift.run")).click()
    visit.page.get_by_role("button", name=t("drift.cancel")).click()
    expect(visit.page.get_by_text(t("drift.cancelled"))).to_be_visible()
    visit.settle()
    expect(visit.page.get_by_role("button", name=t("drift.again"))).to_be_visible()
    assert visit.page.get_by_text(t("drift.running")).count() == 0


def test_a_link_with_the_visitors_own_text_gives_the_same_picture_cold(visit, chromium, address):
    visit.open(query(SMALL, []))
    before = drawn(visit, 1)
    visit.page.get_by_text(Words("en")("drift.settings")).click()
    visit.page.get_by_role("tab", name=Words("en")("part.input")).click()
    box = visit.page.get_by_role("textbox", name=Words("en")("field.text"))
    box.fill("entirely other words, and not many of them")
    box.press("Control+Enter")
    visit.page.wait_for_function(f"old => JSON.stringify({CURRENT}) !== JSON.stringify(old)", arg=before)
    visit.settle()
    own = visit.chart(POINTS)
    other = Visit(chromium.new_context(locale="en-US").new_page(), address)
    other.page.goto(visit.page.url)
    other.settle()
    assert drawn(other, 1) == own
    visit.page.reload()
    visit.settle()
    assert drawn(visit, 1) == own


CURRENT = ("(() => document.querySelector('.driftscope-chart').data.filter(d => d.yaxis !== 'y2')"
           ".map(d => Array.from(d.y._inputArray ?? d.y)))()")


def test_back_leads_through_the_states_that_were_chosen(visit):
    visit.open("/drift?lang=en&view=profile")
    drawn(visit, 3)
    for choice in ("ScaleNorm", "RMSNorm"):
        visit.page.get_by_role("combobox", name="Norm").first.scroll_into_view_if_needed()
        visit.page.get_by_role("combobox", name="Norm").first.click()
        visit.page.get_by_role("option", name=choice, exact=True).click()
        visit.page.wait_for_url(f"**norm={choice.lower()}**")
        visit.settle()
    visit.page.go_back()
    visit.page.wait_for_url("**norm=scalenorm**")
    visit.settle()
    visit.page.wait_for_function("() => document.querySelector('.driftscope-chart').data[0].name === 'ScaleNorm'")
    visit.page.go_back()
    visit.page.wait_for_function("() => document.querySelector('.driftscope-chart').data[0].name === 'LayerNorm'")
    visit.settle()
    assert "norm=" not in visit.page.url


def test_after_the_language_switch_every_control_speaks_it(visit):
    visit.open("/drift?lang=en&view=profile&preset=post_layernorm")
    drawn(visit, 3)
    visit.page.get_by_test_id("stSidebar").get_by_text("中文").click()
    visit.page.wait_for_url("**lang=zh**")
    visit.settle()
    zh = Words("zh")
    visit.page.wait_for_function(f"words => {CHOSEN}.includes(words)", arg=zh("preset.post_layernorm"))
    chosen = visit.page.evaluate(CHOSEN)
    assert {zh("placement.post"), zh("statistic.rms")} <= set(chosen)
    expect(visit.page.get_by_text(zh("norm.none")).first).to_be_visible()
    assert visit.page.evaluate("document.documentElement.lang") == "zh"


CHOSEN = "[...document.querySelectorAll('[data-testid=stSelectbox] input')].map(box => box.value)"


def test_counts_of_zero_are_drawn_and_not_called_missing(visit):
    visit.open(query(stat="n_nan"))
    assert [set(line) for line in drawn(visit, 3)] == [{0}, {0}, {0}]
    assert visit.page.get_by_text(Words("en")("chart.nothing")).count() == 0


def test_a_site_that_is_not_recorded_says_why(visit):
    visit.open(query(site="attn_pattern"))
    expect(visit.page.get_by_text(Words("en")("drift.not_observed", site="attn_pattern"))).to_be_visible()
