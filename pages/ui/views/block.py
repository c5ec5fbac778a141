"""The block that ran: its wiring as a diagram and its formulas, from the same description as the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import streamlit as st

from core.equations import Section, equations
from core.rules import is_recurrent
from core.wiring import Wiring, wirings
from pages.ui import charts
from pages.ui.cache import Measured
from pages.ui.charts import Panel
from pages.ui.charts.nodes import ranges
from pages.ui.picture import Columns, Picture, Subject
from pages.ui.text import Words, escaped
from pages.ui.views import depth
from pages.ui.views.depth import Shown

COLUMNS, PANEL_PX = 3, 262
"""Panels side by side, and the width that each needs."""

MAX_PANELS = 6
"""More wirings than this are named, not drawn."""


def wiring(measured: Sequence[Measured], _shown: Shown, t: Words) -> list[Picture]:
    """A diagram for each wiring that the variants have, side by side."""
    panels = _panels(measured, t)
    blocks = {one.name: t("wiring.no_block") if is_recurrent(one.experiment) else "" for one in measured}
    missing = depth.said_once(blocks, t)
    if not panels:
        return [Picture("wiring", None, t("wiring.title"), Subject(extra=("wiring",)), dict, remarks=missing)]
    columns = min(len(panels), COLUMNS)
    drawn = [replace(panel, name=charts.shortened(panel.name, columns)) for panel in panels[:MAX_PANELS]]
    figure = charts.wiring(drawn, t)
    remarks = (t("wiring.more", count=len(panels) - MAX_PANELS),) if len(panels) > MAX_PANELS else ()
    return [Picture("wiring", figure, t("wiring.title"), Subject(extra=("wiring",)), partial(_table, panels, t),
                    int(figure.layout.height), (*remarks, *missing), width=PANEL_PX * columns)]


def formulas(measured: Sequence[Measured], t: Words) -> None:
    """Draw the formulas of every wiring, a tab each: the block, its norms, attention, MLP, and what stands around."""
    panels = _panels(measured, t)[:MAX_PANELS]
    if not panels:
        return
    for panel, tab in zip(panels, st.tabs([escaped(panel.name) for panel in panels]), strict=True):
        for section in equations(panel.wiring):
            with tab.expander(_heading(section, t), expanded=section.about == "block"):
                lines = r"\\".join(line.latex.replace(" = ", " &= ", 1) for line in section.lines)
                st.latex(rf"\begin{{aligned}}{lines}\end{{aligned}}")
                st.caption(t(f"wiring_legend.{section.about}"))


def _panels(measured: Sequence[Measured], t: Words) -> list[Panel]:
    """Return a panel for each different wiring, named after the variants and layers that have it; none of layers that
    are no blocks.
    """
    names: dict[str, tuple[Wiring, list[str]]] = {}
    for one in (one for one in measured if not is_recurrent(one.experiment)):
        groups = wirings(one.experiment)
        for group in groups:
            part = t("wiring.variant_layers", variant=one.name, layers=ranges(group.layers))
            name = one.name if len(groups) == 1 else part
            names.setdefault(repr(group), (group, []))[1].append(name)
    return [Panel(", ".join(said), group) for group, said in names.values()]


def _heading(section: Section, t: Words) -> str:
    return t(f"wiring_about.{section.about}", name=t(f"norm.{section.name}") if section.name else "")


def _table(panels: Sequence[Panel], t: Words) -> Columns:
    """Return the formulas line by line, as LaTeX."""
    rows = [(panel.name, _heading(section, t), line.latex) for panel in panels for section in equations(panel.wiring)
            for line in section.lines]
    names = (t("drift.variant"), t("wiring.about"), "LaTeX")
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}
