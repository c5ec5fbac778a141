"""Made-up trainings for the tests of live charts, which can compute the numbers again. A test says how far they are."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from pages.ui.events import Look
from pages.ui.patches import plain

LAYERS, LAST = 4, 40
now = {"step": 5, "looks": 0, "broken": 0}
"""Where the training is; how often somebody looked; how many of the next looks fail."""
_lock = threading.Lock()


def values(step: int) -> np.ndarray:
    """Every layer's number after `step` updates, NaN in layer 2 at step 3."""
    found = np.exp2(np.arange(LAYERS) / 2) * (1 + step / 10)
    return np.where((np.arange(LAYERS) == 2) & (step == 3), np.nan, found).astype(np.float32)


def figures(lang: str, upto: int) -> dict[str, go.Figure]:
    """Three figures and what the player needs, as they are after `upto` updates."""
    steps = np.arange(upto + 1)
    table = np.array([values(step) for step in steps])
    named = "layer" if lang == "en" else "层"
    film = {"steps": steps, "traces": {"0": {"y": table}}}
    same = {"uirevision": "same", "showlegend": True, "hovermode": "x", "hoverdistance": -1}
    return {
        "profile": go.Figure(
            [go.Scatter(x=np.arange(LAYERS), y=table[-1], name=f"{named} now", uid="now"),
             go.Scatter(x=np.arange(LAYERS), y=table[0], name=f"{named} start", uid="start")],
            {**same, "meta": {"film": film}, "xaxis": {"title": {"text": named}}}),
        "lines": go.Figure(
            [go.Scatter(x=steps, y=line, name=f"{named} {row}", uid=str(row)) for row, line in enumerate(table.T)],
            {**same, "meta": {"cursor": True}}),
        "map": go.Figure(
            go.Heatmap(x=steps, y=np.arange(LAYERS), z=table.T, uid="map"),
            {**same, "meta": {"cursor": True}}),
        "player": go.Figure([], {"meta": {"steps": steps}}),
    }


def look(query: Mapping[str, str]) -> Look:
    """Look at the training: the source of the tests' application."""
    if query.get("run") == "heavy":
        return Look({"heavy": {"data": [{"y": np.random.default_rng().random(200_000)}], "layout": {}}})
    if query.get("run") != "made-up":
        raise ValueError(f"there is no run {query.get('run')!r}")
    with _lock:
        now["looks"] += 1
        if now["broken"]:
            now["broken"] -= 1
            raise RuntimeError("broken on purpose")
        step = now["step"]
    return Look({name: plain(figure) for name, figure in figures(query["lang"], step).items()}, step >= LAST)
