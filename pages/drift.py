"""The drift page: a base and its variants, one statistic over depth, and what it says in words."""

from __future__ import annotations

import streamlit as st

from core.fields import ExperimentError
from pages.ui import controls, link, profile
from pages.ui.language import words
from pages.ui.link import View

t = words()
st.title(t("drift.title"))
st.caption(t("drift.lead"))

for notice in controls.settle():
    st.warning(t(notice.key, **notice.values), icon=":material/link_off:")

base = controls.base(t)
variants = controls.variants(t)
chart = st.container()
shown = controls.shown(t)
view = View(st.session_state["preset"], base, variants, shown)
controls.mirror(view)

pairs, refused = link.experiments(view)
for notice in refused:
    st.warning(t(notice.key, **notice.values), icon=":material/block:")

with chart:
    try:
        profile.compare(controls.named(pairs, t), shown, t)
    except ExperimentError as error:
        st.error(str(error), icon=":material/block:")
