"""The home page: what drift is, one live figure already drawn, and the ways in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import streamlit as st

from pages.ui import controls, link, panels, stage
from pages.ui.language import PARAMETER, words
from pages.ui.link import View
from pages.ui.places import DRIFT, LIVE
from pages.ui.views import VIEWS, onward

DRIFT_PAGE = str(Path(__file__).with_name("drift.py"))
WAYS = ("no_norm", "post_layernorm", "sandwich_layernorm", "exploding", "vanishing", "float16_overflow")
"""Presets that the page leads to."""

BLOW_UP = {"model.n_layers": 6, "model.d_model": 64, "protocol.steps": 60, "protocol.optimizer": "sgd",
           "protocol.lr": 1.0}
"""What makes a training meet a value that is not finite within two dozen updates; a tenth of the rate learns."""

TRAININGS = {"norms": View.of(LIVE),
             "blow_up": replace(View.of(LIVE), base=LIVE.origin("pre_layernorm").with_values(BLOW_UP),
                                variants=({"model.norm": "rmsnorm"},))}
"""Trainings that the page leads to."""

CLOSER: dict[str, dict[str, str]] = {
    "norms": {}, "batchnorm": {}, "precision": {"preset": "float16_overflow"}, "gradients": {"preset": "no_norm"},
    "entropy": {"preset": "no_norm", "view": "causes"}, "softmax": {}, "tensor": {}}
"""Pages that look closer → the state that they are opened in."""

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
reading.page_link(DRIFT_PAGE, label=t("home.open"), icon=":material/tune:",
                  query_params={"view": "profile", PARAMETER: t.lang})
story.markdown(t("home.what_drift"))
onward.way("lessons", {}, t("home.lessons"), t)

st.header(t("home.ways"))
columns = st.columns(3)
for index, name in enumerate(WAYS):
    with columns[index % 3].container(border=True, height="stretch"):
        onward.way("drift", {"preset": name, "view": "profile"}, t(f"home.way_{name}"), t)
        st.markdown(t(f"home.way_{name}_why"))

st.header(t("home.closer"))
columns = st.columns(3)
for index, (name, state) in enumerate(CLOSER.items()):
    with columns[index % 3].container(border=True, height="stretch"):
        onward.way(name, state, t(f"home.closer_{name}"), t)
        st.markdown(t(f"home.closer_{name}_why"))

st.header(t("home.learn"))
for column, (name, view) in zip(st.columns(len(TRAININGS)), TRAININGS.items(), strict=True):
    with column.container(border=True, height="stretch"):
        onward.way("live", link.write(view, LIVE), t(f"home.learn_{name}"), t)
        st.markdown(t(f"home.learn_{name}_why"))
