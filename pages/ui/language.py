"""Which language this visit speaks: the URL's ``lang``, else the browser's, else English.

The file knows Streamlit's session and query; the words themselves are in `pages.ui.text`.
"""

from __future__ import annotations

import streamlit as st

from pages.ui.text import LANGUAGES, Words

PARAMETER = "lang"


def words() -> Words:
    """Return the words of this visit; safe in pages, callbacks and fragments alike."""
    chosen = st.session_state.get(PARAMETER) or st.query_params.get(PARAMETER)
    return Words(chosen if chosen in LANGUAGES else _guess())


def choose(t: Words) -> None:
    """Draw the language control, bound to the URL."""
    st.segmented_control(
        t("language.label"),
        list(LANGUAGES),
        default=_guess(),
        format_func=LANGUAGES.__getitem__,
        key=PARAMETER,
        bind="query-params",
        required=True,
    )


def refused() -> str | None:
    """Return the value of ``lang`` in the URL when it is no language; call it before `choose`, which drops it."""
    asked = st.query_params.get(PARAMETER)
    return None if asked is None or asked in LANGUAGES else asked


def _guess() -> str:
    """Take the browser's language if we have it."""
    code = (st.context.locale or "").split("-")[0].lower()
    return code if code in LANGUAGES else next(iter(LANGUAGES))
