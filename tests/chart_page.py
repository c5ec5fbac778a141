"""The page of tests/chart_app.py: made-up numbers that the tests can compute again."""

import numpy as np
import streamlit as st

from pages.ui import charts, theme
from pages.ui.component import draw
from pages.ui.language import choose, words

t = words()
choose(t)
layers = st.number_input("layers", 2, 100, 12, key="layers")
gain = st.number_input("gain", 0.1, 10.0, 1.0, 0.5, key="gain")
st.text(f"the server has gain {gain}")
y_scale = st.segmented_control("y", ["log", "linear"], default="log", key="y_scale", required=True)

depth = np.arange(-1, layers)
rising = gain * 2.0 ** (depth + 1)
broken = np.where(depth == 3, np.inf, np.where(depth == 5, np.nan, gain * np.ones(len(depth))))
site = t("site.resid_post")
series = [
    charts.Series(t("norm.none"), depth, rising, theme.style("none"), site, "none"),
    charts.Series(t("norm.layernorm"), depth, broken, theme.style("layernorm", "post"), site, "layernorm"),
]
frame = charts.Frame("RMS", "RMS", "RMS", y_scale=str(y_scale))
if st.toggle("shown", value=True, key="shown"):
    draw(charts.profile(series, frame, t), "profile", label="RMS over depth", height=480)
