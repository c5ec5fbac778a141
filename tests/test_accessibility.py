"""Everybody can read the pages: axe finds nothing in them, and their words stand out, in both languages and themes.

Every page is opened once a language, with one browser; the theme is switched where it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser import ROOT, Visit
from playwright.sync_api import Browser, Page, expect
from small import at, drawn

from pages.ui import export, lessons
from pages.ui.places import BASICS, BATCHNORM, DRIFT, ENTROPY, GRADIENTS, LIVE, NORM_BENCH, PRECISION, SWEEP
from pages.ui.text import LANGUAGES, Words

LESSON = lessons.names()[0]

ALL: dict[str, object] = {"resultTypes": ["violations"]}
CONTRAST: dict[str, object] = {**ALL, "runOnly": ["color-contrast"]}
"""What axe looks for: all it knows, and what another theme can change."""

VISITS: dict[str, tuple[str, int]] = {
    "home": ("?", 1), "drift": (at(DRIFT), 2), "gradients": (at(GRADIENTS), 2), "entropy": (at(ENTROPY), 2),
    "norms": (at(NORM_BENCH, norms="layernorm,none", placements="pre"), 4), "sweep": (at(SWEEP), 1),
    "basics": (at(BASICS), 2), "softmax": ("softmax?", 5), "tensor": ("tensor?", 2), "batchnorm": (at(BATCHNORM), 3),
    "precision": (at(PRECISION), 2), "live": ("live?run={run}", 3), "an untrained live": (at(LIVE), 0),
    "runs": ("runs?run={run}", 0), "status": ("status?", 0), "lessons": ("lessons?", 0),
    "an unanswered lesson": (f"lessons?lesson={LESSON}", 0),
    "an answered lesson": (f"lessons?lesson={LESSON}&guess=1", 2), "present": (f"present?lesson={LESSON}&slide=3", 1),
    "a slide of words": (f"present?lesson={LESSON}", 0), "notes": (f"present?lesson={LESSON}&notes=1", 0),
    "glossary": ("glossary?", 0), "a refused link": (at(DRIFT, view="profile") + "&norm=nope", 1),
}
"""What is visited → its address, and how many charts are there."""


@pytest.fixture(scope="module")
def tab(chromium: Browser, address: str) -> Iterator[Visit]:
    """One visit for all pages: what the browser has of Streamlit and Plotly it keeps."""
    context = chromium.new_context(locale="en-US", viewport={"width": 1280, "height": 900})
    context.set_default_timeout(60_000)
    yield Visit(context.new_page(), address)
    context.close()


def faults(page: Page, options: dict[str, object], about: str | None = None) -> list[str]:
    """What axe finds, a line a rule: how bad, which rule, and where. `about`: only in what this selects."""
    found = Axe().run(page, context=about, options=options).response["violations"]
    return [f"{one['impact']} {one['id']}: {[node['html'][:200] for node in one['nodes'][:3]]}" for one in found]


def switch(page: Page, theme: str, background: str = "document.querySelector('.stApp')") -> None:
    """Show the page in a theme, and wait for it."""
    page.emulate_media(color_scheme=theme)
    dark = f"getComputedStyle({background}).backgroundColor === 'rgb(17, 22, 31)'"
    page.wait_for_function(f"() => ({dark}) === {str(theme == 'dark').lower()}")
    page.wait_for_timeout(400)  # charts and widgets fade, and are painted anew


def titled(path: str, lang: str) -> str:
    """What the window at an address is called: as its page, or as the lesson that is there."""
    if f"lesson={LESSON}" in path:
        return lessons.lesson(LESSON, lang).title
    return Words(lang)(f"{path.partition('?')[0] or 'home'}.title")


FAINT = (Path(__file__).with_name("faint_words.js")).read_text("utf-8")


@pytest.mark.browser
@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("name", VISITS)
def test_axe_finds_nothing_on_any_page_and_all_words_stand_out(tab: Visit, run: str, name: str, lang: str) -> None:
    path, charts = VISITS[name]
    tab.page.emulate_media(color_scheme="light")
    tab.open(f"/{path.format(run=run)}&lang={lang}")
    drawn(tab, charts)
    page = tab.page
    expect(page).to_have_title(f"{titled(path, lang)} · Driftscope")
    assert page.evaluate("document.documentElement.lang") == lang
    assert page.locator("h1").count() == 1
    for theme, options in (("light", ALL), ("dark", CONTRAST)):
        switch(page, theme)
        assert faults(page, options) == []
        assert page.evaluate(FAINT) == []
    assert tab.errors == []


NAMES = sorted(path.stem for path in (ROOT / "pages").glob("[a-z]*.py"))


def test_every_page_is_visited() -> None:
    assert set(NAMES) <= {path.partition("?")[0] or "home" for path, _ in VISITS.values()}


FOLDS = {  # what is opened → what is clicked, and what then is there
    "what a number is": ("[data-testid=stPopover] button", "[data-testid=stPopoverBody]"),
    "the numbers": ("[data-testid=stPopover]:has-text('{drift.numbers}') button", "[data-testid=stPopoverBody]"),
    "the picture": ("[data-testid=stPopover]:has-text('{image.fold}') button",
                    "[data-testid=stPopoverBody]:has([data-testid=stDownloadButton])"),
    "all settings": (".st-key-settings summary", ".st-key-settings [role=tabpanel]"),
    "a menu of choices": (".st-key-model-norm input", "[role=listbox]"),
    "the navigation": ("[data-testid=stTopNavSection]", "[data-testid=stTopNavPopover]"),
}


@pytest.mark.browser
@pytest.mark.parametrize(("lang", "theme"), [("en", "dark"), ("zh", "light")])
def test_axe_finds_nothing_in_a_diagram_nor_in_what_unfolds(tab: Visit, lang: str, theme: str) -> None:
    page, t = tab.page, Words(lang)
    tab.open(f"/{at(DRIFT, view='wiring')}&lang={lang}")
    drawn(tab, 1)
    switch(page, theme)
    assert faults(page, ALL) == []
    assert page.evaluate(FAINT) == []
    for selector, opened in FOLDS.values():
        page.locator(re.sub(r"{(.*?)}", lambda key: t(key[1]), selector)).first.click()
        page.locator(opened).first.wait_for()
        page.wait_for_timeout(300)
        assert faults(page, ALL, opened) == []
        page.keyboard.press("Escape")
    assert tab.errors == []


@pytest.mark.browser
@pytest.mark.parametrize("lang", LANGUAGES)
def test_axe_finds_nothing_in_a_hand_out(run: str, chromium: Browser, tmp_path: Path, lang: str) -> None:
    path = tmp_path / "out.html"
    path.write_bytes(export.made([run], (), Words(lang)))
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    page = context.new_page()
    page.goto(path.as_uri())
    page.locator(".driftscope-chart .main-svg").last.wait_for()
    page.evaluate("document.querySelectorAll('details').forEach(one => (one.open = true))")
    for theme, options in (("light", ALL), ("dark", CONTRAST)):
        switch(page, theme, "document.body")
        assert faults(page, options) == []
        assert page.evaluate(FAINT) == []
    assert page.title() and page.evaluate("document.documentElement.lang") == lang
    context.close()


@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_the_pointer_calls_up_can_be_read(tab: Visit, theme: str) -> None:
    tab.page.emulate_media(color_scheme="light")
    tab.open(f"/{at(DRIFT)}&lang=en")
    drawn(tab, 2)
    switch(tab.page, theme)
    for chart in tab.page.locator(".driftscope-chart").all():
        chart.focus()
        tab.page.keyboard.press("ArrowRight")
        chart.locator(".hovertext text").first.wait_for()
        assert tab.page.evaluate(FAINT) == []


@pytest.mark.browser
def test_nothing_moves_by_itself_for_whoever_asks_for_rest(chromium: Browser, address: str) -> None:
    context = chromium.new_context(locale="en-US", reduced_motion="reduce")
    context.set_default_timeout(60_000)
    visit = Visit(context.new_page(), address).open(f"/{at(DRIFT)}&lang=en")
    drawn(visit, 2)
    longest = """() => Math.max(...[...document.querySelectorAll('*')].map(one => getComputedStyle(one)).flatMap(
      css => [css.transitionDuration, css.animationDuration].flatMap(said => said.split(', ').map(parseFloat))))"""
    assert visit.page.evaluate(longest) <= 0.001
    assert visit.page.evaluate("document.getAnimations().filter(one => one.playState === 'running').length") == 0
    context.close()


def moved(text: str) -> list[str]:
    """What moves in a sheet or a script, beside the rules for whoever asks for rest."""
    rest = re.sub(r"@media \(prefers-reduced-motion[^{]*\{(?:[^{}]|\{[^{}]*\})*\}", "", text)
    return re.findall(r"transition|animation:|animation-|@keyframes|behavior: .smooth|\.animate\(", rest)


def test_no_sheet_of_ours_moves_anything() -> None:
    rest = "@media (prefers-reduced-motion: reduce) {\n  * {\n    transition-duration: 1ms;\n  }\n}\n"
    assert moved(rest) == []
    assert moved(f"{rest}a {{ transition: all 1s }}") == ["transition"]
    for path in (ROOT / "assets").rglob("*.[cj]s*"):
        assert moved(path.read_text("utf-8")) == [], path
