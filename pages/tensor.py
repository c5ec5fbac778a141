"""The worked tensor: every step of every norm, by hand, on a tensor that the visitor edits."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.worked import worked
from pages.ui import explain, origin, panels, pitfall_cards, single, tensor_controls, worksheet
from pages.ui.language import words
from pages.ui.views import tensor

t = words()
notices = tensor_controls.settle()

st.title(t("tensor.title"))
st.markdown(t("tensor.lead"))
for notice in notices:
    st.warning(explain.notice(notice, t), icon=":material/link_off:")
tensor_controls.presets(t)
tensor_controls.table(t)
tensor_controls.norm(t)
with st.sidebar:
    tensor_controls.dials(t)
tensor_controls.entry(t)
asked, misfits = tensor_controls.asked()
for notice in misfits:
    st.info(explain.notice(notice, t), icon=":material/info:")
tensor_controls.mirror(asked)

sheet = worked(asked.norm, asked.tensor(), asked.dials())
st.header(t("tensor.steps", norm=t(f"norm.{asked.norm}"), place=asked.at))
st.markdown(t(f"tensor.about_{asked.norm}"))
worksheet.steps(sheet, asked.entry, t)
for said in tensor.remarks(asked, sheet, t):
    st.markdown(said)
panels.panel(tensor.steps(sheet), [], t, "tensor")

st.header(t("tensor.block"))
st.markdown(t("tensor.block_said"))
for picture in (tensor.block(asked, sheet, t), tensor.pools(asked, sheet, t)):
    panels.panel(picture, [], t, "tensor", tensor_controls.choose)

st.header(t("tensor.pitfalls"))
st.markdown(t("tensor.pitfalls_said"))
pitfall_cards.cards(asked, sheet.values("x"), t)
panels.panel(tensor.pitfalls(asked, sheet.values("x")), [], t, "tensor")
panels.hand_out(partial(single.worked_tensor, asked, t), "tensor", t, lambda: origin.of_code(asked.program(), t))
