"""The sweep page: a grid over one or two fields, each cell a run of its own, coloured by what it came to."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.fields import ExperimentError
from core.sweep import grid
from pages.ui import axes, explain, origin, panels, single, sweep_cell, sweeping
from pages.ui.controls import Controls
from pages.ui.language import words
from pages.ui.link import Variant, View
from pages.ui.places import SWEEP
from pages.ui.views.sweep import sweep_map

ASKS = {"site": ("outcome", "stat", "site", "of"), "head": ("outcome", "measure")}

t = words()
desk = Controls(SWEEP, t)
notices = desk.settle()

st.title(t("sweep.title"))
st.caption(t("sweep.lead"))
for notice in notices:
    st.warning(explain.notice(notice, t), icon=":material/link_off:")

with st.sidebar:
    desk.base()
axes.choose(t)
asked, chart, settings = st.container(), st.container(), desk.settings()
base, wrong = desk.described()
with asked:
    shown = desk.shown(ASKS.get(st.session_state["outcome"], ("outcome",)), [Variant({}, base)])
desk.mirror(View(st.session_state["preset"], base, desk.view.variants, shown))

with chart:
    if wrong:
        for where in (st, settings):
            where.error(explain.refused(wrong, t), icon=":material/block:")
    try:
        found = sweeping.states(grid(base, axes.axes()), shown)
    except ExperimentError as error:
        st.error(explain.refused(error, t), icon=":material/block:")
    else:
        sweeping.panel(found, t)
        panels.panel(sweep_map(found, shown, t), [], t, SWEEP.name, sweep_cell.choose(found, t))
        sweep_cell.card(found, shown, t)
        panels.hand_out(partial(single.swept, found, base, axes.axes(), shown, t), "sweep", t,
                        lambda: origin.of_grid(base, axes.axes(), t))
