"""The live page as visitors meet it: the real app, its real workers, real browsers."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np
import pytest
from browser import Visit
from playwright.sync_api import Browser, Locator

from core.experiment import parse
from core.train import train
from pages.ui import link
from pages.ui.link import View
from pages.ui.places import LIVE

pytestmark = pytest.mark.browser

SMALL = {"model.n_layers": 2, "model.d_model": 16, "model.n_heads": 2, "input.batch": 2, "input.seq_len": 16}
LOSS = "return gd.data.map(trace => Array.from(trace.y?._inputArray ?? trace.y ?? []))"
STEPS = "return gd.data.map(trace => Array.from(trace.x?._inputArray ?? trace.x ?? []))"


def address(base: dict[str, object], *variants: dict[str, object], lang: str = "en", **shown: str) -> str:
    """The link to a small training: what differs from the page's own start."""
    view = View("pre_layernorm", LIVE.origin("pre_layernorm").with_values({**SMALL, **base}), tuple(variants),
                {**LIVE.defaults, **shown})
    return f"/live?{urlencode({**link.write(view, LIVE), 'lang': lang})}"


def runs(visit: Visit) -> list[str]:
    return parse_qs(urlsplit(visit.page.url).query).get(link.RUNS, [""])[0].split(".")


def start(visit: Visit) -> None:
    visit.page.get_by_role("button", name="Start").click()
    visit.page.wait_for_url(re.compile(rf"[?&]{link.RUNS}="))


def until(visit: Visit, condition: Callable[[], object], limit_ms: int = 60_000) -> None:
    waited = 0
    while not condition():
        assert waited < limit_ms, f"it took too long; the page says: {status(visit)}"
        visit.page.wait_for_timeout(200)
        waited += 200


def status(visit: Visit) -> str:
    return " ".join(visit.page.locator("[data-testid=stProgress]").all_inner_texts())


def line(visit: Visit, number: int = 0) -> list[float]:
    return visit.chart(LOSS)[number]


def test_a_training_is_started_drawn_as_it_goes_and_its_numbers_are_the_engines(visit: Visit) -> None:
    base = {"protocol.steps": 30, "protocol.seed": 1}
    visit.open(address(base, {"model.norm": "none"}))
    visit.page.get_by_text("Nothing has been trained").wait_for()
    start(visit)
    until(visit, lambda: status(visit).count("done, 30 updates") == 2)
    until(visit, lambda: len(line(visit)) == 31)
    for place, norm in enumerate(("layernorm", "none")):
        described = parse({}).with_values({**SMALL, **base, "model.norm": norm, "protocol.device": "cpu"})
        found = {trace: values for trace, values in enumerate(visit.chart(LOSS)) if len(values) == 31}
        expected = [snapshot.loss for snapshot in train(described)]
        np.testing.assert_allclose(list(found.values())[place], expected, rtol=1e-5)
    assert "same weights, same data" in visit.page.locator("[data-testid=stMain]").inner_text()


def test_a_run_belongs_to_the_store_reload_and_another_browser_see_it_go_on(visit: Visit, chromium: Browser) -> None:
    settings = address({"protocol.steps": 20_000, "protocol.seed": 2, "protocol.record_every": 20})
    visit.open(settings)
    start(visit)
    until(visit, lambda: visit.page.locator(".driftscope-chart").count() > 0)
    mine = runs(visit)
    before = len(line(visit))
    until(visit, lambda: len(line(visit)) > before)  # without a rerun of the page: the event stream
    visit.page.reload()
    visit.settle()
    assert runs(visit) == mine
    other = chromium.new_context(locale="en-US")
    guest = Visit(other.new_page(), visit.address).open(settings)  # the settings alone, without the run's id
    until(guest, lambda: runs(guest) == mine)
    by_id = Visit(other.new_page(), visit.address).open(f"/live?run={mine[0]}")  # the id alone, without settings
    until(by_id, lambda: by_id.page.locator(".driftscope-chart").count() > 0)
    query = {name: values[0] for name, values in parse_qs(urlsplit(by_id.page.url).query).items()}
    assert link.read(query, LIVE)[0].base.protocol.steps == 20_000
    for page in (guest, by_id):
        seen = len(line(page))
        until(page, lambda page=page, seen=seen: len(line(page)) > seen)
        assert page.errors == []
    guest.page.get_by_test_id("stMain").get_by_role("button", name="Stop").click()
    until(visit, lambda: "stopped at step" in status(visit))  # for everybody who watches
    other.close()


