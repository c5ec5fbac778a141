"""Whether the norms of each variant kept their promise: a cell a layer, variants over depth.

The file knows looks, not rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from pages.ui import theme
from pages.ui.charts import marks
from pages.ui.charts.grids import column_axis, row_axis
from pages.ui.charts.marks import Frame, Text
from pages.ui.charts.states import CLEAR, GREY, HEALTHY, Look, States, fills, signs

LOOKS: dict[str, Look] = {
    "kept": HEALTHY,
    "off": Look(theme.NORM_COLORS["batchnorm"], "diamond", theme.NORM_COLORS["batchnorm"]),
    "part": Look(theme.ABOVE_COLOR, "circle", theme.ABOVE_COLOR),
    "zero": Look(theme.WARNING_COLOR, "x", theme.WARNING_COLOR),
    "not_finite": Look(GREY, "triangle-up", theme.OTHER_COLOR),
    "unjudged": Look(CLEAR, "line-ew-open", theme.OTHER_COLOR, theme.OTHER_COLOR),
}
"""State of a norm (`core.silent.STATES`) → its look."""


@dataclass(frozen=True, eq=False)
class Norms:
    """The norms of R variants. `columns`: layers; `rows`: the variants; `names`, `says`: (R, C), states and what was
    measured. A name that is no state is no norm.
    """

    columns: Sequence[str]
    rows: Sequence[str]
    names: Sequence[Sequence[str]]
    says: Sequence[Sequence[str]]


def promises(table: Norms, frame: Frame, t: Text) -> go.Figure:
    """Draw the cells; the words of a state are ``promise.*``."""
    words = {state: t(f"promise.{state}") for state in LOOKS}
    counts = {state: sum(list(row).count(state) for row in table.names) for state in LOOKS}
    drawn = States(table.columns, [marks.literal(row) for row in table.rows], table.names, table.says, LOOKS)
    said = " · ".join(f"{words[state]}: {count}" for state, count in counts.items() if count)
    figure = go.Figure([fills(drawn, f"{frame.x_title} %{{x}}<br>%{{y}}"), *signs(drawn, words, {})],
                       marks.layout(frame, said))
    figure.update_layout(xaxis=column_axis(drawn.columns, frame), yaxis=row_axis(drawn.rows, frame),
                         legend={"itemclick": False, "itemdoubleclick": False,
                                 "itemsizing": "trace" if drawn.roomy else "constant"})
    return figure
