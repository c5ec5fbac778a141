"""How shares of 0 … 1 are spread within each of a few dozen things: a box a thing, and the mean that it stands behind.

A thing whose quantiles are not finite has no box: it is a triangle at the edge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from pages.ui import theme
from pages.ui.charts import marks
from pages.ui.charts.axes import F64, SHARES, Mask
from pages.ui.charts.marks import Frame, Part, Text, nothing

MOST_LABELLED = 24
"""Up to so many things are labelled one by one."""


@dataclass(frozen=True, eq=False)
class Boxes:
    """The things of one variant. `quantiles`: (5, n), of 5, 25, 50, 75 and 95 %; `means`: (n,); both may hold NaN."""

    name: str
    quantiles: F64
    means: F64
    style: theme.Style = theme.NEUTRAL
    key: str = ""


def boxes(one: Boxes, frame: Frame, t: Text) -> go.Figure:
    """Draw a box a thing, counted from 0; `x_title` says what is counted."""
    n = len(one.means)
    line = marks.Series(one.name, np.arange(n), one.quantiles[2] if n else nothing(), one.style, key=one.key)
    gaps: Mask = ~np.logical_and.reduce(np.isfinite(one.quantiles))
    where = f"<b>{marks.literal(one.name)}</b><br>{frame.x_title} %{{x}}"
    figure = marks.layout(frame, marks.notes([line], False, t)) | {
        "xaxis": {"title": {"text": frame.x_title}, "range": [-0.6, n - 0.4], "autorange": False, "zeroline": False,
                  "showgrid": False, **({"dtick": 1} if n <= MOST_LABELLED else {"nticks": 16})},
        "yaxis": {"title": {"text": frame.y_title}, "range": list(SHARES), "autorange": False, "zeroline": False},
        "yaxis2": marks.EDGE_AXIS, "annotations": [marks.nothing_said(t)] if gaps.all() else []}
    marked = [marks.triangles(line, gaps, 0, where, t)] if gaps.any() else []
    return go.Figure([_box(one, ~gaps, t), _means(one, where, t), *marked], figure)


def _box(one: Boxes, drawn: Mask, t: Text) -> Part:
    """Return the boxes. Plotly's own words on them are English, and it answers for them beside them too: no hover."""
    low, lower, middle, upper, high = one.quantiles[:, drawn]
    return {"type": "box", "x": np.flatnonzero(drawn).astype(np.int32), "lowerfence": low, "q1": lower,
            "median": middle, "q3": upper, "upperfence": high, "name": t("entropy.box"), "hoverinfo": "skip",
            "uid": f"{_uid(one)}box", "line": {"color": one.style.color, "width": 2.5}, "whiskerwidth": 0.5,
            "fillcolor": marks.faded(one.style.color, 0.35), "width": 0.6}


def _means(one: Boxes, where: str, t: Text) -> Part:
    """Return a mark for each mean, which answers for its box."""
    says = (f"{t('statistic.q50')} <b>%{{customdata[2]:.3f}}</b><br>25–75 %: %{{customdata[1]:.3f}} … "
            f"%{{customdata[3]:.3f}}<br>5–95 %: %{{customdata[0]:.3f}} … %{{customdata[4]:.3f}}<br>"
            f"{t('entropy.mean')} <b>%{{y:.3f}}</b>")
    seen = np.flatnonzero(np.isfinite(one.means))
    return {"type": "scatter", "mode": "markers", "x": seen.astype(np.int32), "y": one.means[seen],
            "name": t("entropy.mean"), "uid": f"{_uid(one)}means", "cliponaxis": False,
            "customdata": one.quantiles[:, seen].T,
            "marker": {"symbol": "diamond", "size": 11, "color": theme.ABOVE_COLOR,
                       "line": {"width": 1.5, "color": "#ffffff"}},
            "hovertemplate": f"{where}<br>{says}<extra></extra>"}


def _uid(one: Boxes) -> str:
    return marks.uid(marks.Series(one.name, np.empty(0, np.int64), nothing(), key=one.key))
