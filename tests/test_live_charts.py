"""Live charts and their player in a real browser: figures grow under the visitor's hands, who loses nothing."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from browser import Visit, server
from hypothesis import given
from live_numbers import LAST, LAYERS, figures
from playwright.sync_api import Browser, Page
from test_chart_component import RANGES, THEMES, VISIBLE, area, switch_theme, zoom
from test_patches import FIGURES, seen

from pages.ui import stream
from pages.ui.patches import apply, patches, plain

pytestmark = pytest.mark.browser

APP = Path(__file__).with_name("live_app.py")
PROFILE, LINES, MAP, ANOTHER = range(4)
HOST = "127.0.0.1"
SHOWN = "return gd._fullData.map(trace => Array.from(trace.y._inputArray ?? trace.y, v => Number.isNaN(v) ? null : v))"
CELLS = "return Array.from(gd._fullData[0].z, row => Array.from(row._inputArray ?? row))"
LABELS = "return [...gd.querySelectorAll('.hoverlayer .hovertext')].map(label => label.textContent).sort()"
CURSORS = ("return (gd._fullLayout.shapes ?? []).map(s => [s.x0, s.x1, s.xref, s.yref, s.line.color === "
           "gd._fullLayout.font.color])")
WATCHING = """
window.opened = [];
window.EventSource = class extends window.EventSource {
  constructor(url) { super(url); window.opened.push(this); }
};
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with server(APP) as running:
        yield running


@pytest.fixture
def theme() -> str:
    return "light"


@pytest.fixture
def visit(theme: str, chromium: Browser, address: str) -> Iterator[Visit]:
    steer(address, step=5, broken=0)
    context = chromium.new_context(viewport={"width": 1280, "height": 1600}, color_scheme=theme, locale="en-US")
    context.add_init_script(WATCHING)
    opened = Visit(context.new_page(), address).open()
    wait_for_all(opened, 5)
    yield opened
    assert opened.errors == []
    assert opened.hosts == {address.removeprefix("http://")}
    context.close()


def steer(address: str, **now: int) -> dict[str, int]:
    """Set how far the training is; return what it is now."""
    query = "&".join(f"{name}={value}" for name, value in now.items())
    with urllib.request.urlopen(f"{address}/steer?{query}") as answer:
        return json.loads(answer.read())


def wait_for_step(visit: Visit, step: int, number: int = LINES) -> None:
    """Wait until a chart of lines over steps shows so many."""
    visit.page.wait_for_function(
        "([n, count]) => document.querySelectorAll('.driftscope-chart')[n]?._fullData?.[0]?.x?.length === count",
        arg=[number, step + 1])


def wait_for_all(visit: Visit, step: int) -> None:
    """Wait until every chart shows so many steps and nothing more is painted."""
    for number in (LINES, MAP):
        wait_for_step(visit, step, number)
    first = "document.querySelector('.driftscope-chart')?._fullData?.[0]?.y?.[0]"
    visit.page.wait_for_function(f"y => {first} === y", arg=expected("profile", step)[0][0])
    visit.page.wait_for_timeout(300)


def wait_until_hidden(visit: Visit) -> None:
    """Wait for the first line of the first chart to be hidden: Plotly waits for a second click before."""
    visit.page.wait_for_function("document.querySelector('.driftscope-chart')._fullData[0].visible === 'legendonly'")


def expected(name: str, step: int) -> list[list[float | None]]:
    """What the traces of a figure show after `step` updates."""
    return [trace["y"] for trace in seen(plain(figures("en", step)[name]))["data"]]


def opened(visit: Visit) -> list[int]:
    """The state of every stream that the page opened: 1 open, 2 closed."""
    return visit.page.evaluate("window.opened.map(one => one.readyState)")


def slider(visit: Visit):
    return visit.page.get_by_role("slider", name="Training step")


def readout(visit: Visit) -> str:
    return visit.page.locator(".driftscope-readout").inner_text()


def move_to(visit: Visit, step: int) -> None:
    slider(visit).fill(str(step))
    visit.page.wait_for_timeout(300)


def test_live_charts_show_the_numbers_of_the_training(visit: Visit) -> None:
    for step in (5, 6, 9):
        steer(visit.address, step=step)
        wait_for_step(visit, step)
        assert visit.chart(SHOWN, LINES) == expected("lines", step)
        visit.page.wait_for_timeout(100)
        assert visit.chart(SHOWN, PROFILE) == expected("profile", step)
        cells = visit.chart(CELLS, MAP)
        assert np.array(cells).shape == (LAYERS, step + 1)
        assert cells[0] == expected("lines", step)[0]


