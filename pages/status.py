"""The page that says how the server is; it renews itself while it is open."""

from __future__ import annotations

import streamlit as st

from core import service
from pages.ui import status_panels as panels
from pages.ui.language import words
from pages.ui.text import Words, escaped

EVERY_S = 3
MOST = 50
"""So many runs of the queue are listed."""


@st.fragment(run_every=EVERY_S)
def body(t: Words) -> None:
    """Draw everything as it is now; a store that cannot be read is said, and tried again."""
    try:
        health, runs = service.health(), panels.told(service.queue(MOST))
        panels.engine(health, t)
        panels.workers(health, runs, t)
        panels.queue(health, runs, t)
        panels.store(health, t)
        panels.versions(health, t)
    except service.StoreError as error:
        st.error(t("drift.store", reason=escaped(str(error))), icon=":material/database:")


t = words()
st.title(t("status.title"))
st.markdown(t("status.lead", seconds=EVERY_S))
body(t)
panels.limits(t)
