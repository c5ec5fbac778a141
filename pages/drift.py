"""The drift page: a base and its variants, one statistic over depth, and what it says in words."""

from __future__ import annotations

import streamlit as st

from core.fields import ExperimentError
from pages.ui import controls, link, profile
from pages.ui.language import words
from pages.ui.link import View

t = words()
notices = controls.settle()

st.title(t("drift.title"))
for notice in notices:
    st.warning(t(notice.key, **notice.values), icon=":material/link_off:")

with st.sidebar:
    controls.base(t)
    variants = controls.variants(t)
shown = controls.shown(t)
chart = st.container()
controls.settings(t)

try:
    view = View(st.session_state["preset"], controls.described(), variants, shown)
    controls.mirror(view)
    pairs, refused = link.compared(view)
    with chart:
        for notice in refused:
            st.warning(t(notice.key, **notice.values), icon=":material/block:")
        profile.compare(controls.named(pairs, t), shown, t)
except ExperimentError as error:
    chart.error(str(error), icon=":material/block:")