def test_all_charts_of_a_page_share_one_stream(visit: Visit) -> None:
    visit.page.get_by_text("another", exact=True).click()
    visit.settle()
    wait_for_step(visit, 5, ANOTHER)
    assert opened(visit) == [1]
    steer(visit.address, step=7)
    wait_for_step(visit, 7, ANOTHER)
    assert opened(visit) == [1]


def test_a_rerun_neither_reconnects_nor_goes_back_to_older_numbers(visit: Visit) -> None:
    field = visit.page.get_by_label("number", exact=True)
    field.fill("3")
    field.press("Enter")
    visit.settle()
    assert visit.chart(SHOWN, LINES) == expected("lines", 5)
    assert opened(visit) == [1]


def test_a_chart_is_one_element_from_first_to_last(visit: Visit) -> None:
    visit.chart("gd.dataset.mark = 'same'; return true", MAP)
    for step in (6, 7, 8):
        steer(visit.address, step=step)
        wait_for_step(visit, step)
    visit.page.wait_for_timeout(100)
    assert visit.chart("return gd.dataset.mark", MAP) == "same"


def test_a_zoom_survives_live_numbers(visit: Visit) -> None:
    zoomed = zoom(visit)
    for step in (6, 12):
        steer(visit.address, step=step)
        wait_for_all(visit, step)
    assert visit.chart(SHOWN, PROFILE) == expected("profile", 12)
    assert visit.chart(RANGES, PROFILE) == zoomed


def test_a_chart_that_was_not_zoomed_follows_the_training(visit: Visit) -> None:
    before = visit.chart(RANGES, LINES)[0][1]
    steer(visit.address, step=20)
    wait_for_step(visit, 20)
    assert visit.chart(RANGES, LINES)[0][1] > before + 10


def test_a_hidden_line_survives_live_numbers_and_a_theme_switch(visit: Visit) -> None:
    visit.page.locator(".legendtoggle").first.click()
    wait_until_hidden(visit)
    steer(visit.address, step=6)
    wait_for_step(visit, 6)
    switch_theme(visit)
    visit.page.wait_for_timeout(200)
    assert visit.chart(VISIBLE, PROFILE) == ["legendonly", True]


def test_a_line_can_be_hidden_while_numbers_come_in(visit: Visit) -> None:
    visit.page.locator(".legendtoggle").first.click()
    for step in range(6, 12):
        steer(visit.address, step=step)
        visit.page.wait_for_timeout(130)
    wait_until_hidden(visit)
    wait_for_step(visit, 11)
    visit.page.wait_for_timeout(200)
    assert visit.chart(VISIBLE, PROFILE) == ["legendonly", True]


def test_the_hover_label_survives_live_numbers_and_says_the_new_ones(visit: Visit) -> None:
    box = area(visit)
    visit.page.mouse.move(box["x"] + 0.65 * box["width"], box["y"] + 0.5 * box["height"], steps=5)  # layer 2
    visit.page.wait_for_timeout(300)
    assert visit.chart(LABELS, PROFILE) == ["layer now(2, 3)", "layer start(2, 2)"]
    steer(visit.address, step=15)
    wait_for_all(visit, 15)
    assert visit.chart(LABELS, PROFILE) == ["layer now(2, 5)", "layer start(2, 2)"]


def test_a_drag_under_way_is_not_disturbed_by_live_numbers(visit: Visit) -> None:
    box, mouse = area(visit), visit.page.mouse
    mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"])
    mouse.down()
    steer(visit.address, step=9)
    wait_for_step(visit, 9)
    mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.7 * box["height"], steps=5)
    assert visit.chart(SHOWN, PROFILE) == expected("profile", 5)
    mouse.up()
    visit.page.wait_for_timeout(400)
    assert visit.chart(SHOWN, PROFILE) == expected("profile", 9)
    assert visit.chart("return gd.layout.xaxis.autorange", PROFILE) is not True


def test_a_page_out_of_sight_is_not_painted_and_catches_up(visit: Visit) -> None:
    see = "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true}); " \
          "document.dispatchEvent(new Event('visibilitychange')); }"
    visit.page.evaluate(see, True)
    for step in (6, 7, 8):
        steer(visit.address, step=step)
        visit.page.wait_for_timeout(400)
    assert visit.chart(SHOWN, LINES) == expected("lines", 5)
    visit.page.evaluate(see, False)
    wait_for_step(visit, 8)
    assert visit.chart(SHOWN, LINES) == expected("lines", 8)
    assert opened(visit) == [1]


