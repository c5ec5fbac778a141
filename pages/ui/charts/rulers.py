"""Number formats on one logarithmic ruler: from where to where each has its digits, where it loses them, and a value.

It draws what it is handed; it knows no format.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from pages.ui import theme
from pages.ui.charts import marks
from pages.ui.charts.marks import Frame, Text

COLOR, PX, THIN_PX = theme.NORM_COLORS["layernorm"], 22, 8

PARTS = {"normal": False, "subnormal": True}
"""Part of a format, ``precision.*`` in words → whether it is thin."""


@dataclass(frozen=True)
class Span:
    """One format. `least`, `normal`, `largest`: its smallest number, smallest normal one and largest; `said`: what
    becomes of the value in it, `hover`: all of its numbers.
    """

    name: str
    least: float
    normal: float
    largest: float
    said: str
    hover: str


def rulers(spans: Sequence[Span], value: float, frame: Frame, t: Text) -> go.Figure:
    """Draw each format as a thick line, thin where it has no normal numbers, and |value| as a line through them all."""
    names = [marks.literal(one.name) for one in spans]
    parts = [_range(spans, names, thin, t(f"precision.{part}")) for part, thin in PARTS.items()]
    figure = go.Figure(parts, marks.layout(frame, ""))
    highest = max(one.largest for one in spans)
    figure.add_scatter(x=[highest] * len(names), y=names, mode="text", text=[f"  {one.said}" for one in spans],
                       textposition="middle right", textfont={"size": theme.TEXT_PX}, cliponaxis=False,
                       showlegend=False, hoverinfo="skip")
    if value:
        figure.add_vline(abs(value), line={"color": theme.ABOVE_COLOR, "width": 3, "dash": "6px,3px"})
        figure.add_annotation(x=math.log10(abs(value)), y=1, yref="paper", yanchor="bottom",
                              text=f"|x| = {abs(value):.9g}")
    figure.update_layout(
        xaxis={"type": "log", "title": {"text": frame.x_title}, "dtick": 10, "tick0": 0},
        yaxis={"type": "category", "categoryarray": names, "range": [len(names) - 0.4, -0.6], "showgrid": False},
        legend={"y": 1.14}, margin={"r": 260})
    return figure


def _range(spans: Sequence[Span], names: Sequence[str], thin: bool, words: str) -> go.Scatter:
    """Return the part of every format with its full digits, or the one without, as lines with gaps between."""
    x: list[float | None] = []
    y: list[str | None] = []
    for one, name in zip(spans, names, strict=True):
        x += [one.least, one.normal, None] if thin else [one.normal, one.largest, None]
        y += [name, name, None]
    hovers = [text for one in spans for text in (one.hover, one.hover, "")]
    return go.Scatter(x=x, y=y, mode="lines", name=words, connectgaps=False, hovertext=hovers,
                      line={"color": theme.OTHER_COLOR if thin else COLOR, "width": THIN_PX if thin else PX},
                      hovertemplate="%{hovertext}<extra></extra>")
