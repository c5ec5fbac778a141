"""The script every visit runs: language, title, navigation, then the page.

It stands one level below ``pages/``: only so is a cold deep link such as ``/drift?lang=zh`` right. It knows the list of
pages, not what is on them. A new page is a file in ``pages/``, an entry here and its title in ``assets/text``.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st
from streamlit.navigation.page import Page

from core.service import StoreError
from pages.ui import language
from pages.ui.text import LANGUAGES, Words, escaped

ROOT = Path(__file__).resolve().parents[2]
ICON = str(ROOT / "assets" / "icon.svg")

PAGES: dict[str, str] = {
    "home": "home.title",
    "drift": "drift.title",
    "gradients": "gradients.title",
    "entropy": "entropy.title",
    "live": "live.title",
    "softmax": "softmax.title",
    "batchnorm": "batchnorm.title",
    "sweep": "sweep.title",
    "runs": "runs.title",
}
"""File in ``pages/`` without its ending, also the page's URL → key of its title. The first is the home page.

No icons: a material symbol is an English word to a screen reader, and Streamlit asks a font host for it.
"""


def entries(t: Words) -> list[Page]:
    """Return the navigation in the visitor's language."""
    home = next(iter(PAGES))
    return [
        st.Page(ROOT / "pages" / f"{name}.py", title=t(title), url_path=name, default=name == home)
        for name, title in PAGES.items()
    ]


def main() -> None:
    """Run one visit."""
    t = language.words()
    refused = language.settle(t)
    page = st.navigation(entries(t), position="hidden" if st.context.is_embedded else "sidebar")
    st.set_page_config(page_title=f"{page.title} · Driftscope", page_icon=ICON, layout="wide")
    st.logo(ICON, size="large")
    if not st.context.is_embedded:
        with st.sidebar:
            language.choose(t)
    if refused is not None:
        st.warning(t("language.refused", value=escaped(refused), allowed=", ".join(LANGUAGES)))
    language.arrive(page.url_path)
    try:
        page.run()
    except StoreError as error:
        st.error(t("drift.store", reason=escaped(str(error))), icon=":material/database:")


main()
