"""Where a visit is and what it speaks: the language chosen here, else the URL's ``lang``, else the browser's, or ours.

The file knows Streamlit's session and query; the words themselves are in `pages.ui.text`. The control is not bound with
``bind="query-params"``: Streamlit would write the label (中文) into the URL instead of the code (zh).
"""

from __future__ import annotations

import streamlit as st

from pages.ui.text import LANGUAGES, Words

PARAMETER = "lang"
"""Name in the URL and key of the control."""

HERE, ARRIVED, SAME_PAGE = "language.here", "language.arrived", "language.same_page"


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


def arrive(page: str) -> None:
    """Note which page this run shows in which language, so that a page knows whether it was there a moment ago."""
    now = (page, words().lang)
    st.session_state[ARRIVED] = st.session_state.get(HERE) != now
    st.session_state[SAME_PAGE] = (st.session_state.get(HERE) or now)[0] == page
    st.session_state[HERE] = now


def is_new() -> bool:
    """Return whether the page or its language is another one than in the run before: widgets are filled anew."""
    return bool(st.session_state.get(ARRIVED, True))


def stayed() -> bool:
    """Return whether the run before showed this page too."""
    return bool(st.session_state.get(SAME_PAGE, False))
