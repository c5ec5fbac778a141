"""Brings the place where a visitor acts next into sight, wherever the page was scrolled to.

It knows Streamlit and the key of one container; what stands in it is up to the page.
"""

from __future__ import annotations

import secrets

import streamlit as st

PLACE = "sight"
"""Key of the container that is brought into sight."""

WANTED = "sight.wanted"

SCRIPT = """<script>
if (globalThis.driftscopeSight !== "{token}") {{
  globalThis.driftscopeSight = "{token}";
  document.querySelector(".st-key-{place}")?.scrollIntoView({{ block: "center" }});
}}
</script>"""
"""Each wish is met once: the browser runs the script again whenever its element comes back."""


def want() -> None:
    """Wish for the place to be in sight when the page is drawn next."""
    st.session_state[WANTED] = secrets.token_hex(8)


def bring() -> None:
    """Scroll the place into sight if that was wished for; to be called after it was drawn."""
    if token := st.session_state.get(WANTED):
        st.html(SCRIPT.format(token=token, place=PLACE), unsafe_allow_javascript=True)
