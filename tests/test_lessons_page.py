"""The lessons as a visitor and a lecturer meet them, in a real Chromium on the real engine: all of them, step by step.

The first test computes what the lessons show, as a server is prepared for a lecture; the others find it in the store.
"""

import os
import re
import subprocess
import sys
from itertools import cycle

import pytest
from browser import ROOT, Visit, server
from playwright.sync_api import expect

from pages.ui import lesson_page, lessons
from pages.ui.slides import slides
from pages.ui.text import LANGUAGES, Words

NAMES = lessons.names()
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A server whose store holds what the lessons show."""
    url = f"sqlite:///{tmp_path_factory.mktemp('lessons') / 'store.db'}"
    done = subprocess.run([sys.executable, "-m", "pages.ui.ahead"], cwd=ROOT, capture_output=True, text=True,
                          env=os.environ | {"DRIFTSCOPE_STORE": url}, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == list(NAMES)
    with server(ROOT / "app.py", DRIFTSCOPE_STORE=url) as running:
        yield running


OVERLAPPING = """() => {
  const words = [...document.querySelectorAll(".driftscope-chart .main-svg text")]
    .filter((one) => one.textContent.trim() && !one.closest(".hoverlayer"))
    .map((one) => [one.textContent, one.getBoundingClientRect()]).filter(([, box]) => box.width > 1);
  const shared = (a, b, from, to) => Math.min(a[to], b[to]) - Math.max(a[from], b[from]);
  return words.flatMap(([one, a], place) => words.slice(place + 1).filter(([, b]) => shared(a, b, "left", "right") > 3
    && shared(a, b, "top", "bottom") > 0.45 * Math.min(a.height, b.height)).map(([other]) => `${one} / ${other}`));
}"""
"""The words of a chart that lie on others."""

CUT_OFF = """() => [...document.querySelectorAll(".katex-display")].filter((one) => one.scrollWidth > one.clientWidth)
  .map((one) => one.textContent)"""
"""The formulas that are wider than their slide."""

HOLDS_ITS_WORDS = """(one) => {
  const words = document.createRange();
  words.selectNodeContents(one);
  return words.getBoundingClientRect().right <= one.getBoundingClientRect().right;
}"""


def plain(heading):
    """The beginning of a heading as the page says it, as far as there is no formula."""
    return re.compile(re.escape(re.split(r"[$`]", heading)[0].strip()))


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_is_a_question_then_a_prediction_and_only_then_all_its_figures(visit: Visit, name, lang,
                                                                                          tmp_path, open_file):
    one, t = lessons.lesson(name, lang), Words(lang)
    predict = next(section for section in one.sections if section.options)
    visit.open(f"/lessons?lang={lang}&lesson={name}")
    expect(visit.page.get_by_role("heading", name=plain(predict.heading))).to_be_visible()
    hidden = next(section for section in one.sections if section.kind == "measure")
    expect(visit.page.get_by_role("heading", name=plain(hidden.heading))).to_have_count(0)
    assert visit.page.locator(".driftscope-chart").count() == sum(
        len(section.figures) for section in one.sections if section.kind in ("question", "predict"))
    chosen = 0 if one.answer else 1
    visit.page.locator(f".st-key-lesson-guess-{chosen + 1} button").click()
    expect(visit.page.get_by_text(t("lessons.right"))).to_be_visible()
    expect(visit.page.get_by_text(t("lessons.mine"))).to_be_visible()
    assert f"guess={chosen + 1}" in visit.page.url
    expect(visit.page.get_by_role("heading", name=plain(one.sections[-1].heading))).to_be_visible()
    visit.settle()
    wanted = {(figure.state, figure.picture) for section in one.sections for figure in section.figures}
    for _, picture in wanted:
        assert t("lessons.no_picture", name=picture) not in visit.page.inner_text("body")
    assert visit.page.locator("[data-testid=stException], [data-testid=stAlertContentError]").count() == 0
    drawn = visit.page.locator(".driftscope-chart .main-svg, [data-testid=stHtml] table, [data-testid=stTable], "
                               "[data-testid=stMarkdown] table")
    expect(drawn.nth(len(wanted) - 1)).to_be_attached()
    if (lang == "zh") is (one.number % 2 == 0):  # each lesson in one language
        handed_out(visit, one, t, tmp_path / "lesson.html", open_file)


def handed_out(visit, one, t, path, open_file):
    """The hand-out of a lesson that is open has all it shows, opens without a network and says how to redo it."""
    with visit.page.expect_download() as download:
        visit.page.get_by_role("button", name=t("handout.button")).click()
    download.value.save_as(path)
    assert download.value.suggested_filename == f"driftscope-lesson-{one.name}.html"
    assert path.stat().st_size < 6 * 2**20
    page = open_file(path).page
    figures = [figure for section in one.sections for figure in section.figures]
    text = page.inner_text("body")
    assert [t("handout.figure", number=place + 1) in text for place in range(len(figures))] == [True] * len(figures)
    assert page.locator(".driftscope-chart").count() == visit.page.locator(".driftscope-chart").count()
    assert all(section.heading.split("$")[0].split("`")[0].strip() in text for section in one.sections)
    assert "$" not in page.locator("main section").first.inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    again = page.get_by_role("link", name=t("handout.open"), include_hidden=True)
    addresses = [link.get_attribute("href") for link in again.all()]
    assert len(addresses) == len(figures)
    assert all(address.startswith(visit.address) and "lang=" in address for address in addresses)


@pytest.mark.parametrize(("name", "lang"), list(zip(NAMES, cycle(LANGUAGES), strict=False)))
def test_a_lecturer_steps_through_a_lesson_with_a_clicker(visit: Visit, name, lang):
    one = lessons.lesson(name, lang)
    visit.page.set_viewport_size({"width": 1280, "height": 720})
    visit.open(f"/present?lang={lang}&lesson={name}")
    made = slides(one)
    for place, slide in enumerate(made):
        expect(visit.page.locator(".driftscope-counter")).to_have_text(f"{place + 1} / {len(made)}")
        expect(visit.page.get_by_role("heading", level=1)).to_have_text(plain(slide.heading))
        visit.settle()
        visit.page.wait_for_function("document.querySelector('[data-testid=stMain]').scrollHeight <= innerHeight + 1")
        if slide.figure is not None:
            expect(visit.page.locator(".driftscope-chart .main-svg, table").first).to_be_attached()
            visit.page.wait_for_function(f"({OVERLAPPING})().length === 0")
        assert visit.page.evaluate(CUT_OFF) == []
        if place + 1 < len(made):
            visit.page.keyboard.press("PageDown")
    assert visit.page.url.endswith(f"slide={len(made) - 1}")
    visit.page.keyboard.press("PageUp")
    expect(visit.page.locator(".driftscope-counter")).to_have_text(f"{len(made) - 1} / {len(made)}")


def test_keys_pressed_in_a_row_all_count(visit: Visit):
    visit.open(f"/present?lang=en&lesson={NAMES[0]}")
    for _ in range(3):
        visit.page.keyboard.press("ArrowRight")
    expect(visit.page.locator(".driftscope-counter")).to_have_text(re.compile("^4 / "))
    visit.page.wait_for_function("new URL(location).searchParams.get('slide') === '3'")
    visit.settle()
    expect(visit.page.locator(".driftscope-counter")).to_have_text(re.compile("^4 / "))


def test_the_notes_stand_in_a_second_window_that_moves_along(visit: Visit):
    one = lessons.lesson(NAMES[0], "en")
    visit.open(f"/present?lang=en&lesson={NAMES[0]}")
    with visit.page.context.expect_page() as opened:
        visit.page.keyboard.press("n")
    notes = opened.value
    expect(notes.locator(".driftscope-clock")).to_have_text(re.compile(r"\d\d:\d\d"))
    visit.page.keyboard.press("ArrowRight")
    expect(notes.get_by_role("heading", level=1)).to_have_text(one.sections[0].heading)
    notes.keyboard.press("ArrowRight")
    expect(visit.page.get_by_role("heading", level=1)).to_have_text(one.sections[1].heading)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_talk_of_several_lessons_is_given_with_the_clicker_alone(visit: Visit, lang):
    chosen, t = (NAMES[3], NAMES[0]), Words(lang)
    visit.open(f"/lessons?lang={lang}&talk={'.'.join(chosen)}")
    minutes = sum(lessons.lesson(name, lang).minutes for name in chosen)
    visit.page.get_by_role("link", name=t("lessons.present_talk", count=2, minutes=f"{minutes:.0f}")).click()
    pages = [(name, len(slides(lessons.lesson(name, lang)))) for name in sorted(chosen, key=NAMES.index)]
    counter, part = visit.page.locator(".driftscope-counter"), visit.page.locator(".driftscope-part")
    visit.page.evaluate("window.untouched = true")
    with visit.page.context.expect_page() as opened:
        expect(part).to_have_text(t("present.part", number=1, count=2))
        visit.page.keyboard.press("n")
    notes = opened.value
    for number, (name, count) in enumerate(pages):
        for place in range(count):
            expect(counter).to_have_text(f"{place + 1} / {count}")
            expect(part).to_have_text(t("present.part", number=number + 1, count=2))
            visit.page.keyboard.press("PageDown")
        assert f"lesson={name}" in visit.page.url or number == 0
    expect(counter).to_have_text(f"{pages[1][1]} / {pages[1][1]}")  # nothing follows
    for _ in range(pages[1][1]):
        visit.page.keyboard.press("PageUp")
    expect(counter).to_have_text(f"{pages[0][1]} / {pages[0][1]}")
    expect(notes.locator(".driftscope-part")).to_have_text(t("present.part", number=1, count=2))
    expect(notes.locator(".driftscope-counter")).to_have_text(f"{pages[0][1]} / {pages[0][1]}")
    assert visit.page.evaluate("window.untouched")  # no other document, which would end the full screen
    assert f"lesson={pages[0][0]}" in visit.page.url and f"slide={pages[0][1] - 1}" in visit.page.url


def test_the_talk_that_is_proposed_takes_forty_minutes():
    assert sum(lessons.lesson(name, "en").minutes for name in lesson_page.TALK) == 40


def test_the_lessons_of_a_talk_are_chosen_on_the_list_and_kept_in_the_address(visit: Visit):
    visit.open("/lessons?lang=en")
    visit.page.get_by_text("Give a talk").click()
    visit.page.get_by_role("button", name=f"1 · {lessons.lesson(NAMES[0], 'en').title}").click()
    expect(visit.page.get_by_role("link", name="Present 9 lessons, 44 minutes")).to_be_visible()
    assert f"talk={NAMES[0]}." in visit.page.url


def test_a_talk_from_which_the_last_lesson_is_taken_stays_empty(visit: Visit):
    visit.open(f"/lessons?lang=en&talk={NAMES[0]}")
    present = visit.page.get_by_role("link", name=re.compile("^Present "))
    expect(present).to_be_visible()
    visit.page.get_by_role("button", name=f"1 · {lessons.lesson(NAMES[0], 'en').title}").click()
    expect(present).to_have_count(0)
    visit.page.wait_for_url("**talk=-**")
    visit.page.reload()
    visit.settle()
    expect(visit.page.get_by_role("button", name=f"2 · {lessons.lesson(NAMES[1], 'en').title}")).to_be_visible()
    expect(present).to_have_count(0)


def test_a_dial_of_a_lesson_stands_in_the_address_and_changes_its_figure(visit: Visit):
    name, dial = next((name, lessons.lesson(name, "en").dials[0]) for name in NAMES if lessons.lesson(name, "en").dials)
    visit.open(f"/lessons?lang=en&lesson={name}&guess=0")
    before = visit.page.url
    thumb = visit.page.get_by_role("slider").first
    thumb.focus()
    visit.page.keyboard.press("ArrowRight" if dial.at + 1 < len(dial.values) else "ArrowLeft")
    visit.page.wait_for_function("before => location.href !== before", arg=before)
    assert f"dials={dial.state}." in visit.page.url


def test_a_clicker_turns_pages_again_after_a_dial_was_turned(visit: Visit):
    one = lessons.lesson("why_it_drifts", "en")
    place = next(place for place, slide in enumerate(slides(one)) if slide.figure and one.dial(slide.figure.state))
    visit.open(f"/present?lang=en&lesson={one.name}&slide={place}")
    counter = visit.page.locator(".driftscope-counter")
    rail = visit.page.get_by_test_id("stSlider").get_by_role("group").locator("> div").bounding_box()
    visit.page.mouse.click(rail["x"] + rail["width"] - 1, rail["y"] + rail["height"] / 2)
    visit.page.wait_for_function("location.search.includes('dials=')")
    visit.settle()
    turned = visit.page.url
    visit.page.keyboard.press("PageDown")
    expect(counter).to_have_text(re.compile(f"^{place + 2} / "))
    visit.page.keyboard.press("PageUp")
    expect(counter).to_have_text(re.compile(f"^{place + 1} / "))
    visit.settle()
    visit.page.get_by_role("slider").first.focus()
    visit.page.keyboard.press("ArrowLeft")
    visit.page.wait_for_function("turned => location.href !== turned", arg=turned)
    expect(counter).to_have_text(re.compile(f"^{place + 1} / "))
    visit.page.keyboard.press("PageDown")
    expect(counter).to_have_text(re.compile(f"^{place + 2} / "))


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_list_leads_to_every_lesson(visit: Visit, lang):
    visit.open(f"/lessons?lang={lang}")
    for name in NAMES:
        one = lessons.lesson(name, lang)
        link = visit.page.get_by_role("link", name=f"{one.number} · {one.title}")
        expect(link).to_be_visible()
        assert link.evaluate(HOLDS_ITS_WORDS)


def test_a_lesson_that_there_is_none_of_is_said_above_the_list(visit: Visit):
    visit.open("/lessons?lang=en&lesson=hello")
    expect(visit.page.get_by_text("hello").first).to_be_visible()
    expect(visit.page.get_by_role("link", name=lessons.lesson(NAMES[0], "en").title)).to_be_visible()
