"""Drawings above each other over one common axis: where each stands, its value axis, and its own edges for marks.

It draws nothing by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pages.ui.charts import marks, value_axis
from pages.ui.charts.axes import axis_for, finite_range
from pages.ui.charts.marks import Frame, Part, Text

GAP = 0.09
"""Room between two drawings, as a share of the height of all."""

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
    height = (1 + GAP) / max(len(titles), 1)
    for place, (title, drawn) in enumerate(zip(titles, values, strict=True)):
        name, edge = axes(place)
        top = 1 - place * height
        shown = finite_range(drawn, frame.y_scale)
        made = value_axis.layout(shown, Frame("", "", title, frame.y_scale), axis_for(frame.y_scale, drawn), t)
        linear = {"zeroline": True, "nticks": 6} if frame.y_scale == "linear" else {}
        found[f"yaxis{name[1:]}"] = made["yaxis"] | linear | {"domain": [max(top - height + GAP, 0), top]}
        found[f"yaxis{edge[1:]}"] = marks.EDGE_AXIS | {"overlaying": name}
        found["annotations"] += [note | {"yref": f"{name} domain"} for note in made["annotations"]]
        found["shapes"] += [shape | {"yref": name} for shape in made["shapes"]]
    return found | {"xaxis": {"title": {"text": frame.x_title}, "anchor": axes(max(len(titles) - 1, 0))[0]}}
