"""What an exchange moved, a map for each variant: sequences over positions, one scale of colours for all.

Exactly 0 has a colour and a word of its own, off the scale. What was exchanged has a heavy frame, where its change may
reach a dashed one; whatever has a change outside both has leaked, and carries a cross where there is room.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from pages.ui import theme
from pages.ui.charts import marks
from pages.ui.charts.axes import F64, Axis, Mask, axis_for, colors, finite_range
from pages.ui.charts.grids import column_axis, row_axis
from pages.ui.charts.marks import Frame, Part, Text

COLUMNS = 2
ZERO_COLOR = "rgba(125,135,148,0.28)"
DARK = "#10151d"
DASHED: Part = {"width": 3, "dash": "6px,4px"}

CROSSED_COLUMNS = 40
"""Maps of more columns have no crosses: there is no room."""


@dataclass(frozen=True)
class Span:
    """Cells of one row, from the column `first` to the column `last`."""

    row: int
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class Leak:
    """One variant. `values`, `exists`, `leaked`: (R, C), the changes, which of them there are, and which have leaked.

    `texts`: (R, C), what the hover says of whose change it is.
    """

    name: str
    values: F64
    exists: Mask
    leaked: Mask
    texts: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Exchange:
    """Where all maps of a figure stand: names of `rows` and `columns`; `own`: what was exchanged; `reach`: where its
    change may reach, None for nowhere.
    """

    rows: Sequence[str]
    columns: Sequence[str]
    own: Span
    reach: Span | None = None


def leaks(series: Sequence[Leak], at: Exchange, frame: Frame, t: Text) -> go.Figure:
    """Draw a map for each variant, two side by side. `x_title` names the columns, `y_title` the rows."""
    count = max(len(series), 1)
    columns = min(COLUMNS, count)
    rows = -(-count // columns)
    titles = [f"<b>{marks.literal(marks.shortened(one.name, columns))}</b>" for one in series]
    figure = make_subplots(rows, columns, subplot_titles=titles, horizontal_spacing=0.04, vertical_spacing=0.28 / rows)
    values = np.concatenate([marks.nothing(), *(one.values[one.exists] for one in series)])
    axis, shown = axis_for("log", values), finite_range(values, "log")
    for index, one in enumerate(series):
        place = {"row": index // columns + 1, "col": index % columns + 1}
        figure.add_traces([go.Figure(data=[trace]).data[0] for trace in _cells(one, at, axis, frame, t)],
                          [place["row"]] * 3, [place["col"]] * 3)
        for span, look in ((at.reach, DASHED), (at.own, {"width": 5})):
            if span is not None:
                figure.add_shape(_around(span) | {"line": look}, **place)
        below = index + columns >= count
        figure.update_xaxes(column_axis(at.columns, frame) | ({} if below else {"title": None}), **place)
        figure.update_yaxes(row_axis(at.rows, frame) | ({} if place["col"] == 1 else {"title": None}), **place)
    figure.add_traces([go.Figure(data=[trace]).data[0] for trace in _legend(series, at, t)])
    figure.update_layout(marks.layout(frame, marks.cell_notes(values[~np.isfinite(values)], t)))
    return figure.update_layout(
        coloraxis=colors(axis, shown, frame.statistic, theme.HEAT_SCALE), title_pad={"b": 30}, hoverdistance=1,
        legend={"y": 0, "yref": "container", "yanchor": "bottom", "itemclick": False, "itemdoubleclick": False},
        margin={"b": 112})


def _cells(one: Leak, at: Exchange, axis: Axis, frame: Frame, t: Text) -> Iterator[Part]:
    """Yield the cells that have a colour of the scale, those that are exactly 0, and the signs."""
    placed = one.exists & axis.has_place(one.values)
    gap = 1 if one.values.size <= 1500 else 0
    said = f"<b>{marks.literal(one.name)}</b><br>{frame.y_title} %{{y}} · {frame.x_title} %{{x}}<br>%{{hovertext}}<br>"
    cells: Part = {"type": "heatmap", "x": list(at.columns), "y": list(at.rows), "xgap": gap, "ygap": gap,
                   "hoverongaps": False, "showlegend": False, "hovertext": one.texts}
    yield cells | {"z": np.where(placed, axis.level(np.where(placed, one.values, np.nan)), np.nan).astype(np.float32),
                   "customdata": one.values, "coloraxis": "coloraxis",
                   "hovertemplate": f"{said}{frame.statistic} <b>%{{customdata:.4~g}}</b><extra></extra>"}
    zero = one.exists & (one.values == 0)
    yield cells | {"z": np.where(zero, 0.0, np.nan).astype(np.float32), "showscale": False,
                   "colorscale": [[0, ZERO_COLOR], [1, ZERO_COLOR]],
                   "hovertemplate": f"{said}<b>{t('batchnorm.exactly_zero')}</b><extra></extra>"}
    lost = one.exists & ~np.isfinite(one.values)
    crossed = one.leaked & ~lost if len(at.columns) <= CROSSED_COLUMNS else np.zeros(one.leaked.shape, bool)
    where = np.argwhere(crossed | lost)
    yield {"type": "scatter", "mode": "markers", "showlegend": False, "hoverinfo": "skip",
           "x": [at.columns[column] for _, column in where], "y": [at.rows[row] for row, _ in where],
           "marker": {"symbol": ["triangle-up" if lost[row, column] else "x" for row, column in where], "size": 8,
                      "color": [theme.WARNING_COLOR if lost[row, column] else "#ffffff" for row, column in where],
                      "line": {"width": 1.5, "color": DARK}}}


def _around(span: Span) -> Part:
    return {"type": "rect", "x0": span.first - 0.5, "x1": span.last + 0.5, "y0": span.row - 0.5, "y1": span.row + 0.5}


def _legend(series: Sequence[Leak], at: Exchange, t: Text) -> Iterator[Part]:
    """Yield the entries of the legend, of what occurs in some map."""
    looks: tuple[tuple[str, bool, Part], ...] = (
        ("exchanged", True, {"symbol": "square-open", "color": theme.OTHER_COLOR, "line": {"width": 5}}),
        ("leaked", any(one.leaked.any() for one in series), {"symbol": "x", "color": "#ffffff",
                                                             "line": {"width": 1.5, "color": DARK}}),
        ("exactly_zero", any((one.exists & (one.values == 0)).any() for one in series),
         {"symbol": "square", "color": ZERO_COLOR, "line": {"width": 1, "color": theme.OTHER_COLOR}}),
        ("not_finite", any((one.exists & ~np.isfinite(one.values)).any() for one in series),
         {"symbol": "triangle-up", "color": theme.WARNING_COLOR, "line": {"width": 1, "color": DARK}}),
    )
    entry: Part = {"type": "scatter", "x": [None], "y": [None]}
    if at.reach is not None:
        yield entry | {"mode": "lines", "name": t("batchnorm.reached"), "line": DASHED | {"color": theme.OTHER_COLOR}}
    for name, occurs, look in looks:
        if occurs:
            yield entry | {"mode": "markers", "name": t(f"batchnorm.{name}"), "marker": look | {"size": 14}}
