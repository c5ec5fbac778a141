"""Histograms by exponent: how many entries of a site lie in each power of two at every layer, a facet a variant.

The colour is the logarithm of the share, so one outlier among thousands is seen and does not flatten the rest; the
largest |x| is a line of its own, the true one, whether the sample met it or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from core.vocabulary import HISTOGRAM_HIGH, HISTOGRAM_LOW
from pages.ui import theme
from pages.ui.charts import facets, marks
from pages.ui.charts.axes import F64
from pages.ui.charts.marks import Frame, Text

EXPONENTS = HISTOGRAM_HIGH - HISTOGRAM_LOW + 1
FLOAT16_EXPONENTS = {"chart.float16_least": (-14, "2px,4px"), "chart.float16_most": (16, "10px,5px")}
"""Where float16's normal numbers begin and end, as powers of two, and the dash of the line there."""

TICK_ROWS = 10
"""About how many powers of two get a label."""


@dataclass(frozen=True)
class Histogram:
    """The exponents of one variant. `layers`: (N,); `counts`: (N, 279), of HISTOGRAM_BINS; `absmax`: true, (N,)."""

    name: str
    layers: NDArray[np.integer]
    counts: NDArray[np.integer]
    absmax: F64


@dataclass(frozen=True)
class _Rows:
    """The rows of the drawing: exponents `low` … `high`, and where zeros and what is not finite stand, if any."""

    low: int
    high: int
    zero: bool
    non_finite: bool

    @property
    def at(self) -> F64:
        """The middle of every row: that of exponent e covers e … e + 1."""
        ends = [self.low - 3] * self.zero, [self.high + 3] * self.non_finite
        return np.array([*ends[0], *range(self.low, self.high + 1), *ends[1]]) + 0.5

    def of(self, counts: NDArray[np.integer]) -> F64:
        """Return the counts (N, 279) of these rows, (rows, N)."""
        body = counts[:, self.low - HISTOGRAM_LOW: self.high - HISTOGRAM_LOW + 1]
        parts = [counts[:, [EXPONENTS]]] * self.zero + [body] + [counts[:, [EXPONENTS + 1]]] * self.non_finite
        found: F64 = np.concatenate(parts, axis=1).T.astype(np.float64)
        return found


def exponents(series: Sequence[Histogram], frame: Frame, t: Text) -> go.Figure:
    """Draw each variant's share of entries by power of two over depth, and its largest |x|."""
    rows = _rows(series)
    last = max((int(one.layers.max()) for one in series if one.layers.size), default=0)
    figure = facets.facets([one.name for one in series], last, frame, _note(series, t), t)
    least = min((1.0 / total for one in series if (total := int(one.counts.sum(1).max(initial=0)))), default=1e-5)
    for index, one in enumerate(series):
        row, column = facets.place(index)
        first = index == 0
        traces = [_cells(one, rows, frame, t), _extreme(one, rows, frame, t, first), *_limits(rows, last, t, first)]
        figure.add_traces(traces, rows=row, cols=column)
        figure.update_yaxes(_ticks(rows, frame.y_title if column == 1 else "", t), row=row, col=column)
    figure.update_layout(coloraxis=_colors(least, t))
    if not any(one.counts.any() for one in series):
        return marks.say_nothing(figure, t)
    return figure


def _rows(series: Sequence[Histogram]) -> _Rows:
    counts = np.concatenate([one.counts for one in series] or [np.zeros((0, EXPONENTS + 2), np.int64)]).sum(0)
    used = np.flatnonzero(counts[:EXPONENTS])
    sizes = np.concatenate([one.absmax for one in series] or [np.empty(0)])
    sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
    ends = [int(bin_) + HISTOGRAM_LOW for bin_ in used[[0, -1] if used.size else []]]
    tops = [*ends, *(int(np.floor(np.log2(size))) for size in sizes)]
    zero, non_finite = (bool(count) for count in counts[EXPONENTS:])
    return _Rows(min(ends, default=0), min(max(tops, default=0), HISTOGRAM_HIGH), zero, non_finite)


