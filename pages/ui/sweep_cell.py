"""The cell of a sweep that was clicked: its settings, its number, and the ways to its run.

It knows Streamlit, cells and links; it draws no picture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import streamlit as st

from pages.ui import explain, fields, link
from pages.ui.link import View
from pages.ui.places import DRIFT, ENTROPY, GRADIENTS, LIVE
from pages.ui.text import Words, escaped
from pages.ui.views import onward
from pages.ui.views.sweep import State, axes_of, number_of

WAYS = (DRIFT, GRADIENTS, ENTROPY)
"""The pages that show a probe."""


def choose(found: Sequence[State], t: Words) -> Callable[[str, str], None]:
    """Return what takes a click on the map: the names of a column and a row."""
    columns, rows = axes_of(found, t)

    def take(column: str, row: str) -> None:
        if column in columns and row in rows:
            st.session_state["cell"] = f"{rows.index(row)}.{columns.index(column)}"

    return take


def card(found: Sequence[State], shown: Mapping[str, str], t: Words) -> None:
    """Draw the cell that is looked at; of none, how one is chosen."""
    columns, rows = axes_of(found, t)
    row, column = map(int, shown["cell"].split(".")) if shown["cell"] else (-1, -1)
    if not (0 <= row < len(rows) and 0 <= column < len(columns)):
        st.caption(t("sweep.choose"))
        return
    chosen = found[column * len(rows) + row]
    with st.container(border=True):
        said = (f"{fields.label(path, t)}{t('drift.colon')}{escaped(str(value))}"
                for path, value in chosen.cell.values.items())
        st.markdown(f"**{' · '.join(said)}**")
        if chosen.value is not None:
            st.markdown(f"{number_of(shown, t)}{t('drift.colon')}**{explain.number(chosen.value)}**")
        else:
            st.markdown(t(f"sweep.cell_{chosen.status}", reason=escaped(chosen.reason(t))))
        _ways(chosen, t)


def _ways(chosen: State, t: Words) -> None:
    """Draw the links to the pages that show the cell's run."""
    experiment = chosen.cell.experiment
    if experiment is None or not chosen.run:
        return
    with st.container(horizontal=True):
        for place in (LIVE,) if experiment.protocol.steps else WAYS:
            runs = (chosen.run,) if place is LIVE else ()
            view = View(st.session_state["preset"], experiment, (), dict(place.defaults), runs)
            onward.way(place.name, link.write(view, place), t("sweep.open", page=t(f"{place.name}.title")), t)