def test_a_stopped_training_goes_on_from_where_it_was_stopped(visit: Visit) -> None:
    visit.open(address({"protocol.steps": 4000, "protocol.seed": 3, "protocol.record_every": 50}))
    start(visit)
    until(visit, lambda: visit.page.locator(".driftscope-chart").count() > 0)
    visit.page.get_by_test_id("stMain").get_by_role("button", name="Stop").click()
    until(visit, lambda: "goes on from step" in status(visit))
    stopped = int(re.search(r"goes on from step (\d+)", status(visit))[1])
    assert 0 < stopped < 4000
    visit.page.get_by_role("button", name="Go on").click()
    until(visit, lambda: "done, 4000 updates" in status(visit))
    until(visit, lambda: visit.chart(STEPS)[0][-1] == 4000)
    assert visit.chart(STEPS)[0] == list(range(0, 4001, 50))


def fill(visit: Visit, label: str, value: str, key: str = "Enter") -> None:
    """Type into a field of the training's settings, which may be folded away."""
    field = visit.page.locator(f"input[aria-label='{label}']")
    field.wait_for(state="attached")
    visit.page.wait_for_timeout(300)  # a fold may open still
    if not field.is_visible():
        visit.page.get_by_text("Training", exact=True).first.click()
    field.fill(value)
    if key:
        field.press(key)
        visit.settle()


def pressed(visit: Visit, name: str) -> None:
    shown(visit, name).click()


def shown(visit: Visit, name: str) -> Locator:
    """A button of the page: Streamlit has a Stop of its own while a script runs."""
    button = visit.page.get_by_test_id("stMain").get_by_role("button", name=name)
    button.wait_for(timeout=20_000)
    return button


def test_stop_and_go_on_are_heard_however_early_they_are_pressed(visit: Visit) -> None:
    """Often enough that they meet the moment in which the first step makes the page draw itself anew."""
    visit.open(address({"protocol.steps": 30_000, "protocol.seed": 7, "protocol.record_every": 300}))
    start(visit)
    for pause in (0, 150, 300, 450, 600, 750):
        shown(visit, "Stop")
        visit.page.wait_for_timeout(pause)
        pressed(visit, "Stop")
        pressed(visit, "Go on")
    pressed(visit, "Stop")
    shown(visit, "Go on")


@pytest.mark.parametrize(("label", "value", "said"), [
    ("Learning rate", "-5", "Learning rate cannot be"), ("Batch size", "0", "Batch size cannot be"),
    ("Sequence length T", "100000", "Sequence length T cannot be"), ("Record every", "0", "Record every cannot be"),
    ("Training steps", "", "Training steps is empty"),
])
def test_nothing_can_be_started_while_a_setting_is_refused_and_why_is_said_in_that_place(
        visit: Visit, label: str, value: str, said: str) -> None:
    visit.open(address({"protocol.steps": 5, "protocol.seed": 8}))
    field = visit.page.locator(f"input[aria-label='{label}']")
    until(visit, field.input_value)
    known = field.input_value()
    fill(visit, label, value)
    visit.page.get_by_test_id("stAlert").filter(has_text=said).wait_for()
    until(visit, lambda: visit.page.get_by_role("button", name="Start").count() == 0)
    fill(visit, label, known)
    visit.page.get_by_role("button", name="Start").wait_for()


