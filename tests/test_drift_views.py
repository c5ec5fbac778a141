"""The views of the drift page as a visitor meets them: the real app, its real workers, a real browser."""

import csv
import io
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import expect

from core.experiment import parse
from core.train import train
from pages.ui import link
from pages.ui.link import View
from pages.ui.places import DRIFT
from pages.ui.text import Words

pytestmark = pytest.mark.browser

SMALL = {"model.n_layers": 3, "model.d_model": 16, "input.batch": 2, "input.seq_len": 16}
NAN = {**SMALL, "model.embed_scale": 1e30, "protocol.dtype": "float16"}
EN = Words("en")


def query(base=SMALL, variants=({"model.norm": "none"},), lang="en", **shown):
    view = View(base=parse({}).with_values(base), variants=tuple(variants), shown=DRIFT.defaults | shown)
    return f"/drift?lang={lang}&" + "&".join(f"{name}={value}" for name, value in link.write(view).items())


def drawn(visit, charts=1):
    visit.page.wait_for_function(
        "n => [...document.querySelectorAll('.driftscope-chart')].filter(gd => gd._fullLayout).length >= n", arg=charts)
    visit.settle()


def snapshot(**changes):
    return next(iter(train(parse({}).with_values(SMALL | changes))))


CELLS = "return Array.from(gd.data[0].z._inputArray ?? gd.data[0].z, row => Array.from(row._inputArray ?? row))"


def test_the_landing_view_is_the_map_of_every_site_with_the_profile_below(visit):
    visit.open("/drift?lang=en")
    drawn(visit, 2)
    assert visit.chart("return gd.data[0].type") == "heatmap"
    assert visit.chart("return gd.data[0].type", 1) == "scatter"
    assert len(visit.chart("return gd.data", 1)) == 3
    assert "view=" not in visit.page.url


def test_the_map_shows_the_numbers_that_the_engine_measures(visit):
    visit.open(query(scale="linear"))
    drawn(visit, 2)
    cells, rows = visit.chart(CELLS), visit.chart("return gd.data[0].y")
    one = snapshot()
    for row, (layer, site) in enumerate(one.layout.sites):
        measured, shown = one.activations["rms"][row], cells[rows.index(site)][layer + 1]
        assert (shown is None or np.isnan(shown)) if np.isnan(measured) else shown == pytest.approx(measured, rel=1e-5)


def test_a_click_on_the_map_chooses_the_site_of_the_profile_and_the_link(visit):
    visit.open(query())
    drawn(visit, 2)
    visit.chart("gd.scrollIntoView({block: 'center'})")
    x, y = visit.chart("const a = gd._fullLayout, b = gd.querySelector('.nsewdrag').getBoundingClientRect();"
                       "return [b.x + b.width / 2, b.y + a.yaxis.d2p('mlp_out')]")
    visit.page.mouse.move(x, y)
    visit.page.mouse.click(x, y)
    visit.page.wait_for_url("**site=mlp_out**")
    visit.settle()
    assert "mlp_out" in visit.chart("return gd.layout.title.text", 1)
    assert visit.chart("return gd.layout.shapes.length") == 1


HOVER = "return gd.querySelector('.hoverlayer .hovertext')?.textContent ?? null"


def test_the_hover_label_of_any_facet_survives_new_numbers(visit):
    visit.open(query(view="quantiles", scale="linear"))
    drawn(visit)
    visit.page.get_by_test_id("stSidebar").get_by_role("slider").focus()
    visit.chart("gd.scrollIntoView({block: 'center'})")
    x, y = visit.chart("const b = gd.querySelector('.nsewdrag[data-subplot=x2y2]').getBoundingClientRect();"
                       "return [b.x + gd._fullLayout.xaxis2.d2p(-1), b.y + gd._fullLayout.yaxis2.d2p(0)]")
    visit.page.mouse.move(x, y, steps=5)
    visit.page.wait_for_timeout(300)
    before = visit.chart(HOVER)
    assert before is not None and EN("norm.none") in before
    visit.page.keyboard.press("ArrowRight")
    visit.page.wait_for_url("**layers=4**")
    visit.settle()
    after = visit.chart(HOVER)
    assert after == before  # of the embedding, which more layers do not change


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("view", DRIFT.views)
def test_every_view_opens_cold_in_every_language(visit, view, lang):
    visit.open(query(view=view, lang=lang))
    expect(visit.page.get_by_text(Words(lang)(f"drift_view_help.{view}"))).to_be_visible()
    expect(visit.page.get_by_role("heading", name=Words(lang)("drift.verdicts"))).to_be_visible(timeout=60_000)
    visit.settle()
    assert visit.page.get_by_test_id("stException").count() == 0
    assert "{" not in visit.page.inner_text("body")
    if view not in ("outliers", "time"):  # nothing stands out yet, and blocks have no time steps: both are said
        drawn(visit)


