"""A page that compares: a base and its variants, looked at in one of many ways, and what that says in words.

Say what it is, ask, measure, draw, say: every such page is a place (`pages.ui.places`) and a table of views. It knows
no view and no number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import streamlit as st

from pages.ui import controls, explain, link, panels, stage
from pages.ui.controls import Controls
from pages.ui.language import words
from pages.ui.link import Variant, View
from pages.ui.places import Place
from pages.ui.stage import Stage
from pages.ui.text import Words
from pages.ui.views import Lab, Viewpoint


def page(place: Place, views: Mapping[str, Viewpoint | Lab]) -> None:
    """Draw the page of `place`; its words are under ``<place>.title``, ``<place>_view`` and ``<place>_view_help``."""
    t = words()
    desk = Controls(place, t)
    notices = desk.settle()

    st.title(t(f"{place.name}.title"))
    for notice in notices:
        st.warning(explain.notice(notice, t), icon=":material/link_off:")

    looked = views[desk.looked()]
    if isinstance(looked, Lab):
        _lab(looked, desk, place, t)
    else:
        _compare(looked, desk, place, t)


def _lab(looked: Lab, desk: Controls, place: Place, t: Words) -> None:
    """Draw a view that needs no run."""
    shown = desk.shown(looked.asks, ())
    desk.mirror(replace(desk.view, shown=shown))
    panels.lab(looked, shown, t, place.name)


def _compare(looked: Viewpoint, desk: Controls, place: Place, t: Words) -> None:
    """Ask for base and variants, measure them and draw the view of what was measured."""
    with st.sidebar:
        desk.base()
        changes = desk.variants() if place.most else desk.view.variants
        if looked.fixed:
            st.caption(t(f"{place.name}.fixed_{looked.fixed}"))
    at_hand = looked.at_hand or place.at_hand
    desk.at_hand(at_hand)
    asked, chart, settings = st.container(), st.container(), desk.settings(at_hand)

    base, wrong = desk.described()
    compared, refused = link.compared(View(base=base, variants=looked.variants or changes))
    variants = controls.named(compared, t)
    with asked:
        shown = desk.shown(looked.asks, variants)
    desk.mirror(View(st.session_state["preset"], base, changes, shown))

    with chart:
        if wrong:
            for where in (st, settings):
                where.error(explain.refused(wrong, t), icon=":material/block:")
        for notice in refused:
            st.warning(explain.notice(notice, t), icon=":material/block:")
        panels.view(looked, taken(looked, variants, shown, t, place.name), shown, t, place.name)


def taken(looked: Viewpoint, variants: Sequence[Variant], shown: Mapping[str, str], t: Words, key: str) -> Stage:
    """Measure variants as a view wants it; what stands in the way is said. `key`: of the place where it is drawn."""
    measured = looked.take(variants, shown, t, key) if looked.take else stage.measured(variants, t, key)
    return stage.closer(measured, shown, looked.closer, t, key) if looked.closer else measured
