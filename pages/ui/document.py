"""The document around every page: it says its language to the browser, and mends what Streamlit leaves too faint.

It knows Streamlit and the visit's words; it does not know pages. What is mended is in ``assets/document.css``.
"""

from __future__ import annotations

import streamlit as st

from pages.ui.component import ASSETS
from pages.ui.text import Words

_mount = st.components.v2.component(
    "driftscope_document",
    js=(ASSETS / "document.js").read_text("utf-8"),
    css=(ASSETS / "document.css").read_text("utf-8"),
    isolate_styles=False,
)


def entitled(words: str) -> str:
    """Return the title of a window that shows what is called so."""
    return f"{words} · Driftscope"


def entitle(words: str) -> None:
    """Call the window after what it shows, where that says more than the page's own title."""
    st.set_page_config(page_title=entitled(words))


def speak(t: Words) -> None:
    """Put the language of `t` and the theme's colours on the document; nothing is drawn."""
    _mount(key="document", data={"lang": t.lang})
