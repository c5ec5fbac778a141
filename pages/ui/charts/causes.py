"""The cause of every head's entropy, a cell a head: heads over layers, a colour and a sign a cause.

No cause has its meaning by colour alone. The file knows looks, not rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from pages.ui import theme
from pages.ui.charts import marks
from pages.ui.charts.cells import GREY, LIGHT, QUIET, ROOMY_COLUMNS, Look
from pages.ui.charts.grids import column_axis, row_axis
from pages.ui.charts.marks import Frame, Text

LOOKS: dict[str, Look] = {
    "healthy": Look(QUIET, "circle-open", theme.OTHER_COLOR, theme.OTHER_COLOR, signed=False),
    "small_scores": Look("#3480d0", "triangle-down", "#3480d0", LIGHT),
    "collapsed": Look("#b38c63", "circle", "#b38c63", LIGHT),
    "saturated": Look(theme.WARNING_COLOR, "triangle-up", theme.WARNING_COLOR, LIGHT),
    "undefined": Look(GREY, "x", theme.OTHER_COLOR, LIGHT),
}
"""Cause (`core.entropy_causes.CAUSES`) → its look."""


@dataclass(frozen=True, eq=False)
class Heads:
    """The causes of the H heads of R layers. `layers`: their names; `names`: (R, H); `says`: (R, H), the evidence."""

    layers: Sequence[str]
    names: Sequence[Sequence[str]]
    says: Sequence[Sequence[str]]

    @property
    def rows(self) -> list[str]:
        """What the heads are called."""
        return [str(head) for head in range(len(self.names[0]))]


def causes(table: Heads, frame: Frame, t: Text) -> go.Figure:
    """Draw the cells; the words of a cause are ``cause.*``."""
    cells = np.array(table.names).T  # (H, R)
    counts = {cause: int((cells == cause).sum()) for cause in LOOKS}
    said = " · ".join(f"{t(f'cause.{cause}')}: {count}" for cause, count in counts.items() if count)
    figure = go.Figure([_fills(cells, table, frame, t), *_signs(cells, table, t)], marks.layout(frame, said))
    figure.update_layout(xaxis=column_axis(table.layers, frame), yaxis=row_axis(table.rows, frame),
                         legend={"itemclick": False, "itemdoubleclick": False})
    return figure


def _fills(cells: np.ndarray, table: Heads, frame: Frame, t: Text) -> go.Heatmap:
    number = {cause: place for place, cause in enumerate(LOOKS)}
    last = len(LOOKS) - 1
    gap = 2 if len(table.layers) <= ROOMY_COLUMNS else 0
    says = [[f"<b>{t(f'cause.{cause}')}</b><br>{table.says[row][head]}" for row, cause in enumerate(line)]
            for head, line in enumerate(cells.tolist())]
    return go.Heatmap(
        x=list(table.layers), y=table.rows, z=np.vectorize(number.get)(cells).astype(np.float32), zmin=0, zmax=last,
        colorscale=[[number[cause] / last, look.fill] for cause, look in LOOKS.items()], showscale=False, xgap=gap,
        ygap=gap, showlegend=False, hovertext=says,
        hovertemplate=f"{frame.x_title} %{{x}} · {frame.y_title} %{{y}}<br>%{{hovertext}}<extra></extra>")


def _signs(cells: np.ndarray, table: Heads, t: Text) -> Iterator[go.Scatter]:
    size, edge = (16, 2) if len(table.layers) <= ROOMY_COLUMNS else (6, 1)
    for cause, look in LOOKS.items():
        found = np.argwhere(cells == cause)
        if len(found):
            shown = found if look.signed else found[:0]
            x: list[str | None] = [table.layers[layer] for _, layer in shown]
            y: list[str | None] = [table.rows[head] for head, _ in shown]
            yield go.Scatter(x=x or [None], y=y or [None], mode="markers", uid=cause, name=t(f"cause.{cause}"),
                             hoverinfo="skip", cliponaxis=False,
                             marker={"symbol": look.symbol, "color": look.color, "size": size,
                                     "line": {"width": edge, "color": look.rim}})
