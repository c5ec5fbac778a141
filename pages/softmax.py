"""The softmax lab: one row of scores that the visitor shapes, and what a softmax makes of it."""

from __future__ import annotations

from functools import partial

import streamlit as st

from pages.ui import explain, origin, panels, single, softmax_controls
from pages.ui.language import words
from pages.ui.views import softmax

t = words()
notices = softmax_controls.settle()

st.title(t("softmax.title"))
st.markdown(t("softmax.lead"))
for notice in notices:
    st.warning(explain.notice(notice, t), icon=":material/link_off:")
softmax_controls.presets(t)
with st.sidebar:
    asked = softmax_controls.ask(t)
softmax_controls.mirror(asked)

row = asked.row()
with st.container(horizontal=True):
    for name, value in softmax.measures(row).items():
        st.metric(t(f"softmax.measure_{name}"), explain.number(value), help=t(f"softmax.measure_{name}_help"),
                  border=True, width="content")
icon = ":red[:material/error:]" if row.kind == "saturated" else ":green[:material/check_circle:]"
st.markdown(f"{icon} **{softmax.verdict(row, t)}**")
for one in softmax.told(asked, row, t):
    st.markdown(one.said)
    panels.panel(one.picture, [], t, "softmax")
panels.hand_out(partial(single.softmax_row, asked, t), "softmax", t, lambda: origin.of_code(asked.program(), t))
