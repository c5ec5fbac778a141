"""Numbers in, Plotly figure out: every picture of the product, a file a kind, all of them in `CHARTS`.

A chart knows neither a language nor Streamlit, and it computes no measurement.
"""

from __future__ import annotations

from collections.abc import Callable

import plotly.graph_objects as go

from pages.ui.charts.axes import SCALES, SHARES, finite_range
from pages.ui.charts.bars import Bars, bars
from pages.ui.charts.boxes import Boxes, boxes
from pages.ui.charts.causes import Heads, causes
from pages.ui.charts.cells import Cells, cells
from pages.ui.charts.cubes import BLOCKS_PX, Block, cubes
from pages.ui.charts.curves import Curve, Drawing, curves
from pages.ui.charts.exponents import Histogram, exponents
from pages.ui.charts.facets import rows as facet_rows
from pages.ui.charts.grids import Grid, grid
from pages.ui.charts.groups import Member, groups
from pages.ui.charts.leaks import leaks
from pages.ui.charts.levels import Levels, Part, levels
from pages.ui.charts.lines import Film, profile
from pages.ui.charts.marks import MAX_TRACES, Frame, Series, Text, literal, shortened
from pages.ui.charts.multiples import multiples
from pages.ui.charts.promises import Norms, promises
from pages.ui.charts.ribbons import HEAD_BANDS, Ribbon, ribbons
from pages.ui.charts.rulers import Span, rulers
from pages.ui.charts.steps import Course, Event, steps
from pages.ui.charts.strips import Strip, strips
from pages.ui.charts.weights import Weights, weights
from pages.ui.charts.wiring import Panel, wiring

CHARTS: dict[str, Callable[..., go.Figure]] = {
    "profile": profile, "ribbons": ribbons, "exponents": exponents, "grid": grid, "wiring": wiring, "steps": steps,
    "strips": strips, "cells": cells, "causes": causes, "bars": bars, "boxes": boxes, "curves": curves, "multiples":
    multiples, "groups": groups, "cubes": cubes, "levels": levels, "promises": promises, "rulers": rulers,
    "weights": weights, "leaks": leaks,
}
"""Name of a chart → what draws it."""

__all__ = ["BLOCKS_PX", "CHARTS", "HEAD_BANDS", "MAX_TRACES", "SCALES", "SHARES", "Bars", "Block", "Boxes", "Cells",
           "Course", "Curve", "Drawing", "Event", "Film", "Frame", "Grid", "Heads", "Histogram", "Levels", "Member",
           "Norms", "Panel", "Part", "Ribbon", "Series", "Span", "Strip", "Text", "Weights", "bars", "boxes",
           "causes", "cells", "cubes", "curves", "exponents", "facet_rows", "finite_range", "grid", "groups", "leaks",
           "levels", "literal", "multiples", "profile", "promises", "ribbons", "rulers", "shortened", "steps",
           "strips", "weights", "wiring"]
