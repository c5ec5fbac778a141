"""Numbers in, Plotly figure out: every picture of the product.

A chart is one entry in `CHARTS`. Words come in through `t`; the file knows neither a language nor Streamlit, and it
computes no measurement. What has no place on an axis (NaN, ±Inf, a zero on a logarithmic axis) is a gap with a triangle
at the edge that says what it is: never a zero, and never part of the axis range.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from zlib import crc32

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from pages.ui import theme

Text = Callable[..., str]
"""A `pages.ui.text.Words`: key and values → words."""

MAX_TRACES = 60
"""More is refused: a browser needs seconds for hundreds of lines."""

MAX_MARKED_LAYERS = 64
"""Up to this many points a line shows each of them."""

FLOAT16_MAX = 65504.0

NEAR = {"log": 1e4, "linear": 2.0}
"""A reference value within this factor of the data is drawn; a farther one is only named, to keep the data readable."""

EXTRA_WIDTH = 3
"""Pixels by which a line is wider than the one drawn over it."""

SPAN = {"log": 10.0, "linear": 1.1}
"""The least ratio of top to bottom of an axis: rounding noise of a constant shall look constant."""


@dataclass(frozen=True)
class Series:
    """One variant over depth. `layers`: −1 embed, 0 … L−1, L after the stack; `values` may hold NaN and ±Inf.

    `name` is what the visitor reads; `key` (default: name) is the same in all languages: a hidden line stays hidden.
    """

    name: str
    layers: NDArray[np.integer]
    values: NDArray[np.floating]
    style: theme.Style = theme.NEUTRAL
    site: str = ""
    key: str = ""


@dataclass(frozen=True)
class Frame:
    """What stands around the numbers, in the visitor's words.

    `y_scale`: linear or log; `references`: words → value of dotted lines, such as ``{"float16 max": FLOAT16_MAX}``.
    """

    title: str
    statistic: str
    y_title: str
    y_scale: str = "log"
    unit: str = ""
    x_title: str = ""
    references: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


def profile(series: Sequence[Series], frame: Frame, t: Text) -> go.Figure:
    """Draw one line per variant over depth. ValueError for an unknown scale or more than 60 traces."""
    if frame.y_scale not in NEAR:
        raise ValueError(f"y_scale is {frame.y_scale!r}; allowed are {', '.join(sorted(NEAR))}")
    drawable = [_drawable(one.values, frame.y_scale) for one in series]
    traces = list(_traces(series, drawable, frame, t))
    if len(traces) > MAX_TRACES:
        raise ValueError(f"a profile has at most {MAX_TRACES} traces, these are {len(traces)}: draw fewer variants")
    values = np.concatenate([one.values[mask] for one, mask in zip(series, drawable, strict=True)] or [np.empty(0)])
    figure = go.Figure(traces, _layout(series, frame, t))
    figure.update_layout(yaxis=_y_axis(values, frame))
    shown = finite_range(values, frame.y_scale)
    if shown is None:
        figure.add_annotation(text=t("chart.nothing"), xref="paper", yref="paper", x=0.5, y=0.5)
        return figure
    _widen(figure, *shown, frame.y_scale)
    _draw_references(figure, shown[1], frame, t)
    return figure


CHARTS: dict[str, Callable[[Sequence[Series], Frame, Text], go.Figure]] = {"profile": profile}


def finite_range(values: NDArray[np.floating], y_scale: str) -> tuple[float, float] | None:
    """Return the least and greatest value that the axis can show; None when there is none."""
    shown = values[_drawable(values, y_scale)]
    return (float(shown.min()), float(shown.max())) if shown.size else None


def _drawable(values: NDArray[np.floating], y_scale: str) -> NDArray[np.bool_]:
    """Say which values have a place on the axis."""
    finite: NDArray[np.bool_] = np.isfinite(values)
    return finite & (values > 0) if y_scale == "log" else finite


def _traces(
    series: Sequence[Series], drawable: Sequence[NDArray[np.bool_]], frame: Frame, t: Text
) -> Iterator[go.Scatter]:
    """Yield a line for each variant, and its triangles where it has gaps."""
    looks = [(one.style.color, one.style.dash) for one in series]
    for row, (one, mask) in enumerate(zip(series, drawable, strict=True)):
        line = _line(one, mask, len(series) - 1 - row, frame, t)
        if looks.count(looks[row]) > 1:
            _name_at_end(line, one, mask)
        yield line
        if not mask.all():
            yield _triangles(one, ~mask, row, frame, t)


def _line(one: Series, mask: NDArray[np.bool_], above: int, frame: Frame, t: Text) -> go.Scatter:
    """Draw the values that have a place; the rest is NaN, which Plotly leaves open.

    `above`: how many lines are drawn after this one; it is wider than they are, so that it shows where they cover it.
    """
    extra = EXTRA_WIDTH * min(above, 3)
    points = len(one.layers) <= MAX_MARKED_LAYERS
    return go.Scatter(
        x=np.asarray(one.layers, dtype=np.int32),
        y=np.where(mask, one.values, np.nan).astype(np.float64),
        name=_literal(one.name),
        uid=_uid(one),
        legendgroup=_uid(one),
        mode="lines+markers" if points else "lines",
        connectgaps=False,
        line={"color": one.style.color, "dash": one.style.dash, "width": 3 + extra},
        marker={"symbol": one.style.symbol, "size": 8 + extra},
        hovertemplate=_hover(one, frame, t, "%{y:.5~g}"),
    )


def _name_at_end(line: go.Scatter, one: Series, mask: NDArray[np.bool_]) -> None:
    """Write the name of a line beside its last value, where colour and dash do not tell it from another."""
    places = np.flatnonzero(mask)
    names = [""] * len(mask)
    if places.size:
        names[places[-1]] = f"{_literal(one.name)} "
    line.update(mode="lines+markers+text", text=names, textposition="top left", textfont={"color": one.style.color},
                marker={"size": line.marker.size + 4})


def _triangles(one: Series, gaps: NDArray[np.bool_], row: int, frame: Frame, t: Text) -> go.Scatter:
    """Mark each gap at the edge of the drawing (axis y2, 0 … 1): ▲ above for NaN and +Inf, ▼ below for the rest."""
    values = one.values[gaps]
    up = ~(values <= 0)  # NaN is not ≤ 0
    step = 0.035 * (row % 8)  # variants that break at the same layer stay visible side by side
    return go.Scatter(
        x=np.asarray(one.layers[gaps], dtype=np.int32),
        y=np.where(up, 1.0 - step, step),
        yaxis="y2",
        name=_literal(one.name),
        uid=f"{_uid(one)}gaps",
        legendgroup=_uid(one),
        showlegend=False,
        mode="markers",
        cliponaxis=False,
        marker={
            "color": one.style.color,
            "size": 14,
            "symbol": np.where(up, "triangle-up", "triangle-down").tolist(),
        },
        text=[_spelled(value) for value in values],
        hovertemplate=_hover(one, frame, t, "%{text}"),
    )


def _uid(one: Series) -> str:
    """Return an identity that stays when numbers and language change. Plotly puts it into CSS selectors: no signs."""
    return f"t{crc32((one.key or one.name).encode()):08x}"


def _spelled(value: float) -> str:
    """Write a value that the axis cannot show."""
    return {np.inf: "+Inf", -np.inf: "−Inf"}.get(value, "NaN" if np.isnan(value) else f"{value:.5g}")


def _hover(one: Series, frame: Frame, t: Text, value: str) -> str:
    """Say variant, layer, site, statistic, value and unit."""
    where = " · ".join(part for part in (one.site, frame.statistic) if part)
    unit = f" {frame.unit}" if frame.unit else ""
    return f"<b>{_literal(one.name)}</b><br>{t('chart.layer')} %{{x}}<br>{where}<br><b>{value}</b>{unit}<extra></extra>"


def _literal(text: str) -> str:
    """Return a visitor's text so that Plotly shows it as it is: no markup, no placeholders."""
    return html.escape(text, quote=False).replace("%{", "%\u200b{")