def test_what_is_typed_counts_for_the_press_that_follows_it_at_once(visit: Visit) -> None:
    visit.open(address({"protocol.steps": 500, "protocol.seed": 9}))
    fill(visit, "Training steps", "11", key="")
    visit.page.get_by_role("button", name="Start").click()
    until(visit, lambda: "done, 11 updates" in status(visit))
    visit.open(address({"protocol.steps": 500, "protocol.seed": 9}))
    fill(visit, "Training steps", "-3", key="")
    visit.page.get_by_role("button", name="Start").click()
    visit.page.get_by_text("Training steps cannot be -3").wait_for()
    assert link.RUNS not in parse_qs(urlsplit(visit.page.url).query)


def test_a_training_that_goes_on_keeps_its_progress_and_its_stop_when_the_settings_change(visit: Visit) -> None:
    visit.open(address({"protocol.steps": 30_000, "protocol.seed": 10, "protocol.record_every": 300}))
    start(visit)
    until(visit, lambda: visit.page.locator(".driftscope-chart").count() > 0)
    fill(visit, "Learning rate", "0.002")
    visit.page.get_by_text("Trainings that it would wait for: 1.").wait_for()
    assert "of 30000" in status(visit)
    pressed(visit, "Stop")
    until(visit, lambda: "stopped at step" in status(visit))
    until(visit, lambda: visit.page.get_by_text("would wait").count() == 0)


def test_after_a_remedy_is_taken_start_is_in_sight(visit: Visit) -> None:
    visit.open(address({"protocol.steps": 300, "protocol.lr": 1e3, "protocol.optimizer": "sgd", "model.norm": "none"}))
    start(visit)
    until(visit, lambda: "a value was not finite" in status(visit))
    visit.page.get_by_role("button", name="Autopsy").click()
    visit.settle()
    remedy = visit.page.locator("[class*=st-key-remedy] button").first
    remedy.scroll_into_view_if_needed()
    remedy.click()
    visit.page.get_by_role("button", name="Start").wait_for()
    visit.settle()
    box = visit.page.get_by_role("button", name="Start").bounding_box()
    assert 0 <= box["y"] <= visit.page.viewport_size["height"] - box["height"]


def test_what_was_drawn_stays_while_the_settings_change(visit: Visit) -> None:
    visit.open(address({"protocol.steps": 12, "protocol.seed": 6}))
    start(visit)
    until(visit, lambda: "done, 12 updates" in status(visit))
    until(visit, lambda: len(line(visit)) == 13)
    drawn = line(visit)
    field = visit.page.locator("input[aria-label='Learning rate']")
    if not field.is_visible():
        visit.page.get_by_text("Training", exact=True).first.click()
    field.fill("0.002")
    field.press("Enter")
    visit.page.get_by_text("still the training from before").wait_for()
    assert line(visit) == drawn


def test_what_is_over_the_limits_is_refused_with_the_numbers_before_it_starts(visit: Visit) -> None:
    visit.open(address({"protocol.steps": 100_000}))
    said = visit.page.get_by_text("would store")
    said.wait_for()
    assert re.search(r"would store [0-9,.]+ MiB; this server allows up to 256", said.inner_text())
    assert visit.page.get_by_role("button", name="Start").count() == 0


@pytest.mark.parametrize("view", LIVE.views)
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_view_of_a_finished_training_is_drawn_from_a_cold_link(visit: Visit, view: str, lang: str) -> None:
    settings = {"protocol.steps": 12, "protocol.seed": 4}
    if view == LIVE.views[0] and lang == "en":
        visit.open(address(settings))
        start(visit)
        until(visit, lambda: "done, 12 updates" in status(visit))
    visit.open(address(settings, lang=lang, view=view))
    if view == "autopsy":
        assert visit.page.locator("[data-testid=stException]").count() == 0
    else:
        assert visit.chart("return gd.data.length") > 0


