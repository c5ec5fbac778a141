"""A tensor as small cubes, each entry one, with those lit that belong together: one block, or several side by side.

Drawn obliquely in two dimensions, so that no entry hides another: a sample is a sheet of T rows and D columns, and the
samples stand in rows. What is lit has a pattern and an outline, not a colour alone. The
file does not know why entries belong together.

Shapes: B batch, T positions, D features.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from pages.ui import theme
from pages.ui.charts import axes, marks
from pages.ui.charts.axes import F64, Mask
from pages.ui.charts.marks import Frame, Part, Text, faded

PITCH, DEEP, GAP, LIFT = 1.36, (0.24, 0.2), 1.1, 0.3
"""From cube to cube, how far a cube reaches back, between sheets, and how much higher or farther right each stands, in
widths of a cube."""

ROOM = (750, 560)
"""Pixels that everything should fit into: a page of 1280 beside its sidebar."""

BLOCKS_PX = ROOM[0] + 16
"""Width of a chart that has this room."""

LARGEST_PX, NAME_PX, LINE_PX, ABOVE_PX, BELOW_PX = 84, 14, 21, 44, 46
"""A cube's width at most; type size of a block's name, heights of a line of it, of the chart's title, of its legend."""

EDGE = 0.1
"""Room for half of an outline."""

INDICES = (0.95, 0.85)
"""Room for the indices at the left of the first sheet and above it, in widths of a cube."""

LARGEST_TEXT, SMALLEST_TEXT, LETTER = 24, 11, 0.6
"""Type sizes of a value on its cube, below which it stands in the hover alone; width of a letter over its size."""

COLUMNS = 3
"""Blocks side by side."""

FRONT = np.array([(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)], float)
SIDES = np.array([(0, 1), (DEEP[0], 1 + DEEP[1]), (1 + DEEP[0], 1 + DEEP[1]), (1 + DEEP[0], DEEP[1]), (1, 0), (1, 1),
                  (0, 1)], float)


@dataclass(frozen=True, eq=False)
class Block:
    """One tensor. `values`, `lit`, `broken`: (B, T, D), and which are lit, and whose output is not finite.

    `key`: what a click says beside the entry; `names`: lines above; `chosen`: the entry (b, t, d).
    """

    key: str
    names: Sequence[str]
    values: F64
    lit: Mask
    broken: Mask
    chosen: tuple[int, ...]


@dataclass(frozen=True)
class _Plan:
    """Where everything stands: `unit` is a cube's width in pixels; `across`: samples side by side in a block; `block`:
    the room that it has; `title`: room above it; `columns`, `rows` of blocks."""

    shape: tuple[int, ...]
    across: int
    unit: float
    columns: int
    rows: int
    block: tuple[float, float]
    title: float

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of everything."""
        return self.columns * (self.block[0] + GAP) - GAP, self.rows * (self.block[1] + self.title + GAP) - GAP

    def origin(self, number: int) -> tuple[float, float]:
        """Return the upper left corner of a block's room."""
        row, column = divmod(number, self.columns)
        return column * (self.block[0] + GAP), -row * (self.block[1] + self.title + GAP)

    def corners(self, number: int) -> F64:
        """Return the lower left corner of each front, (B·T·D, 2), of the block of that number."""
        b, t, d = (index.ravel() for index in np.indices(self.shape))
        left, top = self.origin(number)
        row, column = np.divmod(b, self.across)
        x = left + d * PITCH + column * (self.shape[2] * PITCH + GAP) + row * LIFT
        y = top - self.title - LIFT * (self.across - 1) - (t + 1) * PITCH - row * (self.shape[1] * PITCH + GAP)
        return np.stack([x, y + column * LIFT], 1)


