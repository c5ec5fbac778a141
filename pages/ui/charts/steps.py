"""One number over the steps of a training, or over time steps, a line a variant or several: one for each chosen layer.

Made to grow: a step more adds to the ends of arrays, and every trace keeps its place in the figure, if it is empty.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from pages.ui import theme
from pages.ui.charts import marks, value_axis
from pages.ui.charts.axes import SCALES, Axis, axis_for, finite_range, first_sizes
from pages.ui.charts.marks import MAX_TRACES, Frame, Part, Series, Text, nothing
from pages.ui.charts.value_axis import HOVERED

MAX_LABELS = 16
"""More lines have no number at their ends: there is no room."""

LABEL_GAP = 0.065
"""How far two of these numbers keep apart, as a share of the drawing's height."""

HEIGHT_PX = 275
"""How high a drawing with such numbers is, or a little less: in a higher one they only stand farther apart."""

SHADES = (0.13, 0.29)
"""Relative luminance of the first and the last of a variant's layers: 3:1 on white and on the dark background."""

RUG_STEP = 0.045
"""How much higher the events of the next variant stand."""


@dataclass(frozen=True)
class Sign:
    """How an event is drawn, and the keys of the words that count it and that its hover says."""

    symbol: str
    counted: str
    said: str


EVENTS: dict[str, Sign] = {
    "overflow": Sign("line-ns-open", "chart.event_overflow", "chart.event_at_overflow"),
    "non_finite": Sign("x-thin-open", "chart.event_non_finite", "chart.event_at_non_finite"),
}
"""What can happen at a step."""


@dataclass(frozen=True, order=True)
class Event:
    """Something that happened at a step. `kind`: a key of EVENTS."""

    step: int
    kind: str


@dataclass(frozen=True)
class Course:
    """One line over training: a variant, or one of its layers.

    `steps`: (N,), ascending; `values`: (N,), may hold NaN and ±Inf. `name` and `key` (default: name) are the variant's,
    the same for all of its lines; `layer`: what the layer is called, empty where the number is of the whole model;
    `non_finite`: as in Series; `events`: the variant's, given with any of its lines.
    """

    name: str
    steps: NDArray[np.integer]
    values: NDArray[np.floating]
    style: theme.Style = theme.NEUTRAL
    layer: str = ""
    site: str = ""
    key: str = ""
    non_finite: NDArray[np.floating] = field(default_factory=nothing, compare=False)
    events: tuple[Event, ...] = ()

    @property
    def variant(self) -> str:
        """What tells the variant from others in all languages."""
        return self.key or self.name

    @property
    def line(self) -> Series:
        """The line as marks take it: steps instead of layers."""
        key = f"{self.variant}/{self.layer}/{self.site}"
        return Series(self.name, self.steps, self.values, self.style, self.site, key, self.non_finite)


def steps(series: Sequence[Course], frame: Frame, t: Text, cursor: bool = False) -> go.Figure:
    """Draw the lines over steps. `cursor`: a player may show the step where it stands.

    Errors: ValueError for an unknown scale, an unknown kind of event or more than 60 traces: two a line, one a variant.
    """
    series = _shaded(series)
    values = np.concatenate([nothing(), *(one.values for one in series)])
    axis = axis_for(frame.y_scale, values, first_sizes([one.values for one in series]))
    variants = _variants(series)
    if (count := 2 * len(series) + len(variants)) > MAX_TRACES:
        raise ValueError(f"a chart over steps has at most {MAX_TRACES} traces, these are {count}: draw fewer lines")
    traces = [*(trace for row, one in enumerate(series) for trace in _traces(one, row, variants, axis, frame, t)),
              *(_rug(lines, row, t) for row, lines in enumerate(variants.values()))]
    shown = finite_range(values, frame.y_scale)
    layout = marks.layout(frame, _notes(series, variants, frame, t)) | value_axis.layout(shown, frame, axis, t) | {
        "xaxis": marks.step_axis([one.steps for one in series], frame, t), "yaxis2": marks.EDGE_AXIS,
        "meta": {"cursor": True} if cursor else None}
    ends = _labels(series, variants, axis, shown) if shown else []
    if ends:
        layout["annotations"] = ends + layout["annotations"]
        layout["margin"] |= {"r": 24 + 9 * max(len(end["text"]) for end in ends)}
    return go.Figure(traces, layout)


def _variants(series: Sequence[Course]) -> dict[str, list[Course]]:
    found: dict[str, list[Course]] = {}
    for one in series:
        found.setdefault(one.variant, []).append(one)
    return found


def _traces(one: Course, row: int, variants: dict[str, list[Course]], axis: Axis, frame: Frame,
            t: Text) -> Iterator[Part]:
    """Yield the line and its triangles. The legend names a variant once, and hides all of its lines."""
    line, first = one.line, variants[one.variant][0]
    value, kept = HOVERED[axis.scale]
    unit = f" {frame.unit}" if frame.unit else ""
    says, group = _says(one, frame, t), marks.uid(first.line)
    yield {
        "type": "scatter", "x": np.asarray(one.steps, np.int32), "y": axis.place(one.values),
        "customdata": np.asarray(one.values, np.float64) if kept else None,
        "name": marks.literal(one.name), "uid": marks.uid(line), "legendgroup": group, "showlegend": one is first,
        "mode": "lines+markers", "connectgaps": False,
        "line": {"color": one.style.color, "dash": one.style.dash, "width": 3},
        "marker": marks.symbol(one.style, 8, len(one.steps)),
        "hovertemplate": f"{says}<br><b>{value}</b>{unit}<extra></extra>"}
    yield marks.triangles(line, ~axis.has_place(one.values), row, says, t) | {"legendgroup": group}


