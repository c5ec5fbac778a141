"""How things look: one colour a norm, one dash a placement, one symbol an init, and a Plotly template a theme.

The colours keep a contrast of 3:1 on white and on the dark background, and stay apart for the three kinds of colour
blindness (tests/test_theme.py); dash and symbol say the same again without colour. Words have 4.5:1 and are in the
colours of the theme alone, never in those of the data. The file knows names, not numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import plotly.graph_objects as go

NORM_COLORS: dict[str, str] = {
    "none": "#e5202a",
    "layernorm": "#3480d0",
    "rmsnorm": "#0c7d5d",
    "batchnorm": "#b38c63",
    "groupnorm": "#973aff",
    "scalenorm": "#dd6fa4",
    "dyt": "#75740c",
    "layernorm_std_eps": "#129ed0",
    "layernorm_unbiased": "#61629d",
}

PLACEMENT_DASHES: dict[str, str] = {
    "pre": "solid",
    "post": "12px,6px",
    "sandwich": "14px,5px,3px,5px",
    "branch": "4px,4px",
}

INIT_SYMBOLS: dict[str, str] = {
    "xavier": "circle",
    "normal": "square",
    "lecun": "diamond",
    "kaiming": "cross",
    "torch_default": "x",
    "orthogonal": "pentagon",
    "gpt2": "star",
    "deepnorm": "hexagon",
}
"""Triangles are missing on purpose: they mark values that have no place on the axis."""

FILLS = ("", "-open", "-open-dot")
"""How a symbol is filled where two lines of one dash would have the same: whoever sees no colour tells them by it."""

OTHER_COLOR = "#7d8794"
"""A norm that a visitor registered, and everything that belongs to no norm."""


HEAT_SCALE = "Viridis"
"""The colours of cells, from low to high."""

BELOW_COLOR, ABOVE_COLOR = "#3480d0", "#c06a00"
"""Of numbers on both sides of 0."""

SIGNED_SCALE = [[0.0, BELOW_COLOR], [0.5, "rgba(52,128,208,0)"], [0.5, "rgba(192,106,0,0)"], [1.0, ABOVE_COLOR]]
"""The colours of cells on both sides of 0, which has none, on any background."""

WARNING_COLOR = NORM_COLORS["none"]
"""What is not finite, and extremes."""


@dataclass(frozen=True)
class Style:
    """How one variant is drawn in every chart."""

    color: str = OTHER_COLOR
    dash: str = "solid"
    symbol: str = "circle"


NEUTRAL = Style()


def style(norm: str, placement: str = "pre", init: str = "xavier") -> Style:
    """Return the look of a variant; names that are not ours get the neutral look. Norm none has no placement."""
    return Style(
        NORM_COLORS.get(norm, OTHER_COLOR),
        "solid" if norm == "none" else PLACEMENT_DASHES.get(placement, "solid"),
        INIT_SYMBOLS.get(init, "circle"),
    )


def distinct(styles: Sequence[Style]) -> list[Style]:
    """Return the styles so that any two differ twice: in colour or dash, and in dash or symbol, which need no colour.

    Where colour and dash were seen before, another colour that no other has, as long as there is one; where dash and
    symbol were, another fill of the symbol, and another symbol where the fills run out.
    """
    free = [color for color in NORM_COLORS.values() if color not in {one.color for one in styles}]
    colored: set[tuple[str, str]] = set()
    shaped: set[tuple[str, str]] = set()
    found = []
    for one in styles:
        color = free.pop(0) if free and (one.color, one.dash) in colored else one.color
        symbols = [symbol + fill for symbol in dict.fromkeys((one.symbol, *INIT_SYMBOLS.values())) for fill in FILLS]
        symbol = next((symbol for symbol in symbols if (one.dash, symbol) not in shaped), one.symbol)
        colored.add((color, one.dash))
        shaped.add((one.dash, symbol))
        found.append(replace(one, color=color, symbol=symbol))
    return found


@dataclass(frozen=True)
class Palette:
    """The few colours of a theme outside the data; the same as in .streamlit/config.toml."""

    background: str
    text: str
    muted: str
    grid: str
    accent: str


PALETTES: dict[str, Palette] = {
    "light": Palette(background="#ffffff", text="#0b1220", muted="#566070", grid="#e3e7ed", accent="#1f5fae"),
    "dark": Palette(background="#11161f", text="#e9edf3", muted="#a3adba", grid="#2a3442", accent="#6aa9f4"),
}

FONT = "'Source Sans', 'PingFang SC', 'Microsoft YaHei', 'Noto Sans SC', 'Noto Sans CJK SC', sans-serif"
"""The type of the pages, and for Chinese; the same as in .streamlit/config.toml."""

TICK_PX, TEXT_PX, AXIS_PX, TITLE_PX = 16, 16, 18, 22
"""Type sizes for a lecture hall."""


@cache
def template(base: str) -> go.layout.Template:
    """Return the Plotly template of the theme ``light`` or ``dark``."""
    look = PALETTES[base]
    axis = {
        "gridcolor": look.grid,
        "linecolor": look.muted,
        "zeroline": False,
        "showline": True,
        "ticks": "outside",
        "tickcolor": look.muted,
        "tickfont": {"size": TICK_PX},
        "title": {"font": {"size": AXIS_PX}, "standoff": 10},
        "automargin": True,
        "exponentformat": "power",
        "minexponent": 5,
        "separatethousands": True,
    }
    return go.layout.Template(
        layout={
            "font": {"size": TEXT_PX, "color": look.text},
            "paper_bgcolor": look.background,
            "plot_bgcolor": look.background,
            "title": _title(look),
            "xaxis": axis,
            "yaxis": axis,
            "legend": {"font": {"size": TEXT_PX}, "itemwidth": 48},
            "hoverlabel": {"font": {"size": TEXT_PX, "color": look.text}, "bgcolor": look.background,
                           "bordercolor": look.muted, "align": "left", "namelength": -1},
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": look.muted, "activecolor": look.accent},
            "annotationdefaults": {"font": {"size": TEXT_PX, "color": look.muted}, "showarrow": False},
            "shapedefaults": {"line": {"color": look.muted}, "label": {"font": {"size": TEXT_PX, "color": look.muted}}},
        }
    )


def _title(look: Palette) -> dict[str, object]:
    """Place the title at the left above the drawing, with room of its own."""
    return {
        "font": {"size": TITLE_PX},
        "subtitle": {"font": {"size": TEXT_PX, "color": look.muted}},
        "x": 0,
        "xref": "container",
        "xanchor": "left",
        "y": 1,
        "yref": "container",
        "yanchor": "top",
        "automargin": True,
        "pad": {"l": 8, "t": 4, "b": 4},
    }
