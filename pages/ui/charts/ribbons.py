"""Quantile ribbons: how the entries of a site are spread at every layer, a facet a variant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from core.vocabulary import EMBED
from pages.ui import theme
from pages.ui.charts import facets, marks
from pages.ui.charts.axes import F64, Axis, axis_for
from pages.ui.charts.marks import Frame, Series, Text, nothing

Bands = tuple[tuple[str, int, int, float], ...]
"""Name of each band, the quantiles that it lies between, and how opaque it is."""

BANDS: Bands = (("1–99 %", 0, 6, 0.22), ("5–95 %", 1, 5, 0.35), ("25–75 %", 2, 4, 0.55))
"""Of seven quantiles, q01 q05 q25 q50 q75 q95 q99."""

HEAD_BANDS: Bands = (("5–95 %", 0, 4, 0.3), ("25–75 %", 1, 3, 0.55))
"""Of five quantiles, p05 p25 p50 p75 p95."""

DECADES = 12
"""What is fainter than this beside the largest entry is drawn as 0: the bands are to be told apart."""


@dataclass(frozen=True)
class Ribbon:
    """The spread of one variant. `layers`: (N,); `quantiles`: (Q, N), ascending, the median in the middle.

    `low`, `high`: true extremes, (N,), or empty where they are not known; `non_finite`: entries that were not finite at
    each layer, (N,); everything else is over the rest; `bands`: what is drawn of the quantiles.
    """

    name: str
    layers: NDArray[np.integer]
    quantiles: F64
    low: F64 = field(default_factory=nothing)
    high: F64 = field(default_factory=nothing)
    style: theme.Style = theme.NEUTRAL
    key: str = ""
    non_finite: NDArray[np.floating] = field(default_factory=nothing)
    bands: Bands = BANDS

    @property
    def median(self) -> F64:
        """The quantile in the middle, (N,)."""
        found: F64 = self.quantiles[len(self.quantiles) // 2]
        return found


def ribbons(series: Sequence[Ribbon], frame: Frame, t: Text, first: int = EMBED,
            ends: tuple[float, float] | None = None) -> go.Figure:
    """Draw each variant's bands, median and true extremes over depth; log becomes symlog, for entries have signs.

    `first`: where the axis of layers begins; `ends`: those of the value axis, None for what the values need.
    """
    axis = _axis(series, "symlog" if frame.y_scale == "log" else frame.y_scale)
    lines = [Series(one.name, one.layers, one.median, one.style, key=one.key, non_finite=one.non_finite)
             for one in series]
    last = max((int(one.layers.max()) for one in series if one.layers.size), default=0)
    figure = facets.facets([one.name for one in series], last, frame, marks.notes(lines, False, t), t, first)
    facets.value_axes(figure, len(series), axis, frame.y_title)
    if ends is not None:
        figure.update_yaxes(range=ends, autorange=False)
    edges = facets.gap_axes(figure, len(series))
    for index, (one, line) in enumerate(zip(series, lines, strict=True)):
        row, column = facets.place(index)
        figure.add_traces(list(_traces(one, axis, frame, t, first=index == 0)), rows=row, cols=column)
        gaps = ~np.isfinite(line.values)
        if gaps.any() or line.in_part.any():
            figure.add_trace(marks.triangles(line, gaps, 1, marks.hover(line, frame, t), t, edges[index]))
    if not any(np.isfinite(one.quantiles).any() for one in series):
        return marks.say_nothing(figure.update_yaxes(tickvals=[], showgrid=False), t)
    return figure


def _axis(series: Sequence[Ribbon], scale: str) -> Axis:
    """Return an axis that is linear up to a tenth of the least spread, so that a faint layer's bands still show."""
    values = np.concatenate([np.concatenate([one.low, one.high, *one.quantiles]) for one in series] or [nothing()])
    spreads = np.concatenate([np.abs(one.quantiles[[1, -2]]).max(0) for one in series] or [nothing()])
    seen = spreads[np.isfinite(spreads) & (spreads > 0)]
    return axis_for(scale, values, float(seen.min()) / 10 if seen.size else None, DECADES)


