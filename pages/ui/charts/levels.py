"""Numbers of named things as bars that lie from 0, in one or several parts, each with what it says at its end.

A value that is not finite is no bar: it is a triangle at 0 and its words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from pages.ui import theme
from pages.ui.charts import marks
from pages.ui.charts.axes import finite_range
from pages.ui.charts.marks import Frame, Text

HATCHES = ("", "/", ".")
"""Of the parts in turn; what lies below 0 is crossed: no part is told by colour alone."""

COLORS = (theme.BELOW_COLOR, theme.ABOVE_COLOR, theme.OTHER_COLOR)


@dataclass(frozen=True, eq=False)
class Part:
    """One part of every bar. `values`: (R,), may hold NaN and ±Inf."""

    name: str
    values: NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Levels:
    """R things in `rows`, the first on top; parts follow each other. `said`: at the end of each bar; `hovers`: of each.

    `chosen`: a row whose name is bold.
    """

    rows: Sequence[str]
    parts: Sequence[Part]
    said: Sequence[str]
    hovers: Sequence[str]
    chosen: str = ""


def levels(table: Levels, frame: Frame, _t: Text) -> go.Figure:
    """Draw the bars; `x_title` says what their length is."""
    rows = [f"<b>{row}</b>" if row == table.chosen else row for row in map(marks.literal, table.rows)]
    values = np.reshape([part.values for part in table.parts], (len(table.parts), len(rows)))
    kept = np.where(np.isfinite(values), values, 0.0)
    whole, bad = kept.sum(0), np.asarray((~np.isfinite(values)).any(0))
    bars = [_bar(part, lengths, place, rows, table) for place, (part, lengths) in enumerate(
        zip(table.parts, kept, strict=True))]
    figure = go.Figure([*bars, _ends(rows, np.where(bad, 0.0, whole), bad, table)], marks.layout(frame, ""))
    low, high = finite_range(np.append(whole, 0.0), "linear") or (0.0, 1.0)
    room = 0.03 * (high - low) or 1.0
    letters = max((2 * len(words) - len(words.encode("ascii", "ignore")) for words in table.said), default=0)
    figure.update_layout(
        barmode="relative", bargap=0.25, showlegend=len(table.parts) > 1,
        margin={"r": 24 + (8 * letters if high > 0.5 * -low else 0)},
        xaxis={"title": {"text": frame.x_title}, "range": [low - room * (low < 0), high + room], "zeroline": True},
        yaxis={"type": "category", "categoryarray": rows, "range": [len(rows) - 0.5, -0.5], "showgrid": False,
               "title": {"text": frame.y_title}})
    return figure


def _bar(part: Part, values: NDArray[np.floating], place: int, rows: Sequence[str], table: Levels) -> go.Bar:
    below = values < 0
    colors = np.where(below, theme.WARNING_COLOR, COLORS[place]).tolist()
    shapes = np.where(below, "x", HATCHES[place]).tolist()
    return go.Bar(x=values, y=list(rows), orientation="h", name=part.name, uid=f"part{place}",
                  hovertext=list(table.hovers), hovertemplate="%{hovertext}<extra></extra>",
                  marker={"color": colors, "line": {"width": 0},
                          "pattern": {"shape": shapes, "fgcolor": "#ffffff", "size": 8, "solidity": 0.2,
                                      "fillmode": "overlay"}})


def _ends(rows: Sequence[str], ends: NDArray[np.floating], bad: NDArray[np.bool_], table: Levels) -> go.Scatter:
    """Write what is said at the end of each bar, after a triangle where there is none; beside a bar below 0 at 0."""
    said = [f"{'▲ ' if no_bar else ''}{marks.literal(words)}" for no_bar, words in zip(bad, table.said, strict=True)]
    return go.Scatter(x=np.maximum(ends, 0.0), y=list(rows), mode="text", text=[f" {words}" for words in said],
                      textposition="middle right", textfont={"size": theme.TEXT_PX}, cliponaxis=False,
                      showlegend=False, hoverinfo="skip", uid="said")
