"""Everything can be done with the keyboard alone: the main ways through the real app, in a real browser."""

from __future__ import annotations

import re

import pytest
from browser import Visit
from playwright.sync_api import Locator, expect
from small import TRAINED, at, drawn

from pages.ui import lessons
from pages.ui.places import DRIFT, SWEEP
from pages.ui.text import Words

pytestmark = pytest.mark.browser

EN = Words("en")
LESSON = lessons.names()[0]
HERE = "node => node === document.activeElement"
STOPS = 90
WHOLE = "() => document.querySelector('.driftscope-chart').calcdata[0][0].z.every(row => row.every(Number.isFinite))"


def press(visit: Visit, *keys: str) -> None:
    for key in keys:
        visit.page.keyboard.press(key)


def tab_to(visit: Visit, wanted: Locator) -> None:
    """Press Tab until what is wanted has the focus."""
    wanted.first.wait_for()
    for _ in range(STOPS):
        press(visit, "Tab")
        if wanted.first.evaluate(HERE):
            return
    raise AssertionError(f"Tab does not reach {wanted} within {STOPS} stops")


def said(visit: Visit, number: int = 0) -> Locator:
    """What a screen reader hears of the value where a chart is walked."""
    return visit.page.locator(".driftscope-said").nth(number)


def chart(visit: Visit, number: int = 0) -> Locator:
    return visit.page.locator(".driftscope-chart").nth(number)


AROUND = """() => {
  const { x, y, width, height } = document.activeElement.getBoundingClientRect();
  const [left, top] = [Math.max(0, x - 14), Math.max(0, y - 14)];
  const [right, bottom] = [Math.min(innerWidth, x + width + 14), Math.min(innerHeight, y + height + 14)];
  return { x: left, y: top, width: right - left, height: bottom - top };
}"""
ORDERED = """stops => stops.slice(1).every((one, place) =>
  stops[place].compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING)"""
MISSED = """stops => [...document.querySelectorAll("a[href], button, input, summary, [role=figure]")].filter(one =>
  one.tabIndex >= 0 && !one.disabled && one.checkVisibility({ visibilityProperty: true }) && !stops.includes(one)
  && !(one.role === "radio" && stops.includes(one.parentElement.querySelector("[aria-checked=true]")))
).map(one => one.outerHTML.slice(0, 300))"""


def test_tab_reaches_every_control_and_every_chart_in_the_order_of_the_page_and_one_sees_where(visit: Visit) -> None:
    page = visit.page
    visit.open(f"/{at(DRIFT)}&lang=en")
    drawn(visit, 2)
    stops = []
    for _ in range(STOPS):
        press(visit, "Tab")
        focus = page.evaluate_handle("document.activeElement").as_element()
        if focus.evaluate("node => node === document.body"):
            break
        page.wait_for_timeout(60)  # a chart's buttons come in slowly
        clip = page.evaluate(AROUND)
        with_focus = page.screenshot(clip=clip)
        focus.evaluate("node => node.blur()")
        assert page.screenshot(clip=clip) != with_focus, focus.evaluate("node => node.outerHTML")
        focus.evaluate("node => node.focus({ preventScroll: true })")
        stops.append(focus)
    assert page.evaluate(ORDERED, stops)
    assert page.evaluate(MISSED, stops) == []


def test_a_view_and_a_setting_are_chosen_by_keys(visit: Visit) -> None:
    visit.open(f"/{at(DRIFT)}&lang=en")
    drawn(visit, 2)
    tab_to(visit, visit.page.get_by_role("combobox", name="Placement"))
    visit.page.keyboard.type("post")
    press(visit, "Enter")
    visit.page.wait_for_url("**placement=post**")
    visit.settle()
    tab_to(visit, visit.page.get_by_role("radio", name=EN("drift_view.overview")))
    press(visit, "ArrowRight", "Space")
    visit.page.wait_for_url("**view=profile**")
    visit.settle()
    drawn(visit, 1)
    assert visit.chart("return gd.data.filter(one => one.yaxis !== 'y2').length") == 2


