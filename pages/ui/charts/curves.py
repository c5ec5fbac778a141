"""Curves over a quantity that is no layer and no step, with measured points on them, one drawing above another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from pages.ui import theme
from pages.ui.charts import marks, stacks
from pages.ui.charts.axes import Axis
from pages.ui.charts.marks import Frame, Part, Text


@dataclass(frozen=True, eq=False)
class Curve:
    """One curve, or points where they have an `error` (half the height of their bars), each (N,).

    `key`: the same in all languages; what the drawings have under the same key is one entry of the legend. `label`:
    written beside its last point. What has no place on the axis is a triangle at its edge, if `marked`;
    `width`: pixels, more for a line that another one may cover.
    """

    name: str
    x: NDArray[np.floating]
    y: NDArray[np.floating]
    style: theme.Style
    key: str
    error: NDArray[np.floating] | None = None
    label: str = ""
    marked: bool = False
    width: int = 3


@dataclass(frozen=True, eq=False)
class Drawing:
    """Curves over one value axis with this `title`; `statistic`: what a number is."""

    curves: Sequence[Curve]
    title: str
    statistic: str


def curves(drawings: Sequence[Drawing], frame: Frame, t: Text, log: bool = False) -> go.Figure:
    """Draw them from the top down over the common axis, logarithmic or not, which has the frame's `x_title`."""
    values = [np.concatenate([marks.nothing(), *(curve.y for curve in one.curves)]) for one in drawings]
    figure = stacks.layout([one.title for one in drawings], values, frame, t)
    keys = [curve.key for one in drawings for curve in one.curves]
    traces = [_trace(curve, place, one.statistic, frame, keys) for place, one in enumerate(drawings)
              for curve in one.curves]
    for place, trace in enumerate(traces):
        trace["showlegend"] = keys.index(keys[place]) == place
    figure["xaxis"] |= {"type": "log", "dtick": 1} if log else {}
    gaps = [gap for place, one in enumerate(drawings) for row, curve in enumerate(one.curves)
            if (gap := _gaps(curve, place, row, one.statistic, frame, t))]
    return go.Figure([*traces, *gaps], figure)


def _gaps(one: Curve, place: int, row: int, statistic: str, frame: Frame, t: Text) -> Part:
    """Return the triangles of what has no place on the value axis; nothing where all has, or it is not to be marked."""
    gaps = ~Axis(frame.y_scale).has_place(one.y)
    if not (one.marked and gaps.any()):
        return {}
    series = marks.Series(one.name, np.arange(len(one.x)), one.y, one.style, key=one.key)
    made = marks.triangles(series, gaps, row, f"{frame.x_title} %{{customdata:.4~g}}<br>{statistic}", t,
                           ("x", stacks.axes(place)[1]))
    x = one.x[made["x"]]
    return made | {"x": x, "customdata": x, "uid": f"{one.key}{place}gaps", "legendgroup": one.key}


def _trace(one: Curve, place: int, statistic: str, frame: Frame, keys: Sequence[str]) -> Part:
    """Return one curve; points are drawn last, so that they lie above."""
    alone = len(one.x) == 1
    points = one.error is not None or alone
    marked = one.style.symbol != theme.NEUTRAL.symbol  # what colour and dash alone may not tell apart
    y = np.where(Axis(frame.y_scale).has_place(one.y), one.y, np.nan)
    size = 16 if alone else 9
    return {
        "type": "scatter", "x": one.x, "y": y, "yaxis": stacks.axes(place)[0], "name": one.name,
        "uid": f"{one.key}{place}", "legendgroup": one.key, "legendrank": 1000 + keys.index(one.key),
        "mode": ("markers" if points else "lines+markers" if marked else "lines") + ("+text" if one.label else ""),
        "connectgaps": False,
        "line": {"color": one.style.color, "dash": one.style.dash, "width": one.width},
        "marker": {"color": one.style.color, **marks.symbol(one.style, size, len(one.x))},
        "text": [*[""] * (len(one.x) - 1), one.label] if one.label else None, "textposition": "middle right",
        "textfont": {"size": theme.TEXT_PX}, "cliponaxis": False,
        "error_y": {"array": one.error, "thickness": 2, "width": 5} if one.error is not None else None,
        "hovertemplate": f"<b>{one.name}</b><br>{frame.x_title} %{{x:.4~g}}<br>{statistic} <b>%{{y:.5~g}}</b>"
                         "<extra></extra>"}
