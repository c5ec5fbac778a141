"""Numbers of a few dozen things as bars from 0, one drawing above another over the same things.

What is below 0 has a colour of its own. A value that is not finite is no bar: it is a triangle at the edge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from pages.ui import theme
from pages.ui.charts import marks, stacks
from pages.ui.charts.axes import number
from pages.ui.charts.marks import Frame, Part, Text

SLIM = 128
"""More bars have no gap between them."""


@dataclass(frozen=True, eq=False)
class Bars:
    """One drawing. `values`: (n,), may hold NaN and ±Inf; `title`: of its value axis; `statistic`: what a number is.

    `references`: words → value of dotted lines, named in the legend; `chosen`: a bar that is hatched and has its
    number at its end.
    """

    values: NDArray[np.floating]
    title: str
    statistic: str
    references: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    chosen: int | None = None


def bars(drawings: Sequence[Bars], frame: Frame, t: Text, common: bool = False) -> go.Figure:
    """Draw them from the top down; `x_title` says what is counted from 0, and values have the frame's `unit`.

    `common`: the value axes of all reach as far, and a zoom moves them together.
    """
    figure = stacks.layout([one.title for one in drawings], [one.values for one in drawings], frame, t)
    for place in range(1, len(drawings) if common else 1):
        figure[f"yaxis{place + 1}"]["matches"] = "y"
    n = max((len(one.values) for one in drawings), default=1)
    traces = [trace for place, one in enumerate(drawings)
              for trace in (*_traces(one, place, frame, t), *_references(one, place, n))]
    series = [marks.Series(one.statistic, np.arange(len(one.values)), one.values) for one in drawings]
    figure |= {"title": marks.title(frame, marks.notes(series, False, t)),
               "showlegend": any(one.references for one in drawings), "bargap": 0.15 if n <= SLIM else 0}
    figure["xaxis"] |= {"range": [-0.6, n - 0.4], "autorange": False, "nticks": 16, "zeroline": False,
                        **({"dtick": 1} if n <= 16 else {})}
    return go.Figure(traces, figure)


def _traces(one: Bars, place: int, frame: Frame, t: Text) -> list[Part]:
    """Return the bars of one drawing, and the triangles of what has no place."""
    axis, edge = stacks.axes(place)
    x, finite = np.arange(len(one.values), dtype=np.int32), np.isfinite(one.values)
    where = f"{frame.x_title} %{{x}}<br>{one.statistic}"
    unit = f" {frame.unit}" if frame.unit else ""
    drawn: Part = {
        "type": "bar", "x": x, "y": np.where(finite, one.values, np.nan), "yaxis": axis, "name": one.statistic,
        "uid": f"bars{place}", "showlegend": False,
        "marker": {"color": np.where(one.values < 0, theme.BELOW_COLOR, theme.ABOVE_COLOR).tolist(),
                   "line": {"width": 0}, **_hatched(one)}, **_numbered(one),
        "hovertemplate": f"{where}<br><b>%{{y:.5~g}}</b>{unit}<extra></extra>"}
    series = marks.Series(one.statistic, x, one.values, theme.Style(theme.WARNING_COLOR))
    return [drawn, *([] if finite.all() else [marks.triangles(series, ~finite, 0, where, t, ("x", edge))])]


def _hatched(one: Bars) -> Part:
    if one.chosen is None:
        return {}
    shapes = ["/" if place == one.chosen else "" for place in range(len(one.values))]
    return {"pattern": {"shape": shapes, "fgcolor": "#ffffff", "size": 10, "solidity": 0.25, "fillmode": "overlay"}}


def _numbered(one: Bars) -> Part:
    """Write the number of the chosen bar at its end; nothing for a bar that is none."""
    if one.chosen is None:
        return {}
    said = [number(value) if place == one.chosen and np.isfinite(value) else ""
            for place, value in enumerate(one.values.tolist())]
    return {"text": said, "textposition": "outside", "textfont": {"size": theme.TITLE_PX}, "cliponaxis": False}


def _references(one: Bars, place: int, n: int) -> list[Part]:
    """Return dotted lines from edge to edge of n bars; their names would have no room among these."""
    return [{"type": "scatter", "x": [-0.6, n - 0.4], "y": [value, value], "yaxis": stacks.axes(place)[0],
             "mode": "lines", "name": words, "line": {"color": theme.OTHER_COLOR, "dash": "2px,4px", "width": 3},
             "hoverinfo": "skip"} for words, value in one.references.items()]
