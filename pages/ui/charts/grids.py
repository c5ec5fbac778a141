"""Tables of numbers as coloured cells: sites over layers, tokens over layers, the tokens of a text.

A cell without a value is never a colour: what is not finite carries a triangle, what was not observed a dash, what does
not exist is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from pages.ui import theme
from pages.ui.charts import marks
from pages.ui.charts.axes import F64, SYMLOG_DECADES, Axis, Mask, axis_for, colors, finite_range
from pages.ui.charts.marks import Frame, Text

LIGHT_SCALE = [[0.0, "#fffbe6"], [0.5, "#ffd27a"], [1.0, "#ff9d3c"]]
"""Behind letters: light enough at both ends for dark ones."""

GAPPED_CELLS = 1500
"""Up to this many cells have a line between them."""

SIGNED_DECADES = 4
"""How far below the largest magnitude cells on both sides of 0 still have a colour to tell."""

LETTERS, LABELS = 60, 22
"""Room for labels: letters along the columns, and labels along the rows."""

Words = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Grid:
    """Numbers in rows and columns. `values`: (R, C); `exists`, `observed`: (R, C), which cells there are and were seen.

    `columns`, `rows`: their names, each once. `texts`: (R, C), written into the cells; `hovers`: (R, C), what the hover
    says instead of column and row; `non_finite`: (R, C), entries that were not finite; `chosen`: a row with a frame;
    `name`: of whom all of this is, said by the hover; `signed`: 0 has no colour, and both sides of it have their own;
    `unseen`: key of what is said of cells that were not observed; `crossed`: (R, C), cells with a cross, and
    `crossing`: the key of why.
    """

    columns: Sequence[str]
    rows: Sequence[str]
    values: F64
    exists: Mask
    observed: Mask
    texts: Words | None = None
    hovers: Words | None = None
    non_finite: F64 | None = None
    chosen: str = ""
    name: str = ""
    signed: bool = False
    unseen: str = "chart.unseen"
    crossed: Mask | None = None
    crossing: str = ""

    @property
    def seen(self) -> Mask:
        """Which cells should have a value."""
        return self.exists & self.observed

    @property
    def counts(self) -> F64:
        """Entries that were not finite, (R, C)."""
        return np.zeros(self.values.shape) if self.non_finite is None else self.non_finite


def grid(table: Grid, frame: Frame, t: Text) -> go.Figure:
    """Draw the cells; colours follow the frame's scale. `y_title` names the rows, `statistic` the colour bar."""
    axis = axis_for(frame.y_scale, table.values[table.seen], decades=SIGNED_DECADES if table.signed else SYMLOG_DECADES)
    placed = axis.has_place(table.values) & table.seen
    shown = finite_range(table.values[placed], frame.y_scale)
    figure = go.Figure([_cells(table, axis, placed, frame), *_signs(table, placed, frame, t)],
                       marks.layout(frame, _notes(table, placed, t)))
    signs = len(figure.data) > 1
    scale = theme.SIGNED_SCALE if table.signed else theme.HEAT_SCALE if table.texts is None else LIGHT_SCALE
    if table.signed and shown:
        shown = -max(map(abs, shown)), max(map(abs, shown))
    figure.update_layout(
        xaxis=column_axis(table.columns, frame), yaxis=row_axis(table.rows, frame),
        coloraxis=colors(axis, shown, frame.statistic, scale),
        legend={"y": 0, "yref": "container", "yanchor": "bottom"}, margin={"b": 92 if signs else 8}, showlegend=signs,
        hoverdistance=1)  # a mark answers for its own place only, not for the cells around it
    if table.chosen in table.rows:
        row = list(table.rows).index(table.chosen)
        ends = {"x0": -0.5, "x1": len(table.columns) - 0.5, "y0": row - 0.5, "y1": row + 0.5}
        figure.add_shape(type="rect", **ends, line={"width": 2.5})
    return figure if shown or signs else marks.say_nothing(figure, t)


