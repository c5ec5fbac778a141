"""The one chart component: hands a figure to ``assets/chart.js``, which draws it with Plotly.react.

Used for every chart, because ``st.plotly_chart`` takes a chart down whenever its data change, and with it the visitor's
zoom, hover and hidden lines. Nothing here knows what a figure shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from pages.ui import stream, theme
from pages.ui.language import words
from pages.ui.text import Words

ASSETS = Path(__file__).resolve().parents[2] / "assets"

PHRASES: dict[str, str] = {
    "Download plot as a PNG": "plotly.image",
    "Zoom": "plotly.zoom",
    "Pan": "plotly.pan",
    "Zoom in": "plotly.zoom_in",
    "Zoom out": "plotly.zoom_out",
    "Reset axes": "plotly.reset",
    "Double-click to zoom back out": "plotly.zoom_back",
    "Double-click on legend to isolate one trace": "plotly.isolate",
    "Preparing image - this may take a few seconds": "plotly.preparing",
}
"""What Plotly says by itself → our key for it."""

SCRIPT = "\n".join((ASSETS / name).read_text("utf-8") for name in ("chart.js", "walk.js"))
"""The component's one module."""

_mount = st.components.v2.component(
    "driftscope_chart",
    js=SCRIPT,
    css=(ASSETS / "chart.css").read_text("utf-8"),
    isolate_styles=False,  # Plotly's zoom does not work in a shadow tree
)


def draw(figure: go.Figure, key: str, *, label: str, height: int = 520, width: int = 0,  # noqa: PLR0913  one place
         on_pick: Callable[[str, str], None] | None = None, feed: str = "", name: str = "", scale: float = 0) -> None:
    """Draw `figure`. `key`: constant for one place on a page; `label`: what a screen reader says; `height`: pixels.

    `width`: pixels at least, below which the chart scrolls sideways; `on_pick`: is given the names of the column and
    the row that were clicked, or the two of a point whose id is ``one|other``. `feed`: address of an event stream
    (`stream.live`), whose figure `name` the chart follows from then on. `scale`: for a slide, 0 for a page: in a window
    of 720 pixels type is so many times larger, in a higher one more, and the chart is as high as there is room.

    ``layout.meta`` may say how it follows the player of that feed: ``{"film": {"steps": [...], "traces": {"0": {"y":
    rows}}}}``: trace 0 shows the row of the recorded step there; ``{"cursor": True}``: x counts steps, a line is there.
    """
    picked: dict[str, Any] = {} if on_pick is None else {"on_picked_change": lambda: _pick(key, on_pick)}
    served = {"library": stream.PLOTLY, "module": stream.FEED, "feed": feed, "name": name, "scale": scale}
    shape = {"height": height, "width": width, "picks": on_pick is not None}
    _mount(key=key, data={**drawn(figure, label), **spoken(words()), **served, **shape}, **picked)


def drawn(figure: go.Figure, label: str) -> dict[str, Any]:
    """Return what ``assets/chart.js`` is handed of one figure."""
    return {"figure": _bare(figure), "label": label}


def spoken(t: Words) -> dict[str, Any]:
    """Return what ``assets/chart.js`` is handed whatever it draws: the looks of both themes, and words."""
    return {
        "templates": {base: theme.template(base).to_plotly_json() for base in theme.PALETTES},
        "lang": t.lang,
        "phrases": {said: t(ours) for said, ours in PHRASES.items()},
        "failure": t("chart.failed"),
        "hint": t("chart.hint"),
        "hint_pick": t("chart.hint_pick"),
    }


def _pick(key: str, on_pick: Callable[[str, str], None]) -> None:
    chosen = st.session_state[key].get("picked")
    if isinstance(chosen, list) and [type(name) for name in chosen] == [str, str]:
        on_pick(*chosen)


def _bare(figure: go.Figure) -> dict[str, Any]:
    """Return the figure as JSON, arrays as bytes, without its template: only the browser knows which theme is on."""
    plain = figure.to_dict()
    plain["layout"].pop("template", None)
    if figure.layout.meta is not None:
        plain["layout"]["meta"] = figure.layout.meta  # ours to read, and we do not read bytes
    return {"data": _plain(plain["data"]), "layout": _plain(plain["layout"])}


def _plain(value: Any) -> Any:
    """Return what JSON can say: arrays that are not bytes (empty ones, Plotly leaves) as lists, NaN and ±Inf as null.

    Streamlit hands over anything else by another way, in which everything beside it is lost.
    """
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