def _cells(one: Histogram, rows: _Rows, frame: Frame, t: Text) -> go.Heatmap:
    """Draw the share of entries in each row; an empty cell has none."""
    counts = rows.of(one.counts)
    total = np.maximum(one.counts.sum(1), 1)
    with np.errstate(divide="ignore"):
        shares = np.where(counts > 0, np.log10(counts / total), np.nan)
    labels = _labels(rows, t)
    return go.Heatmap(
        x=one.layers, y=rows.at, z=shares.astype(np.float32), coloraxis="coloraxis", hoverongaps=False,
        ygap=1 if len(one.layers) <= 32 else 0,
        customdata=np.stack([counts, np.broadcast_to(total, counts.shape), 100 * counts / total], axis=-1),
        text=np.broadcast_to(np.array(labels)[:, None], counts.shape).tolist(),
        hovertemplate=(f"<b>{marks.literal(one.name)}</b><br>{t('chart.layer')} %{{x}}<br>"
                       f"{frame.statistic} · %{{text}}<br>"
                       f"<b>%{{customdata[2]:.4~g}} %</b> (%{{customdata[0]}} / %{{customdata[1]}})<extra></extra>"))


def _extreme(one: Histogram, rows: _Rows, frame: Frame, t: Text, first: bool) -> go.Scatter:
    """Draw the true largest |x| at its power of two, at the edge where that lies beyond the rows, as float64 can."""
    with np.errstate(all="ignore"):
        exact = np.where(np.isfinite(one.absmax) & (one.absmax > 0), np.log2(one.absmax), np.nan)
    at = exact.clip(rows.low, rows.high + 1)
    return go.Scatter(x=one.layers, y=at, customdata=one.absmax, mode="lines+markers", connectgaps=False,
                      line={"color": theme.WARNING_COLOR, "width": 2.5}, marker={"symbol": "circle", "size": 6},
                      name=t("statistic.absmax"), legendgroup="absmax", showlegend=first,
                      hovertemplate=(f"<b>{marks.literal(one.name)}</b><br>{t('chart.layer')} %{{x}}<br>"
                                     f"{frame.statistic}<br>{t('statistic.absmax')} <b>%{{customdata:.5~g}}</b>"
                                     "<extra></extra>"))


def _limits(rows: _Rows, last: int, t: Text, first: bool) -> list[go.Scatter]:
    """Draw where float16's normal numbers begin and end, if that is among the rows."""
    looks = {"color": theme.OTHER_COLOR, "width": 3}
    return [go.Scatter(x=[-1.5, last + 0.5], y=[exponent, exponent], mode="lines", line=looks | {"dash": dash},
                       name=t(key), legendgroup=key, showlegend=first, hoverinfo="skip")
            for key, (exponent, dash) in FLOAT16_EXPONENTS.items() if rows.low <= exponent <= rows.high + 1]


def _labels(rows: _Rows, t: Text) -> list[str]:
    body = [("" if e == HISTOGRAM_LOW else f"2{_raised(e)} ≤ ") + "|x|" + (
        "" if e == HISTOGRAM_HIGH else f" < 2{_raised(e + 1)}") for e in range(rows.low, rows.high + 1)]
    return [t("chart.zero")] * rows.zero + body + [t("chart.non_finite")] * rows.non_finite


def _ticks(rows: _Rows, title: str, t: Text) -> dict[str, object]:
    """Label every few powers of two, at the lower edge of their row, and the two rows apart."""
    step = max(1, -(-(rows.high + 1 - rows.low) // TICK_ROWS))
    powers = [e for e in range(rows.low, rows.high + 2) if e % step == 0]
    at, text = list(map(float, powers)), [f"2{_raised(e)}" for e in powers]
    if rows.zero:
        at, text = [rows.low - 2.5, *at], [t("chart.zero"), *text]
    if rows.non_finite:
        at, text = [*at, rows.high + 3.5], [*text, t("chart.non_finite")]
    return {"title": {"text": title}, "tickvals": at, "ticktext": text}


def _colors(least: float, t: Text) -> dict[str, object]:
    decades = np.arange(int(np.ceil(np.log10(least))), 1)
    return {"colorscale": theme.HEAT_SCALE, "cmin": float(np.log10(least)), "cmax": 0.0,
            "colorbar": {"title": {"text": t("chart.share"), "side": "right"}, "tickvals": decades,
                         "ticktext": [f"{100 * 10.0 ** int(d):g} %" for d in decades], "thickness": 18}}


def _raised(exponent: int) -> str:
    return f"<sup>{exponent}</sup>".replace("-", "−")


def _note(series: Sequence[Histogram], t: Text) -> str:
    bad = int(sum(one.counts[:, EXPONENTS + 1].sum() for one in series))
    return t("chart.not_finite_entries", count=bad) if bad else ""