def test_the_numbers_of_a_chart_are_opened_and_left_by_keys(visit: Visit) -> None:
    visit.open(f"/{at(DRIFT)}&lang=en")
    drawn(visit, 2)
    tab_to(visit, chart(visit))
    numbers = visit.page.get_by_role("button", name=EN("drift.numbers"))
    tab_to(visit, numbers)
    press(visit, "Enter")
    fold = visit.page.get_by_test_id("stPopoverBody")
    expect(fold.get_by_test_id("stDataFrame")).to_be_visible()
    press(visit, "Tab")
    assert fold.evaluate(HERE)
    tab_to(visit, fold.get_by_role("button", name=EN("drift.download", format="CSV")))
    press(visit, "Escape")
    expect(fold).to_have_count(0)
    assert numbers.first.evaluate(HERE)


def test_a_map_is_walked_value_by_value_and_its_site_chosen(visit: Visit) -> None:
    visit.open(f"/{at(DRIFT)}&lang=en")
    drawn(visit, 2)
    tab_to(visit, chart(visit))
    press(visit, "ArrowRight")
    expect(said(visit)).to_contain_text("embed")
    press(visit, "ArrowRight", "ArrowRight", "ArrowDown")
    level = visit.chart("return gd.calcdata[0][0].z[2][2]")  # decades, as the colours are
    expect(said(visit)).to_contain_text(f"norm1, {EN('statistic.rms')} {10**level:.5g}")
    press(visit, "Enter")
    visit.page.wait_for_url("**site=norm1**")
    visit.settle()
    press(visit, "Escape")
    expect(said(visit)).to_have_text("")


def test_lines_are_walked_along_and_from_one_to_the_other(visit: Visit) -> None:
    visit.open(f"/{at(DRIFT, view='profile')}&lang=en")
    drawn(visit, 1)
    tab_to(visit, chart(visit))
    lines = visit.chart("return gd.data.map(one => Array.from(one.y._inputArray ?? one.y))")
    names = visit.chart("return gd.data.map(one => one.name)")
    for key, line, layer in (("ArrowRight", 0, 0), ("ArrowRight", 0, 1), ("ArrowDown", 1, 1), ("ArrowLeft", 1, 0),
                             ("ArrowLeft", 0, 2), ("ArrowRight", 1, 0)):
        press(visit, key)
        expect(said(visit)).to_contain_text(names[line])
        expect(said(visit)).to_contain_text(f"{lines[line][layer]:.5g}")
    tab_to(visit, visit.page.get_by_role("button", name=EN("plotly.image")))
    expect(said(visit)).to_have_text("")


def test_a_cell_of_a_sweep_is_opened_by_keys(visit: Visit) -> None:
    visit.open(f"/{at(SWEEP)}&lang=en")
    drawn(visit, 1)
    button = visit.page.get_by_role("button", name=re.compile("|".join(map(EN, ("sweep.start", "sweep.go_on")))))
    tab_to(visit, button)
    press(visit, "Enter")
    visit.page.wait_for_function(WHOLE)
    visit.settle()
    tab_to(visit, chart(visit))
    press(visit, "ArrowRight", "ArrowDown", "Enter")
    visit.page.wait_for_url("**cell=1.0**")


def test_an_entry_of_the_worked_tensor_is_chosen_by_keys(visit: Visit) -> None:
    visit.open("/tensor?lang=en")
    drawn(visit, 2)
    tab_to(visit, chart(visit))
    press(visit, *["ArrowRight"] * 5)
    expect(said(visit)).to_contain_text("b.t.d = 0.1.0")
    press(visit, "Enter")
    visit.page.wait_for_url("**at=0.1.0**")


def test_a_prediction_is_made_by_keys_and_reading_goes_on_below_it(visit: Visit) -> None:
    one = lessons.lesson(LESSON, "en")
    options = next(section.options for section in one.sections if section.options)
    visit.open(f"/lessons?lang=en&lesson={LESSON}")
    tab_to(visit, visit.page.get_by_role("button", name=options[1]))
    press(visit, "Enter")
    expect(visit.page.get_by_text(EN("lessons.mine"))).to_be_visible()
    drawn(visit, 2)
    press(visit, "Tab")
    top = visit.page.evaluate("document.activeElement.getBoundingClientRect().top")
    assert top > visit.page.get_by_text(EN("lessons.mine")).bounding_box()["y"]