@pytest.mark.parametrize(("query", "said"), [
    ("step=x", "Allowed: last, or the number of a step"), ("at=x", "Allowed: ends, or the numbers of up to eight"),
    ("at=0.9999", "Allowed: ends"), ("at=0.1.400", "layers that are not there"),
])
def test_what_a_link_may_say_is_said_in_words(visit: Visit, query: str, said: str) -> None:
    visit.open(f"/live?lang=en&{query}")
    visit.page.get_by_test_id("stAlert").filter(has_text=said).wait_for()
    assert "400" not in visit.page.url and "9999" not in visit.page.url


def test_a_link_to_a_probe_or_to_a_step_that_is_not_there_is_said(visit: Visit) -> None:
    visit.open("/drift?lang=en&layers=2")
    until(visit, lambda: visit.page.locator(".driftscope-chart").count() > 0)
    visit.open("/runs?lang=en&kind=probe")
    table = visit.page.get_by_test_id("stDataFrame").bounding_box()
    visit.page.mouse.click(table["x"] + 17, table["y"] + 38 + 18)  # the box of the first row
    visit.page.wait_for_url(re.compile(rf"[?&]{link.RUNS}="))
    visit.open(f"/live?lang=en&run={runs(visit)[0]}")
    visit.page.get_by_test_id("stAlert").filter(has_text="is a probe and no training").wait_for()
    settings = {"protocol.steps": 12, "protocol.seed": 4}
    visit.open(address(settings, step="777"))
    if visit.page.get_by_role("button", name="Start").count():
        start(visit)
    until(visit, lambda: "done, 12 updates" in status(visit))
    visit.page.get_by_test_id("stAlert").filter(has_text="the last one recorded is 12").wait_for()


def test_a_training_that_was_deleted_elsewhere_is_said_to_be(visit: Visit) -> None:
    visit.open(address({"protocol.steps": 3, "protocol.seed": 14}))
    start(visit)
    until(visit, lambda: "done, 3 updates" in status(visit))
    elsewhere = Visit(visit.page.context.new_page(), visit.address).open(f"/runs?lang=en&run={runs(visit)[0]}")
    elsewhere.page.get_by_role("button", name="Delete", exact=True).click()
    elsewhere.page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    elsewhere.page.get_by_role("dialog").wait_for(state="hidden")
    visit.page.locator("[data-testid=stButtonGroup] button", has_text="Layers").click()
    visit.page.get_by_text("was deleted from the store").wait_for()
    visit.page.get_by_role("button", name="Start").wait_for()


@pytest.mark.parametrize("query", [
    "run=<script>", "run=0123456789abcdef", "view=nothing", "at=9999", "step=x", "x=1.broken", "stat=sin&who=7",
])
def test_a_bad_link_becomes_a_notice_and_the_page(visit: Visit, query: str) -> None:
    visit.open(f"/live?{query}")
    assert visit.page.locator("[data-testid=stAlert]").count() > 0
    assert visit.page.locator("[data-testid=stException]").count() == 0
    visit.page.get_by_role("button", name="Start").wait_for()


def test_the_replay_moves_the_profile_and_its_step_is_in_the_link(visit: Visit) -> None:
    visit.open(address({"protocol.steps": 20, "protocol.seed": 5}))
    start(visit)
    until(visit, lambda: "done, 20 updates" in status(visit))
    visit.settle()
    slider = visit.page.locator(".driftscope-player input[type=range]")
    newest = visit.chart(LOSS, 2)[0]
    slider.focus()
    for _ in range(3):
        slider.press("ArrowLeft")
    until(visit, lambda: visit.chart(LOSS, 2)[0] != newest)
    until(visit, lambda: "step=17" in visit.page.url)
    visit.page.reload()
    visit.settle()
    until(visit, lambda: visit.chart(LOSS, 2)[0] != newest)
