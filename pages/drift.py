"""The drift page: a base and its variants, looked at in one of many ways, and what that says in words."""

from __future__ import annotations

import streamlit as st

from pages.ui import controls, explain, link, panels, stage
from pages.ui.controls import Controls
from pages.ui.language import words
from pages.ui.link import View
from pages.ui.places import DRIFT
from pages.ui.views import VIEWS

t = words()
desk = Controls(DRIFT, t)
notices = desk.settle()

st.title(t("drift.title"))
for notice in notices:
    st.warning(explain.notice(notice, t), icon=":material/link_off:")

with st.sidebar:
    desk.base()
    changes = desk.variants()
looked = VIEWS[desk.looked()]
asked = st.container()
chart = st.container()
settings = desk.settings()

base, wrong = desk.described()
compared, refused = link.compared(View(base=base, variants=changes))
variants = controls.named(compared, t)
with asked:
    shown = desk.shown(looked.asks, variants)
desk.mirror(View(st.session_state["preset"], base, changes, shown))

with chart:
    if wrong:
        for place in (st, settings):
            place.error(explain.refused(wrong, t), icon=":material/block:")
    for notice in refused:
        st.warning(explain.notice(notice, t), icon=":material/block:")
    found = stage.measured(variants, t, "drift")
    panels.view(looked, found, shown, t)
