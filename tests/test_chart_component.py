"""The chart component in a real browser: what survives new numbers, a new theme, a new language."""

from collections.abc import Iterator

import numpy as np
import pytest
from browser import Visit
from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

RANGES = "return [gd._fullLayout.xaxis.range, gd._fullLayout.yaxis.range]"
VISIBLE = "return gd._fullData.map(trace => trace.visible)"
VALUES = "return gd._fullData.map(trace => Array.from(trace.y._inputArray ?? trace.y, v => Number.isNaN(v) ? null : v))"
HOVER = "return gd.querySelector('.hoverlayer .hovertext')?.textContent ?? null"
BACKGROUND = "return gd._fullLayout.paper_bgcolor"
THEMES = ("light", "dark")


@pytest.fixture(params=THEMES)
def visit(request: pytest.FixtureRequest, chromium: Browser, chart_address: str) -> Iterator[Visit]:
    context = chromium.new_context(viewport={"width": 1280, "height": 1000}, color_scheme=request.param, locale="en-US")
    opened = Visit(context.new_page(), chart_address).open()
    opened.chart("return true")
    yield opened
    assert opened.errors == []
    assert opened.hosts == {chart_address.removeprefix("http://")}
    context.close()


def area(visit: Visit) -> dict[str, float]:
    box = visit.page.locator(".driftscope-chart .nsewdrag").first.bounding_box()
    assert box is not None
    return box


def zoom(visit: Visit) -> list[list[float]]:
    box = area(visit)
    mouse = visit.page.mouse
    mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 0.3 * box["height"])
    mouse.down()
    mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"], steps=4)
    mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.7 * box["height"], steps=4)
    mouse.up()
    visit.page.wait_for_timeout(100)
    return visit.chart(RANGES)


def set_number(visit: Visit, name: str, value: str) -> None:
    field = visit.page.get_by_label(name, exact=True)
    field.fill(value)
    field.press("Enter")
    visit.settle()


def hide_first_line(visit: Visit) -> None:
    visit.page.locator(".legendtoggle").first.click()
    visit.page.wait_for_timeout(600)  # Plotly waits for a second click


def test_the_browser_holds_the_numbers_that_were_sent(visit: Visit) -> None:
    rising, broken, gaps = visit.chart(VALUES)
    assert rising == (2.0 ** np.arange(13)).tolist()
    assert broken == [None if layer in (3, 5) else 1.0 for layer in range(-1, 12)]
    assert len(gaps) == 2
    assert visit.chart("return gd._fullData[2].x.length") == 2
    assert visit.chart("const y = gd._fullData[0].y; return (y._inputArray ?? y) instanceof Float64Array")


def test_a_zoom_survives_new_numbers(visit: Visit) -> None:
    before = visit.chart(RANGES)
    zoomed = zoom(visit)
    assert zoomed != before
    set_number(visit, "gain", "3.0")
    assert visit.chart(VALUES)[0] == (3 * 2.0 ** np.arange(13)).tolist()
    assert visit.chart(RANGES) == zoomed
    set_number(visit, "layers", "20")
    assert visit.chart(RANGES) == zoomed


def test_a_chart_that_was_not_zoomed_follows_the_numbers(visit: Visit) -> None:
    before = visit.chart(RANGES)
    set_number(visit, "layers", "20")
    (_, right), (_, top) = visit.chart(RANGES)
    assert right > before[0][1] and top > before[1][1]


def test_the_axis_range_comes_from_the_finite_values(visit: Visit) -> None:
    low, high = visit.chart(RANGES)[1]
    assert -1 < low < 0 and np.log10(2.0**12) < high < 5


def test_a_hidden_line_survives_new_numbers_and_a_theme_switch(visit: Visit) -> None:
    hide_first_line(visit)
    hidden = visit.chart(VISIBLE)
    assert hidden == ["legendonly", True, True]
    set_number(visit, "gain", "2.0")
    assert visit.chart(VISIBLE) == hidden
    switch_theme(visit)
    assert visit.chart(VISIBLE) == hidden


def switch_theme(visit: Visit) -> None:
    old = visit.chart(BACKGROUND)
    visit.page.emulate_media(color_scheme="dark" if old == "#ffffff" else "light")
    changed = "old => document.querySelector('.driftscope-chart')._fullLayout.paper_bgcolor !== old"
    visit.page.wait_for_function(changed, arg=old)
    visit.settle()


def test_a_theme_switch_recolours_the_chart_and_keeps_the_zoom(visit: Visit) -> None:
    zoomed = zoom(visit)
    text = visit.chart("return gd._fullLayout.font.color")
    switch_theme(visit)
    assert visit.chart("return gd._fullLayout.font.color") != text
    assert visit.chart(RANGES) == zoomed