def _traces(one: Ribbon, axis: Axis, frame: Frame, t: Text, first: bool) -> Iterator[go.Scatter]:
    """Yield the bands, the extremes and the median; the legend names those of the first facet for all."""
    for name, lower, upper, opacity in one.bands:
        x, y = _outline(one.layers, axis.place(one.quantiles[lower]), axis.place(one.quantiles[upper]))
        yield go.Scatter(x=x, y=y, fill="toself", fillcolor=marks.faded(one.style.color, opacity), mode="lines",
                         line={"width": 0}, hoverinfo="skip", name=name, legendgroup=name, showlegend=first,
                         uid=f"{_uid(one)}{lower}")
    if one.low.size:
        yield _extremes(one, axis, frame, t, first)
    yield go.Scatter(
        x=one.layers, y=axis.place(one.median), customdata=one.quantiles.T, connectgaps=False,
        mode="markers" if axis.scale == "symlog" else "lines+markers",  # a median near 0 changes its sign by chance
        line={"color": one.style.color, "width": 2}, marker={"symbol": one.style.symbol, "size": 6},
        name=t("statistic.q50"), legendgroup="median", showlegend=first, uid=f"{_uid(one)}median",
        hovertemplate=_all_quantiles(one, frame, t))


def _extremes(one: Ribbon, axis: Axis, frame: Frame, t: Text, first: bool) -> go.Scatter:
    gap = np.array([np.nan])
    ends = np.concatenate([one.low, gap, one.high])
    return go.Scatter(
        x=np.concatenate([one.layers, gap, one.layers]), y=axis.place(ends), customdata=ends, mode="lines",
        connectgaps=False, line={"color": one.style.color, "width": 2, "dash": "2px,3px"}, name=t("chart.extremes"),
        legendgroup="extremes", showlegend=first, uid=f"{_uid(one)}ends",
        hovertemplate=_says(one, frame, t, t("chart.extremes")))


def _outline(layers: NDArray[np.integer], lower: F64, upper: F64) -> tuple[F64, F64]:
    """Return the outline of a band as closed polygons, one for each run of layers that have it, NaN in between."""
    known = np.isfinite(lower) & np.isfinite(upper)
    runs = np.split(np.flatnonzero(known), np.flatnonzero(np.diff(np.flatnonzero(known)) > 1) + 1)
    x: list[float] = []
    y: list[float] = []
    for run in runs:
        if run.size:
            x += [*layers[run].tolist(), *layers[run][::-1].tolist(), float("nan")]
            y += [*lower[run].tolist(), *upper[run][::-1].tolist(), float("nan")]
    return np.array(x[:-1], np.float64), np.array(y[:-1], np.float64)


def _says(one: Ribbon, frame: Frame, t: Text, what: str) -> str:
    unit = f" {frame.unit}" if frame.unit else ""
    return (f"<b>{marks.literal(one.name)}</b><br>{t('chart.layer')} %{{x}}<br>{frame.statistic}<br>"
            f"{what} <b>%{{customdata:.5~g}}</b>{unit}<extra></extra>")


def _all_quantiles(one: Ribbon, frame: Frame, t: Text) -> str:
    spans = "<br>".join(f"{name}: %{{customdata[{lower}]:.4~g}} … %{{customdata[{upper}]:.4~g}}"
                        for name, lower, upper, _ in one.bands)
    return (f"<b>{marks.literal(one.name)}</b><br>{t('chart.layer')} %{{x}}<br>{frame.statistic}<br>"
            f"{t('statistic.q50')} <b>%{{customdata[{len(one.quantiles) // 2}]:.5~g}}</b><br>{spans}<extra></extra>")


def _uid(one: Ribbon) -> str:
    return marks.uid(Series(one.name, one.layers, nothing(), key=one.key))
