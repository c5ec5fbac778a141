"""The script every visit runs: language, title, navigation, then the page.

It stands one level below ``pages/``: only so is a cold deep link such as ``/drift?lang=zh`` right. It knows the list of
pages, not what is on them. A new page is a file in ``pages/``, an entry here and its title in ``assets/text``.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st
from streamlit.navigation.page import Page

from core import service
from core.service import StoreError
from pages.ui import cache, document, language
from pages.ui.text import LANGUAGES, Words, escaped

ROOT = Path(__file__).resolve().parents[2]
ICON = str(ROOT / "assets" / "icon.svg")

PAGES: dict[str, tuple[str, ...]] = {
    "": ("home",),
    "measure": ("drift", "gradients", "entropy", "norms", "sweep"),
    "labs": ("basics", "softmax", "tensor", "batchnorm", "precision"),
    "train": ("live", "runs", "status"),
    "learn": ("lessons", "glossary", "present"),
}
"""Section of the navigation, in words ``nav.*`` → files in ``pages/`` without their ending, also the pages' URLs.

The first is the home page. A page's title is ``<page>.title``. No icons: a material symbol is an English word to a
screen reader, and Streamlit asks a font host for it.
"""


AGAIN_S = 3.0
"""How often a store that does not answer is asked again."""

HIDDEN = frozenset({"present"})
"""Pages that the navigation does not name: one comes to them from another."""


def entries(t: Words) -> dict[str, list[Page]]:
    """Return the navigation in the visitor's language: the pages of each section."""
    return {t(f"nav.{section}") if section else "": [_page(name, t) for name in names]
            for section, names in PAGES.items()}


def _page(name: str, t: Words) -> Page:
    return st.Page(ROOT / "pages" / f"{name}.py", title=t(f"{name}.title"), url_path=name, default=name == PAGES[""][0],
                   visibility="hidden" if name in HIDDEN else "visible")


def main() -> None:
    """Run one visit."""
    t = language.words()
    refused = language.settle(t)
    page = st.navigation(entries(t), position="hidden" if st.context.is_embedded else "top")
    st.set_page_config(page_title=document.entitled(page.title), page_icon=ICON, layout="wide")
    st.logo(ICON, size="large")
    document.speak(t)
    if not st.context.is_embedded:
        with st.sidebar:
            language.choose(t)
    if refused is not None:
        st.warning(t("language.refused", value=escaped(refused), allowed=", ".join(LANGUAGES)))
    language.arrive(page.url_path)
    try:
        cache.arrive(page.url_path)
        page.run()
    except StoreError as error:
        st.error(t("drift.store", reason=escaped(str(error))), icon=":material/database:")
        if not _store_answers():
            st.caption(t("drift.store_again"))
            _go_on()


def _store_answers() -> bool:
    try:
        service.device()
    except StoreError:
        return False
    return True


@st.fragment(run_every=AGAIN_S)
def _go_on() -> None:
    """Draw the page anew once the store answers again."""
    if _store_answers():
        st.rerun()


main()