def test_another_scale_resets_the_y_axis_alone(visit: Visit) -> None:
    zoomed = zoom(visit)
    visit.page.get_by_text("linear", exact=True).click()
    visit.settle()
    x_range, y_range = visit.chart(RANGES)
    assert x_range == zoomed[0]
    assert y_range[0] < 1 and y_range[1] > 2.0**12


def test_the_hover_label_survives_new_numbers(visit: Visit) -> None:
    box = area(visit)
    visit.page.get_by_label("gain", exact=True).fill("2.0")
    visit.page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"], steps=5)
    visit.page.wait_for_timeout(200)
    before = visit.chart(HOVER)
    assert before is not None and "residual stream" in before
    visit.page.keyboard.press("Enter")
    visit.settle()
    after = visit.chart(HOVER)
    assert after is not None and after != before


def test_a_drag_under_way_is_not_disturbed_by_new_numbers(visit: Visit) -> None:
    box = area(visit)
    visit.page.get_by_label("gain", exact=True).fill("2.0")
    mouse = visit.page.mouse
    mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"])
    mouse.down()
    visit.page.keyboard.press("Enter")
    visit.page.get_by_text("the server has gain 2.0").wait_for()
    visit.settle()
    mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.7 * box["height"], steps=5)
    assert visit.chart(VALUES)[0][0] == 1.0
    mouse.up()
    visit.page.wait_for_timeout(400)
    assert visit.chart(VALUES)[0][0] == 2.0
    assert visit.chart("return gd.layout.xaxis.autorange") is not True


def test_a_zoom_survives_another_language(visit: Visit) -> None:
    zoomed = zoom(visit)
    visit.page.get_by_text("中文", exact=True).click()
    visit.settle()
    assert visit.chart("return gd._fullData[0].name") == "无归一化"
    assert visit.chart(RANGES) == zoomed


def test_a_chart_that_goes_and_comes_back_is_drawn_again(visit: Visit) -> None:
    for count in (0, 1, 0, 1):
        visit.page.get_by_text("shown", exact=True).click()
        visit.settle()
        assert visit.page.locator(".driftscope-chart").count() == count
    assert visit.chart(VALUES)[0] == (2.0 ** np.arange(13)).tolist()


def test_the_chart_is_one_element_from_first_to_last(visit: Visit) -> None:
    visit.chart("gd.dataset.mark = 'same'; return true")
    for gain in ("2.0", "3.0", "4.0"):
        set_number(visit, "gain", gain)
    visit.page.get_by_text("中文", exact=True).click()
    visit.settle()
    assert visit.chart("return gd.dataset.mark") == "same"
    assert visit.page.locator(".driftscope-chart").count() == 1
    assert visit.chart("return gd._fullData[0].name") == "无归一化"
    assert visit.page.locator(".modebar-btn").first.get_attribute("aria-label") == "保存为 PNG"


def test_the_chart_and_its_mode_bar_are_reached_by_keyboard(visit: Visit) -> None:
    chart = visit.page.get_by_role("figure", name="RMS over depth")
    chart.focus()
    visit.page.keyboard.press("Tab")
    assert visit.page.evaluate("document.activeElement.getAttribute('aria-label')") == "Save as PNG"
    for _ in range(3):
        visit.page.keyboard.press("Tab")
    before = visit.chart(RANGES)
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_timeout(500)
    (left, right), _ = visit.chart(RANGES)
    assert right - left < before[0][1] - before[0][0]


def test_there_is_no_logo_and_no_button_that_sends_the_chart_away(visit: Visit) -> None:
    names = [button.get_attribute("aria-label") for button in visit.page.locator(".modebar-btn").all()]
    assert names == ["Save as PNG", "Zoom", "Pan", "Zoom in", "Zoom out", "Reset view"]
    assert visit.page.locator(".driftscope-chart a").count() == 0


def test_the_chart_follows_the_width_of_the_page(visit: Visit) -> None:
    wide = area(visit)["width"]
    visit.page.set_viewport_size({"width": 480, "height": 1000})
    visit.page.wait_for_timeout(600)
    assert area(visit)["width"] < 0.8 * wide
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_tick_labels_can_be_read_in_a_lecture_hall(visit: Visit) -> None:
    sizes = visit.chart(
        "return [...gd.querySelectorAll('.xtick text, .ytick text, .legendtext, .xtitle, .ytitle')]"
        ".map(node => parseFloat(getComputedStyle(node).fontSize))"
    )
    assert min(sizes) >= 14
    assert min(visit.chart("return [gd._fullLayout.title.font.size, gd._fullLayout.xaxis.title.font.size]")) >= 16
