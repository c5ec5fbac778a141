"""What every chart shares: its numbers and words, and the marks of what an axis cannot show.

A value without a place on the axis (NaN, ±Inf, a zero on a logarithmic axis) is a gap with a triangle at the edge that
says what it is: never a zero, and never part of the axis range. Words come in through `t`; the file knows neither a
language nor Streamlit, and it computes no measurement.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from zlib import crc32

import numpy as np
import plotly.graph_objects as go
import plotly.io
from numpy.typing import NDArray

from pages.ui import theme
from pages.ui.charts.axes import Mask

Text = Callable[..., str]
"""A `pages.ui.text.Words`: key and values → words."""

Part = dict[str, Any]
"""A trace, or a piece of a layout, as Plotly takes it.

A chart that is drawn live makes its figure once, of complete parts: every change of a figure checks and copies much.
"""

LETTERS = 84
"""Room for the titles of one row of facets beside a sidebar at 1280 pixels."""

MOST_MARKED, FEW_MARKED = 64, 16
"""Up to this many points a line shows the symbol of each, and so many of a longer one."""

FEW_STEPS = 8
"""Training steps that are labelled one by one."""

plotly.io.templates.default = theme.template("light")
"""Of every figure: one that is given with a layout would be checked and copied each time."""

MAX_TRACES = 60
"""More is refused: a browser needs seconds for hundreds of lines."""


EDGE_AXIS: dict[str, object] = {"overlaying": "y", "range": [0, 1], "fixedrange": True, "visible": False}
"""The axis y2 that `edges` stand on."""


def nothing() -> NDArray[np.float64]:
    """Return no numbers."""
    return np.empty(0)


@dataclass(frozen=True)
class Series:
    """One variant over depth. `layers`: −1 embed, 0 … L−1, L after the stack; `values` may hold NaN and ±Inf.

    `name` is what the visitor reads; `key` (default: name) is the same in all languages: a hidden line stays hidden.
    `non_finite`: entries that were not finite at each layer, empty for none anywhere; the value is then over the rest.
    `role`: "line"; "points" where a prediction is drawn beside it; "prediction", a dotted line without points.
    `beside`: the key (or name) of a line that this one accompanies: thin, not in the legend, and hidden with that one.
    """

    name: str
    layers: NDArray[np.integer]
    values: NDArray[np.floating]
    style: theme.Style = theme.NEUTRAL
    site: str = ""
    key: str = ""
    non_finite: NDArray[np.floating] = field(default_factory=nothing, compare=False)
    role: str = "line"
    beside: str = ""

    @property
    def in_part(self) -> Mask:
        """Which values are finite and stand for a part of the entries only."""
        counts = self.non_finite if self.non_finite.size else np.zeros(len(self.values))
        found: Mask = np.isfinite(self.values) & (counts > 0)
        return found


@dataclass(frozen=True)
class Frame:
    """What stands around the numbers, in the visitor's words.

    `y_scale`: a key of SCALES; `references`: words → value of dotted lines, such as ``{"float16 max": 65504.0}``.
    """

    title: str
    statistic: str
    y_title: str
    y_scale: str = "log"
    unit: str = ""
    x_title: str = ""
    references: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Edges:
    """What stands at the edges of a drawing for the values of one line: where, as which sign, and what it says."""

    x: NDArray[np.int32]
    y: NDArray[np.floating]
    symbols: list[str]
    texts: list[str]


def edges(one: Series, gaps: Mask, row: int, t: Text) -> Edges:
    """Return the marks of gaps on an axis of 0 … 1: ▲ above for NaN and +Inf, ▼ below for the rest.

    `row`: which of several variants it is, so that those that break at the same layer stay visible side by side; values
    over a part of the entries only get an open triangle.
    """
    marked = gaps | one.in_part
    values, open_ones = one.values[marked], one.in_part[marked] & ~gaps[marked]
    counts = one.non_finite[marked] if one.non_finite.size else np.zeros(len(values))
    up = ~(values <= 0) | open_ones  # NaN is not ≤ 0
    step = 0.035 * (row % 8)
    shapes = np.where(up, "triangle-up", "triangle-down").astype(object) + np.where(open_ones, "-open", "")
    texts = [t("chart.in_part", value=spelled(value), count=f"{count:.0f}") if part else spelled(value)
             for value, count, part in zip(values, counts, open_ones, strict=True)]
    return Edges(np.asarray(one.layers[marked], dtype=np.int32), np.where(up, 1.0 - step, step), shapes.tolist(), texts)


def edge_marker(one: Series, at: Edges) -> Part:
    """Return how the marks look."""
    return {"color": one.style.color, "size": 14, "symbol": at.symbols, "line": {"width": 2}}


def triangles(one: Series, gaps: Mask, row: int, where: str, t: Text,
              axes: tuple[str, str] = ("x", "y2")) -> Part:
    """Mark each gap at the edge of the drawing, as `edges` says; `where`: what the hover says before the value."""
    at = edges(one, gaps, row, t)
    return {
        "type": "scatter", "x": at.x, "y": at.y, "xaxis": axes[0], "yaxis": axes[1], "name": literal(one.name),
        "uid": f"{uid(one)}gaps", "legendgroup": group(one), "showlegend": False, "mode": "markers",
        "cliponaxis": False, "marker": edge_marker(one, at), "text": at.texts,
        "hovertemplate": f"{where}<br><b>%{{text}}</b><extra></extra>",
    }


def notes(series: Sequence[Series], log: bool, t: Text) -> str:
    """Say how many values the axis cannot show and why, and how many stand for a part of the entries."""
    values = np.concatenate([one.values for one in series] or [nothing()])
    counts = {
        "chart.above_axis": np.isnan(values) | np.isposinf(values),
        "chart.below_axis": np.isneginf(values),
        "chart.not_positive": np.isfinite(values) & (values <= 0) & log,
        "chart.parts": np.concatenate([one.in_part for one in series] or [np.empty(0, bool)]),
    }
    return " · ".join(t(key, count=int(mask.sum())) for key, mask in counts.items() if mask.any())


def cell_notes(values: NDArray[np.floating], t: Text) -> str:
    """Say how many of these values of cells without a colour are not finite, and how many a log scale cannot show."""
    bad, low = int((~np.isfinite(values)).sum()), int(np.isfinite(values).sum())
    said = [t("chart.cells_non_finite", count=bad)] * bool(bad) + [t("chart.cells_not_positive", count=low)] * bool(low)
    return " · ".join(said)


def uid(one: Series) -> str:
    """Return an identity that stays when numbers and language change. Plotly puts it into CSS selectors: no signs."""
    return _identity(one.key or one.name)


def group(one: Series) -> str:
    """Return the identity of the entry in the legend that shows and hides a line."""
    return _identity(one.beside) if one.beside else uid(one)


def _identity(key: str) -> str:
    return f"t{crc32(key.encode()):08x}"


def spelled(value: float) -> str:
    """Write a value that the axis cannot show."""
    return {np.inf: "+Inf", -np.inf: "−Inf"}.get(value, "NaN" if np.isnan(value) else f"{value:.5g}")


def hover(one: Series, frame: Frame, t: Text) -> str:
    """Say variant, layer, site and statistic."""
    where = " · ".join(part for part in (one.site, frame.statistic) if part)
    return f"<b>{literal(one.name)}</b><br>{t('chart.layer')} %{{x}}<br>{where}"


def symbol(style: theme.Style, size: float, points: int) -> Part:
    """Return the marker of a line of so many points; an open symbol is larger, to be seen where the line runs through.

    Of many points few have one: enough to tell by it, without colour, which line it is.
    """
    shown: Part = {"symbol": style.symbol, "maxdisplayed": FEW_MARKED if points > MOST_MARKED else 0}
    hollow = "open" in style.symbol
    return shown | ({"size": size + 4, "line": {"width": 2}} if hollow else {"size": size})


def faded(color: str, opacity: float) -> str:
    """Return a colour, such as ``#3480d0``, that lets what is behind it through."""
    red, green, blue = (int(color[start: start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def literal(text: str) -> str:
    """Return a visitor's text so that Plotly shows it as it is: no markup, no placeholders."""
    return html.escape(text, quote=False).replace("%{", "%\u200b{")


def shortened(name: str, columns: int) -> str:
    """Return a name that fits above one of so many columns; a Chinese letter is as wide as two."""
    widths = np.cumsum([2 if ord(letter) > 0x2E7F else 1 for letter in name])
    kept = int(np.searchsorted(widths, LETTERS // columns, side="right"))
    return name if kept >= len(name) else f"{name[: max(kept - 1, 1)]}…"


def layer_axis(last: int, frame: Frame, t: Text) -> Part:
    """Return the settings of an axis of layers, −1 … `last`."""
    return {
        "title": {"text": frame.x_title or t("chart.layer")}, "type": "category",
        "categoryarray": np.arange(-1, last + 1, dtype=np.int32), "labelalias": {"-1": t("chart.embed")},
        "nticks": 16, "tickangle": 0,
    }


def step_axis(steps: Iterable[NDArray[np.integer]], frame: Frame, t: Text) -> Part:
    """Return the settings of an axis of training steps; few of them are all labelled, and nothing between them."""
    found = np.unique(np.concatenate([np.empty(0, np.int64), *steps]))
    few = len(found) and found[-1] - found[0] < FEW_STEPS
    return {"title": {"text": frame.x_title or t("chart.step")}, **({"tickvals": found} if few else {})}


def title(frame: Frame, subtitle: str) -> Part:
    """Return the title of a chart, which may hold names, and what stands below it."""
    return {"text": literal(frame.title), "subtitle": {"text": subtitle}}


def layout(frame: Frame, subtitle: str) -> Part:
    """Return what all charts have. `uirevision` never changes: zoom and hidden lines outlive new numbers."""
    return {
        "title": title(frame, subtitle), "uirevision": "keep", "hovermode": "closest",
        "margin": {"l": 8, "r": 24, "t": 8, "b": 8},
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.04, "xanchor": "left", "x": 0}, "showlegend": True,
    }


def nothing_said(t: Text) -> Part:
    """Return what stands in the middle of a drawing without a finite value: that there is none."""
    return {"text": t("chart.nothing"), "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5}


def say_nothing(figure: go.Figure, t: Text) -> go.Figure:
    """Say in the middle of a drawing without a finite value that there is none."""
    return figure.add_annotation(nothing_said(t))
