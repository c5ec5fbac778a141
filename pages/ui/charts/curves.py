"""Curves over a quantity that is no layer and no step, with measured points on them, one drawing above another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from pages.ui import theme
from pages.ui.charts import marks, stacks
from pages.ui.charts.marks import Frame, Part, Text


@dataclass(frozen=True, eq=False)
class Curve:
    """One curve, or points where they have an `error` (half the height of their bars), each (N,).

    `key`: the same in all languages; what the drawings have under the same key is one entry of the legend. `label`:
    written beside its last point; `width`: pixels, more for a line that another one may cover.
    """

    name: str
    x: NDArray[np.floating]
    y: NDArray[np.floating]
    style: theme.Style
    key: str
    error: NDArray[np.floating] | None = None
    label: str = ""
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
    return go.Figure(traces, figure)


def _trace(one: Curve, place: int, statistic: str, frame: Frame, keys: Sequence[str]) -> Part:
    """Return one curve; points are drawn last, so that they lie above."""
    alone = len(one.x) == 1
    points = one.error is not None or alone
    size = 16 if alone else 9
    return {
        "type": "scatter", "x": one.x, "y": one.y, "yaxis": stacks.axes(place)[0], "name": one.name,
        "uid": f"{one.key}{place}", "legendgroup": one.key, "legendrank": 1000 + keys.index(one.key),
        "mode": ("markers" if points else "lines") + ("+text" if one.label else ""), "connectgaps": False,
        "line": {"color": one.style.color, "dash": one.style.dash, "width": one.width},
        "marker": {"color": one.style.color, "symbol": one.style.symbol, "size": size, "line": {"width": 0}},
        "text": [*[""] * (len(one.x) - 1), one.label] if one.label else None, "textposition": "top center",
        "textfont": {"size": theme.TEXT_PX}, "cliponaxis": False,
        "error_y": {"array": one.error, "thickness": 2, "width": 5} if one.error is not None else None,
        "hovertemplate": f"<b>{one.name}</b><br>{frame.x_title} %{{x:.4~g}}<br>{statistic} <b>%{{y:.5~g}}</b>"
                         "<extra></extra>"}