def test_a_stream_that_was_cut_is_opened_again_with_the_right_state(visit: Visit) -> None:
    steer(visit.address, broken=1)  # the next look raises; the server ends the stream without a word
    steer(visit.address, step=11)
    wait_for_step(visit, 11)
    assert visit.chart(SHOWN, LINES) == expected("lines", 11)
    assert opened(visit) == [2, 1]


def test_the_end_of_a_training_ends_the_stream(visit: Visit) -> None:
    steer(visit.address, step=LAST)
    wait_for_step(visit, LAST)
    visit.page.wait_for_timeout(500)
    assert visit.chart(SHOWN, PROFILE) == expected("profile", LAST)
    looks = steer(visit.address)["looks"]
    visit.page.wait_for_timeout(2500)
    assert opened(visit) == [2]
    assert steer(visit.address)["looks"] == looks


def test_the_stream_is_closed_when_the_visitor_leaves_the_page(visit: Visit) -> None:
    visit.page.goto("about:blank")
    time.sleep(1)
    looks = steer(visit.address)["looks"]
    time.sleep(1)
    assert steer(visit.address)["looks"] == looks


def test_another_language_follows_its_own_stream_and_keeps_zoom_and_step(visit: Visit) -> None:
    zoomed = zoom(visit)
    move_to(visit, 3)
    visit.page.get_by_text("中文", exact=True).click()
    visit.settle()
    visit.page.wait_for_function("document.querySelector('.driftscope-chart')._fullData[0].name === '层 now'")
    visit.page.wait_for_timeout(500)
    assert opened(visit) == [2, 1]
    assert visit.chart(RANGES, PROFILE) == zoomed
    assert visit.chart(SHOWN, PROFILE)[0] == expected("profile", 3)[0]
    assert readout(visit) == "第 3 步，共 5 步"
    steer(visit.address, step=6)
    wait_for_step(visit, 6)


@pytest.mark.parametrize("theme", THEMES)
def test_the_player_moves_film_and_cursor(visit: Visit) -> None:
    assert visit.chart(CURSORS, LINES) == visit.chart(CURSORS, MAP) == []
    assert readout(visit) == "newest: step 5"
    for step in (0, 3, 5):
        move_to(visit, step)
        assert visit.chart(SHOWN, PROFILE) == [expected("profile", step)[0], expected("profile", 5)[1]]
        assert visit.chart(CURSORS, LINES) == visit.chart(CURSORS, MAP) == [[step, step, "x", "y domain", True]]
        assert readout(visit) == slider(visit).get_attribute("aria-valuetext") == f"step {step} of 5"
    assert None in expected("profile", 3)[0]
    visit.page.get_by_role("button", name="Newest").click()
    visit.page.wait_for_timeout(200)
    assert visit.chart(CURSORS, LINES) == []


def test_the_player_stays_where_it_is_while_the_training_goes_on(visit: Visit) -> None:
    move_to(visit, 2)
    steer(visit.address, step=8)
    wait_for_step(visit, 8)
    visit.page.wait_for_timeout(200)
    assert visit.chart(SHOWN, PROFILE)[0] == expected("profile", 2)[0]
    assert readout(visit) == "step 2 of 8"
    assert slider(visit).get_attribute("max") == "8"


def test_a_zoom_survives_the_player(visit: Visit) -> None:
    zoomed = zoom(visit)
    move_to(visit, 1)
    assert visit.chart(RANGES, PROFILE) == zoomed


def test_the_page_is_told_where_the_visitor_let_go_and_the_link_carries_it(visit: Visit) -> None:
    move_to(visit, 3)
    visit.page.get_by_text("told [3]").wait_for()
    assert "step=3" in visit.page.url
    visit.page.get_by_role("button", name="Newest").click()
    visit.page.get_by_text("told [3, None]").wait_for()
    assert "step=" not in visit.page.url
    visit.open("/?step=2")
    wait_for_step(visit, 5)
    visit.page.wait_for_timeout(500)
    assert readout(visit) == "step 2 of 5"
    assert visit.chart(SHOWN, PROFILE)[0] == expected("profile", 2)[0]


def test_the_film_runs_to_the_end_in_its_time_and_a_page_is_told_once(visit: Visit) -> None:
    visit.page.get_by_role("button", name="Play").click()
    began = time.monotonic()
    shown = set()
    while (said := readout(visit)) != "newest: step 5":
        shown.add(said)
        assert time.monotonic() - began < 20
        visit.page.wait_for_timeout(200)
    assert 10 < time.monotonic() - began < 16
    assert shown == {f"step {step} of 5" for step in range(5)}
    visit.page.get_by_text("told [None]", exact=True).wait_for()
    assert visit.page.get_by_role("button", name="Play").is_visible()