def _extent(shape: Sequence[int], across: int) -> tuple[float, float]:
    """Return width and height of a block of which so many samples stand side by side."""
    b, t, d = shape
    down = -(-b // across)
    return (across * (d * PITCH + GAP) - GAP + LIFT * (down - 1), down * (t * PITCH + GAP) - GAP + LIFT * (across - 1))


def _plan(shape: Sequence[int], count: int, lines: int) -> _Plan:
    """Choose how samples stand, so that cubes become as large as there is room for."""
    columns, rows = min(count, COLUMNS), -(-count // COLUMNS)
    extents = [_extent(shape, across) for across in range(1, shape[0] + 1)]
    wide, high = INDICES if count == 1 else (0.0, 0.0)
    room_high = ROOM[1] / rows - lines * LINE_PX
    units = [min(ROOM[0] / (columns * (width + GAP) - GAP + wide), room_high / (height + GAP * (rows > 1) + high),
                 LARGEST_PX) for width, height in extents]
    best = units.index(max(units))
    unit, (width, height) = units[best], extents[best]
    room = ROOM[0] / columns / unit - GAP if count > 1 else 0.0  # narrow blocks leave room for their names
    return _Plan(tuple(shape), best + 1, unit, columns, rows, (max(width, room), height),
                 high + lines * LINE_PX / unit)


def cubes(blocks: Sequence[Block], frame: Frame, t: Text) -> go.Figure:
    """Draw the blocks, all of one shape; `statistic` names a value in the hover. The height is in the layout.

    A single block has its values on the cubes where they are large enough, and its indices beside them.
    """
    single = len(blocks) == 1
    plan = _plan(blocks[0].values.shape, len(blocks), 0 if single else max(len(block.names) for block in blocks))
    corners = np.concatenate([plan.corners(number) for number in range(len(blocks))])
    traces = [*_bodies(blocks, corners, t), _marks(blocks, corners, plan, frame)]
    broken = np.concatenate([block.broken.ravel() for block in blocks])
    if broken.any():
        traces.append(_warnings(corners[broken], plan, t))
    if single:
        traces.extend(_texts(blocks[0], corners, plan))
    width, height = plan.size
    below = INDICES[1] if single else 0.0
    settings = marks.layout(frame, "") | {
        "xaxis": _axis(-INDICES[0] if single else -EDGE, width + EDGE) | {"constraintoward": "left"},
        "yaxis": _axis(-height - below - EDGE, 0) | {"scaleanchor": "x", "constraintoward": "top"},
        "hoverdistance": round(plan.unit), "dragmode": False, "margin": {"l": 8, "r": 8, "t": ABOVE_PX, "b": BELOW_PX},
        "height": round((height + below + EDGE) * plan.unit) + ABOVE_PX + BELOW_PX,
        "legend": {"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom"},
        "annotations": [] if single else list(_names(blocks, plan))}
    return go.Figure(traces, settings)


def _axis(low: float, high: float) -> Part:
    return {"visible": False, "range": [low, high], "fixedrange": True, "constrain": "domain"}


def _bodies(blocks: Sequence[Block], corners: F64, t: Text) -> Iterator[Part]:
    """Yield the cubes, sides and fronts apart: the others first, then those that are lit, then the chosen ones."""
    lit = np.concatenate([block.lit.ravel() for block in blocks])
    chosen = np.zeros(len(lit), bool)
    for number, block in enumerate(blocks):
        chosen[number * block.values.size + np.ravel_multi_index(block.chosen, block.values.shape)] = True
    looks = (("chart.cube_other", ~lit & ~chosen, theme.OTHER_COLOR, 1, 0.07, ""),
             ("chart.cube_lit", lit & ~chosen, theme.ABOVE_COLOR, 3, 0.16, "/"),
             ("chart.cube_chosen", chosen, theme.BELOW_COLOR, 5, 0.4, ""))
    for key, which, color, width, opacity, pattern in looks:
        if not which.any():
            continue
        common: Part = {"type": "scatter", "mode": "lines", "hoverinfo": "skip", "fill": "toself", "legendgroup": key,
                        "name": t(key)}
        yield common | _polygons(corners[which], SIDES) | {
            "fillcolor": faded(color, min(1, 2.2 * opacity)), "line": {"color": color, "width": min(width, 2)},
            "showlegend": False}
        fill: Part = {"fillcolor": faded(color, opacity)}
        if pattern:
            fill |= {"fillpattern": {"shape": pattern, "size": 12, "solidity": 0.18, "fgcolor": faded(color, 0.55),
                                     "bgcolor": faded(color, opacity)}}
        yield common | _polygons(corners[which], FRONT) | fill | {"line": {"color": color, "width": width}}


def _polygons(corners: F64, outline: F64) -> Part:
    """Return an outline at each corner, with a gap behind it."""
    drawn = np.full((len(corners), len(outline) + 1, 2), np.nan)
    drawn[:, :-1] = corners[:, None] + outline
    flat = drawn.reshape(-1, 2)
    return {"x": flat[:, 0], "y": flat[:, 1]}


def _marks(blocks: Sequence[Block], corners: F64, plan: _Plan, frame: Frame) -> Part:
    """Return what the pointer meets: the middle of each front, which knows its entry and its value."""
    entries = [".".join(map(str, entry)) for entry in np.ndindex(plan.shape)]
    values = [said(value) for block in blocks for value in block.values.ravel().tolist()]
    return {
        "type": "scatter", "mode": "markers", "x": corners[:, 0] + 0.5, "y": corners[:, 1] + 0.5, "showlegend": False,
        "ids": [f"{entry}|{block.key}" for block in blocks for entry in entries], "uid": "entries",
        "text": [f"b.t.d = {entry}" for entry in entries] * len(blocks), "customdata": values,
        "marker": {"size": plan.unit * 0.9, "symbol": "square", "opacity": 0},
        "hovertemplate": f"%{{text}}<br>{frame.statistic} <b>%{{customdata}}</b><extra></extra>"}


def _warnings(corners: F64, plan: _Plan, t: Text) -> Part:
    """Return a triangle in the corner of each entry whose output is not finite."""
    return {"type": "scatter", "mode": "markers", "x": corners[:, 0] + 0.82, "y": corners[:, 1] + 0.84,
            "hoverinfo": "skip", "name": t("chart.cube_broken"),
            "marker": {"symbol": "triangle-up", "color": theme.WARNING_COLOR, "size": max(8, 0.2 * plan.unit)}}


def _texts(block: Block, corners: F64, plan: _Plan) -> Iterator[Part]:
    """Yield the values on the cubes, and the indices beside each sheet."""
    values = [said(value) for value in block.values.ravel().tolist()]
    longest = max(len(value.replace("<sup>", "").replace("</sup>", "")) for value in values)
    size = min(LARGEST_TEXT, plan.unit / (LETTER * (longest + 0.5)))
    common: Part = {"type": "scatter", "mode": "text", "hoverinfo": "skip", "showlegend": False}
    if size >= SMALLEST_TEXT:
        yield common | {"x": corners[:, 0] + 0.5, "y": corners[:, 1] + 0.5, "text": values, "textfont": {"size": size}}
    grid = corners.reshape(*plan.shape, 2)
    places = [(*(grid[b, 0, 0] + (0.5, 1.55)), f"<b>b {b}</b>") for b in range(plan.shape[0])]
    if plan.unit * PITCH >= theme.TICK_PX * 2:
        places += [(*(grid[b, -1, d] + (0.5, -0.25)), f"d {d}") for b, d in np.ndindex(plan.shape[0], plan.shape[2])]
        places += [(*(grid[b, row, 0] + (-0.45, 0.5)), f"t {row}") for b, row in np.ndindex(plan.shape[:2])]
    x, y, text = zip(*places, strict=True)
    yield common | {"x": list(x), "y": list(y), "text": list(text), "textfont": {"size": theme.TICK_PX}}


def _names(blocks: Sequence[Block], plan: _Plan) -> Iterator[Part]:
    """Yield the lines above each block, the first of them in bold."""
    for number, block in enumerate(blocks):
        x, y = plan.origin(number)
        first, *rest = map(marks.literal, block.names)
        yield {"x": x, "y": y, "xanchor": "left", "yanchor": "top", "align": "left", "showarrow": False,
               "font": {"size": NAME_PX}, "text": "<br>".join([f"<b>{first}</b>", *rest])}


def said(value: float) -> str:
    """Write a value on its cube; of what is not finite its name."""
    return axes.number(value) if np.isfinite(value) else marks.spelled(value)