def test_slides_are_turned_wherever_the_focus_is(visit: Visit) -> None:
    visit.open(f"/present?lang=en&lesson={LESSON}&slide=3")
    drawn(visit, 1)
    counter = visit.page.locator(".driftscope-counter")
    tab_to(visit, visit.page.get_by_role("button", name=EN("present.back_label")))
    press(visit, "Enter")
    expect(counter).to_have_text(re.compile("^3 /"))
    press(visit, "ArrowRight")
    drawn(visit, 1)
    tab_to(visit, chart(visit))
    assert chart(visit).get_attribute("data-hint") == ""
    press(visit, "ArrowRight")
    expect(counter).to_have_text(re.compile("^5 /"))
    press(visit, "Escape")
    visit.page.wait_for_url(f"**/lessons?*lesson={LESSON}*")


def test_the_speakers_clock_goes_on_for_the_hours_of_a_talk_and_begins_anew_after_them(visit: Visit) -> None:
    clock, counter = visit.page.locator(".driftscope-clock"), visit.page.locator(".driftscope-counter")
    visit.open(f"/present?lang=en&lesson={LESSON}&notes=1")
    began = "hours => localStorage.setItem('driftscope-talk', Date.now() - hours * 3600_000)"
    visit.page.evaluate(began, 5)
    expect(clock).to_have_text(re.compile("^30[01]:"))
    visit.page.evaluate(began, 7)
    expect(clock).to_have_text("00:00")
    press(visit, "ArrowRight")
    expect(counter).to_have_text(re.compile("^2 /"))
    expect(clock).to_have_text(re.compile("^00:0[1-9]"))
    visit.page.evaluate(began, 1)
    expect(clock).to_have_text(re.compile("^60:"))
    press(visit, "r")
    expect(clock).to_have_text(re.compile("^00:0"))


def test_a_replay_is_played_stopped_and_stepped_through_by_keys(visit: Visit, run: str) -> None:
    visit.open(f"/live?lang=en&run={run}")
    drawn(visit, 3)
    play, range_ = visit.page.locator(".driftscope-play"), visit.page.locator(".driftscope-player input")
    last = TRAINED.protocol.steps
    assert play.inner_text() == EN("player.play")  # nothing plays until it is asked to
    tab_to(visit, play)
    press(visit, "Space")
    expect(play).to_have_text(EN("player.pause"))
    press(visit, "Space")
    expect(play).to_have_text(EN("player.play"))
    press(visit, "Tab", "Home")
    assert range_.evaluate(HERE)
    for step in range(3):
        expect(range_).to_have_attribute("aria-valuetext", EN("player.at", step=step, last=last))
        press(visit, "ArrowRight")
    visit.page.wait_for_url("**step=3**")
    press(visit, "Tab", "Enter")
    expect(range_).to_have_attribute("aria-valuetext", EN("player.at_newest", step=last, last=last))


def test_another_page_language_and_theme_are_chosen_by_keys(visit: Visit) -> None:
    page = visit.page
    visit.open("/?lang=en")
    tab_to(visit, page.get_by_role("button", name=EN("nav.labs")))
    press(visit, "Enter")
    page.get_by_role("menuitem", name=EN("tensor.title")).wait_for()
    press(visit, "ArrowDown", "ArrowDown", "Enter")
    page.wait_for_url("**/tensor?*")
    visit.settle()
    tab_to(visit, page.get_by_role("button", name="Main menu"))
    press(visit, "Enter")
    page.get_by_role("menuitemradio", name="Dark").wait_for()
    press(visit, "ArrowDown", "ArrowDown", "Enter")
    page.wait_for_function("getComputedStyle(document.querySelector('.stApp')).backgroundColor === 'rgb(17, 22, 31)'")
    press(visit, "Escape")
    tab_to(visit, page.get_by_role("radio", name="English"))
    press(visit, "ArrowRight", "Space")
    page.wait_for_url("**lang=zh**")
    expect(page.get_by_role("heading", level=1)).to_contain_text(Words("zh")("tensor.title"))