def test_the_film_can_be_stopped_and_goes_on_from_there(visit: Visit) -> None:
    move_to(visit, 3)
    visit.page.get_by_role("button", name="Play").click()
    visit.page.wait_for_timeout(400)
    visit.page.get_by_role("button", name="Pause").click()
    assert readout(visit) == "step 3 of 5"
    visit.page.get_by_text("told [3, 3]").wait_for()


def test_the_player_is_used_by_keyboard(visit: Visit) -> None:
    slider(visit).focus()
    for _ in range(2):
        visit.page.keyboard.press("ArrowLeft")
    assert readout(visit) == "step 3 of 5"
    visit.page.get_by_text("told [3]").wait_for()  # once, for both
    visit.page.get_by_role("button", name="Play").focus()
    visit.page.keyboard.press("Space")
    assert visit.page.get_by_role("button", name="Pause").is_visible()
    visit.page.keyboard.press("Space")
    assert visit.page.get_by_role("button", name="Play").is_visible()


@pytest.mark.parametrize("theme", THEMES)
def test_the_player_is_large_enough_for_a_finger_and_can_be_read(visit: Visit) -> None:
    for node in visit.page.locator(".driftscope-player button, .driftscope-player input").all():
        box = node.bounding_box()
        assert box and box["height"] >= 40 and box["width"] >= 40
    size, text, ground = visit.page.locator(".driftscope-player button").first.evaluate(
        "node => { const css = getComputedStyle(node); return [css.fontSize, css.color, css.backgroundColor]; }")
    assert float(size.removesuffix("px")) >= 18
    assert contrast(text, ground) >= 4.5
    visit.page.set_viewport_size({"width": 375, "height": 800})
    visit.page.wait_for_timeout(300)
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def contrast(one: str, other: str) -> float:
    """Contrast of two colours, by WCAG."""
    def light(color: str) -> float:
        parts = np.array([float(part) for part in color[color.index("(") + 1:-1].split(",")[:3]]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.fixture(scope="module")
def twin(chromium: Browser, address: str) -> Iterator[Page]:
    """A page that can patch figures."""
    page = chromium.new_page()
    page.add_init_script(WATCHING)
    page.goto(f"{address}/steer?step=5")
    page.evaluate("async path => { window.apply = (await import(path)).apply; }", f"/{stream.FEED}")
    yield page
    page.close()


def test_who_leaves_for_a_moment_finds_the_stream_open_and_nobody_leaves_one_behind(twin: Page) -> None:
    states = twin.evaluate("""async ([path, address]) => {
        const { subscribe } = await import(path);
        const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
        const follow = () => new Promise((resolve) => {
            const stop = subscribe(address, "lines", () => setTimeout(() => resolve(stop)));
        });
        (await follow())();
        await wait(300);
        const stop = await follow();
        const kept = window.opened.map((one) => one.readyState);
        stop();
        await wait(2000);
        return [kept, window.opened.map((one) => one.readyState)];
    }""", [f"/{stream.FEED}", stream.live({"run": "made-up", "lang": "zh"})])
    assert states == [[1], [2]]


@given(FIGURES, FIGURES)
def test_the_browser_patches_as_python_does(twin: Page, old, new) -> None:
    old, ops = seen(old), seen(patches(old, new))
    patched = twin.evaluate("([figure, ops]) => { apply(figure, ops); return JSON.stringify(figure); }", [old, ops])
    assert json.loads(patched, parse_int=float) == apply(old, ops)


def test_a_server_with_open_streams_ends_at_once_even_if_a_viewer_no_longer_reads() -> None:
    with contextlib.ExitStack() as streams, server(APP) as address:
        port = int(address.rpartition(":")[2])
        answers = []
        for _ in range(3):
            connection = streams.enter_context(contextlib.closing(http.client.HTTPConnection(HOST, port)))
            connection.request("GET", f"/{stream.live({'run': 'made-up', 'lang': 'en'})}")
            answers.append(connection.getresponse())
            assert answers[-1].readline() == b"event: state\n"
        asleep = streams.enter_context(socket.create_connection((HOST, port)))
        asleep.sendall(f"GET /{stream.live({'run': 'heavy'})} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        time.sleep(3)
        began = time.monotonic()
        streams.callback(lambda: [answer.read() for answer in answers])  # http.client refuses one that was cut off
    assert time.monotonic() - began < 2
