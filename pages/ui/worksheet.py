"""The steps of one token, line by line: a formula, and beside it the numbers as a row of coloured cells.

Entries of one token that share a statistic have one cell together. It knows Streamlit and the steps; it computes
nothing, and the colours say no more than the numbers in the cells.

Shapes: D features.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
import streamlit as st

from core.pools import Labels, Shape
from core.worked import F64, Worked
from pages.ui import explain, theme
from pages.ui.charts.marks import faded
from pages.ui.handout_blocks import Cells
from pages.ui.text import Words

FIGURES, FEW_FIGURES = 5, 4
"""Figures of a number in a large cell, and in a small one."""

BESIDE = 5
"""Up to this many cells have their formula at the left, more of them have it above."""

LETTERS = {4: 12, 8: 9}
"""Up to so many cells are large when none of them has more letters; they are small otherwise."""

STRONGEST = 0.55
"""Opacity of the colour of the largest entry: what is written on it stays readable in both themes."""

TABLE = "width:100%;table-layout:fixed;border-collapse:separate;border-spacing:4px;min-width:{width}rem;margin:0"
CELL_REM = 4.9
"""Width of a cell at least."""

CELL = ("text-align:center;padding:.5rem .1rem;border-radius:.375rem;font-variant-numeric:tabular-nums;"
        "font-size:{size}rem;border:{border};background:{color}")


def steps(sheet: Worked, place: Shape, t: Words) -> None:
    """Draw every step for the token of `place` (b, t, d)."""
    width = sheet.labels.shape[2]
    for one in blocks(sheet, place, t):
        left, right = st.columns([1, 2], vertical_alignment="center") if width <= BESIDE else (st.container(),) * 2
        if one.formula:
            left.markdown(f"{one.name}  \n$\\large\\displaystyle {{{one.formula}}}$")
        right.html(one.cells)


def blocks(sheet: Worked, place: Shape, t: Words) -> list[Cells]:
    """Return every step for the token of `place` (b, t, d), below a line with the numbers of its features."""
    b, token, d = place
    width = sheet.labels.shape[2]
    lines = [Cells("", "", header(width, d, t))]
    for step in sheet.steps:
        labels = sheet.labels[b, token] if step.axes else np.zeros(width, np.intp)
        name = t(f"tensor.step_{step.name}")
        cells = row(step.values[b, token], name, d, labels if step.shared else None)
        lines.append(Cells(name, step.latex, cells))
    return lines


def header(width: int, chosen: int, t: Words) -> str:
    """Return the numbers of the features, that of the chosen one in bold."""
    heads = (f"<th scope='col' style='text-align:center;font-weight:{700 if d == chosen else 400}'>d {d}</th>"
             for d in range(width))
    return _table("".join(heads), width, t("tensor.features"))


def row(values: F64, name: str, chosen: int, labels: Labels | None = None, compact: bool = False) -> str:
    """Return a row of cells, the chosen one framed. `labels`: entries of one label that stand together have one cell.

    Statistics have no colour: they are no entries. `compact`: cells are small however few they are.
    """
    spans = [(place, 1) for place in range(len(values))] if labels is None else list(_spans(labels.tolist()))
    finite = np.abs(values[np.isfinite(values)])
    largest = float(finite.max()) if labels is None and finite.size else 0.0
    texts = [said(value, FIGURES) for value in values.tolist()]
    most = next((letters for count, letters in LETTERS.items() if len(values) <= count), 0)
    large = not compact and max(map(len, texts)) <= most
    cells = (_cell(float(values[start]), length, start <= chosen < start + length, largest, large)
             for start, length in spans)
    return _table("".join(cells), len(values), name)


def said(value: float, figures: int) -> str:
    """Write a number with at most so many figures, and a sign before what is not finite."""
    written = re.sub(r"\.?0+(?=·)", "", explain.number(value, figures))
    return written if np.isfinite(value) else f"▲ {written}"


def _spans(labels: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield where each run of equal labels begins, and how long it is."""
    start = 0
    for _, same in groupby(labels):
        length = len(list(same))
        yield start, length
        start += length


def _cell(value: float, length: int, framed: bool, largest: float, large: bool) -> str:
    color = theme.ABOVE_COLOR if value > 0 else theme.BELOW_COLOR
    share = STRONGEST * abs(value) / largest if largest and np.isfinite(value) else 0.0
    broken = not np.isfinite(value)
    edge = f"2px dashed {theme.WARNING_COLOR}" if broken else f"1px solid {faded(theme.OTHER_COLOR, 0.5)}"
    style = CELL.format(size=1.25 if large else 1, color=faded(color, round(share, 3)),
                        border=f"3px solid {theme.BELOW_COLOR}" if framed and not broken else edge)
    return f"<td colspan='{length}' style='{style}'>{said(value, FIGURES if large else FEW_FIGURES)}</td>"


def _table(cells: str, width: int, name: str) -> str:
    style = TABLE.format(width=CELL_REM * width)
    return (f"<div style='overflow-x:auto'><table style='{style}' aria-label='{html.escape(name)}'>"
            f"<tr>{cells}</tr></table></div>")
