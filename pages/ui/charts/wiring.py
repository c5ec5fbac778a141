"""The wiring of blocks as a picture: the stream from top to bottom, the branches beside it, a panel for each wiring.

Everything is placed in pixels around a panel's middle, so that boxes fit their words at any width of the page. Colours
but a norm's own are left to the theme's template. The file knows nodes and edges; it does not know experiments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import plotly.graph_objects as go

from core.wiring import Node, Wiring
from pages.ui import theme
from pages.ui.charts import nodes
from pages.ui.charts.marks import literal
from pages.ui.text import Words

MAX_COLUMNS = 3
STREAM, BRANCH, CHAIN, HALF_BOX, HALF_PANEL = -70, 44, 0, 58, 130
"""Where the columns of a panel stand (a chain is what a block without a residual is), and half the widths of a box and
of a panel, in pixels from its middle."""

SCALES = {1: 1.25, 2: 1.25, 3: 1.0}
"""Panels side by side → how much larger than these sizes everything is drawn: three fit beside a sidebar at 1280 px."""

BUTTONS_PX = 34
"""Height at the top where Plotly's buttons appear."""

LARGE_DOT_PX = 24
"""Type size of a site's dot on the stream, where it must be wider than the line."""

LINE_PX, PAD_PX = 21, 12
"""Height of a line in a box, and what a box is higher than its lines."""

SMALL_PX, PLUS_PX = 14, 20
"""Type sizes of what stands below a name, and of the sign of a sum."""

RADIUS, DOT_PX, GAP_PX = 14, 24, 14
"""Radius of a sum, and heights of a site's dot and of the piece of line before the next thing."""

THICK, THIN = 7, 2.5
"""Widths of the stream and of a branch."""


@dataclass(frozen=True)
class Panel:
    """One wiring with the name that stands above it."""

    name: str
    wiring: Wiring


@dataclass
class _Place:
    """Where a node is: `x` of its middle, from `top` to `bottom`; its sites' dots follow below, down to `end`."""

    node: Node
    x: float
    top: float
    bottom: float

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2

    @property
    def end(self) -> float:
        return self.bottom + DOT_PX * len(self.node.sites)


@dataclass
class _Pen:
    """Collects shapes and annotations of one panel.

    `across`: a share of the figure's width, `inset` pixels right of which its middle is; `down`: its top; `scale`: how
    many pixels are drawn for each one asked for.
    """

    across: float
    inset: float
    down: float
    scale: float
    shapes: list[dict[str, Any]] = field(default_factory=list)
    annotations: list[dict[str, Any]] = field(default_factory=list)

    def line(self, *points: tuple[float, float], width: float = THIN) -> None:
        """Draw a line through points."""
        path = "M" + "L".join(f"{self._right(x):g},{self._up(y):g}" for x, y in points)
        self._shape(type="path", path=path, line={"width": width * self.scale})

    def head(self, x: float, y: float, way: tuple[int, int]) -> None:
        """Draw an arrow's head with its tip at a point, looking one `way`."""
        dx, dy = way
        back, side = 8, 6
        self.line((x - back * dx + side * dy, y - back * dy + side * dx), (x, y),
                  (x - back * dx - side * dy, y - back * dy - side * dx))

    def box(self, middle: tuple[float, float], half: tuple[float, float], kind: str = "rect", **look: Any) -> None:
        """Draw a box, or a circle, around a middle."""
        (x, y), (wide, high) = middle, half
        self._shape(type=kind, x0=self._right(x - wide), x1=self._right(x + wide), y0=self._up(y - high),
                    y1=self._up(y + high), **look)

    def text(self, x: float, y: float, text: str, hover: str = "", **look: Any) -> None:
        """Write at a point, in the middle of it unless `look` says otherwise; `size` is that of the type."""
        size = look.pop("size", theme.TEXT_PX) * self.scale
        self.annotations.append({
            "text": text, "x": self.across, "xref": "paper", "xshift": self._right(x), "y": 1, "yref": "paper",
            "yshift": self._up(y), "xanchor": "center", "yanchor": "middle", "showarrow": False, "borderpad": 0,
            "font": {"size": size}, **look, **({"hovertext": hover} if hover else {})})

    def small(self, text: str) -> str:
        """Return text in the size of what stands below a name."""
        return f"<span style='font-size:{SMALL_PX * self.scale:g}px'>{text}</span>"

    def _right(self, x: float) -> float:
        return x * self.scale + self.inset

    def _up(self, y: float) -> float:
        return -(y * self.scale + self.down)

    def _shape(self, **shape: Any) -> None:
        self.shapes.append({"xref": "paper", "yref": "paper", "xsizemode": "pixel", "ysizemode": "pixel",
                            "xanchor": self.across, "yanchor": 1, **shape})


