"""The steps of one token, line by line: a formula, and beside it the numbers as a row of coloured cells.

Entries of one token that share a statistic have one cell together. It knows Streamlit and the steps; it computes
nothing, and the colours say no more than the numbers in the cells.

Shapes: D features.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
import streamlit as st

from core.worked import F64, Labels, Shape, Worked
from pages.ui import explain, theme
from pages.ui.charts.marks import faded
from pages.ui.text import Words

FIGURES, LONG_FIGURES = 5, 4
"""Figures of a number in a cell, and where there are many cells."""

BESIDE = 8
"""Up to this many cells have their formula at the left, more of them have it above."""

STRONGEST = 0.55
"""Opacity of the colour of the largest entry: what is written on it stays readable in both themes."""

TABLE = "width:100%;table-layout:fixed;border-collapse:separate;border-spacing:4px;min-width:{width}rem;margin:0"
CELL = ("text-align:center;padding:.5rem .1rem;border-radius:.375rem;font-variant-numeric:tabular-nums;"
        "font-size:{size}rem;border:{border};background:{color}")


def steps(sheet: Worked, place: Shape, t: Words) -> None:
    """Draw every step for the token of `place` (b, t, d)."""
    b, token, d = place
    width = sheet.labels.shape[2]
    _line("", header(width, d, t), width)
    for step in sheet.steps:
        labels = sheet.labels[b, token] if step.axes else np.zeros(width, np.intp)
        name = t(f"tensor.step_{step.name}")
        _line(step.latex, row(step.values[b, token], name, d, labels if step.shared else None), width, name)


def _line(formula: str, cells: str, width: int, name: str = "") -> None:
    """Draw one line."""
    left, right = st.columns([2, 5], vertical_alignment="center") if width <= BESIDE else (st.container(),) * 2
    if formula:
        left.markdown(f"{name}  \n$\\large\\displaystyle {formula}$")
    right.html(f"<div style='overflow-x:auto'>{cells}</div>")


def header(width: int, chosen: int, t: Words) -> str:
    """Return the numbers of the features, that of the chosen one in bold."""
    heads = (f"<th scope='col' style='text-align:center;font-weight:{700 if d == chosen else 400}'>d {d}</th>"
             for d in range(width))
    return _table("".join(heads), width, t("tensor.features"))


def row(values: F64, name: str, chosen: int, labels: Labels | None = None) -> str:
    """Return a row of cells, the chosen one framed. `labels`: entries of one label that stand together have one cell.

    Statistics have no colour: they are no entries.
    """
    spans = [(place, 1) for place in range(len(values))] if labels is None else list(_spans(labels.tolist()))
    finite = np.abs(values[np.isfinite(values)])
    largest = float(finite.max()) if labels is None and finite.size else 0.0
    figures = FIGURES if len(values) <= BESIDE else LONG_FIGURES
    cells = (_cell(float(values[start]), length, start <= chosen < start + length, largest, figures)
             for start, length in spans)
    return _table("".join(cells), len(values), name)


def _spans(labels: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield where each run of equal labels begins, and how long it is."""
    start = 0
    for _, same in groupby(labels):
        length = len(list(same))
        yield start, length
        start += length


def _cell(value: float, length: int, framed: bool, largest: float, figures: int) -> str:
    color = theme.ABOVE_COLOR if value > 0 else theme.BELOW_COLOR
    share = STRONGEST * abs(value) / largest if largest and np.isfinite(value) else 0.0
    broken = not np.isfinite(value)
    edge = f"2px dashed {theme.WARNING_COLOR}" if broken else f"1px solid {faded(theme.OTHER_COLOR, 0.5)}"
    style = CELL.format(size=1.25 if figures == FIGURES else 1, color=faded(color, round(share, 3)),
                        border=f"3px solid {theme.BELOW_COLOR}" if framed and not broken else edge)
    said = f"▲ {explain.number(value)}" if broken else explain.number(value, figures)
    return f"<td colspan='{length}' style='{style}'>{said}</td>"


def _table(cells: str, width: int, name: str) -> str:
    style = TABLE.format(width=4.6 * width if width <= BESIDE else 4 * width)
    return f"<table style='{style}' aria-label='{name}'><tr>{cells}</tr></table>"
