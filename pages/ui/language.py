"""Which language this visit speaks: the one chosen here, else the URL's ``lang``, else the browser's, else English.

The file knows Streamlit's session and query; the words themselves are in `pages.ui.text`. The control is not bound with
``bind="query-params"``: Streamlit would write the label (中文) into the URL instead of the code (zh).
"""

from __future__ import annotations

import streamlit as st

from pages.ui.text import LANGUAGES, Words

PARAMETER = "lang"
"""Name in the URL and key of the control."""


def words() -> Words:
    """Return the words of this visit; safe in pages, callbacks and fragments alike."""
    chosen = st.session_state.get(PARAMETER) or st.query_params.get(PARAMETER)
    return Words(chosen if chosen in LANGUAGES else _guess())


def choose(t: Words) -> None:
    """Draw the language control."""
    st.segmented_control(
        t("language.label"),
        list(LANGUAGES),
        default=None if PARAMETER in st.session_state else t.lang,
        format_func=LANGUAGES.__getitem__,
        key=PARAMETER,
        required=True,
        label_visibility="collapsed",
    )


def settle(t: Words) -> str | None:
    """Write the language into the URL, on every page, and return what stood there if it was no language of ours."""
    asked = st.query_params.get(PARAMETER)
    if asked != t.lang:
        st.query_params[PARAMETER] = t.lang
    return None if asked is None or asked in LANGUAGES else asked


def _guess() -> str:
    """Take the browser's language if we have it."""
    code = (st.context.locale or "").split("-")[0].lower()
    return code if code in LANGUAGES else next(iter(LANGUAGES))