def _layout(series: Sequence[Series], frame: Frame, t: Text) -> dict[str, object]:
    """Return everything but the y axis. `uirevision` never changes: zoom and hidden lines outlive new numbers."""
    last = max((int(one.layers.max()) for one in series if one.layers.size), default=0)
    return {
        "template": theme.template("light"),
        "title": {"text": frame.title, "subtitle": {"text": _notes(series, frame, t)}},
        "uirevision": "keep",
        "hovermode": "closest",
        "margin": {"l": 8, "r": 24, "t": 8, "b": 8},
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.04, "xanchor": "left", "x": 0},
        "showlegend": True,
        "xaxis": {
            "title": {"text": frame.x_title or t("chart.layer")},
            "type": "category",
            "categoryarray": np.arange(-1, last + 1, dtype=np.int32),
            "labelalias": {"-1": t("chart.embed")},
            "nticks": 16,
            "tickangle": 0,
        },
        "yaxis2": {"overlaying": "y", "range": [0, 1], "fixedrange": True, "visible": False},
    }


def _y_axis(values: NDArray[np.floating], frame: Frame) -> dict[str, object]:
    """Let Plotly take the range from the drawn values.

    An explicit range would change with the data and throw away the visitor's zoom; so does a new scale, on purpose.
    """
    axis: dict[str, object] = {"title": {"text": frame.y_title}, "type": frame.y_scale, "uirevision": frame.y_scale}
    if frame.y_scale == "log":
        axis |= {"nticks": 6, "tickfont": {"size": theme.LOG_TICK_PX}}
    return axis if values.size else axis | {"range": [0, 1], "showticklabels": False, "showgrid": False, "ticks": ""}


