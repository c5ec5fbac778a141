"""The gradients page as a visitor meets it: the real app, its real workers, a real browser."""

import numpy as np
import pytest
from playwright.sync_api import expect

from core.experiment import parse
from core.gradient_theory import predict_gradient
from core.gradient_verdicts import clip, ratio
from core.trace import Trace
from core.train import train
from pages.ui import explain, link
from pages.ui.link import View
from pages.ui.places import GRADIENTS
from pages.ui.text import Words

pytestmark = pytest.mark.browser

SMALL = {"model.n_layers": 3, "model.d_model": 16, "input.batch": 2, "input.seq_len": 16}
EN = Words("en")
POINTS = "return gd.data.filter(d => d.yaxis !== 'y2').map(d => Array.from(d.y._inputArray ?? d.y))"


def query(base=SMALL, variants=({"model.norm": "none"},), lang="en", **shown):
    view = View(base=parse({}).with_values(base), variants=tuple(variants), shown=GRADIENTS.defaults | shown)
    return f"/gradients?lang={lang}&" + "&".join(
        f"{name}={value}" for name, value in link.write(view, GRADIENTS).items())


def drawn(visit, charts=2):
    visit.page.wait_for_function(
        "n => [...document.querySelectorAll('.driftscope-chart')].filter(gd => gd._fullLayout).length >= n", arg=charts)
    visit.settle()


def snapshot(**changes):
    return next(iter(train(parse({}).with_values(SMALL | changes))))


def norms_of(one, role):
    rows = [row for row, (layer, name) in enumerate(one.layout.parameters) if name == f"layers.{layer}.{role}"]
    return one.parameters["param_grad_norm"][rows]


def click_row(visit, row, number):
    """Click on a row of a map."""
    visit.chart("gd.scrollIntoView({block: 'center'})", number)
    x, y = visit.chart("const a = gd._fullLayout, b = gd.querySelector('.nsewdrag').getBoundingClientRect();"
                       f"return [b.x + b.width / 2, b.y + a.yaxis.d2p('{row}')]", number)
    visit.page.mouse.move(x, y)
    visit.page.mouse.click(x, y)


def test_the_landing_view_has_the_gradient_of_all_variants_above_a_map_whose_click_chooses_the_site(visit):
    visit.open(query(scale="linear"))
    drawn(visit)
    for line, norm in zip(visit.chart(POINTS), ("layernorm", "none"), strict=True):
        one = snapshot(**{"model.norm": norm})
        rows = [row for row, (_, site) in enumerate(one.layout.sites) if site in ("embed", "resid_post")]
        np.testing.assert_allclose(line, one.gradients["rms"][rows], rtol=1e-5)
    expect(visit.page.get_by_text("train mode, loss next token, batch 2 × 16")).to_be_visible()
    expect(visit.page.get_by_text(explain.sentence(ratio(Trace((snapshot(),))), EN))).to_be_visible()
    click_row(visit, "mlp_out", 1)
    visit.page.wait_for_url("**site=mlp_out**")
    visit.settle()
    assert "mlp_out" in visit.chart("return gd.layout.title.text")


def test_a_click_chooses_the_parameter_and_the_link_leads_to_a_training_of_it(visit):
    visit.open(query(view="parameters"))
    drawn(visit)
    click_row(visit, "attn.v.weight", 1)
    visit.page.wait_for_url("**role=attn.v.weight**")
    visit.settle()
    for line, norm in zip(visit.chart(POINTS), ("layernorm", "none"), strict=True):
        np.testing.assert_allclose(line, norms_of(snapshot(**{"model.norm": norm}), "attn.v.weight"), rtol=1e-5)
    visit.page.get_by_role("link", name=EN("gradients.open_live")).click()
    visit.page.wait_for_url("**/live?*view=updates*")
    visit.settle()
    assert "role=attn.v.weight" in visit.page.url and "layers=3" in visit.page.url


def test_a_threshold_is_set_by_a_click_stays_in_the_link_and_gives_dotted_lines(visit):
    visit.open(query(view="clipping"))
    drawn(visit)
    small = parse({}).with_values(SMALL)
    expect(visit.page.get_by_text(explain.sentence(clip(Trace((snapshot(),)), small), EN))).to_be_visible()
    visit.page.get_by_role("button", name=EN("gradients.clip_at", limit="1")).click()
    visit.page.wait_for_function("() => document.querySelector('.driftscope-chart').data.length === 4")
    visit.settle()
    lines = visit.chart(POINTS)
    for place, norm in enumerate(("layernorm", "none")):
        one = snapshot(**{"model.norm": norm, "protocol.grad_clip": 1.0})
        before = norms_of(one, "mlp.out.weight")
        np.testing.assert_allclose(lines[place], before, rtol=1e-5)
        np.testing.assert_allclose(lines[2 + place], before * one.totals["clip_factor"], rtol=1e-5)
    visit.page.reload()
    visit.settle()
    drawn(visit)
    assert len(visit.chart(POINTS)) == 4


@pytest.mark.parametrize(("view", "lang"), [("sites", "zh"), ("parameters", "zh"), ("clipping", "zh"), ("twins", "en")])
def test_every_view_opens_cold_whole_and_spoken_also_when_nothing_is_finite(visit, view, lang):
    visit.open(query({**SMALL, "model.embed_scale": 1e30, "protocol.dtype": "float16", "protocol.grad_clip": 0.5},
                     view=view, lang=lang))
    drawn(visit)
    expect(visit.page.get_by_text(Words(lang)(f"gradients_view_help.{view}"))).to_be_visible()
    expect(visit.page.get_by_role("heading", name=Words(lang)("drift.verdicts"))).to_be_visible()
    assert visit.page.get_by_test_id("stException").count() == 0
    assert "{" not in visit.page.inner_text("body")


@pytest.mark.parametrize(("lang", "silent"), [("en", "BatchNorm ties tokens"), ("zh", "BatchNorm 使各词元相互牵连")])
def test_theory_stands_beside_the_gradient_that_was_measured_and_says_where_it_is_silent(visit, lang, silent):
    visit.open(query(variants=[{"model.norm": "batchnorm"}], lang=lang, view="theory"))
    drawn(visit)
    points, line, _ = visit.chart(POINTS)
    trace = Trace((snapshot(),))
    start, top = (tuple(float(trace.profile(site, name, gradient)[1][-1]) for name in ("rms", "token_cosine"))
                  for site, gradient in (("embed", False), ("resid_post", True)))
    theory = predict_gradient(parse({}).with_values(SMALL), start, top)
    np.testing.assert_allclose(points, trace.profile("resid_post", "rms", gradient=True)[1], rtol=1e-5)
    np.testing.assert_allclose(line, [theory.rms[layer, "resid_post"] for layer in range(3)], rtol=1e-4)
    expect(visit.page.get_by_text(silent)).to_be_visible()
