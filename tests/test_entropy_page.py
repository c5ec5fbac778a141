"""The entropy page as a visitor meets it: heads, causes, theory; in both languages, cold, with the engine's numbers."""

import re

import numpy as np
import pytest
from browser import Visit
from playwright.sync_api import expect

from core.experiment import parse
from core.look import HeadLook
from core.theory import predict
from core.token_table import symbols
from core.train import train
from pages.ui import link
from pages.ui.link import View
from pages.ui.places import ENTROPY
from pages.ui.text import Words

pytestmark = pytest.mark.browser

SMALL = {"model.n_layers": 3, "model.d_model": 32, "input.batch": 2, "input.seq_len": 16}


def address(lang="en", base=SMALL, variants=({"model.norm": "none"},), **shown):
    view = View(base=parse({}).with_values(base), variants=tuple(variants), shown=ENTROPY.defaults | shown)
    return f"/entropy?lang={lang}&" + "&".join(f"{name}={value}" for name, value in link.write(view, ENTROPY).items())


def snapshot(**changes):
    return next(iter(train(parse({}).with_values(SMALL | {"protocol.device": "cpu"} | changes))))


def drawn(visit: Visit, index: int, attribute: str):
    visit.page.wait_for_function("n => document.querySelectorAll('.driftscope-chart')[n]?.data?.length", arg=index)
    visit.settle()
    return visit.page.evaluate(
        "([n, name]) => document.querySelectorAll('.driftscope-chart')[n].data.map(d => "
        "JSON.parse(JSON.stringify(d[name]?._inputArray ?? d[name] ?? null, (k, v) => ArrayBuffer.isView(v) ? "
        "Array.from(v) : v)))", [index, attribute])


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_map_and_the_means_are_the_engines_numbers(visit, lang):
    visit.open(address(lang, measure="entropy"))
    expect(visit.page.get_by_text(Words(lang)("entropy_view_help.heads"))).to_be_visible()
    heads = snapshot().heads["entropy"]
    np.testing.assert_allclose(drawn(visit, 0, "customdata")[0], heads.T, rtol=1e-5)
    lines = [line for line in drawn(visit, 1, "y") if line and len(line) == 3]
    np.testing.assert_allclose(lines[0], heads.mean(1), rtol=1e-5)
    np.testing.assert_allclose(lines[1], snapshot(**{"model.norm": "none"}).heads["entropy"].mean(1), rtol=1e-5)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_queries_of_the_chosen_layer_are_the_engines_numbers(visit, lang):
    visit.open(address(lang, SMALL | {"model.qk_gain": 10.0}, view="queries", layer="1"))
    expect(visit.page.get_by_text(Words(lang)("entropy_view_help.queries"))).to_be_visible()
    heads = snapshot(**{"model.qk_gain": 10.0}).heads
    for name, where in (("entropy_norm_p05", "lowerfence"), ("entropy_norm_p50", "median"),
                        ("entropy_norm_p95", "upperfence")):
        np.testing.assert_allclose(drawn(visit, 0, where)[0], heads[name][1], rtol=1e-5)
    medians = [y for y, mode in zip(drawn(visit, 1, "y"), drawn(visit, 1, "mode"), strict=True) if mode != "lines"]
    np.testing.assert_allclose(medians, heads["entropy_norm_p50"].T, rtol=1e-5)
    slider = visit.page.get_by_role("slider").nth(1)
    slider.press("ArrowRight")
    visit.settle()
    np.testing.assert_allclose(drawn(visit, 0, "median")[0], heads["entropy_norm_p50"][2], rtol=1e-5)
    assert "layer=" not in visit.page.url


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_probe_in_detail_standard_says_that_it_has_no_spread_over_queries(visit, lang):
    visit.open(address(lang, SMALL | {"protocol.detail": "standard"}, (), view="queries"))
    expect(visit.page.get_by_text(Words(lang)("drift.not_full"))).to_be_visible()
    assert visit.page.locator(".driftscope-chart").count() == 0


@pytest.mark.parametrize(("lang", "saturated"), [("en", "Attention is saturated"), ("zh", "注意力饱和")])
def test_causes_are_named_with_their_evidence(visit, lang, saturated):
    t = Words(lang)
    visit.open(address(lang, SMALL | {"model.qk_gain": 10.0}, view="causes"))
    assert t("cause.saturated") in drawn(visit, 0, "name")
    expect(visit.page.get_by_text(saturated, exact=False).first).to_be_visible()


