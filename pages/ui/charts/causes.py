"""The cause of every head's entropy, a cell a head: heads over layers.

The file knows looks, not rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from pages.ui import theme
from pages.ui.charts.marks import Frame, Text
from pages.ui.charts.states import GREY, HEALTHY, Look, States, figure

SMALL_COLOR, ALIKE_COLOR = theme.NORM_COLORS["layernorm"], theme.NORM_COLORS["batchnorm"]

LOOKS: dict[str, Look] = {
    "healthy": HEALTHY,
    "small_scores": Look(SMALL_COLOR, "triangle-down", SMALL_COLOR),
    "collapsed": Look(ALIKE_COLOR, "circle", ALIKE_COLOR),
    "saturated": Look(theme.WARNING_COLOR, "triangle-up", theme.WARNING_COLOR),
    "undefined": Look(GREY, "x", theme.OTHER_COLOR),
}
"""Cause (`core.entropy_causes.CAUSES`) → its look."""


@dataclass(frozen=True, eq=False)
class Heads:
    """The causes of the H heads of R layers. `layers`: their names; `names`, `says`: (H, R), causes and evidence."""

    layers: Sequence[str]
    names: Sequence[Sequence[str]]
    says: Sequence[Sequence[str]]


def causes(table: Heads, frame: Frame, t: Text) -> go.Figure:
    """Draw the cells; the words of a cause are ``cause.*``."""
    words = {cause: t(f"cause.{cause}") for cause in LOOKS}
    hovers = [[f"<b>{words[cause]}</b><br>{says}" for cause, says in zip(*row, strict=True)]
              for row in zip(table.names, table.says, strict=True)]
    drawn = States(table.layers, [str(head) for head in range(len(table.names))], table.names, hovers, LOOKS)
    return figure(drawn, words, f"{frame.x_title} %{{x}} · {frame.y_title} %{{y}}", frame)
