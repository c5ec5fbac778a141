"""Several variants side by side on the same axes: up to three columns, a title each, one legend below."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from core.vocabulary import EMBED
from pages.ui.charts import marks
from pages.ui.charts.axes import Axis
from pages.ui.charts.marks import Frame, Text

MAX_COLUMNS = 3


def rows(count: int) -> int:
    """Return how many rows `count` facets take."""
    return max(1, -(-count // MAX_COLUMNS))


def place(index: int) -> tuple[int, int]:
    """Return row and column of a facet, from 1."""
    return index // MAX_COLUMNS + 1, index % MAX_COLUMNS + 1


def axes_of(index: int, count: int) -> tuple[str, str]:
    """Return the names that Plotly gives the axes of a facet of `count`, for traces and shapes."""
    row, column = place(index)
    number = (row - 1) * min(count, MAX_COLUMNS) + column
    return ("x", "y") if number == 1 else (f"x{number}", f"y{number}")


def facets(names: Sequence[str], last: int, frame: Frame, subtitle: str, t: Text, first: int = EMBED) -> go.Figure:
    """Return an empty figure with a facet for each name, over layers `first` … `last`."""
    count, columns = max(len(names), 1), min(max(len(names), 1), MAX_COLUMNS)
    titles = [f"<b>{marks.literal(marks.shortened(name, columns))}</b>" for name in names]
    made = make_subplots(rows(count), columns, shared_xaxes="all", shared_yaxes="all", subplot_titles=titles,
                         horizontal_spacing=0.02, vertical_spacing=min(0.16, 0.4 / rows(count)))
    made.update_layout(marks.layout(frame, subtitle))
    made.update_layout(legend={"y": 0, "yref": "container", "yanchor": "bottom"}, margin={"b": 104},
                       title_pad={"b": 34})
    made.update_yaxes(autorange=True)  # said aloud: with axes that match each other Plotly does not find it by itself
    for index in range(count, rows(count) * columns):  # a place without a facet
        row, column = place(index)
        made.update_xaxes(visible=False, row=row, col=column)
        made.update_yaxes(visible=False, row=row, col=column)
    made.update_xaxes(layer_ticks(last, columns, t, first))
    for index in range(count):
        row, column = place(index)
        below = index + columns >= count  # nothing stands under it
        made.update_xaxes(showticklabels=below, title_text=(frame.x_title or t("chart.layer")) if below else "",
                          row=row, col=column)
    return made


def layer_ticks(last: int, columns: int, t: Text, first: int = EMBED) -> dict[str, object]:
    """Return labels of a linear axis of layers `first` … `last`, about a dozen over all columns.

    The embedding, if it is the first one, is in words.
    """
    step = max(1, -(-(last + 1) * columns // 24))
    if first > EMBED:
        at = np.arange(first, last + 1, step)
        return {"tickvals": at.tolist(), "ticktext": list(map(str, at.tolist())), "tickangle": 0,
                "range": [first - 0.6, last + 0.6], "autorange": False, "zeroline": False}
    roomy = step == 1 and (columns == 1 or last < 3)
    at = np.arange(0 if roomy else step, last + 1, step)  # elsewhere 0 has no room beside the embedding
    return {"tickvals": [-1, *at.tolist()], "ticktext": [t("chart.embed_short"), *map(str, at.tolist())],
            "tickangle": 0, "range": [-1.6, last + 0.6], "autorange": False, "zeroline": False}


def value_axes(figure: go.Figure, count: int, axis: Axis, title: str) -> None:
    """Give every facet the value axis, its title to the first of each row."""
    for index in range(count):
        row, column = place(index)
        figure.update_yaxes(axis.layout(title if column == 1 else ""), row=row, col=column)


def gap_axes(figure: go.Figure, count: int) -> list[tuple[str, str]]:
    """Lay an axis of 0 … 1 over each facet, for what stands at its edges; return the names of the axes to draw on."""
    names = []
    for index in range(count):
        x, y = axes_of(index, count)
        number = 50 + index
        figure.update_layout({f"yaxis{number}": {"overlaying": y, "range": [0, 1], "fixedrange": True, "visible": False,
                                                 "anchor": x}})
        names.append((x, f"y{number}"))
    return names