def _says(one: Course, frame: Frame, t: Text) -> str:
    layer = f"{t('chart.layer')} {marks.literal(one.layer)}" if one.layer else ""
    where = " · ".join(part for part in (layer, one.site, frame.statistic) if part)
    return f"<b>{marks.literal(one.name)}</b><br>{frame.x_title or t('chart.step')} %{{x}}<br>{where}"


def _events(lines: Sequence[Course]) -> list[Event]:
    """Return a variant's events, each once, as they came."""
    return sorted({event for one in lines for event in one.events})


def _rug(lines: Sequence[Course], row: int, t: Text) -> Part:
    """Draw a variant's events as a row of strokes at the bottom, a row a variant."""
    events, one = _events(lines), lines[0]
    for event in events:
        if event.kind not in EVENTS:
            raise ValueError(f"the kind of an event is {event.kind!r}; allowed are {', '.join(EVENTS)}")
    return {
        "type": "scatter", "x": np.array([event.step for event in events], np.int32),
        "y": np.full(len(events), 0.03 + RUG_STEP * (row % 8)), "yaxis": "y2", "mode": "markers",
        "name": marks.literal(one.name), "uid": f"{marks.uid(one.line)}events", "legendgroup": marks.uid(one.line),
        "showlegend": False, "cliponaxis": False,
        "marker": {"symbol": [EVENTS[event.kind].symbol for event in events], "size": 16, "color": one.style.color,
                   "line": {"width": 3, "color": one.style.color}},
        "text": [t(EVENTS[event.kind].said) for event in events],
        "hovertemplate": f"<b>{marks.literal(one.name)}</b><br>{t('chart.step')} %{{x}}<br>%{{text}}<extra></extra>"}


def _notes(series: Sequence[Course], variants: dict[str, list[Course]], frame: Frame, t: Text) -> str:
    kinds = [event.kind for lines in variants.values() for event in _events(lines)]
    said = [t(sign.counted, count=kinds.count(kind)) for kind, sign in EVENTS.items() if kind in kinds]
    gaps = marks.notes([one.line for one in series], frame.y_scale == "log", t)
    return " · ".join([*([gaps] if gaps else []), *said])


def _labels(series: Sequence[Course], variants: dict[str, list[Course]], axis: Axis,
            shown: tuple[float, float]) -> list[Part]:
    """Write the last value at a line's end where colour and dash do not tell whose it is, and the layer or the name."""
    looks = [variants[one.variant][0].style for one in series]
    alike = [(look.color, look.dash) for look in looks]
    confused = [one for one, look in zip(series, alike, strict=True) if alike.count(look) > 1]
    ends = [end for one in confused if (end := _end(one, len(variants[one.variant]) > 1, axis))]
    if len(ends) > MAX_LABELS:
        return []
    low, high = axis.level(np.array(shown)).tolist()
    if axis.scale == "log":
        high = max(high, low + math.log10(SCALES["log"].span))  # no log axis is shorter, however alike the lines are
    ends.sort(key=lambda end: (end.step, end.level))
    return [{"x": end.step, "y": end.level, "text": end.text, "xanchor": "left", "xshift": 8, "yanchor": "middle",
             "yshift": round(height * HEIGHT_PX)}
            for _, together in groupby(ends, key=lambda end: end.step)
            for end, height in _apart(list(together), low, high or 1.0)]


@dataclass(frozen=True)
class _End:
    step: int
    level: float
    text: str


def _end(one: Course, several: bool, axis: Axis) -> _End | None:
    """Return what stands at a line's end, at its last value that has a place."""
    places = np.flatnonzero(axis.has_place(one.values))
    if not places.size:
        return None
    value = one.values[places[-1]]
    whose = one.layer if several else one.name
    return _End(int(one.steps[places[-1]]), float(axis.level(value)),
                f"{marks.literal(marks.shortened(whose, 6))} · {value:.3g}")


def _apart(ends: Sequence[_End], low: float, high: float) -> list[tuple[_End, float]]:
    """Return by which share of the height each label moves, so that those of one step do not cover each other."""
    heights = [(end.level - low) / ((high - low) or 1.0) for end in ends]
    moved: list[float] = []
    for height in heights:
        moved.append(max(height, moved[-1] + LABEL_GAP) if moved else height)
    down = max(0.0, moved[-1] - max(heights[-1], 1.0))
    moved = [height - down for height in moved]
    for place in range(len(moved) - 2, -1, -1):
        moved[place] = min(moved[place] + down, moved[place + 1] - LABEL_GAP)
    return [(end, place - height) for end, place, height in zip(ends, moved, heights, strict=True)]


def _shaded(series: Sequence[Course]) -> list[Course]:
    """Return the lines with a shade of the variant's colour for each of its layers, from dark to light."""
    found = list(series)
    for lines in _variants(series).values():
        for one, light in zip(lines, np.geomspace(*SHADES, len(lines)).tolist(), strict=True):
            style = replace(one.style, color=_shade(one.style.color, light)) if len(lines) > 1 else one.style
            found[next(place for place, other in enumerate(series) if other is one)] = replace(one, style=style)
    return found


def _shade(color: str, light: float) -> str:
    """Return the colour at a relative luminance, of the same hue: towards black, or towards white.

    Source: relative luminance of WCAG 2.2.
    """
    coded = np.array([int(color[start: start + 2], 16) for start in (1, 3, 5)]) / 255
    linear = np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)
    now = float(linear @ (0.2126, 0.7152, 0.0722))
    mixed = linear * (light / now) if light < now else linear + (1 - linear) * (light - now) / (1 - now)
    back = np.where(mixed <= 0.0031308, mixed * 12.92, 1.055 * mixed ** (1 / 2.4) - 0.055)
    return "#" + "".join(f"{round(255 * part):02x}" for part in back.tolist())
