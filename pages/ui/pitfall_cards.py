"""The pitfalls of LayerNorm as cards: the right code first, then each wrong one with what it gives beside the right.

It knows Streamlit and how a row of cells is drawn; what the code gives is from `core.pitfalls`.
"""

from __future__ import annotations

import streamlit as st

from core.pitfalls import PITFALLS, RIGHT, outcome, preface, right
from core.worked import F64
from pages.ui import worksheet
from pages.ui.tensor_link import Asked
from pages.ui.text import Words, escaped
from pages.ui.views.tensor import judged

COLUMNS = 2

OPEN = 64
"""Up to this many entries the lines that make the code run by itself stand open."""


def cards(asked: Asked, x: F64, t: Words) -> None:
    """Draw them for the chosen token of x (B, T, D)."""
    expected, (b, token, d) = right(x, asked.eps), asked.entry
    with st.container(border=True):
        st.markdown(f"**{t('tensor.right')}**")
        st.code(preface(x, asked.eps) + "\n\n" + RIGHT if x.size <= OPEN else RIGHT, language="python")
        st.html(worksheet.row(expected[b, token], t("tensor.right"), d))
    if x.size > OPEN:
        with st.expander(t("tensor.preface")):
            st.code(preface(x, asked.eps), language="python")
    columns = st.columns(COLUMNS)
    for place, name in enumerate(PITFALLS):
        found = outcome(name, x, asked.eps)
        with columns[place % COLUMNS].container(border=True):
            st.markdown(f"**{t(f'tensor.pitfall_{name}')}**  \n{t(f'tensor.pitfall_{name}_why')}")
            st.code(PITFALLS[name], language="python")
            if found.y is not None and found.y.shape == x.shape:
                st.html(worksheet.row(found.y[b, token], t(f"tensor.pitfall_{name}"), d))
            wrong = found.y is None or found.lost or not found.difference < SMALL
            icon = ":red[:material/error:]" if wrong else ":green[:material/check_circle:]"
            st.markdown(f"{icon} {escaped(judged(found, x.shape, t))}")


SMALL = 1e-3
"""A difference below is called agreement here."""
