"""The shell around two tiny pages: the real shell, words and configuration in a folder of their own."""

import gzip
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import ROOT, Visit, server
from playwright.sync_api import Browser

from pages.ui import stream
from pages.ui.text import keys

pytestmark = pytest.mark.browser

APP = """
import streamlit as st
from pages.ui import stream
app = st.App("pages/ui/shell.py", routes=stream.routes())
"""
NAMES = sorted(path.stem for path in (ROOT / "pages").glob("[a-z]*.py"))
SECTIONS = {"测量": ("drift", "gradients", "entropy", "norms", "sweep"),
            "实验室": ("basics", "softmax", "tensor", "batchnorm", "precision"), "训练": ("live", "runs", "status"),
            "学习": ("lessons", "glossary")}
MENU = ["首页", *(said for section, names in SECTIONS.items()
                for said in (section, *(keys("zh")[f"{name}.title"] for name in names)))]
PAGE = """
import streamlit as st
from pages.ui.language import words

t = words()
st.title(t("{name}.title"))
layers = st.slider("layers", 2, 48, 12, key="layers", bind="query-params")
st.text(f"{{layers}} layers")

@st.fragment
def part():
    count = st.number_input("count", 0, 9, 0)
    st.text(f"{{count}} " + words()("norm.none"))

part()
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("shell")
    for name in ("core", "pages/ui", "assets", ".streamlit"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "pages" / "__init__.py").touch()
    (folder / "app.py").write_text(APP, "utf-8")
    for name in NAMES:
        (folder / "pages" / f"{name}.py").write_text(PAGE.format(name=name), "utf-8")
    with server(Path("app.py"), folder) as running:
        yield running


@pytest.fixture
def visit(chromium: Browser, address: str) -> Iterator[Visit]:
    context = chromium.new_context(locale="en-US")
    opened = Visit(context.new_page(), address)
    yield opened
    assert opened.errors == []
    assert opened.hosts == {address.removeprefix("http://")}
    context.close()


def heading(visit: Visit) -> str:
    return visit.page.get_by_role("heading", level=1).inner_text()


def menu(visit: Visit) -> list[str]:
    """The navigation as a visitor reads it: what stands above, and behind each of its sections."""
    above = [link.inner_text().strip() for link in visit.page.get_by_test_id("stTopNavLink").all()]
    for section in visit.page.get_by_test_id("stTopNavSection").all():
        section.click()
        visit.page.get_by_test_id("stTopNavPopover").wait_for()
        links = visit.page.get_by_test_id("stTopNavDropdownLink").all()
        above += [section.inner_text().strip(), *(link.inner_text().strip() for link in links)]
        visit.page.keyboard.press("Escape")
        visit.page.get_by_test_id("stTopNavPopover").wait_for(state="detached")
    return above


def test_a_cold_deep_link_gives_page_language_and_value(visit: Visit) -> None:
    visit.open("/drift?lang=zh&layers=30")
    assert heading(visit) == "漂移"
    assert menu(visit) == MENU
    assert visit.page.get_by_text("30 layers").is_visible()
    assert visit.page.title() == "漂移 · Driftscope"


def test_the_navigation_keeps_the_language(visit: Visit) -> None:
    visit.open("/drift?lang=zh")
    visit.page.get_by_role("link", name="首页").click()
    visit.page.get_by_role("heading", name="首页").wait_for()
    visit.settle()
    assert visit.page.url == f"{visit.address}/?lang=zh"
    visit.page.get_by_role("button", name="测量").click()
    visit.page.get_by_role("menuitem", name="漂移").click()
    visit.page.get_by_role("heading", name="漂移").wait_for()
    visit.settle()
    assert visit.page.url == f"{visit.address}/drift?lang=zh"


def test_the_language_control_changes_page_menu_and_address(visit: Visit) -> None:
    visit.open("/?lang=en")
    visit.page.get_by_text("中文", exact=True).click()
    visit.page.get_by_role("heading", name="首页").wait_for()
    visit.settle()
    assert menu(visit) == MENU
    assert visit.page.url.endswith("?lang=zh")
    visit.open(visit.page.url.removeprefix(visit.address))
    assert heading(visit) == "首页"


def test_a_fragment_speaks_the_language_of_the_visit(visit: Visit) -> None:
    visit.open("/drift?lang=zh")
    field = visit.page.get_by_label("count", exact=True)
    field.fill("3")
    field.press("Enter")
    visit.page.get_by_text("3 无归一化").wait_for()


GUESSES = {"zh-CN": "首页", "zh-TW": "首页", "en-GB": "Home", "fr-FR": "Home"}


@pytest.mark.parametrize("locale", GUESSES)
def test_the_first_guess_is_the_language_of_the_browser(chromium: Browser, address: str, locale: str) -> None:
    context = chromium.new_context(locale=locale)
    visit = Visit(context.new_page(), address).open()
    assert heading(visit) == GUESSES[locale]
    assert visit.errors == []
    context.close()


def test_a_language_that_does_not_exist_is_replaced_with_a_notice(visit: Visit) -> None:
    visit.open("/drift?lang=xx")
    assert heading(visit) == "Drift"
    assert "“xx”" in visit.page.get_by_test_id("stAlert").inner_text()
    assert visit.page.url.endswith("lang=en")


def test_an_embedded_page_has_no_navigation_and_keeps_its_language(visit: Visit) -> None:
    visit.open("/drift?embed=true&lang=zh")
    assert heading(visit) == "漂移"
    assert menu(visit) == []
    assert not visit.page.get_by_text("English", exact=True).is_visible()


def test_plotly_is_served_compressed_and_may_be_kept_for_ever(address: str) -> None:
    ask = urllib.request.Request(f"{address}/{stream.PLOTLY}", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(ask) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert answer.headers["Content-Type"].startswith("text/javascript")
        assert "immutable" in answer.headers["Cache-Control"]
        tag, packed = answer.headers["ETag"], answer.read()
    assert len(packed) < 2_000_000
    with urllib.request.urlopen(f"{address}/{stream.PLOTLY}") as answer:
        assert answer.read() == gzip.decompress(packed)
    ask.add_header("If-None-Match", tag)
    with pytest.raises(urllib.error.HTTPError, match="304"):
        urllib.request.urlopen(ask)
