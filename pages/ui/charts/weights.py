"""The weights of one attention head as a map: a row a query, a column a key, with the text itself along both axes.

Colours are logarithmic: uniform weights of a long row are as small as 1/n, and a saturated row is 1 beside nothing.
What no query sees is empty; a weight that is not finite is a triangle. It knows no engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from pages.ui import theme
from pages.ui.charts import marks
from pages.ui.charts.axes import F64, Mask
from pages.ui.charts.marks import Frame, Text

LEAST = 1e-4
"""Weights below have the colour of this one; the colour bar says so."""

WIDTH_PX, HEIGHT_PX = 620, 760
"""Room for the labels of an axis in the narrowest window that is looked after, and in the height that a map has."""

SHARE, LARGEST_PX, SMALLEST_PX = 0.95, 16, 9
"""A label's size over the room that it has, and the sizes that it may have."""


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights of C queries over C keys, both in the order of the sequence.

    `values`, `exists`: (C, C), and which of them there are; `places`: where each stands, once each, ``12`` or ``8–15``;
    `names`: what stands there, as it is written; empty where nothing is. `name`: of whose head all of this is.
    """

    values: F64
    exists: Mask
    places: Sequence[str]
    names: Sequence[str]
    name: str = ""


def weights(table: Weights, frame: Frame, t: Text) -> go.Figure:
    """Draw the map; `x_title` names the keys, `y_title` the queries, `statistic` the colour bar."""
    found = table.exists & np.isfinite(table.values)
    levels = np.log10(np.where(found, np.maximum(table.values, LEAST), np.nan))
    said = [f"{place} <b>{marks.literal(name)}</b>" if name else place
            for place, name in zip(table.places, table.names, strict=True)]
    hovers = [[f"{frame.y_title} {query}<br>{frame.x_title} {key}" for key in said] for query in said]
    figure = go.Figure(go.Heatmap(
        z=levels.astype(np.float32), x=list(table.places), y=list(table.places), customdata=table.values,
        zmin=np.log10(LEAST), zmax=0.0, colorscale=theme.HEAT_SCALE, colorbar=_bar(frame), hovertext=hovers,
        xgap=1, ygap=1, hoverongaps=False, showlegend=False,
        hovertemplate=f"<b>{marks.literal(table.name)}</b><br>%{{hovertext}}<br>{frame.statistic} "
                      "<b>%{customdata:.4~g}</b><extra></extra>"), marks.layout(frame, ""))
    lost = np.argwhere(table.exists & ~found)
    if len(lost):
        figure.add_scatter(
            x=[table.places[column] for _, column in lost], y=[table.places[row] for row, _ in lost], mode="markers",
            name=t("chart.no_place"), hoverinfo="skip",
            marker={"symbol": "triangle-up", "color": theme.WARNING_COLOR, "size": 7})
    figure.update_layout(
        showlegend=len(lost) > 0, margin={"b": 8}, xaxis=_axis(table, frame.x_title, WIDTH_PX, upright=True),
        yaxis=_axis(table, frame.y_title, HEIGHT_PX) | {"autorange": "reversed"})
    return figure if found.any() or len(lost) else marks.say_nothing(figure, t)


def _bar(frame: Frame) -> dict[str, object]:
    ticks = [0, -1, -2, -3, int(np.log10(LEAST))]
    return {"title": {"text": frame.statistic, "side": "right"}, "tickvals": ticks,
            "ticktext": ["1", "0.1", "0.01", "10⁻³", "≤ 10⁻⁴"]}


def _axis(table: Weights, title: str, room: int, upright: bool = False) -> dict[str, object]:
    """Return an axis with every token on it, or some places where there is no text, as large as there is room.

    `room`: pixels along it; `upright`: labels of several letters stand upright.
    """
    texts = [name or place for name, place in zip(table.names, table.places, strict=True)]
    size = int(np.clip(SHARE * room / len(texts), SMALLEST_PX, LARGEST_PX))
    turned = upright and any(len(name) > 1 for name in table.names)
    step = 1 if any(table.names) else max(1, -(-len(texts) // 16))
    return {"title": {"text": title}, "type": "category", "categoryarray": list(table.places), "showgrid": False,
            "tickvals": list(table.places[::step]), "ticktext": [marks.literal(text) for text in texts[::step]],
            "tickangle": -90 if turned else 0, "ticks": "", "tickfont": {"size": size}}
