"""The live page: train paired variants as one job, watch their numbers move, and replay it afterwards."""

from __future__ import annotations

import streamlit as st

from pages.ui import controls, explain, link, showing, training
from pages.ui.controls import Controls
from pages.ui.language import words
from pages.ui.link import View
from pages.ui.places import LIVE
from pages.ui.views.training import LIVE_VIEWS

t = words()
desk = Controls(LIVE, t)
notices = [*desk.settle(), *training.adopt(desk)]

st.title(t("live.title"))
for notice in notices:
    st.warning(explain.notice(notice, t), icon=":material/link_off:")

with st.sidebar:
    desk.base()
    changes = desk.variants()
runs = st.container()
looked = LIVE_VIEWS[desk.looked()]
asked, charts = st.container(), st.container()
settings = desk.settings(training.FIRST)

base, wrong = desk.described()
compared, refused = link.compared(View(base=base, variants=changes))
variants = controls.named(compared, t)
with asked:
    shown = desk.shown(looked.asks, variants)

with runs:
    for notice in refused:
        st.warning(explain.notice(notice, t), icon=":material/block:")
    watched = training.panel(variants, wrong, t)
desk.mirror(View(st.session_state["preset"], base, changes, shown, tuple(one.run.id for one in watched)))
with charts:
    showing.show(looked, watched, variants, shown, t)
