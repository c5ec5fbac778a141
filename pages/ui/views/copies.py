"""A copy of a copy: the RMS over the number of copies for several gains, beside gain^depth."""

from __future__ import annotations

from functools import partial

import numpy as np

from core.copies import Copies, doubling
from core.copies import copies as copied
from pages.ui import charts, theme
from pages.ui.charts.curves import Curve, Drawing
from pages.ui.explain import number
from pages.ui.picture import Columns, Picture, Subject, Told
from pages.ui.text import Words
from pages.ui.views.depth import Shown

BESIDE: dict[float, theme.Style] = {
    0.8: theme.Style(theme.BELOW_COLOR, "4px,4px"), 1.0: theme.Style(theme.NORM_COLORS["rmsnorm"], "14px,5px,3px,5px"),
    1.25: theme.Style(theme.NORM_COLORS["groupnorm"], "2px,4px")}
"""Gain that is drawn whatever was chosen → how."""

OWN, LAW = theme.Style(theme.ABOVE_COLOR), theme.Style(theme.OTHER_COLOR, "12px,6px")

EDGE = 1.05
"""The gain that a gain of 1 is compared with in words."""


def copies(shown: Shown, t: Words) -> list[Told]:
    """The chosen gain among others, all with the same draws, and what gain^depth says of it."""
    gain = float(shown["gain"])
    found = copied((*(one for one in BESIDE if one != gain), gain), int(shown["depth"]), int(shown["width"]),
                   int(shown["draw"]))
    title = t("basics.copies_title", width=found.width)
    frame = charts.Frame(title, "", "", "log", x_title=t("basics.copies_axis"))
    drawing = Drawing(_curves(found, gain, t), t("basics.rms_axis"), t("basics.rms_axis"))
    return [Told(Picture("copies", charts.curves([drawing], frame, t), title, Subject(extra=("copy_rms", "copy_law")),
                         partial(_table, found, gain), 560), _said(found, gain, t))]


def _curves(found: Copies, gain: float, t: Words) -> list[Curve]:
    """Return a line a gain, the chosen one wide, and over it the dashed one of the law."""
    place = np.arange(found.depth + 1.0)
    lines = {one: (BESIDE.get(one, OWN), 3) for one in sorted(found.gains)} | {gain: (OWN, 6)}
    return [*(Curve(t("basics.gain_line" if one != gain else "basics.own_line", gain=f"{one:g}"), place,
                    found.rms[found.gains.index(one)], style, f"gain{round(100 * one)}", marked=True, width=width)
              for one, (style, width) in lines.items()),
            Curve(t("basics.law_line", gain=f"{gain:g}"), place, found.expected(gain), LAW, "law")]


def _said(found: Copies, gain: float, t: Words) -> str:
    """Say by what the copies grew or shrank, what was to be expected, and how soon it doubles or halves."""
    kind = "holds" if gain == 1 else "grows" if gain > 1 else "shrinks"
    growth, expected = found.growth(gain), float(found.expected(gain)[-1])
    low, high = found.chance
    return t(f"basics.copies_{kind}", depth=found.depth, gain=f"{gain:g}", growth=number(growth),
             expected=number(expected), ratio=number(growth / expected), low=number(low), high=number(high),
             width=found.width, doubling=number(doubling(gain)), edge=f"{EDGE:g}",
             beyond=number(float(found.expected(EDGE)[-1])))


def _table(found: Copies, gain: float) -> Columns:
    """Return a row a copy, the original first."""
    return {"copy": list(range(found.depth + 1)),
            **{f"rms_gain_{one:g}": values.tolist() for one, values in zip(found.gains, found.rms, strict=True)},
            f"gain_{gain:g}_to_the_copy": found.expected(gain).tolist()}
