"""Drawings above each other over one common axis: where each stands, its value axis, and its own edges for marks.

It draws nothing by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pages.ui import theme
from pages.ui.charts import marks, value_axis
from pages.ui.charts.axes import axis_for, finite_range
from pages.ui.charts.marks import Frame, Part, Text

GAP = 0.09
"""Room above a drawing for its name, as a share of the height of all: beside a low drawing a title would not fit."""

EDGES = 50
"""The number of the axis on which the marks at the edges of the first drawing stand."""


def axes(place: int) -> tuple[str, str]:
    """Return the names of the value axis of the `place`-th drawing from the top, and of the axis of its edges."""
    return f"y{place + 1}" if place else "y", f"y{EDGES + place}"


def layout(titles: Sequence[str], values: Sequence[NDArray[np.floating]], frame: Frame, t: Text) -> Part:
    """Return the layout of so many drawings as there are `titles` of value axes, of the frame's scale, log or linear.

    `values`: all that is drawn in each. The common axis is `xaxis`, still to be set.
    """
    found = marks.layout(frame, "") | {"shapes": [], "annotations": []}
    height, gap = 1 / max(len(titles), 1), GAP if len(titles) > 1 else 0.0
    for place, (title, drawn) in enumerate(zip(titles, values, strict=True)):
        name, edge = axes(place)
        top = 1 - place * height
        shown = finite_range(drawn, frame.y_scale)
        beside = "" if gap else title
        made = value_axis.layout(shown, Frame("", "", beside, frame.y_scale), axis_for(frame.y_scale, drawn), t)
        linear = {"zeroline": True, "nticks": max(3, 8 // len(titles))} if frame.y_scale == "linear" else {}
        found[f"yaxis{name[1:]}"] = made["yaxis"] | linear | {"domain": [max(top - height, 0), top - gap]}
        found[f"yaxis{edge[1:]}"] = marks.EDGE_AXIS | {"overlaying": name}
        found["annotations"] += [note | {"yref": f"{name} domain"} for note in made["annotations"]]
        found["annotations"] += [_above(title, name)] if gap else []
        found["shapes"] += [shape | {"yref": name} for shape in made["shapes"]]
    return found | {"xaxis": {"title": {"text": frame.x_title}, "anchor": axes(max(len(titles) - 1, 0))[0]}}


def _above(title: str, axis: str) -> Part:
    """Return the name of a drawing's value axis, above it."""
    return {"text": title, "xref": "paper", "yref": f"{axis} domain", "x": 0, "y": 1, "xanchor": "left",
            "yanchor": "bottom", "font": {"size": theme.AXIS_PX}}