def _cells(table: Grid, axis: Axis, placed: Mask, frame: Frame) -> go.Heatmap:
    gap = 1 if table.values.size <= GAPPED_CELLS else 0
    where = f"{frame.x_title} %{{x}}<br>{frame.y_title} %{{y}}" if table.hovers is None else "%{hovertext}"
    where = f"<b>{marks.literal(table.name)}</b><br>{where}" if table.name else where
    levels = np.where(placed, axis.level(np.where(placed, table.values, np.nan)), np.nan)
    kind = np.float32 if np.nanmax(np.abs(levels), initial=0) < np.finfo(np.float32).max else np.float64
    return go.Heatmap(
        x=list(table.columns), y=list(table.rows), z=levels.astype(kind), customdata=table.values,
        coloraxis="coloraxis", xgap=gap, ygap=gap, hoverongaps=False, showlegend=False, text=table.texts,
        texttemplate=None if table.texts is None else "%{text}", textfont={"size": theme.TEXT_PX},
        hovertext=table.hovers,
        hovertemplate=f"{where}<br>{frame.statistic} <b>%{{customdata:.5~g}}</b><extra></extra>")


def _signs(table: Grid, placed: Mask, frame: Frame, t: Text) -> Iterator[go.Scatter]:
    """Yield the marks of cells that have no colour, and of those whose colour stands for a part of the entries."""
    signs = (
        (table.seen & ~np.isfinite(table.values), "triangle-up", theme.WARNING_COLOR, "chart.no_place"),
        (table.seen & ~placed & np.isfinite(table.values), "triangle-down", theme.WARNING_COLOR, "chart.no_place_log"),
        (placed & (table.counts > 0), "triangle-up-open", theme.WARNING_COLOR, "chart.cell_in_part"),
        (table.exists & ~table.observed, "line-ew-open", theme.OTHER_COLOR, table.unseen),
        *([] if table.crossed is None else [(placed & table.crossed, "x-thin", theme.WARNING_COLOR, table.crossing)]),
    )
    of = f"<b>{marks.literal(table.name)}</b><br>" if table.name else ""
    for where, symbol, color, key in signs:
        if where.any():
            cells = [(int(row), int(column)) for row, column in np.argwhere(where)]
            yield go.Scatter(
                x=[table.columns[column] for _, column in cells], y=[table.rows[row] for row, _ in cells],
                mode="markers" if table.texts is None else "markers+text", name=t(key),
                text=None if table.texts is None else [table.texts[row][column] for row, column in cells],
                hovertext=[_why(table, cell, key, t) for cell in cells], textfont={"size": theme.TEXT_PX},
                marker={"color": color, **(
                    {"symbol": "square-open", "size": 15, "line": {"width": 1}} if table.texts is not None else
                    {"symbol": symbol, "size": 10 if len(table.columns) <= 40 else 6,
                     "line": {"width": 2, "color": color}})},
                hovertemplate=f"{of}{frame.x_title} %{{x}}<br>{frame.y_title} %{{y}}<br>{frame.statistic} "
                              "<b>%{hovertext}</b><extra></extra>")


def _why(table: Grid, cell: tuple[int, int], key: str, t: Text) -> str:
    if key == table.unseen:
        return t(key)
    value = marks.spelled(float(table.values[cell]))
    return t("chart.in_part", value=value, count=f"{table.counts[cell]:.0f}") if key == "chart.cell_in_part" else value


def column_axis(columns: Sequence[str], frame: Frame) -> dict[str, object]:
    """Label as many columns as there is room for, and those at the ends that are no numbers always."""
    names = list(columns)
    step = max(1, -(-sum(len(name) + 2 for name in names) // LETTERS))
    first, last = (0 if name.isdigit() else 1 for name in (names[0], names[-1]))
    between = names[first: len(names) - last]
    kept = [*names[:first], *between[::step][(1 if first and step > 1 else 0):], *names[len(names) - last:]]
    return _category(names, kept, frame.x_title) | {"tickangle": 0, "range": [-0.5, len(names) - 0.5]}


def row_axis(rows: Sequence[str], frame: Frame) -> dict[str, object]:
    """Label as many rows as there is room for, the first one on top."""
    names = list(rows)
    kept = names[:: max(1, -(-len(names) // LABELS))]
    return _category(names, kept, frame.y_title) | {"range": [len(names) - 0.5, -0.5]}


def _category(names: list[str], kept: list[str], title: str) -> dict[str, object]:
    return {"title": {"text": title}, "type": "category", "categoryarray": names, "tickvals": kept,
            "ticktext": [marks.literal(name) for name in kept], "showgrid": False, "autorange": False}


def _notes(table: Grid, placed: Mask, t: Text) -> str:
    return marks.cell_notes(table.values[table.seen & ~placed], t)
