"""Whether the norms of each variant kept their promise: a cell a layer, variants over depth.

The file knows looks, not rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from pages.ui import theme
from pages.ui.charts import marks
from pages.ui.charts.marks import Frame, Text
from pages.ui.charts.states import CLEAR, GREY, HEALTHY, Look, States, figure

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
    drawn = States(table.columns, [marks.literal(row) for row in table.rows], table.names, table.says, LOOKS)
    return figure(drawn, words, f"{frame.x_title} %{{x}}<br>%{{y}}", frame)