def wiring(panels: Sequence[Panel], t: Words) -> go.Figure:
    """Draw one panel for each wiring, up to three side by side; the figure's height is in its layout.

    A single one stands at the left, so that there is room for the labels of what is pointed at.
    """
    rows = -(-len(panels) // MAX_COLUMNS)
    columns = -(-len(panels) // max(rows, 1)) or 1
    scale = SCALES[columns]
    pens: list[_Pen] = []
    down = 0.0
    for first in range(0, len(panels), columns):
        ends = []
        for column, panel in enumerate(panels[first:first + columns]):
            place = ((column + 0.5) / columns, 0.0) if columns > 1 else (0.0, (HALF_PANEL + 2) * scale)
            pens.append(_Pen(*place, down, scale))
            ends.append(_panel(panel, pens[-1], t))
        down += (max(ends) + 2 * GAP_PX) * scale
    hidden = {"visible": False, "fixedrange": True, "range": [0, 1]}
    return go.Figure(layout={
        "template": theme.template("light"), "height": round(down) + BUTTONS_PX, "dragmode": False,
        "margin": {"l": 0, "r": 0, "t": BUTTONS_PX, "b": 0}, "xaxis": hidden, "yaxis": hidden,
        "shapes": [shape for pen in pens for shape in pen.shapes],
        "annotations": [note for pen in pens for note in pen.annotations]})


def _panel(panel: Panel, pen: _Pen, t: Words) -> float:
    """Draw a panel and return its height."""
    drawn = panel.wiring
    stream = STREAM if any(node.kind == "add" for node in drawn.nodes) else CHAIN
    pen.text(0, 16, f"<b>{literal(panel.name)}</b>")
    before = _stack(drawn.before, stream, 44, pen, t)
    top = before[-1].end + GAP_PX
    places = _block(drawn, stream, top + 2 * GAP_PX, pen, t)
    out = places[drawn.output.name]
    bottom = out.end + GAP_PX
    seamless = places[drawn.nodes[0].name].top + 1
    pen.line((stream, before[-1].bottom), (stream, seamless), width=_width(stream))
    pen.box((0, (top + bottom) / 2), (HALF_PANEL, (bottom - top) / 2), line={"width": 1.5, "dash": "5px,5px"})
    short, full = map(literal, nodes.caption(drawn, t))
    pen.text(HALF_PANEL - 8, top + 15, pen.small(short), full, xanchor="right")
    after = _stack(drawn.after, stream, bottom + GAP_PX, pen, t)
    pen.line((stream, out.bottom), (stream, after[0].top if after else bottom + GAP_PX), width=_width(stream))
    if after:
        pen.line((stream, after[-1].bottom), (stream, after[-1].end), width=_width(stream))
    return after[-1].end if after else bottom + GAP_PX


def _stack(chain: Sequence[Node], x: float, top: float, pen: _Pen, t: Words) -> list[_Place]:
    """Draw nodes one below the other on the stream."""
    places: list[_Place] = []
    for node in chain:
        place = _placed(node, x, top, t)
        if places:
            pen.line((x, places[-1].bottom), (x, place.top), width=_width(x))
        _draw_node(place, pen, t)
        places.append(place)
        top = place.end + GAP_PX
    return places


def _block(drawn: Wiring, stream: float, top: float, pen: _Pen, t: Words) -> dict[str, _Place]:
    """Draw the block's nodes, one to a row, and its edges."""
    aside = _aside(drawn)
    places: dict[str, _Place] = {}
    for node in drawn.nodes:
        place = _placed(node, BRANCH if node.name in aside else stream, top, t)
        _draw_node(place, pen, t)
        places[node.name] = place
        top = place.end + 2 * GAP_PX
    for edge in drawn.edges:
        source, target = places[edge.source], places[edge.target]
        if edge.residual:
            _draw_residual(source, target, pen, t)
        else:
            _draw_edge(source, target, pen)
    return places


def _aside(drawn: Wiring) -> set[str]:
    """Return the nodes that stand beside the stream: those between it and the second input of a sum."""
    inputs = {node.name: node.inputs for node in drawn.nodes}

    def behind(name: str) -> set[str]:
        return {name}.union(*(behind(source) for source in inputs[name]))

    sums = [node.inputs for node in drawn.nodes if node.kind == "add"]
    return set().union(*(behind(branch) - behind(stream) for stream, branch in sums))


def _placed(node: Node, x: float, top: float, t: Words) -> _Place:
    if node.kind == "add":
        return _Place(node, x, top, top + 2 * RADIUS)
    count = len(nodes.lines(node, t))
    return _Place(node, x, top, top + (PAD_PX + LINE_PX * count if count else 0))


def _draw_node(place: _Place, pen: _Pen, t: Words) -> None:
    """Draw a node and the dots of its sites."""
    node, said = place.node, nodes.lines(place.node, t)
    middle = (place.x, place.middle)
    if node.kind == "add":
        pen.box(middle, (RADIUS, RADIUS), "circle", line={"width": THIN})
        pen.text(*middle, "<b>+</b>", nodes.hover(node, t), size=PLUS_PX)
    elif said:
        pen.box(middle, (HALF_BOX, (place.bottom - place.top) / 2), **_look(node))
        pen.text(*middle, "<br>".join([f"<b>{said[0]}</b>", *map(pen.small, said[1:])]), nodes.hover(node, t),
                 width=(2 * HALF_BOX - 4) * pen.scale, height=(place.bottom - place.top - 4) * pen.scale)
    for index, site in enumerate(node.sites):
        y, hover = place.bottom + DOT_PX * (index + 0.5) + 2, nodes.site_hover(site, t)
        pen.text(place.x, y, "●", hover, size=LARGE_DOT_PX if place.x == STREAM else theme.TEXT_PX)
        pen.text(place.x + 12, y, pen.small(site), hover, xanchor="left")


def _width(x: float) -> float:
    """Return the width of a line in the column at `x`: a stack without a residual has no stream, only a chain."""
    return THICK if x == STREAM else THIN


def _look(node: Node) -> dict[str, Any]:
    """Return the look of a box: a norm's in its colour, every other in the theme's."""
    if node.kind != "norm":
        return {"line": {"width": 2}}
    color = theme.NORM_COLORS.get(node.parameters["norm"], theme.OTHER_COLOR)
    return {"line": {"width": 3, "color": color}, "fillcolor": f"{color}2e"}


def _draw_residual(source: _Place, target: _Place, pen: _Pen, t: Words) -> None:
    """Draw the stream past a branch, with its factor α where that is not 1."""
    alpha = target.node.parameters["alpha"]
    if alpha == 1.0:
        pen.line((source.x, source.bottom), (target.x, target.top), width=THICK)
        return
    middle, half = (source.end + GAP_PX + target.top) / 2, 16
    pen.line((source.x, source.bottom), (source.x, middle - half), width=THICK)
    pen.line((target.x, middle + half), (target.x, target.top), width=THICK)
    pen.box((target.x, middle), (40, half), line={"width": 2})
    factor = Node("", "scale", parameters={"value": alpha})
    pen.text(target.x, middle, f"<b>{nodes.lines(factor, t)[0]}</b>", nodes.hover(target.node, t))


def _draw_edge(source: _Place, target: _Place, pen: _Pen) -> None:
    """Draw any other edge: along a column, out of the stream into a branch, or from a branch into a sum."""
    if source.x == target.x:
        pen.line((source.x, source.bottom), (target.x, target.top), width=_width(source.x))
        if source.x != STREAM:
            pen.head(target.x, target.top, (0, 1))
    elif target.node.kind == "add":
        pen.line((source.x, source.bottom), (source.x, target.middle), (target.x + RADIUS, target.middle))
        pen.head(target.x + RADIUS, target.middle, (-1, 0))
    else:
        split = source.end + GAP_PX / 2
        pen.line((source.x, split), (target.x, split), (target.x, target.top))
        pen.head(target.x, target.top, (0, 1))
