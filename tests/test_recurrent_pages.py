"""Recurrent stacks as a visitor meets them: which settings and sites are offered, the view over time, other pages."""

import pytest
from browser import Visit
from playwright.sync_api import expect
from test_pages import drawn

from core.presets import preset
from pages.ui import link
from pages.ui.link import View
from pages.ui.places import DRIFT
from pages.ui.text import Words, keys

pytestmark = pytest.mark.browser

EN = Words("en")


def options(visit: Visit, label: str) -> list[str]:
    """Open a menu of the page and return what it offers."""
    box = visit.page.get_by_test_id("stMain").get_by_role("combobox", name=label, exact=False).first
    box.scroll_into_view_if_needed()
    box.click()
    found = visit.page.get_by_role("option")
    found.first.wait_for()
    texts = found.all_inner_texts()
    visit.page.keyboard.press("Escape")
    return texts


def test_settings_without_effect_and_sites_that_do_not_exist_are_not_offered(visit: Visit) -> None:
    visit.open("/drift?lang=en&preset=gru_plain&view=profile")
    drawn(visit, 3)
    assert visit.page.get_by_text(EN("field.placement"), exact=True).count() == 0
    visit.page.get_by_text(EN("drift.settings")).click()
    visit.page.get_by_text(EN("field.family"), exact=True).wait_for()
    for name in ("d_model", "dropout", "final_norm"):
        expect(visit.page.get_by_text(EN(f"field.{name}"), exact=True)).to_be_visible()
    visit.settle()
    for name in ("n_heads", "d_ff", "qk_norm", "positions", "residual"):
        assert visit.page.get_by_text(EN(f"field.{name}"), exact=True).count() == 0, name
    offered = options(visit, EN("drift.site"))
    assert [one.partition(" ")[0] for one in offered] == ["embed", "gate_r", "gate_z", "gate_n", "hidden", "final_norm",
                                                         "logits"]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_link_to_the_view_over_time_opens_with_its_numbers_and_its_sentence(visit: Visit, lang: str) -> None:
    visit.open(f"/gradients?lang={lang}&preset=lstm_layernorm&view=time&gate=cell&depth=0")
    lines = drawn(visit, 3)
    assert [len(line) for line in lines] == [64, 64, 64]
    assert lines[0][0] / lines[0][-1] > 100  # with a norm in the cell gradients grow on their way back in time
    assert "gate=cell" in visit.page.url and "depth=0" in visit.page.url
    expect(visit.page.get_by_text(Words(lang)("drift.verdicts"), exact=True)).to_be_visible()
    said = keys(lang)["verdict.gradient_time_exploding"].partition("{")[0]
    expect(visit.page.get_by_text(said).first).to_be_visible()


def test_a_transformer_and_an_lstm_stand_in_one_chart_and_the_lstms_stream_is_named(visit: Visit) -> None:
    view = View("lstm_plain", preset("lstm_plain"), ({"model.family": "transformer"},),
                DRIFT.defaults | {"view": "profile"})
    visit.open("/drift?lang=en&" + "&".join(f"{name}={value}" for name, value in link.write(view).items()))
    lines = drawn(visit, 2)
    assert [len(line) for line in lines] == [5, 5]  # the embedding and four layers each
    expect(visit.page.get_by_text(EN("drift.own_stream")).first).to_be_visible()


def test_attention_pages_say_that_there_is_no_attention(visit: Visit) -> None:
    visit.open("/entropy?lang=en&preset=lstm_plain")
    expect(visit.page.get_by_text(EN("entropy.no_head", variant=EN("norm.none")))).to_be_visible(timeout=30_000)
    expect(visit.page.get_by_text(EN("verdict.attention_absent")).first).to_be_visible()
    assert visit.page.get_by_text(EN("field.qk_norm"), exact=True).count() == 0
