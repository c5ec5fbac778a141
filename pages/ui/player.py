"""The player of a training: where in its recorded steps the charts of a feed stand, and a film of all of them.

It moves the charts in the browser (assets/player.js) and tells the page only where the visitor let go. It does not know
what the charts show.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

from pages.ui import stream
from pages.ui.language import words

ASSETS = Path(__file__).resolve().parents[2] / "assets"

WORDS = ("play", "pause", "newest", "range", "at", "at_newest", "waiting")
"""Keys under ``player``: what the player says."""

_mount = st.components.v2.component(
    "driftscope_player",
    js=(ASSETS / "player.js").read_text("utf-8"),
    css=(ASSETS / "player.css").read_text("utf-8"),
    isolate_styles=False,
)


def player(feed: str, name: str, key: str, *, step: int | None = None,
           on_step: Callable[[int | None], None] | None = None) -> None:
    """Draw the player of the charts that follow `feed`.

    `name`: the feed's figure whose ``layout.meta.steps`` are the recorded steps; `key`: constant for one place on a
    page; `step`: where to stand, None for the newest; `on_step`: is given the step where the visitor let go.
    """
    t = words()
    told: dict[str, Any] = {} if on_step is None else {"on_stood_change": lambda: _tell(key, on_step)}
    _mount(
        key=key,
        data={
            "feed": feed,
            "name": name,
            "module": stream.FEED,
            "step": step,
            "lang": t.lang,
            "words": {word: t(f"player.{word}", step="{step}", last="{last}") for word in WORDS},
        },
        **told,
    )


def _tell(key: str, on_step: Callable[[int | None], None]) -> None:
    stood = st.session_state[key].get("stood")
    if isinstance(stood, dict):  # {"step": None} is an answer, None is none
        step = stood.get("step")
        on_step(step if isinstance(step, int) else None)
