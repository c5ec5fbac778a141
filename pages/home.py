"""The home page: what drift is, one live figure already drawn, and the ways in."""

from __future__ import annotations

import streamlit as st

from core.fields import ExperimentError
from pages.ui import cache, controls, link, profile
from pages.ui.language import PARAMETER, words
from pages.ui.link import SHOWN_DEFAULTS, View

WAYS = ("no_norm", "post_layernorm", "sandwich_layernorm", "exploding", "vanishing", "float16_overflow")
"""Presets that the page leads to."""

t = words()
st.title("Driftscope")
st.markdown(t("home.lead"))

st.header(t("home.question"))
story, figure = st.columns([1, 2], gap="large")
with story:
    st.markdown(t("home.what_drift"))
    st.markdown(t("home.figure_read"))
    st.page_link("pages/drift.py", label=t("home.open"), icon=":material/tune:", query_params={PARAMETER: t.lang})
with figure:
    st.caption(t("home.figure_lead"))
    try:
        measured = cache.measure(controls.named(link.experiments(View())[0], t))
        profile.watch(measured, t)
        profile.draw(measured, SHOWN_DEFAULTS, t, key="home.profile", height=460)
    except ExperimentError as error:
        st.error(str(error), icon=":material/block:")

st.header(t("home.ways"))
columns = st.columns(3)
for index, name in enumerate(WAYS):
    with columns[index % 3].container(border=True, height="stretch"):
        st.page_link("pages/drift.py", label=f"**{t(f'home.way_{name}')}**", icon=":material/arrow_forward:",
                     query_params={"preset": name, PARAMETER: t.lang})
        st.markdown(t(f"home.way_{name}_why"))
