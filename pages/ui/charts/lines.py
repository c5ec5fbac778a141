"""One statistic over depth, a line a variant: at one step, or as a film over the steps of a training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from pages.ui.charts import marks, value_axis
from pages.ui.charts.axes import F64, Axis, Mask, axis_for, finite_range, first_sizes, narrow
from pages.ui.charts.marks import MAX_TRACES, Frame, Part, Series, Text
from pages.ui.charts.value_axis import HOVERED

EXTRA_WIDTH = 2
"""Pixels by which a line is wider than the one drawn over it."""


MODES = {"line": "", "points": "markers", "prediction": "lines"}
"""Role of a series → how it is drawn; "" as its number of points asks for."""


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
    the names in them attributes of a trace (of the triangles: x, y, text, marker; none where no step has any). `notes`:
    the subtitle of each step.
    """
    filmed = [one.ravel() for one in film.values] if film else []
    values = np.concatenate([marks.nothing(), *(one.values for one in series), *filmed])
    axis = axis_for(frame.y_scale, values, first_sizes(film.values) if film else None)
    drawable = [axis.has_place(one.values) for one in series]
    traces = list(_traces(series, drawable, axis, frame, t, film is not None))
    if len(traces) > MAX_TRACES:
        raise ValueError(f"a profile has at most {MAX_TRACES} traces, these are {len(traces)}: draw fewer variants")
    last = max((int(one.layers.max()) for one in series if one.layers.size), default=0)
    shown = finite_range(values, frame.y_scale)
    layout = marks.layout(frame, marks.notes(series, frame.y_scale == "log", t)) | value_axis.layout(
        shown, frame, axis, t) | {"xaxis": marks.layer_axis(last, frame, t), "yaxis2": marks.EDGE_AXIS}
    if film:
        layout["meta"] = {"film": _film(film, series, axis, frame, t)}
        layout["shapes"] += [value_axis.held(shown, axis)] if shown else []
    return go.Figure(traces, layout)


def _traces(series: Sequence[Series], drawable: Sequence[Mask], axis: Axis, frame: Frame, t: Text,
            always: bool) -> Iterator[Part]:
    """Yield a line for each variant, and its triangles where it has gaps, or `always`."""
    looks = [(one.style.color, one.style.dash, one.role) for one in series]
    for row, (one, mask) in enumerate(zip(series, drawable, strict=True)):
        above = 0 if one.beside else sum(not other.beside for other in series[row + 1:])
        line = line_of(one, axis, above, frame, t)
        yield line | _name_at_end(line, one, mask) if looks.count(looks[row]) > 1 else line
        if always or not mask.all() or one.in_part.any():
            yield marks.triangles(one, ~mask, row, marks.hover(one, frame, t), t)


def line_of(one: Series, axis: Axis, above: int, frame: Frame, t: Text) -> Part:
    """Draw the values that have a place; the rest is NaN, which Plotly leaves open.

    `above`: how many lines are drawn after this one; it is wider than they are, so that it shows where they cover it.
    """
    extra = EXTRA_WIDTH * min(above, 3)
    value, kept = HOVERED[axis.scale]
    unit = f" {frame.unit}" if frame.unit else ""
    return {
        "type": "scatter", "x": np.asarray(one.layers, dtype=np.int32), "y": axis.place(one.values),
        "customdata": np.asarray(one.values, np.float64) if kept else None,
        "name": marks.literal(one.name), "uid": marks.uid(one), "legendgroup": marks.group(one),
        "showlegend": not one.beside,
        "mode": MODES[one.role] or "lines+markers", "connectgaps": False,
        "line": {"color": one.style.color, "dash": "dot" if one.role == "prediction" else one.style.dash,
                 "width": 3 if one.role == "prediction" else 3 + extra},
        "marker": marks.symbol(one.style, 8 + extra, len(one.layers)),
        "hovertemplate": f"{marks.hover(one, frame, t)}<br><b>{value}</b>{unit}<extra></extra>",
    }


def _name_at_end(line: Part, one: Series, mask: NDArray[np.bool_]) -> Part:
    """Write the name of a line beside its last value, where colour and dash do not tell it from another."""
    places = np.flatnonzero(mask)
    names = [""] * len(mask)
    if places.size:
        names[places[-1]] = f"{marks.literal(one.name)} "
    return {"mode": "lines+markers+text", "text": names, "textposition": "middle left",
            "marker": line["marker"] | {"size": line["marker"]["size"] + 4}}


def _film(film: Film, series: Sequence[Series], axis: Axis, frame: Frame, t: Text) -> Part:
    """Return what a player puts into the traces at each step; lines and triangles take turns in them."""
    counts = film.non_finite or [np.zeros(values.shape) for values in film.values]
    gaps = [~axis.has_place(values) for values in film.values]
    marked = [gap | (count > 0) for gap, count in zip(gaps, counts, strict=True)]
    told = np.any([one.any(axis=1) for one in marked], axis=0) if marked else np.zeros(len(film.steps), bool)
    traces: dict[str, Part] = {}
    for row, (one, values) in enumerate(zip(series, film.values, strict=True)):
        traces[str(2 * row)] = _placed(values, axis)
        traces[str(2 * row + 1)] = _edges(one, Film(film.steps, [values], [counts[row]]), gaps[row], row, t)
    notes = [marks.notes(film.at(series, place), frame.y_scale == "log", t) if told[place] else ""
             for place in range(len(film.steps))]
    return {"steps": list(map(int, film.steps)), "traces": traces, "notes": notes}


def _placed(values: F64, axis: Axis) -> Part:
    found = {"y": narrow(axis.place(values))}
    return found | {"customdata": narrow(values)} if HOVERED[axis.scale][1] else found


def _edges(one: Series, film: Film, gaps: Mask, row: int, t: Text) -> Part:
    """Return the triangles of a line at each step; nothing where no step has any.

    Many steps are alike, such as all after the first that is broken: they are made once, and shared.
    """
    (values,), (counts,) = film.values, film.non_finite
    marked = gaps | ((counts > 0) & np.isfinite(values))
    if not marked.any():
        return {}
    known: dict[bytes, Part] = {}
    keys = []
    for place, here in enumerate(marked):
        keys.append(here.tobytes() + values[place, here].tobytes() + counts[place, here].tobytes())
        if keys[-1] not in known:
            at = marks.edges(replace(one, values=values[place], non_finite=counts[place]), gaps[place], row, t)
            known[keys[-1]] = {"x": at.x.tolist(), "y": at.y.tolist(), "text": at.texts,
                               "marker": marks.edge_marker(one, at)}
    return {name: [known[key][name] for key in keys] for name in ("x", "y", "text", "marker")}
