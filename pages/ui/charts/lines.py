"""One statistic over depth, a line a variant: at one step, or as a film over the steps of a training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from pages.ui.charts import marks, value_axis
from pages.ui.charts.axes import F64, Axis, Mask, axis_for, finite_range, first_sizes
from pages.ui.charts.marks import MAX_TRACES, Frame, Series, Text
from pages.ui.charts.value_axis import HOVERED

MAX_MARKED_LAYERS = 64
"""Up to this many points a line shows each of them."""

EXTRA_WIDTH = 2
"""Pixels by which a line is wider than the one drawn over it."""

FILM_DIGITS = 7
"""Significant digits of a place in a film: beyond what a screen shows, and short to send."""


@dataclass(frozen=True)
class Film:
    """The same lines at many steps. `steps`: (N,); `values`: of each line, (N, its layers).

    `non_finite`: entries that were not finite, of each line, as `values`; empty for none anywhere.
    """

    steps: Sequence[int]
    values: Sequence[F64]
    non_finite: Sequence[F64] = ()

    def at(self, series: Sequence[Series], place: int) -> list[Series]:
        """Return the lines as they are at the `place`-th step."""
        counts = self.non_finite or [np.empty((len(self.steps), 0))] * len(series)
        return [replace(one, values=values[place], non_finite=count[place])
                for one, values, count in zip(series, self.values, counts, strict=True)]


def profile(series: Sequence[Series], frame: Frame, t: Text, film: Film | None = None) -> go.Figure:
    """Draw one line per variant over depth. ValueError for an unknown scale or more than 60 traces.

    With a film the axis holds for all its steps, each line has its triangles, if none, and ``layout.meta`` the film:
    ``{"film": {"steps", "traces": {"0": {"y": [of each step]}}, "notes"}}``. The keys of `traces` are places in `data`,
    the names in them attributes of a trace (of the triangles: x, y, text, marker). `notes`: the subtitle of each step.
    """
    filmed = [one.ravel() for one in film.values] if film else []
    values = np.concatenate([marks.nothing(), *(one.values for one in series), *filmed])
    axis = axis_for(frame.y_scale, values, first_sizes(film.values) if film else None)
    drawable = [axis.has_place(one.values) for one in series]
    traces = list(_traces(series, drawable, axis, frame, t, film is not None))
    if len(traces) > MAX_TRACES:
        raise ValueError(f"a profile has at most {MAX_TRACES} traces, these are {len(traces)}: draw fewer variants")
    last = max((int(one.layers.max()) for one in series if one.layers.size), default=0)
    figure = go.Figure(traces, marks.layout(frame, marks.notes(series, frame.y_scale == "log", t)))
    figure.update_layout(xaxis=marks.layer_axis(last, frame, t), yaxis2=marks.EDGE_AXIS)
    shown = finite_range(values, frame.y_scale)
    value_axis.draw(figure, shown, frame, axis, t)
    if film:
        figure.update_layout(meta={"film": _film(film, series, axis, frame, t)})
        if shown:
            value_axis.hold(figure, shown, axis)
    return figure


def _traces(series: Sequence[Series], drawable: Sequence[Mask], axis: Axis, frame: Frame, t: Text,
            always: bool) -> Iterator[go.Scatter]:
    """Yield a line for each variant, and its triangles where it has gaps, or `always`."""
    looks = [(one.style.color, one.style.dash) for one in series]
    for row, (one, mask) in enumerate(zip(series, drawable, strict=True)):
        line = _line(one, axis, len(series) - 1 - row, frame, t)
        if looks.count(looks[row]) > 1:
            _name_at_end(line, one, mask)
        yield line
        if always or not mask.all() or one.in_part.any():
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


def _name_at_end(line: go.Scatter, one: Series, mask: NDArray[np.bool_]) -> None:
    """Write the name of a line beside its last value, where colour and dash do not tell it from another."""
    places = np.flatnonzero(mask)
    names = [""] * len(mask)
    if places.size:
        names[places[-1]] = f"{marks.literal(one.name)} "
    line.update(mode="lines+markers+text", text=names, textposition="middle left", textfont={"color": one.style.color},
                marker={"size": line.marker.size + 4})


def _film(film: Film, series: Sequence[Series], axis: Axis, frame: Frame, t: Text) -> dict[str, object]:
    """Return what a player puts into the traces at each step; lines and triangles take turns in them."""
    traces: dict[str, dict[str, list[object]]] = {}
    notes = []
    for place in range(len(film.steps)):
        now = film.at(series, place)
        notes.append(marks.notes(now, frame.y_scale == "log", t))
        for row, one in enumerate(now):
            for number, part in enumerate((_placed(one, axis), _edges(one, ~axis.has_place(one.values), row, t))):
                kept = traces.setdefault(str(2 * row + number), {})
                for name, values in part.items():
                    kept.setdefault(name, []).append(values)
    return {"steps": [int(step) for step in film.steps], "traces": traces, "notes": notes}


def _placed(one: Series, axis: Axis) -> dict[str, object]:
    found: dict[str, object] = {"y": _short(axis.place(one.values))}
    return found | {"customdata": _short(one.values)} if HOVERED[axis.scale][1] else found


def _edges(one: Series, gaps: Mask, row: int, t: Text) -> dict[str, object]:
    at = marks.edges(one, gaps, row, t) if (gaps | one.in_part).any() else marks.NO_EDGES
    return {"x": at.x.tolist(), "y": at.y.tolist(), "text": at.texts, "marker": marks.edge_marker(one, at)}


def _short(values: NDArray[np.floating]) -> list[float | None]:
    return [float(f"{value:.{FILM_DIGITS}g}") if np.isfinite(value) else None for value in values.tolist()]
