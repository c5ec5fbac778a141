"""The pitfalls of LayerNorm as cards: the right code first, then each wrong one with what it gives beside the right.

It knows Streamlit and how a row of cells is drawn; what the code gives is from `core.pitfalls`.
"""

from __future__ import annotations

import streamlit as st

from core.pitfalls import PITFALLS, RIGHT, Outcome, outcome, preface, right
from core.worked import F64
from pages.ui import explain, worksheet
from pages.ui.handout_blocks import Block, Cells, Code, Prose, Said, Spoken
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
    st.markdown(f"{explain.sign(_is_wrong(found))} {escaped(judged(found, expected.shape, t))}")
    for one in _rows(found, expected, t):
        st.caption(one.name)
        st.html(one.cells)


def _is_wrong(found: Outcome) -> bool:
    return found.y is None or bool(found.lost) or not found.difference < SMALL


def _rows(found: Outcome, expected: F64, t: Words) -> list[Cells]:
    """Return the token that a pitfall hurts most, right and wrong; nothing where there is no such token."""
    if found.y is None or found.y.shape != expected.shape:
        return []
    said = t("tensor.row", sample=found.worst[0], token=found.worst[1])
    return [Cells(name, "", worksheet.row(values[found.worst], name, -1, compact=True))
            for key, values in (("tensor.worst_right", expected), ("tensor.worst", found.y))
            for name in [t(key, token=said)]]


def blocks(asked: Asked, x: F64, t: Words) -> list[Block]:
    """Return the cards as parts of a hand-out."""
    expected, (b, token, d) = right(x, asked.eps), asked.entry
    beginning = preface(asked.written, asked.eps, asked.scale)
    made: list[Block] = [Code(t("tensor.right"), f"{beginning}\n\n{RIGHT}"),
                         Cells("", "", worksheet.row(expected[b, token], t("tensor.right"), d))]
    for name, code in PITFALLS.items():
        found = outcome(name, x, asked.eps)
        made += [Code(t(f"tensor.pitfall_{name}"), code), Prose(t(f"tensor.pitfall_{name}_why")),
                 Spoken("", [Said(escaped(judged(found, expected.shape, t)), _is_wrong(found))]),
                 *_rows(found, expected, t)]
    return made
