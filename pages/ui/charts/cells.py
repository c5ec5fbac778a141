"""What became of every site of every layer in one pass: finite, spread, made; the cell that it began in has a frame.

A state is a colour and a sign: none has its meaning by colour alone. What was not observed is a dash, what does not
exist is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from core.autopsy import CellMap
from core.lineage import Place
from pages.ui import theme
from pages.ui.charts import marks
from pages.ui.charts.axes import F64
from pages.ui.charts.grids import column_axis, row_axis
from pages.ui.charts.marks import Frame, Text
from pages.ui.charts.states import CLEAR, GREY, HEALTHY, LIGHT, Look, States, fills, signs

LOOKS: dict[str, Look] = {
    "not_observed": Look(CLEAR, "line-ew-open", theme.OTHER_COLOR, theme.OTHER_COLOR),
    "finite": HEALTHY,
    "spread": Look(GREY, "triangle-right", theme.OTHER_COLOR),
    "made": Look(theme.WARNING_COLOR, "x", theme.WARNING_COLOR),
}
"""State of a cell (`core.autopsy.CELLS`) that exists → its look; its number is its place here."""

BACKWARD = {"triangle-right": "triangle-left"}
"""Signs that point where the pass goes."""

@dataclass(frozen=True, eq=False)
class Cells:
    """The states of all sites, R, in all layers, C, and what was counted there.

    `columns`: names of the layers, each once; `counts`: (3, R, C), NaN, +Inf and −Inf; `absmax`: (R, C), over the
    finite entries; `began`: the cell with the frame, and `label`: what stands beside its row; `gradient`: the pass goes
    backward.
    """

    map: CellMap
    columns: Sequence[str]
    counts: F64
    absmax: F64
    began: Place | None = None
    label: str = ""
    gradient: bool = False

    def at(self, state: str) -> list[tuple[int, int]]:
        """Return the rows and columns of the cells in this state."""
        return [(int(row), int(column)) for row, column in np.argwhere(self.map.states == state)]


def cells(table: Cells, frame: Frame, t: Text) -> go.Figure:
    """Draw the cells. The words of a state are ``autopsy.cell_*``, what it means ``autopsy.cell_*_help``."""
    numbers = {"made": len(table.at("made")), "spread": len(table.at("spread"))}
    said = t("autopsy.map_counts" if any(numbers.values()) else "autopsy.map_finite", **numbers)
    hovers = [[_says(table, (row, column), t) for column in range(len(table.columns))]
              for row in range(len(table.map.sites))]
    drawn = States(table.columns, table.map.sites, table.map.states.tolist(), hovers, LOOKS)
    words = {state: t(f"autopsy.cell_{state}") for state in LOOKS}
    signed = signs(drawn, words, BACKWARD if table.gradient else {})
    figure = go.Figure([fills(drawn, f"{frame.x_title} %{{x}}"), *signed], marks.layout(frame, said))
    figure.update_layout(xaxis=column_axis(table.columns, frame), yaxis=row_axis(table.map.sites, frame),
                         legend={"itemclick": False, "itemdoubleclick": False, "traceorder": "reversed",
                                 "itemsizing": "trace" if drawn.roomy else "constant"})
    if table.began is not None:
        _frame(figure, table)
    return figure


def _says(table: Cells, cell: tuple[int, int], t: Text) -> str:
    site, state = table.map.sites[cell[0]], str(table.map.states[cell])
    if state not in LOOKS:
        return ""
    lines = [f"{t(f'site.{site}')} ({site})", f"<b>{t(f'autopsy.cell_{state}')}</b>", t(f"autopsy.cell_{state}_help")]
    if state != "not_observed":
        n_nan, n_posinf, n_neginf = (f"{count:,.0f}" for count in table.counts[:, *cell])
        size = float(table.absmax[cell])
        lines += [t("autopsy.counts", n_nan=n_nan, n_posinf=n_posinf, n_neginf=n_neginf),
                  t("autopsy.no_absmax") if np.isnan(size) else t("autopsy.absmax", absmax=marks.spelled(size))]
    return "<br>".join(lines)


def _frame(figure: go.Figure, table: Cells) -> None:
    """Outline the cell that it began in, and name it beside its row, where it hides no cell."""
    assert table.began is not None
    layer, site = table.began
    row, column = table.map.sites.index(site), table.map.layers.index(layer)
    ends = {"x0": column - 0.5, "x1": column + 0.5, "y0": row - 0.5, "y1": row + 0.5}
    figure.add_shape(type="rect", **ends, line={"width": 5})
    figure.add_annotation(text=f"◀ <b>{marks.literal(table.label)}</b>", xref="paper", x=1, xanchor="left", xshift=6,
                          y=site, yanchor="middle", bgcolor=theme.WARNING_COLOR, font={"color": LIGHT}, borderpad=3)
    width = sum(2 if ord(letter) > 0x2E7F else 1 for letter in table.label)
    figure.update_layout(margin={"r": 44 + 10 * width})
