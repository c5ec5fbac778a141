"""The value axis of lines: its range, what the hover says of it, and references beside the data.

The file draws nothing that was measured.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pages.ui.charts import marks
from pages.ui.charts.axes import SCALES, Axis
from pages.ui.charts.marks import Frame, Part, Text

ROOM, NAMED = 0.08, 0.14
"""Of an axis that holds for a film, and above the values under a reference's name, as shares of the values' span."""

HOVERED: dict[str, tuple[str, bool]] = {
    "linear": ("%{y:.5~g}", False), "log": ("%{y:.5~g}", False), "symlog": ("%{customdata:.5~g}", True),
}
"""Scale → where the hover finds the number, and whether it has to be sent beside the place on the axis."""


def layout(shown: tuple[float, float] | None, frame: Frame, axis: Axis, t: Text) -> Part:
    """Return a layout's value axis for values between those of `shown`, None for none, which is said.

    With it come the shapes and the annotations of references.
    """
    if shown is None:
        settings = axis.layout(frame.y_title)
        empty = {"range": [0, 1], "tickvals": [], "showgrid": False}
        return {"yaxis": settings | empty, "shapes": [], "annotations": [marks.nothing_said(t)]}
    near = {name: value for name, value in frame.references.items() if value / SCALES[axis.scale].near <= shown[1]}
    room = _ends(*shown, axis)
    far = [name for name in frame.references if name not in near]
    return {"yaxis": axis.reaching(*shown, *room, *near.values()).layout(frame.y_title),
            "shapes": [*([_unseen_line(axis.place(np.array(room)))] if room else []),
                       *([_beyond(room or shown, 0.0, NAMED, axis)] if far else []),
                       *(_reference(name, value, axis) for name, value in near.items())],
            "annotations": [_far(name, t) for name in far]}


def held(shown: tuple[float, float], axis: Axis) -> Part:
    """Return the shape that makes the axis hold for values between those of `shown` wherever they are.

    It has more room than a marker takes.
    """
    return _beyond(shown, ROOM, ROOM, axis)


def _beyond(shown: Sequence[float], below: float, above: float, axis: Axis) -> Part:
    """Return the shape that makes the axis reach beyond two values, by shares of their span."""
    low, high = axis.level(np.array(shown))
    with np.errstate(over="ignore", under="ignore"):
        levels = np.array([low - below * (high - low), high + above * (high - low)])
        return _unseen_line(np.nan_to_num(10.0**levels if axis.scale == "log" else levels))


def _unseen_line(places: NDArray[np.floating]) -> Part:
    """Return the shape that makes the axis reach two places.

    (`autorangeoptions.include` would say this, but plotly.js 4.1 takes the logarithm of a logarithmic range there.)
    """
    y0, y1 = places.tolist()
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 0, "y0": y0, "y1": y1, "opacity": 0}


def _ends(low: float, high: float, axis: Axis) -> tuple[float, ...]:
    """Return how far the axis of a constant has to reach, lest it shows rounding noise; nothing where it has a span."""
    factor = SCALES[axis.scale].span
    if axis.scale == "log":
        narrow, ends = high / low < factor, (low / factor**0.5, high * factor**0.5)
    else:
        room = (factor - 1.0) * max(abs(low), abs(high))
        narrow, ends = high - low < room, (low - room, high + room)
    return ends if narrow else ()


def _reference(name: str, value: float, axis: Axis) -> Part:
    """Return the dotted line of a reference."""
    at = float(axis.place(np.array(value)))
    label = {"text": name, "textposition": "end", "yanchor": "top", "padding": 6}
    return {"type": "line", "xref": "x domain", "yref": "y", "x0": 0, "x1": 1, "y0": at, "y1": at, "label": label,
            "line": {"dash": "2px,4px", "width": 2}}


def _far(name: str, t: Text) -> Part:
    """Return the name of a reference far above the values, at the edge."""
    return {"text": t("chart.above", name=name), "xref": "paper", "yref": "paper", "x": 0.01, "y": 1,
            "xanchor": "left", "yanchor": "top"}
