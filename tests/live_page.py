"""The page of tests/live_app.py: three charts and a player on one feed, and a chart that comes and goes."""

import live_numbers
import streamlit as st

from pages.ui import stream
from pages.ui.component import draw
from pages.ui.language import choose, words
from pages.ui.player import player

t = words()
choose(t)
feed = stream.live({"run": "made-up", "lang": t.lang})
figures = live_numbers.figures(t.lang, 2)
given = st.query_params.get("step")
st.number_input("number", 0, 9, 0, key="number")


def remember(step: int | None) -> None:
    """Keep the player's step in the link."""
    st.session_state["told"] = [*st.session_state.get("told", []), step]
    if step is None:
        st.query_params.pop("step", None)
    else:
        st.query_params["step"] = str(step)


player(feed, "player", "player", step=None if given is None else int(given), on_step=remember)
st.text(f"told {st.session_state.get('told', [])}")
for name in ("profile", "lines", "map"):
    draw(figures[name], name, label=name, height=300, feed=feed, name=name)
if st.toggle("another", key="more"):
    draw(figures["lines"], "another", label="another", height=300, feed=feed, name="lines")
