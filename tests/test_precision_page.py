"""The precision page as a visitor meets it: the real app, its real workers, a real browser."""

import numpy as np
import pytest
from playwright.sync_api import expect

from core.experiment import parse
from core.headroom import headroom
from core.trace import Trace
from core.train import train
from pages.ui import explain, link
from pages.ui.link import View
from pages.ui.places import PRECISION
from pages.ui.text import Words

pytestmark = pytest.mark.browser

SMALL = {"model.n_layers": 3, "model.d_model": 16, "input.batch": 2, "input.seq_len": 16, "model.norm": "none",
         "model.embed_scale": 1e6}
EN, ZH = Words("en"), Words("zh")


def query(lang="en", **shown):
    view = View(base=parse({}).with_values(SMALL), shown=PRECISION.defaults | shown)
    return f"/precision?lang={lang}&" + "&".join(f"{name}={value}" for name, value in link.write(
        view, PRECISION).items())


def test_a_cold_link_gives_the_headroom_of_the_engine_and_says_what_the_float16_run_met(visit):
    visit.open(query())
    bars = "return [Array.from(gd.data[0].y), Array.from(gd.data[0].x._inputArray ?? gd.data[0].x)]"
    names, lengths = visit.chart(bars)
    found = headroom(Trace(tuple(train(parse({}).with_values(SMALL)))), "float16")
    for site, length in zip(names, lengths, strict=True):
        row = found.sites.index(site.replace("<b>", "").replace("</b>", ""))
        assert length == pytest.approx(np.nanmin(found.values[row]), rel=1e-6)
    visit.settle()
    place = explain.named("embed", -1, EN)
    expect(visit.page.get_by_text(EN("precision.met", place=place, kind="Inf", direction=EN(
        "precision.in_forward")))).to_be_visible()
    expect(visit.page.get_by_text(EN("pairing.same_weights")).first).to_be_visible()
    assert visit.page.get_by_test_id("stSidebar").get_by_text(EN("precision.fixed_formats")).count() == 1


def test_between_views_with_and_without_a_model_the_base_and_the_numbers_are_kept(visit):
    visit.open(query(view="ruler", value="255.875"))
    box = visit.page.get_by_role("textbox", name=EN("precision.value"))
    expect(box).to_have_value("255.875")
    visit.page.get_by_text(EN("precision_view.headroom"), exact=True).click()
    visit.page.wait_for_url(lambda url: "view=" not in url and "value=255.875" in url and "norm=none" in url)
    visit.chart("return 1")
    visit.settle()
    visit.page.get_by_text(EN("precision_view.ruler"), exact=True).click()
    visit.page.wait_for_url("**view=ruler**")
    visit.settle()
    expect(visit.page.get_by_role("textbox", name=EN("precision.value"))).to_have_value("255.875")
    assert "norm=none" in visit.page.url
    assert visit.page.get_by_test_id("stSidebar").get_by_text(EN("drift.preset")).count() == 0


def test_a_refused_number_says_why_and_the_last_good_one_stays(visit):
    visit.open("/precision?lang=zh&view=ruler&value=300")
    box = visit.page.get_by_role("textbox", name=ZH("precision.value"))
    box.fill("abc")
    box.press("Enter")
    expect(visit.page.get_by_test_id("stAlert")).to_contain_text("“abc”")
    visit.settle()
    assert "value=300" in visit.page.url
    expect(visit.page.get_by_text("300：")).to_be_visible()
    box = visit.page.get_by_role("textbox", name=ZH("precision.value"))
    box.fill("−6E-8")
    box.press("Enter")
    visit.page.wait_for_url("**value=-6e-8**")
    visit.settle()
    assert visit.page.get_by_test_id("stAlert").count() == 0


def test_a_bad_link_is_answered_with_a_notice_and_a_whole_page(visit):
    visit.open("/precision?lang=en&view=variance&ratio=3&arithmetic=int4&value=x")
    said = visit.page.get_by_test_id("stAlert").all_inner_texts()
    assert [word in text for word, text in zip(["int4", "“3”", "“x”"], said, strict=True)] == [True] * 3
    assert len(visit.chart("return gd.data")) > 5
    visit.page.wait_for_url(lambda url: "int4" not in url and "view=variance" in url)