@pytest.mark.parametrize("view", DRIFT.views)
def test_every_view_is_whole_when_everything_is_not_finite(visit, view):
    visit.open(query(NAN, view=view))
    expect(visit.page.get_by_role("heading", name=EN("drift.verdicts"))).to_be_visible(timeout=60_000)
    visit.settle()
    assert visit.page.get_by_test_id("stException").count() == 0


def test_another_view_keeps_site_scale_and_variant_in_the_link(visit):
    visit.open(query(site="mlp_out", scale="symlog", view="profile", who="1"))
    drawn(visit)
    visit.page.get_by_role("radio", name=EN("drift_view.quantiles")).or_(
        visit.page.get_by_role("button", name=EN("drift_view.quantiles"))).click()
    visit.page.wait_for_url("**view=quantiles**")
    visit.settle()
    for kept in ("site=mlp_out", "scale=symlog", "who=1"):
        assert kept in visit.page.url
    assert "mlp_out" in visit.chart("return gd.layout.title.text")


def downloaded(visit, name):
    with visit.page.expect_download() as waiting:
        visit.page.get_by_role("button", name=EN("drift.download", format=name)).click()
    return waiting.value.path().read_bytes()


def test_the_numbers_of_a_chart_can_be_taken_away_as_csv_and_parquet(visit):
    visit.open(query(view="profile", variants=()))
    drawn(visit)
    visit.page.get_by_role("button", name=EN("drift.numbers")).click()
    one = snapshot()
    expected = [value for (_, site), value in zip(one.layout.sites, one.activations["rms"], strict=True)
                if site in ("embed", "resid_post")]
    rows = list(csv.reader(io.StringIO(downloaded(visit, "CSV").decode())))
    assert [row[0] for row in rows] == ["layer", "-1", "0", "1", "2"]
    np.testing.assert_allclose([float(row[1]) for row in rows[1:]], expected)
    table = pq.read_table(io.BytesIO(downloaded(visit, "Parquet")))
    np.testing.assert_allclose(table.column(1).to_pylist(), expected)


def test_a_chart_says_what_its_number_is(visit):
    visit.open(query(view="profile", stat="kurtosis", site="mlp_act", of="gradient"))
    drawn(visit)
    visit.page.get_by_role("button", name=EN("drift.what")).click()
    panel = visit.page.get_by_test_id("stPopoverBody")
    for said in (EN("formula.kurtosis"), "grad_kurtosis", EN("site.mlp_act"), "B T F",
                 EN("drift.n_exact", n="2\u202f048")):
        expect(panel.get_by_text(said).first).to_be_visible()


def test_the_text_view_shows_the_layer_that_was_chosen(visit):
    visit.open(query(view="text", layer="0", scale="linear", variants=()))
    drawn(visit, 2)
    sizes = snapshot().token_rms
    np.testing.assert_allclose(np.ravel(visit.chart(CELLS)), sizes[1], rtol=1e-5)
    slider = visit.page.get_by_test_id("stMain").get_by_role("slider")
    slider.focus()
    slider.press("End")
    visit.page.wait_for_function("() => !location.href.includes('layer=')")
    visit.settle()
    np.testing.assert_allclose(np.ravel(visit.chart(CELLS)), sizes[3], rtol=1e-5)


def test_a_link_to_a_layer_or_variant_that_is_not_there_shows_the_last_one(visit):
    visit.open(query(view="text", layer="200", who="5"))
    drawn(visit, 2)
    assert "layer=" not in visit.page.url and "who=1" in visit.page.url
    expect(visit.page.get_by_text(EN("norm.none")).first).to_be_visible()


def test_six_variants_that_change_every_field_stay_within_a_link(visit):
    every = {path: value for path, value in parse({}).paths().items() if path != "input.text"}
    variants = [{**every, **SMALL, "protocol.seed": seed} for seed in range(6)]
    address = query(variants=variants, view="profile")
    assert len(json.dumps(address)) < 2000
    visit.open(address)
    drawn(visit)
    assert len(visit.chart("return gd.data.filter(d => d.yaxis !== 'y2')")) == 6
