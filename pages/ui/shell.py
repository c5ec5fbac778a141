"""The script every visit runs: language, title, navigation, then the page.

It stands one level below ``pages/``: only so is a cold deep link such as ``/drift?lang=zh`` right. It knows the list of
pages, not what is on them. A new page is a file in ``pages/``, an entry here and its title in ``assets/text``.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st
from streamlit.navigation.page import Page

from pages.ui import language
from pages.ui.text import LANGUAGES, Words

ROOT = Path(__file__).resolve().parents[2]
ICON = str(ROOT / "assets" / "icon.svg")

PAGES: dict[str, tuple[str, str]] = {
    "home": (":material/home:", "home.title"),
    "drift": (":material/show_chart:", "drift.title"),
}
"""File in ``pages/`` without its ending, which is also the page's URL → icon and key of the title. The first is home."""


def entries(t: Words) -> list[Page]:
    """Return the navigation in the visitor's language."""
    return [
        st.Page(ROOT / "pages" / f"{name}.py", title=t(title), icon=icon, url_path=name, default=name == next(iter(PAGES)))
        for name, (icon, title) in PAGES.items()
    ]


def main() -> None:
    """Run one visit."""
    t = language.words()
    refused = language.refused()
    page = st.navigation(entries(t), position="hidden" if st.context.is_embedded else "sidebar")
    st.set_page_config(page_title=f"{page.title} · Driftscope", page_icon=ICON, layout="wide")
    if not st.context.is_embedded:
        with st.sidebar:
            language.choose(t)
    if refused is not None:
        st.warning(t("language.refused", value=refused, allowed=", ".join(LANGUAGES)))
    page.run()


main()
