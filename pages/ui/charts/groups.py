"""A few numbers of each of a few named things, as groups of bars from 0, each number written on its bar.

A number that is not finite is no bar: "–" stands in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import plotly.graph_objects as go

from pages.ui import theme
from pages.ui.charts import marks
from pages.ui.charts.axes import F64
from pages.ui.charts.marks import Frame, Part, Text, nothing

HATCHES = ("", "/", "x", ".")
"""Patterns of the members of a group, which say again what their colours say."""

HATCHED = {"fillmode": "overlay", "fgcolor": "#ffffff", "fgopacity": 0.8, "size": 9}

COLORS = (theme.BELOW_COLOR, theme.ABOVE_COLOR, theme.NORM_COLORS["groupnorm"], theme.NORM_COLORS["rmsnorm"])


@dataclass(frozen=True, eq=False)
class Member:
    """One number of every thing, (n,), may hold NaN; `low`, `high`: (n,), the ends of its spread, or empty."""

    name: str
    values: F64
    low: F64 = field(default_factory=nothing)
    high: F64 = field(default_factory=nothing)


def groups(things: Sequence[str], members: Sequence[Member], frame: Frame, t: Text) -> go.Figure:
    """Draw a group of bars a thing, a bar a member, at most as many members as there are HATCHES."""
    figure = marks.layout(frame, "") | {
        "barmode": "group", "bargap": 0.25, "bargroupgap": 0.06,
        "xaxis": {"title": {"text": frame.x_title}, "type": "category", "tickangle": 0, "showgrid": False},
        "yaxis": {"title": {"text": frame.y_title}, "rangemode": "tozero"},
        "annotations": [] if any(np.isfinite(one.values).any() for one in members) else [marks.nothing_said(t)]}
    return go.Figure([_bar(things, one, place, frame) for place, one in enumerate(members)], figure)


def _bar(things: Sequence[str], one: Member, place: int, frame: Frame) -> Part:
    finite = np.isfinite(one.values)
    unit = f" {frame.unit}" if frame.unit else ""
    drawn: Part = {
        "type": "bar", "x": [_broken(marks.literal(name)) for name in things], "y": np.where(finite, one.values, 0),
        "name": one.name, "uid": f"member{place}", "textposition": "outside", "cliponaxis": False, "textangle": 0,
        "text": [f"{value:.3g}" if known else "–" for value, known in zip(one.values.tolist(), finite, strict=True)],
        "marker": {"color": COLORS[place], "pattern": {"shape": HATCHES[place], **HATCHED}},
        "hovertemplate": f"<b>%{{x}}</b><br>{one.name}<br>{frame.statistic} <b>%{{text}}</b>{unit}<extra></extra>"}
    if one.high.size:
        ends = np.where(finite, one.high - one.values, 0), np.where(finite, one.values - one.low, 0)
        drawn["error_y"] = {"type": "data", "array": ends[0], "arrayminus": ends[1], "symmetric": False, "width": 4,
                            "color": theme.OTHER_COLOR}
    return drawn


def _broken(name: str) -> str:
    """Break a long name before its bracket."""
    return name.replace(" (", "<br>(").replace("（", "<br>（")
