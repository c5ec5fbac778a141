"""One statistic over depth, a line a variant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from pages.ui.charts import marks
from pages.ui.charts.axes import SCALES, Axis, Mask, axis_for, finite_range
from pages.ui.charts.marks import MAX_TRACES, Frame, Series, Text

MAX_MARKED_LAYERS = 64
"""Up to this many points a line shows each of them."""

EXTRA_WIDTH = 2
"""Pixels by which a line is wider than the one drawn over it."""


def profile(series: Sequence[Series], frame: Frame, t: Text) -> go.Figure:
    """Draw one line per variant over depth. ValueError for an unknown scale or more than 60 traces."""
    axis = axis_for(frame.y_scale, np.concatenate([one.values for one in series] or [marks.nothing()]))
    drawable = [axis.has_place(one.values) for one in series]
    traces = list(_traces(series, drawable, axis, frame, t))
    if len(traces) > MAX_TRACES:
        raise ValueError(f"a profile has at most {MAX_TRACES} traces, these are {len(traces)}: draw fewer variants")
    last = max((int(one.layers.max()) for one in series if one.layers.size), default=0)
    figure = go.Figure(traces, marks.layout(frame, marks.notes(series, frame.y_scale == "log", t)))
    figure.update_layout(xaxis=marks.layer_axis(last, frame, t),
                         yaxis2={"overlaying": "y", "range": [0, 1], "fixedrange": True, "visible": False})
    values = np.concatenate([one.values[mask] for one, mask in zip(series, drawable, strict=True)] or [marks.nothing()])
    shown = finite_range(values, frame.y_scale)
    if shown is None:
        figure.update_layout(yaxis=axis.layout(frame.y_title) | _BARE)
        return marks.say_nothing(figure, t)
    figure.update_layout(yaxis=axis.layout(frame.y_title))
    _widen(figure, *shown, axis)
    _draw_references(figure, shown[1], frame, axis, t)
    return figure


_BARE = {"range": [0, 1], "tickvals": [], "showgrid": False}


def _traces(series: Sequence[Series], drawable: Sequence[Mask], axis: Axis, frame: Frame,
            t: Text) -> Iterator[go.Scatter]:
    """Yield a line for each variant, and its triangles where it has gaps."""
    looks = [(one.style.color, one.style.dash) for one in series]
    for row, (one, mask) in enumerate(zip(series, drawable, strict=True)):
        line = _line(one, axis, len(series) - 1 - row, frame, t)
        if looks.count(looks[row]) > 1:
            _name_at_end(line, one, mask)
        yield line
        if not mask.all() or one.in_part.any():
            yield marks.triangles(one, ~mask, row, marks.hover(one, frame, t), t)


def _line(one: Series, axis: Axis, above: int, frame: Frame, t: Text) -> go.Scatter:
    """Draw the values that have a place; the rest is NaN, which Plotly leaves open.

    `above`: how many lines are drawn after this one; it is wider than they are, so that it shows where they cover it.
    """
    extra = EXTRA_WIDTH * min(above, 3)
    points = len(one.layers) <= MAX_MARKED_LAYERS
    value, kept = HOVERED[axis.scale]
    unit = f" {frame.unit}" if frame.unit else ""
    return go.Scatter(
        x=np.asarray(one.layers, dtype=np.int32), y=axis.place(one.values),
        customdata=np.asarray(one.values, np.float64) if kept else None,
        name=marks.literal(one.name), uid=marks.uid(one), legendgroup=marks.uid(one),
        mode="lines+markers" if points else "lines", connectgaps=False,
        line={"color": one.style.color, "dash": one.style.dash, "width": 3 + extra},
        marker={"symbol": one.style.symbol, "size": 8 + extra},
        hovertemplate=f"{marks.hover(one, frame, t)}<br><b>{value}</b>{unit}<extra></extra>",
    )


HOVERED: dict[str, tuple[str, bool]] = {
    "linear": ("%{y:.5~g}", False), "log": ("%{y:.5~g}", False), "symlog": ("%{customdata:.5~g}", True),
}
"""Scale → where the hover finds the number, and whether it has to be sent beside the place on the axis."""


def _name_at_end(line: go.Scatter, one: Series, mask: NDArray[np.bool_]) -> None:
    """Write the name of a line beside its last value, where colour and dash do not tell it from another."""
    places = np.flatnonzero(mask)
    names = [""] * len(mask)
    if places.size:
        names[places[-1]] = f"{marks.literal(one.name)} "
    line.update(mode="lines+markers+text", text=names, textposition="middle left", textfont={"color": one.style.color},
                marker={"size": line.marker.size + 4})


def _widen(figure: go.Figure, low: float, high: float, axis: Axis) -> None:
    """Keep the axis of a constant from showing rounding noise: an invisible line makes room around it.

    (`autorangeoptions.include` would say this, but plotly.js 4.1 takes the logarithm of a logarithmic range there.)
    """
    factor = SCALES[axis.scale].span
    if axis.scale == "log":
        narrow, ends = high / low < factor, (low / factor**0.5, high * factor**0.5)
    else:
        room = (factor - 1.0) * max(abs(low), abs(high))
        narrow, ends = high - low < room, (low - room, high + room)
    if narrow:
        y0, y1 = axis.place(np.array(ends)).tolist()
        figure.add_shape(type="line", xref="paper", x0=0, x1=0, y0=y0, y1=y1, opacity=0)


def _draw_references(figure: go.Figure, high: float, frame: Frame, axis: Axis, t: Text) -> None:
    """Draw each reference as a dotted line, or name it at the edge when it is far above the data."""
    for name, value in frame.references.items():
        if value / SCALES[axis.scale].near <= high:
            label = {"text": name, "textposition": "end", "yanchor": "top", "padding": 6}
            at = float(axis.place(np.array(value)))
            figure.add_hline(y=at, line={"dash": "2px,4px", "width": 2}, label=label)
        else:
            far = t("chart.above", name=name)
            figure.add_annotation(text=far, xref="paper", yref="paper", x=0.01, y=1, xanchor="left", yanchor="top")