def _widen(figure: go.Figure, low: float, high: float, y_scale: str) -> None:
    """Keep the axis of a constant from showing rounding noise: an invisible line makes room around it.

    (`autorangeoptions.include` would say this, but plotly.js 4.1 takes the logarithm of a logarithmic range there.)
    """
    factor = SPAN[y_scale]
    if y_scale == "log":
        narrow, ends = high / low < factor, (low / factor**0.5, high * factor**0.5)
    else:
        room = (factor - 1.0) * max(abs(low), abs(high))
        narrow, ends = high - low < room, (low - room, high + room)
    if narrow:
        figure.add_shape(type="line", x0=0, x1=0, y0=ends[0], y1=ends[1], opacity=0)


def _draw_references(figure: go.Figure, high: float, frame: Frame, t: Text) -> None:
    """Draw each reference as a dotted line, or name it at the edge when it is far above the data."""
    for name, value in frame.references.items():
        if value / NEAR[frame.y_scale] <= high:
            label = {"text": name, "textposition": "start", "yanchor": "top", "padding": 6}
            figure.add_hline(y=value, line={"dash": "2px,4px", "width": 2}, label=label)
        else:
            far = t("chart.above", name=name)
            figure.add_annotation(text=far, xref="paper", yref="paper", x=0.01, y=1, xanchor="left", yanchor="top")


def _notes(series: Sequence[Series], frame: Frame, t: Text) -> str:
    """Say how many values the axis cannot show, and why."""
    values = np.concatenate([one.values for one in series] or [np.empty(0)])
    counts = {
        "chart.above_axis": np.isnan(values) | np.isposinf(values),
        "chart.below_axis": np.isneginf(values),
        "chart.not_positive": np.isfinite(values) & (values <= 0) & (frame.y_scale == "log"),
    }
    return " · ".join(t(key, count=int(mask.sum())) for key, mask in counts.items() if mask.any())
