"""The drift page: a base and its variants, one statistic over depth, and what it says in words."""

from __future__ import annotations

import streamlit as st

from pages.ui import controls, explain, link, profile
from pages.ui.language import words
from pages.ui.link import View

t = words()
notices = controls.settle()

st.title(t("drift.title"))
for notice in notices:
    st.warning(explain.notice(notice, t), icon=":material/link_off:")

with st.sidebar:
    controls.base(t)
    variants = controls.variants(t)
shown = controls.shown(t)
chart = st.container()
settings = controls.settings(t)

base, wrong = controls.described()
view = View(st.session_state["preset"], base, variants, shown)
controls.mirror(view)
compared, refused = link.compared(view)

with chart:
    if wrong:
        for place in (st, settings):
            place.error(explain.refused(wrong, t), icon=":material/block:")
    for notice in refused:
        st.warning(explain.notice(notice, t), icon=":material/block:")
    profile.compare(controls.named(compared, t), shown, t)
