"""Cells that have a state instead of a number: a colour and a sign a state, none has its meaning by colour alone.

It draws what it is handed; what the states are called and mean is for the chart to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from pages.ui import theme
from pages.ui.charts import marks
from pages.ui.charts.grids import column_axis, row_axis
from pages.ui.charts.marks import Frame

QUIET, GREY, LIGHT, CLEAR = "rgba(125,135,148,0.20)", "rgba(125,135,148,0.75)", "#ffffff", "rgba(0,0,0,0)"

ROOMY_COLUMNS = 30
"""Up to so many columns have signs that are seen from the last row of a hall; more leave no room for them."""


@dataclass(frozen=True)
class Look:
    """How a state is drawn. `fill`: of its cells; `symbol`: of the sign in them and in the legend, of this `color`.

    `rim`: the colour of the sign's edge, which sets it off from its cell; `signed`: whether cells have the sign too.
    """

    fill: str
    symbol: str
    color: str
    rim: str = LIGHT
    signed: bool = True


@dataclass(frozen=True, eq=False)
class States:
    """The states of R rows and C columns, each with its names once; what is no key of `looks` is no cell.

    `names`, `hovers`: (R, C), the states, and what the hover says of each cell.
    """

    columns: Sequence[str]
    rows: Sequence[str]
    names: Sequence[Sequence[str]]
    hovers: Sequence[Sequence[str]]
    looks: Mapping[str, Look]

    @property
    def roomy(self) -> bool:
        """Whether there is room for large signs."""
        return len(self.columns) <= ROOMY_COLUMNS


def fills(table: States, where: str) -> go.Heatmap:
    """Return the cells as colours; `where`: what the hover says before what it says of the cell."""
    number = {state: float(place) for place, state in enumerate(table.looks)}
    levels = np.array([[number.get(state, np.nan) for state in row] for row in table.names])
    last = len(table.looks) - 1
    return go.Heatmap(
        x=list(table.columns), y=list(table.rows), z=levels.astype(np.float32), zmin=0, zmax=last,
        colorscale=[[place / last, look.fill] for place, look in enumerate(table.looks.values())], showscale=False,
        xgap=2 if table.roomy else 1, ygap=2, hoverongaps=False, showlegend=False, hovertext=table.hovers,
        hovertemplate=f"{where}<br>%{{hovertext}}<extra></extra>")


def signs(table: States, words: Mapping[str, str], turned: Mapping[str, str]) -> Iterable[go.Scatter]:
    """Yield the signs of every state that occurs, and its entry in the legend. `turned`: a symbol → the one instead."""
    size, edge = (16, 2) if table.roomy else (6, 1)
    for state, look in table.looks.items():
        found = [(row, column) for row, names in enumerate(table.names) for column, name in enumerate(names)
                 if name == state]
        if found:
            shown = found if look.signed else []
            x: list[str | None] = [table.columns[column] for _, column in shown]
            y: list[str | None] = [table.rows[row] for row, _ in shown]
            yield go.Scatter(
                x=x or [None], y=y or [None], mode="markers", uid=state,  # without a point there would be no legend
                name=words[state], hoverinfo="skip", cliponaxis=False,
                marker={"symbol": turned.get(look.symbol, look.symbol), "color": look.color, "size": size,
                        "line": {"width": edge, "color": look.rim}})


def figure(table: States, words: Mapping[str, str], where: str, frame: Frame) -> go.Figure:
    """Return the cells with their signs, and how many there are of each state below the title."""
    counts = {state: sum(list(row).count(state) for row in table.names) for state in table.looks}
    said = " · ".join(f"{words[state]}: {count}" for state, count in counts.items() if count)
    made = go.Figure([fills(table, where), *signs(table, words, {})], marks.layout(frame, said))
    return made.update_layout(xaxis=column_axis(table.columns, frame), yaxis=row_axis(table.rows, frame),
                              legend={"itemclick": False, "itemdoubleclick": False,
                                      "itemsizing": "trace" if table.roomy else "constant"})


HEALTHY = Look(QUIET, "square", QUIET, theme.OTHER_COLOR, signed=False)
"""A state that is nothing to look at."""
