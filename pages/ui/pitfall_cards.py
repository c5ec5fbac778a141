"""The pitfalls of LayerNorm as cards: the right code first, then each wrong one with what it gives beside the right.

It knows Streamlit and how a row of cells is drawn; what the code gives is from `core.pitfalls`.
"""

from __future__ import annotations

import streamlit as st

from core.pitfalls import PITFALLS, RIGHT, Outcome, outcome, preface, right
from core.worked import F64
from pages.ui import worksheet
from pages.ui.tensor_link import Asked
from pages.ui.text import Words, escaped
from pages.ui.views.tensor import judged

COLUMNS = 2
"""Wrong ones side by side, where a token has few features."""

OPEN = 64
"""Up to this many entries the lines that make the code run by itself stand open."""


SMALL = 1e-3
"""A difference below is called agreement here."""


def cards(asked: Asked, x: F64, t: Words) -> None:
    """Draw them: the right code with the chosen token of x (B, T, D), each wrong one with the token it hurts most."""
    expected, (b, token, d) = right(x, asked.eps), asked.entry
    beginning = preface(asked.written, asked.eps, asked.scale)
    with st.container(border=True):
        st.markdown(f"**{t('tensor.right')}**")
        st.code(f"{beginning}\n\n{RIGHT}" if x.size <= OPEN else RIGHT, language="python")
        st.html(worksheet.row(expected[b, token], t("tensor.right"), d))
    if x.size > OPEN:
        with st.expander(t("tensor.preface")):
            st.code(beginning, language="python")
    columns = st.columns(COLUMNS if x.shape[2] <= worksheet.BESIDE else 1)
    for place, name in enumerate(PITFALLS):
        with columns[place % len(columns)].container(border=True):
            _card(name, outcome(name, x, asked.eps), expected, t)


def _card(name: str, found: Outcome, expected: F64, t: Words) -> None:
    """Draw one pitfall."""
    st.markdown(f"**{t(f'tensor.pitfall_{name}')}**  \n{t(f'tensor.pitfall_{name}_why')}")
    st.code(PITFALLS[name], language="python", wrap_lines=True)
    wrong = found.y is None or found.lost or not found.difference < SMALL
    icon = ":red[:material/error:]" if wrong else ":green[:material/check_circle:]"
    st.markdown(f"{icon} {escaped(judged(found, expected.shape, t))}")
    if found.y is not None and found.y.shape == expected.shape:
        said = t("tensor.row", sample=found.worst[0], token=found.worst[1])
        for key, values in (("tensor.worst_right", expected), ("tensor.worst", found.y)):
            st.caption(t(key, token=said))
            st.html(worksheet.row(values[found.worst], t(key, token=said), -1, compact=True))
