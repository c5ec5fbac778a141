"""The page of stored runs: found, named, pinned, compared, taken away, computed again and deleted."""

from __future__ import annotations

import streamlit as st

from pages.ui import run_card, shelf, side_by_side
from pages.ui.language import words
from pages.ui.text import Words

WATCH_S = 2.0


WATCHING = "runs.watching"
"""Whether runs were under way when the page was drawn last."""


def body(t: Words) -> None:
    """Draw the shelf and what is chosen of it; while runs are under way it is drawn again and again."""
    runs = shelf.load()
    if run_card.under_way(runs) != st.session_state.get(WATCHING, False):
        st.session_state[WATCHING] = run_card.under_way(runs)
        st.rerun()
    if not runs:
        shelf.empty(t)
    else:
        shelf.filters(runs, t)
        listed = [run for run in runs if shelf.sought().wants(run, t)]
        shelf.table(listed, t)
        shelf.bounds(runs, listed, t)
    shelf.mirror()
    shelf.gone(t)
    by_id = {run.view.id: run for run in runs}
    chosen = [by_id[run] for run in shelf.sought().chosen]
    if len(chosen) == 1:
        one = chosen[0].view
        siblings = [run for run in runs if run.view.key == one.key and run.view.id != one.id]
        run_card.card(chosen[0], siblings, t)
    elif chosen:
        side_by_side.several(chosen, t)
    shelf.usage(t)
    run_card.confirm(runs, t)


t = words()
notices = shelf.settle()
st.title(t("runs.title"))
shelf.say(notices, t)
st.fragment(body, run_every=WATCH_S if st.session_state.get(WATCHING, False) else None)(t)