def test_theory_stands_beside_what_was_measured_and_says_where_it_is_silent(visit):
    visit.open(address(variants=[{"model.norm": "batchnorm"}], view="theory"))
    names, lines = drawn(visit, 0, "name"), drawn(visit, 0, "y")
    assert names == ["LayerNorm", Words("en")("entropy.theory_of", variant="LayerNorm"), "BatchNorm"]
    row = snapshot()
    start = [row.activations[name][0] for name in ("rms", "token_cosine")]
    theory = predict(parse({}).with_values(SMALL), *map(float, start))
    told = np.log10([theory.rms[layer, "resid_post"] for layer in range(3)])
    np.testing.assert_allclose(np.log10(lines[1]) if min(lines[1]) > 1 else lines[1], told, atol=0.05)
    expect(visit.page.get_by_text("BatchNorm ties tokens together")).to_be_visible()


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_head_that_is_clicked_shows_its_weights_over_the_text_and_its_link_does_too(visit, lang):
    visit.open(address(lang))
    drawn(visit, 0, "z")
    middle = visit.page.evaluate(
        """() => { const gd = document.querySelector('.driftscope-chart'), at = gd.getBoundingClientRect(),
            { xaxis, yaxis } = gd._fullLayout, { l, t } = gd._fullLayout._size;
            return [at.left + xaxis._offset + xaxis.c2p("1"), at.top + yaxis._offset + yaxis.c2p("2")]; }""")
    visit.page.mouse.click(*middle)
    visit.page.wait_for_url(lambda url: "view=weights" in url)
    visit.settle()
    assert "layer=1" in visit.page.url and "head=2" in visit.page.url
    for _ in range(2):
        expect(visit.page.get_by_text(Words(lang)("entropy_view_help.weights"))).to_be_visible()
        seen = next(iter(train(parse({}).with_values(SMALL | {"protocol.device": "cpu"}), look=HeadLook(1, 2, 0))))
        np.testing.assert_allclose(drawn(visit, 1, "customdata")[0], seen.looks["weights"], rtol=1e-5)
        names = visit.page.evaluate("document.querySelectorAll('.driftscope-chart')[1].layout.xaxis.ticktext")
        assert "".join(names) == "".join(symbols(seen, "text")[:16])
        visit.page.reload()
        visit.settle()


@pytest.mark.parametrize("changes", [
    {"model.sublayers": "mlp"}, {"input.source": "gaussian"},
    {"model.norm": "none", "model.init_gain": 100.0, "protocol.dtype": "float16"},
    {"input.seq_len": 200, "input.lengths": "ragged"}, {"model.n_heads": 1, "input.batch": 1},
], ids=str)
def test_one_head_is_looked_at_whatever_there_is(visit, changes):
    visit.open(address(base=SMALL | changes, variants=[], view="weights", layer="200", head="77", sequence="1"))
    visit.page.wait_for_function("document.querySelectorAll('.driftscope-chart').length > 1"
                                 if "model.sublayers" not in changes else
                                 "document.body.innerText.includes('has no attention')")
    visit.settle()
    assert visit.page.get_by_test_id("stException").count() == 0


@pytest.mark.parametrize(("query", "said"), [
    ("view=weights&head=x", "Allowed: the number of a head"), ("view=weights&layer=512", "layer"),
    ("view=weights&sequence=-1", "Allowed: the number of a sequence"),
])
def test_what_a_link_may_say_of_a_head_is_said(visit, query, said):
    visit.open(f"/entropy?lang=en&{query}")
    visit.page.get_by_test_id("stAlert").filter(has_text=said).wait_for()


def test_a_visitor_agrees_once_to_looks_at_a_long_run_and_then_sees_any_head(visit):
    long = {"model.n_layers": 96, "model.d_model": 32, "input.batch": 2, "input.seq_len": 16}
    visit.open(address(base=long, variants=[], view="weights", layer="0"))
    run, charts = visit.page.get_by_role("button", name="Run", exact=True), visit.page.locator(".driftscope-chart")
    for place in range(2):  # the run itself, then the look at it
        run.click()
        charts.nth(place).wait_for()
        visit.settle()
    title = "Attention weights of layer 0, head {}"
    expect(charts.nth(1)).to_have_attribute("aria-label", re.compile(title.format(0)))
    visit.page.get_by_role("combobox", name="Head", exact=True).click()
    visit.page.get_by_role("option", name="1", exact=True).click()
    expect(charts.nth(1)).to_have_attribute("aria-label", re.compile(title.format(1)), timeout=20_000)
    assert run.count() == 0
