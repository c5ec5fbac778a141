"""The home page: what drift is, one live figure already drawn, and the ways in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import streamlit as st

from pages.ui import controls, link, panels, stage
from pages.ui.language import PARAMETER, words
from pages.ui.link import View
from pages.ui.places import DRIFT
from pages.ui.views import VIEWS

PAGE = str(Path(__file__).with_name("drift.py"))
WAYS = ("no_norm", "post_layernorm", "sandwich_layernorm", "exploding", "vanishing", "float16_overflow")
"""Presets that the page leads to."""

t = words()
st.title("Driftscope")
st.markdown(t("home.lead"))

st.header(t("home.question"))
st.caption(t("home.figure_lead"))
found = stage.measured(controls.named(link.compared(View())[0], t), t, "home")
for picture in VIEWS["profile"].make(found.finished, DRIFT.defaults, t) if found.finished else []:
    panels.draw(replace(picture, height=430), "home")
reading, story = st.columns(2, gap="large")
reading.markdown(t("home.figure_read"))
reading.page_link(PAGE, label=t("home.open"), icon=":material/tune:",
                  query_params={"view": "profile", PARAMETER: t.lang})
story.markdown(t("home.what_drift"))

st.header(t("home.ways"))
columns = st.columns(3)
for index, name in enumerate(WAYS):
    with columns[index % 3].container(border=True, height="stretch"):
        st.page_link(PAGE, label=f"**{t(f'home.way_{name}')}**", icon=":material/arrow_forward:",
                     query_params={"preset": name, "view": "profile", PARAMETER: t.lang})
        st.markdown(t(f"home.way_{name}_why"))
