"""The norm bench: norms, placements, inits and residual scalings of one base, overlaid, apart, ranked, and costed."""

from __future__ import annotations

import streamlit as st

from core.fields import ExperimentError
from pages.ui import bench, bench_views, explain
from pages.ui.controls import Controls
from pages.ui.language import words
from pages.ui.link import Variant, View
from pages.ui.places import NORM_BENCH

t = words()
desk = Controls(NORM_BENCH, t)
notices = desk.settle()

st.title(t("norms.title"))
for notice in notices:
    st.warning(explain.notice(notice, t), icon=":material/link_off:")
bench_views.questions(desk, t)

with st.sidebar:
    desk.base()
bench.choose(t)
looked = bench_views.VIEWS[desk.looked()]
desk.at_hand(NORM_BENCH.at_hand)
asked, chart, settings = st.container(), st.container(), desk.settings(NORM_BENCH.at_hand)
base, wrong = desk.described()
with asked:
    shown = desk.shown(looked.asks, [Variant({}, base)])
desk.mirror(View(st.session_state["preset"], base, desk.view.variants, shown))

with chart:
    if wrong:
        for where in (st, settings):
            where.error(explain.refused(wrong, t), icon=":material/block:")
    try:
        found = bench.found(bench.asked(base, shown), shown, t, NORM_BENCH.name)
    except ExperimentError as error:
        st.error(explain.refused(error, t), icon=":material/block:")
    else:
        if looked.costs:
            found = bench.with_costs(found, base, t, NORM_BENCH.name)
        bench_views.draw(looked, found, shown, t)
